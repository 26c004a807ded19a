//! # What it shows
//!
//! An NVSwitch reported a fatal error: the GPUs behind it lose links, and jobs that use them die.
//!
//! # Why it happens
//!
//! A port or the switch itself fails, a link does not train any more, the fabric manager and the driver disagree.
//!
//! # Evidence
//!
//! `SXid … Fatal` in the kernel log. The GPUs' own Xid 74 follow within seconds; they are consequences.
//!
//! # What looks like it but is not
//!
//! `Non-fatal` SXids, and counts of corrected errors that passed a limit (`ECC limit`). Blackwell has no SXids:
//! its switches speak through Xids 144 to 150.
//!
//! # What to do
//!
//! Reset all GPUs and switches together, or reboot; look at the fabric manager's log.
//!
//! # References
//!
//! NVIDIA Fabric Manager User Guide, SXid errors; NVIDIA/open-gpu-kernel-modules ctrl_dev_nvswitch.h.

use ringleader_knowledge::sxid;
use ringleader_model::{Impact, KernelEventKind};

use crate::correlate::Scene;
use crate::hardware::{Seen, outcome};
use crate::rule::{Input, Outcome, Rule};

/// See the module.
pub(super) static RULE: Rule = Rule {
    id: "nvswitch-error",
    title: "an NVSwitch failed",
    since: "0.1",
    reads: &[Input::KernelLog],
    doc: include_str!("nvswitch_error.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let fatal = |kind: &KernelEventKind| match kind {
        KernelEventKind::Sxid(s) => {
            s.fatal == Some(true)
                || s.fatal.is_none()
                    && sxid::get(s.code).is_some_and(|row| row.guide == sxid::Guide::AlwaysFatal)
        }
        _ => false,
    };
    let Some(seen) = Seen::of(scene, |e| fatal(&e.event.kind)) else { return Outcome::Clear };
    let (mut port, mut unit) = (String::new(), "");
    if let Some(KernelEventKind::Sxid(first)) = seen.first().map(|e| &e.event.kind) {
        port = format!("NVSwitch {}", first.switch);
        if let Some(link) = first.link {
            port = format!("{port} port {link}");
        }
        unit = sxid::get(first.code).map_or("", |row| row.unit);
        port = format!("{port} failed: SXid {}", first.code);
    }
    let title = if unit.is_empty() { port } else { format!("{port} ({unit})") };
    let draft = seen
        .draft(&RULE, "nvswitch-error", title)
        .advise_command(
            Impact::Harmless,
            "see which link and what the fabric manager did about it",
            "dmesg -T | grep -iE \"sxid|xid\"; tail -n 100 /var/log/fabricmanager.log; nvidia-smi nvlink -s",
        )
        .advise(
            Impact::Destructive,
            "reset all GPUs and switches of the node together, or reboot it; if it comes again, take the node out",
        );
    outcome([draft])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::staging::Stage;
    use crate::staging_kernel::BEGAN_S;

    #[test]
    fn the_kernel_says_so() {
        Stage::new()
            .sxid(20_034, true)
            .xid("0000:3b:00", 74, 0, "NVLink: fatal error")
            .expect(&RULE, &["nvswitch-error"]);
        // While a job ran that shows no trouble: worth knowing.
        let healthy = Stage::new().two_ranks().sxid(20_034, true).at_s(BEGAN_S + 9);
        assert_eq!(healthy.worth(&RULE), ["info Derived"]);
        Stage::new()
            .two_ranks()
            .raised(Some(0), "RuntimeError", "boom", &[])
            .sxid(20_034, true)
            .at_s(BEGAN_S + 9)
            .expect(&RULE, &["nvswitch-error"]);
    }

    #[test]
    fn what_a_switch_survives() {
        Stage::new().sxid(12_028, false).silent(&RULE);
        Stage::new().sxid(11_012, false).silent(&RULE);
    }

    #[test]
    fn a_switch_that_failed_before_the_job_began() {
        Stage::new()
            .two_ranks()
            .raised(Some(0), "RuntimeError", "boom", &[])
            .sxid(20_034, true)
            .at_s(BEGAN_S - 86_400)
            .silent(&RULE);
    }
}
