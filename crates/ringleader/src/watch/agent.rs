//! What this node can see of the job, as a digest: who belongs to it, whether each process runs, and what the rings, or
//! NCCL RAS, say of its operations. Looks, and changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ringleader_collect::collectors::RingImage;
use ringleader_collect::follow::{self, RankEnv, RingFile, Stat};
use ringleader_collect::kin::{Job, Kin, RETRY, RETRY_MOST};
use ringleader_ring::Reader;
use ringleader_watch::digest::{Digest, ProcessState, RankDigest, SCHEMA, SeenBy, from_ring};
use ringleader_watch::membership::ranks::{self, Parents, RankNumbers};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::watch::ras::Ras;
use crate::watch::tcp::Tcp;

/// Whose job.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// These and all below.
    Pids(Vec<u32>),
    /// A job of Slurm.
    Slurm(String),
    /// The job with most ranks.
    Rings,
    /// The ranks of one job, found elsewhere.
    Group(SharedPids),
}

/// Ranks of one job, as they are found.
pub(crate) type SharedPids = Arc<Mutex<BTreeSet<u32>>>;

/// Processes are looked through for new members no more often than this where that means reading of each.
const SCAN: Duration = Duration::from_secs(2);
/// An environment that has a rank is read again until then.
const SETTLED: Duration = Duration::from_secs(4);
/// Between two looks at which files a process writes.
const LOGS: Duration = Duration::from_secs(10);
/// A process that was named and shows neither rank nor ring is taken for one after this.
const UNNAMED: Duration = Duration::from_secs(1);
/// A launcher or a shell after this: its ranks come later than it does.
const STARTING: Duration = Duration::from_secs(30);
/// Ranks of one node.
const MAX_RANKS: usize = 1024;
/// Processes between a rank and one that it has started.
const MAX_DEPTH: usize = 64;
/// Pids that a note names, and rings that have a note each.
const MAX_NAMED: usize = 8;
/// Open files that the watcher asks for: one for each ring, and some for each look. Not more, where it may have more: some
/// programs that a hook may start go through all of them.
const DESCRIPTORS: u64 = 65_536;

/// Logs of helpers and launchers that have ended: more are not kept.
const MAX_LEFT_LOGS: usize = 64;

/// One process that belongs to the job.
struct JobProcess {
    start_ticks: u64,
    env: Option<RankEnv>,
    /// The process of the same rank that started it.
    under: Option<u32>,
    ring: Option<Ring>,
    next_env: Instant,
    env_pause: Duration,
    next_try: Instant,
    pause: Duration,
    logs: BTreeSet<PathBuf>,
    /// The newest that was said of it.
    last: RankDigest,
    /// It has a communicator with ranks on other hosts, or one whose hosts are unknown.
    has_network: bool,
    is_rank: bool,
    /// It only carries the variables of a rank that was seen to compute: a shell around it, or a helper below.
    is_beside: bool,
    /// It has loaded what computes on GPUs.
    has_gpu_code: bool,
    next_gpu_code: Instant,
    gpu_code_pause: Duration,
    is_gone: bool,
    /// How it ended, if that was seen.
    exit_code: Option<i64>,
    /// It has a ring that could not be opened, and why not.
    unopened: Option<String>,
}

struct Ring {
    file: RingFile,
    reader: Reader,
    /// Why it cannot be read now.
    failed: Option<String>,
    /// NCCL's reports of kernels were given up.
    lacks_kernels: bool,
}

/// Follows the job on this node.
pub(crate) struct Agent {
    target: Target,
    proc: PathBuf,
    folders: Vec<PathBuf>,
    node: String,
    name: String,
    sequence: u64,
    members: BTreeMap<u32, JobProcess>,
    /// Processes by which the job was named, and what they were when they were first seen.
    slurm: BTreeMap<(u32, u64), bool>,
    kin: Kin,
    next_kin: Instant,
    /// Ranks of the job outside what was named.
    elsewhere: BTreeSet<u32>,
    next_scan: Instant,
    had_ranks: bool,
    had_target: bool,
    ras: Ras,
    asks_ras: bool,
    tcp: Tcp,
    stacks: BTreeMap<u32, Vec<String>>,
    stacks_ns: i64,
    /// Why it is not known of a process whether it lives.
    trouble: Option<String>,
    began: Instant,
    /// Logs of launchers that have ended.
    left_logs: BTreeSet<PathBuf>,
    logs_scan: Option<Receiver<LogsOf>>,
    next_logs: Instant,
    next_new_logs: Instant,
    new_logs_pause: Duration,
}

