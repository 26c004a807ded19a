//! tar: old, ustar, GNU and pax, read as a stream.
//!
//! Names are only shown. The headers that carry long names are read with a bound: their stated size is the archive's
//! claim, and a claim may be gigabytes.

use std::io::{self, Read};

use ringleader_model::NoteKind;

use super::{Budget, InnerStream};
use crate::ground::{Extract, bounded_text, stop_kind};
use crate::scratch::Scratch;

/// Longest member name that is read.
const MAX_NAME_BYTES: u64 = 16 << 10;

/// Reads every file of the archive.
pub(super) fn read(
    place: &InnerStream,
    input: &mut dyn Read,
    budget: &Budget<'_>,
    scratch: &mut Scratch,
    extract: &mut Extract,
) {
    let mut notes = Vec::new();
    let mut others = LeftOut::default();
    let mut unsafe_names = LeftOut::default();
    let mut n_files = 0_u32;
    let mut long_name: Option<Vec<u8>> = None;
    let mut archive = tar::Archive::new(input);
    // Raw: the library would read long names whole into memory.
    match archive.entries().map(|entries| entries.raw(true)) {
        Err(error) => notes.push((NoteKind::Unreadable, format!("the archive could not be read ({error})"))),
        Ok(entries) => {
            for entry in entries {
                let mut entry = match entry {
                    Ok(entry) => entry,
                    Err(error) => {
                        let text = format!(
                            "the archive cannot be read further ({error}); {n_files} files before were read"
                        );
                        notes.push((stop_kind(&error), text));
                        break;
                    }
                };
                let kind = entry.header().entry_type();
                if kind.is_gnu_longname() || kind.is_pax_local_extensions() {
                    let mut bytes = Vec::new();
                    // A failure here shows again at the next header.
                    let _ = (&mut entry).take(MAX_NAME_BYTES).read_to_end(&mut bytes);
                    long_name = if kind.is_gnu_longname() {
                        Some(bytes.split(|b| *b == 0).next().unwrap_or_default().to_vec())
                    } else {
                        pax_path(&bytes).or(long_name)
                    };
                    continue;
                }
                if kind.is_pax_global_extensions() || kind.is_gnu_longlink() {
                    continue;
                }
                let name = long_name.take().unwrap_or_else(|| entry.path_bytes().into_owned());
                let (shown, is_changed) = tame(&name);
                if is_changed {
                    unsafe_names.tell(&name);
                }
                if kind.is_dir() {
                    continue;
                }
                if !kind.is_file() && !kind.is_contiguous() {
                    others.tell(&name);
                    continue;
                }
                // Old archives mark a directory by its name alone.
                if name.last() == Some(&b'/') && entry.size() == 0 {
                    continue;
                }
                let Some(left) = budget.members_left.get().checked_sub(1) else {
                    let text = format!(
                        "more than {} files in this archive; the rest was left out",
                        budget.limits.max_members
                    );
                    notes.push((NoteKind::LimitReached, text));
                    break;
                };
                budget.members_left.set(left);
                n_files += 1;
                let inner = InnerStream {
                    shown: format!("{}!{shown}", place.shown),
                    name: shown,
                    depth: place.depth + 1,
                };
                let mut member = TarEntry { left: entry.size(), input: &mut entry };
                super::open(&inner, &mut member, budget, scratch, extract);
            }
        }
    }
    if let Some(first) = &others.first {
        let text = format!(
            "{} links, devices or other special entries were left out (the first is {first})",
            others.n
        );
        notes.push((NoteKind::Remark, text));
    }
    if let Some(first) = &unsafe_names.first {
        let text = format!(
            "{} names point outside the archive or contain control characters (the first is {first}); they are shown escaped, nothing is unpacked",
            unsafe_names.n
        );
        notes.push((NoteKind::Remark, text));
    }
    if n_files == 0 && notes.is_empty() {
        notes.push((NoteKind::Remark, "the archive holds no file".into()));
    }
    super::about(place, notes, budget, extract);
}

/// How many there were, and the first by name.
#[derive(Default)]
pub(super) struct LeftOut {
    pub(super) n: u32,
    pub(super) first: Option<String>,
}

impl LeftOut {
    pub(super) fn tell(&mut self, name: &[u8]) {
        self.n += 1;
        self.first.get_or_insert_with(|| bounded_text(name, 200).escape_debug().to_string());
    }
}

/// A name that stays inside: no root, no drive, no `..`, no control character. True if anything but `./` was changed.
pub(super) fn tame(name: &[u8]) -> (String, bool) {
    let text = bounded_text(name, MAX_NAME_BYTES as usize);
    let clean: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    let mut is_changed = clean != text || clean.starts_with('/') || clean.starts_with('\\');
    let mut parts = Vec::new();
    for part in clean.split(['/', '\\']) {
        match part {
            "" | "." => {}
            ".." => is_changed = true,
            _ if parts.is_empty() && part.len() == 2 && part.ends_with(':') => is_changed = true,
            _ => parts.push(part),
        }
    }
    if parts.is_empty() { ("(no name)".into(), is_changed) } else { (parts.join("/"), is_changed) }
}

/// `path` of a pax header: records of `LENGTH KEY=VALUE\n`.
fn pax_path(mut records: &[u8]) -> Option<Vec<u8>> {
    loop {
        let space = records.iter().position(|b| *b == b' ')?;
        let length: usize = std::str::from_utf8(records.get(..space)?).ok()?.parse().ok()?;
        let record = records.get(space + 1..length)?;
        if let Some(path) = record.strip_prefix(b"path=") {
            return Some(path.strip_suffix(b"\n").unwrap_or(path).to_vec());
        }
        records = records.get(length..)?;
    }
}

/// One file of the archive: its end must come after the bytes its header promised.
struct TarEntry<'i> {
    left: u64,
    input: &'i mut dyn Read,
}

impl Read for TarEntry<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let n = self.input.read(buf)?;
        if n == 0 && self.left > 0 {
            let missing = std::mem::take(&mut self.left);
            let text = format!("the archive ends {missing} bytes before the end of this file");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        self.left = self.left.saturating_sub(n as u64);
        Ok(n)
    }
}
