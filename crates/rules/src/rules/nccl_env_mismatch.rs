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
//! only.
//!
//! # What looks like it but is not
//!
//! Interfaces, HCAs, debug levels and files may differ between hosts. A log without ENV lines tells nothing.
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
    Confidence, Culprit, Evidence, Finding, Impact, NcclProcess, NcclSetting, SourceKind, Weight,
};

use crate::correlate::Scene;
use crate::rule::{Draft, Input, Outcome, Rule};
use crate::told::{add_culprit, who};

/// See the module.
pub(super) static RULE: Rule = Rule {
    id: "nccl-env-mismatch",
    title: "ranks run with different settings",
    since: "0.1",
    reads: &[Input::NcclLog],
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

/// One process of a communicator with what it said it read.
struct Member<'a> {
    process: &'a NcclProcess,
    settings: Vec<&'a NcclSetting>,
    ready: bool,
}

fn check(scene: &Scene<'_>) -> Outcome {
    let mut jobs: BTreeMap<u64, Vec<Member<'_>>> = BTreeMap::new();
    for (_, log) in scene.nccl_logs() {
        for comm in &log.comms {
            let (Some(id), Some(process)) = (comm.comm_id, log.processes.get(comm.process as usize)) else {
                continue;
            };
            let settings = log.settings.iter().filter(|s| s.process == comm.process).collect();
            jobs.entry(id).or_default().push(Member { process, settings, ready: comm.completed.is_some() });
        }
    }
    let mut findings: Vec<Finding> = Vec::new();
    for members in jobs.values().filter(|m| m.len() > 1) {
        for finding in compare(scene, members) {
            if !findings.iter().any(|f| f.title == finding.title) {
                findings.push(finding);
            }
        }
    }
    Outcome::from_findings(findings)
}

fn compare(scene: &Scene<'_>, members: &[Member<'_>]) -> Vec<Finding> {
    let mut names: Vec<&str> = members.iter().flat_map(|m| m.settings.iter().map(|s| &*s.name)).collect();
    names.sort_unstable();
    names.dedup();
    let must_agree = |name: &&str| variable::get(name).is_some_and(|v| v.agreement == Agreement::Must);
    names.into_iter().filter(must_agree).filter_map(|name| differs(scene, members, name)).collect()
}

fn differs(scene: &Scene<'_>, members: &[Member<'_>], name: &str) -> Option<Finding> {
    // Value (None = not printed) to members.
    let mut by_value: BTreeMap<Option<&str>, Vec<&Member<'_>>> = BTreeMap::new();
    for member in members {
        let value = member.settings.iter().find(|s| &*s.name == name).map(|s| s.value.trim_end_matches('.'));
        // Silence counts only where the process reads the variable for sure and prints what it reads.
        let silence_tells = READ_BY_ALL.contains(&name) && member.ready && !member.settings.is_empty();
        if value.is_some() || silence_tells {
            by_value.entry(value).or_default().push(member);
        }
    }
    if by_value.len() < 2 {
        return None;
    }
    let most = by_value.values().map(Vec::len).max()?;
    let odd: Vec<&&Member<'_>> = by_value.values().filter(|m| m.len() < most).flatten().collect();
    let mut culprits: Vec<Culprit> = Vec::new();
    for member in &odd {
        add_culprit(&mut culprits, scene.culprit(&member.process.who));
    }
    let values: Vec<&str> = by_value.keys().map(|v| v.unwrap_or("unset")).collect();
    let evidence = by_value.iter().take(CITATIONS).filter_map(|(value, members)| {
        let first = members.first()?;
        let (cite, text) = match value {
            Some(value) => (
                first.settings.iter().find(|s| &*s.name == name)?.cite,
                format!("{name} set by environment to {value}"),
            ),
            None => (first.process.first?, format!("no line about {name} in this process")),
        };
        Some(Evidence { cite, text, kind: SourceKind::NcclLog })
    });
    let subject =
        if culprits.is_empty() { "ranks differ".to_owned() } else { format!("{} differs", who(&culprits)) };
    Draft::new(RULE.id, "nccl-env-mismatch", format!("{subject} in {name}: {}", values.join(", ")))
        .weight(Weight::Derived)
        .confidence(Confidence::Medium)
        .culprits(culprits)
        .evidence(evidence)
        .advise_command(
            Impact::Harmless,
            "compare what every rank has, in its environment and in files that NCCL reads",
            "tr '\\0' '\\n' < /proc/<pid>/environ | grep ^NCCL_; cat ~/.nccl.conf /etc/nccl.conf 2>/dev/null",
        )
        .advise(Impact::Disruptive, format!("set {name} to one value for all ranks, or for none"))
        .build()
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::staging::Stage;

    fn rank(stage: Stage, rank: u32) -> Stage {
        stage.process("n", 10 + rank, Some(rank)).comm(rank, 3, 1, true).setting("NCCL_DEBUG_SUBSYS", "ALL")
    }

    #[test]
    fn different_values() {
        let stage = rank(Stage::new(), 0).setting("NCCL_NVLS_ENABLE", "0.");
        let stage = rank(stage, 1).setting("NCCL_NVLS_ENABLE", "1.");
        rank(stage, 2).setting("NCCL_NVLS_ENABLE", "0.").expect(&RULE, &["nccl-env-mismatch 1"]);
    }

    #[test]
    fn set_on_one_rank_alone() {
        rank(rank(rank(Stage::new(), 0).setting("NCCL_ALGO", "Ring"), 1), 2)
            .expect(&RULE, &["nccl-env-mismatch 0"]);
    }

    #[test]
    fn what_may_differ_and_what_is_equal() {
        let stage = rank(Stage::new(), 0).setting("NCCL_SOCKET_IFNAME", "eth0").setting("NCCL_ALGO", "Ring");
        let stage = rank(stage, 1).setting("NCCL_SOCKET_IFNAME", "ib0").setting("NCCL_ALGO", "Ring");
        rank(stage, 2).setting("NCCL_ALGO", "Ring").silent(&RULE);
    }
}
