//! Files shared with other writers: reads trust nothing, writes are atomic.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// The state of a file: every write of ours changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    len: u64,
    mtime_s: i64,
    mtime_ns: i64,
}

impl Stamp {
    fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain file"));
        }
        Ok(Self {
            inode: metadata.ino(),
            len: metadata.len(),
            mtime_s: metadata.mtime(),
            mtime_ns: metadata.mtime_nsec(),
        })
    }

    /// Seconds by which this file is older than the other, both by the clock of the file system.
    pub(super) fn seconds_before(&self, other: &Self) -> i64 {
        other.mtime_s.saturating_sub(self.mtime_s)
    }
}

/// Opens a file without following a link or waiting for the writer of a pipe. Opening also makes NFS ask its server.
pub(super) fn open(path: &Path) -> io::Result<(File, Stamp)> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let stamp = Stamp::of(&file)?;
    Ok((file, stamp))
}

/// Reads at most `max + 1` bytes, so that the caller sees when a file is too long.
pub(super) fn read(file: File, max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(max as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes a temporary file and renames it: a reader sees the old or the new content. `token` keeps writers apart.
pub(super) fn replace(path: &Path, token: &str, bytes: &[u8]) -> io::Result<()> {
    let beside = write_beside(path, token, bytes)?;
    std::fs::rename(&beside, path).inspect_err(|_| drop(std::fs::remove_file(&beside)))
}

/// The same for a file that only its owner may read.
pub(super) fn replace_private(path: &Path, token: &str, bytes: &[u8]) -> io::Result<()> {
    let beside = write_beside_as(path, token, bytes, 0o600)?;
    std::fs::rename(&beside, path).inspect_err(|_| drop(std::fs::remove_file(&beside)))
}

/// Writes a file that must not exist yet; returns false if it does.
pub(super) fn create(path: &Path, token: &str, bytes: &[u8]) -> io::Result<bool> {
    let beside = write_beside(path, token, bytes)?;
    let linked = std::fs::hard_link(&beside, path);
    // NFS may report an error for a repeated request although the first one succeeded: the link count is reliable.
    let is_ours = linked.is_ok() || std::fs::metadata(&beside).is_ok_and(|metadata| metadata.nlink() == 2);
    std::fs::remove_file(&beside).ok();
    match linked {
        _ if is_ours => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
        Ok(()) => Ok(true),
    }
}

fn write_beside(path: &Path, token: &str, bytes: &[u8]) -> io::Result<std::path::PathBuf> {
    write_beside_as(path, token, bytes, 0o644)
}

fn write_beside_as(path: &Path, token: &str, bytes: &[u8], mode: u32) -> io::Result<std::path::PathBuf> {
    let beside = path.with_file_name(format!(".{token}"));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&beside)?;
    file.write_all(bytes)?;
    // Closing sends the bytes to the server of a shared file system; a local disk need not survive a power cut here.
    drop(file);
    Ok(beside)
}
