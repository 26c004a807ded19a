//! Finds the files below the paths that were named.
//!
//! Refuses to follow links within a folder (what they point at is either read at its own place or not part of what
//! was given), to open anything but regular files there, and to go deeper or list more than its bounds.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use ringleader_model::NoteKind;

use crate::failure::{Failure, HELP_DIAGNOSE};

/// Folders within folders. Deeper than any log tree; a loop by bind mount ends here.
const MAX_DEPTH: usize = 64;
/// Files of one run: ten times the largest folder seen.
const MAX_FILES: usize = 1_000_000;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct WalkResult {
    /// To be read, in canonical order.
    pub(super) entries: Vec<EvidenceFile>,
    /// Not to be read, and why.
    pub(super) refused: Vec<Refused>,
}

/// One file to read.
#[derive(Debug)]
pub(super) struct EvidenceFile {
    /// Path that reports show.
    pub(super) shown: String,
    /// Size at the time of the walk; 0 for a stream.
    pub(super) size_bytes: u64,
    /// How to open it.
    pub(super) input: Input,
}

/// How an entry is opened.
#[derive(Debug)]
pub(super) enum Input {
    /// A regular file met in a folder.
    File(PathBuf),
    /// A file or pipe that was named, links followed.
    Named(PathBuf),
    /// Standard input.
    Stdin,
}

/// Something that is not read.
#[derive(Debug)]
pub(super) struct Refused {
    /// Path that reports show.
    pub(super) shown: String,
    /// Trouble or remark.
    pub(super) kind: NoteKind,
    /// Why, and what to do.
    pub(super) text: String,
}

/// Lists everything below `paths`.
pub(super) fn walk(paths: &[PathBuf]) -> Result<WalkResult, Failure> {
    let mut walk = Walk { found: WalkResult::default(), met: BTreeSet::new(), several: paths.len() > 1 };
    for path in paths {
        walk.start(path)?;
    }
    Ok(walk.found)
}

struct Walk {
    found: WalkResult,
    /// Real paths met so far, so that a file named twice is read once. Kept only if several paths were named.
    met: BTreeSet<PathBuf>,
    several: bool,
}

/// A folder still to be listed.
struct Folder {
    path: PathBuf,
    /// Its path in reports; empty for the folder that was named.
    shown: String,
    depth: usize,
}

