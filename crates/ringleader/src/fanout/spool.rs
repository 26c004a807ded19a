//! Answers too large to be held: each goes to a file of its own as it comes.
//!
//! A file begins with the first bytes that look like an answer: what a login shell says before them is passed over. It
//! has no name until its taker gives it one; unnamed files are removed.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a greeting that are passed over.
const MAX_GREETING: usize = 64 << 10;

/// A folder of answers.
pub(crate) struct Spool {
    folder: PathBuf,
    /// How each answer begins.
    starts_with: &'static [u8],
    n_opened: AtomicUsize,
}

impl Spool {
    pub(crate) fn new(folder: &Path, starts_with: &'static [u8]) -> Self {
        Self { folder: folder.to_owned(), starts_with, n_opened: AtomicUsize::new(0) }
    }

    /// A place for one answer. There is no file before its first byte.
    pub(super) fn open(&self) -> Spooled {
        let number = self.n_opened.fetch_add(1, Ordering::Relaxed);
        Spooled {
            path: self.folder.join(format!(".{number}.new")),
            starts_with: self.starts_with,
            head: Some(Vec::new()),
            file: None,
            n_bytes: 0,
            failure: None,
        }
    }
}

/// One answer in its file.
pub(crate) struct Spooled {
    path: PathBuf,
    starts_with: &'static [u8],
    /// What came before the answer began; None since.
    head: Option<Vec<u8>>,
    file: Option<File>,
    n_bytes: u64,
    failure: Option<io::Error>,
}

impl Spooled {
    /// Bytes of the answer that came.
    pub(crate) fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    /// Why this machine could not write it.
    pub(crate) fn failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// If it cannot be renamed.
    pub(crate) fn keep_as(mut self, path: &Path) -> io::Result<()> {
        if self.file.take().is_some() {
            std::fs::rename(&self.path, path)?;
        }
        Ok(())
    }

    /// Takes some of it; answers with the bytes that were part of the answer.
    fn take(&mut self, bytes: &[u8]) -> u64 {
        let Some(head) = &mut self.head else { return self.write(bytes) };
        head.extend_from_slice(bytes);
        let found = head.windows(self.starts_with.len()).position(|window| window == self.starts_with);
        let Some(at) = found else {
            if head.len() > MAX_GREETING {
                // Enough of its end stays for a beginning that comes in two pieces.
                head.drain(..head.len() - self.starts_with.len());
            }
            return 0;
        };
        let head = self.head.take().unwrap_or_default();
        self.write(head.get(at..).unwrap_or_default())
    }

    fn write(&mut self, bytes: &[u8]) -> u64 {
        if self.failure.is_some() {
            return 0;
        }
        match self.try_write(bytes) {
            Ok(()) => {
                self.n_bytes += bytes.len() as u64;
                bytes.len() as u64
            }
            Err(error) => {
                self.failure = Some(error);
                0
            }
        }
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            let mut options = File::options();
            options.write(true).create_new(true);
            #[cfg(unix)]
            {
                use std::os::unix::fs::OpenOptionsExt as _;
                options.mode(0o600);
            }
            self.file = Some(options.open(&self.path)?);
        }
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(bytes))
    }
}

impl Drop for Spooled {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // Nobody wanted it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Where a command's output goes: into memory, or into a file.
pub(crate) struct Output<'f> {
    /// Bytes that are kept.
    max_bytes: u64,
    kept: Vec<u8>,
    file: Option<&'f mut Spooled>,
    n_bytes: u64,
    is_cut: bool,
}

impl<'f> Output<'f> {
    pub(crate) fn new(max_bytes: u64, file: Option<&'f mut Spooled>) -> Self {
        Self { max_bytes, kept: Vec::new(), file, n_bytes: 0, is_cut: false }
    }

    /// Takes some of it; false if no more is of use.
    pub(super) fn take(&mut self, bytes: &[u8]) -> bool {
        let room = usize::try_from(self.max_bytes.saturating_sub(self.n_bytes)).unwrap_or(usize::MAX);
        let within = bytes.get(..bytes.len().min(room)).unwrap_or_default();
        self.is_cut |= within.len() < bytes.len();
        if let Some(file) = &mut self.file {
            self.n_bytes += file.take(within);
            return !self.is_cut && file.failure.is_none();
        }
        self.kept.extend_from_slice(within);
        self.n_bytes += within.len() as u64;
        // The end of a short answer's surplus is waited for: its exit status says more.
        true
    }

    /// What was kept in memory, how many bytes there were here or in a file, whether more came.
    pub(super) fn end(self) -> (Vec<u8>, u64, bool) {
        (self.kept, self.n_bytes, self.is_cut)
    }
}
