//! # What it shows
//!
//! A variable that all ranks must agree on has different values, so that ranks choose different algorithms, sizes
//! or transports for one collective.
//!
//! # Why it happens
//!
//! An environment that was exported on one node only, a per-node .nccl.conf, a launcher that does not pass
//! variables on.
//!
//! # Evidence
//!
//! `NCCL_X set by environment to …` of processes in one communicator, with different values, or on some of them
//! only; listings of the variables of several ranks. Beside a job in which nothing went wrong it is a remark.
//!
//! # What looks like it but is not
//!
//! Interfaces, HCAs, debug levels and files may differ between hosts. A log without ENV lines shows nothing.
//!
//! # What to do
//!
//! Set the variable for all ranks or for none.
//!
//! # References
//!
//! data of ringleader-knowledge (variables that must agree); NVIDIA/nccl src/misc/param.cc.

use std::collections::BTreeMap;

use ringleader_knowledge::variable::{self, Agreement};
use ringleader_model::{
    Cause, Cite, Confidence, Culprit, Evidence, Finding, Impact, Severity, SourceKind, Weight, Who,
};

use crate::health;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::who::culprits::{add_culprit, who};
use ringleader_correlate::who::settings;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "nccl-env-mismatch",
    title: "ranks run with different settings",
    since: "0.1",
    doc: include_str!("nccl_env_mismatch.rs"),
    check,
};

/// Variables that every rank reads while its communicator is made: not printed means not set.
const READ_BY_ALL: [&str; 12] = [
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_BUFFSIZE",
    "NCCL_NTHREADS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_CTAS",
    "NCCL_MAX_CTAS",
    "NCCL_NET",
    "NCCL_IB_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_SOCKET_FAMILY",
];
/// Citations of one variable.
const CITATIONS: usize = 4;

/// One process with what it said it read, or what its listing holds.
struct ProcessSettings<'a> {
    who: &'a Who,
    /// Name, value, and place.
    settings: Vec<(&'a str, &'a str, Cite)>,
    kind: SourceKind,
    /// What is not there was not set: proven by this place.
    silence: Silence,
}

/// What it means that a variable is not named.
enum Silence {
    /// It may have been set or not.
    Unknown,
    /// It was not set, if it is one that every process reads and prints.
    OfWhatAllRead(Cite),
    /// It was not set.
    OfAll(Cite),
}

fn check(scene: &Scene<'_>) -> Outcome {
    let mut jobs: BTreeMap<u64, Vec<ProcessSettings<'_>>> = BTreeMap::new();
    for (_, log) in scene.nccl_logs() {
        for comm in &log.comms {
            let (Some(id), Some(process)) = (comm.comm_id, log.processes.get(comm.process as usize)) else {
                continue;
            };
            let own = log.settings.iter().filter(|s| s.process == comm.process);
            let settings: Vec<_> = own.map(|s| (&*s.name, s.value.trim_end_matches('.'), s.cite)).collect();
            // Silence counts only where the process reads the variable for sure and prints what it reads.
            let silence = match process.first {
                Some(first) if comm.completed.is_some() && !settings.is_empty() => {
                    Silence::OfWhatAllRead(first)
                }
                _ => Silence::Unknown,
            };
            let kind = SourceKind::NcclLog;
            jobs.entry(id).or_default().push(ProcessSettings { who: &process.who, settings, kind, silence });
        }
    }
    // Listings of ranks that meet at one place are of one job.
    let mut meetings: BTreeMap<(&str, &str), Vec<ProcessSettings<'_>>> = BTreeMap::new();
    for listing in settings::of(scene.case()).into_iter().filter(|s| s.kind == SourceKind::Environment) {
        let place =
            (listing.get("MASTER_ADDR").unwrap_or_default(), listing.get("MASTER_PORT").unwrap_or_default());
        let Some(first) = listing.sets.first().filter(|_| listing.who.rank.is_some()) else { continue };
        let silence = if listing.is_whole { Silence::OfAll(first.cite) } else { Silence::Unknown };
        let settings = listing.sets.iter().map(|s| (s.name, s.value.trim(), s.cite)).collect();
        let member = ProcessSettings { who: listing.who, settings, kind: listing.kind, silence };
        meetings.entry(place).or_default().push(member);
    }
    let mut findings: Vec<Finding> = Vec::new();
    for members in jobs.values().chain(meetings.values()).filter(|m| m.len() > 1) {
        for finding in compare(scene, members) {
            if !findings.iter().any(|f| f.title == finding.title) {
                findings.push(finding);
            }
        }
    }
    Outcome::from_findings(findings)
}

fn compare(scene: &Scene<'_>, members: &[ProcessSettings<'_>]) -> Vec<Finding> {
    let mut names: Vec<&str> =
        members.iter().flat_map(|m| m.settings.iter().map(|(name, ..)| *name)).collect();
    names.sort_unstable();
    names.dedup();
    let must_agree = |name: &&str| variable::get(name).is_some_and(|v| v.agreement == Agreement::Must);
    names.into_iter().filter(must_agree).filter_map(|name| differs(scene, members, name)).collect()
}

/// The member's value (None = not set) and its place; None if it is not known.
fn value_of<'a>(member: &ProcessSettings<'a>, name: &str) -> Option<(Option<&'a str>, Cite)> {
    if let Some((_, value, cite)) = member.settings.iter().find(|(own, ..)| *own == name) {
        return Some((Some(value), *cite));
    }
    match member.silence {
        Silence::OfAll(cite) => Some((None, cite)),
        Silence::OfWhatAllRead(cite) if READ_BY_ALL.contains(&name) => Some((None, cite)),
        _ => None,
    }
}

