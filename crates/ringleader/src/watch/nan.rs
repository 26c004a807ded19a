//! NaN in what a job prints while it runs: nothing fails and nothing stalls, and hours are lost.
//!
//! Only the word is looked for, in a thread of its own, since a log may lie on a mount that hangs. Whether the loss is
//! meant is judged from the evidence, as `diagnose` judges it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// Bytes of one file that one look reads; a job that prints more is not read in full.
const MOST: u64 = 4 << 20;
/// Lines before somebody judges. A loss scale that is being found gives a few.
const FIRST: usize = 10;
/// So many times more lines before somebody judges again.
const AGAIN: usize = 8;

/// A file, and whether what it held before belongs to the job.
type Printed = (PathBuf, bool);

#[derive(Default)]
struct NanWatch {
    files: Mutex<Vec<Printed>>,
    n_lines: AtomicUsize,
}

/// What is known of it.
pub(crate) struct Nan {
    shared: Option<Arc<NanWatch>>,
    next: usize,
}

impl Nan {
    pub(crate) fn new() -> Self {
        Self { shared: None, next: FIRST }
    }

    /// Reads the command's own files and those of ranks from now on; whether it is time to judge.
    pub(crate) fn is_due_in(&mut self, own: &[PathBuf], of_ranks: Vec<PathBuf>) -> bool {
        let own = own.iter().map(|path| (path.clone(), true));
        self.follow(own.chain(of_ranks.into_iter().map(|path| (path, false))).collect());
        self.is_due()
    }

    fn follow(&mut self, files: Vec<Printed>) {
        if files.is_empty() {
            return;
        }
        let shared = self.shared.get_or_insert_with(|| {
            let shared = Arc::new(NanWatch::default());
            let weak = Arc::downgrade(&shared);
            thread::spawn(move || read_on(&weak));
            shared
        });
        *shared.files.lock().unwrap_or_else(PoisonError::into_inner) = files;
    }

    /// Whether it is time to judge: true once for so many lines.
    fn is_due(&mut self) -> bool {
        let n_lines = self.shared.as_ref().map_or(0, |shared| shared.n_lines.load(Ordering::Relaxed));
        let is_due = n_lines >= self.next;
        if is_due {
            self.next = n_lines.saturating_mul(AGAIN);
        }
        is_due
    }
}

/// Whether one of these files, of a job that has ended, holds the word.
pub(crate) fn is_in(files: &[PathBuf]) -> bool {
    files
        .iter()
        .any(|path| File::open(path).and_then(|mut file| count(&mut file, 0)).is_ok_and(|(n, _)| n > 0))
}

/// Until nobody wants to know.
fn read_on(shared: &Weak<NanWatch>) {
    let mut read = BTreeMap::new();
    while let Some(shared) = shared.upgrade() {
        let files = shared.files.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // A file that cannot be read now is tried again.
        let n: usize = files.iter().map(|file| news(file, &mut read).unwrap_or(0)).sum();
        shared.n_lines.fetch_add(n, Ordering::Relaxed);
        drop(shared);
        thread::sleep(PAUSE);
    }
}

/// Lines with the word since the last look.
fn news((path, is_whole): &Printed, read: &mut BTreeMap<PathBuf, u64>) -> io::Result<usize> {
    let (mut file, end) = open(path)?;
    let from = *read.entry(path.clone()).or_insert(if *is_whole { 0 } else { end });
    // It was cut, or begun once more.
    let from = if from > end { 0 } else { from };
    let (n, from) = count(&mut file, from)?;
    read.insert(path.clone(), from);
    Ok(n)
}

/// A pipe or a terminal is not read: that would take it from somebody.
fn open(path: &Path) -> io::Result<(File, u64)> {
    if !path.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let file = File::open(path)?;
    let end = file.metadata()?.len();
    Ok((file, end))
}

/// Complete lines with the word from here on, and where the next look begins.
fn count(file: &mut File, from: u64) -> io::Result<(usize, u64)> {
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(MOST).read_to_end(&mut bytes)?;
    let is_end = |b: &u8| matches!(b, b'\n' | b'\r');
    let whole = match bytes.iter().rposition(is_end) {
        Some(at) => at + 1,
        // One line longer than all that is read.
        None if bytes.len() as u64 == MOST => bytes.len(),
        None => 0,
    };
    let lines = bytes.get(..whole).unwrap_or_default().split(is_end);
    Ok((lines.filter(|line| has_word(line)).count(), from + whole as u64))
}

/// The word `nan` in any case, by itself.
fn has_word(line: &[u8]) -> bool {
    let is_of_word = |at: usize| line.get(at).is_some_and(u8::is_ascii_alphanumeric);
    line.windows(3).enumerate().any(|(at, word)| {
        word.eq_ignore_ascii_case(b"nan") && !is_of_word(at + 3) && (at == 0 || !is_of_word(at - 1))
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_word_by_itself() {
        for line in ["step 3 loss nan lr 1", "{\"loss\": NaN}", "loss=nan,", "'loss': nan}", "nan"] {
            assert!(has_word(line.as_bytes()), "{line}");
        }
        for line in ["nanotron", "banana", "nan0", "na", "", "tenancy"] {
            assert!(!has_word(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn only_what_is_new_counts_and_only_whole_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("train.log");
        std::fs::write(&path, "loss nan\nloss nan\nloss na").unwrap();
        let mut read = BTreeMap::new();
        assert_eq!(news(&(path.clone(), true), &mut read).unwrap(), 2);
        assert_eq!(news(&(path.clone(), true), &mut read).unwrap(), 0);
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        write!(file, "n\rloss nan\nloss 2.0\n").unwrap();
        assert_eq!(news(&(path.clone(), true), &mut read).unwrap(), 2);
        // Another file of the same name.
        std::fs::write(&path, "loss nan\n").unwrap();
        assert_eq!(news(&(path.clone(), true), &mut read).unwrap(), 1);
        // What was there before the watcher came may be of another job.
        assert_eq!(news(&(path.clone(), false), &mut BTreeMap::new()).unwrap(), 0);
        assert!(news(&(folder.path().to_owned(), true), &mut read).is_err());
        assert!(is_in(&[path]) && !is_in(&[folder.path().join("absent")]));
    }

    #[test]
    fn it_is_due_once_for_so_many_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("train.log");
        std::fs::write(&path, "loss nan\n".repeat(FIRST)).unwrap();
        let mut nan = Nan::new();
        nan.follow(vec![(path, true)]);
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while !nan.is_due() {
            assert!(std::time::Instant::now() < until);
            thread::sleep(Duration::from_millis(20));
        }
        assert!(!nan.is_due());
    }
}
