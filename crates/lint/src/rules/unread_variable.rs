//! # What it shows
//! A variable with NCCL's or PyTorch's prefix is passed to the job, and no release reads it.
//!
//! # Why it happens
//! Names are copied from blogs, spelled from memory, or taken from another library. NCCL ignores what it does not
//! know without a word.
//!
//! # Evidence
//! The name is not among those that the sources of all releases read, nor one of a plugin; only what is exported or
//! passed on counts.
//!
//! # What looks like it but is not
//! Variables of plugins, names local to a script, labels of images.
//!
//! # What to do
//! Remove it, or write the name that was meant.
//!
//! # References
//! NVIDIA/nccl, all releases; PyTorch, ProcessGroupNCCL environment variables.

use ringleader_model::{Cause, Confidence, Severity};

use ringleader_knowledge::variable;
use strsim::levenshtein;

use crate::launch::{Launch, Setting};
use crate::rule::{Family, LintRule};
use crate::{Fix, LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "unread-variable",
    title: "nothing reads a variable of this name",
    family: Family::Launch,
    predicts: Cause::NcclEnvMisconfigured,
    severity: Severity::Warning,
    confidence: Confidence::High,
    doc: include_str!("unread_variable.rs"),
    check,
};

/// Letters in which a misspelt name may differ.
const MAX_DISTANCE: usize = 2;

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let unexported = scan.launch.iter().flat_map(unexported);
    let settings =
        scan.launch.iter().flat_map(|launch| launch.settings.iter().map(move |setting| (launch, setting)));
    settings
        .filter_map(|(launch, setting)| {
            let name = setting.name.as_str();
            let is_ours = name.starts_with("NCCL_") || name.starts_with("TORCH_NCCL_");
            if is_ours
                && let Some(known) = variable::get(name)
                && let Some(version) = scan.nccl(launch)
                && known.reader.eq_ignore_ascii_case("nccl")
                && variable::is_read_by(name, Some(version)) == Some(false)
            {
                let when = match known.since {
                    Some(since) if since > version => format!("it came with {since}"),
                    _ => "it is gone since".to_owned(),
                };
                let title = format!("NCCL {version}, which is installed here, does not read {name}: {when}");
                let help = "remove it, or install a release that reads it";
                let mut finding = launch.finding(&RULE, setting.at, title, help);
                finding.confidence = Confidence::Medium;
                return Some(finding);
            }
            if !is_ours {
                return misspelt_library(launch, setting);
            }
            if variable::get(name).is_some() || variable::is_of_plugin(name) || variable::is_label(name) {
                return None;
            }
            let (title, confidence) = match (variable::get_unread(name), nearest(name)) {
                (Some(unread), _) if unread.meant.is_empty() => (
                    format!("no release of NCCL or PyTorch reads {name}: it has no effect"),
                    Confidence::High,
                ),
                (Some(unread), _) => (
                    format!(
                        "no release of NCCL or PyTorch reads {name}: {} was probably meant",
                        unread.meant
                    ),
                    Confidence::High,
                ),
                (None, Some(near)) => {
                    (format!("{name} is read by nobody: {near} is spelled nearly so"), Confidence::Medium)
                }
                (None, None) => {
                    (format!("{name} is read by no release of NCCL that is known"), Confidence::Low)
                }
            };
            let help = "remove it or correct the name: ringleader explain NAME says who reads it";
            let mut finding = launch.finding(&RULE, setting.at, title, help);
            finding.confidence = confidence;
            if let (None, Some(near)) = (variable::get_unread(name), nearest(name)) {
                finding.fix = rename(launch.text, setting.at.line, name, near);
            }
            Some(finding)
        })
        .chain(unexported)
        .collect()
}

/// A variable of NCCL with a letter of the library's name lost or doubled: `NCLL_DEBUG`, `CCL_NET_GDR_LEVEL`.
fn misspelt_library(launch: &Launch<'_>, setting: &Setting) -> Option<LintFinding> {
    let (library, rest) = setting.name.split_once('_')?;
    let meant = format!("NCCL_{rest}");
    // RCCL, HCCL, oneCCL and others have variables of their own.
    let is_another = library.len() == 4 && library.ends_with("CCL");
    let is_near = ["NCLC", "CNCL", "NNCL"].contains(&library) || levenshtein(library, "NCCL") == 1;
    let known = variable::get(&meant).filter(|_| is_near && !is_another)?;
    let others = || launch.settings.iter().map(|other| other.name.as_str());
    if library == "CCL"
        && (!others().any(|other| other.starts_with("NCCL_"))
            || others().any(|other| other.starts_with("CCL_") && other != setting.name))
    {
        return None;
    }
    let title = format!("{} is read by nobody: {} is spelled nearly so", setting.name, known.name);
    let help = "correct the name: ringleader explain NAME says who reads it";
    let mut finding = launch.finding(&RULE, setting.at, title, help);
    finding.confidence = Confidence::Medium;
    finding.fix = rename(launch.text, setting.at.line, &setting.name, known.name);
    Some(finding)
}

/// Names that NCCL or PyTorch read, which a script sets for itself and neither exports nor uses.
fn unexported(launch: &Launch<'_>) -> Vec<LintFinding> {
    let text = launch.text;
    let starts = launch.commands.iter().any(|command| command.launcher().is_some());
    let exports_all = text.contains("set -a") || text.contains("allexport") || text.contains("export $(");
    if !starts || exports_all || launch.assigned.is_empty() {
        return Vec::new();
    }
    let is_passed = |name: &str| launch.settings.iter().any(|setting| setting.name == name);
    let is_used = |name: &str| {
        text.contains(&format!("${name}"))
            || text.contains(&format!("${{{name}"))
            || text.contains(&format!("export {name}"))
    };
    let mut found: Vec<LintFinding> = Vec::new();
    for one in &launch.assigned {
        let name = one.name.as_str();
        let is_ours = name.starts_with("NCCL_") || name.starts_with("TORCH_NCCL_");
        // In a list of words for another program it is no variable of the shell.
        let line = text.lines().nth(one.at.line.saturating_sub(1) as usize).unwrap_or_default();
        let is_alone = line.trim_start().starts_with(name) && !line.trim_end().ends_with('\\');
        if is_ours && is_alone && variable::get(name).is_some() && !is_passed(name) && !is_used(name) {
            let title = format!("{name} is set and not exported: what the script starts does not get it");
            let mut finding = launch.finding(&RULE, one.at, title, "write export in front of it");
            finding.confidence = Confidence::Medium;
            found.push(finding);
        }
    }
    found
}

/// The change of a name in its line, if the line has it once.
fn rename(text: &str, line: u32, from: &str, to: &str) -> Option<Fix> {
    let start: usize = text.split_inclusive('\n').take(line.checked_sub(1)? as usize).map(str::len).sum();
    let row = text.get(start..)?.lines().next()?;
    let mut places = row.match_indices(from).filter(|(at, _)| {
        let is_part = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
        let before = row.get(..*at).and_then(|before| before.chars().next_back());
        let after = row.get(at + from.len()..).and_then(|after| after.chars().next());
        !is_part(before) && !is_part(after)
    });
    let (at, _) = places.next()?;
    if places.next().is_some() {
        return None;
    }
    let at = start + at;
    Some(Fix { text: format!("write {to}"), at, end: at + from.len(), with: to.to_owned() })
}

/// A variable whose name is nearly this one.
fn nearest(name: &str) -> Option<&'static str> {
    let near = variable::all().iter().filter(|known| levenshtein(name, known.name) <= MAX_DISTANCE);
    near.min_by_key(|known| levenshtein(name, known.name)).map(|known| known.name)
}
