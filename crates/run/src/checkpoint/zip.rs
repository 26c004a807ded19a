//! Zip archives as `torch.save` writes them: stored, not compressed, with a central directory at the end. A truncated
//! archive has no end record.

use std::io::{self, Read, Seek, SeekFrom};

/// End record, zip64 locator, and zip64 end record.
const END: [u8; 4] = *b"PK\x05\x06";
const LOCATOR: [u8; 4] = *b"PK\x06\x07";
const LONG_END: [u8; 4] = *b"PK\x06\x06";
const ENTRY: [u8; 4] = *b"PK\x01\x02";
const LOCAL: [u8; 4] = *b"PK\x03\x04";
/// Length of an end record with the longest comment.
const TAIL: u64 = 22 + 65_535;
/// Most entries that are read.
const MAX_ENTRIES: u64 = 2_000_000;
/// Longest central directory, bytes.
const MAX_DIRECTORY: u64 = 512 << 20;

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZipEntry {
    /// Its name.
    pub name: String,
    /// Where its local header begins.
    pub at: u64,
    /// Its size, bytes.
    pub size: u64,
    /// Its checksum.
    pub crc: u32,
    /// It is stored without compression.
    pub is_stored: bool,
}

/// What is wrong with an archive.
#[derive(Debug, thiserror::Error)]
pub enum ZipError {
    /// The file cannot be read.
    #[error("read it")]
    Read(#[source] io::Error),
    /// It is damaged or truncated.
    #[error("{0}")]
    Damaged(String),
    /// Its format is unknown, so nothing shows whether it is intact.
    #[error("a file of unknown format")]
    Foreign,
}

impl From<io::Error> for ZipError {
    fn from(error: io::Error) -> Self {
        // Data listed in the directory is missing.
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return Self::Damaged("the file is truncated".to_owned());
        }
        Self::Read(error)
    }
}

fn damaged<T>(why: &str) -> Result<T, ZipError> {
    Err(ZipError::Damaged(why.to_owned()))
}

/// Reads the directory, and checks that it matches the file's length. Errors: damage, or the file system's.
pub fn directory(file: &mut (impl Read + Seek)) -> Result<Vec<ZipEntry>, ZipError> {
    let len = file.seek(SeekFrom::End(0))?;
    if len == 0 {
        return damaged("the file is empty");
    }
    let tail_at = len.saturating_sub(TAIL);
    let tail = read(file, tail_at, len - tail_at)?;
    let Some(end) = (0..tail.len().saturating_sub(21)).rev().find(|at| tail.get(*at..at + 4) == Some(&END))
    else {
        return damaged("no end record: the file is incomplete");
    };
    let record = tail.get(end..).unwrap_or_default();
    let (mut n, mut size, mut at) =
        (u64::from(u16_at(record, 10)), u64::from(u32_at(record, 12)), u64::from(u32_at(record, 16)));
    if n == 0xffff || size == 0xffff_ffff || at == 0xffff_ffff {
        let locator = end.checked_sub(20).and_then(|at| tail.get(at..end)).unwrap_or_default();
        if locator.get(..4) != Some(&LOCATOR) {
            return damaged("no record of its length: the file is incomplete");
        }
        let long = read(file, u64_at(locator, 8), 56)?;
        if long.get(..4) != Some(&LONG_END) {
            return damaged("its zip64 end record is damaged");
        }
        (n, size, at) = (u64_at(&long, 32), u64_at(&long, 40), u64_at(&long, 48));
    }
    if at.checked_add(size).is_none_or(|end| end > len) || size > MAX_DIRECTORY || n > MAX_ENTRIES {
        return damaged("its directory does not match the file");
    }
    let bytes = read(file, at, size)?;
    entries(&bytes, n, at)
}

