//! Where a report goes: standard output, a file that appears whole or not at all, or what is there and is no file: a
//! device, a pipe.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::failure::Failure;

/// An open report.
pub(crate) struct Out {
    writer: BufWriter<Box<dyn Write>>,
    /// What it is called when it is whole; None for standard output.
    path: Option<PathBuf>,
    /// What is written until then. Removed unless it became whole: a half of a report is worse than the one of yesterday.
    new: Option<TempPath>,
}

impl Out {
    /// Opens it.
    pub(crate) fn new(path: Option<&Path>) -> Result<Self, Failure> {
        let to = |writer: Box<dyn Write>, path: Option<&Path>, new: Option<TempPath>| Self {
            writer: BufWriter::new(writer),
            path: path.map(Path::to_owned),
            new,
        };
        let Some(path) = path else { return Ok(to(Box::new(io::stdout()), None, None)) };
        let failed = |source: io::Error| Failure::CannotWrite { path: path.to_owned(), source };
        // A device or a pipe must stay what it is, and so must a link: /dev/stdout is one.
        if fs::symlink_metadata(path).is_ok_and(|data| !data.is_file()) {
            // Reopened, a log that standard output is appended to would be emptied.
            if is_the_same(path, io::stdout().as_fd()) {
                return Ok(to(Box::new(io::stdout()), None, None));
            }
            if is_the_same(path, io::stderr().as_fd()) {
                return Ok(to(Box::new(io::stderr()), None, None));
            }
            let mut options = File::options();
            options.write(true).truncate(true);
            options.custom_flags(rustix::fs::OFlags::NOCTTY.bits() as i32);
            return Ok(to(Box::new(options.open(path).map_err(failed)?), Some(path), None));
        }
        // Node exporters and CI read what is there at any moment.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (file, new) = tempfile::Builder::new()
            .prefix(".ringleader-")
            // As any file that a program makes: others read it, too.
            .permissions(fs::Permissions::from_mode(0o666))
            .tempfile_in(folder)
            .map_err(failed)?
            .into_parts();
        Ok(to(Box::new(file), Some(path), Some(new)))
    }

    pub(crate) fn write(&mut self, text: &str) -> Result<(), Failure> {
        let written = self.writer.write_all(text.as_bytes());
        self.said(written)
    }

    /// Hands on what has come so far.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        let flushed = self.writer.flush();
        self.said(flushed)
    }

    /// The report is whole.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.flush()?;
        match (self.new.take(), self.path.take()) {
            (Some(new), Some(path)) => {
                new.persist(&path).map_err(|error| Failure::CannotWrite { path, source: error.error })
            }
            _ => Ok(()),
        }
    }

    fn said(&self, outcome: io::Result<()>) -> Result<(), Failure> {
        outcome.map_err(|source| match &self.path {
            Some(path) => Failure::CannotWrite { path: path.clone(), source },
            None => Failure::Write(source),
        })
    }
}

/// Whether a path leads to what is open here.
fn is_the_same(path: &Path, open: BorrowedFd<'_>) -> bool {
    let Ok(open) = open.try_clone_to_owned().and_then(|open| File::from(open).metadata()) else {
        return false;
    };
    fs::metadata(path).is_ok_and(|data| (data.dev(), data.ino()) == (open.dev(), open.ino()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::io::Read as _;
    use std::os::unix::fs::FileTypeExt as _;
    use std::process::Command;

    use super::*;

    fn write(path: &Path, text: &str) -> Result<(), Failure> {
        let mut out = Out::new(Some(path))?;
        out.write(text)?;
        out.finish()
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_pipe_stays_a_pipe_and_gets_the_report() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || {
                let mut text = String::new();
                File::open(pipe).unwrap().read_to_string(&mut text).map(|_| text).unwrap()
            }
        });
        write(&pipe, "a report\n").unwrap();
        assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
        assert_eq!(reader.join().unwrap(), "a report\n");
        assert_eq!(names(folder.path()), ["pipe"]);
    }

    /// Numbers of `/dev/null` and `/dev/full` (mem(4)), in a folder of the test's own.
    #[test]
    fn a_device_stays_a_device_and_a_full_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for (name, number) in [("null", "3"), ("full", "7")] {
            let node = folder.path().join(name);
            let made = Command::new("mknod").arg(&node).args(["c", "1", number]).output();
            // Only root may, and not on every file system.
            if !made.is_ok_and(|made| made.status.success()) || File::open(&node).is_err() {
                return;
            }
        }
        write(&folder.path().join("null"), "a report\n").unwrap();
        let full = folder.path().join("full");
        let failure = write(&full, "a report\n").unwrap_err();
        let Failure::CannotWrite { path, .. } = &failure else { panic!("{failure:?}") };
        assert_eq!(path, &full);
        assert!(!failure.message().contains("standard output"), "{}", failure.message());
        for name in names(folder.path()) {
            let data = fs::symlink_metadata(folder.path().join(&name)).unwrap();
            assert!(data.file_type().is_char_device(), "{name}");
        }
        assert_eq!(names(folder.path()), ["full", "null"]);
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "a longer report of yesterday\n").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write(&link, "a report\n").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "a report\n");
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.prom");
        fs::write(&path, "yesterday\n").unwrap();
        let mut out = Out::new(Some(&path)).unwrap();
        out.write("half of").unwrap();
        out.flush().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "yesterday\n");
        let new = names(folder.path()).into_iter().find(|name| name != "report.prom").unwrap();
        // Who knows the number of the process cannot lay a link in its way.
        assert!(!new.contains(&std::process::id().to_string()), "{new}");
        drop(out);
        assert_eq!(names(folder.path()), ["report.prom"]);
        write(&path, "today\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "today\n");
        assert_eq!(names(folder.path()), ["report.prom"]);
        let probe = folder.path().join("probe");
        File::create(&probe).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&path), mode(&probe), "readable as any file");
    }
}