/// The logs that processes, by pid, have open.
type LogsOf = Vec<(u32, BTreeSet<PathBuf>)>;

impl Agent {
    pub(crate) fn new(target: Target, rings: Option<&Path>, node: String) -> Self {
        allow_descriptors();
        let began = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let folders = rings.map_or_else(follow::ring_folders, |folder| vec![folder.to_owned()]);
        let mut kin = Kin::new("/proc".as_ref(), folders.clone());
        kin.rings_alone = rings.is_some();
        Self {
            target,
            proc: PathBuf::from("/proc"),
            kin,
            next_kin: Instant::now(),
            elsewhere: BTreeSet::new(),
            folders,
            name: format!("{}-{}", std::process::id(), began.as_millis()),
            ras: Ras::new(),
            asks_ras: true,
            tcp: Tcp::default(),
            node,
            sequence: 0,
            members: BTreeMap::new(),
            slurm: BTreeMap::new(),
            trouble: None,
            next_scan: Instant::now(),
            had_ranks: false,
            had_target: false,
            stacks: BTreeMap::new(),
            stacks_ns: 0,
            began: Instant::now(),
            left_logs: BTreeSet::new(),
            logs_scan: None,
            next_logs: Instant::now(),
            next_new_logs: Instant::now(),
            new_logs_pause: RETRY,
        }
    }

    /// Asks nothing of NCCL's RAS.
    pub(crate) fn without_ras(mut self) -> Self {
        self.asks_ras = false;
        self
    }

    /// This node's name among all.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// One look.
    pub(crate) fn look(&mut self, now_ns: i64) -> Digest {
        self.trouble = None;
        let all = follow::processes(&self.proc);
        let here = self.find(&all);
        self.had_target |= !here.is_empty();
        self.ranks(&all, &here);
        let pids: Vec<u32> = self.members.iter().filter(|(_, m)| m.is_rank).map(|(pid, _)| *pid).collect();
        self.had_ranks |= !pids.is_empty();
        let mut digests: Vec<RankDigest> =
            pids.into_iter().take(MAX_RANKS).map(|pid| self.rank(pid, all.get(&pid))).collect();
        let below = below(&all, &digests);
        for digest in &mut digests {
            digest.below_cpu_ms = below.get(&digest.pid).copied();
        }
        self.read_logs();
        let mut notes = self.notes();
        if self.asks_ras {
            let ras = |member: &JobProcess| member.env.as_ref().and_then(|env| env.ras.clone());
            let live = self.members.iter().filter(|(_, member)| member.is_rank && !member.is_gone);
            let ranks: Vec<_> = live.map(|(pid, member)| (*pid, ras(member), member.sees())).collect();
            self.ras.ask(&ranks);
        }
        for digest in digests.iter_mut().filter(|digest| digest.seen_by == SeenBy::Process) {
            self.ras.complete(digest);
        }
        notes.extend(self.ras.note());
        let has_network = |member: &JobProcess| member.is_rank && !member.is_gone && member.has_network;
        let pids = self.members.iter().filter(|(_, m)| has_network(m)).map(|(pid, _)| *pid).collect();
        self.tcp.look(&self.proc, pids);
        for digest in &mut digests {
            digest.tcp = self.tcp.of(digest.pid);
            digest.stack = self.stacks.get(&digest.pid).cloned().unwrap_or_default();
            digest.stack_ns = if digest.stack.is_empty() { 0 } else { self.stacks_ns };
        }
        self.sequence += 1;
        Digest {
            schema: SCHEMA.to_owned(),
            node: self.node.clone(),
            sequence: self.sequence,
            agent: self.name.clone(),
            at_ns: now_ns,
            ranks: digests,
            notes,
        }
    }