fn entries(bytes: &[u8], n: u64, directory_at: u64) -> Result<Vec<ZipEntry>, ZipError> {
    let mut all = Vec::new();
    let mut rest = bytes;
    for _ in 0..n {
        if rest.get(..4) != Some(&ENTRY) || rest.len() < 46 {
            return damaged("its directory is damaged");
        }
        let (name_len, extra_len, comment_len) =
            (u16_at(rest, 28) as usize, u16_at(rest, 30) as usize, u16_at(rest, 32) as usize);
        let name = String::from_utf8_lossy(rest.get(46..46 + name_len).unwrap_or_default()).into_owned();
        let extra = rest.get(46 + name_len..46 + name_len + extra_len).unwrap_or_default();
        let (mut size, mut at) = (u64::from(u32_at(rest, 20)), u64::from(u32_at(rest, 42)));
        let whole = u64::from(u32_at(rest, 24));
        long_fields(extra, whole == 0xffff_ffff, &mut size, &mut at);
        if at.checked_add(size).is_none_or(|end| end > directory_at) {
            return Err(ZipError::Damaged(format!("{name} does not fit into the file")));
        }
        all.push(ZipEntry { name, at, size, crc: u32_at(rest, 16), is_stored: u16_at(rest, 10) == 0 });
        rest = rest.get(46 + name_len + extra_len + comment_len..).unwrap_or_default();
    }
    Ok(all)
}

/// Values too large for their fields are in the extra field, in order.
fn long_fields(extra: &[u8], has_whole: bool, size: &mut u64, at: &mut u64) {
    let mut rest = extra;
    while rest.len() >= 4 {
        let (id, len) = (u16_at(rest, 0), u16_at(rest, 2) as usize);
        let mut body = rest.get(4..4 + len).unwrap_or_default();
        if id == 1 {
            let mut next = || {
                let value = u64_at(body, 0);
                body = body.get(8..).unwrap_or_default();
                value
            };
            if has_whole {
                next();
            }
            if *size == 0xffff_ffff {
                *size = next();
            }
            if *at == 0xffff_ffff {
                *at = next();
            }
            return;
        }
        rest = rest.get(4 + len..).unwrap_or_default();
    }
}

/// Where an entry's bytes begin. Errors: its local header is damaged.
pub fn body(file: &mut (impl Read + Seek), entry: &ZipEntry) -> Result<u64, ZipError> {
    let header = read(file, entry.at, 30)?;
    if header.get(..4) != Some(&LOCAL) {
        return Err(ZipError::Damaged(format!("the header of {} is damaged", entry.name)));
    }
    Ok(entry.at + 30 + u64::from(u16_at(&header, 26)) + u64::from(u16_at(&header, 28)))
}

/// The bytes of a stored entry, at most `max`. Errors: damage, or the file system's.
pub fn bytes(file: &mut (impl Read + Seek), entry: &ZipEntry, max: u64) -> Result<Vec<u8>, ZipError> {
    let at = body(file, entry)?;
    read(file, at, entry.size.min(max))
}

/// Compares the checksum of every stored entry. Errors: those that differ. If all differ, the writer omitted checksums,
/// which is not damage.
pub fn checksums(file: &mut (impl Read + Seek), entries: &[ZipEntry]) -> Result<(), ZipError> {
    let (mut bad, mut n) = (Vec::new(), 0);
    for entry in entries.iter().filter(|entry| entry.is_stored && entry.size > 0) {
        let at = body(file, entry)?;
        file.seek(SeekFrom::Start(at))?;
        let mut hasher = crc32fast::Hasher::new();
        let (mut left, mut buffer) = (entry.size, vec![0; 1 << 20]);
        while left > 0 {
            let part = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let part = buffer.get_mut(..part).unwrap_or_default();
            file.read_exact(part)?;
            hasher.update(part);
            left -= part.len() as u64;
        }
        n += 1;
        if hasher.finalize() != entry.crc {
            bad.push(entry.name.clone());
        }
    }
    if bad.is_empty() || bad.len() == n && n > 1 {
        return Ok(());
    }
    Err(ZipError::Damaged(format!("the checksum of {} does not match", bad.join(", "))))
}

pub(crate) fn read(file: &mut (impl Read + Seek), at: u64, n: u64) -> Result<Vec<u8>, ZipError> {
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.by_ref().take(n).read_to_end(&mut bytes)?;
    if (bytes.len() as u64) < n {
        return damaged("the file is truncated");
    }
    Ok(bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}
