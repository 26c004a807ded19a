//! # What it shows
//! A script starts torchrun and sets nothing that records collectives.
//!
//! # Why it happens
//! The flight recorder is off by default in older releases, and dumps need a place.
//!
//! # Evidence
//! No TORCH_NCCL_ or TORCH_FR_ variable is exported.
//!
//! # What looks like it but is not
//! Variables that a site's profile sets.
//!
//! # What to do
//! ringleader env prints them.
//!
//! # References
//! PyTorch, flight recorder.

use ringleader_model::{Cause, Confidence, Severity};

use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "not-diagnosable",
    title: "a hang of this job would leave no trace",
    family: Family::Launch,
    predicts: Cause::Undecided,
    severity: Severity::Info,
    confidence: Confidence::Medium,
    doc: include_str!("not_diagnosable.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let records = |launch: &crate::launch::Launch<'_>| {
        launch.settings.iter().any(|s| {
            s.name.starts_with("TORCH_NCCL_")
                || s.name.starts_with("TORCH_FR_")
                || s.name == "NCCL_PROFILER_PLUGIN"
        }) || launch.text.contains("ringleader")
    };
    let mut findings = Vec::new();
    for launch in scan.launch.iter().filter(|launch| !records(launch)) {
        if let Some(command) = launch.commands.iter().find(|command| command.starts("torchrun")) {
            let title = "nothing records collectives: after a hang only stacks would show where ranks stood"
                .to_owned();
            let help = "eval \"$(ringleader env)\" before the launch sets the variables that make a failure diagnosable";
            findings.push(launch.finding(&RULE, command.at, title, help));
        }
    }
    findings
}