    /// All processes of the job, launchers and helpers included.
    fn find(&mut self, all: &BTreeMap<u32, Stat>) -> BTreeSet<u32> {
        let alive = |pid: &u32| self.members.get(pid).is_some_and(|member| is_it(all.get(pid), member));
        // A rank whose launcher died is still of the job.
        let mut here: BTreeSet<u32> = self.members.keys().copied().filter(alive).collect();
        match self.target.clone() {
            Target::Pids(roots) => {
                here.extend(ranks::with_descendants(&follow::parents(all), &roots));
                self.find_elsewhere(all, &here);
                here.extend(self.elsewhere.iter().filter(|pid| all.contains_key(pid)));
            }
            Target::Group(group) => {
                let group = group.lock().unwrap_or_else(PoisonError::into_inner);
                here.extend(group.iter().filter(|pid| all.contains_key(pid)));
            }
            Target::Slurm(job) => {
                if Instant::now() >= self.next_scan {
                    self.next_scan = Instant::now() + SCAN;
                    for (pid, stat) in all {
                        let key = (*pid, stat.started_ticks);
                        let proc = &self.proc;
                        self.slurm.entry(key).or_insert_with(|| follow::is_of_slurm(proc, *pid, &job));
                    }
                    self.slurm.retain(|(pid, _), _| all.contains_key(pid));
                }
                let roots: Vec<u32> =
                    self.slurm.iter().filter(|(_, is_of)| **is_of).map(|((pid, _), _)| *pid).collect();
                here.extend(ranks::with_descendants(&follow::parents(all), &roots));
            }
            Target::Rings => here.extend(self.by_rings(all)),
        }
        here.remove(&std::process::id());
        here
    }

    /// Ranks of the same job that were not named: started by a shell's loop, by mpirun's daemon, in another container.
    fn find_elsewhere(&mut self, all: &BTreeMap<u32, Stat>, here: &BTreeSet<u32>) {
        if Instant::now() < self.next_kin {
            return;
        }
        self.next_kin = Instant::now() + SCAN;
        let akin = self.kin.akin(all);
        let own = akin.into_iter().filter(|job| !job.pids.is_disjoint(here)).flat_map(|job| job.pids);
        self.elsewhere = own.collect();
    }

    /// The job that is followed; before one is, that with most ranks, and of several the newest.
    fn by_rings(&mut self, all: &BTreeMap<u32, Stat>) -> BTreeSet<u32> {
        if Instant::now() >= self.next_kin {
            self.next_kin = Instant::now() + RETRY;
            let mut jobs = self.kin.jobs(all);
            let n_followed = |job: &Job| job.pids.iter().filter(|pid| self.members.contains_key(pid)).count();
            let newest = |job: &Job| {
                job.pids.iter().filter_map(|pid| all.get(pid)).map(|stat| stat.started_ticks).max()
            };
            if self.had_ranks {
                jobs.retain(|job| n_followed(job) > 0);
            }
            let chosen = jobs.into_iter().max_by_key(|job| (n_followed(job), job.pids.len(), newest(job)));
            self.elsewhere = chosen.map(|job| job.pids).unwrap_or_default();
        }
        self.elsewhere.iter().filter(|pid| all.contains_key(pid)).copied().collect()
    }

