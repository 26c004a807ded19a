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

use ringleader_knowledge::xid;
use ringleader_model::{Impact, KernelEventKind, Weight, Xid};

use crate::correlate::Scene;
use crate::hardware::{Both, Seen, follows};
use crate::rule::{Input, Outcome, Rule};
use crate::told::{Told, found};

/// See the module.
pub(super) static RULE: Rule = Rule {
    id: "nvlink-error",
    title: "NVLink failed",
    since: "0.1",
    reads: &[Input::NcclLog, Input::TorchLog, Input::KernelLog],
    doc: include_str!("nvlink_error.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let seen = Seen::xids(scene, is_fatal);
    let Some(both) = Both::of(Told::of(scene, "nvlink-error"), seen) else { return Outcome::Clear };
    let mut draft = both.draft(
        &RULE,
        "nvlink-error",
        |told| format!("NVLink failed on the GPU of {who}", who = told.who()),
        |seen| format!("NVLink{} failed on {}", link_of(seen), seen.gpu()),
    );
    if let Some(first) = both.seen().and_then(Seen::first) {
        // A switch that fails takes the links of its GPUs along.
        let by_switch = |e: &ringleader_model::KernelEvent| matches!(&e.kind, KernelEventKind::Sxid(s) if s.fatal == Some(true));
        if follows(scene, first, 30.0, false, by_switch) {
            draft = draft.weight(Weight::Echo);
        }
        if far_end(first.event) {
            draft = draft.advise(
                Impact::Harmless,
                "the link's own word is that the far end failed first: look at the GPU or switch on its other side",
            );
        }
    }
    let draft = draft
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

/// An Xid that says a link failed: 74 until NVLink 4, 144 to 150 and 155 since. What they call `Nonfatal`, and the
/// faults of a program that touches a dead peer (137), are not.
fn is_fatal(x: &Xid) -> bool {
    // A body that belongs to 74 under another number was seen in the wild.
    x.code == 74 && x.fatal != Some(false)
        || x.body.starts_with("NVLink: fatal error")
        || x.code == 155
        || (144..=150).contains(&x.code)
            && (x.fatal == Some(true) || row(x).is_some_and(|r| r.severity != "nonfatal"))
}

/// What the decode sheet says of an NVLink 5 Xid.
fn row(x: &Xid) -> Option<&'static xid::NvlinkRule> {
    let (first, status) = (x.registers.first()?, x.registers.get(1)?);
    xid::nvlink_rule(x.code, x.unit.as_deref()?, *first, *status)
}

fn far_end(event: &ringleader_model::KernelEvent) -> bool {
    matches!(&event.kind, KernelEventKind::Xid(x) if row(x).is_some_and(|r| r.investigate == "INVESTIGATE_PEER_DEVICE"))
}

/// ` link 14`, if the earliest line names it.
fn link_of(seen: &Seen<'_, '_>) -> String {
    match seen.first().map(|e| &e.event.kind) {
        Some(KernelEventKind::Xid(x)) => {
            x.link.filter(|n| *n >= 0).map_or_else(String::new, |n| format!(" link {n}"))
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::staging::Stage;
    use crate::staging_kernel::BEGAN_S;

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

    #[test]
    fn the_kernel_says_so() {
        let fatal = "NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)";
        Stage::new().xid("0003:00:00", 74, 0, fatal).expect(&RULE, &["nvlink-error"]);
        Stage::new().xid("0003:00:00", 71, 0, fatal).expect(&RULE, &["nvlink-error"]);
        Stage::new()
            .xid("0008:01:00", 149, 0, "NETIR_LINK_DOWN Fatal XC0 i0 Link 14")
            .expect(&RULE, &["nvlink-error"]);
        Stage::new()
            .two_ranks()
            .xid("0000:3b:00", 74, 0, fatal)
            .at_s(BEGAN_S + 9)
            .expect(&RULE, &["nvlink-error 1"]);
    }

    #[test]
    fn what_a_link_survives() {
        Stage::new().xid("0018:01:00", 145, 876_767, "RLW_RXPIPE Nonfatal XC0 i0 Link 13").silent(&RULE);
        Stage::new().xid("0000:01:00", 137, 5, "RLW_RXPIPE interrupt hit: PRIV Error").silent(&RULE);
        Stage::new().xid("0000:01:00", 45, 5, "Ch 00000001 caused by previous Xid 149").silent(&RULE);
    }

    #[test]
    fn a_switch_that_failed_first() {
        let finding =
            Stage::new().sxid(20_034, true).xid("0000:3b:00", 74, 0, "NVLink: fatal error").finding(&RULE);
        assert_eq!(finding.weight, ringleader_model::Weight::Echo);
    }
}
