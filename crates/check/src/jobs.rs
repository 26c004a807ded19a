//! Which processes of a node are ranks, which of them belong together, and which are left over from an earlier run.
//!
//! Environments are inherited: data-loader workers, compilers, trackers and shells all carry the variables of their
//! rank. Only one process is the rank.
//!
//! `ringleader_watch::membership` asks the same of a job that runs, and answers something else: it has no snapshot but rings and
//! connections, takes each process that writes a ring, and calls two groups one job while nothing contradicts that, so that no rank is
//! missed. Here each rank is one process, and ranks are one job only if their meeting point is the same, so that no two jobs are
//! compared and no process is called an orphan that is none. What both know of programs is in `ringleader_knowledge::program`.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_knowledge::program::{self, ProgramRole};
use ringleader_model::address::is_loopback_name;
use ringleader_node::{Jobs, Node, Process};

/// The ranks of one launcher.
pub(crate) struct LaunchedRanks<'a> {
    /// The nearest launcher above the ranks; None if they were started by hand.
    pub(crate) launcher: Option<&'a Process>,
    /// Ranks in ascending order.
    pub(crate) ranks: Vec<&'a Process>,
}

/// What people call it, if it is a launcher: `torchrun`, `slurmstepd`, `mpirun`.
pub(crate) fn launcher(process: &Process) -> Option<&'static str> {
    program::launcher(&process.command, &process.arguments)
}

/// Whether it becomes the parent of orphaned processes: init, or the first process of a container that is not a
/// launcher.
pub(crate) fn is_reaper(process: &Process) -> bool {
    let is_first = process.pid == 1 || process.inner_pid == Some(1);
    let may_launch = launcher(process).is_some() || process.command.starts_with("python");
    program::is(ProgramRole::Reaps, &process.command) || (is_first && !may_launch)
}

/// Whether it is the first process of a container, or a program that is the first process only in containers.
fn is_container_init(process: &Process) -> bool {
    let is_of_host = program::is(ProgramRole::Boots, &process.command);
    process.inner_pid == Some(1)
        || (process.pid == 1 && !is_of_host)
        || (program::is(ProgramRole::Reaps, &process.command) && !is_of_host)
}

/// The processes that are ranks, one per rank, ordered by rank and pid.
pub fn ranks(jobs: &Jobs) -> Vec<&Process> {
    let tree = ProcessTree::new(jobs);
    let mut groups: BTreeMap<u32, Vec<(u32, &Process)>> = BTreeMap::new();
    for process in jobs.processes.iter().filter(|process| tree.may_be_rank(process)) {
        let (mut root, mut depth) = (process, 0);
        while let Some(parent) = tree.parent(root)
            && tree.may_be_rank(parent)
            && parent.rank() == process.rank()
        {
            (root, depth) = (parent, depth + 1);
        }
        groups.entry(root.pid).or_default().push((depth, process));
    }
    let mut ranks: Vec<&Process> = groups
        .into_values()
        .filter_map(|group| {
            // Shells and the like only start the rank; of the rest, prefer one that uses a GPU, then the topmost.
            let real =
                group.into_iter().filter(|(_, process)| !program::is(ProgramRole::Wraps, &process.command));
            let rank = real
                .min_by_key(|(depth, process)| (!process.uses_gpu, *depth, process.started_ns, process.pid));
            rank.map(|(_, process)| process)
        })
        .collect();
    ranks.sort_by_key(|process| (process.rank(), process.pid));
    ranks
}

/// The ranks, grouped by launcher.
pub(crate) fn by_launcher(jobs: &Jobs) -> Vec<LaunchedRanks<'_>> {
    let tree = ProcessTree::new(jobs);
    let mut by: BTreeMap<Option<u32>, LaunchedRanks<'_>> = BTreeMap::new();
    for rank in ranks(jobs) {
        let launcher = tree.launcher(rank);
        let job = by
            .entry(launcher.map(|launcher| launcher.pid))
            .or_insert_with(|| LaunchedRanks { launcher, ranks: Vec::new() });
        job.ranks.push(rank);
    }
    by.into_values().collect()
}

/// Pids of processes that carry a rank but belong to no running job: left by an earlier run, or detached by a rank of
/// this one.
pub(crate) fn astray(jobs: &Jobs) -> BTreeSet<u32> {
    inherited(jobs, &ProcessTree::new(jobs)).into_keys().collect()
}

