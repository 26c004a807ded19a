//! Which ranks of this node belong to one job, regardless of what started them: by the rings that they write, the place
//! where their environment says that they meet, and the connections that the kernel shows between them. Nothing is
//! asked of them.
//!
//! A job's ranks need not be below one process: a shell loop, mpirun's daemon, a container for each. And one process
//! may be above many jobs: a sweep, a notebook, a step of Slurm.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringleader_knowledge::program;
use ringleader_watch::membership::jobs::{LiveProcess, akin, jobs, roots};
use ringleader_watch::membership::ranks::{self, Parents, RankNumbers};

use crate::follow::{self, RankEnv, RingFile, Stat};
use crate::sockets::{self, SocketState};
use crate::sysfs::text;
use crate::{procfs, tcp};

/// What a process says is read again after this, and each time later: communicators are made one after the other.
pub const RETRY: Duration = Duration::from_millis(500);
/// The longest such pause.
pub const RETRY_MOST: Duration = Duration::from_secs(20);
/// Memory of the smallest process that has loaded what computes on GPUs: CUDA's driver alone takes more.
const LEAST_GPU_BYTES: u64 = 32 << 20;
/// Processes that are looked into.
const MAX_PROCESSES: usize = 65_536;
/// Ports of a job that other processes may share: a connection to them proves nothing.
const SHARED_PORTS: [u16; 1] = [28_028];

/// Looks for the jobs of this node, repeatedly: what is known of a process is kept.
pub struct Kin {
    proc: PathBuf,
    folders: Vec<PathBuf>,
    /// Only what writes a ring in these folders is meant.
    pub rings_alone: bool,
    known: BTreeMap<(u32, u64), KnownProcess>,
}

struct KnownProcess {
    uid: u32,
    env: Option<RankEnv>,
    /// It has loaded what computes on GPUs.
    has_gpu_code: bool,
    comms: BTreeSet<String>,
    rank: Option<u32>,
    world_size: Option<u32>,
    next: Instant,
    pause: Duration,
}

/// One job of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Its ranks, by pid.
    pub pids: BTreeSet<u32>,
    /// The process by which it is known: what started its ranks, or its first rank.
    pub root: u32,
    /// Rendezvous of its ranks, as far as their environment shows it.
    pub meeting: Option<String>,
    /// One of them writes a ring.
    pub has_ring: bool,
}

impl Kin {
    /// The rings in these folders count.
    pub fn new(proc: &Path, folders: Vec<PathBuf>) -> Self {
        Self { proc: proc.to_owned(), folders, rings_alone: false, known: BTreeMap::new() }
    }

    /// The jobs at this moment, by their first pid.
    pub fn jobs(&mut self, all: &BTreeMap<u32, Stat>) -> Vec<Job> {
        self.grouped(all, jobs)
    }

    /// Ranks that belong together for certain: by communicators, connections, or the place where they meet. One parent is
    /// not enough.
    pub fn akin(&mut self, all: &BTreeMap<u32, Stat>) -> Vec<Job> {
        self.grouped(all, akin)
    }

    fn grouped(
        &mut self,
        all: &BTreeMap<u32, Stat>,
        group: fn(&[LiveProcess]) -> Vec<BTreeSet<u32>>,
    ) -> Vec<Job> {
        let rings: BTreeMap<u32, RingFile> = self
            .folders
            .iter()
            .flat_map(|folder| follow::rings_in(folder))
            .filter_map(|ring| Some((follow::process_of(&self.proc, all, &ring)?, ring)))
            .collect();
        self.known.retain(|(pid, ticks), _| all.get(pid).is_some_and(|stat| stat.started_ticks == *ticks));
        // Threads of the kernel have no memory.
        let lives = |stat: &Stat| !matches!(&*stat.state, "Z" | "X") && stat.resident_pages > 0;
        for (pid, stat) in all.iter().filter(|(_, stat)| lives(stat)).take(MAX_PROCESSES) {
            self.know(*pid, stat, rings.get(pid));
        }
        let mut writers = self.writers(all, &rings);
        writers.retain(|writer| !self.rings_alone || rings.contains_key(&writer.pid));
        self.link(&mut writers);
        let job = |pids: BTreeSet<u32>| Job {
            meeting: writers.iter().filter(|w| pids.contains(&w.pid)).find_map(|w| w.meeting.clone()),
            has_ring: pids.iter().any(|pid| rings.contains_key(pid)),
            pids,
            root: 0,
        };
        let mut found: Vec<Job> = group(&writers).into_iter().map(job).collect();
        // A program of one process that only computes on a GPU is no job of ranks.
        found.retain(|job| {
            let is_told = |pid: &u32| self.of(all, *pid).is_some_and(|k| k.env_rank().is_some());
            job.has_ring || job.pids.len() > 1 || job.pids.iter().any(is_told)
        });
        let pids: Vec<&BTreeSet<u32>> = found.iter().map(|job| &job.pids).collect();
        let roots = roots(&pids, &follow::parents(all));
        for (job, root) in found.iter_mut().zip(roots) {
            job.root = root;
        }
        found
    }

