//! # What it shows
//!
//! The NVIDIA driver or its firmware failed on its own: no program and no memory error of the GPU precedes it.
//!
//! # Why it happens
//!
//! A bug of the driver, mended in a later release of its branch; seldom a GPU that begins to fail.
//!
//! # Evidence
//!
//! Xids of the driver's class that end a job, in the kernel log. Where NVIDIA's catalogue counts a number as hardware
//! and no narrower cause exists (46, 62, 109, 110, 143, 158, 169), the question stays open and says what to do.
//!
//! # What looks like it but is not
//!
//! Stopped channels (43, 45), recovery actions (154) and details (171, 172) follow something else. Assertions that the
//! driver logs at boot mean nothing. 109 right after a program's own fault (13, 31) is a consequence.
//!
//! # What to do
//!
//! Update the driver; keep a bug report.
//!
//! # References
//!
//! Xid Catalog; NVIDIA/open-gpu-kernel-modules nverror.h.

use ringleader_knowledge::xid::{self, Class, Kills};
use ringleader_model::{Impact, KernelEventKind, Need, Weight};

use crate::correlate::Scene;
use crate::hardware::{Seen, follows, is_lost_gpu, is_xid, outcome};
use crate::rule::{Input, Outcome, Rule};

/// See the module.
pub(super) static RULE: Rule = Rule {
    id: "gpu-driver-bug",
    title: "the NVIDIA driver failed",
    since: "0.1",
    reads: &[Input::KernelLog],
    doc: include_str!("gpu_driver_bug.rs"),
    check,
};

/// Hardware or firmware that stopped, by the catalogue; no cause of the list is theirs.
const STOPPED: [u16; 7] = [46, 62, 109, 110, 143, 158, 169];

fn check(scene: &Scene<'_>) -> Outcome {
    let by_driver = |code: u16| {
        // The GSP's silence has a rule of its own.
        !matches!(code, 119 | 120)
            && xid::get(code)
                .is_some_and(|x| x.class == Class::Driver && x.kills_job == Kills::Yes && !x.unused)
    };
    if let Some(seen) = Seen::xids(scene, |x| by_driver(x.code)) {
        let draft = seen
            .draft(&RULE, "gpu-driver-bug", format!("the NVIDIA driver failed on {}", seen.gpu()))
            .weight(if seen.is_bound() { Weight::Stated } else { Weight::Derived })
            .advise(Impact::Disruptive, "update the driver to the latest release of its branch");
        return outcome([seen.advise_by_table(draft)]);
    }
    let consequence = |root: &ringleader_model::KernelEvent| {
        is_lost_gpu(root) || is_xid(root, &[13, 31, 48, 74, 94, 95, 119, 120])
    };
    let stopped = Seen::of(scene, |e| {
        is_xid(e.event, &STOPPED) || matches!(e.event.kind, KernelEventKind::GpuInitFailed { .. })
    })
    .filter(Seen::is_bound)
    .and_then(|s| s.without(|e| follows(scene, e, 600.0, true, consequence)));
    let Some(seen) = stopped else { return Outcome::Clear };
    let what = match seen.first().map(|e| &e.event.kind) {
        Some(KernelEventKind::Xid(x)) => xid::get(x.code)
            .map_or_else(String::new, |row| format!("Xid {} ({}): {}", row.code, row.name, row.meaning)),
        _ => "the driver could not start it (RmInitAdapter failed)".to_owned(),
    };
    Outcome::Undecided(vec![Need {
        question: format!(
            "{} stopped working; is it the GPU, its firmware or the driver? {what}",
            seen.gpu()
        ),
        command: "nvidia-bug-report.sh; then reset the GPU or reboot, and run dcgmi diag -r 3".to_owned(),
    }])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::correlate::Scene;
    use crate::rule::Outcome;
    use crate::staging::Stage;

    #[test]
    fn the_kernel_says_so() {
        Stage::new().xid("0000:3b:00", 151, 0, "x").expect(&RULE, &["gpu-driver-bug"]);
    }

    #[test]
    fn numbers_that_follow_others() {
        for code in [43, 45, 154, 171, 172] {
            Stage::new().xid("0000:3b:00", code, 5, "x").silent(&RULE);
        }
    }

    #[test]
    fn hardware_that_stopped_is_an_open_question() {
        let open = |stage: Stage| {
            let scene = Scene::new(&stage.case);
            matches!((RULE.check)(&scene), Outcome::Undecided(needs) if needs.iter().all(|n| n.question.contains("Xid 62")))
        };
        assert!(open(Stage::new().xid("0000:3b:00", 62, 0, "x")));
        // After a program's own fault it is that one's.
        let follows = Stage::new().xid("0000:3b:00", 31, 5, "x").xid("0000:3b:00", 62, 0, "x");
        assert!(!open(follows));
    }
}
