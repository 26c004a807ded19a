//! Processes of jobs: those that carry a rank or have a GPU's device file open, their children, and their parents up
//! to the launcher.
//!
//! For a named job, ranks elsewhere in the tree are found by [`crate::kin`]. A process above a job that is not its
//! launcher (the parent of many jobs) is listed only for the process tree: none of its files belongs to the job. A log
//! that a process of another job writes, too, is the job's only if the output of one of its processes goes there.
//!
//! Reads /proc alone. Environment and command line pass through [`crate::allowed`].

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use ringleader_knowledge::program;
use ringleader_node::{Cgroup, HANGS, Jobs, Process, is_hang};

use crate::kin::{Job, Kin};
use crate::procfs::{self, Stat};
use crate::request::{ReadingError, Request, Target};
use crate::sysfs::{link_name, names, text};
use crate::{allowed, follow};

/// No tree of processes is deeper, and parents that were read at different moments may form a ring.
const MAX_DEPTH: usize = 64;
/// Processes that are described.
const MAX_PROCESSES: usize = 4096;
/// Open files of one process that are looked at; all are counted.
const MAX_FILES: usize = 16_384;
/// Log files of one process.
const MAX_LOGS: usize = 32;
/// Threads of one process that are looked at.
const MAX_THREADS: usize = 4096;
/// Patience with a file of a process that hangs.
const PATIENCE: Duration = Duration::from_millis(150);
/// Processes that hang and are waited for, one after the other.
const MAX_WAITS: u32 = 4;
/// Variables that give a process a rank.
const RANKS: &[&str] =
    &["RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "JAX_PROCESS_ID", "SLURM_PROCID"];

pub(super) fn take(request: &Request) -> Result<Jobs, ReadingError> {
    let walk = Walk::new(request)?;
    let (chosen, chosen_by) = walk.choose(&request.target)?;
    let mut processes: Vec<Process> =
        chosen.iter().take(MAX_PROCESSES).filter_map(|(pid, place)| walk.describe(*pid, *place)).collect();
    let whose = Whose::of(&walk, &chosen);
    for process in &mut processes {
        whose.keep_own(process);
    }
    still_blocked(walk.proc, &mut processes);
    let others = walk.others(&chosen);
    Ok(Jobs {
        processes,
        chosen_by,
        n_hidden: walk.n_hidden,
        unseen: procfs::hidden_by_mount(walk.proc),
        others,
    })
}

/// Numbers of the processes that [`take`] would describe, for the other probes.
pub(super) fn pids(request: &Request) -> Result<BTreeSet<u32>, ReadingError> {
    let walk = Walk::new(request)?;
    Ok(walk.choose(&request.target)?.0.into_keys().collect())
}

/// Where a process is in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TreePosition {
    /// It is of the job: a rank, its launcher, or what these have started.
    Own,
    /// It is above the job, and other jobs may be below it.
    Above,
}

/// What had to be read of every process to choose.
struct Walk<'a> {
    proc: &'a Path,
    sys: &'a Path,
    stats: BTreeMap<u32, Stat>,
    seen: BTreeMap<u32, ProcessFacts>,
    /// Others' processes that could not be looked into.
    n_hidden: u32,
    boot_s: i64,
    host: String,
    gpu_addresses: BTreeMap<u32, String>,
    /// Groups that were read, by the listing that names them: workers of one job share theirs.
    cgroups: RefCell<BTreeMap<String, Option<Cgroup>>>,
    /// Ranks that belong together.
    jobs: Vec<BTreeSet<u32>>,
    /// The same, by what is certain alone.
    akin: Vec<BTreeSet<u32>>,
}

/// What is known of one process before it is described.
#[derive(Default)]
struct ProcessFacts {
    environment: Option<BTreeMap<String, String>>,
    cut: Vec<String>,
    hidden: Option<String>,
    n_files: Option<u32>,
    minors: BTreeSet<u32>,
    /// Logs open for writing.
    writes: Vec<String>,
    /// Numbers of output and logs whose paths may hold a secret.
    withheld: Vec<u32>,
    /// And these paths: never printed.
    untold: Vec<(u32, String)>,
    stdout: Option<String>,
    stderr: Option<String>,
}

