//! Files as a process sees them: says what one is, pours one out, lists what is below a path. A file system that hangs,
//! hangs this process alone.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use ringleader_node::Outcome;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::request::{FileAsk, ReadingError, Request};
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
    /// NULs that a text begins with: it was truncated while its writer was at its end.
    pub(crate) n_hole: u64,
    /// Device and number.
    pub(crate) is: (u64, u64),
}

impl FileFacts {
    /// Bytes without the hole; it may have grown between two looks.
    pub(crate) fn size_of_text(&self) -> u64 {
        self.size.saturating_sub(self.n_hole)
    }
}

pub(super) fn take(request: &Request) -> Result<FileFacts, ReadingError> {
    let ask = request.file.as_ref().ok_or_else(|| ReadingError::Failed("no file was named".to_owned()))?;
    let file = open(ask).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ReadingError::Absent("there is no such file".to_owned()),
        _ => ReadingError::Failed(format!("open it: {error}")),
    })?;
    let data = file.metadata().map_err(|error| ReadingError::Failed(format!("look at it: {error}")))?;
    let (n_hole, is_binary) =
        form(&file, data.size()).map_err(|error| ReadingError::Failed(format!("read it: {error}")))?;
    Ok(FileFacts {
        size: data.size(),
        uid: data.uid(),
        is_open_to_all: data.mode() & 0o004 != 0,
        modified_ns: data.mtime() * 1_000_000_000 + data.mtime_nsec(),
        is_binary,
        n_hole,
        is: (data.dev(), data.ino()),
    })
}

/// Bytes that identify the kind of a file.
const HEAD_BYTES: usize = 4_096;
/// Longest that NULs are passed over which the file system has stored.
const HOLE_PATIENCE: Duration = Duration::from_millis(500);

/// NULs that a text begins with, and whether it is none.
fn form(file: &File, size: u64) -> io::Result<(u64, bool)> {
    let mut head = [0; HEAD_BYTES];
    let n = file.read_at(&mut head, 0)?;
    let head = head.get(..n).unwrap_or_default();
    if head.first() != Some(&0) {
        return Ok((0, is_binary(head)));
    }
    let n_hole = hole(file, size)?;
    // Where NULs are stored, and many, the end of it tells.
    let mut telling = [0; HEAD_BYTES];
    let mut n = file.read_at(&mut telling, n_hole)?;
    if matches!(telling.first(), Some(0)) {
        n = file.read_at(&mut telling, size.saturating_sub(HEAD_BYTES as u64).max(n_hole))?;
    }
    let telling = telling.get(..n).unwrap_or_default();
    let is_binary = telling.iter().all(|b| *b == 0) || is_binary(telling);
    Ok((if is_binary { 0 } else { n_hole }, is_binary))
}

/// NULs that it begins with, or some of them if they are many and stored.
fn hole(file: &File, size: u64) -> io::Result<u64> {
    let (mut at, started) = (0, Instant::now());
    let mut block = vec![0; 256 << 10];
    while at < size && started.elapsed() < HOLE_PATIENCE {
        match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
            Ok(data) => at = at.max(data),
            Err(rustix::io::Errno::NXIO) => return Ok(size),
            // A file system that does not tell.
            Err(_) => {}
        }
        let n = file.read_at(&mut block, at)?;
        let read = block.get(..n).unwrap_or_default();
        match read.iter().position(|b| *b != 0) {
            Some(n) => return Ok(at + n as u64),
            None if n == 0 => break,
            None => at += n as u64,
        }
    }
    Ok(at)
}

/// Hardly a byte that no text has; a hole between two lines is passed over by who reads it. A dump of the Flight Recorder
/// begins with 0x80.
fn is_binary(head: &[u8]) -> bool {
    let first = head.iter().position(|b| *b == 0).unwrap_or(head.len());
    let last = head.iter().rposition(|b| *b == 0).map_or(first, |at| at + 1);
    let (before, rest) = head.split_at(first);
    let (hole, after) = rest.split_at(last - first);
    let is_hole = before.contains(&b'\n') && hole.iter().all(|b| *b == 0);
    let n_odd = |bytes: &[u8]| bytes.iter().filter(|b| matches!(b, 0..=8 | 14..=26 | 28..=31)).count();
    let n_around = before.len() + after.len();
    let is_text =
        n_odd(head) * 50 <= head.len() || (is_hole && (n_odd(before) + n_odd(after)) * 50 <= n_around);
    head.first() == Some(&0x80) || !is_text
}

