//! # What it shows
//!
//! The NVIDIA driver or its firmware failed on its own: no program and no memory error of the GPU precedes it.
//!
//! # Why it happens
//!
//! A bug of the driver, fixed in a later release of its branch; rarely a GPU that begins to fail.
//!
//! # Evidence
//!
//! Xids of the driver's class that end a job, in the kernel log; 46 too, which NVIDIA's catalogue counts as hardware,
//! and for which its older list names the driver alone. Where the catalogue counts a number as hardware and no narrower
//! cause exists (62, 109, 110, 143, 158, 169, a GPU that the driver could not start), the question stays open and says
//! what to do: a micro-controller that halts may be worn, hot, or misled by its driver.
//!
//! # What looks like it but is not
//!
//! Stopped channels (43, 45), recovery actions (154) and details (171, 172) follow something else. Assertions that the
//! driver logs at boot mean nothing. 109 right after a program's own fault (13, 31) is a consequence.
//!
//! # What to do
//!
//! Create a bug report, then update the driver.
//!
//! # References
//!
//! Xid Catalog; NVIDIA/open-gpu-kernel-modules nverror.h.

use ringleader_knowledge::xid::{self, Class, Kills};
use ringleader_model::{Cause, Confidence, Impact, KernelEventKind, Need, Weight};

use crate::drafting::kernel::{KernelFault, is_own};
use crate::rule::{Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::machine::faults::{ONE_FAULT_S, follows, is_lost_gpu, is_xid};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "gpu-driver-bug",
    title: "the NVIDIA driver failed",
    since: "0.1",
    doc: include_str!("gpu_driver_bug.rs"),
    check,
};

/// The GPU stopped and recovery failed: its list of causes holds nothing but the driver. The other numbers that the
/// table gives to this rule are hardware or firmware that stopped; no cause of the list is theirs.
const RECOVERY_FAILED: u16 = 46;

fn check(scene: &Scene<'_>) -> Outcome {
    let by_driver = |code: u16| {
        // The GSP's silence has a rule of its own.
        xid::get(code).is_some_and(|x| {
            x.rule.is_empty() && x.class == Class::Driver && x.kills_job == Kills::Yes && !x.unused
        })
    };
    let consequence = |root: &ringleader_model::KernelEvent| {
        is_lost_gpu(root) || is_xid(root, &[13, 31, 48, 74, 94, 95, 119, 120])
    };
    if let Some(seen) = KernelFault::xids(scene, |x| by_driver(x.code)) {
        let draft = seen
            .draft(&RULE, Cause::GpuDriverBug, format!("the NVIDIA driver failed on {}", seen.gpu()))
            .weight(if seen.is_bound() { Weight::Stated } else { Weight::Derived })
            .advise(Impact::Disruptive, "update the driver to the latest release of its branch");
        return Outcome::from_drafts([seen.advise_by_table(draft)]);
    }
    let unrecovered = KernelFault::xids(scene, |x| x.code == RECOVERY_FAILED)
        .filter(KernelFault::is_bound)
        .and_then(|s| s.without(|e| follows(scene.kernel(), e, ONE_FAULT_S, true, consequence)));
    if let Some(seen) = unrecovered {
        let title = format!("{} stopped, and the driver could not recover it", seen.gpu());
        let draft = seen
            .draft(&RULE, Cause::GpuDriverBug, title)
            .weight(Weight::Derived)
            .confidence(Confidence::Medium)
            .advise(Impact::Disruptive, "update the driver to the latest release of its branch");
        return Outcome::from_drafts([seen.advise_by_table(draft)]);
    }
    let stopped = KernelFault::of(scene, |e| {
        is_own(&RULE, e.event) && !is_xid(e.event, &[RECOVERY_FAILED])
            || matches!(e.event.kind, KernelEventKind::GpuInitFailed { .. })
    })
    .filter(KernelFault::is_bound)
    .and_then(|s| s.without(|e| follows(scene.kernel(), e, ONE_FAULT_S, true, consequence)));
    let Some(seen) = stopped else { return Outcome::Clear };
    let row = match seen.first().map(|e| &e.event.kind) {
        Some(KernelEventKind::Xid(x)) => xid::get(x.code),
        _ => None,
    };
    let what = row.map_or_else(
        || "the driver could not start it (RmInitAdapter failed)".to_owned(),
        |row| format!("Xid {} ({}): {}", row.code, row.name, row.meaning),
    );
    // What to do until it is known, by the table.
    let then = row.map_or_else(
        || "reset the GPU or reboot the node".to_owned(),
        |row| {
            let (now, then) = (row.action.sentence(), row.then.sentence());
            if row.action == row.then { now.to_owned() } else { format!("{now}; if it recurs: {then}") }
        },
    );
    Outcome::Undecided(vec![Need {
        question: format!(
            "{} stopped working; is it the GPU, its firmware or the driver? {what} What to do: create a bug report, then {then}; test the GPU before it takes jobs again (dcgmi diag -r 3)",
            seen.gpu()
        ),
        command: "nvidia-bug-report.sh".to_owned(),
        ..Need::default()
    }])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::rule::Outcome;
    use crate::trial::{StagedCase, Trial as _};
    use ringleader_correlate::Scene;

    #[test]
    fn the_kernel_says_so() {
        StagedCase::new().xid("0000:3b:00", 151, 0, "x").expect(&RULE, &["gpu-driver-bug"]);
    }

    #[test]
    fn numbers_that_follow_others() {
        for code in [43, 45, 154, 171, 172] {
            StagedCase::new().xid("0000:3b:00", code, 5, "x").silent(&RULE);
        }
    }

    #[test]
    fn a_gpu_that_could_not_be_recovered() {
        let alone = StagedCase::new().xid("0000:3b:00", 46, 0, "GPU stopped processing");
        alone.concludes(&RULE, "gpu-driver-bug , medium");
        // After a program's own fault it is that one's; of another day it is nobody's.
        StagedCase::new().xid("0000:3b:00", 31, 5, "x").xid("0000:3b:00", 46, 5, "x").silent(&RULE);
        let earlier = StagedCase::new().two_ranks().xid("0000:3b:00", 46, 0, "x");
        earlier.at_s(ringleader_correlate::staging::kernel::BEGAN_S - 86_400).silent(&RULE);
    }

    #[test]
    fn hardware_that_stopped_is_an_open_question() {
        let open = |stage: StagedCase| {
            let scene = Scene::new(&stage.case);
            matches!((RULE.check)(&scene), Outcome::Undecided(needs) if needs.iter().all(|n| n.question.contains("Xid 62") && n.question.contains("if it recurs")))
        };
        assert!(open(StagedCase::new().xid("0000:3b:00", 62, 0, "x")));
        // After a program's own fault it is that one's.
        let follows = StagedCase::new().xid("0000:3b:00", 31, 5, "x").xid("0000:3b:00", 62, 0, "x");
        assert!(!open(follows));
    }
}