impl ProcessFacts {
    fn has_rank(&self) -> bool {
        let is_number = |name: &&&str| {
            self.environment
                .as_ref()
                .and_then(|e| e.get(**name))
                .is_some_and(|v| v.trim().parse::<u32>().is_ok())
        };
        RANKS.iter().any(|name| is_number(&name))
    }
}

impl<'a> Walk<'a> {
    fn new(request: &'a Request) -> Result<Self, ReadingError> {
        let proc = request.roots.proc.as_path();
        let stats = procfs::processes(proc);
        if stats.is_empty() {
            return Err(ReadingError::Failed(format!("{} shows no process", proc.display())));
        }
        let boot_s = text(&proc.join("stat")).and_then(|counts| {
            counts.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
        });
        let mut walk = Self {
            proc,
            sys: request.roots.sys.as_path(),
            stats,
            seen: BTreeMap::new(),
            n_hidden: 0,
            boot_s: boot_s.unwrap_or(0),
            host: text(&proc.join("sys/kernel/hostname")).unwrap_or_default(),
            gpu_addresses: gpu_addresses(proc),
            cgroups: RefCell::default(),
            jobs: Vec::new(),
            akin: Vec::new(),
        };
        let mut kin = Kin::new(proc, follow::ring_folders());
        let pids = |jobs: Vec<Job>| jobs.into_iter().map(|job| job.pids).collect();
        (walk.jobs, walk.akin) = (pids(kin.jobs(&walk.stats)), pids(kin.akin(&walk.stats)));
        let mut n_waits = 0;
        for (pid, stat) in &walk.stats {
            let seen = look(proc, *pid, stat, &mut n_waits);
            walk.n_hidden += u32::from(seen.hidden.is_some());
            walk.seen.insert(*pid, seen);
        }
        Ok(walk)
    }

    /// Which processes, and a word on how they were chosen.
    fn choose(&self, target: &Target) -> Result<(BTreeMap<u32, TreePosition>, String), ReadingError> {
        let mut chosen = BTreeSet::new();
        let by;
        if !target.pids.is_empty() || target.may_be_gone {
            for pid in &target.pids {
                if !self.stats.contains_key(pid) {
                    if target.may_be_gone {
                        continue;
                    }
                    return Err(ReadingError::Absent(format!("there is no process {pid}")));
                }
                self.add_with_children(*pid, &mut chosen);
            }
            if chosen.is_empty() {
                return Err(ReadingError::Absent("the processes of the job have ended".to_owned()));
            }
            self.add_kin(&mut chosen);
            let list: Vec<String> = target.pids.iter().map(u32::to_string).collect();
            by = format!("pid {} and all below", list.join(", "));
        } else if let Some(job) = &target.slurm_job {
            let looking = self.looking(std::process::id());
            for pid in self.stats.keys() {
                if !looking.contains(pid) && self.is_of_slurm(*pid, job) {
                    self.add_with_children(*pid, &mut chosen);
                }
            }
            chosen.retain(|pid| !looking.contains(pid));
            if chosen.is_empty() {
                return Err(ReadingError::Absent(format!("no process of Slurm job {job} runs here")));
            }
            by = format!("Slurm job {job}");
        } else {
            let ours = self.seen.iter().filter(|(_, seen)| seen.has_rank() || !seen.minors.is_empty());
            for (pid, _) in ours {
                self.add_with_children(*pid, &mut chosen);
            }
            by = "all processes with a rank or a GPU".to_owned();
        }
        Ok((self.with_parents(chosen, &target.pids), by))
    }

