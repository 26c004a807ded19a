//! # What it shows
//!
//! GPU memory lost data that its check bits could not mend. The process that used it is killed by the driver.
//!
//! # Why it happens
//!
//! Ageing or damaged memory. Newer GPUs remap the row at the next reset; a GPU that does it again must go.
//!
//! # Evidence
//!
//! `uncorrectable ECC error encountered` of the process that runs on the GPU.
//!
//! # What looks like it but is not
//!
//! Corrected errors are harmless in small numbers. An illegal access is a fault of the program.
//!
//! # What to do
//!
//! Take the GPU out, look at its counters, reset it when nothing runs on it; replace it when remapping failed or
//! the error returns.
//!
//! # References
//!
//! CUDA runtime reference, enum cudaError. Code 214; NVIDIA GPU memory error management guide.

use ringleader_model::Impact;

use crate::correlate::Scene;
use crate::rule::{Input, Outcome, Rule};
use crate::told::{Told, found};

/// See the module.
pub(super) static RULE: Rule = Rule {
    id: "ecc-uncorrectable",
    title: "uncorrectable GPU memory error",
    since: "0.1",
    reads: &[Input::NcclLog, Input::TorchLog],
    doc: include_str!("ecc_uncorrectable.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, "ecc-uncorrectable") else { return Outcome::Clear };
    let title = format!("uncorrectable memory error on the GPU of {who}", who = told.who());
    let draft = told
        .draft(&RULE, "ecc-uncorrectable", title)
        .advise_command(
            Impact::Harmless,
            "read the error counters and the state of row remapping",
            "nvidia-smi -q -d ECC,ROW_REMAPPER",
        )
        .advise(
            Impact::Disruptive,
            "keep the scheduler from placing jobs on this node until its GPU has been reset and tested",
        )
        .advise_command(
            Impact::Destructive,
            "reset the GPU once no process uses it",
            "nvidia-smi --gpu-reset -i <index>",
        );
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::staging::Stage;

    #[test]
    fn cuda_says_so() {
        Stage::new()
            .error_line(None, "RuntimeError: CUDA error: uncorrectable ECC error encountered")
            .expect(&RULE, &["ecc-uncorrectable"]);
    }

    #[test]
    fn the_watchdog_says_so() {
        Stage::new()
            .torch(
                Some(5),
                ringleader_model::TorchEvent::WatchdogDied {
                    error: "CUDA error: uncorrectable ECC error encountered".into(),
                },
                "watchdog",
            )
            .expect(&RULE, &["ecc-uncorrectable 5"]);
    }

    #[test]
    fn other_cuda_errors_are_other_things() {
        Stage::new()
            .raised(Some(0), "RuntimeError", "CUDA error: unspecified launch failure", &[])
            .silent(&RULE);
    }
}
