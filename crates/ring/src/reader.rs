//! Reads the ring of a running process.
//!
//! The file is copied with `pread` and never mapped: its owner may truncate it at any moment, which would kill a
//! mapping reader with SIGBUS. A copy is not atomic, so each entry is copied three times in order: its tag, its words,
//! its tag again. If both tags are equal and live, the words belong to one generation: the writer's order (tag away
//! from live, words, tag to live; see `slot`) and generations that never repeat guarantee that nobody wrote the
//! constant words between the two copies of the tag. Words that change within a generation are accepted once two
//! successive copies agree, or as they are after 16 attempts. The first attempt covers many entries at once.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};

use rustix::fs::{self, CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::clock::both_ns;
use crate::layout::{Region, comm, head};
use crate::parse::{MOST_BYTES, ParseError, Regions, Words};
use crate::state::State;
use crate::{journal, slot};

/// Bytes copied at once.
const PIECE_BYTES: usize = 64 << 10;
/// Attempts at an entry that changes while it is read.
const ATTEMPTS: usize = 16;

/// Why a ring cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The file cannot be opened or read.
    File(PathBuf, Errno),
    /// It is not a regular file.
    NotAFile(PathBuf),
    /// Its content is not a ring.
    Content(PathBuf, ParseError),
}

impl fmt::Display for ReadError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => write!(to, "read {}: {error}", path.display()),
            Self::NotAFile(path) => write!(to, "read {}: it is not a plain file", path.display()),
            Self::Content(path, error) => write!(to, "read {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for ReadError {}

/// The reading side of a ring.
#[derive(Debug)]
pub struct Reader {
    file: File,
    path: PathBuf,
    bytes: usize,
    regions: Regions,
}

impl Reader {
    /// Opens a ring and checks its header.
    ///
    /// # Errors
    /// It cannot be opened, is not a regular file, or is not a ring that this version reads.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let failed = |error| ReadError::File(path.to_owned(), error);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = fs::openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
        Self::of(File::from(file), path)
    }

    /// Reads a ring from an open file and checks its header. `path` is used in errors.
    ///
    /// # Errors
    /// As for [`Reader::open`].
    pub fn of(file: File, path: &Path) -> Result<Self, ReadError> {
        let stat = fs::fstat(&file).map_err(|error| ReadError::File(path.to_owned(), error))?;
        if fs::FileType::from_raw_mode(stat.st_mode) != fs::FileType::RegularFile {
            return Err(ReadError::NotAFile(path.to_owned()));
        }
        let content = |error| ReadError::Content(path.to_owned(), error);
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if size > MOST_BYTES {
            return Err(content(ParseError::Long(size)));
        }
        let bytes = size as usize;
        let mut whole = vec![0; bytes];
        copy(&file, path, 0, &mut whole)?;
        let regions = Regions::of(Words(&whole)).map_err(content)?;
        Ok(Self { file, path: path.to_owned(), bytes, regions })
    }

    /// Path of the ring.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a process still holds the ring: its writer, or a child that it forked and that has not called exec. This
    /// works across containers, where pids do not.
    pub fn is_held(&self) -> bool {
        match fs::flock(&self.file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {
                let _released = fs::flock(&self.file, FlockOperation::Unlock);
                false
            }
            Err(error) => error == Errno::WOULDBLOCK,
        }
    }

    /// The current state.
    ///
    /// # Errors
    /// The file can no longer be read, or was truncated.
    pub fn state(&self) -> Result<State, ReadError> {
        State::parse(&self.image()?).map_err(|error| ReadError::Content(self.path.clone(), error))
    }

    /// An image of the ring at this moment: itself the content of a ring file, for `State::parse`. Entries that were
    /// being written are left out and counted.
    ///
    /// # Errors
    /// The file can no longer be read, or was truncated.
    pub fn image(&self) -> Result<Vec<u8>, ReadError> {
        let mut image = vec![0; self.bytes];
        copy(&self.file, &self.path, 0, &mut image)?;
        let mut torn = 0;
        let Regions { names, comms, ops, waits, journal, calls } = self.regions;
        for region in [names, comms, ops, waits] {
            let mut copies = Copies::new(&region);
            copies.is_comm = region.at == comms.at;
            self.again(&region, &mut image, |at, bytes, words, again| {
                let (before, after) = (Words(bytes).get(0), Words(again).get(0));
                if slot::is_free(before) {
                    return Ok(());
                }
                if slot::is_live(before) && before == after && words.get(8..) == again.get(8..) {
                    bytes.copy_from_slice(words);
                    set(bytes, 0, before);
                } else if !self.freeze(at, bytes, &mut copies)? {
                    torn += 1;
                }
                Ok(())
            })?;
        }
        for region in [journal, calls] {
            self.again(&region, &mut image, |_, bytes, words, again| {
                let (before, after) = (Words(bytes).get(0), Words(again).get(0));
                if before == after && journal::place(before).is_some() {
                    bytes.copy_from_slice(words);
                    set(bytes, 0, before);
                } else {
                    // Empty, or being written; the next reading will have it.
                    torn += after % 2;
                    bytes.fill(0);
                }
                Ok(())
            })?;
        }
        // The clocks are read after the copies: nothing in the image is newer.
        let held = 1 + u64::from(self.is_held());
        let (mono, unix) = both_ns();
        for (word, value) in
            [(head::TAKEN_MONO, mono), (head::TAKEN_UNIX, unix), (head::TORN, torn), (head::HELD, held)]
        {
            set(&mut image, word, value);
        }
        Ok(image)
    }

    /// Copies a region twice more, in pieces that fit the processor's cache. Passes every entry to `each`: its position
    /// in bytes, its bytes in the image, and both copies.
    fn again(
        &self,
        region: &Region,
        image: &mut [u8],
        mut each: impl FnMut(usize, &mut [u8], &[u8], &[u8]) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        let size = region.words * 8;
        let piece = (PIECE_BYTES / size).max(1) * size;
        let (mut words, mut again) = (vec![0; piece], vec![0; piece]);
        let first = region.at * 8;
        let image = image.get_mut(first..first + size * region.entries).unwrap_or_default();
        for (number, image) in image.chunks_mut(piece).enumerate() {
            let at = first + number * piece;
            for copied in [&mut words, &mut again] {
                copied.truncate(image.len());
                fence(Ordering::SeqCst);
                copy(&self.file, &self.path, at, copied)?;
            }
            let copies = words.chunks_exact(size).zip(again.chunks_exact(size));
            for ((index, bytes), (words, again)) in image.chunks_exact_mut(size).enumerate().zip(copies) {
                each(at + index * size, bytes, words, again)?;
            }
        }
        Ok(())
    }

    /// Puts a consistent copy of an entry into `bytes`, or zeros if it is free; false if it changed during every
    /// attempt.
    fn freeze(&self, at: usize, bytes: &mut [u8], copies: &mut Copies) -> Result<bool, ReadError> {
        let Copies { words, again, tag, is_comm } = copies;
        for attempt in 1..=ATTEMPTS {
            copy(&self.file, &self.path, at, tag)?;
            fence(Ordering::SeqCst);
            let before = Words(tag).get(0);
            if slot::is_free(before) {
                bytes.fill(0);
                return Ok(true);
            }
            copy(&self.file, &self.path, at, words)?;
            fence(Ordering::SeqCst);
            copy(&self.file, &self.path, at, again)?;
            // The tag in the last copy may have been copied before its words, so the tag is copied once more.
            fence(Ordering::SeqCst);
            copy(&self.file, &self.path, at, tag)?;
            let after = Words(tag).get(0);
            if *is_comm && words != again && again.len() > 8 * comm::LAST_BEGUN {
                // A copy does not keep the order of words. The mark behind the newest call is of a copy before its words,
                // and the mark in front of it of one after them: they are equal only if the words are whole.
                set(again, comm::LAST_PLACE, Words(words).get(comm::LAST_PLACE));
                copy(&self.file, &self.path, at + 8 * comm::LAST_BEGUN, tag)?;
                set(again, comm::LAST_BEGUN, Words(tag).get(0));
            }
            if slot::is_live(before) && before == after && (words == again || attempt == ATTEMPTS) {
                bytes.copy_from_slice(again);
                set(bytes, 0, before);
                return Ok(true);
            }
        }
        bytes.fill(0);
        Ok(false)
    }
}

