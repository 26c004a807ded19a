//! Reads the lines around citations: files are opened a second time, since their contents are not kept.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use ringleader_evidence::{Around, Citation, Limits};
use ringleader_report::json::{Context, Report};

use super::open_found;
use super::walk::{self, EvidenceFile, Input};

/// Lines before and after a citation.
const LINES: usize = 5;
/// Citations that get their context: what a reader opens.
const MAX_CITATIONS: usize = 400;

/// Adds the lines around the citations of a report. What cannot be read again stays as it is.
pub(crate) fn add(report: &mut Report, paths: &[PathBuf]) {
    let places: Vec<Citation> = report
        .citations_mut()
        .take(MAX_CITATIONS)
        .map(|cited| Citation {
            source: cited.source.clone(),
            span: (cited.span[0], cited.span[1]),
            line: cited.line.unwrap_or(0),
            words: cited.text.clone(),
        })
        .collect();
    let found = read(paths, &places, LINES);
    for (cited, around) in report.citations_mut().zip(found) {
        cited.context = around.map(|Around { before, lines, after, line, is_found }| {
            let line = u32::try_from(line).unwrap_or(u32::MAX);
            if is_found {
                cited.line = Some(line);
            }
            Context { line, before, lines, after }
        });
    }
}

/// The lines around places, in their order; None for what cannot be read.
pub(crate) fn read(paths: &[PathBuf], places: &[Citation], n_lines: usize) -> Vec<Option<Around>> {
    let mut all: Vec<Option<Around>> = vec![None; places.len()];
    if places.is_empty() {
        return all;
    }
    let Ok(found) = walk::walk(paths) else { return all };
    // Places by the file that holds them: a member of an archive is named behind the archive.
    let mut of_file: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, place) in places.iter().enumerate() {
        let outer = |entry: &&EvidenceFile| {
            let rest = place.source.strip_prefix(entry.shown.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('!'))
        };
        if let Some(entry) = found.entries.iter().filter(outer).max_by_key(|entry| entry.shown.len()) {
            of_file.entry(&entry.shown).or_default().push(at);
        }
    }
    for entry in &found.entries {
        let Some(wanted) = of_file.get(entry.shown.as_str()) else { continue };
        let opened = match &entry.input {
            Input::Stdin => continue,
            Input::File(path) => open_found(path),
            Input::Named(path) => File::open(path),
        };
        let Ok(mut file) = opened else { continue };
        // A pipe that was named is empty now, or would wait.
        if !file.metadata().is_ok_and(|meta| meta.is_file()) {
            continue;
        }
        let own: Vec<Citation> = wanted.iter().filter_map(|at| places.get(*at).cloned()).collect();
        let input: &mut dyn Read = &mut file;
        let lines = ringleader_evidence::around(&entry.shown, input, &own, n_lines, &Limits::default());
        for (at, around) in wanted.iter().zip(lines) {
            if let Some(slot) = all.get_mut(*at) {
                *slot = around;
            }
        }
    }
    all
}
