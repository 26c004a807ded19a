//! zip, read as a stream from its first local header to the central directory (PKWARE APPNOTE 6.3).
//!
//! Stored and deflated members are read, zip64 sizes too; the length of a deflated one need not be known. Encrypted ones and
//! other methods are noted. A file of `torch.save` is a zip as well: it holds tensors, and is left alone.

use std::io::{self, BufRead, BufReader, Read};

use ringleader_model::NoteKind;

use super::tape::{LeftOut, tame};
use super::{Budget, Expanded, InnerStream};
use crate::ground::{Extract, stop_kind};
use crate::scratch::Scratch;

const LOCAL: [u8; 4] = *b"PK\x03\x04";
const DESCRIPTOR: [u8; 4] = *b"PK\x07\x08";
/// Longest name and extra field; both have 16 bits.
const IS_ENCRYPTED: u16 = 1;
const HAS_DESCRIPTOR: u16 = 1 << 3;

/// What a local header says.
struct Header {
    flags: u16,
    method: u16,
    packed_bytes: u64,
    name: Vec<u8>,
    is_zip64: bool,
}

/// Reads every file of the archive.
pub(super) fn read(
    place: &InnerStream,
    input: &mut dyn Read,
    budget: &Budget<'_>,
    scratch: &mut Scratch,
    extract: &mut Extract,
) {
    let mut input = BufReader::new(input);
    let mut notes = Vec::new();
    let mut unread = LeftOut::default();
    let mut unsafe_names = LeftOut::default();
    let mut n_files = 0_u32;
    loop {
        let header = match header(&mut input) {
            Ok(Some(header)) => header,
            Ok(None) => break,
            Err(error) => {
                let text =
                    format!("the archive cannot be read further ({error}); {n_files} files before were read");
                notes.push((stop_kind(&error), text));
                break;
            }
        };
        if n_files == 0 && header.name.ends_with(b"/data.pkl") {
            let text = "a file of torch.save: not read".into();
            notes.push((NoteKind::Unrecognised, text));
            break;
        }
        let (shown, is_changed) = tame(&header.name);
        if is_changed {
            unsafe_names.tell(&header.name);
        }
        let is_sized = header.flags & HAS_DESCRIPTOR == 0;
        let may_read = header.flags & IS_ENCRYPTED == 0 && matches!(header.method, 0 | 8);
        if !may_read || header.method == 0 && !is_sized {
            unread.tell(&header.name);
            if !is_sized {
                let text = "what follows a member of unknown length was left out".into();
                notes.push((NoteKind::Unreadable, text));
                break;
            }
            if skip(&mut (&mut input).take(header.packed_bytes)).is_err() {
                break;
            }
            continue;
        }
        if header.name.last() == Some(&b'/') {
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
        let inner =
            InnerStream { shown: format!("{}!{shown}", place.shown), name: shown, depth: place.depth + 1 };
        let ended = if header.method == 0 {
            let mut member = (&mut input).take(header.packed_bytes);
            super::open(&inner, &mut Expanded { decoder: &mut member, budget }, budget, scratch, extract);
            skip(&mut member)
        } else {
            let mut member = flate2::bufread::DeflateDecoder::new(&mut input);
            super::open(&inner, &mut Expanded { decoder: &mut member, budget }, budget, scratch, extract);
            // Readers may leave a rest; its length is known only once it is unpacked.
            skip(&mut Expanded { decoder: &mut member, budget })
        };
        let ended =
            ended.and_then(|()| if is_sized { Ok(()) } else { descriptor(&mut input, header.is_zip64) });
        if let Err(error) = ended {
            let text = format!("the archive cannot be read further ({error}); {n_files} files were read");
            notes.push((stop_kind(&error), text));
            break;
        }
    }
    if let Some(first) = &unread.first {
        let text =
            format!("{} members are encrypted or packed in another way (the first is {first})", unread.n);
        notes.push((NoteKind::Unreadable, text));
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

/// The next local header; None where the central directory begins.
fn header(input: &mut impl Read) -> io::Result<Option<Header>> {
    let mut magic = [0; 4];
    input.read_exact(&mut magic)?;
    if magic != LOCAL {
        return Ok(None);
    }
    let mut fixed = [0; 26];
    input.read_exact(&mut fixed)?;
    let two = |at: usize| {
        fixed.get(at..at + 2).map_or(0, |b| b.iter().rev().fold(0_u16, |n, b| n << 8 | u16::from(*b)))
    };
    let four = |at: usize| u64::from(two(at)) | u64::from(two(at + 2)) << 16;
    let mut name = vec![0; usize::from(two(22))];
    input.read_exact(&mut name)?;
    let mut extra = vec![0; usize::from(two(24))];
    input.read_exact(&mut extra)?;
    let mut packed_bytes = four(14);
    let zip64 = zip64(&extra);
    if packed_bytes == u64::from(u32::MAX)
        && let Some(size) = zip64.and_then(|field| field.get(8..16))
    {
        packed_bytes = size.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
    }
    Ok(Some(Header { flags: two(2), method: two(4), packed_bytes, name, is_zip64: zip64.is_some() }))
}

/// The extra field with sizes of 64 bits.
fn zip64(mut extra: &[u8]) -> Option<&[u8]> {
    while let [a, b, c, d, rest @ ..] = extra {
        let field = rest.get(..usize::from(u16::from_le_bytes([*c, *d])))?;
        if u16::from_le_bytes([*a, *b]) == 1 {
            return Some(field);
        }
        extra = rest.get(field.len()..)?;
    }
    None
}

/// What follows a member whose length was not known before: with or without a mark, sizes of 32 or 64 bits.
fn descriptor(input: &mut impl BufRead, is_zip64: bool) -> io::Result<()> {
    let has_mark = input.fill_buf()?.starts_with(&DESCRIPTOR);
    let n = if has_mark { 4 } else { 0 } + if is_zip64 { 20 } else { 12 };
    skip(&mut input.take(n))
}

fn skip(input: &mut impl Read) -> io::Result<()> {
    io::copy(input, &mut io::sink()).map(|_| ())
}
