//! The ring's file: where it is, how it is made, and when an old one is removed.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, CWD, Dir, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::clock::{mono_ns, unix_ns};
use crate::layout::{CALLS, FILE_BYTES, FILE_WORDS, MAGIC, MAJOR, MINOR, REGIONS, head};
use crate::state::State;

/// Directories that are tried in this order if none is given.
pub const DIRECTORIES: [&str; 2] = ["/dev/shm/ringleader", "/tmp/ringleader"];
/// Environment variable that names another directory.
pub const DIRECTORY_VARIABLE: &str = "RINGLEADER_RING_DIR";
/// Prefix of the file names; pid and start time follow.
pub const PREFIX: &str = "ring-";
/// Files of dead processes are removed after this time, seconds.
const KEPT_SECONDS: i64 = 3600;
/// A ring uses at most one part in this many of the free space: a container's /dev/shm is small and belongs to the job.
const PART_OF_FREE: u64 = 8;
/// Directory entries examined for old files.
const OLD_FILES_LOOKED_AT: usize = 4096;

/// Options for creating a ring.
#[derive(Clone, Debug, Default)]
pub struct RingOptions {
    /// Directories to try in this order.
    pub directories: Vec<PathBuf>,
    /// Rank in the job, if the launcher set it.
    pub rank: Option<u32>,
    /// Local rank on the node, if the launcher set it.
    pub local_rank: Option<u32>,
    /// World size, if the launcher set it.
    pub world_size: Option<u32>,
}

impl RingOptions {
    /// Options from the environment.
    pub fn from_environment() -> Self {
        let number = |name: &str| std::env::var(name).ok()?.trim().parse().ok();
        let directories = match std::env::var_os(DIRECTORY_VARIABLE) {
            Some(directory) if !directory.is_empty() => vec![PathBuf::from(directory)],
            _ => DIRECTORIES.iter().map(PathBuf::from).collect(),
        };
        Self {
            directories,
            rank: number("RANK")
                .or_else(|| number("OMPI_COMM_WORLD_RANK"))
                .or_else(|| number("SLURM_PROCID")),
            local_rank: number("LOCAL_RANK")
                .or_else(|| number("OMPI_COMM_WORLD_LOCAL_RANK"))
                .or_else(|| number("SLURM_LOCALID")),
            world_size: number("WORLD_SIZE")
                .or_else(|| number("OMPI_COMM_WORLD_SIZE"))
                .or_else(|| number("SLURM_NTASKS")),
        }
    }
}

/// Why no ring could be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The process's start time cannot be read.
    NoProc,
    /// No directory was given.
    NoDirectory,
    /// The directory cannot be used.
    Directory(PathBuf, Errno),
    /// The file cannot be created.
    File(PathBuf, Errno),
    /// There is not enough free space.
    NoRoom(PathBuf),
    /// The file exists and is not this process's ring.
    NotOurs(PathBuf),
    /// The file cannot be mapped.
    Map(PathBuf),
}