    /// Those of them that compute. Environments are read once for each process, and again if they had no rank.
    fn ranks(&mut self, all: &BTreeMap<u32, Stat>, here: &BTreeSet<u32>) {
        let now = Instant::now();
        let parents = follow::parents(all);
        let mut numbers = BTreeMap::new();
        for pid in here {
            let Some(stat) = all.get(pid).filter(|stat| !matches!(&*stat.state, "Z" | "X")) else { continue };
            let proc = self.proc.clone();
            let known = self.slot(*pid, stat, now);
            // A process has its parent's environment until it starts its own program.
            let is_settled =
                known.env_pause > SETTLED && known.env.as_ref().is_some_and(|env| env.rank.is_some());
            if !is_settled && known.next_env <= now {
                known.env = follow::rank_env(&proc, *pid).or_else(|| known.env.take());
                known.next_env = now + known.env_pause;
                known.env_pause = (known.env_pause * 2).min(RETRY_MOST);
            }
            if let Some(env) = known.env.as_ref().filter(|env| env.rank.is_some()) {
                numbers.insert(*pid, number(env));
            }
        }
        self.leave_out_orphans(&parents, &mut numbers);
        self.open_rings(all, here);
        self.find_gpu_code(&numbers);
        let has_ring = |pid: &u32| self.members.get(pid).is_some_and(|member| member.ring.is_some());
        let has_gpu_code = |pid: &u32| self.members.get(pid).is_some_and(|member| member.has_gpu_code);
        let mut ranks = ranks::innermost(&parents, &numbers, |family| {
            let rings: Vec<u32> = family.iter().copied().filter(has_ring).collect();
            // Workers of a loader have loaded the same.
            if rings.is_empty() {
                family.iter().copied().find(has_gpu_code).into_iter().collect()
            } else {
                rings
            }
        });
        let told: BTreeSet<RankNumbers> =
            ranks.iter().filter(|pid| has_ring(pid)).filter_map(|pid| numbers.get(pid)).copied().collect();
        ranks.extend(self.members.iter().filter(|(_, m)| m.ring.is_some()).map(|(pid, _)| *pid));
        if let (true, Target::Pids(roots)) = (ranks.is_empty(), &self.target) {
            // Nothing says who computes: what was named, or what it has started, is all there is to watch.
            let starts = |pid: &u32| all.get(pid).is_some_and(|s| follow::starts_others(&self.proc, *pid, s));
            let age = self.began.elapsed();
            let is_due = |pid: &u32| age > UNNAMED && (age > STARTING || !starts(pid));
            ranks.extend(ranks::unnamed(&parents, roots).into_iter().filter(is_due));
        }
        let is_known = |member: &JobProcess| {
            member.ring.is_some() || member.env.as_ref().is_some_and(|env| env.rank.is_some())
        };
        let has_known = ranks.iter().filter_map(|pid| self.members.get(pid)).any(is_known);
        self.members.retain(|pid, member| {
            member.is_rank |= ranks.contains(pid);
            if let Some(number) = numbers.get(pid).filter(|_| !ranks.contains(pid)) {
                // It was taken for the rank before that one was there or could be distinguished.
                member.is_rank = false;
                member.is_beside |= told.contains(number);
            }
            // What was taken for a rank for want of a better one is none.
            member.is_rank &= !has_known || is_known(member);
            let stays = member.is_rank || is_it(all.get(pid), member);
            if !stays && self.left_logs.len() < MAX_LEFT_LOGS {
                self.left_logs.append(&mut member.logs);
            }
            stays
        });
    }

    /// Of several processes of one rank, those that compute have loaded what does it.
    fn find_gpu_code(&mut self, numbers: &BTreeMap<u32, RankNumbers>) {
        let now = Instant::now();
        let mut by_number: BTreeMap<_, Vec<u32>> = BTreeMap::new();
        for (pid, number) in numbers {
            by_number.entry(*number).or_default().push(*pid);
        }
        let has_ring = |pid: &u32| self.members.get(pid).is_some_and(|member| member.ring.is_some());
        by_number.retain(|_, pids| pids.len() > 1 && !pids.iter().any(has_ring));
        for pid in by_number.into_values().flatten() {
            let due = |member: &&mut JobProcess| !member.has_gpu_code && member.next_gpu_code <= now;
            let Some(member) = self.members.get_mut(&pid).filter(due) else { continue };
            member.has_gpu_code = follow::has_gpu_code(&self.proc, pid).unwrap_or_default();
            member.next_gpu_code = now + member.gpu_code_pause;
            member.gpu_code_pause = (member.gpu_code_pause * 2).min(RETRY_MOST);
        }
    }

    /// Workers of a data loader carry their rank's variables, and live on for some seconds when it dies; so may the shell
    /// around it.
    fn leave_out_orphans(&mut self, parents: &Parents, numbers: &mut BTreeMap<u32, RankNumbers>) {
        let mut orphans = BTreeSet::new();
        for pid in numbers.keys() {
            let parent = ranks::parent_of_same(parents, numbers, *pid);
            let computes = |above: u32| self.members.get(&above).is_some_and(|m| m.ring.is_some());
            let Some(under) = self.members.get(pid).map(|member| parent.or(member.under)) else { continue };
            if parent.is_none() && under.is_some_and(computes) {
                orphans.insert(*pid);
            }
            if let Some(member) = self.members.get_mut(pid) {
                member.under = under;
            }
        }
        let is_beside = |pid: &u32| self.members.get(pid).is_some_and(|m| m.is_beside && m.ring.is_none());
        numbers.retain(|pid, _| !orphans.contains(pid) && !is_beside(pid));
    }

