//! # What it shows
//! The value of a variable becomes another than its author meant: a word where a number is read, a unit, a leading
//! zero, a number out of range, a word that nobody knows.
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

use crate::launch::network;
use crate::rule::{Family, Rule};
use crate::{Finding, Scan};

/// The rule.
pub(crate) static RULE: Rule = Rule {
    id: "misread-value",
    title: "a value is read differently from what it says",
    family: Family::Launch,
    predicts: Cause::NcclEnvMisconfigured,
    severity: Severity::Warning,
    confidence: Confidence::High,
    doc: include_str!("misread_value.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<Finding> {
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
        .collect()
}
