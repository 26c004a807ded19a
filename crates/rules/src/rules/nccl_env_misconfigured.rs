//! # What it shows
//!
//! NCCL refuses the value of a variable, or a variable forbids what the machine would use.
//!
//! # Why it happens
//!
//! A typing mistake, a value of another release, a setting left over from debugging.
//!
//! # Evidence
//!
//! `Unrecognized element token`, `no algorithm/protocol available`, `Error: network X not found`; NCCL_P2P_DISABLE
//! or NCCL_IB_DISABLE that is on while data takes the slow way.
//!
//! # What looks like it but is not
//!
//! A variable that is set and harmless (NCCL_NVLS_ENABLE=0, debug levels). Ranks that differ are nccl-env-mismatch.
//!
//! # What to do
//!
//! Unset it, or give it a value that this release reads.
//!
//! # References
//!
//! NVIDIA/nccl src/graph/tuning.cc, src/enqueue.cc, src/plugin/net.cc; user guide, environment variables.

use std::collections::BTreeSet;

use ringleader_knowledge::nccl_warn;
use ringleader_model::{
    Category, Confidence, Culprit, Evidence, Finding, Impact, NcclLog, NcclSetting, Severity, SourceKind,
    Weight,
};

use crate::correlate::Scene;
use crate::rule::{Draft, Input, Outcome, Rule};
use crate::told::{Told, add_culprit, got_going, who};

/// See the module.
pub(super) static RULE: Rule = Rule {
    id: "nccl-env-misconfigured",
    title: "a variable is set to something harmful",
    since: "0.1",
    reads: &[Input::NcclLog, Input::TorchLog],
    doc: include_str!("nccl_env_misconfigured.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let mut findings: Vec<Finding> = Vec::new();
    if let Some(told) = Told::of(scene, "nccl-env-misconfigured") {
        let first = told.claims().first().map(|c| c.saying.means).unwrap_or_default();
        let draft = told
            .draft(&RULE, "nccl-env-misconfigured", format!("{}: {first}", told.who()))
            .advise_command(
                Impact::Harmless,
                "see what is set, in the environment and in files",
                "env | grep ^NCCL_; cat ~/.nccl.conf /etc/nccl.conf 2>/dev/null",
            )
            .advise_command(
                Impact::Disruptive,
                "run without settings that restrict NCCL",
                "unset NCCL_ALGO NCCL_PROTO NCCL_NET",
            );
        // NCCL that went on to work was not stopped by it.
        let draft = if !told.is_stated() && got_going(scene, told.cites()) {
            draft.weight(Weight::Symptom).severity(Severity::Warning).confidence(Confidence::Low)
        } else {
            draft
        };
        findings.extend(draft.build());
    }
    findings.extend(refused_values(scene));
    findings.extend(forbids(scene, "NCCL_P2P_DISABLE", "direct access between GPUs", |log, s| {
        log.links.iter().any(|l| l.process == s.process && l.transport.starts_with("SHM"))
    }));
    findings.extend(forbids(scene, "NCCL_IB_DISABLE", "InfiniBand", |log, s| {
        log.links.iter().any(|l| l.process == s.process && l.transport.starts_with("NET/Socket"))
    }));
    Outcome::from_findings(findings)
}

/// Values that NCCL cut or ignored and said so: it works on, with another value.
fn refused_values(scene: &Scene<'_>) -> Option<Finding> {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let known: BTreeSet<&str> = scene.claims.all().iter().map(|c| &*c.text).collect();
    let refused: Vec<_> = scene
        .nccl_messages()
        .filter(|m| m.message.is_warn && !known.contains(m.text()) && seen.insert(m.text()))
        .filter(|m| nccl_warn::find(m.text()).is_some_and(|row| row.group == "env_config"))
        .collect();
    let mut culprits: Vec<Culprit> = Vec::new();
    for line in refused.iter().filter(|l| !l.who().is_nobody()) {
        add_culprit(&mut culprits, scene.culprit(&line.who()));
    }
    Draft::new(
        RULE.id,
        "nccl-env-misconfigured",
        format!("{}: NCCL refused or cut the value of a variable", who(&culprits)),
    )
    .category(Category::Performance)
    .severity(Severity::Warning)
    .weight(Weight::Symptom)
    .confidence(Confidence::Low)
    .culprits(culprits)
    .evidence(refused.iter().take(4).map(crate::correlate::NcclLine::evidence))
    .advise(Impact::Disruptive, "correct or unset the variable that the text names")
    .build()
}

/// A switch that is on while data visibly takes the slow way.
fn forbids(
    scene: &Scene<'_>,
    name: &str,
    what: &str,
    is_slow: impl Fn(&NcclLog, &NcclSetting) -> bool,
) -> Option<Finding> {
    let mut culprits: Vec<Culprit> = Vec::new();
    let mut evidence: Vec<Evidence> = Vec::new();
    for (_, log) in scene.nccl_logs() {
        let on = log.settings.iter().filter(|s| &*s.name == name && s.value.trim_end_matches('.') == "1");
        for setting in on.filter(|s| is_slow(log, s)) {
            let text = format!("{name} set by environment to 1");
            evidence.push(Evidence { cite: setting.cite, text, kind: SourceKind::NcclLog });
            if let Some(process) = log.processes.get(setting.process as usize) {
                add_culprit(&mut culprits, scene.culprit(&process.who));
            }
        }
    }
    evidence.truncate(4);
    Draft::new(RULE.id, "nccl-env-misconfigured", format!("{}: {name}=1 forbids {what}", who(&culprits)))
        .category(Category::Performance)
        .severity(Severity::Warning)
        .weight(Weight::Symptom)
        .confidence(Confidence::Low)
        .culprits(culprits)
        .evidence(evidence)
        .advise_command(
            Impact::Disruptive,
            "unless it is needed on this machine, run without it",
            format!("unset {name}"),
        )
        .build()
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::staging::Stage;

    #[test]
    fn a_word_that_nccl_does_not_know() {
        Stage::new()
            .process("n", 1, Some(1))
            .warn("graph/tuning.cc:1", "Unrecognized element token \"Rings\" when parsing \"Rings\"")
            .expect(&RULE, &["nccl-env-misconfigured 1"]);
    }

    #[test]
    fn a_network_that_is_not_there() {
        Stage::new()
            .nccl_raised(Some(0), "Error: network OFI not found.")
            .expect(&RULE, &["nccl-env-misconfigured 0"]);
    }

    #[test]
    fn a_value_that_was_cut_is_only_a_warning() {
        let stage = Stage::new().process("n", 1, Some(1)).comm(1, 2, 1, true).warn(
            "transport/net_socket.cc:1",
            "NET/Socket : NCCL_SOCKET_NTHREADS is greater than the maximum allowed, setting to 16",
        );
        stage.expect(&RULE, &["nccl-env-misconfigured 1"]);
        assert_eq!(stage.finding(&RULE).severity, ringleader_model::Severity::Warning);
    }

    #[test]
    fn a_switch_that_forces_the_slow_way() {
        Stage::new()
            .process("n", 1, Some(1))
            .setting("NCCL_P2P_DISABLE", "1.")
            .link(1, 0, "SHM/direct/direct")
            .expect(&RULE, &["nccl-env-misconfigured 1"]);
    }

    #[test]
    fn harmless_settings() {
        Stage::new()
            .process("n", 1, Some(1))
            .setting("NCCL_NVLS_ENABLE", "0.")
            .setting("NCCL_IB_DISABLE", "1.")
            .link(1, 0, "P2P/CUMEM")
            .silent(&RULE);
    }
}