    /// `now`: when this look began, so that what is due at once is due in it.
    fn slot(&mut self, pid: u32, stat: &Stat, now: Instant) -> &mut JobProcess {
        let member = self.members.entry(pid).or_insert_with(|| JobProcess::new(stat, now));
        if member.start_ticks != stat.started_ticks {
            // Another process has the number now.
            *member = JobProcess::new(stat, now);
        }
        member
    }

    /// Rings of processes that have none yet, by the folder and by the maps.
    fn open_rings(&mut self, all: &BTreeMap<u32, Stat>, here: &BTreeSet<u32>) {
        let now = Instant::now();
        let missing: BTreeSet<u32> = here
            .iter()
            .copied()
            .filter(|pid| self.members.get(pid).is_some_and(|m| !m.sees() && !m.is_gone))
            .collect();
        if missing.is_empty() {
            return;
        }
        let mut found: BTreeMap<u32, Vec<RingFile>> = BTreeMap::new();
        for ring in self.folders.iter().flat_map(|folder| follow::rings_in(folder)) {
            if missing.contains(&ring.inner_pid)
                && let Some(pid) = follow::process_of(&self.proc, all, &ring)
            {
                found.entry(pid).or_default().push(ring);
            }
        }
        for pid in missing {
            let Some(member) = self.members.get_mut(&pid) else { continue };
            let is_due = member.next_try <= now;
            if is_due {
                member.next_try = now + member.pause;
                member.pause = (member.pause * 2).min(RETRY_MOST);
            }
            let mut files = found.remove(&pid).unwrap_or_default();
            // Of several files only the one that it writes is meant, and one by its name alone may be an old one's.
            if is_due && (files.len() != 1 || member.ring.is_some()) {
                // A forked helper has its parent's ring mapped as well: only the writer is meant.
                let is_writer = |ring: &RingFile| follow::inner_pid(&self.proc, pid) == Some(ring.inner_pid);
                let mapped = follow::mapped_ring(&self.proc, pid).filter(is_writer);
                files.splice(0..0, mapped);
            }
            for file in files {
                let before = member.ring.is_some();
                match file.reader() {
                    // One that could not be read must be better now.
                    Ok(reader) if !before || reader.state().is_ok() => {
                        member.ring = Some(Ring { file, reader, failed: None, lacks_kernels: false });
                        member.unopened = None;
                        break;
                    }
                    // One that is just being made is no ring yet.
                    Err(why) if !before && is_due && member.pause > RETRY * 2 => {
                        let gone = if file.held.is_some() { "; its file was removed" } else { "" };
                        member.unopened = Some(format!("{why}{gone}"));
                    }
                    _ => {}
                }
            }
        }
    }

    /// One rank at this moment.
    fn rank(&mut self, pid: u32, stat: Option<&Stat>) -> RankDigest {
        let proc = self.proc.clone();
        let Some(member) = self.members.get_mut(&pid) else {
            return RankDigest { pid, process: ProcessState::Unknown, ..RankDigest::default() };
        };
        if member.is_gone {
            return member.last.clone();
        }
        // A listing of all processes may lack one, and a rank that is taken for dead stays dead: asked by itself. Only that
        // it is not there makes it dead; that nothing can be read, says nothing.
        let asked = if stat.is_none() { follow::ask(&proc, pid) } else { Ok(None) };
        let is_known = asked.is_ok();
        if let Err(error) = &asked {
            self.trouble = Some(format!("/proc/{pid}: {error}"));
        }
        let asked = asked.unwrap_or_default();
        let stat = stat.or(asked.as_ref()).filter(|stat| stat.started_ticks == member.start_ticks);
        let process = if is_known { state_of(stat) } else { ProcessState::Unknown };
        let is_gone = matches!(process, ProcessState::Dead | ProcessState::Zombie);
        let mut digest = match member.ring.as_mut().map(|ring| (ring.reader.state(), ring)) {
            Some((Ok(state), ring)) => {
                ring.failed = None;
                ring.lacks_kernels = state.process.kernels_ended_ns.is_some();
                member.has_network = state.comms.iter().any(|c| c.ended_ns.is_none() && c.nodes != 1);
                from_ring(&state)
            }
            Some((Err(error), ring)) => {
                if ring.failed.replace(error.to_string()).is_none() {
                    (member.next_try, member.pause) = (Instant::now(), RETRY);
                }
                // Its earlier state would look like a stall. For a dead one it is the last state.
                let last = &member.last;
                let (rank, local_rank, world_size) = (last.rank, last.local_rank, last.world_size);
                if is_gone {
                    last.clone()
                } else {
                    RankDigest { rank, local_rank, world_size, ..RankDigest::default() }
                }
            }
            None => RankDigest::default(),
        };
        let env = member.env.clone().unwrap_or_default();
        digest.pid = pid;
        digest.rank = digest.rank.or(env.rank);
        digest.local_rank = digest.local_rank.or(env.local_rank);
        digest.world_size = digest.world_size.or(env.world_size);
        digest.local_world_size = env.local_world_size;
        digest.would_show = env.has_plugin && !member.is_dumb();
        digest.process = process;
        digest.wchan = stat.and_then(|_| follow::wchan(&proc, pid));
        digest.switches = stat.and_then(|_| follow::switches(&proc, pid));
        digest.cpu_ms = stat.map(|stat| stat.cpu_ticks * 1000 / follow::ticks_per_second());
        // A zombie does nothing more, whether its parent collects it or not.
        member.is_gone = is_gone;
        member.exit_code = stat.and_then(|stat| follow::exit_code(&proc, pid, stat));
        member.last = digest.clone();
        digest
    }

