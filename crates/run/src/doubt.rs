//! Whether the verdict on a silent job explains the silence. A program may print an exception, handle it, go on, and be
//! busy later: in an evaluation, or while it saves.

use std::path::{Path, PathBuf};

use ringleader_model::{Picture, Rank, RankLook, Standing, Verdict};

use crate::judgement::{self, Judgement};
use crate::output::{Position, STREAMS, StreamReader};

/// Longest text that is looked up in the output, bytes.
const MAX_TEXT: usize = 300;
/// Amount of output that is searched for it, bytes.
const MAX_SEARCHED: usize = 64 << 20;

/// The output of a silent attempt.
#[derive(Clone, Debug)]
pub struct Silence {
    /// Its folder.
    pub folder: PathBuf,
    /// Up to where the output was older than the last but one step; None before the second step. Ranks may be one step
    /// apart, so a message between the last two steps may still be the reason why no third one follows.
    pub before: Option<[Position; 2]>,
}

/// Why the verdict does not explain the silence; None if it does, or if nothing speaks against it.
pub fn of(verdict: &Verdict, picture: &Picture, judgement: &Judgement, silence: &Silence) -> Option<String> {
    let texts = printed(judgement)?;
    let is_gone = is_gone(verdict, picture);
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
fn is_gone(verdict: &Verdict, picture: &Picture) -> Option<bool> {
    let blamed: Vec<Rank> = verdict.culprits.iter().filter_map(|culprit| culprit.rank).collect();
    let mut rows = seen(verdict, picture);
    rows.retain(|(rank, _)| blamed.is_empty() || blamed.contains(rank));
    let n_gone = rows.iter().filter(|(_, has_ended)| *has_ended).count();
    let is_mixed = blamed.is_empty() && n_gone > 0 && n_gone < rows.len();
    (!rows.is_empty() && !is_mixed).then_some(n_gone > 0)
}

/// The ranks that were seen, and whether their process has ended or is not there: of a job that runs from its processes, else from
/// its records.
fn seen(verdict: &Verdict, picture: &Picture) -> Vec<(Rank, bool)> {
    if !verdict.ranks.is_empty() {
        let has_ended = |look: &RankLook| look.pid.is_none() || look.state.has_ended();
        return verdict.ranks.iter().map(|look| (Rank(look.rank), has_ended(look))).collect();
    }
    let has_process = |rank: Rank| {
        picture.members.iter().rev().find(|member| member.rank == rank).is_some_and(|m| m.pid.is_some())
    };
    let of = |standing: &Standing| {
        let has_ended = standing.state.has_ended();
        standing
            .ranks
            .ranks()
            .iter()
            .map(|rank| (*rank, has_ended || !has_process(*rank)))
            .collect::<Vec<_>>()
    };
    picture.standings.iter().flat_map(of).collect()
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
    let mut reader = StreamReader::new(folder, stream, from);
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
    use ringleader_model::{
        Category, Cause, Confidence, Culprit, LookState, PicturedMember, Pid, RankSet, StandingState,
    };

    use super::*;

    #[test]
    fn a_blamed_process_is_gone_if_none_of_it_is_left() {
        let verdict = |blamed: &[u32], looks: &[(u32, LookState)]| Verdict {
            cause: Cause::ApplicationException,
            category: Category::Crash,
            confidence: Confidence::High,
            summary: String::new(),
            culprits: blamed.iter().map(|r| Culprit { rank: Some(Rank(*r)), ..Culprit::default() }).collect(),
            victims: RankSet::default(),
            actions: Vec::new(),
            findings: Vec::new(),
            needs: Vec::new(),
            ranks: looks
                .iter()
                .map(|(rank, state)| RankLook {
                    rank: *rank,
                    pid: (*state != LookState::Missing).then_some(7),
                    state: state.clone(),
                    ..RankLook::default()
                })
                .collect(),
        };
        let none = Picture::default();
        let letter = |letter: &str| LookState::Letter(letter.into());
        let looks = [(0, letter("S")), (1, LookState::Missing), (2, letter("Z"))];
        for (blamed, gone) in
            [(&[0][..], Some(false)), (&[1], Some(true)), (&[2], Some(true)), (&[], None), (&[9], None)]
        {
            assert_eq!(is_gone(&verdict(blamed, &looks), &none), gone, "{blamed:?}");
        }
        // Of a job that has ended its records tell.
        let standing = |rank: u32, state| Standing {
            ranks: std::iter::once(Rank(rank)).collect(),
            state,
            fate: String::new(),
            place: None,
            doing: String::new(),
        };
        let member = |rank: u32| PicturedMember { rank: Rank(rank), host: None, pid: Some(Pid(70 + rank)) };
        let picture = Picture {
            standings: vec![
                standing(0, StandingState::Waits),
                standing(1, StandingState::Gone),
                standing(2, StandingState::Ended),
            ],
            members: (0..3).map(member).collect(),
            ..Picture::default()
        };
        for (blamed, gone) in [(0, Some(false)), (1, Some(true)), (2, Some(true))] {
            assert_eq!(is_gone(&verdict(&[blamed], &[]), &picture), gone, "{blamed}");
        }
        assert_eq!(is_gone(&verdict(&[], &[]), &none), None);
    }

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