    /// Who looks: this process, what it runs under (an epilog has the job's number in its environment), and the other processes
    /// that its parent has started to look.
    fn looking(&self, own: u32) -> BTreeSet<u32> {
        let parent = |pid: u32| self.stats.get(&pid).map(|stat| stat.ppid);
        let above = |pid: u32| std::iter::successors(parent(pid), move |pid| parent(*pid)).take(MAX_DEPTH);
        let collector = parent(own);
        let mut looking: BTreeSet<u32> = above(own).chain([own]).collect();
        let beside = |pid: &u32| {
            collector.is_some_and(|collector| collector > 1 && above(*pid).any(|at| at == collector))
        };
        looking.extend(self.stats.keys().copied().filter(beside));
        looking
    }

    /// Ranks of the same job elsewhere in the tree.
    fn add_kin(&self, chosen: &mut BTreeSet<u32>) {
        for pids in self.akin.iter().filter(|pids| !pids.is_disjoint(chosen)).collect::<Vec<_>>() {
            for pid in pids {
                self.add_with_children(*pid, chosen);
            }
        }
    }

    /// What else is there that may be a rank, by its own number.
    fn others(&self, chosen: &BTreeMap<u32, TreePosition>) -> Vec<u32> {
        let is_other = |pid: &u32, seen: &ProcessFacts| {
            // Threads of the kernel have no memory.
            let may_be = || self.stats.get(pid).is_some_and(|stat| stat.resident_pages > 0);
            !chosen.contains_key(pid)
                && (seen.has_rank() || !seen.minors.is_empty() || seen.hidden.is_some() && may_be())
        };
        let there = self.seen.iter().filter(|(pid, seen)| is_other(pid, seen)).map(|(pid, _)| *pid);
        there.take(MAX_PROCESSES).map(|pid| follow::inner_pid(self.proc, pid).unwrap_or(pid)).collect()
    }

    /// Whether ranks of more than one job are below a process.
    fn is_above_many(&self, pid: u32) -> bool {
        let mut below = BTreeSet::new();
        self.add_with_children(pid, &mut below);
        self.jobs.iter().filter(|pids| !pids.is_disjoint(&below)).count() > 1
    }

    fn is_of_slurm(&self, pid: u32, job: &str) -> bool {
        let variable = |name: &str| self.seen.get(&pid)?.environment.as_ref()?.get(name);
        if ["SLURM_JOB_ID", "SLURM_JOBID"].iter().any(|name| variable(name).is_some_and(|id| id == job)) {
            return true;
        }
        let groups = text(&self.proc.join(pid.to_string()).join("cgroup")).unwrap_or_default();
        let part = format!("job_{job}");
        groups.lines().any(|line| line.split('/').any(|name| name == part))
    }

    fn add_with_children(&self, root: u32, chosen: &mut BTreeSet<u32>) {
        // Numbers do not grow downwards once they have wrapped, so the list is gone through until nothing is new.
        let mut open = vec![root];
        while let Some(pid) = open.pop() {
            if chosen.insert(pid) {
                open.extend(self.stats.iter().filter(|(_, stat)| stat.ppid == pid).map(|(child, _)| *child));
            }
        }
    }

    /// And the parents up to the launcher; the direct parent always, and with a launcher its dead children. A launcher
    /// is of the job unless it is above others, too; any other parent is not, unless it is between the two.
    fn with_parents(&self, mut chosen: BTreeSet<u32>, named: &[u32]) -> BTreeMap<u32, TreePosition> {
        let mut parents: BTreeMap<u32, TreePosition> = BTreeMap::new();
        for pid in &chosen {
            let mut at = *pid;
            let mut path = Vec::new();
            while let Some(stat) = self.stats.get(&at) {
                at = stat.ppid;
                if at == 0 || path.contains(&at) || !self.stats.contains_key(&at) {
                    break;
                }
                path.push(at);
                if self.is_launcher(at) {
                    let place = if self.is_above_many(at) { TreePosition::Above } else { TreePosition::Own };
                    parents.extend(path.drain(..).map(|pid| (pid, place)));
                    // A launcher may be below another: torchrun below slurmstepd.
                }
            }
            let direct =
                self.stats.get(pid).map(|stat| stat.ppid).filter(|ppid| self.stats.contains_key(ppid));
            if let Some(direct) = direct {
                parents.entry(direct).or_insert(TreePosition::Above);
            }
        }
        parents.retain(|pid, _| !chosen.contains(pid));
        let is_launcher = |ppid: &u32| {
            *ppid != 1
                && (parents.get(ppid) == Some(&TreePosition::Own)
                    || named.contains(ppid)
                    || chosen.contains(ppid))
        };
        let dead: Vec<u32> = self
            .stats
            .iter()
            .filter(|(_, stat)| matches!(stat.state.as_str(), "Z" | "X") && is_launcher(&stat.ppid))
            .map(|(pid, _)| *pid)
            .collect();
        chosen.extend(dead);
        parents.extend(chosen.into_iter().map(|pid| (pid, TreePosition::Own)));
        parents
    }

