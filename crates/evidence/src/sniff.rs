//! The kind of a stream, by its first bytes, never by its name.
//!
//! Sure signs come first (magic numbers), guesses last. A log may begin like JSON (`[rank0]: …`, `[1,0]<stdout>: …`,
//! `[2026-11-20 08:21:32] vm:1:1 NCCL …`, `{'loss': 0.1}`), so an opening bracket counts only with what may follow it in
//! JSON.

use crate::readers::{self, WholeFile};
use crate::text;

/// Outer form of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamForm {
    /// gzip, one member or several.
    Gzip,
    /// zstd, one frame or several.
    Zstd,
    /// xz, one stream or several.
    Xz,
    /// bzip2, one stream or several.
    Bzip2,
    /// zip; files of `torch.save` are zips, too.
    Zip,
    /// tar: old, ustar, GNU or pax.
    Tar,
    /// A JSON document or several.
    Json,
    /// A trace of PyTorch's profiler or another one in Chrome's format.
    Timeline,
    /// Text in UTF-16, with a byte order mark or without.
    Utf16 {
        /// Most significant byte first.
        big_endian: bool,
    },
    /// A format that is read as a whole.
    Whole(&'static WholeFile),
    /// Text in UTF-8 or a superset of ASCII.
    Text,
    /// Something else; a known format is named.
    Binary(Option<&'static str>),
    /// A stream without a byte.
    Empty,
}

impl StreamForm {
    /// Whether other streams are in it.
    pub(crate) fn is_packed(&self) -> bool {
        matches!(self, Self::Gzip | Self::Zstd | Self::Xz | Self::Bzip2 | Self::Tar | Self::Zip)
    }
}

/// Bytes that sniffing wants to see (a tar header is 512).
pub(crate) const HEAD_BYTES: usize = 4096;

/// UTF-8's byte order mark, which some tools put in front of text.
pub(crate) const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

/// Formats that are reported by name, since the user may know how to convert them.
const MAGICS: [(&[u8], &str); 8] = [
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x04\x22\x4d\x18", "an lz4 file"),
    (b"\x7fELF", "an ELF file (a program, a library or a core dump)"),
    (b"PERFILE2", "a perf recording"),
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"%PDF", "a PDF document"),
    (b"LPKSHHRH", "a systemd journal (journalctl -o short-iso --file FILE prints it)"),
];

/// Tells the form from the head of a stream.
pub(crate) fn sniff(head: &[u8]) -> StreamForm {
    if let Some(format) = readers::whole_file(head) {
        return StreamForm::Whole(format);
    }
    match head {
        [] => StreamForm::Empty,
        [0x1f, 0x8b, ..] => StreamForm::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => StreamForm::Zstd,
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => StreamForm::Xz,
        // The first block begins with the digits of pi; an empty file has the square root.
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31 | 0x17, ..] => StreamForm::Bzip2,
        [b'P', b'K', 3, 4, ..] => StreamForm::Zip,
        [0xff, 0xfe, ..] => StreamForm::Utf16 { big_endian: false },
        [0xfe, 0xff, ..] => StreamForm::Utf16 { big_endian: true },
        _ if is_tar(head) => StreamForm::Tar,
        _ => match MAGICS.iter().find(|(magic, _)| head.starts_with(magic)) {
            Some((_, name)) => StreamForm::Binary(Some(name)),
            None => match utf16(head) {
                Some(big_endian) => StreamForm::Utf16 { big_endian },
                None => sniff_text(head),
            },
        },
    }
}

fn sniff_text(head: &[u8]) -> StreamForm {
    if !is_text(head) {
        StreamForm::Binary(None)
    } else if !is_json(head.strip_prefix(UTF8_MARK).unwrap_or(head)) || readers::is_json_log(head) {
        // A journal is an object a line, without end: it is read line by line like any log.
        StreamForm::Text
    } else if is_timeline(head) {
        StreamForm::Timeline
    } else {
        StreamForm::Json
    }
}

