//! # What it shows
//!
//! The GPU stopped answering on PCIe. Every call to it fails; other ranks lose their peer or wait.
//!
//! # Why it happens
//!
//! Power, heat, a loose or failing card, a PCIe error, firmware.
//!
//! # Evidence
//!
//! `GPU is lost` or `fallen off the bus` in the text of NCCL, NVML or CUDA.
//!
//! # What looks like it but is not
//!
//! A GPU that was never given to the container (`No CUDA GPUs are available`) is container-config.
//!
//! # What to do
//!
//! Drain the node; a reboot or a power cycle may bring the GPU back for tests.
//!
//! # References
//!
//! NVML reference, nvmlReturn_t 15; kernel log Xid 79.

use ringleader_model::Impact;

use crate::correlate::Scene;
use crate::rule::{Input, Outcome, Rule};
use crate::told::{Told, found};

/// See the module.
pub(super) static RULE: Rule = Rule {
    id: "gpu-fallen-off-bus",
    title: "the GPU is gone from PCIe",
    since: "0.1",
    reads: &[Input::NcclLog, Input::TorchLog],
    doc: include_str!("gpu_fallen_off_bus.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, "gpu-fallen-off-bus") else { return Outcome::Clear };
    let title = format!("the GPU of {who} does not answer any more", who = told.who());
    let draft = told
        .draft(&RULE, "gpu-fallen-off-bus", title)
        .advise_command(
            Impact::Harmless,
            "confirm in the kernel log",
            "dmesg -T | grep -iE \"xid.*79|fallen off\"",
        )
        .advise(
            Impact::Disruptive,
            "drain the node, then power-cycle it and test the GPU before it takes jobs again",
        );
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::staging::Stage;

    #[test]
    fn nvml_says_so() {
        Stage::new()
            .process("node3", 9, Some(3))
            .warn("misc/nvmlwrap.cc:171", "nvmlDeviceGetHandleByIndex(3) failed: GPU is lost")
            .expect(&RULE, &["gpu-fallen-off-bus 3"]);
    }

    #[test]
    fn a_hidden_gpu_is_another_thing() {
        Stage::new().raised(Some(0), "RuntimeError", "No CUDA GPUs are available", &[]).silent(&RULE);
    }
}