    /// Where a rank of another job dumps to.
    fn dumps(&self, pid: u32, seen: &ProcessFacts) -> Vec<String> {
        if !seen.has_rank() || !self.jobs.iter().any(|job| job.contains(&pid)) {
            return Vec::new();
        }
        let directory = fs::read_link(self.proc.join(pid.to_string()).join("cwd"));
        dumps_of(&Process {
            environment: seen.environment.clone(),
            directory: directory.ok().map(|path| path.display().to_string()),
            ..Process::default()
        })
    }

    fn is_launcher(&self, pid: u32) -> bool {
        let Some(stat) = self.stats.get(&pid) else { return false };
        let arguments = if stat.state == "D" { Vec::new() } else { self.arguments(pid, stat) };
        program::launcher(&stat.command, &arguments).is_some()
    }

    fn arguments(&self, pid: u32, stat: &Stat) -> Vec<String> {
        let path = self.proc.join(pid.to_string()).join("cmdline");
        let bytes = if stat.state == "D" { procfs::read_patiently(path, PATIENCE) } else { fs::read(path) };
        bytes
            .ok()
            .filter(|bytes| !bytes.is_empty())
            .map(|bytes| allowed::arguments(&bytes))
            .unwrap_or_default()
    }

    fn describe(&self, pid: u32, place: TreePosition) -> Option<Process> {
        let stat = self.stats.get(&pid)?;
        let seen = self.seen.get(&pid)?;
        let at = self.proc.join(pid.to_string());
        let status = text(&at.join("status")).unwrap_or_default();
        let of_status = |name: &str| procfs::status(&status, name);
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        let started_ns = self.boot_s * 1_000_000_000
            + (i128::from(stat.started_ticks) * 1_000_000_000 / i128::from(ticks)) as i64;
        let inner = of_status("NSpid").and_then(|list| list.split_whitespace().last()?.parse::<u32>().ok());
        let hangs = seen.hidden.as_deref().is_some_and(is_hang);
        let uid =
            of_status("Uid").and_then(|ids| ids.split_whitespace().nth(1)?.parse().ok()).unwrap_or_default();
        let mut process = Process {
            pid,
            inner_pid: inner.filter(|inner| *inner != pid),
            ppid: stat.ppid,
            uid,
            exit_code: procfs::exit_code(stat, uid),
            state: stat.state.clone(),
            wchan: text(&at.join("wchan")).filter(|place| !place.is_empty() && place != "0"),
            command: allowed::clean(&stat.command),
            arguments: if hangs { Vec::new() } else { self.arguments(pid, stat) },
            started_ns,
            cpu_s: stat.cpu_ticks as f64 / ticks as f64,
            sleeps: of_status("voluntary_ctxt_switches").and_then(|n| n.parse().ok()),
            memory: stat.resident_pages * rustix::param::page_size() as u64,
            n_threads: stat.n_threads,
            blocked_threads: Vec::new(),
            uses_gpu: !seen.minors.is_empty(),
            gpu_minors: seen.minors.iter().copied().collect(),
            gpus: seen.minors.iter().filter_map(|minor| self.gpu_addresses.get(minor).cloned()).collect(),
            environment: seen.environment.clone(),
            cut_variables: seen.cut.clone(),
            limits: text(&at.join("limits")).map(|table| procfs::limits(&table)).unwrap_or_default(),
            n_open_files: seen.n_files,
            directory: fs::read_link(at.join("cwd")).ok().map(|path| path.display().to_string()),
            stdout: seen.stdout.clone(),
            stderr: seen.stderr.clone(),
            logs: Vec::new(),
            withheld_files: seen.withheld.clone(),
            n_cpus: of_status("Cpus_allowed_list").and_then(procfs::count_of_list),
            cgroup: text(&at.join("cgroup")).and_then(|listing| {
                let mut known = self.cgroups.borrow_mut();
                known.entry(listing).or_insert_with_key(|listing| procfs::cgroup(self.sys, listing)).clone()
            }),
            capabilities: of_status("CapEff").and_then(|mask| u64::from_str_radix(mask, 16).ok()),
            net_namespace: link_name(&at.join("ns/net"))
                .and_then(|name| name.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()),
            hidden: seen.hidden.clone(),
            is_above: place == TreePosition::Above,
            contested: Vec::new(),
            again: None,
        };
        if place == TreePosition::Above {
            process.environment = process.environment.map(|_| BTreeMap::new());
            process.cut_variables = Vec::new();
            process.directory = None;
            (process.stdout, process.stderr) = (None, None);
            process.withheld_files = Vec::new();
            return Some(process);
        }
        // A folder may be named after anything; what looks like a token is not written down.
        process.directory = process
            .directory
            .map(|path| allowed::clean(&path))
            .filter(|path| !allowed::path_looks_secret(path));
        process.logs = self.logs(&process, seen);
        Some(process)
    }

