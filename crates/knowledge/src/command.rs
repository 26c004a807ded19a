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

/// Where ranks meet: an option that all of a job have alike. The last one may also be the port of a server of each rank.
pub const MEETING: &[&str] = &[
    "master_port",
    "rdzv_endpoint",
    "coordinator_address",
    "coordinator",
    "init_method",
    "dist_url",
    "dist_port",
    "port",
];

/// The options of a command line, each with what stands behind it.
fn options(command: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut words = command.split_ascii_whitespace().peekable();
    std::iter::from_fn(move || {
        loop {
            let word = words.next()?;
            let Some(word) = word.strip_prefix('-') else { continue };
            let word = word.trim_start_matches('-');
            return Some(
                word.split_once('=').unwrap_or_else(|| (word, words.peek().copied().unwrap_or_default())),
            );
        }
    })
}

/// Whether an option is called so: `--local-rank` is `local_rank`.
fn is_called(option: &str, name: &str) -> bool {
    name.bytes().eq(option.bytes().map(|b| if b == b'-' { b'_' } else { b }))
}

/// The number that an option has in a command line: `--local-rank=3`, `--local_rank 3`.
pub fn option(command: &str, names: &[&str]) -> Option<u32> {
    let mut own = options(command).filter(|(option, _)| names.iter().any(|name| is_called(option, name)));
    own.find_map(|(_, value)| value.trim_matches(['"', '\'']).parse().ok())
}

/// What an option says in a command line: `--coordinator localhost:28432`.
pub fn value<'c>(command: &'c str, name: &str) -> Option<&'c str> {
    let own = options(command).find(|(option, _)| is_called(option, name))?;
    Some(own.1.trim_matches(['"', '\''])).filter(|value| !value.is_empty() && !value.starts_with('-'))
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
    use super::{LOCAL_RANK, RANK, option, rank, value};

    #[test]
    fn numbers_of_options() {
        assert_eq!(option("python train.py --local_rank=3 --rank 7", RANK), Some(7));
        assert_eq!(option("python train.py --local-rank 3", LOCAL_RANK), Some(3));
        assert_eq!(option("python train.py --lora-rank 16 --rank=x", RANK), None);
        assert_eq!(option("python train.py rank 5", RANK), None);
    }

    #[test]
    fn words_of_options() {
        assert_eq!(value("python t.py --master-port 25311 -v", "master_port"), Some("25311"));
        assert_eq!(value("python t.py --dist-url='tcp://n0:9'", "dist_url"), Some("tcp://n0:9"));
        assert_eq!(value("python t.py --port --rank 3", "port"), None);
        assert_eq!(value("python t.py --export 3", "port"), None);
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
