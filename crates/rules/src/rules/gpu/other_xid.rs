//! # What it shows
//!
//! A GPU reported an Xid that ends a job and that no other rule reads.
//!
//! # Why it happens
//!
//! The catalogue has many numbers: copy engines, command streams, links between processor and GPU, power. New drivers
//! add numbers that no public table has.
//!
//! # Evidence
//!
//! The kernel log. The Xid must be of a process or a GPU of the job while it ran, or the log must be the only evidence.
//! Where the number itself says what failed (a link that does not train or dies, a peer access that was refused) it is
//! a finding; else the question stays open, with what the table says of the number and of what to do.
//!
//! # What looks like it but is not
//!
//! Numbers that follow another one on the same GPU (a channel that is stopped after a page fault, details of a memory
//! error, the recovery that it now needs) belong to that one. Driver warnings that end nothing.
//!
//! # What to do
//!
//! What the table says; the node stays in service if the program is to blame.
//!
//! # References
//!
//! NVIDIA, Analyzing Xid Errors with the Xid Catalog; NVIDIA/open-gpu-kernel-modules nverror.h.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use ringleader_knowledge::xid::{self, Class, Grade, Kills};
use ringleader_model::{Cause, Confidence, KernelEvent, KernelEventKind, Need, Weight, Xid};

use crate::drafting::QUOTED_CHARS;
use crate::drafting::kernel::KernelFault;
use crate::health;
use crate::rule::{Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::machine::faults::{ONE_FAULT_S, follows, gpu_of};
use ringleader_correlate::machine::kernel::{Bond, KernelStatement};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "other-xid",
    title: "an Xid that ends a job and has no rule of its own",
    since: "0.1",
    doc: include_str!("other_xid.rs"),
    check,
};

/// NVLink 5: a sub-code has their meaning.
const NVLINK5: std::ops::RangeInclusive<u16> = 144..=150;
/// The driver says what the GPU needs now.
const RECOVERY: u16 = 154;
/// Numbers that say by themselves what failed.
static CAUSES: [(u16, Cause, &str); 4] = [
    (136, Cause::NvlinkError, "an NVLink did not come up"),
    (137, Cause::IllegalMemoryAccess, "an access to a peer's memory over NVLink was refused"),
    (150, Cause::NvlinkError, "the firmware of NVLink failed"),
    (173, Cause::NvlinkError, "the link between processor and GPU (NVLink-C2C) died"),
];
/// `Channel stopped`: the usual trace of a program that was ended for any reason.
const CHANNEL_STOPPED: u16 = 43;
/// Questions of one job.
const MAX_NEEDS: usize = 4;

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(seen) = KernelFault::xids(scene, ends_a_job).filter(KernelFault::is_bound).and_then(|s| {
        s.without(|e| follows(scene.kernel(), e, ONE_FAULT_S, true, |root| is_root_of(root, e.event)))
    }) else {
        return Outcome::Clear;
    };
    let named = |event: &KernelStatement<'_>| {
        let code = code(event.event)?;
        CAUSES.iter().find(|(own, ..)| *own == code)
    };
    if let Some(&(_, cause, what)) = seen.events().iter().find_map(|e| named(e)) {
        let seen = seen.without(|e| named(e).is_none_or(|(_, of, _)| *of != cause));
        return Outcome::from_drafts(seen.map(|seen| {
            let draft = seen
                .draft(&RULE, cause, format!("{}: {what}", seen.gpu()))
                .weight(Weight::Derived)
                .at_most(Confidence::Medium);
            seen.advise_by_table(draft)
        }));
    }
    // The job completed regardless of it.
    if seen.bond() != Bond::Alone && health::completed(scene) {
        return Outcome::Clear;
    }
    let mut asked = BTreeSet::new();
    // A channel that was torn down is a program that was ended: no question where no job is known.
    let is_own = |e: &KernelStatement<'_>| code(e.event) == Some(CHANNEL_STOPPED);
    let is_alone = seen.bond() == Bond::Alone;
    let fresh = seen
        .events()
        .iter()
        .filter(|e| !(is_alone && is_own(e)))
        .filter(|e| asked.insert((code(e.event), e.event.device)));
    match fresh.take(MAX_NEEDS).filter_map(|e| ask(e)).collect::<Vec<_>>() {
        needs if needs.is_empty() => Outcome::Clear,
        needs => Outcome::Undecided(needs),
    }
}

