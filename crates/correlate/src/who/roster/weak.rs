//! The weakest claims of identity, used where nothing stronger speaks: numbers in command lines, the order in which a
//! launcher started its processes, and names of files.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_knowledge::program::is_launch;
use ringleader_model::{Case, Fact, Host, LocalRank, Observation, Pid, ProcessRow, Rank, SourceId, Who};

/// A claim and where it is from, the stronger first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Basis {
    /// `--rank 3` in its command line.
    Command,
    /// The name of the file that holds its stacks.
    FileName,
    /// It is one of several processes of one launcher: they are started in the order of their local ranks.
    Order,
}

/// Options that give a process its rank, and its local rank.
const RANK: &[&str] = &["rank", "global_rank", "process_id", "proc_id", "process_index"];
const LOCAL_RANK: &[&str] = &["local_rank"];
const WORLD: &[&str] = &["world_size", "world", "num_processes", "nprocs", "n_procs"];
/// Options of launchers.
const PER_NODE: &[&str] = &["nproc_per_node", "num_gpus", "num_processes", "np", "n", "nprocs"];
const NODES: &[&str] = &["nnodes", "num_nodes", "num_machines"];

/// The number that an option has in a command line: `--local-rank=3`, `--local_rank 3`.
fn option(command: &str, names: &[&str]) -> Option<u32> {
    let mut words = command.split_ascii_whitespace().peekable();
    while let Some(word) = words.next() {
        let Some(word) = word.strip_prefix('-') else { continue };
        let (name, value) = match word.trim_start_matches('-').split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word.trim_start_matches('-'), words.peek().copied()),
        };
        let is_it = names.iter().any(|known| known.bytes().eq(name.bytes().map(|b| if b == b'-' { b'_' } else { b })));
        if is_it && let Some(number) = value.and_then(|v| v.trim_matches(['"', '\'']).parse().ok()) {
            return Some(number);
        }
    }
    None
}

/// The rank that a path names: `rank3.log`, `py-spy-rank-3.txt`, `rank.3/stdout`. Not `local_rank3`.
pub(super) fn rank_in(path: &str) -> Option<Rank> {
    let lower = path.to_ascii_lowercase();
    let mut found = None;
    for (at, word) in lower.match_indices("rank") {
        let before = lower.get(..at)?;
        let is_word = !before.ends_with(|c: char| c.is_ascii_alphanumeric());
        let is_local = before.trim_end_matches(['_', '-', '.']).ends_with("local");
        let rest = lower.get(at + word.len()..)?;
        let rest = rest.strip_prefix(['_', '-', '.', '=']).unwrap_or(rest);
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let ends = !rest.get(digits.len()..)?.starts_with(|c: char| c.is_ascii_alphabetic());
        if is_word && !is_local && ends && digits.len() < 6 {
            found = digits.parse().ok().map(Rank).or(found);
        }
    }
    found
}

/// Ranks that the names of text sources give their speakers: a source in which another rank speaks is nobody's.
pub(super) fn speakers(case: &Case) -> BTreeMap<SourceId, Rank> {
    let named = (0u32..).zip(&case.sources).filter_map(|(id, source)| Some((SourceId(id), rank_in(&source.path)?)));
    let mut speakers: BTreeMap<SourceId, Rank> = named.collect();
    if speakers.is_empty() {
        return speakers;
    }
    for observation in &case.observations {
        let is_other = |own: &Rank| observation.who.rank.is_some_and(|rank| rank != *own);
        if speakers.get(&observation.cite.source).is_some_and(is_other)
            && !matches!(&observation.fact, Fact::Torch(ringleader_model::TorchEvent::ChildFailure { .. }))
        {
            speakers.remove(&observation.cite.source);
        }
    }
    speakers
}

/// World sizes that command lines give.
pub(super) fn world_sizes(table: &[ProcessRow]) -> impl Iterator<Item = u32> + '_ {
    table.iter().filter_map(|row| {
        if is_launch(&row.command) {
            let per_node = option(&row.command, PER_NODE)?;
            Some(per_node.saturating_mul(option(&row.command, NODES).unwrap_or(1)))
        } else {
            option(&row.command, RANK)?;
            option(&row.command, WORLD)
        }
    })
}