/// Writes the file's bytes to `output`, behind one line: whether it could be opened.
///
/// # Errors
/// If the file cannot be read to its end, or the output is closed.
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
pub(super) fn below(request: &Request) -> Result<Vec<(PathBuf, PathBuf)>, ReadingError> {
    let ask = request.file.as_ref().ok_or_else(|| ReadingError::Failed("no path was named".to_owned()))?;
    let data =
        fs::metadata(&ask.path).map_err(|error| ReadingError::Failed(format!("look at it: {error}")))?;
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
pub(super) fn cache(request: &Request) -> Result<String, ReadingError> {
    let pid = request.pid()?;
    let environ = fs::read(request.roots.proc.join(pid.to_string()).join("environ"))
        .map_err(|error| ReadingError::Failed(format!("read its environment: {error}")))?;
    let variable = |name: &str| {
        environ.split(|b| *b == 0).find_map(|record| {
            let value = record.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            std::str::from_utf8(value).ok().filter(|value| value.starts_with('/')).map(str::to_owned)
        })
    };
    variable("XDG_CACHE_HOME")
        .or_else(|| variable("HOME").map(|home| format!("{home}/.cache")))
        .ok_or_else(|| ReadingError::Absent("it has no home".to_owned()))
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
            match rustix::fs::openat2(&root, inside, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
                // Linux before 5.6.
                Err(Errno::NOSYS) => open_without_links(root, inside, flags)?,
                opened => File::from(opened?),
            }
        }
        None => File::from(rustix::fs::open(&ask.path, flags, Mode::empty())?),
    };
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
}

/// Where the kernel cannot keep links within a root, none is followed.
fn open_without_links(root: OwnedFd, inside: &Path, flags: OFlags) -> io::Result<File> {
    let mut at = root;
    let mut parts = inside.components().peekable();
    while let Some(part) = parts.next() {
        if !matches!(part, Component::CurDir | Component::Normal(_)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let flags = if parts.peek().is_some() { folder } else { flags };
        at = rustix::fs::openat(&at, part.as_os_str(), flags | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Ok(at.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_opened_within_a_root_where_no_link_is_followed() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("logs")).unwrap();
        fs::write(root.path().join("logs/0"), "x").unwrap();
        std::os::unix::fs::symlink("/etc", root.path().join("etc")).unwrap();
        std::os::unix::fs::symlink("0", root.path().join("logs/1")).unwrap();
        let open = |inside: &str| {
            let at = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let at = rustix::fs::open(root.path(), at, Mode::empty()).unwrap();
            open_without_links(at, Path::new(inside), OFlags::RDONLY | OFlags::CLOEXEC)
        };
        assert_eq!(io::read_to_string(open("logs/0").unwrap()).unwrap(), "x");
        for not in ["logs/1", "etc/hosts", "logs/../logs/0", "logs/2"] {
            assert!(open(not).is_err(), "{not}");
        }
    }

    fn facts(fill: impl FnOnce(&mut File)) -> (u64, u64, bool) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        fill(file.as_file_mut());
        let ask = FileAsk { path: file.path().to_owned(), ..FileAsk::default() };
        let facts = take(&Request { file: Some(ask), ..Request::default() }).unwrap();
        (facts.size, facts.n_hole, facts.is_binary)
    }

    #[test]
    fn a_log_that_begins_with_a_hole_is_a_text_from_where_it_begins() {
        // logrotate's copytruncate: the writer is at its old place.
        let log = |at: u64| {
            facts(|file| {
                file.seek(SeekFrom::Start(at)).unwrap();
                file.write_all(b"a last word\n").unwrap();
            })
        };
        for at in [1, 700, 4_096, 80 << 20, 2 << 30] {
            assert_eq!(log(at), (at + 12, at, false));
        }
        // Stored, not sparse.
        let stored =
            facts(|file| file.write_all(&[vec![0; 100_000].as_slice(), b"a last word\n"].concat()).unwrap());
        assert_eq!(stored, (100_012, 100_000, false));
        let inside =
            facts(|file| file.write_all(&[b"a\n".as_slice(), &[0; 3_000], b"b\n"].concat()).unwrap());
        assert_eq!(inside, (3_004, 0, false));
        let one =
            facts(|file| file.write_all(&[[b'a'; 90].as_slice(), &[0; 1], &[b'a'; 90]].concat()).unwrap());
        assert_eq!(one, (181, 0, false));
    }

    #[test]
    fn what_is_no_text_stays_binary() {
        let binary = |bytes: &[u8]| facts(|file| file.write_all(bytes).unwrap());
        let mixed: Vec<u8> = (0..=255).cycle().take(9_000).collect();
        for bytes in [
            b"\x80\x02}q\x00".as_slice(),
            &[0; 9_000],
            &mixed,
            &[[0; 50].as_slice(), &mixed].concat(),
            &[b"NAME".as_slice(), &[0; 600]].concat(),
        ] {
            assert_eq!(binary(bytes), (bytes.len() as u64, 0, true));
        }
        assert_eq!(facts(|file| file.set_len(1 << 30).unwrap()), (1 << 30, 0, true));
        assert_eq!(binary(b""), (0, 0, false));
        assert_eq!(binary(b"a line\n"), (7, 0, false));
    }
}
