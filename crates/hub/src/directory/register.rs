//! A register in a directory: `entries/NUMBER`, each created once and never rewritten, and `members/NODE`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::files;
use crate::HubError;
use crate::records::{MAX_EVIDENCE_BYTES, MAX_REGISTER_BYTES, Page};
use crate::seat::{escape, unescape};

/// Number of entries that are kept.
const MAX_KEPT: u64 = 64;
/// Bytes of the beat before a note.
const BEAT: usize = 20;

pub(crate) struct DirectoryRegister {
    root: PathBuf,
    node: String,
    token: String,
    ttl: Duration,
    beat: u64,
    /// The last note of each node, and since when it is unchanged.
    seen: BTreeMap<String, (Vec<u8>, Instant)>,
}

fn away(error: &io::Error) -> HubError {
    HubError::Away(error.to_string())
}

impl DirectoryRegister {
    pub(crate) fn open(root: PathBuf, node: &str, ttl: Duration) -> Self {
        let token = format!("{}-{}", escape(node), std::process::id());
        Self { root, node: node.to_owned(), token, ttl, beat: 0, seen: BTreeMap::new() }
    }

    fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let folder = self.root.join(name);
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    pub(crate) fn read(&mut self) -> Result<Page, HubError> {
        self.try_read().map_err(|error| away(&error))
    }

    fn try_read(&mut self) -> io::Result<Page> {
        let entries = self.folder("entries")?;
        let newest = numbers(&entries)?.into_iter().max();
        let entry = match newest {
            Some(number) => {
                let (file, _) = files::open(&entries.join(name(number)))?;
                Some((number, files::read(file, MAX_REGISTER_BYTES)?))
            }
            None => None,
        };
        let members = self.folder("members")?;
        let (now, mut live) = (Instant::now(), Vec::new());
        for (file_name, path) in list(&members)? {
            let Some(node) = unescape(&file_name) else { continue };
            // A file that is being replaced is read the next time.
            let Ok(bytes) =
                files::open(&path).and_then(|(file, _)| files::read(file, MAX_REGISTER_BYTES + BEAT))
            else {
                continue;
            };
            let (seen, since) = self.seen.entry(node.clone()).or_insert_with(|| (bytes.clone(), now));
            if *seen != bytes {
                (*seen, *since) = (bytes.clone(), now);
            }
            if now.duration_since(*since) <= self.ttl
                && let Some(note) = bytes.get(BEAT..)
            {
                live.push((node, note.to_vec()));
            }
        }
        Ok(Page { entry, members: live })
    }

    pub(crate) fn propose(&mut self, number: u64, bytes: &[u8]) -> Result<bool, HubError> {
        self.try_propose(number, bytes).map_err(|error| away(&error))
    }

    fn try_propose(&mut self, number: u64, bytes: &[u8]) -> io::Result<bool> {
        let entries = self.folder("entries")?;
        let known = numbers(&entries)?;
        if known.iter().max().copied().unwrap_or(0) + 1 != number {
            return Ok(false);
        }
        let is_ours = files::create(&entries.join(name(number)), &self.token, bytes)?;
        for old in known.into_iter().filter(|old| old + MAX_KEPT < number) {
            // Another participant may have removed it.
            std::fs::remove_file(entries.join(name(old))).ok();
        }
        Ok(is_ours)
    }

    /// One file per node, readable only by its owner: the number, then the evidence.
    pub(crate) fn share(&mut self, number: u64, bytes: &[u8]) -> Result<(), HubError> {
        let content = [&number.to_be_bytes()[..], bytes].concat();
        let written = self.folder("evidence").and_then(|folder| {
            files::replace_private(&folder.join(escape(&self.node)), &self.token, &content)
        });
        written.map_err(|error| away(&error))
    }

    pub(crate) fn fetch(&mut self, node: &str, number: u64) -> Result<Option<Vec<u8>>, HubError> {
        let path = self.folder("evidence").map_err(|error| away(&error))?.join(escape(node));
        let bytes = match files::open(&path).and_then(|(file, _)| files::read(file, MAX_EVIDENCE_BYTES + 8)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(away(&error)),
        };
        let is_of = bytes.get(..8) == Some(&number.to_be_bytes()[..]);
        Ok(bytes.get(8..).filter(|rest| is_of && rest.len() <= MAX_EVIDENCE_BYTES).map(<[u8]>::to_vec))
    }

    pub(crate) fn announce(&mut self, bytes: &[u8]) -> Result<(), HubError> {
        self.beat += 1;
        // Repeating the same note is a sign of life.
        let stamp = (std::process::id() as u64) << 40 | self.beat;
        let note = [format!("{stamp:0BEAT$}").as_bytes(), bytes].concat();
        let written = self
            .folder("members")
            .and_then(|folder| files::replace(&folder.join(escape(&self.node)), &self.token, &note));
        written.map_err(|error| away(&error))
    }
}

fn name(number: u64) -> String {
    format!("{number:020}")
}

fn list(folder: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let entries = std::fs::read_dir(folder)?.take(1 << 17).flatten();
    Ok(entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path()))).collect())
}

fn numbers(folder: &Path) -> io::Result<Vec<u64>> {
    Ok(list(folder)?.iter().filter_map(|(name, _)| name.parse().ok()).collect())
}