/// All weak claims of a case. `is_one_node`: a local rank is a rank.
pub(super) fn claims(case: &Case, is_one_node: bool) -> Vec<(Basis, Who)> {
    let mut found = Vec::new();
    for observation in &case.observations {
        match &observation.fact {
            Fact::Processes(table) => of_table(&table.rows, observation, is_one_node, &mut found),
            Fact::Stacks(stacks) => {
                let Some(pid) = stacks.pid else { continue };
                let who = |rank: Option<Rank>, local: Option<LocalRank>| Who {
                    rank,
                    local_rank: local,
                    pid: Some(pid),
                    host: observation.who.host.clone(),
                    ..Who::default()
                };
                if let Some(command) = &stacks.command {
                    found.extend(of_command(command, is_one_node).map(|(r, l)| (Basis::Command, who(r, l))));
                }
                let path = case.sources.get(observation.cite.source.0 as usize).map_or("", |s| &s.path);
                found.extend(rank_in(path).map(|rank| (Basis::FileName, who(Some(rank), None))));
            }
            _ => {}
        }
    }
    found.sort_by(|a, b| (a.0, key(&a.1)).cmp(&(b.0, key(&b.1))));
    found.dedup();
    found
}

fn key(who: &Who) -> (Option<Rank>, Option<&Host>, Option<Pid>) {
    (who.rank, who.host.as_ref(), who.pid)
}

fn of_command(command: &str, is_one_node: bool) -> Option<(Option<Rank>, Option<LocalRank>)> {
    let local = option(command, LOCAL_RANK).map(LocalRank);
    let rank = option(command, RANK).map(Rank).or(local.filter(|_| is_one_node).map(|l| Rank(l.0)));
    (rank.is_some() || local.is_some()).then_some((rank, local))
}

fn of_table(rows: &[ProcessRow], observation: &Observation, is_one_node: bool, found: &mut Vec<(Basis, Who)>) {
    let by_pid: BTreeMap<Pid, &ProcessRow> = rows.iter().filter_map(|r| Some((r.pid?, r))).collect();
    // A child with its parent's command line is a helper of it: a worker of a data loader.
    let is_helper = |row: &ProcessRow| {
        row.ppid.and_then(|parent| by_pid.get(&parent)).is_some_and(|parent| parent.command == row.command)
    };
    let mut siblings: BTreeMap<Pid, Vec<&ProcessRow>> = BTreeMap::new();
    for row in rows.iter().filter(|r| !is_helper(r) && !is_launch(&r.command)) {
        let who = |rank, local_rank| Who {
            rank,
            local_rank,
            pid: row.pid,
            host: observation.who.host.clone(),
            ..Who::default()
        };
        if let Some((rank, local)) = of_command(&row.command, is_one_node) {
            found.push((Basis::Command, who(rank, local)));
        } else if let Some(parent) = row.ppid.filter(|p| by_pid.get(p).is_some_and(|p| is_launch(&p.command))) {
            siblings.entry(parent).or_default().push(row);
        }
    }
    for (parent, mut ranks) in siblings {
        let command = by_pid.get(&parent).map_or("", |p| &*p.command);
        let commands: BTreeSet<&str> = ranks.iter().map(|r| &*r.command).collect();
        let n_wanted = option(command, PER_NODE);
        // One that has ended is missing from the list, and all after it would be counted wrong.
        if commands.len() != 1 || n_wanted.is_some_and(|n| n as usize != ranks.len()) || !is_one_node {
            continue;
        }
        ranks.sort_by_key(|r| r.pid);
        for (local, row) in (0u32..).zip(ranks) {
            let who = Who {
                rank: Some(Rank(local)),
                local_rank: Some(LocalRank(local)),
                pid: row.pid,
                host: observation.who.host.clone(),
                ..Who::default()
            };
            found.push((Basis::Order, who));
        }
    }
}

#[cfg(test)]
mod tests {
    use ringleader_model::Rank;

    use super::{LOCAL_RANK, RANK, option, rank_in};

    #[test]
    fn numbers_of_options() {
        assert_eq!(option("python train.py --local_rank=3 --rank 7", RANK), Some(7));
        assert_eq!(option("python train.py --local-rank 3", LOCAL_RANK), Some(3));
        assert_eq!(option("python train.py --lora-rank 16 --rank=x", RANK), None);
        assert_eq!(option("python train.py rank 5", RANK), None);
    }

    #[test]
    fn ranks_in_names() {
        for path in ["rank3.log", "logs/py-spy-rank-3.txt", "1/rank.3/stdout", "Rank_3.out", "out.rank=3"] {
            assert_eq!(rank_in(path), Some(Rank(3)), "{path}");
        }
        for path in ["local_rank3.log", "frank3.log", "ranking.txt", "rank.log", "node3.log", "rank3b"] {
            assert_eq!(rank_in(path), None, "{path}");
        }
    }
}