    fn of(&self, all: &BTreeMap<u32, Stat>, pid: u32) -> Option<&KnownProcess> {
        self.known.get(&(pid, all.get(&pid)?.started_ticks))
    }

    fn know(&mut self, pid: u32, stat: &Stat, ring: Option<&RingFile>) {
        let (now, proc) = (Instant::now(), &self.proc);
        let known = self.known.entry((pid, stat.started_ticks)).or_insert_with(|| {
            let facts = text(&proc.join(pid.to_string()).join("status")).unwrap_or_default();
            let uid =
                procfs::status(&facts, "Uid").and_then(|ids| ids.split_whitespace().next()?.parse().ok());
            KnownProcess {
                uid: uid.unwrap_or_default(),
                env: None,
                has_gpu_code: false,
                comms: BTreeSet::new(),
                rank: None,
                world_size: None,
                next: now,
                pause: RETRY,
            }
        });
        if known.next > now {
            return;
        }
        known.next = now + known.pause;
        known.pause = (known.pause * 2).min(RETRY_MOST);
        // Reading the environment of a process that hangs in the kernel hangs, too: once is enough.
        if stat.state != "D" || known.env.is_none() {
            known.env = follow::rank_env_of(proc, pid, stat).or_else(|| known.env.take());
        }
        let may_have = stat.resident_pages * rustix::param::page_size() as u64 >= LEAST_GPU_BYTES;
        if !known.has_gpu_code && may_have && stat.state != "D" {
            known.has_gpu_code = follow::has_gpu_code_now(proc, pid);
        }
        if let Some(Ok(state)) = ring.and_then(|ring| ring.reader().ok()).map(|reader| reader.state()) {
            let shared = state.comms.iter().filter(|comm| comm.size != 1 && comm.id != 0);
            known.comms.extend(shared.map(|comm| format!("{:x} of {}", comm.id, comm.size)));
            known.rank = state.process.rank.or(known.rank);
            known.world_size = state.process.world_size.or(known.world_size);
        }
    }

    /// Computing processes: the innermost of the processes with one rank's variables, and every process that writes a
    /// ring or has loaded a library like NCCL.
    fn writers(&self, all: &BTreeMap<u32, Stat>, rings: &BTreeMap<u32, RingFile>) -> Vec<LiveProcess> {
        let parents = follow::parents(all);
        let own = std::process::id();
        let is_wrapper = |stat: &Stat| program::is(program::ProgramRole::Wraps, &stat.command);
        let numbers: BTreeMap<u32, RankNumbers> = all
            .iter()
            .filter(|(pid, stat)| **pid != own && !matches!(&*stat.state, "Z" | "X"))
            .filter_map(|(pid, stat)| {
                let env = self.known.get(&(*pid, stat.started_ticks))?.env.as_ref()?;
                let is_alone = is_wrapper(stat) && !rings.contains_key(pid);
                (env.rank.is_some() && !is_alone)
                    .then_some((*pid, RankNumbers { rank: env.rank, local_rank: env.local_rank }))
            })
            .collect();
        let has_gpu_code = |pid: &u32| self.of(all, *pid).is_some_and(|known| known.has_gpu_code);
        let mut chosen = ranks::innermost(&parents, &numbers, |family| {
            let writing: Vec<u32> = family.iter().copied().filter(|pid| rings.contains_key(pid)).collect();
            if writing.is_empty() {
                family.iter().copied().find(has_gpu_code).into_iter().collect()
            } else {
                writing
            }
        });
        chosen.extend(rings.keys());
        // Workers and helpers have loaded the same as what started them: only the outermost of these is meant.
        let is_below = |pid: u32, chosen: &BTreeSet<u32>| {
            let mut line = std::iter::successors(parents.get(&pid).copied(), |at| parents.get(at).copied());
            line.by_ref().take(64).any(|above| chosen.contains(&above) || has_gpu_code(&above))
        };
        // A launcher may have loaded the same, too: what is above a rank is none.
        let launchers = above(&parents, &chosen);
        let bare: Vec<u32> = all
            .keys()
            .copied()
            .filter(|pid| has_gpu_code(pid) && !numbers.contains_key(pid) && !launchers.contains(pid))
            .filter(|pid| !is_below(*pid, &chosen))
            .collect();
        chosen.extend(bare);
        let writer = |pid: u32| {
            let stat = all.get(&pid)?;
            let known = self.known.get(&(pid, stat.started_ticks))?;
            let env = known.env.as_ref();
            // What is called localhost is another place in each container.
            let place = tcp::namespace(&self.proc, pid).unwrap_or_default();
            Some(LiveProcess {
                pid,
                uid: known.uid,
                meeting: env.and_then(|env| env.meeting.clone()).map(|at| format!("{at} in {place}")),
                links: BTreeSet::new(),
                comms: known.comms.clone(),
                rank: known.rank.or_else(|| env?.rank),
                world_size: known.world_size.or_else(|| env?.world_size),
                slurm_job: env.and_then(|env| env.slurm_job.clone()),
                session: stat.session,
                parent: stat.ppid,
                started_ticks: stat.started_ticks,
            })
        };
        chosen.into_iter().filter_map(writer).collect()
    }