    /// Which logs the ranks write: one that has ended has none open. A file may be on a mount that hangs: then only this thread does.
    fn read_logs(&mut self) {
        if let Some(scan) = &self.logs_scan {
            match scan.try_recv() {
                Ok(found) => {
                    for (pid, logs) in found {
                        if let Some(member) = self.members.get_mut(&pid).filter(|_| !logs.is_empty()) {
                            member.logs = logs;
                        }
                    }
                }
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {}
            }
            self.logs_scan = None;
        }
        let is_new = |member: &JobProcess| member.is_rank && !member.is_gone && member.logs.is_empty();
        let now = Instant::now();
        if now < self.next_logs && (now < self.next_new_logs || !self.members.values().any(is_new)) {
            return;
        }
        self.next_logs = now + LOGS;
        // A process that has just begun may not have opened its log, and may be gone within seconds.
        self.next_new_logs = now + self.new_logs_pause;
        self.new_logs_pause = (self.new_logs_pause * 3 / 2).min(LOGS);
        let (sender, receiver) = mpsc::channel();
        let (proc, pids) = (self.proc.clone(), self.pids());
        thread::spawn(move || {
            // The watcher may have ended.
            let _ = sender.send(follow::written_logs(&proc, &pids));
        });
        self.logs_scan = Some(receiver);
    }

