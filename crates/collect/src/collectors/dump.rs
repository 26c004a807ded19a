//! Asks the live job for a Flight Recorder dump, by the named pipe that torch reads where
//! `TORCH_NCCL_DEBUG_INFO_PIPE_FILE` is set: `<value><rank>.pipe`, any byte. The process writes its dump and goes on.
//!
//! Only when asked for: the job writes a file. The pipe is opened without waiting, and only if it is one and belongs to
//! the job's user.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ringleader_bundle::{Item, Origin, Outcome};
use ringleader_node::Process;
use rustix::fs::{Mode, OFlags};

use super::Context;
use super::logs::dump_paths;

/// torch's thread looks at its pipe every 100 ms by default, and writes some MiB.
const PATIENCE: Duration = Duration::from_secs(10);

#[expect(clippy::unnecessary_wraps, reason = "collectors have one form")]
pub(super) fn collect(context: &mut Context<'_, '_>) -> Result<(), ringleader_bundle::Trouble> {
    let Some(jobs) = context.jobs() else { return Ok(()) };
    let ranks: Vec<Process> = jobs.processes.iter().filter(|p| p.rank().is_some()).cloned().collect();
    let started = std::time::SystemTime::now();
    let mut waited_for: Vec<PathBuf> = Vec::new();
    for process in &ranks {
        let Some(prefix) = process.variable("TORCH_NCCL_DEBUG_INFO_PIPE_FILE") else { continue };
        let pipe = format!("{prefix}{}.pipe", process.rank().unwrap_or_default());
        let outcome = match ask(&seen_from_here(process, &pipe), process.uid) {
            Ok(()) => {
                waited_for.extend(
                    dump_paths(context, process).into_iter().map(|path| seen_from_here(process, &path)),
                );
                Outcome::Done
            }
            Err(why) => Outcome::Failed(vec!["ask for a dump".to_owned(), why]),
        };
        let mut item = context.item("ask-dump", "", Origin::Path(pipe));
        item.pid = Some(process.pid);
        context.bundle.missing(Item { outcome, ..item });
    }
    if waited_for.is_empty() && !ranks.iter().any(|p| p.variable("TORCH_NCCL_DEBUG_INFO_PIPE_FILE").is_some())
    {
        let why =
            "no process of the job has TORCH_NCCL_DEBUG_INFO_PIPE_FILE set: it has no pipe to be asked by";
        let item = context.item("ask-dump", "", Origin::Unknown);
        context.bundle.missing(Item { outcome: Outcome::Skipped(why.to_owned()), ..item });
    }
    let until = Instant::now() + PATIENCE;
    let is_new = |path: &PathBuf| {
        std::fs::metadata(path).and_then(|data| data.modified()).is_ok_and(|modified| modified >= started)
    };
    // One path of several is written: as many as there are processes are waited for.
    while waited_for.iter().filter(|path| is_new(path)).count() < n_asked(&ranks) && Instant::now() < until {
        if waited_for.is_empty() {
            break;
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn n_asked(ranks: &[Process]) -> usize {
    ranks.iter().filter(|p| p.variable("TORCH_NCCL_DEBUG_INFO_PIPE_FILE").is_some()).count()
}

/// A path of a process as this process can open it.
fn seen_from_here(process: &Process, path: &str) -> PathBuf {
    Path::new("/proc").join(process.pid.to_string()).join("root").join(path.trim_start_matches('/'))
}

fn ask(pipe: &Path, uid: u32) -> Result<(), String> {
    let words = |error: &dyn std::fmt::Display| format!("{}: {error}", pipe.display());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // What it is, is looked at before it is opened, too: opening some devices acts.
    let data = std::fs::symlink_metadata(pipe).map_err(|error| words(&error))?;
    if !data.file_type().is_fifo() {
        return Err(words(&"it is no named pipe"));
    }
    if data.uid() != uid {
        return Err(words(&format!("it belongs to user {}, the job to user {uid}", data.uid())));
    }
    let mut file = match rustix::fs::open(pipe, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NXIO) => return Err(words(&"nobody reads it: the process does not listen")),
        Err(error) => return Err(words(&error)),
    };
    let data = file.metadata().map_err(|error| words(&error))?;
    if !data.file_type().is_fifo() || data.uid() != uid {
        return Err(words(&"it was exchanged while it was opened"));
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
        let refused = |path: &Path, uid: u32| ask(path, uid).unwrap_err();
        assert!(refused(&file, uid).contains("no named pipe"));
        assert!(refused(&pipe, uid + 1).contains("belongs to user"));
        assert!(refused(&pipe, uid).contains("nobody reads it"));
        let link = folder.path().join("link.pipe");
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        assert!(refused(&link, uid).contains("no named pipe"));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "untouched");
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let mut reader = File::from(rustix::fs::open(&pipe, flags, Mode::empty()).unwrap());
        ask(&pipe, uid).unwrap();
        let mut read = [0; 8];
        assert_eq!(reader.read(&mut read).unwrap(), 2);
    }
}