fn code(event: &KernelEvent) -> Option<u16> {
    match &event.kind {
        KernelEventKind::Xid(x) => Some(x.code),
        _ => None,
    }
}

/// An Xid without a rule of its own after which a job does not go on, or a device is not as it must be.
fn ends_a_job(x: &Xid) -> bool {
    if xid::get(x.code).is_some_and(|row| !row.rule.is_empty())
        || x.fatal == Some(false)
        || x.caused_by.is_some()
    {
        return false;
    }
    // The decode sheet decides if the line has its register words.
    if NVLINK5.contains(&x.code) && (x.fatal.is_some() || !x.registers.is_empty()) {
        return false;
    }
    let Some(row) = xid::get(x.code) else { return true };
    // What only follows something else (45: a program ended) is no fault by itself.
    if row.unused || row.is_never_root() && x.code != RECOVERY {
        return false;
    }
    match row.kills_job {
        // Of the driver's own the rule gpu-driver-bug says it.
        Kills::Yes => row.class != Class::Driver,
        Kills::Maybe => matches!(row.severity, Grade::Critical | Grade::Fatal),
        _ => x.code == RECOVERY && needed(x).is_some_and(|action| action.blocks_new_jobs),
    }
}

/// What the GPU needs now, by the driver's word: `GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot
/// Required)`.
fn needed(x: &Xid) -> Option<&'static xid::RecoveryAction> {
    x.recovery_action.and_then(xid::recovery_action)
}

/// A lost GPU, or an Xid that is no consequence by nature and tells more than this one.
fn is_root_of(root: &KernelEvent, event: &KernelEvent) -> bool {
    let (Some(of_root), Some(of_event)) = (code(root), code(event)) else {
        return matches!(root.kind, KernelEventKind::GpuLost | KernelEventKind::GspSilent);
    };
    let is_consequence = |n: u16| n == 43 || xid::get(n).is_some_and(xid::Xid::is_never_root);
    of_root != of_event && !is_consequence(of_root) && (is_consequence(of_event) || has_rule(of_root))
}

fn has_rule(n: u16) -> bool {
    xid::get(n).is_some_and(|row| !row.rule.is_empty()) || CAUSES.iter().any(|(own, ..)| *own == n)
}