fn differs(scene: &Scene<'_>, members: &[ProcessSettings<'_>], name: &str) -> Option<Finding> {
    let mut by_value: BTreeMap<Option<&str>, Vec<(&ProcessSettings<'_>, Cite)>> = BTreeMap::new();
    for member in members {
        if let Some((value, cite)) = value_of(member, name) {
            by_value.entry(value).or_default().push((member, cite));
        }
    }
    if by_value.len() < 2 {
        return None;
    }
    let most = by_value.values().map(Vec::len).max()?;
    let odd = by_value.values().filter(|m| m.len() < most).flatten();
    let mut culprits: Vec<Culprit> = Vec::new();
    for (member, _) in odd {
        add_culprit(&mut culprits, scene.culprit(member.who));
    }
    let values: Vec<&str> = by_value.keys().map(|v| v.unwrap_or("unset")).collect();
    let evidence = by_value.iter().take(CITATIONS).filter_map(|(value, members)| {
        let (first, cite) = members.first()?;
        let text = match (value, first.kind) {
            (Some(value), SourceKind::NcclLog) => format!("{name} set by environment to {value}"),
            (Some(value), _) => format!("{name}={value}"),
            (None, _) => format!("no line about {name} in this process"),
        };
        Some(Evidence { cite: *cite, text, kind: first.kind })
    });
    let subject =
        if culprits.is_empty() { "ranks differ".to_owned() } else { format!("{} differs", who(&culprits)) };
    // In a job in which nothing went wrong it has done no harm so far.
    let (weight, severity) = match health::trouble(scene) {
        Some(_) => (Weight::Derived, Severity::Error),
        None => (Weight::Aside, Severity::Warning),
    };
    Draft::new(RULE.id, Cause::NcclEnvMismatch, format!("{subject} in {name}: {}", values.join(", ")))
        .weight(weight)
        .severity(severity)
        .confidence(Confidence::Medium)
        .culprits(culprits)
        .evidence(evidence)
        .advise_command(
            Impact::Harmless,
            "compare the settings of all ranks, in the environment and in files that NCCL reads",
            "tr '\\0' '\\n' < /proc/<pid>/environ | grep ^NCCL_; cat ~/.nccl.conf /etc/nccl.conf 2>/dev/null",
        )
        .advise(Impact::Harmless, format!("set {name} to the same value on all ranks, or on none"))
        .build()
}

#[cfg(test)]
mod tests {
    use ringleader_model::Cause;

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    fn rank(stage: StagedCase, rank: u32) -> StagedCase {
        stage.process("n", 10 + rank, Some(rank)).comm(rank, 3, 1, true).setting("NCCL_DEBUG_SUBSYS", "ALL")
    }

    #[test]
    fn different_values() {
        let stage = rank(StagedCase::new(), 0).setting("NCCL_NVLS_ENABLE", "0.");
        let stage = rank(stage, 1).setting("NCCL_NVLS_ENABLE", "1.");
        rank(stage, 2).setting("NCCL_NVLS_ENABLE", "0.").expect(&RULE, &["nccl-env-mismatch 1"]);
    }

    #[test]
    fn set_on_one_rank_alone() {
        rank(rank(rank(StagedCase::new(), 0).setting("NCCL_ALGO", "Ring"), 1), 2)
            .expect(&RULE, &["nccl-env-mismatch 0"]);
    }

    #[test]
    fn listings_of_the_ranks_of_one_job() {
        let listed = |stage: StagedCase, rank: u32, more: &[(&str, &str)]| {
            let rank_text = rank.to_string();
            let settings: Vec<(&str, &str)> = [("RANK", &*rank_text), ("MASTER_ADDR", "n0")]
                .into_iter()
                .chain(more.iter().copied())
                .collect();
            stage.listing(Some(rank), &settings)
        };
        let algo = [("NCCL_ALGO", "Ring")];
        let stage =
            listed(listed(listed(StagedCase::new(), 0, &algo), 1, &algo), 2, &[("NCCL_DEBUG", "INFO")]);
        stage.expect(&RULE, &["nccl-env-mismatch 2"]);
        // Nothing went wrong in it.
        assert_eq!(stage.finding(&RULE).weight, ringleader_model::Weight::Aside);
        assert_eq!(crate::diagnose(&stage.case).cause, Cause::None);
        let other_job = |stage: StagedCase| stage.listing(Some(2), &[("RANK", "2"), ("MASTER_ADDR", "n9")]);
        other_job(listed(listed(StagedCase::new(), 0, &algo), 1, &algo)).silent(&RULE);
        // A part of a listing does not show what was not set.
        let own = [("NCCL_SOCKET_IFNAME", "eth0")];
        listed(listed(StagedCase::new(), 0, &own), 1, &[("NCCL_SOCKET_IFNAME", "ib0")]).silent(&RULE);
    }

    #[test]
    fn what_may_differ_and_what_is_equal() {
        let stage =
            rank(StagedCase::new(), 0).setting("NCCL_SOCKET_IFNAME", "eth0").setting("NCCL_ALGO", "Ring");
        let stage = rank(stage, 1).setting("NCCL_SOCKET_IFNAME", "ib0").setting("NCCL_ALGO", "Ring");
        rank(stage, 2).setting("NCCL_ALGO", "Ring").silent(&RULE);
    }
}