    /// Who is connected to whom: looked for only where something else does not tell of all.
    fn link(&self, writers: &mut [LiveProcess]) {
        if writers.iter().all(|writer| writer.meeting.is_some() || !writer.comms.is_empty()) {
            return;
        }
        let mut by_place: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for writer in writers.iter() {
            by_place
                .entry(tcp::namespace(&self.proc, writer.pid).unwrap_or_default())
                .or_default()
                .push(writer.pid);
        }
        let mut links: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
        for pids in by_place.into_values().filter(|pids| pids.len() > 1) {
            let Some(first) = pids.first() else { continue };
            let held = sockets::holders(&self.proc, pids.iter().copied());
            for socket in sockets::all(&self.proc.join(first.to_string())) {
                let Some(pid) = held.get(&socket.inode).filter(|_| socket.state == SocketState::Established)
                else {
                    continue;
                };
                if SHARED_PORTS.contains(&socket.own.port()) || SHARED_PORTS.contains(&socket.peer.port()) {
                    continue;
                }
                let end = |at: std::net::SocketAddr| (at.ip().to_canonical(), at.port());
                let (a, b) = (end(socket.own), end(socket.peer));
                let name = format!("{:?} {:?}", a.min(b), a.max(b));
                links.entry(*pid).or_default().insert(name);
            }
        }
        for writer in writers {
            writer.links = links.remove(&writer.pid).unwrap_or_default();
        }
    }
}

/// All processes above these.
fn above(parents: &Parents, pids: &BTreeSet<u32>) -> BTreeSet<u32> {
    let line = |pid: &u32| std::iter::successors(parents.get(pid).copied(), |at| parents.get(at).copied());
    // Numbers that are reused while they are read could form a circle.
    pids.iter().flat_map(|pid| line(pid).take(64)).collect()
}

impl KnownProcess {
    fn env_rank(&self) -> Option<u32> {
        self.rank.or_else(|| self.env.as_ref()?.rank)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    struct Rank(Child);

    impl Drop for Rank {
        fn drop(&mut self) {
            // Fails only if it has ended.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A process that carries a rank, and its variables are to be seen.
    fn rank(rank: u32, port: &str) -> Rank {
        let mut command = Command::new("sleep");
        command.arg("60").env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string());
        command.env("WORLD_SIZE", "2").env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port);
        let child = Rank(command.spawn().unwrap());
        let is_there =
            || follow::rank_env("/proc".as_ref(), child.0.id()).is_some_and(|env| env.rank == Some(rank));
        while !is_there() {
            std::thread::yield_now();
        }
        child
    }

    /// torchrun has loaded NCCL, too, and is no rank.
    #[test]
    fn what_is_above_a_rank_is_its_launcher() {
        let all = BTreeMap::from([(10, 1), (11, 10), (12, 10), (20, 1)]);
        assert_eq!(above(&all, &BTreeSet::from([11, 12])), BTreeSet::from([1, 10]));
        assert_eq!(above(&all, &BTreeSet::from([20])), BTreeSet::from([1]));
    }

    #[test]
    fn two_jobs_of_one_parent_are_two() {
        let all = [rank(0, "64001"), rank(1, "64002"), rank(0, "64002"), rank(1, "64001")];
        let pid = |at: usize| all[at].0.id();
        let proc = Path::new("/proc");
        let look = || Kin::new(proc, Vec::new()).jobs(&follow::processes(proc));
        // On a loaded machine a process that has just begun may escape one look.
        let found = std::iter::repeat_with(look).take(20);
        let is_whole = |found: &Vec<_>| {
            let jobs = found.iter().map(|job: &Job| job.pids.len());
            jobs.filter(|n| *n == 2).count() >= 2
        };
        let found = found.inspect(|_| std::thread::yield_now()).find(is_whole).unwrap();
        let of = |pid: u32| found.iter().find(|job| job.pids.contains(&pid)).map(|job| job.pids.clone());
        assert_eq!(of(pid(0)), Some(BTreeSet::from([pid(0), pid(3)])));
        assert_eq!(of(pid(1)), Some(BTreeSet::from([pid(1), pid(2)])));
    }
}