    /// What this agent cannot see.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let live = || self.members.iter().filter(|(_, member)| member.is_rank && !member.is_gone);
        let unseen: Vec<u32> =
            live().filter(|(_, m)| m.ring.is_none() && !m.is_dumb()).map(|(pid, _)| *pid).collect();
        if !unseen.is_empty() {
            let path = crate::plugin::find()
                .map_or_else(|| "/path/libringleader_nccl.so".to_owned(), |path| path.display().to_string());
            notes.push(format!(
                "no plugin in pid {}: kernel starts, ends and waits are not visible; start the job with \
                 NCCL_PROFILER_PLUGIN={path}",
                named(&unseen)
            ));
        }
        let why = |member: &JobProcess| {
            member.unopened.clone().or_else(|| member.ring.as_ref().and_then(|ring| ring.failed.clone()))
        };
        for (pid, why) in live().filter_map(|(pid, member)| Some((pid, why(member)?))).take(MAX_NAMED) {
            notes.push(format!(
                "the ring of pid {pid} cannot be read, so its operations are not visible: {why}"
            ));
        }
        let is_removed = |m: &JobProcess| m.ring.as_ref().is_some_and(|ring| ring.file.held.is_some());
        let removed: Vec<u32> = live().filter(|(_, m)| is_removed(m)).map(|(pid, _)| *pid).collect();
        if !removed.is_empty() {
            notes.push(format!(
                "the ring of pid {} was removed: it is read through the process and is lost with it; keep temporary-file cleaners away from its folder",
                named(&removed)
            ));
        }
        let lacks_kernels = |m: &JobProcess| m.ring.as_ref().is_some_and(|ring| ring.lacks_kernels);
        let blind: Vec<u32> = live().filter(|(_, m)| lacks_kernels(m)).map(|(pid, _)| *pid).collect();
        if !blind.is_empty() {
            notes.push(format!(
                "kernels of pid {}: since a broadcast this NCCL reports them wrongly, so they are no longer requested; \
                 NCCL_ALLGATHERV_ENABLE=0 in the job's environment keeps them",
                named(&blind)
            ));
        }
        if let Some(why) = &self.trouble {
            notes.push(format!("it is now unknown whether processes are alive: {why}"));
        }
        if !self.had_ranks && matches!(self.target, Target::Rings | Target::Group(_)) {
            let folders: Vec<String> =
                self.folders.iter().map(|folder| folder.display().to_string()).collect();
            notes.push(format!("no ring of a live process in {} yet", folders.join(" or ")));
        }
        notes
    }

    /// Stacks that were taken since, by pid.
    pub(crate) fn put_stacks(&mut self, stacks: BTreeMap<u32, Vec<String>>) {
        self.stacks_ns = crate::watch::now_ns();
        self.stacks = stacks;
    }

    /// Folders of rings.
    pub(crate) fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// Processes of the job that live.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.members.iter().filter(|(_, member)| !member.is_gone).map(|(pid, _)| *pid).collect()
    }

    /// Ranks that live.
    pub(crate) fn rank_pids(&self) -> Vec<u32> {
        let is_meant = |member: &&JobProcess| member.is_rank && !member.is_gone;
        self.members.values().filter(is_meant).map(|member| member.last.pid).filter(|pid| *pid != 0).collect()
    }

    /// When a process of the job began, seconds since 1970.
    pub(crate) fn began(&self, pid: u32) -> Option<f64> {
        self.members.get(&pid).map(|member| follow::began(member.start_ticks))
    }

    /// How a process of the job ended, if that was seen: its exit code, or the number of its signal, negative.
    pub(crate) fn exit_code(&self, pid: u32) -> Option<i64> {
        self.members.get(&pid)?.exit_code
    }

    /// Whether the job was there and nothing of it is left.
    pub(crate) fn is_over(&self) -> bool {
        let all = follow::processes(&self.proc);
        let lives = |stat: &Stat| !matches!(&*stat.state, "Z" | "X");
        // What cannot be read now may live.
        let is_there = |pid: u32| match all.get(&pid) {
            Some(stat) => lives(stat),
            None => follow::ask(&self.proc, pid).map_or(true, |stat| stat.as_ref().is_some_and(lives)),
        };
        let is_left = match &self.target {
            Target::Pids(roots) => roots.iter().any(|pid| is_there(*pid)),
            // As long as none was seen to be a rank, each of its processes may become one.
            _ if !self.had_ranks => self.members.keys().any(|pid| is_there(*pid)),
            Target::Slurm(_) | Target::Rings | Target::Group(_) => false,
        };
        self.had_target && !is_left && self.members.values().all(|member| member.is_gone || !member.is_rank)
    }

    /// Ranks that died with an operation in flight. Communicators alone say nothing: many programs end without ending them.
    pub(crate) fn cut_off(&self) -> Vec<u32> {
        let in_flight =
            |m: &&JobProcess| m.last.comms.iter().any(|comm| comm.n_in_flight > 0 && !comm.is_ended);
        let gone = self.members.values().filter(|member| member.is_gone && !member.last.is_ended);
        gone.filter(in_flight).map(|member| member.last.pid).collect()
    }

    /// Ranks that are gone without ever having a visible communicator: it is unknown whether they ended normally.
    pub(crate) fn never_seen(&self) -> bool {
        let rank = |member: &JobProcess| member.env.as_ref().and_then(|env| env.rank).or(member.last.rank);
        let shows = |member: &&JobProcess| member.last.is_ended || !member.last.comms.is_empty();
        // Workers of a data loader carry the number of their rank and have no communicator.
        let seen: BTreeSet<Option<u32>> = self.members.values().filter(shows).map(rank).collect();
        self.members.values().any(|m| m.is_rank && m.is_gone && !shows(&m) && !seen.contains(&rank(m)))
    }

    /// The rings at this moment, those of the dead included.
    pub(crate) fn images(&self) -> Vec<RingImage> {
        let image = |pid: &u32, member: &JobProcess| {
            let ring = member.ring.as_ref()?;
            Some(RingImage {
                name: ring.file.name.clone(),
                path: ring.file.reachable(),
                pid: Some(*pid),
                bytes: ring.reader.image().ok()?,
            })
        };
        self.members.iter().filter_map(|(pid, member)| image(pid, member)).collect()
    }

    /// Logs that living ranks write.
    pub(crate) fn logs(&self) -> Vec<PathBuf> {
        let logs: BTreeSet<&PathBuf> =
            self.members.values().filter(|m| !m.is_gone).flat_map(|m| &m.logs).collect();
        logs.into_iter().cloned().collect()
    }

    /// Logs of processes that have died: of the living the collector finds them.
    pub(crate) fn logs_of_the_dead(&self) -> Vec<PathBuf> {
        let gone = self.members.values().filter(|m| m.is_gone).flat_map(|m| &m.logs);
        let logs: BTreeSet<&PathBuf> = gone.chain(&self.left_logs).collect();
        logs.into_iter().filter(|path| path.is_file()).cloned().collect()
    }
}

