//! Findings that are known and left for later.
//!
//! One line each: fingerprint, rule, place for people. The fingerprint does not change while lines move.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use ringleader_lint::LintFinding;

use crate::failure::Failure;

pub(super) fn write(path: &Path, findings: &[LintFinding]) -> Result<(), Failure> {
    let mut text =
        String::from("# ringleader lint --baseline: findings that are known. Fingerprint, rule, place.\n");
    for finding in findings {
        let _ = writeln!(
            text,
            "{} {} {}:{}",
            finding.fingerprint(),
            finding.rule,
            finding.place.path,
            finding.place.line
        );
    }
    std::fs::write(path, text).map_err(|source| Failure::CannotWrite { path: path.to_owned(), source })
}

/// Removes what the file lists, as often as it lists it.
pub(super) fn leave_out(path: &Path, findings: &mut Vec<LintFinding>) -> Result<(), Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| Failure::NoSuchFile { path: path.to_owned(), source })?;
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(word) = line.split_whitespace().next() {
            *known.entry(word).or_default() += 1;
        }
    }
    findings.retain(|finding| match known.get_mut(finding.fingerprint().as_str()) {
        Some(n) if *n > 0 => {
            *n -= 1;
            false
        }
        _ => true,
    });
    Ok(())
}