impl Walk {
    fn start(&mut self, path: &Path) -> Result<(), Failure> {
        if path == Path::new("-") {
            if self.met.insert(PathBuf::from("-")) {
                self.found.entries.push(EvidenceFile {
                    shown: "stdin".to_owned(),
                    size_bytes: 0,
                    input: Input::Stdin,
                });
            }
            return Ok(());
        }
        let no_such = |source| Failure::NoSuchPath { path: path.to_owned(), source, help: HELP_DIAGNOSE };
        let shown = show(path.as_os_str());
        let meta = match fs::metadata(path) {
            Ok(meta) => meta,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.unreadable(shown, &error);
                return Ok(());
            }
            Err(error) => return Err(no_such(error)),
        };
        if meta.is_dir() {
            let root = fs::canonicalize(path).map_err(no_such)?;
            let shown = if self.several { shown.trim_end_matches('/').to_owned() } else { String::new() };
            self.folders(&root, shown);
        } else if meta.is_file() || is_pipe(&meta) {
            if self.is_new(path) {
                let input = Input::Named(path.to_owned());
                self.found.entries.push(EvidenceFile { shown, size_bytes: meta.len(), input });
            }
        } else {
            self.refuse(
                shown,
                NoteKind::Unreadable,
                "not read: it is a device or socket; name a file, folder or pipe".to_owned(),
            );
        }
        Ok(())
    }

    fn folders(&mut self, root: &Path, shown: String) {
        let mut open = vec![Folder { path: root.to_owned(), shown, depth: 0 }];
        while let Some(folder) = open.pop() {
            let below = self.folder(root, &folder);
            open.extend(below);
        }
    }

    /// Lists one folder; answers with the folders in it, last first.
    fn folder(&mut self, root: &Path, folder: &Folder) -> Vec<Folder> {
        let at = || if folder.shown.is_empty() { ".".to_owned() } else { folder.shown.clone() };
        let mut names = Vec::new();
        match fs::read_dir(&folder.path) {
            Ok(listing) => {
                for entry in listing {
                    match entry {
                        Ok(entry) => names.push((entry.file_name(), entry.file_type())),
                        Err(error) => {
                            self.unreadable(at(), &error);
                            break;
                        }
                    }
                    if self.found.entries.len() + names.len() > MAX_FILES {
                        break;
                    }
                }
            }
            Err(error) => self.unreadable(at(), &error),
        }
        names.sort_by(|a, b| a.0.cmp(&b.0));
        let mut below = Vec::new();
        for (name, file_type) in names {
            let path = folder.path.join(&name);
            let shown = if folder.shown.is_empty() {
                show(&name)
            } else {
                format!("{}/{}", folder.shown, show(&name))
            };
            let file_type = match file_type {
                Ok(file_type) => file_type,
                Err(error) => {
                    self.unreadable(shown, &error);
                    continue;
                }
            };
            if file_type.is_symlink() {
                self.link(root, &path, shown);
            } else if file_type.is_dir() {
                if folder.depth + 1 > MAX_DEPTH {
                    let text =
                        format!("not read: more than {MAX_DEPTH} folders deep; name it as a path of its own");
                    self.refuse(shown, NoteKind::LimitReached, text);
                } else {
                    below.push(Folder { path, shown, depth: folder.depth + 1 });
                }
            } else if !file_type.is_file() {
                let text = "not opened: it is a pipe, socket or device, which could block or act".to_owned();
                self.refuse(shown, NoteKind::Remark, text);
            } else if self.found.entries.len() >= MAX_FILES {
                let text = format!(
                    "not read from here on: more than {MAX_FILES} files; name fewer or smaller folders"
                );
                self.refuse(shown, NoteKind::LimitReached, text);
                return Vec::new();
            } else if self.is_new(&path) {
                let size_bytes = fs::symlink_metadata(&path).map_or(0, |meta| meta.len());
                self.found.entries.push(EvidenceFile { shown, size_bytes, input: Input::File(path) });
            }
        }
        below.reverse();
        below
    }

    /// Says where a link points. Judged by its text alone: what is outside of the folder is not even looked up.
    fn link(&mut self, root: &Path, path: &Path, shown: String) {
        let target = match fs::read_link(path) {
            Ok(target) => target,
            Err(error) => return self.unreadable(shown, &error),
        };
        let full = normal(&path.parent().unwrap_or(root).join(&target));
        let name = show(target.as_os_str());
        if !full.starts_with(root) {
            let text =
                format!("link not followed: it leaves the folder; if it belongs to the job, name it: {name}");
            self.refuse(shown, NoteKind::Unreadable, text);
        } else if fs::symlink_metadata(&full).is_err() {
            self.refuse(
                shown,
                NoteKind::Unreadable,
                format!("link not followed: there is nothing at {name}"),
            );
        } else {
            self.refuse(
                shown,
                NoteKind::Remark,
                format!("link not followed: {name} is read at its own place"),
            );
        }
    }

    fn is_new(&mut self, path: &Path) -> bool {
        // A path that cannot be resolved will fail to open too, and be noted there.
        !self.several || fs::canonicalize(path).map_or(true, |real| self.met.insert(real))
    }

    fn unreadable(&mut self, shown: String, error: &io::Error) {
        let (kind, text) = super::unreadable(error);
        self.refuse(shown, kind, text);
    }

    fn refuse(&mut self, shown: String, kind: NoteKind, text: String) {
        self.found.refused.push(Refused { shown, kind, text });
    }
}

#[cfg(unix)]
fn is_pipe(meta: &fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    meta.file_type().is_fifo()
}

#[cfg(not(unix))]
fn is_pipe(_meta: &fs::Metadata) -> bool {
    false
}

/// Takes `.` and `..` out of a path by its text alone.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out
}

/// A name as text. Bytes that are no UTF-8 become `\xNN`, so that two names stay two.
fn show(name: &OsStr) -> String {
    let mut shown = String::new();
    for chunk in name.as_encoded_bytes().utf8_chunks() {
        shown.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_judged_by_their_text() {
        #[track_caller]
        fn check(path: &str, expected: &str) {
            assert_eq!(normal(Path::new(path)), Path::new(expected));
        }
        check("/job/logs/../fr_rank0", "/job/fr_rank0");
        check("/job/../../etc/passwd", "/etc/passwd");
        check("/job/./a", "/job/a");
    }
}
