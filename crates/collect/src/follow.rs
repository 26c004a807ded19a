//! What a follower reads of a job's processes repeatedly: who belongs to the job, whether each runs, sleeps, is stopped
//! or stuck, and which ring of the plugin it writes.
//!
//! `stat`, `status` and `wchan` never wait for the process. Its maps and its environment do, where it hangs in its own
//! address space; those are read with patience and not at every look.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringleader_knowledge::{command, program};
use ringleader_ring::Reader;
use ringleader_watch::membership::ranks::Parents;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::allowed;
use crate::procfs::{self, status};
use crate::request::FileAsk;
use crate::sysfs::{names, text};
use crate::tasks::open;

pub use crate::procfs::Stat;

/// Patience with a file of a process that may hang.
const PATIENCE: Duration = Duration::from_millis(150);
/// Variables that give a process a rank: as `ringleader_node::Process::rank` reads them.
const RANKS: &[&str] =
    &["RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "JAX_PROCESS_ID", "SLURM_PROCID"];
const LOCAL_RANKS: &[&str] =
    &["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];
const WORLD_SIZES: &[&str] =
    &["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE", "PMI_SIZE", "JAX_NUM_PROCESSES", "SLURM_NTASKS"];
const LOCAL_WORLD_SIZES: &[&str] =
    &["LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"];
/// Part of the name of the plugin's file.
const PLUGIN: &str = "ringleader_nccl";
/// What the plugin calls its files: `ring-<pid>-<start ticks>`.
const RING: &str = "ring-";
/// Ends of names of logs.
const LOGS: &[&str] = &["log", "out", "err", "txt"];
/// Libraries of a process that computes on GPUs: NVIDIA's driver, and NCCL.
const GPU_CODE: &[&str] = &["libcuda.so", "libnccl.so"];
/// Open files of one process that are looked at.
const MAX_FILES: usize = 4096;
/// Rings of one folder that are looked at.
const MAX_RINGS: usize = 16_384;

/// What a process's environment says of its place in the job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankEnv {
    /// Global rank.
    pub rank: Option<u32>,
    /// Rank on this node.
    pub local_rank: Option<u32>,
    /// Ranks of the job.
    pub world_size: Option<u32>,
    /// Ranks of the job on this node.
    pub local_world_size: Option<u32>,
    /// NCCL is configured to load this program's plugin.
    pub has_plugin: bool,
    /// Where NCCL's RAS listens, if it is not the usual place; none if it is off.
    pub ras: Option<String>,
    /// Jobs of Slurm that it belongs to by its environment.
    pub slurm_job: Option<String>,
    /// Rendezvous of its job, and what distinguishes two runs with the same rendezvous.
    pub meeting: Option<String>,
}

/// Where RAS listens by default.
pub const RAS_DEFAULT: &str = "localhost:28028";

/// All processes.
pub fn processes(proc: &Path) -> BTreeMap<u32, Stat> {
    procfs::processes(proc)
}

/// The parent of each process.
pub fn parents(all: &BTreeMap<u32, Stat>) -> Parents {
    all.iter().map(|(pid, stat)| (*pid, stat.ppid)).collect()
}

/// How a process that has ended and is not collected yet (state Z) ended: its exit code, or the number of its signal, negative.
/// None for one that lives, or where the kernel does not tell this user.
pub fn exit_code(proc: &Path, pid: u32, stat: &Stat) -> Option<i64> {
    let owner = || fs::metadata(proc.join(pid.to_string())).ok().map(|at| at.uid());
    (stat.state == "Z").then(owner).flatten().and_then(|uid| procfs::exit_code(stat, uid))
}

/// One process; none if it is gone, or cannot be read now.
pub fn process(proc: &Path, pid: u32) -> Option<Stat> {
    ask(proc, pid).ok().flatten()
}

/// One process; none if it is gone for certain.
///
/// # Errors
/// Nothing says whether it is there: no descriptor is left to look with, or it may not be looked at.
pub fn ask(proc: &Path, pid: u32) -> io::Result<Option<Stat>> {
    match fs::read(proc.join(pid.to_string()).join("stat")) {
        Ok(line) => {
            let stat = Stat::parse(String::from_utf8_lossy(&line).trim_end());
            stat.map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
        }
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The only errors by which the kernel says that a process is not there: no such file, or it ended while it was read.
fn is_gone(error: &io::Error) -> bool {
    [Errno::NOENT, Errno::SRCH].iter().any(|gone| error.raw_os_error() == Some(gone.raw_os_error()))
}

/// Whether a process starts ranks and is none: torchrun, mpirun, a shell. Of one that hangs in the kernel the name counts alone,
/// since whoever reads its arguments hangs as well.
pub fn starts_others(proc: &Path, pid: u32, stat: &Stat) -> bool {
    let arguments = (stat.state != "D").then(|| fs::read(proc.join(pid.to_string()).join("cmdline")).ok());
    let arguments = arguments.flatten().map(|bytes| allowed::arguments(&bytes)).unwrap_or_default();
    program::launcher(&stat.command, &arguments).is_some()
        || program::is(program::ProgramRole::Wraps, &stat.command)
}

/// Function of the kernel it sleeps in, where that may be read.
pub fn wchan(proc: &Path, pid: u32) -> Option<String> {
    text(&proc.join(pid.to_string()).join("wchan")).filter(|rank_env| !rank_env.is_empty() && rank_env != "0")
}

/// How many times its main thread has gone to sleep so far.
pub fn switches(proc: &Path, pid: u32) -> Option<u64> {
    let facts = text(&proc.join(pid.to_string()).join("status"))?;
    status(&facts, "voluntary_ctxt_switches")?.parse().ok()
}

/// Clock ticks of a second.
pub fn ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second().max(1)
}

/// Seconds since 1970 at which a process began that says so in ticks since boot (`/proc/PID/stat`, field 22).
pub fn began(started_ticks: u64) -> f64 {
    let uptime = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let uptime = uptime.tv_sec as f64 + uptime.tv_nsec as f64 / 1e9;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    now - uptime + started_ticks as f64 / ticks_per_second() as f64
}

/// Name of this host.
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Whether a process is of this Slurm job, by its group or its environment.
pub fn is_of_slurm(proc: &Path, pid: u32, job: &str) -> bool {
    let groups = text(&proc.join(pid.to_string()).join("cgroup")).unwrap_or_default();
    let part = format!("job_{job}");
    groups.lines().any(|line| line.split('/').any(|name| name == part))
        || rank_env(proc, pid).and_then(|rank_env| rank_env.slurm_job).is_some_and(|id| id == job)
}

/// What its environment says, and where that is silent its command line; none if that cannot be read now. Nothing else of either is
/// kept.
pub fn rank_env(proc: &Path, pid: u32) -> Option<RankEnv> {
    let read = |name: &str| procfs::read_patiently(proc.join(pid.to_string()).join(name), PATIENCE).ok();
    Some(with_options(rank_env_in(&read("environ")?), || read("cmdline")))
}

/// The same for a process whose state was just read from the kernel: only one in an uninterruptible wait hangs its
/// reader.
pub(crate) fn rank_env_of(proc: &Path, pid: u32, stat: &Stat) -> Option<RankEnv> {
    if stat.state == "D" {
        return rank_env(proc, pid);
    }
    let read = |name: &str| fs::read(proc.join(pid.to_string()).join(name)).ok();
    Some(with_options(rank_env_in(&read("environ")?), || read("cmdline")))
}

/// A shell loop gives each process its rank as an option.
fn with_options(env: RankEnv, read: impl Fn() -> Option<Vec<u8>>) -> RankEnv {
    if env.rank.is_some() {
        return env;
    }
    let words = read().unwrap_or_default();
    let command = String::from_utf8_lossy(&words).replace('\0', " ");
    match command::rank(&command, env.local_rank.is_some()) {
        Some((rank, world)) => RankEnv { rank: Some(rank), world_size: env.world_size.or(world), ..env },
        None => env,
    }
}

fn rank_env_in(environ: &[u8]) -> RankEnv {
    let variable = |name: &str| {
        environ.split(|byte| *byte == 0).find_map(|record| {
            let value = record.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            Some(std::str::from_utf8(value).ok()?.trim().to_owned())
        })
    };
    let number = |names: &[&str]| names.iter().find_map(|name| variable(name)?.parse().ok());
    let is_on = variable("NCCL_RAS_ENABLE").is_none_or(|on| on != "0");
    RankEnv {
        rank: number(RANKS),
        local_rank: number(LOCAL_RANKS),
        world_size: number(WORLD_SIZES),
        local_world_size: number(LOCAL_WORLD_SIZES),
        has_plugin: variable("NCCL_PROFILER_PLUGIN").is_some_and(|path| path.contains(PLUGIN)),
        ras: is_on.then(|| variable("NCCL_RAS_ADDR").unwrap_or_else(|| RAS_DEFAULT.to_owned())),
        slurm_job: variable("SLURM_JOB_ID").or_else(|| variable("SLURM_JOBID")),
        meeting: meeting(&variable),
    }
}

/// A master with its port, else a coordinator, else the job of an MPI launcher.
fn meeting(variable: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let filled = |name: &str| variable(name).filter(|value| !value.is_empty());
    if let (Some(host), Some(port)) = (filled("MASTER_ADDR"), filled("MASTER_PORT")) {
        let run = filled("TORCHELASTIC_RUN_ID").unwrap_or_default();
        return Some(format!("{host}:{port} {run}").trim_end().to_owned());
    }
    ["JAX_COORDINATOR_ADDRESS", "PMIX_NAMESPACE", "PMI_JOBID"].iter().find_map(|name| filled(name))
}

/// A ring file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RingFile {
    /// Root of its process, where that has mounts of its own.
    pub root: Option<PathBuf>,
    /// Its path below that root.
    pub path: PathBuf,
    /// Its name.
    pub name: String,
    /// Pid in its name: as the process itself sees it.
    pub inner_pid: u32,
    /// Start of the process, clock ticks since boot.
    pub start_ticks: u64,
    /// It has no name any more: where its process still holds it.
    pub held: Option<PathBuf>,
}

impl RingFile {
    /// A ring by its path; none if it is not called as one.
    pub fn at(path: PathBuf) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_owned();
        let (pid, ticks) = name.strip_prefix(RING)?.split_once('-')?;
        let (inner_pid, start_ticks) = (pid.parse().ok()?, ticks.parse().ok()?);
        Some(Self { root: None, path, name, inner_pid, start_ticks, held: None })
    }

    /// Where it can be opened from here.
    pub fn reachable(&self) -> PathBuf {
        match &self.root {
            _ if self.held.is_some() => self.held.clone().unwrap_or_default(),
            Some(root) => root.join(self.path.strip_prefix("/").unwrap_or(&self.path)),
            None => self.path.clone(),
        }
    }

    /// Opens it for reading repeatedly.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn reader(&self) -> Result<Reader, String> {
        let at = self.reachable();
        let file = self.open().map_err(|error| format!("open {}: {error}", at.display()))?;
        Reader::of(file, &at).map_err(|error| error.to_string())
    }

    /// A consistent image of it: itself a ring file.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn image(&self) -> Result<Vec<u8>, String> {
        self.reader()?.image().map_err(|error| error.to_string())
    }

    /// Opens it. A link in a container leads to nothing outside of it.
    ///
    /// # Errors
    /// Those of opening; if it is not a regular file.
    pub fn open(&self) -> io::Result<File> {
        if let Some(held) = &self.held {
            return open_held(held);
        }
        open(&FileAsk { root: self.root.clone(), path: self.path.clone(), ..FileAsk::default() })
    }
}

