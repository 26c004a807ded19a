//! Programs by the names that kernels, process lists and command lines show.

use crate::place::is_name;
use crate::tables::PROGRAMS;

/// The role of a program in a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// It may be a rank or a helper of one.
    Trains,
    /// It starts ranks.
    Launches,
    /// It uses a GPU but is not part of a job.
    Beside,
}

/// Programs with the same role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Programs {
    /// Their role.
    pub does: Does,
    /// Patterns of the names of processes and threads.
    pub names: &'static [&'static str],
    /// Parts of command lines; `^` matches the beginning.
    pub commands: &'static [&'static str],
    /// Source of the names.
    pub source: &'static str,
}

/// Whether a process or thread with this name may belong to a job: a rank or its helper. Case is ignored.
pub fn trains(name: &str) -> bool {
    is_named(Does::Trains, &name.to_ascii_lowercase())
}

/// Whether a process with this name starts ranks.
pub fn launches(name: &str) -> bool {
    is_named(Does::Launches, name)
}

/// Whether a process with this name uses a GPU without being part of a job.
pub fn is_beside(name: &str) -> bool {
    is_named(Does::Beside, name)
}

/// Whether a command line starts ranks.
pub fn is_launch(command: &str) -> bool {
    let matches = |part: &&str| match part.strip_prefix('^') {
        Some(start) => command.starts_with(start),
        None => command.contains(*part),
    };
    PROGRAMS.iter().filter(|p| p.does == Does::Launches).any(|p| p.commands.iter().any(&matches))
}

fn is_named(does: Does, name: &str) -> bool {
    PROGRAMS.iter().filter(|p| p.does == does).any(|p| p.names.iter().any(|pattern| is_name(pattern, name)))
}

#[cfg(test)]
mod tests {
    use super::{is_beside, is_launch, launches, trains};

    #[test]
    fn names_of_processes() {
        for name in
            ["python3.12", "pt_main_thread", "Pretrain", "all_reduce_perf", "cuda-EvtHandlr", "ray::Actor"]
        {
            assert!(trains(name), "{name}");
        }
        for name in ["mysqld", "systemd", "Xorg", "sshd", ""] {
            assert!(!trains(name), "{name}");
        }
        assert!(launches("slurmstepd") && !launches("slurmd"));
        assert!(is_beside("nvidia-smi") && !is_beside("python"));
    }

    #[test]
    fn command_lines_of_launchers() {
        assert!(is_launch("/usr/bin/python3 -m torch.distributed.run train.py"));
        assert!(is_launch("sh -c 'python train.py'") && !is_launch("python train.py # sh -c"));
        assert!(!is_launch("python train.py"));
    }
}
