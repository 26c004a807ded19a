//! Files as a process sees them: says what one is, pours one out, lists what is below a path. A file system that hangs,
//! hangs this process alone.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ringleader_node::Outcome;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use serde::{Deserialize, Serialize};

use crate::probes::Trouble;
use crate::request::{FileAsk, Request};
use crate::sysfs::names;

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
    /// Device and number.
    pub(crate) is: (u64, u64),
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
        is: (data.dev(), data.ino()),
    })
}

/// Writes the file's bytes to `output`, behind one line: whether it could be opened.
///
/// # Errors
/// If the file cannot be read to its end, or nobody reads any more.
pub(crate) fn pour(request: &Request, output: &mut dyn Write) -> io::Result<()> {
    let opened = at_byte(request);
    let said: Outcome<()> = match &opened {
        Ok(_) => Outcome::Seen(()),
        Err(error) => Outcome::Failed(format!("open it: {error}")),
    };
    serde_json::to_writer(&mut *output, &said)?;
    output.write_all(b"\n")?;
    let Ok(mut file) = opened else { return output.flush() };
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return output.flush(),
            Ok(n) => {
                output.write_all(buffer.get(..n).unwrap_or_default())?;
                // Standard output keeps half a line back, and the next read may never end.
                output.flush()?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn at_byte(request: &Request) -> io::Result<File> {
    let ask = request.file.as_ref().ok_or_else(|| io::Error::other("no file was named"))?;
    let mut file = open(ask)?;
    let data = file.metadata()?;
    if ask.is.is_some_and(|is| is != (data.dev(), data.ino())) {
        return Err(io::Error::other("another file has taken its place"));
    }
    file.seek(SeekFrom::Start(ask.from))?;
    Ok(file)
}

/// Folders within folders that were named, and files below one path.
const MAX_DEPTH: usize = 6;
const MAX_FILES: usize = 4_097;

/// The path that the user named if it is a file, and the files below it: each with its way from there.
pub(super) fn below(request: &Request) -> Result<Vec<(PathBuf, PathBuf)>, Trouble> {
    let ask = request.file.as_ref().ok_or_else(|| Trouble::Failed("no path was named".to_owned()))?;
    let data = fs::metadata(&ask.path).map_err(|error| Trouble::Failed(format!("look at it: {error}")))?;
    if !data.is_dir() {
        return Ok(vec![(ask.path.clone(), PathBuf::new())]);
    }
    let (mut open, mut files) = (vec![(PathBuf::new(), 0_usize)], Vec::new());
    while let Some((way, depth)) = open.pop() {
        let at = ask.path.join(&way);
        // Links within a folder are not followed, as `diagnose` does not follow them.
        let Ok(data) = (if depth == 0 { fs::metadata(&at) } else { fs::symlink_metadata(&at) }) else {
            continue;
        };
        if data.is_dir() {
            if depth < MAX_DEPTH {
                open.extend(names(&at).into_iter().rev().map(|name| (way.join(name), depth + 1)));
            }
        } else if data.is_file() && files.len() < MAX_FILES {
            files.push((at, way));
        }
    }
    Ok(files)
}

/// The folder for caches, from the process's own environment; read for this alone and not kept.
pub(super) fn cache(request: &Request) -> Result<String, Trouble> {
    let pid = request.pid()?;
    let environ = fs::read(request.roots.proc.join(pid.to_string()).join("environ"))
        .map_err(|error| Trouble::Failed(format!("read its environment: {error}")))?;
    let variable = |name: &str| {
        environ.split(|b| *b == 0).find_map(|record| {
            let value = record.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            std::str::from_utf8(value).ok().filter(|value| value.starts_with('/')).map(str::to_owned)
        })
    };
    variable("XDG_CACHE_HOME")
        .or_else(|| variable("HOME").map(|home| format!("{home}/.cache")))
        .ok_or_else(|| Trouble::Absent("it has no home".to_owned()))
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