/// What the table says of it, as an open question.
fn ask(event: &KernelStatement<'_>) -> Option<Need> {
    let KernelEventKind::Xid(x) = &event.event.kind else { return None };
    let gpu = gpu_of(event);
    let Some(row) = xid::get(x.code) else {
        return Some(Need {
            question: format!(
                "{gpu} reported Xid {}, which no public table lists: what does the vendor say about it? Body: {}",
                x.code,
                x.body.chars().take(QUOTED_CHARS).collect::<String>()
            ),
            command: "nvidia-bug-report.sh".to_owned(),
            ..Need::default()
        });
    };
    let of_program = row.class == Class::Application;
    let mut question = format!("{gpu} reported Xid {} ({}): {}", row.code, row.name, row.meaning);
    if let Some(action) = needed(x).filter(|_| x.code == RECOVERY) {
        let _ = write!(
            question,
            " It means: {}, {}. Which earlier fault led to it?",
            action.name, action.meaning
        );
    } else if of_program {
        question.push_str(" What did the program do? The node can stay in service.");
    } else {
        question.push_str(" Which part failed?");
    }
    if x.code != RECOVERY {
        let first = row.action.sentence();
        let _ = write!(question, " What to do: {first}");
        if row.then != row.action {
            let _ = write!(question, "; if it recurs: {}", row.then.sentence());
        }
    }
    let command = if of_program { "CUDA_LAUNCH_BLOCKING=1 torchrun …" } else { "nvidia-bug-report.sh" };
    Some(Need { question, command: command.to_owned(), ..Need::default() })
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Cause, KernelEventKind, Xid};

    use super::RULE;
    use crate::diagnose;
    use crate::rule::Outcome;
    use crate::trial::{StagedCase, Trial as _};
    use ringleader_correlate::Scene;
    use ringleader_correlate::staging::kernel::BEGAN_S;

    const X: &str = "x";

    fn asks(stage: &StagedCase) -> Vec<String> {
        match (RULE.check)(&Scene::new(&stage.case)) {
            Outcome::Undecided(needs) => needs.into_iter().map(|n| n.question).collect(),
            Outcome::Clear => Vec::new(),
            Outcome::Found(found) => panic!("{found:#?}"),
        }
    }

    #[test]
    fn a_log_alone_with_a_number_that_ends_a_job_is_not_well() {
        for code in [8, 25, 39, 54, 69, 85, 126, 999] {
            let stage = StagedCase::new().xid("0000:3b:00", code, 5, X);
            assert!(asks(&stage)[0].contains(&format!("Xid {code}")), "{code}");
            assert_eq!(diagnose(&stage.case).cause, Cause::Undecided, "{code}");
        }
    }

    #[test]
    fn a_program_s_own_fault_sends_no_node_to_repair() {
        let asked = asks(&StagedCase::new().xid("0000:3b:00", 69, 5, X));
        assert!(asked[0].contains("The node can stay in service"), "{asked:?}");
    }

    #[test]
    fn numbers_that_say_what_failed() {
        StagedCase::new().xid("0000:3b:00", 136, 0, X).concludes(&RULE, "nvlink-error , medium");
        StagedCase::new().xid("0000:3b:00", 173, 0, X).concludes(&RULE, "nvlink-error , medium");
        StagedCase::new().xid("0000:3b:00", 137, 0, X).concludes(&RULE, "illegal-memory-access , medium");
    }

    #[test]
    fn of_a_rank_while_the_job_ran() {
        let job = |at_s: i64, pid| {
            let stage = StagedCase::new().two_ranks().raised(Some(0), "RuntimeError", "boom", &[]);
            stage.xid("0000:3b:00", 39, pid, X).at_s(BEGAN_S + at_s)
        };
        assert!(asks(&job(60, 101))[0].contains("of rank 1 reported Xid 39"));
        // Of the day before, or of a GPU that no rank has.
        assert!(asks(&job(-86_400, 5)).is_empty());
        let other = StagedCase::new().two_ranks().raised(Some(0), "RuntimeError", "boom", &[]);
        assert!(asks(&other.xid("0000:99:00", 39, 0, X).at_s(BEGAN_S + 60)).is_empty());
    }

    #[test]
    fn what_follows_another_number_or_ends_nothing() {
        for code in [37, 43, 45, 63, 92, 154, 171] {
            assert!(asks(&StagedCase::new().xid("0000:3b:00", code, 5, X)).is_empty(), "{code}");
        }
        for root in [13, 31, 48, 79] {
            let stage = StagedCase::new().xid("0000:3b:00", root, 5, X).xid("0000:3b:00", 43, 5, X);
            assert!(asks(&stage).is_empty(), "{root}");
        }
        // Of another GPU it is another fault.
        let two = StagedCase::new().xid("0000:3b:00", 31, 5, X).xid("0000:5e:00", 39, 6, X);
        assert_eq!(asks(&two).len(), 1);
    }

    #[test]
    fn a_recovery_that_nothing_explains() {
        let action = |stage: StagedCase, n| {
            let xid = Xid { code: 154, recovery_action: Some(n), ..Xid::default() };
            stage.kernel("0000:3b:00", KernelEventKind::Xid(xid.into()))
        };
        let alone = action(StagedCase::new(), 2);
        assert!(asks(&alone)[0].contains("only a node reboot recovers"), "{:?}", asks(&alone));
        assert!(asks(&action(StagedCase::new().xid("0000:3b:00", 119, 0, X), 2)).is_empty());
        // Nothing is needed any more.
        assert!(asks(&action(StagedCase::new(), 0)).is_empty());
    }
}