/// The byte order of text in UTF-16 without a mark: of nearly all pairs one byte is 0 and the other one a character's, as
/// in any text that is mostly ASCII.
fn utf16(head: &[u8]) -> Option<bool> {
    let pairs = head.as_chunks::<2>().0;
    let of_order = |big_endian: bool| {
        let is_plain = |pair: &&[u8; 2]| {
            let [first, second] = **pair;
            let [high, low] = if big_endian { [first, second] } else { [second, first] };
            high == 0 && (matches!(low, b' '..=b'~' | b'\t' | b'\n' | b'\r'))
        };
        pairs.len() >= 8 && pairs.iter().filter(is_plain).count() * 10 >= pairs.len() * 9
    };
    [false, true].into_iter().find(|order| of_order(*order))
}

/// Hardly a byte that no text has. A log that is truncated while its writers are at its old end has a hole: one run of
/// NULs between what is text.
fn is_text(head: &[u8]) -> bool {
    let is_mostly = |n_odd: usize, n: usize| n_odd * 50 <= n;
    let is_odd = |b: &&u8| matches!(b, 0..=8 | 14..=26 | 28..=31);
    let n_odd = head.iter().filter(is_odd).count();
    if is_mostly(n_odd, head.len()) {
        return true;
    }
    // A short text with control characters of a terminal, or with a few NULs: valid UTF-8 with lines or words.
    let is_utf8 = std::str::from_utf8(head).map_or_else(|e| e.error_len().is_none(), |_| true);
    let is_printed = |b: &&u8| matches!(b, b' '..=b'~' | b'\t' | b'\n' | b'\r' | 0x1b | 0x80..);
    let n_printed = head.iter().filter(is_printed).count();
    if is_utf8 && n_odd * 8 <= head.len() && n_printed * 8 >= head.len() * 7 && head.contains(&b' ') {
        return true;
    }
    let (Some(first), Some(last)) = (memchr::memchr(0, head), memchr::memrchr(0, head)) else { return false };
    let hole = head.get(first..=last).unwrap_or_default();
    let n_around = head.len() - hole.len();
    // Without a line before it this is the field of some record.
    hole.iter().all(|b| *b == 0)
        && head.get(..first).is_some_and(|before| before.contains(&b'\n'))
        && is_mostly(head.iter().filter(is_odd).count() - hole.len(), n_around)
}

/// The magic of POSIX and GNU, or a header whose checksum is right (older programs write no magic).
fn is_tar(head: &[u8]) -> bool {
    if head.get(257..262) == Some(b"ustar") {
        return true;
    }
    let Some((header, stored)) = head.get(..512).zip(head.get(148..156)) else { return false };
    let sum = |bytes: Option<&[u8]>| bytes.unwrap_or_default().iter().map(|b| u32::from(*b)).sum::<u32>();
    let digits = stored.iter().skip_while(|b| **b == b' ').take_while(|b| matches!(b, b'0'..=b'7'));
    let stated = digits.fold(0_u32, |n, b| n.wrapping_mul(8).wrapping_add(u32::from(b - b'0')));
    stated != 0 && stated == sum(header.get(..148)) + sum(header.get(156..)) + 8 * u32::from(b' ')
}

/// An object whose first key is quoted, or an array of objects, arrays or strings. Arrays of plain numbers are left to
/// the text reader: mpirun's `[1,0]<stdout>:` begins so, and no known format does.
fn is_json(head: &[u8]) -> bool {
    let mut significant = head.iter().filter(|b| !b.is_ascii_whitespace());
    !text::is_docker(head)
        && matches!(
            (significant.next(), significant.next()),
            (Some(b'{'), Some(b'"' | b'}') | None) | (Some(b'['), Some(b'{' | b'[' | b'"'))
        )
}

/// Chrome's trace format; PyTorch writes the device properties before the events.
fn is_timeline(head: &[u8]) -> bool {
    let has = |word: &str| memchr::memmem::find(head, word.as_bytes()).is_some();
    has("\"traceEvents\"")
        || (has("\"schemaVersion\"") && has("\"deviceProperties\""))
        || (has("\"ph\":") && has("\"ts\":"))
}

#[cfg(test)]
mod tests;
