//! Programs by the names that kernels, process lists and command lines show.

use crate::place::is_name;
use crate::tables::{PROGRAMS, STARTERS};

/// The role of a program in a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// It may be a rank or a helper of one.
    Trains,
    /// It starts ranks.
    Launches,
    /// It uses a GPU but is not part of a job.
    Beside,
    /// It may be a rank where it is the first process of a container.
    RunsFirst,
}

/// What a program that starts others is, in the places that ask. `data/programs.toml` says more of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramRole {
    /// It starts ranks, and a kernel's log may tell of its end.
    Starts,
    /// It sets RANK and LOCAL_RANK whatever scheduler is above it, and ends all ranks as soon as one fails.
    Elastic,
    /// It takes torchrun's options of the rendezvous.
    Joins,
    /// Scripts start jobs by it.
    Typed,
    /// A file without an ending that an interpreter runs by its path.
    Script,
    /// It only starts another program and waits for it.
    Wraps,
    /// It stands above ranks in a tree of processes and is none.
    Above,
    /// It becomes the parent of orphaned processes.
    Reaps,
    /// It is the first process of a host.
    Boots,
    /// It starts a container.
    Contains,
}

/// Programs that start others, with the same roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Starter {
    /// Files without folders, modules of Python, or ends of paths.
    pub names: &'static [&'static str],
    /// What people call it, if it starts ranks.
    pub launcher: Option<&'static str>,
    /// What it is.
    pub roles: &'static [ProgramRole],
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
    is(ProgramRole::Starts, name)
}

/// Whether a process with this name starts others and is no rank itself: a shell, a launcher.
pub fn is_above(name: &str) -> bool {
    is(ProgramRole::Above, name)
}

/// Whether a process with this name may be a rank where it is the first process of a container.
pub fn runs_first(name: &str) -> bool {
    is_named(Does::RunsFirst, name)
}

/// Whether the program with this name, without its folders, has a role.
pub fn is(role: ProgramRole, name: &str) -> bool {
    with(role).any(|starter| starter.names.contains(&name))
}

/// Names of all programs with a role.
pub fn named(role: ProgramRole) -> impl Iterator<Item = &'static str> {
    with(role).flat_map(|starter| starter.names.iter().copied())
}

/// What people call the launchers with a role; a name may come more than once.
pub fn launchers(role: ProgramRole) -> impl Iterator<Item = &'static str> {
    with(role).filter_map(|starter| starter.launcher)
}

/// What people call the launcher that a word of a command names, by its path or module, if it has a role.
pub fn launcher_as(role: ProgramRole, word: &str) -> Option<&'static str> {
    let file = word.rsplit('/').next().unwrap_or(word);
    with(role).find(|starter| starter.names.contains(&file))?.launcher
}

/// What people call a launcher, by its name and its arguments, the first of which is the program: `torchrun`,
/// `slurmstepd`, `mpirun`.
pub fn launcher(name: &str, arguments: &[String]) -> Option<&'static str> {
    // The program, the script that an interpreter runs, and the module of `-m`, but not their arguments.
    let mut heads: Vec<&str> = vec![name];
    let mut args = arguments.iter().map(String::as_str);
    heads.extend(args.next());
    while let Some(arg) = args.next() {
        if arg == "-m" {
            heads.extend(args.next());
            break;
        }
        if !arg.starts_with('-') {
            heads.push(arg);
            break;
        }
    }
    heads.iter().find_map(|head| {
        let last = head.rsplit('/').next().unwrap_or(head);
        // slurmstepd renames itself: `slurmstepd: [4711.0]`.
        let word = last.split([':', ' ']).next().unwrap_or(last);
        let is_it = |file: &&str| *file == word || (file.contains('/') && head.ends_with(file));
        STARTERS.iter().filter(|starter| starter.names.iter().any(is_it)).find_map(|starter| starter.launcher)
    })
}

fn with(role: ProgramRole) -> impl Iterator<Item = &'static Starter> {
    STARTERS.iter().filter(move |starter| starter.roles.contains(&role))
}

/// Whether a process with this name uses a GPU without being part of a job.
pub fn is_beside(name: &str) -> bool {
    is_named(Does::Beside, name)
}

/// Whether a command line starts ranks.
pub fn is_launch(command: &str) -> bool {
    is_command(Does::Launches, command)
}

/// Whether a command line may be that of a rank or of its launcher: Python is in it, whatever it runs.
pub fn may_train(command: &str) -> bool {
    is_command(Does::Trains, command)
}

fn is_command(does: Does, command: &str) -> bool {
    let matches = |part: &&str| match part.strip_prefix('^') {
        Some(start) => command.starts_with(start),
        None => command.contains(*part),
    };
    PROGRAMS.iter().filter(|p| p.does == does).any(|p| p.commands.iter().any(&matches))
}

fn is_named(does: Does, name: &str) -> bool {
    PROGRAMS.iter().filter(|p| p.does == does).any(|p| p.names.iter().any(|pattern| is_name(pattern, name)))
}

#[cfg(test)]
mod tests {
    use super::{
        ProgramRole, is, is_above, is_beside, is_launch, launcher, launcher_as, launches, may_train,
        runs_first, trains,
    };

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
        assert!(may_train("/usr/bin/python3 train.py") && may_train("torchrun t.py") && !may_train("sshd"));
    }

    #[test]
    fn launchers_by_name_and_arguments() {
        let of = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            launcher(words[0].rsplit('/').next().unwrap_or_default(), &words)
        };
        for (text, expected) in [
            ("/usr/bin/torchrun --nproc-per-node 8 t.py", Some("torchrun")),
            ("python3 -m torch.distributed.launch t.py", Some("torchrun")),
            ("python3 -u /opt/torch/distributed/run.py t.py", Some("torchrun")),
            ("python3 /venv/bin/accelerate launch t.py", Some("accelerate")),
            ("slurmstepd: [4711.0]", Some("slurmstepd")),
            ("mpiexec.hydra -n 8 t", Some("mpirun")),
            ("python3 t.py torchrun", None),
            ("horovodrun -np 8 t", None),
            ("bash run.sh", None),
        ] {
            assert_eq!(of(text), expected, "{text}");
        }
        assert_eq!(launcher("tmux: server", &[]), None);
    }

    #[test]
    fn roles_of_what_starts_others() {
        for name in ["bash", "tmux: server", "torchrun", "slurmstepd"] {
            assert!(is_above(name), "{name}");
        }
        assert!(!is_above("python") && !is_above("train"));
        assert!(is(ProgramRole::Wraps, "srun") && !is(ProgramRole::Wraps, "torchrun"));
        assert_eq!(launcher_as(ProgramRole::Elastic, "torch.distributed.launch"), Some("torchrun"));
        assert_eq!(launcher_as(ProgramRole::Joins, "torch.distributed.launch"), None);
        assert_eq!(launcher_as(ProgramRole::Elastic, "/opt/bin/accelerate"), Some("accelerate"));
        assert!(runs_first("python3.12") && runs_first("torchrun") && !runs_first("systemd"));
    }
}
