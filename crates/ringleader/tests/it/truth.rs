//! What every recorded case says of itself, compared with its verdict; and what each rule says of each case.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use ringleader_model::Weight;

use crate::recorded::{self, Truth};

/// What `case.toml` says of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Cause,
    Ranks,
    Host,
    Place,
    Category,
}

const BY_CAUSE: &str = "the verdict has the usual category of its cause, not that of what was seen first";
const HUNG_ON: &str = "the fault of the machine did not end the job: it hung, which the finding does not say";
const LIVE: &str = "the job lives still, and what is wrong with it may be seen to hang or to have failed";
const NOTHING_TO_GAIN: &str = "the truth says where a fault would be seen, and there is none";
const OPEN: &str =
    "undecided has the category of what speaks of trouble, and the truth is that there is none";

/// What verdicts do not say yet, and why. An exception that became right fails the test: strike it.
const EXCEPTIONS: &[(&str, Part, &str)] = &[
    ("ddp-profile", Part::Category, NOTHING_TO_GAIN),
    ("gpu-fabric-manager-version", Part::Category, BY_CAUSE),
    ("gpu-fabric-not-ready", Part::Category, BY_CAUSE),
    ("healthy-while-running", Part::Category, OPEN),
    ("kernel-aer-fatal-nic", Part::Category, BY_CAUSE),
    ("kernel-file-max", Part::Category, BY_CAUSE),
    ("kernel-iommu-fault", Part::Category, HUNG_ON),
    ("kernel-xid48-double-bit", Part::Category, HUNG_ON),
    ("kernel-xid74-nvlink", Part::Category, HUNG_ON),
    ("kernel-xid79-hangs-peers", Part::Category, HUNG_ON),
    ("live-blocked-on-nfs", Part::Category, LIVE),
    ("live-early-exit-child", Part::Category, LIVE),
    ("live-env-algo", Part::Category, LIVE),
    ("live-kill", Part::Category, LIVE),
    ("live-like-late-rank", Part::Category, OPEN),
    ("live-like-starting", Part::Category, OPEN),
    ("live-xid79", Part::Category, "the truth says hardware, which is no category of a verdict"),
    ("modded-nanogpt-15", Part::Category, BY_CAUSE),
    ("ms-swift-9443", Part::Category, BY_CAUSE),
    ("nccl-tests-183", Part::Category, "the truth says when the tests were run; nothing failed in them"),
    ("ring-process-gone", Part::Category, BY_CAUSE),
    ("shm-full-bus-error", Part::Category, BY_CAUSE),
    ("shm-left-over-segments", Part::Category, BY_CAUSE),
];

/// Where the verdict parts from the truth, and how.
fn differences(truth: &Truth, verdict: &ringleader_model::Verdict) -> Vec<(Part, String)> {
    let score = truth.score(verdict);
    let mut found = Vec::new();
    if !score.right {
        found.push((Part::Cause, format!("{} instead of {}", verdict.cause, truth.cause)));
    }
    if score.culprit == Some(false) {
        let ranks: Vec<_> = verdict.culprits.iter().filter_map(|c| c.rank.map(|r| r.0)).collect();
        found.push((Part::Ranks, format!("{ranks:?} instead of {:?}", truth.culprit_ranks)));
    }
    let hosts: BTreeSet<&str> = verdict.culprits.iter().filter_map(|c| c.host.as_deref()).collect();
    if !truth.culprit_host.is_empty() && hosts != BTreeSet::from([truth.culprit_host.as_str()]) {
        found.push((Part::Host, format!("{hosts:?} instead of {}", truth.culprit_host)));
    }
    if score.place == Some(false) {
        found.push((Part::Place, format!("another place than {}", truth.place)));
    }
    if verdict.category.name() != truth.category {
        found.push((Part::Category, format!("{} instead of {}", verdict.category.name(), truth.category)));
    }
    found
}

#[test]
fn verdicts_of_all_cases_are_their_truth() {
    let mut wrong = String::new();
    let mut open: BTreeSet<(&str, Part)> = EXCEPTIONS.iter().map(|(name, part, _)| (*name, *part)).collect();
    assert_eq!(open.len(), EXCEPTIONS.len(), "an exception stands twice");
    for judged in crate::judged() {
        let truth = recorded::truth(&judged.folder);
        for (part, how) in differences(&truth, &judged.diagnosis.verdict) {
            if !open.remove(&(judged.name.as_str(), part)) {
                let _ = writeln!(wrong, "{}: {part:?}: {how}", judged.name);
            }
        }
    }
    for (name, part) in open {
        let _ = writeln!(wrong, "{name}: {part:?} is right now: strike its exception");
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn a_reboot_and_a_reset_are_destructive() {
    let mut n = 0;
    for judged in crate::judged() {
        for action in judged.diagnosis.verdict.findings.iter().flat_map(|finding| &finding.actions) {
            if crate::restarts_a_machine(&action.text) {
                assert_eq!(
                    action.impact,
                    ringleader_model::Impact::Destructive,
                    "{}: {}",
                    judged.name,
                    action.text
                );
                n += 1;
            }
        }
    }
    assert!(n > 10, "{n}");
}

/// Each rule over each case: the findings in the order in which the verdict trusts them. Healthy cases have few.
#[test]
fn what_rules_find_in_all_cases() {
    let mut table = String::new();
    for judged in crate::judged() {
        let _ = writeln!(table, "{}", judged.name);
        for finding in &judged.diagnosis.verdict.findings {
            let cause = if finding.rule == finding.cause.id() { "" } else { finding.cause.id() };
            let weight = match finding.weight {
                Weight::Aside => "aside",
                Weight::Echo => "echo",
                Weight::Symptom => "symptom",
                Weight::Derived => "derived",
                Weight::Stated => "stated",
            };
            let _ = writeln!(
                table,
                "    {:<28} {:<7} {:<6} {cause}",
                finding.rule,
                weight,
                finding.confidence.name()
            );
        }
    }
    let table: Vec<&str> = table.lines().map(str::trim_end).collect();
    insta::assert_snapshot!(table.join("\n"));
}
