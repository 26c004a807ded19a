//! # What it shows
//! The library reads a value of a variable that differs from the intended one: a word instead of a number, a unit, a leading
//! zero, a number out of range, an unknown word. Or nccl.conf and the environment contradict each other.
//!
//! # Why it happens
//! NCCL reads numbers with strtoll and says nothing about the rest; torch raises.
//!
//! # Evidence
//! The table of variables knows how each is parsed.
//!
//! # What looks like it but is not
//! A value that the script computes.
//!
//! # What to do
//! Write the value in the form that is read.
//!
//! # References
//! NVIDIA/nccl src/misc/param.cc; PyTorch, Utils.hpp.

use ringleader_model::{Cause, Confidence, Severity};

use ringleader_knowledge::variable;

use crate::launch::{Launch, Spot, network};
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "misread-value",
    title: "a value is read differently from what it says",
    family: Family::Launch,
    predicts: Cause::NcclEnvMisconfigured,
    severity: Severity::Warning,
    confidence: Confidence::High,
    doc: include_str!("misread_value.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let settings =
        scan.launch.iter().flat_map(|launch| launch.settings.iter().map(move |setting| (launch, setting)));
    let misnamed = scan.launch.iter().flat_map(|launch| {
        network::misnamed(launch).into_iter().map(move |one| {
            let title = format!("{}={}: {}", one.setting.name, one.setting.raw, one.what);
            let help = "name the interface: ip -o route get ADDRESS says which one holds an address";
            let mut finding = launch.finding(&RULE, one.setting.at, title, help);
            if !one.is_written {
                finding.confidence = Confidence::Medium;
            }
            finding
        })
    });
    settings
        .filter_map(|(launch, setting)| {
            let known = variable::get(&setting.name)?;
            let misread = variable::misread(known, setting.value.as_deref()?, scan.nccl(launch))?;
            let title = format!("{}={}: {}: {}", setting.name, setting.raw, misread.what, misread.trap.means);
            Some(launch.finding(&RULE, setting.at, title, misread.trap.instead))
        })
        .chain(misnamed)
        .chain(scan.launch.iter().flat_map(overridden))
        .collect()
}

/// What a file writes to nccl.conf and sets otherwise in the environment, which wins.
fn overridden(launch: &Launch<'_>) -> Vec<LintFinding> {
    let mut found = Vec::new();
    for (n, line) in launch.text.lines().enumerate().filter(|(_, line)| line.contains("nccl.conf")) {
        let words = line.split(|c: char| c.is_whitespace() || matches!(c, '"' | '\''));
        let said = words.filter(|word| word.starts_with("NCCL_")).filter_map(|word| word.split_once('='));
        for (name, value) in said {
            let other = launch.settings.iter().find(|setting| {
                setting.name == name && setting.value.as_deref().is_some_and(|other| other != value)
            });
            let Some(other) = other.filter(|_| !value.contains(['$', '{', '<'])) else { continue };
            let title =
                format!("{name}={}: the environment wins over nccl.conf, which says {value}", other.raw);
            let help = "keep one of them: what an image sets in its environment holds on all hosts";
            let mut finding = launch.finding(&RULE, other.at, title, help);
            finding.confidence = Confidence::Medium;
            let at = Spot { line: n as u32 + 1, column: 1, end_column: line.chars().count() as u32 + 1 };
            finding.related.push(launch.related(at, "nccl.conf".to_owned()));
            found.push(finding);
        }
    }
    found
}
