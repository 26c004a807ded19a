//! # What it shows
//!
//! NCCL refuses the value of a variable, or a variable disables what the machine would use.
//!
//! # Why it happens
//!
//! A typing mistake, a value of another release, a setting left over from debugging.
//!
//! # Evidence
//!
//! `Unrecognized element token`, `no algorithm/protocol available`, `Error: network X not found`; NCCL_P2P_DISABLE or
//! NCCL_IB_DISABLE that is on while data takes the slower path. In listings of variables and in NCCL's own ENV lines:
//! values that are read as something else (`true` is 0, `4M` is 4), that are out of range, names that this release or
//! nothing at all reads, settings that cancel each other, an NCCL file (/etc/nccl.conf) that the environment overrides.
//! These are remarks: they decide nothing.
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
    Category, Cause, Confidence, Culprit, Evidence, Finding, Impact, NcclLog, NcclSetting, Severity,
    SourceKind, Weight,
};

use crate::drafting::claims::ClaimsOfCause;
use crate::rule::{Draft, Outcome, Rule};
use crate::rules::settings::remarks::{self, Remark};
use ringleader_correlate::Scene;
use ringleader_correlate::who::culprits::{add_culprit, who};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "nccl-env-misconfigured",
    title: "a variable is set to something harmful",
    since: "0.1",
    doc: include_str!("nccl_env_misconfigured.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let mut findings: Vec<Finding> = Vec::new();
    if let Some(told) = ClaimsOfCause::of(scene, Cause::NcclEnvMisconfigured) {
        let first = told.claims().first().map(|c| c.saying.means).unwrap_or_default();
        let draft = told
            .draft(&RULE, Cause::NcclEnvMisconfigured, format!("{}: {first}", told.who()))
            .advise_command(
                Impact::Harmless,
                "check the settings in the environment and in files",
                "env | grep ^NCCL_; cat ~/.nccl.conf /etc/nccl.conf 2>/dev/null",
            )
            .advise_command(
                Impact::Harmless,
                "run without settings that restrict NCCL",
                "unset NCCL_ALGO NCCL_PROTO NCCL_NET",
            );
        // NCCL that went on to work was not stopped by it.
        let draft = if !told.is_stated() && scene.got_going(told.cites()) {
            draft.weight(Weight::Symptom).severity(Severity::Warning).confidence(Confidence::Low)
        } else {
            draft
        };
        findings.extend(draft.build());
    }
    findings.extend(refused_values(scene));
    findings.extend(forbids(scene, "NCCL_P2P_DISABLE", "direct access between GPUs", |log, s| {
        log.links.iter().any(|l| l.process == s.process && l.is_shared_memory())
    }));
    findings.extend(forbids(scene, "NCCL_IB_DISABLE", "InfiniBand", |log, s| {
        log.links.iter().any(|l| l.process == s.process && l.is_sockets())
    }));
    findings.extend(remarks::remarks(scene).into_iter().filter_map(remark));
    Outcome::from_findings(findings)
}

/// A setting that is wrong by itself, reported beside the verdict.
fn remark(remark: Remark) -> Option<Finding> {
    let severity = if remark.hurts { Severity::Warning } else { Severity::Info };
    Draft::new(RULE.id, Cause::NcclEnvMisconfigured, shorten(remark.title))
        .category(Category::Performance)
        .severity(severity)
        .weight(Weight::Aside)
        .confidence(Confidence::Medium)
        .culprits(remark.culprits)
        .evidence(remark.evidence)
        .advise(Impact::Harmless, remark.advice)
        .build()
}

/// A title stays readable; the value of a variable may be long.
fn shorten(title: String) -> String {
    const MAX_CHARS: usize = 300;
    match title.char_indices().nth(MAX_CHARS) {
        None => title,
        Some(_) => title.chars().take(MAX_CHARS - 1).chain(['…']).collect(),
    }
}

