//! Beginnings and ends of files, for a brief: small evidence is shown whole.

use std::collections::BTreeSet;
use std::path::PathBuf;

use ringleader_evidence::Citation;
use ringleader_model::{Case, Source, SourceKind};
use ringleader_report::brief::Excerpt;

use super::context;

/// Evidence of this size is shown whole, bytes.
const WHOLE_BYTES: u64 = 12 << 10;
/// Files that are shown in part, and lines of each at its beginning and end.
const MAX_FILES: usize = 24;
const HEAD_LINES: usize = 4;
const TAIL_LINES: usize = 12;
/// Lines of a file that is shown whole, from its beginning and from its end: no more are held at a time.
const ALL_LINES: usize = 240;

/// Excerpts of the text of a case; the output of programs first.
pub(crate) fn excerpts(case: &Case, paths: &[PathBuf]) -> Vec<Excerpt> {
    let mut texts: Vec<&Source> = case.sources.iter().filter(|source| is_text(source)).collect();
    texts.sort_by_key(|source| (order(source), source.path.clone()));
    let n_bytes: u64 = texts.iter().map(|source| source.size_bytes).sum();
    texts.truncate(MAX_FILES);
    let is_small = n_bytes <= WHOLE_BYTES;
    let place = |source: &Source, at: u64| Citation {
        source: source.path.clone(),
        span: (at, at + 1),
        line: 0,
        words: String::new(),
    };
    let heads: Vec<Citation> = texts.iter().map(|source| place(source, 0)).collect();
    let n_head = if is_small { ALL_LINES } else { HEAD_LINES };
    let mut found: Vec<Excerpt> = Vec::new();
    let whole = context::read(paths, &heads, n_head);
    let tails: Vec<Citation> =
        texts.iter().map(|source| place(source, source.size_bytes.saturating_sub(2))).collect();
    let ends = context::read(paths, &tails, if is_small { ALL_LINES } else { TAIL_LINES });
    for (at, source) in texts.iter().enumerate() {
        let mut seen: BTreeSet<u64> = BTreeSet::new();
        for around in [whole.get(at), ends.get(at)].into_iter().flatten().flatten() {
            let first = around.line - around.before.len() as u64;
            let all = around.before.iter().chain(&around.lines).chain(&around.after);
            let fresh: Vec<(u64, String)> =
                (first..).zip(all.cloned()).filter(|(number, _)| seen.insert(*number)).collect();
            if let Some((line, _)) = fresh.first() {
                let lines = fresh.iter().map(|(_, text)| text.clone()).collect();
                found.push(Excerpt { source: source.path.clone(), line: *line, lines });
            }
        }
    }
    // The end of a log tells more than its beginning.
    if !is_small {
        found.sort_by_key(|excerpt| excerpt.line < HEAD_LINES as u64);
    }
    found
}

fn is_text(source: &Source) -> bool {
    let is_packed = |kind: &SourceKind| {
        matches!(
            kind,
            SourceKind::FlightRecorder
                | SourceKind::Ring
                | SourceKind::NodeSnapshot
                | SourceKind::Bundle
                | SourceKind::Unknown
        )
    };
    source.size_bytes > 0 && !source.kinds.is_empty() && !source.kinds.iter().any(is_packed)
}

/// What programs print comes before what tools list.
fn order(source: &Source) -> u8 {
    let has = |kind| source.kinds.contains(&kind);
    match () {
        () if has(SourceKind::TorchLog) || has(SourceKind::PlainText) => 0,
        () if has(SourceKind::KernelLog) || has(SourceKind::Scheduler) || has(SourceKind::NcclTests) => 1,
        () if has(SourceKind::NcclLog) => 2,
        () => 3,
    }
}