impl fmt::Display for OpenError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProc => to.write_str("read /proc/self/stat"),
            Self::NoDirectory => to.write_str("find a directory for the ring"),
            Self::Directory(path, error) => write!(to, "use directory {}: {error}", path.display()),
            Self::File(path, error) => write!(to, "make {}: {error}", path.display()),
            Self::NoRoom(path) => write!(to, "make a ring in {}: not enough room", path.display()),
            Self::NotOurs(path) => write!(to, "make {}: it exists and is not this process's", path.display()),
            Self::Map(path) => write!(to, "map {}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {}

/// The mapped file.
pub(crate) struct Map {
    raw: memmap2::MmapRaw,
    path: PathBuf,
    /// Holds the lock that shows that the process is alive.
    lock: OwnedFd,
}

impl fmt::Debug for Map {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Map").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Map {
    pub(crate) fn create(options: &RingOptions) -> Result<Self, OpenError> {
        let pid = std::process::id();
        let start_ticks = start_ticks("self").ok_or(OpenError::NoProc)?;
        let name = format!("{PREFIX}{pid}-{start_ticks}");
        let mut failed = OpenError::NoDirectory;
        for directory in &options.directories {
            match Self::create_in(directory, &name, pid, start_ticks, options) {
                Ok(map) => return Ok(map),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn create_in(
        directory: &Path,
        name: &str,
        pid: u32,
        start_ticks: u64,
        options: &RingOptions,
    ) -> Result<Self, OpenError> {
        let dir =
            open_directory(directory).map_err(|error| OpenError::Directory(directory.to_owned(), error))?;
        let path = directory.join(name);
        let failed = |error| OpenError::File(path.clone(), error);
        remove_old(&dir, name);
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (file, is_new) =
            match fs::openat(&dir, name, flags | OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR) {
                Ok(file) => (file, true),
                // The library was unloaded and loaded again in the same process: continue with its ring.
                Err(Errno::EXIST) => (fs::openat(&dir, name, flags, Mode::empty()).map_err(failed)?, false),
                Err(error) => return Err(failed(error)),
            };
        let _unlocked = fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        if is_new && let Err(error) = reserve(&file, &path) {
            let _gone = fs::unlinkat(&dir, name, AtFlags::empty());
            return Err(error);
        }
        let stat = fs::fstat(&file).map_err(failed)?;
        if stat.st_size != FILE_BYTES as i64 || stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(OpenError::NotOurs(path));
        }
        let raw = memmap2::MmapOptions::new()
            .len(FILE_BYTES)
            // Avoids page faults in callbacks.
            .populate()
            .map_raw(&file)
            .map_err(|_| OpenError::Map(path.clone()))?;
        // A forked child has no use for the mapping, which would keep the lock just as an open file does. Where the
        // kernel refuses, a child that outlives this process makes it look alive.
        let _has_own = raw.advise(memmap2::Advice::DontFork);
        let map = Self { raw, path, lock: file };
        if is_new {
            map.fill_header(pid, start_ticks, options);
        } else if map.get(head::MAGIC) != MAGIC
            || map.get(head::VERSION) != MAJOR << 32 | MINOR
            || map.get(head::PID) != u64::from(pid)
            || map.get(head::START_TICKS) != start_ticks
        {
            return Err(OpenError::NotOurs(map.path));
        }
        Ok(map)
    }

    pub(crate) fn lock(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }

    fn fill_header(&self, pid: u32, start_ticks: u64, options: &RingOptions) {
        let one_more = |number: Option<u32>| number.map_or(0, |number| u64::from(number) + 1);
        let made = mono_ns();
        self.set(head::VERSION, MAJOR << 32 | MINOR);
        self.set(head::FILE_BYTES, FILE_BYTES as u64);
        let words = (0..REGIONS.len()).map(|at| head::REGIONS + at * 3).chain([head::CALLS]);
        for (word, region) in words.zip(REGIONS.iter().chain([&CALLS])) {
            self.set(word, region.at as u64);
            self.set(word + 1, region.words as u64);
            self.set(word + 2, region.entries as u64);
        }
        self.set(head::PID, u64::from(pid));
        self.set(head::START_TICKS, start_ticks);
        self.set(head::RANK, one_more(options.rank));
        self.set(head::LOCAL_RANK, one_more(options.local_rank));
        self.set(head::WORLD_SIZE, one_more(options.world_size));
        self.set(head::MADE_MONO, made);
        self.set(head::MADE_UNIX, unix_ns());
        // Any number that two processes are unlikely to share.
        self.set(
            head::SEED,
            (made ^ u64::from(pid).rotate_left(20) ^ start_ticks).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40,
        );
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot_id: Vec<u8> = boot_id.bytes().filter(u8::is_ascii_hexdigit).collect();
        self.set_text(head::BOOT_ID, head::BOOT_ID_WORDS, &boot_id);
        let host = rustix::system::uname();
        self.set_text(head::HOST, head::HOST_WORDS, host.nodename().to_bytes());
        if let Some(magic) = self.words().get(head::MAGIC) {
            magic.store(MAGIC, Ordering::Release);
        }
    }

    fn get(&self, at: usize) -> u64 {
        self.words().get(at).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn set(&self, at: usize, value: u64) {
        if let Some(word) = self.words().get(at) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn set_text(&self, at: usize, words: usize, text: &[u8]) {
        let mut bytes = text.iter().copied().chain(std::iter::repeat(0));
        for word in at..at + words {
            self.set(word, u64::from_le_bytes(std::array::from_fn(|_| bytes.next().unwrap_or(0))));
        }
    }

    #[expect(clippy::cast_ptr_alignment, reason = "a mapping begins on a page")]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is `FILE_WORDS` words long (checked against the file before it was mapped), begins on a
        // page, lives as long as `self`, and is only ever used as atomics: the file's other users map it read-only or
        // read it. Only the file's owner could truncate it.
        unsafe { std::slice::from_raw_parts(self.raw.as_ptr().cast::<AtomicU64>(), FILE_WORDS) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Allocates the file's blocks now: a full file system is an error here, not a SIGBUS later.
fn reserve(file: &OwnedFd, path: &Path) -> Result<(), OpenError> {
    let failed = |error| OpenError::File(path.to_owned(), error);
    let room = fs::fstatvfs(file).map_err(failed)?;
    if room.f_bavail.saturating_mul(room.f_frsize) / PART_OF_FREE < FILE_BYTES as u64 {
        return Err(OpenError::NoRoom(path.to_owned()));
    }
    fs::ftruncate(file, FILE_BYTES as u64).map_err(failed)?;
    fs::fallocate(file, FallocateFlags::empty(), 0, FILE_BYTES as u64).map_err(|error| match error {
        Errno::NOSPC => OpenError::NoRoom(path.to_owned()),
        error => failed(error),
    })
}

/// Opens the directory; creates it like /tmp if it is missing: every user's job may use it, none may touch another's
/// files.
fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match fs::openat(CWD, path, flags, Mode::empty()) {
        Err(Errno::NOENT) => {}
        opened => return opened,
    }
    match fs::mkdirat(CWD, path, Mode::from_raw_mode(0o700)) {
        Ok(()) => {
            let dir = fs::openat(CWD, path, flags, Mode::empty())?;
            fs::fchmod(&dir, Mode::from_raw_mode(0o1777))?;
            Ok(dir)
        }
        Err(Errno::EXIST) => fs::openat(CWD, path, flags, Mode::empty()),
        Err(error) => Err(error),
    }
}

/// Removes this user's rings of processes that have been gone for an hour: nobody holds the lock, and `/proc` has no
/// such process. The lock works across pid namespaces, `/proc` does not.
fn remove_old(dir: &OwnedFd, own: &str) {
    let Ok(entries) = Dir::read_from(dir) else { return };
    let now = (unix_ns() / 1_000_000_000) as i64;
    for entry in entries.take(OLD_FILES_LOOKED_AT).flatten() {
        let Ok(name) = entry.file_name().to_str() else { continue };
        let Some((pid, ticks)) = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-')) else {
            continue;
        };
        if name == own || pid.parse::<u32>().is_err() || ticks.parse::<u64>().is_err() {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let Ok(file) = fs::openat(dir, name, flags, Mode::empty()) else { continue };
        let Ok(stat) = fs::fstat(&file) else { continue };
        let is_old = stat.st_uid == rustix::process::geteuid().as_raw()
            && fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::RegularFile
            && now.saturating_sub(stat.st_mtime) > KEPT_SECONDS;
        let lives = || start_ticks(pid).is_some_and(|found| ticks.parse() == Ok(found));
        if is_old
            && fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
            && !lives()
            && now.saturating_sub(newest_seconds(file)) > KEPT_SECONDS
        {
            let _gone = fs::unlinkat(dir, name, AtFlags::empty());
        }
    }
}

/// The newest time in a ring, seconds since 1970: writing through a mapping does not update the file's own time.
fn newest_seconds(file: OwnedFd) -> i64 {
    let mut bytes = Vec::new();
    let read = std::fs::File::from(file).take(FILE_BYTES as u64 * 4).read_to_end(&mut bytes);
    match State::parse(&bytes) {
        Ok(state) if read.is_ok() => (state.taken.unix_ns / 1_000_000_000) as i64,
        _ => 0,
    }
}

/// Field 22 of `/proc/PID/stat`. The name before it may contain anything, so fields are counted from the last bracket.
fn start_ticks(pid: &str) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}
