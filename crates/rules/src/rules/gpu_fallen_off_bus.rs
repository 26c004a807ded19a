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
//! `GPU is lost` or `fallen off the bus` in the text of NCCL, NVML or CUDA; Xid 79 in the kernel log, or the driver's
//! words without a number. A fatal PCIe error right before it says that the link went first.
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

use ringleader_model::{Impact, KernelEventKind};

use crate::correlate::Scene;
use crate::hardware::{Both, Seen, is_lost_gpu};
use crate::rule::{Input, Outcome, Rule};
use crate::told::{Told, found};

/// See the module.
pub(super) static RULE: Rule = Rule {
    id: "gpu-fallen-off-bus",
    title: "the GPU is gone from PCIe",
    since: "0.1",
    reads: &[Input::NcclLog, Input::TorchLog, Input::KernelLog],
    doc: include_str!("gpu_fallen_off_bus.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let seen = Seen::of(scene, |e| is_lost_gpu(e.event));
    let Some(both) = Both::of(Told::of(scene, "gpu-fallen-off-bus"), seen) else { return Outcome::Clear };
    let mut draft = both.draft(
        &RULE,
        "gpu-fallen-off-bus",
        |told| format!("the GPU of {who} does not answer any more", who = told.who()),
        |seen| format!("{} has fallen off the bus", seen.gpu()),
    );
    // Which link failed, if PCIe said so first.
    if let Some(lost) = both.seen().and_then(Seen::first) {
        let before = scene.machine.near().filter(|e| {
            matches!(&e.event.kind, KernelEventKind::PcieError(p) if p.severity != ringleader_model::PcieSeverity::Corrected)
                && e.seconds_to(lost).is_some_and(|s| (0.0..=60.0).contains(&s))
        });
        draft = draft.evidence(before.take(2).map(crate::correlate::machine::MachineEvent::evidence));
    }
    if both.seen().is_none() {
        draft = draft.advise_command(
            Impact::Harmless,
            "confirm in the kernel log",
            "dmesg -T | grep -iE \"xid.*79|fallen off\"",
        );
    }
    let draft = draft.advise(
        Impact::Disruptive,
        "drain the node, then power-cycle it and test the GPU before it takes jobs again",
    );
    found(draft)
}

#[cfg(test)]
mod tests {
    use ringleader_model::KernelEventKind;

    use super::RULE;
    use crate::staging::Stage;
    use crate::staging_kernel::BEGAN_S;

    #[test]
    fn nvml_says_so() {
        Stage::new()
            .process("node3", 9, Some(3))
            .warn("misc/nvmlwrap.cc:171", "nvmlDeviceGetHandleByIndex(3) failed: GPU is lost")
            .expect(&RULE, &["gpu-fallen-off-bus 3"]);
    }

    #[test]
    fn the_kernel_says_so() {
        // Alone, with and without a number.
        Stage::new()
            .xid("0000:3b:00", 79, 0, "GPU has fallen off the bus.")
            .expect(&RULE, &["gpu-fallen-off-bus"]);
        Stage::new().kernel("0000:3b:00", KernelEventKind::GpuLost).expect(&RULE, &["gpu-fallen-off-bus"]);
        // Of rank 1's GPU while the job ran.
        Stage::new()
            .two_ranks()
            .xid("0000:3b:00", 79, 0, "GPU has fallen off the bus.")
            .at_s(BEGAN_S + 600)
            .expect(&RULE, &["gpu-fallen-off-bus 1"]);
    }

    #[test]
    fn a_gpu_that_was_lost_before_the_job_began() {
        Stage::new()
            .two_ranks()
            .xid("0000:3b:00", 79, 0, "GPU has fallen off the bus.")
            .at_s(BEGAN_S - 7_200)
            .silent(&RULE);
    }

    #[test]
    fn what_nothing_ties_to_the_job_decides_nothing() {
        // No time, and a healthy job.
        let healthy = Stage::new().two_ranks().xid("0000:3b:00", 79, 0, "x");
        assert_eq!(healthy.worth(&RULE), ["info Derived"]);
        // Another machine's, beside a job in trouble.
        let raised = |stage: Stage| stage.raised(Some(0), "ValueError", "bad batch", &[]);
        let other = raised(Stage::new().two_ranks()).xid("0000:3b:00", 79, 0, "x").on("node9");
        assert_eq!(other.worth(&RULE), ["warning Derived"]);
        // A post with two snippets and no clock: it may be, and a program's own statement stands above it.
        let post = raised(Stage::new()).xid("0000:3b:00", 79, 0, "x");
        assert_eq!(post.worth(&RULE), ["error Derived"]);
        // Of a rank's GPU, at a time that cannot be compared: less than what a program states.
        let untimed = raised(Stage::new().two_ranks()).xid("0000:3b:00", 79, 0, "x");
        assert_eq!(untimed.worth(&RULE), ["error Derived"]);
    }

    #[test]
    fn a_hidden_gpu_is_another_thing() {
        Stage::new().raised(Some(0), "RuntimeError", "No CUDA GPUs are available", &[]).silent(&RULE);
    }
}