    /// Files a process writes or would write: its output, log files it has open, and those that NCCL and the Flight
    /// Recorder are configured to write.
    fn logs(&self, process: &Process, seen: &ProcessFacts) -> Vec<String> {
        let mut logs: Vec<String> = Vec::new();
        let mut push = |path: String| {
            if path.starts_with('/')
                && !path.starts_with("/dev/")
                && !logs.contains(&path)
                && logs.len() < MAX_LOGS
            {
                logs.push(path);
            }
        };
        if let Some(file) = process.variable("NCCL_DEBUG_FILE") {
            let host = self.host.split('.').next().unwrap_or_default();
            let pid = process.inner_pid.unwrap_or(process.pid).to_string();
            // Formats of NCCL's src/debug.cc: %h, %p, %%.
            push(absolute(
                process,
                &file.replace("%%", "\0").replace("%h", host).replace("%p", &pid).replace('\0', "%"),
            ));
        }
        if let Some(rank) = process.rank() {
            for name in ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] {
                if let Some(prefix) = process.variable(name) {
                    push(absolute(process, &format!("{prefix}{rank}")));
                }
            }
        }
        for path in [&seen.stdout, &seen.stderr].into_iter().flatten() {
            push(path.clone());
        }
        for path in &seen.writes {
            push(path.clone());
        }
        logs.retain(|path| !allowed::path_looks_secret(path));
        logs
    }
}

/// Which files others write as well.
struct Whose {
    /// What processes that are not of the job have open for writing, and would dump to, by their mounts.
    of_others: BTreeSet<(Option<String>, String)>,
    /// Where the output of the job's own processes goes.
    outputs: BTreeSet<(Option<String>, String)>,
    mounts: BTreeMap<u32, Option<String>>,
    /// Paths of the job's own open logs that are withheld, by pid and number.
    untold: BTreeMap<(u32, u32), String>,
}