/// The ranks, grouped by their meeting point: those must agree, regardless of the launcher.
pub(crate) fn by_meeting(jobs: &Jobs) -> Vec<Vec<&Process>> {
    let gone = astray(jobs);
    let mut by: BTreeMap<_, Vec<&Process>> = BTreeMap::new();
    for rank in ranks(jobs).into_iter().filter(|rank| !gone.contains(&rank.pid)) {
        by.entry(identity(rank)).or_default().push(rank);
    }
    by.into_values().collect()
}

/// What distinguishes one job from another.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Identity<'a> {
    /// Step of the scheduler, rendezvous, run.
    variables: [Option<&'a str>; 5],
    /// Jobs of two users never share a rendezvous, even on the same port.
    uid: u32,
    /// The network namespace, if the master is localhost: each container has its own.
    network: Option<u64>,
}

/// Whether its master is called localhost: all ranks of the job are on this node.
pub(crate) fn meets_on_loopback(process: &Process) -> bool {
    process.variable("MASTER_ADDR").map(str::trim).is_some_and(is_loopback_name)
}

fn identity(process: &Process) -> Identity<'_> {
    let variable = |name: &str| process.variable(name);
    let master = variable("MASTER_ADDR").map(str::trim);
    let is_loopback = meets_on_loopback(process);
    Identity {
        variables: [
            variable("SLURM_JOB_ID").or_else(|| variable("SLURM_JOBID")),
            variable("SLURM_STEP_ID"),
            master,
            variable("MASTER_PORT"),
            variable("TORCHELASTIC_RUN_ID"),
        ],
        uid: process.uid,
        network: process.net_namespace.filter(|_| is_loopback),
    }
}

/// A process left over from an earlier run.
#[derive(Clone, Debug, PartialEq)]
pub struct Orphan {
    /// Pid.
    pub pid: u32,
    /// Rank it had.
    pub rank: Option<u32>,
    /// Owner.
    pub uid: u32,
    /// Start, nanoseconds since 1970; with the pid it identifies a process uniquely.
    pub started_ns: i64,
    /// Name of its program.
    pub command: String,
    /// GPUs by PCI address, or by minor number of the device file.
    pub gpus: Vec<String>,
    /// Device memory that it holds, MiB, if the driver reports it.
    pub gpu_memory_mib: Option<u64>,
    /// Why it is considered an orphan.
    pub why: String,
}

/// Processes left over from earlier runs, by pid; children are listed as well as their parents. This ends no process.
pub fn orphans(node: &Node) -> Vec<Orphan> {
    let Some(jobs) = node.jobs.get() else { return Vec::new() };
    let mut orphans = orphans_of(jobs);
    if let Some(gpus) = node.gpus.get() {
        for orphan in &mut orphans {
            let held = gpus.gpus.iter().flat_map(|gpu| {
                gpu.processes
                    .iter()
                    .filter(|user| user.pid == orphan.pid)
                    .map(move |user| (gpu.pci.clone(), user))
            });
            let held: Vec<_> = held.collect();
            if !held.is_empty() {
                orphan.gpu_memory_mib = Some(held.iter().filter_map(|(_, user)| user.memory_mib).sum());
                orphan.gpus = held.into_iter().map(|(pci, _)| pci).collect();
            }
        }
    }
    orphans
}

/// Processes whose launcher is gone, and the reason for that conclusion.
fn inherited(jobs: &Jobs, tree: &ProcessTree<'_>) -> BTreeMap<u32, String> {
    let living = jobs.processes.iter().filter(|process| process.state != "Z" && launcher(process).is_none());
    living.filter_map(|process| Some((process.pid, tree.why_left_behind(process)?))).collect()
}

fn orphans_of(jobs: &Jobs) -> Vec<Orphan> {
    let tree = ProcessTree::new(jobs);
    let mut found = inherited(jobs, &tree);
    // A helper that a rank has detached (a profiler's daemon) carries the marks of a live job.
    let live: Vec<(&Process, &Process)> = jobs
        .processes
        .iter()
        .filter(|p| !found.contains_key(&p.pid) && tree.may_be_rank(p))
        .filter_map(|rank| Some((rank, tree.launcher(rank)?)))
        .collect();
    let restarts = |process: &Process| process.number("TORCHELASTIC_RESTART_COUNT");
    found.retain(|pid, _| {
        let Some(process) = tree.get(*pid) else { return false };
        let same: Vec<_> = live.iter().filter(|(rank, _)| identity(rank) == identity(process)).collect();
        // The same command was started again, or this belongs to an earlier attempt than the running one.
        let is_older = same.iter().all(|(_, launcher)| process.started_ns < launcher.started_ns);
        is_older || same.iter().any(|(rank, _)| restarts(rank) > restarts(process))
    });
    let orphan = |(pid, why): (u32, String)| {
        let process = tree.get(pid)?;
        let gpus = match process.gpus.as_slice() {
            [] => process.gpu_minors.iter().map(|minor| format!("/dev/nvidia{minor}")).collect(),
            gpus => gpus.to_vec(),
        };
        Some(Orphan {
            pid,
            rank: process.rank(),
            uid: process.uid,
            started_ns: process.started_ns,
            command: process.command.clone(),
            gpus,
            gpu_memory_mib: None,
            why,
        })
    };
    found.into_iter().filter_map(orphan).collect()
}