/// The folder of rings: `$RINGLEADER_RING_DIR`, else /dev/shm/ringleader, else /tmp/ringleader.
pub fn ring_folders() -> Vec<PathBuf> {
    match std::env::var_os("RINGLEADER_RING_DIR").filter(|value| !value.is_empty()) {
        Some(folder) => vec![folder.into()],
        None => vec!["/dev/shm/ringleader".into(), "/tmp/ringleader".into()],
    }
}

/// The first bytes of a file; none if it cannot be read.
pub(crate) fn head(path: &Path, most_bytes: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(most_bytes).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Rings of a folder, by name. Only regular files.
pub fn rings_in(folder: &Path) -> Vec<RingFile> {
    let mut rings: Vec<RingFile> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .take(MAX_RINGS)
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .filter_map(|entry| RingFile::at(entry.path()))
        .collect();
    rings.sort();
    rings
}

/// Opens what a process holds open or has mapped, if that is a regular file: it is looked at before it is opened, as a
/// device may do something by being opened.
fn open_held(path: &Path) -> io::Result<File> {
    let seen = File::from(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?);
    if !seen.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    File::open(format!("/proc/self/fd/{}", seen.as_raw_fd()))
}

/// The live process of a ring, by the pid and start time in its name as seen from this process, and by its owner: in a
/// shared folder any user may create a file with that name.
pub fn process_of(proc: &Path, all: &BTreeMap<u32, Stat>, ring: &RingFile) -> Option<u32> {
    let is_it = |stat: &Stat| stat.started_ticks == ring.start_ticks && !matches!(&*stat.state, "Z" | "X");
    let pid = all.get(&ring.inner_pid).filter(|stat| is_it(stat)).map(|_| ring.inner_pid)?;
    let owner = fs::symlink_metadata(ring.reachable()).ok()?.uid();
    is_user(proc, pid, owner).then_some(pid)
}

/// Whether a process acts as this user.
fn is_user(proc: &Path, pid: u32, user: u32) -> bool {
    let facts = text(&proc.join(pid.to_string()).join("status")).unwrap_or_default();
    // The owner of /proc/PID is root where a process may not be dumped.
    let users = status(&facts, "Uid").unwrap_or_default();
    users.split_whitespace().any(|one| one.parse() == Ok(user))
}

/// The ring that a process has mapped, also one in a container, which is opened through the process's own root, and one
/// whose name is gone, which the process still holds. None if it has none, or its maps cannot be read now.
pub fn mapped_ring(proc: &Path, pid: u32) -> Option<RingFile> {
    let at = proc.join(pid.to_string());
    let maps = maps(proc, pid)?;
    let (range, path) = maps.lines().find_map(|line| {
        // `7f..-7f.. rw-s 00000000 00:1a 42     /dev/shm/ringleader/ring-17-4711`
        let path = line.get(line.find('/')?..)?;
        let (folder, name) = path.rsplit_once('/')?;
        (name.starts_with(RING) && !folder.is_empty()).then(|| (line.split(' ').next(), path))
    })?;
    if let Some(name) = path.strip_suffix(" (deleted)") {
        let folder = at.join("fd");
        // The plugin keeps it open; its mapping may be opened by root alone.
        let is_it = |link: &PathBuf| fs::read_link(link).is_ok_and(|to| to.as_os_str() == path);
        let held = names(&folder).into_iter().take(MAX_FILES).map(|number| folder.join(number)).find(is_it);
        let held = held.or_else(|| Some(at.join("map_files").join(range?)));
        return Some(RingFile { held, ..RingFile::at(PathBuf::from(name))? });
    }
    let ring = RingFile::at(PathBuf::from(path))?;
    let there = RingFile { root: Some(at.join("root")), ..ring.clone() };
    // The plain path outlives the process, where it is the same file.
    let id = |ring: &RingFile| ring.open().and_then(|file| file.metadata()).map(|m| (m.dev(), m.ino())).ok();
    Some(if id(&ring) == id(&there) { ring } else { there })
}

/// Whether a process has loaded what computes on GPUs; none if its maps cannot be read now.
pub fn has_gpu_code(proc: &Path, pid: u32) -> Option<bool> {
    maps(proc, pid).map(|maps| shows_gpu_code(&maps))
}

/// The same for a process outside of uninterruptible waits: reading it cannot hang.
pub(crate) fn has_gpu_code_now(proc: &Path, pid: u32) -> bool {
    let maps = fs::read(proc.join(pid.to_string()).join("maps")).unwrap_or_default();
    shows_gpu_code(&String::from_utf8_lossy(&maps))
}

fn shows_gpu_code(maps: &str) -> bool {
    maps.lines()
        .filter_map(|line| line.rsplit_once('/'))
        .any(|(_, name)| GPU_CODE.iter().any(|library| name.starts_with(library)))
}

fn maps(proc: &Path, pid: u32) -> Option<String> {
    let maps = procfs::read_patiently(proc.join(pid.to_string()).join("maps"), PATIENCE).ok()?;
    Some(String::from_utf8_lossy(&maps).into_owned())
}

/// Files of this host that each of a job's processes has open and that look like its log: its standard output and error,
/// and what is called so, unless a process of none of them has that open for writing as well: a parent of many jobs hands
/// all their logs down. A collector finds them too, but only while the process lives.
pub fn written_logs(proc: &Path, pids: &[u32]) -> Vec<(u32, BTreeSet<PathBuf>)> {
    let logs: Vec<(u32, Vec<OpenLog>)> = pids.iter().map(|pid| (*pid, open_logs(proc, *pid))).collect();
    let outputs: BTreeSet<&Path> = logs
        .iter()
        .flat_map(|(_, open)| open)
        .filter(|open| open.is_output)
        .map(|open| &*open.path)
        .collect();
    let mut doubtful: BTreeSet<(u64, u64)> = logs
        .iter()
        .flat_map(|(_, open)| open)
        .filter(|open| !outputs.contains(&*open.path))
        .map(|open| open.is)
        .collect();
    if !doubtful.is_empty() {
        let others = processes(proc).into_keys().filter(|pid| !pids.contains(pid));
        let theirs: BTreeSet<(u64, u64)> =
            others.flat_map(|pid| open_logs(proc, pid)).map(|open| open.is).collect();
        doubtful.retain(|is| theirs.contains(is));
    }
    let is_own = |open: &&OpenLog| outputs.contains(&*open.path) || !doubtful.contains(&open.is);
    let own = |open: &[OpenLog]| open.iter().filter(is_own).map(|open| open.path.clone()).collect();
    logs.iter().map(|(pid, open)| (*pid, own(open))).collect()
}

/// A log that a process has open for writing.
struct OpenLog {
    path: PathBuf,
    /// Device and number.
    is: (u64, u64),
    /// It is standard output or error.
    is_output: bool,
}

fn open_logs(proc: &Path, pid: u32) -> Vec<OpenLog> {
    let at = proc.join(pid.to_string());
    let logs = names(&at.join("fd")).into_iter().take(MAX_FILES).filter_map(|number| {
        let link = at.join("fd").join(&number);
        let path = fs::read_link(&link).ok()?;
        let is_named = path.extension().is_some_and(|end| LOGS.iter().any(|log| end == *log));
        let is_output = matches!(&*number, "1" | "2");
        let is_written = || procfs::is_written(&at.join("fdinfo").join(&number));
        if !(is_output || is_named && is_written()) {
            return None;
        }
        // The same path must be the same file here: a container has files of its own.
        let (theirs, ours) = (fs::metadata(&link).ok()?, fs::metadata(&path).ok()?);
        let is = (theirs.dev(), theirs.ino());
        (theirs.is_file() && is == (ours.dev(), ours.ino())).then_some(OpenLog { path, is, is_output })
    });
    logs.collect()
}

/// Pid of a process within its innermost namespace.
pub fn inner_pid(proc: &Path, pid: u32) -> Option<u32> {
    let facts = text(&proc.join(pid.to_string()).join("status"))?;
    status(&facts, "NSpid")?.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(ppid: u32) -> Stat {
        Stat { ppid, state: "S".to_owned(), started_ticks: 7, ..Stat::default() }
    }

    #[test]
    fn a_rank_by_its_environment_or_its_options() {
        let root = tempfile::tempdir().unwrap();
        let rank = |environ: &str, command: &str| {
            fs::create_dir_all(root.path().join("7")).unwrap();
            fs::write(root.path().join("7/environ"), environ).unwrap();
            fs::write(root.path().join("7/cmdline"), command).unwrap();
            rank_env(root.path(), 7).map(|env| (env.rank, env.world_size))
        };
        let track = "python\0track.py\0--process-id\x001\0--num-processes=2\0";
        assert_eq!(rank("HOME=/\0", track), Some((Some(1), Some(2))));
        assert_eq!(rank("RANK=0\0", track), Some((Some(0), None)));
        // A matrix of rank 16, unless it is known to be a rank.
        let lora = "python\0tune.py\0--rank\x0016\0";
        assert_eq!(rank("HOME=/\0", lora), Some((None, None)));
        assert_eq!(rank("LOCAL_RANK=0\0", lora), Some((Some(16), None)));
    }

    #[test]
    fn only_what_is_not_there_is_gone() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(ask(root.path(), 7).unwrap(), None);
        // It is there, and cannot be read: as without a descriptor left.
        fs::create_dir_all(root.path().join("7/stat")).unwrap();
        assert!(ask(root.path(), 7).is_err());
        fs::create_dir(root.path().join("8")).unwrap();
        fs::write(root.path().join("8/stat"), "").unwrap();
        assert!(ask(root.path(), 8).is_err());
        let own = ask("/proc".as_ref(), std::process::id()).unwrap();
        assert!(own.is_some_and(|stat| stat.started_ticks > 0));
    }

    #[test]
    fn a_ring_is_told_by_its_name_and_its_process_by_pid_and_start() {
        let ring = RingFile::at("/dev/shm/ringleader/ring-12-7".into()).unwrap();
        assert_eq!((ring.inner_pid, ring.start_ticks), (12, 7));
        assert_eq!(RingFile::at("/x/ring-12".into()), None);
        assert_eq!(RingFile::at("/x/string-1-2".into()), None);
    }

    #[test]
    fn a_ring_belongs_to_the_user_of_its_process() {
        let root = tempfile::tempdir().unwrap();
        let proc = root.path().join("proc");
        fs::create_dir_all(proc.join("12")).unwrap();
        let ring = RingFile::at(root.path().join("ring-12-7")).unwrap();
        fs::write(&ring.path, "x").unwrap();
        let owner = fs::metadata(&ring.path).unwrap().uid();
        let users = |user: u32| {
            let facts = format!("Name:\tx\nUid:\t{user}\t{user}\t{user}\t{user}\nGid:\t{owner}\n");
            fs::write(proc.join("12/status"), facts).unwrap();
        };
        let all: BTreeMap<u32, Stat> = [(12, stat(1))].into();
        users(owner);
        assert_eq!(process_of(&proc, &all, &ring), Some(12));
        let other = RingFile { start_ticks: 8, ..ring.clone() };
        assert_eq!(process_of(&proc, &all, &other), None, "the pid was used again");
        users(owner + 1);
        assert_eq!(process_of(&proc, &all, &ring), None, "somebody else has laid it there");
    }

    #[test]
    fn a_ring_whose_name_is_gone_is_read_through_its_process() {
        use ringleader_ring::{RingOptions, Writer};
        let root = tempfile::tempdir().unwrap();
        let directories = vec![root.path().to_owned()];
        let writer =
            Writer::create(&RingOptions { directories, rank: Some(3), ..RingOptions::default() }).unwrap();
        let own = std::process::id();
        let before = mapped_ring("/proc".as_ref(), own).unwrap();
        assert_eq!((&*before.path, before.held.is_some()), (writer.path(), false));
        fs::remove_file(writer.path()).unwrap();
        // Not even another file of the same name is taken for it.
        fs::write(writer.path(), "x").unwrap();
        let ring = mapped_ring("/proc".as_ref(), own).unwrap();
        assert_eq!((&*ring.path, ring.held.is_some()), (writer.path(), true));
        assert_eq!(ring.reader().unwrap().state().unwrap().process.rank, Some(3));
    }

    #[test]
    fn a_mapped_ring_is_found_by_the_maps_of_its_process() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path().join("42");
        fs::create_dir_all(at.join("root/dev/shm/ringleader")).unwrap();
        fs::write(at.join("root/dev/shm/ringleader/ring-1-99"), "x").unwrap();
        let maps = "7f00-7f01 r--p 00000000 08:01 5    /usr/lib/libc.so.6\n\
                    7f02-7f03 rw-s 00000000 00:1a 42   /dev/shm/ringleader/ring-1-99\n";
        fs::write(at.join("maps"), maps).unwrap();
        let ring = mapped_ring(root.path(), 42).unwrap();
        assert_eq!((ring.inner_pid, ring.start_ticks), (1, 99));
        assert_eq!(ring.root, Some(at.join("root")));
        assert!(ring.open().is_ok());
        // A link that leads out of the container leads nowhere.
        fs::remove_file(at.join("root/dev/shm/ringleader/ring-1-99")).unwrap();
        std::os::unix::fs::symlink("/etc/hosts", at.join("root/dev/shm/ringleader/ring-1-99")).unwrap();
        assert!(ring.open().is_err());
    }
}