impl Whose {
    fn of(walk: &Walk<'_>, chosen: &BTreeMap<u32, TreePosition>) -> Self {
        let own = |pid: u32| chosen.get(&pid) == Some(&TreePosition::Own);
        let mounts = |pid: u32| link_name(&walk.proc.join(pid.to_string()).join("ns/mnt"));
        let mut whose = Self {
            of_others: BTreeSet::new(),
            outputs: BTreeSet::new(),
            mounts: BTreeMap::new(),
            untold: BTreeMap::new(),
        };
        let ours = std::process::id();
        for (pid, seen) in walk.seen.iter().filter(|(pid, _)| **pid != ours) {
            let outputs = [&seen.stdout, &seen.stderr].into_iter().flatten();
            let untold = seen.untold.iter();
            if own(*pid) {
                let at = mounts(*pid);
                let hidden =
                    untold.clone().filter(|(number, _)| matches!(number, 1 | 2)).map(|(_, path)| path);
                whose.outputs.extend(outputs.chain(hidden).map(|path| (at.clone(), path.clone())));
                whose.untold.extend(untold.map(|(number, path)| ((*pid, *number), path.clone())));
                whose.mounts.insert(*pid, at);
                continue;
            }
            let mut written: Vec<String> = outputs.chain(&seen.writes).cloned().collect();
            written.extend(untold.map(|(_, path)| path.clone()));
            written.extend(walk.dumps(*pid, seen));
            if !written.is_empty() {
                let at = mounts(*pid);
                whose.of_others.extend(written.into_iter().map(|path| (at.clone(), path)));
            }
        }
        whose
    }

    /// Leaves out logs that are another job's.
    fn keep_own(&self, process: &mut Process) {
        let Some(mounts) = self.mounts.get(&process.pid) else { return };
        let is_others = |path: &String| {
            let file = (mounts.clone(), path.clone());
            self.of_others.contains(&file) && !self.outputs.contains(&file)
        };
        process.logs.retain(|path| !is_others(path));
        let pid = process.pid;
        let number_is_others = |number: &u32| self.untold.get(&(pid, *number)).is_some_and(is_others);
        process.withheld_files.retain(|number| !number_is_others(number));
        process.contested = dumps_of(process).into_iter().filter(is_others).collect();
    }
}

/// Where the Flight Recorder of a rank writes if nothing names another place.
const DEFAULT_DUMP: &str = "/tmp/nccl_trace_rank_";

/// Paths of a process's dumps, by its environment or by default.
fn dumps_of(process: &Process) -> Vec<String> {
    let Some(rank) = process.rank() else { return Vec::new() };
    let told = ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"]
        .iter()
        .filter_map(|name| process.variable(name))
        .map(|prefix| absolute(process, &format!("{prefix}{rank}")));
    let told: Vec<String> = told.collect();
    if told.is_empty() { vec![format!("{DEFAULT_DUMP}{rank}")] } else { told }
}

/// Whether a file that is open for writing is a log, by its name.
fn looks_like_log(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or(path);
    [".log", ".out", ".err", ".txt", ".trace"].iter().any(|end| last.contains(end))
        || ["nccl", "stdout", "stderr", "slurm-"].iter().any(|head| last.starts_with(head))
}

/// A path as the process means it.
fn absolute(process: &Process, path: &str) -> String {
    match &process.directory {
        Some(directory) if !path.starts_with('/') => format!("{}/{path}", directory.trim_end_matches('/')),
        _ => path.to_owned(),
    }
}

/// Reads what decides whether a process is one of a job.
fn look(proc: &Path, pid: u32, stat: &Stat, n_waits: &mut u32) -> ProcessFacts {
    let at = proc.join(pid.to_string());
    let mut seen = ProcessFacts::default();
    if matches!(stat.state.as_str(), "Z" | "X") {
        // It has no memory and no files any more.
        return seen;
    }
    let path = at.join("environ");
    let environ = if stat.state != "D" {
        fs::read(path)
    } else if *n_waits < MAX_WAITS {
        let read = procfs::read_patiently(path, PATIENCE);
        *n_waits += u32::from(read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut));
        read
    } else {
        Err(io::ErrorKind::TimedOut.into())
    };
    match environ {
        Ok(bytes) => {
            let (kept, cut) = allowed::environment(&bytes);
            (seen.environment, seen.cut) = (Some(kept), cut);
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            seen.hidden = Some("it belongs to another user: run as root".to_owned());
        }
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            seen.hidden = Some(format!("it {HANGS} the kernel, and reading its environment would hang too"));
        }
        // It has just ended.
        Err(_) => {}
    }
    files(&at, &mut seen);
    seen
}

