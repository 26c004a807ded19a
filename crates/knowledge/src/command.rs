//! Numbers in the command lines of programs and launchers.

use crate::program::is_launch;

/// Options that give a process its rank.
pub const RANK: &[&str] = &["rank", "global_rank", "process_id", "proc_id", "process_index"];
/// Its rank on its node.
pub const LOCAL_RANK: &[&str] = &["local_rank"];
/// And the number of ranks.
pub const WORLD: &[&str] = &["world_size", "world", "num_processes", "nprocs", "n_procs"];
/// Of these, options that mean something else in programs of one process: the rank of a matrix.
const AMBIGUOUS: &[&str] = &["rank"];

/// The number that an option has in a command line: `--local-rank=3`, `--local_rank 3`.
pub fn option(command: &str, names: &[&str]) -> Option<u32> {
    let mut words = command.split_ascii_whitespace().peekable();
    while let Some(word) = words.next() {
        let Some(word) = word.strip_prefix('-') else { continue };
        let (name, value) = match word.trim_start_matches('-').split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word.trim_start_matches('-'), words.peek().copied()),
        };
        let is_it = names
            .iter()
            .any(|known| known.bytes().eq(name.bytes().map(|b| if b == b'-' { b'_' } else { b })));
        if is_it && let Some(number) = value.and_then(|v| v.trim_matches(['"', '\'']).parse().ok()) {
            return Some(number);
        }
    }
    None
}

/// The rank, and the number of ranks, that a process was started with; None for a launcher, and where the number may be of
/// something else. `is_rank`: it is known to be one of several.
pub fn rank(command: &str, is_rank: bool) -> Option<(u32, Option<u32>)> {
    if is_launch(command) {
        return None;
    }
    let world = option(command, WORLD);
    let clear: Vec<&str> = RANK.iter().copied().filter(|name| !AMBIGUOUS.contains(name)).collect();
    let rank = option(command, &clear).or_else(|| {
        let rank = option(command, AMBIGUOUS)?;
        (is_rank || world.is_some_and(|world| rank < world)).then_some(rank)
    })?;
    Some((rank, world.filter(|world| rank < *world)))
}

#[cfg(test)]
mod tests {
    use super::{LOCAL_RANK, RANK, option, rank};

    #[test]
    fn numbers_of_options() {
        assert_eq!(option("python train.py --local_rank=3 --rank 7", RANK), Some(7));
        assert_eq!(option("python train.py --local-rank 3", LOCAL_RANK), Some(3));
        assert_eq!(option("python train.py --lora-rank 16 --rank=x", RANK), None);
        assert_eq!(option("python train.py rank 5", RANK), None);
    }

    #[test]
    fn ranks_of_processes() {
        let track = "python -u track.py --coordinator localhost:28432 --process-id 1";
        assert_eq!(rank(track, false), Some((1, None)));
        assert_eq!(rank("python nbody.py --rank 1 --world-size 2 --port 9", false), Some((1, Some(2))));
        // A matrix of rank 16, and a rank whose environment says that it is one.
        assert_eq!(rank("python train_lora.py --rank 16", false), None);
        assert_eq!(rank("python train_lora.py --rank 16 --world-size 4", false), None);
        assert_eq!(rank("python train.py --rank 3", true), Some((3, None)));
        assert_eq!(rank("torchrun --nproc-per-node 2 train.py --rank 3 --world-size 4", false), None);
    }
}
