//! # What it shows
//!
//! The program checked its values and stopped.
//!
//! # Why it happens
//!
//! A learning rate, bad data, an overflow in half precision, or a corrupted transfer.
//!
//! # Evidence
//!
//! An exception or error of the program that says NaN or not finite.
//!
//! # What looks like it but is not
//!
//! Printed losses without an error are not judged. If only one rank has NaN while gradients are summed, look for
//! silent corruption.
//!
//! # What to do
//!
//! Find the first rank and step with a bad value.
//!
//! # References
//!
//! pytorch/pytorch torch/autograd/anomaly_mode.py; NVIDIA/Megatron-LM found_inf checks.

use ringleader_model::{Cause, Impact};

use crate::rule::{Outcome, Rule};
use crate::told::{Told, found};
use ringleader_correlate::Scene;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "nan-loss",
    title: "values became NaN or Inf",
    since: "0.1",
    doc: include_str!("nan_loss.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, Cause::NanLoss) else { return Outcome::Clear };
    let title = format!("{who} found NaN or Inf in its values", who = told.who());
    let draft = told
        .draft(&RULE, Cause::NanLoss, title)
        .advise_command(
            Impact::Disruptive,
            "name the operation that made the first NaN",
            "torch.autograd.set_detect_anomaly(True)",
        )
        .advise(Impact::Harmless, "compare gradient norms of all ranks before the reduction");
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{Stage, Trial as _};

    #[test]
    fn the_program_says_so() {
        Stage::new()
            .raised(
                Some(2),
                "RuntimeError",
                "Function 'MulBackward0' returned nan values in its 0th output.",
                &[],
            )
            .expect(&RULE, &["nan-loss 2"]);
    }

    #[test]
    fn a_word_that_only_contains_it() {
        Stage::new().raised(Some(2), "RuntimeError", "finance table missing", &[]).silent(&RULE);
    }
}