fn files(at: &Path, seen: &mut ProcessFacts) {
    let folder = at.join("fd");
    let Ok(entries) = fs::read_dir(&folder) else { return };
    let mut numbers: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    seen.n_files = u32::try_from(numbers.len()).ok();
    numbers.sort_by_key(|name| name.parse::<u32>().unwrap_or(u32::MAX));
    for number in numbers.into_iter().take(MAX_FILES) {
        let Ok(target) = fs::read_link(folder.join(&number)) else { continue };
        let target = target.to_string_lossy();
        if let Some(minor) = target.strip_prefix("/dev/nvidia").and_then(|rest| rest.parse().ok()) {
            seen.minors.insert(minor);
            continue;
        }
        let path = allowed::clean(&target);
        let is_file = path.starts_with('/') && !path.starts_with("/dev/");
        let is_log = || {
            is_file
                && looks_like_log(&path)
                && seen.writes.len() < MAX_LOGS * 4
                && procfs::is_written(&at.join("fdinfo").join(&number))
        };
        if !matches!(number.as_str(), "1" | "2") && !is_log() {
            continue;
        }
        if allowed::path_looks_secret(&path) {
            let is_told = is_file && seen.withheld.len() < MAX_LOGS;
            if let Some(number) = number.parse::<u32>().ok().filter(|_| is_told) {
                seen.withheld.push(number);
                seen.untold.push((number, path));
            }
            continue;
        }
        match number.as_str() {
            "1" => seen.stdout = Some(path),
            "2" => seen.stderr = Some(path),
            _ => seen.writes.push(path),
        }
    }
}

/// Threads in state D by number, with their count of switches and what they wait in.
fn blocked(at: &Path) -> BTreeMap<u32, (String, String)> {
    let tasks = at.join("task");
    let threads = names(&tasks).into_iter().take(MAX_THREADS).filter_map(|tid| {
        let task = tasks.join(&tid);
        if Stat::parse(&text(&task.join("stat"))?)?.state != "D" {
            return None;
        }
        let status = text(&task.join("status")).unwrap_or_default();
        let n_switches = procfs::status(&status, "voluntary_ctxt_switches").unwrap_or_default().to_owned();
        Some((tid.parse().ok()?, (n_switches, text(&task.join("wchan")).unwrap_or_default())))
    });
    threads.collect()
}

/// Looks twice for threads in state D: who reads a disk is in it for a moment, who hangs stays, without having run.
fn still_blocked(proc: &Path, processes: &mut [Process]) {
    let at = |process: &Process| proc.join(process.pid.to_string());
    let first: Vec<_> = processes.iter().map(|process| blocked(&at(process))).collect();
    if first.iter().all(BTreeMap::is_empty) {
        return;
    }
    std::thread::sleep(PATIENCE);
    for (process, before) in processes.iter_mut().zip(first) {
        if before.is_empty() {
            continue;
        }
        let after = blocked(&at(process));
        let stayed =
            after.into_iter().filter(|(tid, (n, _))| before.get(tid).is_some_and(|(old, _)| old == n));
        process.blocked_threads = stayed.map(|(tid, (_, place))| (tid, place)).collect();
    }
}

/// PCI addresses of GPUs by the number of their device file, as reported by the driver.
fn gpu_addresses(proc: &Path) -> BTreeMap<u32, String> {
    let folder = proc.join("driver/nvidia/gpus");
    let gpus = names(&folder).into_iter().filter_map(|address| {
        let about = text(&folder.join(&address).join("information"))?;
        let minor = about.lines().find_map(|line| line.strip_prefix("Device Minor:")?.trim().parse().ok())?;
        Some((minor, address))
    });
    gpus.collect()
}

#[cfg(test)]
#[path = "jobs_tests.rs"]
mod tests;
