//! Whose output a file holds, by its name: the weakest claim of identity, for lines that say nothing of their speaker.
//!
//! `rank3.log`, `proc0.log` beside `proc1.log`. A file in which several processes or a launcher speak is nobody's.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::{Case, Fact, Observation, Rank, Source, SourceId, TorchEvent, rank_in_path};

/// Files of more ranks are no list of ranks.
const MAX_RANKS: u32 = 1 << 20;

/// Gives lines without a speaker the rank that the name of their file gives.
pub(crate) fn name_speakers(case: &mut Case) {
    let by_name = by_rank(&case.sources);
    let families = by_number(&case.sources);
    if by_name.is_empty() && families.is_empty() {
        return;
    }
    let mut claimed: BTreeMap<SourceId, Rank> = by_name.clone();
    claimed.extend(families.iter().flatten().copied());
    let mut denied: BTreeSet<SourceId> = BTreeSet::new();
    for observation in &case.observations {
        let source = observation.cite.source;
        if claimed.get(&source).is_some_and(|rank| has_others(observation, *rank)) {
            denied.insert(source);
        }
    }
    let mut speakers: BTreeMap<SourceId, Rank> =
        by_name.into_iter().filter(|(source, _)| !denied.contains(source)).collect();
    // Where one number is no rank, none of them is: a file may be missing, and all behind it counted wrong.
    let is_sound = |family: &&Family| !family.iter().any(|(source, _)| denied.contains(source));
    speakers.extend(families.iter().filter(is_sound).flatten().copied());
    for observation in &mut case.observations {
        let is_line = matches!(observation.fact, Fact::Torch(_) | Fact::Said(_) | Fact::Progress(_));
        // A timeline knows its process, and often no rank.
        let is_unranked = matches!(observation.fact, Fact::Timeline(_)) && observation.who.rank.is_none();
        if is_line && observation.who.is_nobody() || is_unranked {
            observation.who.rank = speakers.get(&observation.cite.source).copied();
        }
    }
}

/// Files that differ by a number alone.
type Family = Vec<(SourceId, Rank)>;

/// Somebody else speaks in the file, or a launcher does.
fn has_others(observation: &Observation, own: Rank) -> bool {
    let is_other = observation.who.rank.is_some_and(|rank| rank != own);
    match &observation.fact {
        Fact::Nccl(log) => {
            let largest = log.comms.iter().max_by_key(|c| c.n_ranks);
            log.processes.len() > 1
                || log.processes.iter().any(|p| p.who.rank.is_some_and(|r| r != own))
                || largest.is_some_and(|c| c.rank.0 != own.0)
        }
        Fact::Torch(
            TorchEvent::ChildFailure { .. }
            | TorchEvent::ChildExit { .. }
            | TorchEvent::LauncherFailed { .. }
            | TorchEvent::ClosingSignal { .. }
            | TorchEvent::LauncherKilled { .. }
            | TorchEvent::Started,
        ) => true,
        Fact::Torch(_) | Fact::Said(_) | Fact::Progress(_) => is_other,
        _ => false,
    }
}

fn by_rank(sources: &[Source]) -> BTreeMap<SourceId, Rank> {
    let named = (0u32..).zip(sources).filter_map(|(id, s)| Some((SourceId(id), rank_in_path(&s.path)?)));
    named.collect()
}

/// Files of one folder that differ by a number alone, which counts from 0 without a gap.
fn by_number(sources: &[Source]) -> Vec<Family> {
    let mut families: BTreeMap<String, BTreeMap<u32, SourceId>> = BTreeMap::new();
    let mut torn: BTreeSet<String> = BTreeSet::new();
    for (id, source) in (0u32..).zip(sources) {
        let Some((stem, number)) = number_of(&source.path) else { continue };
        if families.entry(stem.clone()).or_default().insert(number, SourceId(id)).is_some() {
            torn.insert(stem);
        }
    }
    let mut found = Vec::new();
    for (stem, members) in families {
        let counts_from_0 = members.keys().copied().eq(0..members.len() as u32);
        if members.len() > 1 && counts_from_0 && !torn.contains(&stem) {
            found.push(members.into_iter().map(|(number, id)| (id, Rank(number))).collect());
        }
    }
    found
}

/// Words before a number that count something else than ranks.
const OTHER_COUNTS: [&str; 12] =
    ["node", "host", "attempt", "restart", "part", "run", "step", "epoch", "day", "version", "v", "page"];

/// How names of files end that hold the output of a process.
const OUTPUTS: [&str; 7] = ["", ".log", ".out", ".err", ".txt", ".stdout", ".stderr"];

/// A path with a sign in place of the last number of its name, and that number.
fn number_of(path: &str) -> Option<(String, u32)> {
    let name_at = path.rfind(['/', '!']).map_or(0, |at| at + 1);
    let (folder, name) = path.split_at(name_at);
    let end = name.rfind(|c: char| c.is_ascii_digit())? + 1;
    let (head, tail) = name.split_at(end);
    if !OUTPUTS.contains(&tail) {
        return None;
    }
    let start = head.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    let (before, digits) = head.split_at(start);
    let word: String = before
        .trim_end_matches(['_', '-', '.'])
        .chars()
        .rev()
        .take_while(char::is_ascii_alphabetic)
        .collect();
    let word: String = word.chars().rev().collect::<String>().to_ascii_lowercase();
    if OTHER_COUNTS.contains(&word.as_str())
        || digits.len() > 5
        || digits.len() > 1 && digits.starts_with('0')
    {
        return None;
    }
    let number: u32 = digits.parse().ok().filter(|n| *n < MAX_RANKS)?;
    Some((format!("{folder}{before}#{tail}"), number))
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Source, SourceId};

    use super::by_number;

    #[test]
    fn files_that_count() {
        let ranks = |paths: &[&str]| -> Vec<(u32, u32)> {
            let source = |path: &&str| Source { path: (*path).to_owned(), kinds: Vec::new(), size_bytes: 1 };
            let sources: Vec<Source> = paths.iter().map(source).collect();
            by_number(&sources).into_iter().flatten().map(|(SourceId(id), rank)| (id, rank.0)).collect()
        };
        assert_eq!(ranks(&["a/proc1.log", "a/proc0.log", "a/notes.txt"]), [(1, 0), (0, 1)]);
        assert_eq!(ranks(&["log.0", "log.1", "log.3"]), []);
        assert_eq!(ranks(&["node0.log", "node1.log"]), []);
        assert_eq!(ranks(&["slurm-4107.out"]), []);
    }
}