/// `pid 4711 (rank 2)`.
pub(crate) fn name(process: &Process) -> String {
    match process.rank() {
        Some(rank) => format!("pid {} (rank {rank})", process.pid),
        None => format!("pid {} ({})", process.pid, process.command),
    }
}

/// Processes by pid.
pub(crate) struct ProcessTree<'a>(BTreeMap<u32, &'a Process>);

impl<'a> ProcessTree<'a> {
    pub(crate) fn new(jobs: &'a Jobs) -> Self {
        Self(jobs.processes.iter().map(|process| (process.pid, process)).collect())
    }

    pub(crate) fn get(&self, pid: u32) -> Option<&'a Process> {
        self.0.get(&pid).copied()
    }

    fn parent(&self, process: &Process) -> Option<&'a Process> {
        self.get(process.ppid).filter(|parent| parent.pid != process.pid)
    }

    /// The processes above it, nearest first.
    pub(crate) fn above(&self, process: &'a Process) -> Vec<&'a Process> {
        let mut above: Vec<&Process> = Vec::new();
        let mut at = process;
        while let Some(parent) = self.parent(at)
            && above.iter().all(|known| known.pid != parent.pid)
        {
            above.push(parent);
            at = parent;
        }
        above
    }

    /// The nearest launcher above it.
    pub(crate) fn launcher(&self, process: &'a Process) -> Option<&'a Process> {
        self.above(process).into_iter().find(|parent| launcher(parent).is_some())
    }

    fn may_be_rank(&self, process: &'a Process) -> bool {
        if process.rank().is_none() || launcher(process).is_some() || process.state == "Z" {
            return false;
        }
        // Below an elastic launcher the scheduler's rank is that of the launcher.
        let above = self.launcher(process).and_then(launcher);
        !above.is_some_and(|launcher| program::is(ProgramRole::Elastic, launcher))
            || (process.number("RANK").is_some() && process.number("LOCAL_RANK").is_some())
    }

    /// Why a process looks left over: it carries variables that only a launcher sets, and no launcher is above it, only
    /// a process that inherits orphans.
    fn why_left_behind(&self, process: &'a Process) -> Option<String> {
        let above = self.above(process);
        // The first process of a container has no parent to lose.
        if process.pid == 1 || process.inner_pid == Some(1) {
            return None;
        }
        let has = |names: &[&str]| names.iter().all(|name| process.variable(name).is_some());
        let by_variables = process.rank().is_some() && process.local_rank().is_some() && process.uses_gpu;
        // Variables that a script sets by hand are weaker evidence than those of a launcher.
        let (mark, is_sure) = if has(&["TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"]) {
            ("torchrun", true)
        } else if has(&["OMPI_COMM_WORLD_RANK"]) {
            ("mpirun", true)
        } else if has(&["SLURM_STEP_ID", "SLURM_PROCID"]) {
            ("slurmstepd", true)
        } else if by_variables {
            ("its launcher", false)
        } else {
            return None;
        };
        if above.iter().any(|parent| launcher(parent).is_some()) {
            return None;
        }
        // The topmost process with the same marks; the one above it has inherited it.
        let marked = |p: &Process| identity(p) == identity(process) && p.rank().is_some();
        let heir = above.iter().find(|parent| !marked(parent));
        match heir {
            // A container's init starts ranks as often as it inherits them.
            Some(heir) if is_reaper(heir) && (is_sure || !is_container_init(heir)) => Some(format!(
                "{mark} that started it is gone, and pid {} ({}) has inherited it",
                heir.pid, heir.command
            )),
            // Its parent is alive but no known launcher, so a program that starts ranks by itself; or its parent was
            // not seen.
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staging_jobs::{NodeStage, process};

    fn ids(found: &[&Process]) -> Vec<(u32, Option<u32>)> {
        found.iter().map(|process| (process.pid, process.rank())).collect()
    }

    #[test]
    fn one_process_is_the_rank() {
        // Slurm starts a script, the script starts torchrun, torchrun the ranks, a rank its workers.
        let slurm = [("SLURM_PROCID", "0"), ("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "0")];
        let with =
            |more: &[(&'static str, &'static str)]| slurm.iter().chain(more).copied().collect::<Vec<_>>();
        let stage = NodeStage::new()
            .process(process(50, 1, "slurmstepd", &[]))
            .process(process(60, 50, "bash", &slurm))
            .process(process(70, 60, "torchrun", &slurm))
            .process(process(71, 70, "python3", &slurm))
            .process(process(80, 70, "python3", &with(&[("RANK", "0"), ("LOCAL_RANK", "0")])))
            .process(process(81, 70, "python3", &with(&[("RANK", "1"), ("LOCAL_RANK", "1")])))
            .process(process(90, 80, "pt_data_worker", &with(&[("RANK", "0"), ("LOCAL_RANK", "0")])));
        assert_eq!(ids(&ranks(stage.jobs())), [(80, Some(0)), (81, Some(1))]);
        let jobs = by_launcher(stage.jobs());
        assert_eq!(jobs.len(), 1);
        assert_eq!(jobs[0].launcher.map(|launcher| launcher.pid), Some(70));
        assert!(orphans(&stage.node).is_empty());
    }

    #[test]
    fn srun_starts_a_script_that_starts_the_rank() {
        let of = |rank: &'static str| [("SLURM_PROCID", rank), ("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "0")];
        let stage = NodeStage::new()
            .process(process(50, 1, "slurmstepd", &[]))
            .process(process(60, 50, "bash", &of("0")))
            .process(process(61, 60, "python3", &of("0")))
            .process(process(62, 50, "bash", &of("1")))
            .process(process(63, 62, "python3", &of("1")));
        assert_eq!(ids(&ranks(stage.jobs())), [(61, Some(0)), (63, Some(1))]);
    }

    const OLD: [(&str, &str); 5] = [
        ("RANK", "1"),
        ("LOCAL_RANK", "1"),
        ("TORCHELASTIC_RUN_ID", "old"),
        ("MASTER_PORT", "29500"),
        ("TORCHELASTIC_RESTART_COUNT", "0"),
    ];

    #[test]
    fn a_rank_whose_launcher_is_gone_is_left_behind_with_its_workers() {
        let stage = NodeStage::new()
            .process(process(1, 0, "systemd", &[]))
            .process(process(80, 1, "python3", &OLD))
            .process(process(81, 80, "pt_data_worker", &OLD))
            .gpu("0000:1b:00.0", &[(80, 4000)]);
        let found = orphans(&stage.node);
        let told: Vec<_> = found.iter().map(|o| (o.pid, o.rank, o.gpu_memory_mib)).collect();
        assert_eq!(told, [(80, Some(1), Some(4000)), (81, Some(1), None)]);
        assert_eq!(found[0].gpus, ["0000:1b:00.0"]);
        assert!(found[0].why.starts_with("torchrun that started it is gone"), "{}", found[0].why);
    }

    #[test]
    fn an_attempt_before_the_one_that_runs() {
        let attempt = |count: &'static str| [OLD[0], OLD[1], OLD[2], OLD[3], (OLD[4].0, count)];
        let stage = |of_loner: &'static str| {
            NodeStage::new()
                .process(process(1, 0, "systemd", &[]))
                .process(process(70, 1, "torchrun", &[]))
                .process(process(80, 1, "python3", &attempt(of_loner)))
                .process(process(90, 70, "python3", &attempt("1")))
        };
        assert_eq!(orphans(&stage("0").node).len(), 1);
        // A daemon that a rank of this attempt has detached.
        assert!(orphans(&stage("1").node).is_empty());
    }

    #[test]
    fn the_same_command_was_started_again() {
        let at = |seconds: i64, process: Process| Process { started_ns: seconds * 1_000_000_000, ..process };
        let stage = NodeStage::new()
            .process(at(1, process(1, 0, "systemd", &[])))
            .process(at(100, process(80, 1, "python3", &OLD)))
            .process(at(101, process(81, 80, "pt_data_worker", &OLD)))
            .process(at(200, process(70, 1, "torchrun", &[])))
            .process(at(201, process(90, 70, "python3", &OLD)))
            // A daemon that the new rank has detached.
            .process(at(205, process(95, 1, "python3", &OLD)));
        let pids: Vec<u32> = orphans(&stage.node).iter().map(|orphan| orphan.pid).collect();
        assert_eq!(pids, [80, 81]);
        let meeting = by_meeting(stage.jobs());
        assert_eq!(meeting.iter().map(|ranks| ids(ranks)).collect::<Vec<_>>(), [[(90, Some(1))]]);
    }

    #[test]
    fn two_jobs_that_both_meet_at_localhost() {
        let rank = |pid: u32, ppid: u32, network: u64, uid: u32, master: &str| Process {
            net_namespace: Some(network),
            uid,
            ..process(
                pid,
                ppid,
                "python3",
                &[("RANK", "0"), ("LOCAL_RANK", "0"), ("MASTER_ADDR", master), ("MASTER_PORT", "29500")],
            )
        };
        let jobs = |one: Process, other: Process| {
            let stage = NodeStage::new().process(process(70, 1, "torchrun", &[]));
            by_meeting(stage.process(process(71, 1, "torchrun", &[])).process(one).process(other).jobs())
                .len()
        };
        for master in ["localhost", "127.0.0.1", "::1", "127.0.1.1"] {
            assert_eq!(jobs(rank(80, 70, 1, 5, master), rank(81, 71, 2, 5, master)), 2, "{master}");
            assert_eq!(jobs(rank(80, 70, 1, 5, master), rank(81, 71, 1, 5, master)), 1, "{master}");
        }
        assert_eq!(jobs(rank(80, 70, 1, 5, "n0"), rank(81, 71, 2, 5, "n0")), 1, "two pods of one job");
        assert_eq!(jobs(rank(80, 70, 1, 5, "n0"), rank(81, 71, 1, 6, "n0")), 2, "two users");
    }

    #[test]
    fn a_container_whose_init_starts_the_rank() {
        let by_hand = [("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1"), ("TORCHELASTIC_RUN_ID", "x")];
        let rank = |pid: u32, ppid: u32, variables: &[(&str, &str)]| Process {
            uses_gpu: true,
            ..process(pid, ppid, "python3", variables)
        };
        let of_container = |inner: u32, process: Process| Process { inner_pid: Some(inner), ..process };
        // Seen from inside and from the host; a first process that is the rank itself.
        let healthy = [
            NodeStage::new().process(process(1, 0, "tini", &[])).process(rank(7, 1, &by_hand)),
            NodeStage::new().process(process(1, 0, "bash", &[])).process(rank(7, 1, &by_hand)),
            NodeStage::new()
                .process(of_container(1, process(900, 800, "docker-init", &[])))
                .process(of_container(7, rank(907, 900, &by_hand))),
            NodeStage::new()
                .process(process(800, 1, "containerd-shim", &[]))
                .process(of_container(1, rank(900, 800, &OLD))),
        ];
        for stage in healthy {
            assert_eq!(orphans(&stage.node), [], "{:?}", stage.jobs());
        }
        // Variables that only torchrun sets show that there was a launcher; and the host's init starts no ranks.
        let left = [
            NodeStage::new().process(process(1, 0, "tini", &[])).process(rank(7, 1, &OLD)),
            NodeStage::new().process(process(1, 0, "systemd", &[])).process(rank(7, 1, &by_hand)),
        ];
        for stage in left {
            assert_eq!(orphans(&stage.node).len(), 1, "{:?}", stage.jobs());
        }
    }

    #[test]
    fn look_alikes() {
        let by_hand = [("RANK", "0"), ("WORLD_SIZE", "1")];
        let stages = [
            // The launcher is the user's own program.
            NodeStage::new()
                .process(process(1, 0, "systemd", &[]))
                .process(process(70, 1, "python3", &[]))
                .process(process(80, 70, "python3", &OLD)),
            // Started by hand with nohup; the shell is gone.
            NodeStage::new()
                .process(process(1, 0, "systemd", &[]))
                .process(process(80, 1, "python3", &by_hand)),
            // A container whose first process is the rank, or the launcher.
            NodeStage::new().process(process(1, 0, "python3", &OLD)),
            NodeStage::new().process(process(1, 0, "python3", &[])).process(process(80, 1, "python3", &OLD)),
            // Its parent was not seen.
            NodeStage::new().process(process(80, 4000, "python3", &OLD)),
        ];
        for stage in stages {
            assert_eq!(orphans(&stage.node), [], "{:?}", stage.jobs());
        }
    }
}
