//! # What it shows
//!
//! A kernel checked its input and stopped: the data or an index is wrong. The process is lost; its peers wait.
//!
//! # Why it happens
//!
//! Nearly always an index out of range: a label beyond the number of classes, a token beyond the vocabulary, a
//! position beyond the table.
//!
//! # Evidence
//!
//! `device-side assert triggered`, and before it the kernel's own line `…: block: [..], thread: [..] Assertion `…`
//! failed`.
//!
//! # What looks like it but is not
//!
//! `Compile with TORCH_USE_CUDA_DSA to enable device-side assertions` stands below every CUDA error and says
//! nothing.
//!
//! # What to do
//!
//! Read the assertion line: it names the check. Run the failing batch with synchronous launches or on the CPU.
//!
//! # References
//!
//! CUDA runtime reference, enum cudaError. Code 710; pytorch/pytorch aten/src/ATen/native/cuda.

use ringleader_model::{Cause, Impact};

use crate::rule::{Outcome, Rule};
use crate::told::{Told, found};
use ringleader_correlate::Scene;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "device-assert",
    title: "an assertion inside a kernel failed",
    since: "0.1",
    doc: include_str!("device_assert.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, Cause::DeviceAssert) else { return Outcome::Clear };
    let title = format!("{who}: an assertion inside a GPU kernel failed", who = told.who());
    let draft = told
        .draft(&RULE, Cause::DeviceAssert, title)
        .advise_command(
            Impact::Disruptive,
            "run again with synchronous launches: the traceback then names the call",
            "CUDA_LAUNCH_BLOCKING=1",
        )
        .advise(Impact::Harmless, "check labels and indices of this batch against the sizes of their tables");
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{Stage, Trial as _};

    #[test]
    fn torch_says_so() {
        Stage::new()
            .raised(Some(0), "RuntimeError", "CUDA error: device-side assert triggered", &[])
            .expect(&RULE, &["device-assert 0"]);
    }

    #[test]
    fn the_kernel_says_so() {
        Stage::new().error_line(Some(3), "Indexing.cu:1553: indexSelectLargeIndex: block: [4,0,0], thread: [3,0,0] Assertion `srcIndex < srcSelectDimSize` failed.").expect(&RULE, &["device-assert 3"]);
    }

    #[test]
    fn an_illegal_access_is_another_thing() {
        Stage::new()
            .raised(Some(0), "RuntimeError", "CUDA error: an illegal memory access was encountered", &[])
            .silent(&RULE);
    }
}