/// Values that NCCL cut or ignored and said so: it works on, with another value.
fn refused_values(scene: &Scene<'_>) -> Option<Finding> {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let known: BTreeSet<&str> = scene.claims().all().iter().map(|c| &*c.text).collect();
    let refused: Vec<_> = scene
        .nccl_messages()
        .filter(|m| m.message.is_warn && !known.contains(m.text()) && seen.insert(m.text()))
        .filter(|m| nccl_warn::find(m.text()).is_some_and(|row| row.group == nccl_warn::ids::ENV_CONFIG))
        .collect();
    let mut culprits: Vec<Culprit> = Vec::new();
    for line in refused.iter().filter(|l| !l.who().is_nobody()) {
        add_culprit(&mut culprits, scene.culprit(&line.who()));
    }
    Draft::new(
        RULE.id,
        Cause::NcclEnvMisconfigured,
        format!("{}: NCCL refused or truncated the value of a variable", who(&culprits)),
    )
    .category(Category::Performance)
    .severity(Severity::Warning)
    .weight(Weight::Symptom)
    .confidence(Confidence::Low)
    .culprits(culprits)
    .evidence(refused.iter().take(4).map(ringleader_correlate::NcclLine::evidence))
    .advise(Impact::Harmless, "correct or unset the variable that the message names")
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
    Draft::new(RULE.id, Cause::NcclEnvMisconfigured, format!("{}: {name}=1 disables {what}", who(&culprits)))
        .category(Category::Performance)
        .severity(Severity::Warning)
        .weight(Weight::Symptom)
        .confidence(Confidence::Low)
        .culprits(culprits)
        .evidence(evidence)
        .advise_made(
            Impact::Harmless,
            "unless it is needed on this machine, run without it",
            Some(format!("unset {name}")),
        )
        .build()
}

#[cfg(test)]
mod tests {
    use ringleader_model::Cause;

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn a_word_that_nccl_does_not_know() {
        StagedCase::new()
            .process("n", 1, Some(1))
            .warn("graph/tuning.cc:1", "Unrecognized element token \"Rings\" when parsing \"Rings\"")
            .expect(&RULE, &["nccl-env-misconfigured 1"]);
    }

    #[test]
    fn a_network_that_is_not_there() {
        StagedCase::new()
            .nccl_raised(Some(0), "Error: network OFI not found.")
            .expect(&RULE, &["nccl-env-misconfigured 0"]);
    }

    #[test]
    fn a_value_that_was_cut_is_only_a_warning() {
        let stage = StagedCase::new().process("n", 1, Some(1)).comm(1, 2, 1, true).warn(
            "transport/net_socket.cc:1",
            "NET/Socket : NCCL_SOCKET_NTHREADS is greater than the maximum allowed, setting to 16",
        );
        stage.expect(&RULE, &["nccl-env-misconfigured 1"]);
        assert_eq!(stage.finding(&RULE).severity, ringleader_model::Severity::Warning);
    }

    #[test]
    fn a_switch_that_forces_the_slow_way() {
        StagedCase::new()
            .process("n", 1, Some(1))
            .setting("NCCL_P2P_DISABLE", "1.")
            .link(1, 0, "SHM/direct/direct")
            .expect(&RULE, &["nccl-env-misconfigured 1"]);
    }

    /// Titles of the remarks on a listing of one rank; none of them may decide.
    fn remarks(settings: &[(&str, &str)]) -> Vec<String> {
        let findings = StagedCase::new().listing(Some(1), settings).findings(&RULE);
        assert!(findings.iter().all(|f| f.weight == ringleader_model::Weight::Aside), "{findings:#?}");
        assert!(findings.iter().all(|f| !f.actions.is_empty() && !f.culprits.is_empty()), "{findings:#?}");
        findings.into_iter().map(|f| f.title).collect()
    }

    #[test]
    fn values_that_are_read_as_something_else() {
        assert_eq!(remarks(&[("NCCL_IB_DISABLE", "true")]), ["NCCL_IB_DISABLE=true: true reads as 0"]);
        assert_eq!(remarks(&[("NCCL_BUFFSIZE", "4M")]), ["NCCL_BUFFSIZE=4M: 4M reads as 4"]);
        assert_eq!(remarks(&[("NCCL_IB_TIMEOUT", "40")]), ["NCCL_IB_TIMEOUT=40: 40 is not within 0 to 31"]);
        assert_eq!(remarks(&[("NCCL_IB_TIMEOUT", "22"), ("NCCL_DEBUG", "info"), ("RANK", "1")]), [""; 0]);
    }

    /// The last listing is a configuration file of NCCL.
    fn as_file(mut stage: StagedCase) -> StagedCase {
        if let Some(ringleader_model::Fact::Environment(e)) =
            stage.case.observations.last_mut().map(|o| &mut o.fact)
        {
            e.form = ringleader_model::EnvironmentForm::ConfFile;
            e.is_whole = false;
        }
        stage
    }

    #[test]
    fn configuration_files() {
        let titles =
            |stage: StagedCase| stage.findings(&RULE).into_iter().map(|f| f.title).collect::<Vec<_>>();
        let file =
            |stage: StagedCase, value: &str| as_file(stage.listing(None, &[("NCCL_IB_DISABLE", value)]));
        assert_eq!(titles(file(StagedCase::new(), "true")), ["NCCL_IB_DISABLE=true: true reads as 0"]);
        assert_eq!(titles(file(StagedCase::new(), "1")), [""; 0]);
        // The environment goes before it; the same value in both is nothing.
        let set = || StagedCase::new().listing(Some(1), &[("NCCL_IB_DISABLE", "0")]);
        assert_eq!(
            titles(file(set(), "1")),
            ["NCCL_IB_DISABLE=1 from a configuration file is overridden by 0 from the environment"]
        );
        assert_eq!(titles(file(set(), "0")), [""; 0]);
    }

