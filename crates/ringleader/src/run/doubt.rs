//! Whether the verdict on a silent job explains the silence. A program may print an exception, handle it, go on, and be
//! busy later: in an evaluation, or while it saves.

use std::path::{Path, PathBuf};

use ringleader_report::json::Report;
use ringleader_run::judgement::{self, Judgement};
use ringleader_run::output::{Position, Reader, STREAMS};

/// Longest text that is looked up in the output, bytes.
const MAX_TEXT: usize = 300;
/// Amount of output that is searched for it, bytes.
const MAX_SEARCHED: usize = 64 << 20;

/// The output of a silent attempt.
#[derive(Clone, Debug)]
pub(crate) struct Silence {
    /// Its folder.
    pub(crate) folder: PathBuf,
    /// Up to where the output was older than the last but one step; None before the second step. Ranks may be one step
    /// apart, so a message between the last two steps may still be the reason why no third one follows.
    pub(crate) before: Option<[Position; 2]>,
}

/// Why the verdict does not explain the silence; None if it does, or if nothing speaks against it.
pub(crate) fn of(report: &Report, judgement: &Judgement, silence: &Silence) -> Option<String> {
    let texts = printed(judgement)?;
    let is_gone = is_gone(report);
    if judgement.cause.known().is_some_and(judgement::ends_process) && is_gone == Some(false) {
        return Some("the process that printed it continues to run".to_owned());
    }
    let is_past = |text: &str| silence.before.is_some_and(|before| is_past(&silence.folder, before, text));
    if is_gone != Some(true) && texts.iter().all(|text| is_past(text)) {
        return Some("it was printed before later steps".to_owned());
    }
    None
}

/// The lines of the job's output that the verdict is based on; None if other evidence shows it, too.
fn printed(judgement: &Judgement) -> Option<Vec<&str>> {
    let is_output = |source: &str| {
        let name = source.rsplit('/').next().unwrap_or_default();
        name.strip_suffix(".log").is_some_and(|stem| STREAMS.iter().any(|stream| stem.starts_with(stream)))
    };
    let evidence = &judgement.evidence;
    if evidence.is_empty() || !evidence.iter().all(|cited| is_output(&cited.source)) {
        return None;
    }
    let texts =
        evidence.iter().filter_map(|cited| cited.text.lines().map(str::trim).find(|line| !line.is_empty()));
    Some(texts.map(head).collect())
}

fn head(text: &str) -> &str {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

/// Whether a blamed process has ended. None if no process was seen, or if the verdict names no rank and some have ended: one of
/// them may be to blame.
fn is_gone(report: &Report) -> Option<bool> {
    let blamed: Vec<u32> = report.verdict.culprits.iter().filter_map(|culprit| culprit.rank).collect();
    let rows: Vec<_> =
        report.ranks.iter().filter(|row| blamed.is_empty() || blamed.contains(&row.rank)).collect();
    let is_of_dead = |state: &str| matches!(state, "missing" | "Z" | "X" | "gone" | "ended");
    let n_gone = rows.iter().filter(|row| row.pid.is_none() || is_of_dead(&row.state)).count();
    let is_mixed = blamed.is_empty() && n_gone > 0 && n_gone < rows.len();
    (!rows.is_empty() && !is_mixed).then_some(n_gone > 0)
}

/// Whether the output has this text before the positions, and not again after them.
fn is_past(folder: &Path, before: [Position; 2], text: &str) -> bool {
    let places = STREAMS.iter().zip(before);
    let is_before =
        places.clone().any(|(stream, at)| has(folder, stream, Position::default(), Some(at), text));
    is_before && !places.into_iter().any(|(stream, at)| has(folder, stream, at, None, text))
}

/// Whether a stream has this text between two positions.
fn has(folder: &Path, stream: &'static str, from: Position, until: Option<Position>, text: &str) -> bool {
    let mut reader = Reader::new(folder, stream, from);
    let (mut buffer, mut rest) = (vec![0; 64 << 10], Vec::new());
    let mut n_searched = 0;
    while n_searched < MAX_SEARCHED {
        let at = reader.position();
        let room = match until {
            Some(until) if at.number.max(1) > until.number => 0,
            Some(until) if at.number.max(1) == until.number => until.offset.saturating_sub(at.offset),
            _ => u64::MAX,
        };
        let length = usize::try_from(room).unwrap_or(usize::MAX).min(buffer.len());
        let Ok(n @ 1..) = reader.read(buffer.get_mut(..length).unwrap_or_default()) else { return false };
        // It may have gone on to a later file.
        if until.is_some_and(|until| reader.position() > until) {
            return false;
        }
        n_searched += n;
        rest.extend_from_slice(buffer.get(..n).unwrap_or_default());
        if String::from_utf8_lossy(&rest).contains(text) {
            return true;
        }
        // A text may be cut by the end of a part.
        rest.drain(..rest.len().saturating_sub(MAX_TEXT));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_past_if_it_is_not_printed_again() {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).unwrap_or_else(|error| panic!("{error}"));
        };
        write("stdout-0001.log", "step 1\nstep 2\nstep 3\n");
        let error = "OSError: no such host";
        write("stderr-0001.log", &format!("{}{error}\n", "x\n".repeat(50_000)));
        let at = |offset| Position { number: 1, offset };
        let is_past = |err: u64| is_past(folder.path(), [at(7), at(err)], error);
        assert!(is_past(100_000 + error.len() as u64 + 1));
        assert!(!is_past(100_000) && !is_past(100_005), "printed after the step");
        // In the next file, again.
        write("stderr-0002.log", &format!("more\n{error}\n"));
        assert!(!is_past(100_000 + error.len() as u64 + 1));
        assert!(!super::is_past(folder.path(), [at(7), at(9)], "never printed"));
    }
}