impl JobProcess {
    fn new(stat: &Stat, now: Instant) -> Self {
        Self {
            start_ticks: stat.started_ticks,
            env: None,
            under: None,
            ring: None,
            next_env: now,
            env_pause: RETRY,
            next_try: now,
            pause: RETRY,
            logs: BTreeSet::new(),
            last: RankDigest::default(),
            has_network: false,
            is_rank: false,
            is_beside: false,
            has_gpu_code: false,
            next_gpu_code: now,
            gpu_code_pause: RETRY,
            is_gone: false,
            exit_code: None,
            unopened: None,
        }
    }

    /// It has a readable ring.
    fn sees(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.failed.is_none())
    }

    /// It has a ring without usable content.
    fn is_dumb(&self) -> bool {
        self.unopened.is_some() || self.ring.is_some() && !self.sees()
    }
}

/// By what a process is one of the job's ranks.
fn number(env: &RankEnv) -> RankNumbers {
    RankNumbers { rank: env.rank, local_rank: env.local_rank }
}

/// Processor time, milliseconds, of the processes that each rank has started: workers of a loader, compilers.
fn below(all: &BTreeMap<u32, Stat>, ranks: &[RankDigest]) -> BTreeMap<u32, u64> {
    let ranks: BTreeSet<u32> = ranks.iter().map(|digest| digest.pid).collect();
    let mut out = BTreeMap::new();
    for (pid, stat) in all.iter().filter(|(pid, _)| !ranks.contains(pid)) {
        let mut above = std::iter::successors(Some(stat.ppid), |at| all.get(at).map(|stat| stat.ppid));
        // Numbers that are reused while they are read could form a circle.
        if let Some(rank) =
            above.by_ref().take(MAX_DEPTH).take_while(|at| at != pid).find(|at| ranks.contains(at))
        {
            *out.entry(rank).or_default() += stat.cpu_ticks * 1000 / follow::ticks_per_second();
        }
    }
    out
}

/// `17, 18 and 4 more`.
fn named(pids: &[u32]) -> String {
    let first: Vec<String> = pids.iter().take(MAX_NAMED).map(u32::to_string).collect();
    match pids.len().saturating_sub(MAX_NAMED) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// Without a descriptor left nothing can be seen of anything. A command of ours has been started by now, with what it was given.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS));
    if limit.current.is_some_and(|current| current < wanted) {
        // What is refused was not to be had.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum });
    }
}

fn is_it(stat: Option<&Stat>, member: &JobProcess) -> bool {
    !member.is_gone && stat.is_some_and(|stat| stat.started_ticks == member.start_ticks)
}

fn state_of(stat: Option<&Stat>) -> ProcessState {
    match stat.map(|stat| stat.state.as_str()) {
        None | Some("X") => ProcessState::Dead,
        Some("T" | "t") => ProcessState::Stopped,
        Some("D") => ProcessState::Uninterruptible,
        Some("Z") => ProcessState::Zombie,
        Some(_) => ProcessState::Alive,
    }
}
