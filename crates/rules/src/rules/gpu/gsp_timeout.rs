//! # What it shows
//!
//! The processor on the GPU that runs part of the driver (GSP) does not answer: every call to that GPU hangs.
//!
//! # Why it happens
//!
//! A bug of driver or firmware, or a failing GPU. Seldom the program.
//!
//! # Evidence
//!
//! Xid 119 or 120 in the kernel log, or the driver's report that the GPU likely needs a reset. The process it names is
//! one that used the GPU at that moment (often nvidia-smi), not the culprit.
//!
//! # What looks like it but is not
//!
//! A GPU that fell off the bus (Xid 79) does not answer either: then that is the finding.
//!
//! # What to do
//!
//! Reset the GPU or reboot; update the driver; on repeats have the GPU tested.
//!
//! # References
//!
//! Xid Catalog, 119 and 120; NVIDIA/open-gpu-kernel-modules, kernel_gsp.c.

use ringleader_model::{Cause, Impact, KernelEventKind, Weight};

use crate::drafting::kernel::{KernelFault, is_own};
use crate::rule::{Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::machine::faults::{ONE_FAULT_S, follows, is_lost_gpu};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "gsp-timeout",
    title: "the GPU's system processor (GSP) does not answer",
    since: "0.1",
    doc: include_str!("gsp_timeout.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let is_it = |event: &ringleader_model::KernelEvent| {
        is_own(&RULE, event) || matches!(event.kind, KernelEventKind::GspSilent)
    };
    let Some(seen) = KernelFault::of(scene, |e| is_it(e.event)) else { return Outcome::Clear };
    let Some(first) = seen.first() else { return Outcome::Clear };
    let mut draft = seen.draft(
        &RULE,
        Cause::GspTimeout,
        format!("{} does not answer: its system processor (GSP) is silent", seen.gpu()),
    );
    if follows(scene.kernel(), first, ONE_FAULT_S, true, is_lost_gpu) {
        draft = draft.weight(Weight::Echo);
    }
    let draft = draft
        .advise(Impact::Destructive, "reset the GPU once no process uses it; if that hangs, reboot the node")
        .advise_command(
            Impact::Harmless,
            "keep a report for the vendor before the reset, and compare the driver with the latest of its branch",
            "nvidia-bug-report.sh",
        )
        .advise(Impact::Disruptive, "if it recurs on the same GPU, take the node out of service and run field diagnostics");
    Outcome::from_drafts([draft])
}

#[cfg(test)]
mod tests {
    use ringleader_model::KernelEventKind;

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};
    use ringleader_correlate::staging::kernel::BEGAN_S;

    const TEXT: &str = "Timeout after 6s of waiting for RPC response from GPU4 GSP!";

    #[test]
    fn the_kernel_says_so() {
        StagedCase::new().xid("0000:9b:00", 119, 2_024_380, TEXT).expect(&RULE, &["gsp-timeout"]);
        StagedCase::new().kernel("0000:9b:00", KernelEventKind::GspSilent).expect(&RULE, &["gsp-timeout"]);
        // Whoever asked is not the job's; the GPU is.
        StagedCase::new()
            .two_ranks()
            .xid("0000:3b:00", 119, 2_024_380, TEXT)
            .at_s(BEGAN_S + 60)
            .expect(&RULE, &["gsp-timeout 1"]);
    }

    #[test]
    fn a_gpu_that_fell_off_the_bus() {
        let finding = StagedCase::new()
            .xid("0000:9b:00", 79, 0, "GPU has fallen off the bus.")
            .xid("0000:9b:00", 119, 7, TEXT)
            .finding(&RULE);
        assert_eq!(finding.weight, ringleader_model::Weight::Echo);
    }

    #[test]
    fn an_earlier_day() {
        StagedCase::new().two_ranks().xid("0000:3b:00", 119, 7, TEXT).at_s(BEGAN_S - 86_400).silent(&RULE);
    }
}
