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
//! `SXid … Fatal` in the kernel log. The GPUs' own Xid 74 follow within seconds; they are consequences. The Fabric
//! Manager's log reports the same differently: `detected NVSwitch fatal error 20034 on … port 33`.
//!
//! # What looks like it but is not
//!
//! `Non-fatal` SXids, and counts of corrected errors that passed a limit (`ECC limit`). Blackwell has no SXids: its
//! switches report through Xids 144 to 150.
//!
//! # What to do
//!
//! Reset all GPUs and switches together, or reboot; look at the fabric manager's log.
//!
//! # References
//!
//! NVIDIA Fabric Manager User Guide, SXid errors; NVIDIA/open-gpu-kernel-modules ctrl_dev_nvswitch.h.

use ringleader_knowledge::sxid;
use ringleader_knowledge::wording;
use ringleader_model::{Cause, Cite, Evidence, Fact, Impact, KernelEventKind, SourceKind};

use crate::drafting::gpus::{Proof, graded};
use crate::drafting::kernel::KernelFault;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::who::gpus::Use;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "nvswitch-error",
    title: "an NVSwitch failed",
    since: "0.1",
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
    let manager = said_by_manager(scene);
    let Some(seen) = KernelFault::of(scene, |e| fatal(&e.event.kind)) else {
        let Some((code, said)) = manager else { return Outcome::Clear };
        let unit = sxid::get(code).map_or_else(String::new, |row| format!(" ({})", row.unit));
        let used = if scene.has_job() { Use::Unknown } else { Use::Alone };
        let title = format!("the Fabric Manager saw an NVSwitch fail: SXid {code}{unit}");
        let draft = graded(scene, &RULE, Cause::NvswitchError, Proof::Happened, used, title);
        return Outcome::from_drafts([advise(draft.evidence(said))]);
    };
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
    let said = manager.into_iter().flat_map(|(_, said)| said);
    Outcome::from_drafts([advise(seen.draft(&RULE, Cause::NvswitchError, title).evidence(said))])
}

/// Fatal errors of a switch in the Fabric Manager's log since the job began: the first one's number, and the lines.
fn said_by_manager(scene: &Scene<'_>) -> Option<(u32, Vec<Evidence>)> {
    let mut first = None;
    let mut said = Vec::new();
    for observation in &scene.case().observations {
        let Fact::GpuService(service) = &observation.fact else { continue };
        for (line, at, text) in &service.errors {
            let Some(code) = wording::switch_error(text) else { continue };
            if scene.precedes_job(*at) == Some(true) {
                continue;
            }
            first.get_or_insert(code);
            if said.len() < 4 {
                let cite = Cite { line: *line, ..observation.cite };
                said.push(Evidence { cite, text: text.to_string(), kind: SourceKind::GpuServices });
            }
        }
    }
    Some((first?, said))
}

fn advise(draft: Draft) -> Draft {
    draft
        .advise_command(
            Impact::Harmless,
            "check which link failed and how the Fabric Manager reacted",
            "dmesg -T | grep -iE \"sxid|xid\"; tail -n 100 /var/log/fabricmanager.log; nvidia-smi nvlink -s",
        )
        .advise(
            Impact::Destructive,
            "reset all GPUs and switches of the node together, or reboot it; if it recurs, take the node out of service",
        )
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};
    use ringleader_correlate::staging::kernel::BEGAN_S;

    #[test]
    fn the_kernel_says_so() {
        StagedCase::new()
            .sxid(20_034, true)
            .xid("0000:3b:00", 74, 0, "NVLink: fatal error")
            .expect(&RULE, &["nvswitch-error"]);
        // While a job ran that shows no trouble: worth knowing.
        let healthy = StagedCase::new().two_ranks().sxid(20_034, true).at_s(BEGAN_S + 9);
        assert_eq!(healthy.worth(&RULE), ["info Derived"]);
        StagedCase::new()
            .two_ranks()
            .raised(Some(0), "RuntimeError", "boom", &[])
            .sxid(20_034, true)
            .at_s(BEGAN_S + 9)
            .expect(&RULE, &["nvswitch-error"]);
    }

    #[test]
    fn the_fabric_manager_says_so() {
        let fatal = "detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0 physical id 3 port 33";
        StagedCase::new().fabric_log(BEGAN_S, &[fatal]).concludes(&RULE, "nvswitch-error , medium");
        let failed = || StagedCase::new().two_ranks().raised(Some(0), "RuntimeError", "boom", &[]);
        assert_eq!(failed().fabric_log(BEGAN_S + 60, &[fatal]).worth(&RULE), ["error Derived"]);
        // A job that runs well; an error of another day; one that a switch survives.
        assert_eq!(
            StagedCase::new().two_ranks().fabric_log(BEGAN_S + 60, &[fatal]).worth(&RULE),
            ["info Derived"]
        );
        failed().fabric_log(BEGAN_S - 86_400, &[fatal]).silent(&RULE);
        let survived = fatal.replace("fatal error 20034", "non-fatal error 12028");
        StagedCase::new().fabric_log(BEGAN_S, &[&survived]).silent(&RULE);
        // Both say it: one finding.
        let both = StagedCase::new().sxid(20_034, true).fabric_log(BEGAN_S, &[fatal]).finding(&RULE);
        assert_eq!(both.evidence.len(), 2);
    }

    #[test]
    fn what_a_switch_survives() {
        StagedCase::new().sxid(12_028, false).silent(&RULE);
        StagedCase::new().sxid(11_012, false).silent(&RULE);
    }

    #[test]
    fn a_switch_that_failed_before_the_job_began() {
        StagedCase::new()
            .two_ranks()
            .raised(Some(0), "RuntimeError", "boom", &[])
            .sxid(20_034, true)
            .at_s(BEGAN_S - 86_400)
            .silent(&RULE);
    }
}
