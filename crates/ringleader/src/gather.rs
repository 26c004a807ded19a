//! From paths to a case: finds the files, reads them on all processors, joins what was read.
//!
//! Contents are not kept. Files that cannot be read become a source with a note, so that a report says so.

pub(crate) mod context;
pub(crate) mod excerpts;
pub(crate) mod folders;
mod walk;

use std::any::Any;
use std::fs::File;
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use ringleader_evidence::{Extract, Limits, Scratch};
use ringleader_model::{Case, Cite, Note, NoteKind, Source, SourceId, SourceKind};

use crate::failure::{self, Failure};
use crate::gather::walk::{EvidenceFile, Input};
use crate::progress::Progress;

/// Reads everything under `paths`; `-` is standard input. Shows progress on a terminal if `show_progress`.
///
/// # Errors
/// If a path that was named does not exist. Files within a folder never fail: they are noted.
pub fn gather(paths: &[PathBuf], show_progress: bool) -> Result<Case, Failure> {
    let found = walk::walk(paths)?;
    let mut extracts: Vec<Extract> =
        found.refused.into_iter().map(|r| not_read(&r.shown, r.kind, r.text)).collect();
    extracts.extend(read_all(&found.entries, show_progress));
    Ok(ringleader_evidence::merge(extracts))
}

/// Reads all entries, in their order, whichever thread comes to which first.
fn read_all(entries: &[EvidenceFile], show_progress: bool) -> Vec<Extract> {
    let progress =
        Progress::new(entries.len(), entries.iter().map(|entry| entry.size_bytes).sum(), show_progress);
    let limits = Limits::default();
    // Large files first: the last one to be taken up should be a small one.
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(entries.get(at).map_or(0, |entry| entry.size_bytes)));
    let next = AtomicUsize::new(0);
    let shares = rayon::broadcast(|_| {
        let mut scratch = Scratch::default();
        let mut share = Vec::new();
        while let Some(&at) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Some(entry) = entries.get(at) {
                share.push((at, read_one(entry, &mut scratch, &limits, &progress)));
                progress.file_done();
            }
        }
        share
    });
    progress.finish();
    let mut extracts: Vec<(usize, Extract)> = shares.into_iter().flatten().collect();
    extracts.sort_by_key(|(at, _)| *at);
    extracts.into_iter().map(|(_, extract)| extract).collect()
}

/// Reads one entry. A panic of a reader costs its own file alone.
fn read_one(entry: &EvidenceFile, scratch: &mut Scratch, limits: &Limits, progress: &Progress) -> Extract {
    let read = catch_unwind(AssertUnwindSafe(|| -> io::Result<Extract> {
        let input: Box<dyn Read> = match &entry.input {
            Input::Stdin => Box::new(io::stdin().lock()),
            Input::File(path) => Box::new(open_found(path)?),
            Input::Named(path) => Box::new(File::open(path)?),
        };
        Ok(ringleader_evidence::read(&entry.shown, &mut progress.count(input), scratch, limits))
    }));
    match read {
        Ok(Ok(extract)) => extract,
        Ok(Err(error)) => {
            let (kind, text) = unreadable(&error);
            not_read(&entry.shown, kind, text)
        }
        Err(panic) => {
            *scratch = Scratch::default();
            not_read(&entry.shown, NoteKind::Unreadable, our_bug(&*panic))
        }
    }
}

fn our_bug(_panic: &(dyn Any + Send)) -> String {
    format!(
        "not read because of a bug of ringleader; please report it with this file: {}",
        failure::last_panic()
    )
}

/// What to do about a file that the system does not let this user read.
const DENIED: &str =
    "run as its owner or as root, or have its owner grant access: setfacl -R -m u:USER:rX PATH";

/// The first file and why, if the system let this user read nothing of what was given.
pub(crate) fn refused(case: &Case, paths: &[PathBuf]) -> Option<String> {
    let note = |source: usize| {
        case.notes.iter().find(|n| n.cite.source.0 as usize == source && n.kind == NoteKind::Denied)
    };
    let first = case.sources.first()?;
    let why = note(0)?.text.trim_start_matches("not read: ").to_owned();
    // Of one folder the report names what is in it; here the path as it was given helps.
    let path = match paths {
        [root] if root.is_dir() && first.path == "." => root.display().to_string(),
        [root] if root.is_dir() => root.join(&first.path).display().to_string(),
        _ => first.path.clone(),
    };
    (0..case.sources.len()).all(|at| note(at).is_some()).then(|| format!("{path}: {why}"))
}

/// Why a file could not be opened, and what to do.
fn unreadable(error: &io::Error) -> (NoteKind, String) {
    let (kind, next) = match error.kind() {
        io::ErrorKind::PermissionDenied => (NoteKind::Denied, DENIED),
        io::ErrorKind::NotFound => {
            (NoteKind::Unreadable, "it disappeared while the folder was read; run again")
        }
        _ => (NoteKind::Unreadable, "copy it to a local disk and run again"),
    };
    (kind, format!("not read: {error}; {next}"))
}

/// Opens a file that the walk saw as a regular one. Between the two it may have become a link or a pipe: neither is
/// followed or waited for.
fn open_found(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.custom_flags((rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits() as i32);
    }
    let file = options.open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is no longer a regular file"))
    }
}

/// A source that was not read, with the reason.
fn not_read(shown: &str, kind: NoteKind, text: String) -> Extract {
    let source = Source { path: shown.to_owned(), kinds: Vec::<SourceKind>::new(), size_bytes: 0 };
    let note = Note { cite: Cite::whole(SourceId(0)), kind, text };
    Extract { sources: vec![source], observations: Vec::new(), notes: vec![note] }
}
