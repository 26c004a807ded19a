//! Asks a process for a Flight Recorder dump, by the named pipe that torch reads where
//! `TORCH_NCCL_DEBUG_INFO_PIPE_FILE` is set, and waits for the dump. The pipe is opened without waiting, and only if it
//! is one and belongs to the process's user. What is on a file system that hangs, hangs this process alone.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use crate::procfs::status;
use crate::request::{ReadingError, Request};
use crate::sysfs::text;

/// Between two looks at what is waited for.
const PAUSE: Duration = Duration::from_millis(100);
/// What is kept of the deadline for the answer.
const RESERVE: Duration = Duration::from_millis(500);

/// Writes to the pipe that is named.
pub(super) fn ask(request: &Request) -> Result<(), ReadingError> {
    let pid = request.pid()?;
    let pipe = request.file.as_ref().ok_or_else(|| ReadingError::Failed("no pipe was named".to_owned()))?;
    let of = request.roots.proc.join(pid.to_string());
    // The effective one: what the process creates is that user's.
    let uid = text(&of.join("status"))
        .and_then(|facts| status(&facts, "Uid")?.split_whitespace().nth(1)?.parse().ok())
        .ok_or_else(|| ReadingError::Absent("it has ended".to_owned()))?;
    write_to(&seen_from_here(&of, &pipe.path), uid).map_err(ReadingError::Failed)
}

/// Waits until one of the files was written since then; answers whether one was.
pub(super) fn wait(request: &Request) -> Result<bool, ReadingError> {
    let of = request.roots.proc.join(request.pid()?.to_string());
    let until = Instant::now() + Duration::from_millis(request.deadline_ms).saturating_sub(RESERVE);
    let paths: Vec<PathBuf> =
        request.awaited.iter().map(|path| seen_from_here(&of, Path::new(path))).collect();
    let is_new = |path: &PathBuf| {
        std::fs::metadata(path)
            .is_ok_and(|data| data.mtime() * 1_000_000_000 + data.mtime_nsec() >= request.since_ns)
    };
    loop {
        if paths.iter().any(is_new) {
            return Ok(true);
        }
        if Instant::now() >= until || !of.exists() {
            return Ok(false);
        }
        thread::sleep(PAUSE);
    }
}

/// A path of a process as this process can open it.
fn seen_from_here(of: &Path, path: &Path) -> PathBuf {
    of.join("root").join(path.strip_prefix("/").unwrap_or(path))
}

fn write_to(pipe: &Path, uid: u32) -> Result<(), String> {
    let words = |error: &dyn std::fmt::Display| format!("{}: {error}", pipe.display());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // What it is, is looked at before it is opened, too: opening some devices acts.
    let data = std::fs::symlink_metadata(pipe).map_err(|error| words(&error))?;
    if !data.file_type().is_fifo() {
        return Err(words(&"it is not a named pipe"));
    }
    if data.uid() != uid {
        return Err(words(&format!("it belongs to user {}, the job to user {uid}", data.uid())));
    }
    let mut file = match rustix::fs::open(pipe, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NXIO) => return Err(words(&"no process reads it: the job does not listen")),
        Err(error) => return Err(words(&error)),
    };
    let data = file.metadata().map_err(|error| words(&error))?;
    if !data.file_type().is_fifo() || data.uid() != uid {
        return Err(words(&"it was replaced while it was opened"));
    }
    file.write_all(b"1\n").map_err(|error| words(&error))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn fifo(path: &Path) {
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .unwrap();
    }

    #[test]
    fn only_a_pipe_of_the_jobs_user_with_a_reader_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let (pipe, file) = (folder.path().join("0.pipe"), folder.path().join("file"));
        fifo(&pipe);
        std::fs::write(&file, "untouched").unwrap();
        let refused = |path: &Path, uid: u32| write_to(path, uid).unwrap_err();
        assert!(refused(&file, uid).contains("not a named pipe"));
        assert!(refused(&pipe, uid + 1).contains("belongs to user"));
        assert!(refused(&pipe, uid).contains("no process reads it"));
        let link = folder.path().join("link.pipe");
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        assert!(refused(&link, uid).contains("not a named pipe"));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "untouched");
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let mut reader = File::from(rustix::fs::open(&pipe, flags, Mode::empty()).unwrap());
        write_to(&pipe, uid).unwrap();
        let mut read = [0; 8];
        assert_eq!(reader.read(&mut read).unwrap(), 2);
    }
}