    #[test]
    fn torch_refuses_a_value() {
        let text = "Invalid value for environment variable: TORCH_NCCL_ASYNC_ERROR_HANDLING";
        StagedCase::new()
            .raised(Some(1), "ValueError", text, &[])
            .expect(&RULE, &["nccl-env-misconfigured 1"]);
        StagedCase::new().raised(Some(1), "ValueError", "Invalid value for learning rate", &[]).silent(&RULE);
    }

    #[test]
    fn names_that_nothing_reads() {
        assert_eq!(remarks(&[("NCCL_TIMEOUT", "1800")]), ["nothing reads NCCL_TIMEOUT"]);
        assert_eq!(
            remarks(&[("NCCL_IB_TIMOUT", "22")]),
            ["no NCCL up to 2.30.7 and no PyTorch is known to read NCCL_IB_TIMOUT"]
        );
        // Plugins and other programs have names of their own.
        assert_eq!(
            remarks(&[
                ("NCCL_FASTRAK_CTRL_DEV", "eth0"),
                ("NCCL_VERSION", "2.28.9"),
                ("OFI_NCCL_X", "1"),
                ("TORCH_HOME", "/x"),
                ("CUDA_X", "1")
            ]),
            [""; 0]
        );
    }

    #[test]
    fn what_this_release_does_not_read() {
        let stage = StagedCase::new()
            .process("n", 1, Some(1))
            .about(|p| p.nccl_version = Some("2.16.2+cuda11.8".into()));
        let found = stage.listing(Some(1), &[("NCCL_NVLS_ENABLE", "0")]).findings(&RULE);
        let titles: Vec<&str> = found.iter().map(|f| f.title.as_str()).collect();
        assert_eq!(titles, ["NCCL 2.16.2 does not read NCCL_NVLS_ENABLE"]);
    }

    #[test]
    fn settings_that_cancel_each_other() {
        let found = remarks(&[("NCCL_P2P_DISABLE", "1"), ("NCCL_P2P_LEVEL", "NVL")]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("NCCL_P2P_DISABLE=1 with NCCL_P2P_LEVEL=NVL: "), "{found:?}");
        // By the old name of a variable too.
        let found = remarks(&[("NCCL_BLOCKING_WAIT", "1"), ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")]);
        assert!(
            found[0].starts_with("NCCL_BLOCKING_WAIT=1 with TORCH_NCCL_ASYNC_ERROR_HANDLING=1: "),
            "{found:?}"
        );
        assert_eq!(
            remarks(&[("NCCL_MIN_CTAS", "32"), ("NCCL_MAX_CTAS", "16")]),
            ["NCCL_MIN_CTAS=32 is more than NCCL_MAX_CTAS=16"]
        );
        assert_eq!(remarks(&[("NCCL_SOCKET_NTHREADS", "4"), ("NCCL_NSOCKS_PERTHREAD", "4")]), [""; 0]);
    }

    #[test]
    fn one_remark_for_all_ranks_that_have_it_so() {
        let stage = StagedCase::new()
            .listing(Some(0), &[("NCCL_TIMEOUT", "1")])
            .listing(Some(1), &[("NCCL_TIMEOUT", "1")]);
        let finding = stage.finding(&RULE);
        assert_eq!(finding.culprits.len(), 2);
        assert_eq!(finding.evidence.len(), 2);
    }

    #[test]
    fn a_remark_decides_nothing() {
        let healthy = StagedCase::new().process("n", 1, Some(1)).comm(1, 2, 1, true);
        let verdict = crate::diagnose(&healthy.listing(Some(1), &[("NCCL_IB_DISABLE", "true")]).case);
        assert_eq!(verdict.cause, Cause::None);
        assert_eq!(verdict.findings.len(), 1);
        let sick = StagedCase::new().nccl_raised(Some(0), "Error: network OFI not found.");
        let verdict = crate::diagnose(&sick.listing(Some(1), &[("NCCL_TIMEOUT", "1")]).case);
        assert_eq!(verdict.cause, Cause::NcclEnvMisconfigured);
        assert_eq!(verdict.findings.first().map(|f| f.weight > ringleader_model::Weight::Aside), Some(true));
    }

    #[test]
    fn harmless_settings() {
        StagedCase::new()
            .process("n", 1, Some(1))
            .setting("NCCL_NVLS_ENABLE", "0.")
            .setting("NCCL_IB_DISABLE", "1.")
            .link(1, 0, "P2P/CUMEM")
            .silent(&RULE);
    }
}
