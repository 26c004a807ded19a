//! Opens a file as a process sees it, and says what it is. A file system that hangs, hangs this process alone.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use serde::{Deserialize, Serialize};

use crate::probes::Trouble;
use crate::request::{FileAsk, Request};

/// What a file is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FileFacts {
    pub(crate) size: u64,
    pub(crate) uid: u32,
    /// Everybody may read it.
    pub(crate) is_open_to_all: bool,
    pub(crate) modified_ns: i64,
    /// It begins as no text does.
    pub(crate) is_binary: bool,
}

pub(super) fn take(request: &Request) -> Result<FileFacts, Trouble> {
    let ask = request.file.as_ref().ok_or_else(|| Trouble::Failed("no file was named".to_owned()))?;
    let mut file = open(ask).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Trouble::Absent("there is no such file".to_owned()),
        _ => Trouble::Failed(format!("open it: {error}")),
    })?;
    let data = file.metadata().map_err(|error| Trouble::Failed(format!("look at it: {error}")))?;
    let mut head = [0; 4096];
    let n = file.read(&mut head).map_err(|error| Trouble::Failed(format!("read it: {error}")))?;
    let head = head.get(..n).unwrap_or_default();
    Ok(FileFacts {
        size: data.size(),
        uid: data.uid(),
        is_open_to_all: data.mode() & 0o004 != 0,
        modified_ns: data.mtime() * 1_000_000_000 + data.mtime_nsec(),
        // A dump of the Flight Recorder begins with 0x80; no log holds a NUL.
        is_binary: head.first() == Some(&0x80) || head.contains(&0),
    })
}

/// Opens a regular file and nothing else; never waits for the other end of a pipe.
pub(crate) fn open(ask: &FileAsk) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = match &ask.root {
        // Links within a container mean its own files, also those that begin with a slash.
        Some(root) => {
            let root =
                rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            let inside = ask.path.strip_prefix("/").unwrap_or(&ask.path);
            let inside = if inside.as_os_str().is_empty() { Path::new(".") } else { inside };
            File::from(rustix::fs::openat2(root, inside, flags, Mode::empty(), ResolveFlags::IN_ROOT)?)
        }
        None => File::from(rustix::fs::open(&ask.path, flags, Mode::empty())?),
    };
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no regular file")) }
}
