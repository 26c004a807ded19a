//! # What it shows
//!
//! A transfer over NVLink failed beyond repair while a kernel ran. All processes with a kernel in flight over that
//! link are lost.
//!
//! # Why it happens
//!
//! A link that flaps or lost lanes, a damaged GPU baseboard, a switch.
//!
//! # Evidence
//!
//! `uncorrectable NVLink error detected during the execution` of a process.
//!
//! # What looks like it but is not
//!
//! `P2P is disabled between NVLINK connected GPUs` at start is a matter of set-up (p2p-unsupported).
//!
//! # What to do
//!
//! Find the link in the kernel log (Xid 74) and take the node out.
//!
//! # References
//!
//! CUDA runtime reference, enum cudaError. Code 220.

use ringleader_model::Impact;

use crate::correlate::Scene;
use crate::rule::{Input, Outcome, Rule};
use crate::told::{Told, found};

/// See the module.
pub(super) static RULE: Rule = Rule {
    id: "nvlink-error",
    title: "NVLink failed",
    since: "0.1",
    reads: &[Input::NcclLog, Input::TorchLog],
    doc: include_str!("nvlink_error.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, "nvlink-error") else { return Outcome::Clear };
    let title = format!("NVLink failed on the GPU of {who}", who = told.who());
    let draft = told
        .draft(&RULE, "nvlink-error", title)
        .advise_command(
            Impact::Harmless,
            "find the link that failed and its counters",
            "nvidia-smi nvlink -s; nvidia-smi nvlink -e; dmesg -T | grep -i xid",
        )
        .advise(
            Impact::Disruptive,
            "keep the scheduler from placing jobs on this node until the link has been repaired",
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
            .raised(
                Some(4),
                "torch.AcceleratorError",
                "CUDA error: uncorrectable NVLink error detected during the execution",
                &[],
            )
            .expect(&RULE, &["nvlink-error 4"]);
    }

    #[test]
    fn ecc_is_another_thing() {
        Stage::new()
            .raised(Some(4), "RuntimeError", "CUDA error: uncorrectable ECC error encountered", &[])
            .silent(&RULE);
    }
}