/// Buffers for the copies of one entry.
struct Copies {
    words: Vec<u8>,
    again: Vec<u8>,
    tag: [u8; 8],
    /// The entry is one of a communicator.
    is_comm: bool,
}

impl Copies {
    fn new(region: &Region) -> Self {
        Self {
            words: vec![0; region.words * 8],
            again: vec![0; region.words * 8],
            tag: [0; 8],
            is_comm: false,
        }
    }
}

fn copy(file: &File, path: &Path, at: usize, into: &mut [u8]) -> Result<(), ReadError> {
    file.read_exact_at(into, at as u64).map_err(|error| match error.raw_os_error() {
        Some(number) => ReadError::File(path.to_owned(), Errno::from_raw_os_error(number)),
        None => ReadError::Content(path.to_owned(), ParseError::Short(at as u64)),
    })
}

fn set(bytes: &mut [u8], word: usize, value: u64) {
    if let Some(to) = bytes.get_mut(word * 8..word * 8 + 8) {
        to.copy_from_slice(&value.to_le_bytes());
    }
}

/// Paths of the files in a directory that are named like rings; empty if the directory is unreadable.
pub fn rings_in(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let parts =
                name.to_str().and_then(|name| name.strip_prefix(crate::file::PREFIX)?.split_once('-'));
            parts.is_some_and(|(pid, ticks)| pid.parse::<u32>().is_ok() && ticks.parse::<u64>().is_ok())
        })
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}
