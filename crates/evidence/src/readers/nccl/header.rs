//! The head of an NCCL line: who wrote it, where, and how loud.
//!
//! ..2.25 `host:pid:tid [dev] NCCL INFO text`, `host:pid:tid [dev] file:line NCCL WARN text`; 2.26 puts an optional
//! stamp in front; 2.30.7 adds `(function) ` after `file:line `. 2.8 to 2.32 all print CALL without `[dev]`.

use memchr::{memchr, memmem, memrchr};

use crate::ground::scan::Scan;

/// Severity word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NcclLevel {
    Warn,
    Info,
    /// CALL and TRACE, which only trace builds print.
    Trace,
}

/// Head and text of a line. What the line does not say is empty or None.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineHead<'a> {
    pub(super) host: &'a [u8],
    pub(super) pid: Option<u32>,
    pub(super) tid: u32,
    pub(super) dev: Option<u32>,
    pub(super) origin: Option<&'a [u8]>,
    pub(super) level: NcclLevel,
    pub(super) text: &'a [u8],
    /// Something else precedes the head on the same line.
    pub(super) torn: bool,
}

/// The form of nearly all lines: `host:pid:tid [dev] NCCL INFO text`.
#[inline]
pub(super) fn strict(body: &[u8]) -> Option<LineHead<'_>> {
    let colon = body.iter().take(64).position(|b| matches!(b, b':' | b' '))?;
    let (host, rest) = body.split_at_checked(colon)?;
    let mut scan = Scan(rest);
    scan.lit(b":")?;
    let pid = scan.dec32()?;
    scan.lit(b":")?;
    let tid = scan.int()? as u32;
    scan.lit(b" [")?;
    let dev = scan.int()?;
    scan.lit(b"] NCCL INFO ")?;
    if host.is_empty() {
        return None;
    }
    let dev = u32::try_from(dev).ok();
    Some(LineHead {
        host,
        pid: Some(pid),
        tid,
        dev,
        origin: None,
        level: NcclLevel::Info,
        text: scan.0,
        torn: false,
    })
}

/// Any other form, found by its marker anywhere in the line.
pub(super) fn loose<'a>(body: &'a [u8], marker: &memmem::Finder<'_>) -> Option<LineHead<'a>> {
    let mut from = 0;
    while let Some(at) = body.get(from..).and_then(|rest| marker.find(rest)) {
        let at = from + at;
        from = at + marker.needle().len();
        let (before, after) = (body.get(..at)?, body.get(from..)?);
        let levels = [
            (&b"INFO "[..], NcclLevel::Info),
            (b"WARN ", NcclLevel::Warn),
            (b"TRACE ", NcclLevel::Trace),
            (b"CALL ", NcclLevel::Trace),
        ];
        let level = levels.into_iter().find_map(|(word, level)| Some((level, after.strip_prefix(word)?)));
        let Some((level, text)) = level else { continue };
        if let Some(head) = who_and_where(before) {
            return Some(LineHead { level, text, ..head });
        }
    }
    None
}

/// Reads backwards what precedes the marker. None if it is no head: then the words are a quotation.
fn who_and_where(before: &[u8]) -> Option<LineHead<'_>> {
    let mut head = LineHead {
        host: b"",
        pid: None,
        tid: 0,
        dev: None,
        origin: None,
        level: NcclLevel::Info,
        text: b"",
        torn: false,
    };
    let mut left = before.trim_ascii_end();
    if left.is_empty() {
        return Some(head);
    }
    if left.len() == before.len() {
        // `NCCL` glued to a word.
        return None;
    }
    if left.ends_with(b")") {
        left = left.get(..memrchr(b'(', left)?)?.trim_ascii_end();
    }
    let (rest, word) = last_word(left);
    if is_origin(word) {
        head.origin = Some(word);
        left = rest;
    } else if left.ends_with(b")") {
        return None;
    }
    if let Some(inside) = left.strip_suffix(b"]") {
        let open = memrchr(b'[', inside)?;
        let mut dev = Scan(inside.get(open + 1..)?);
        head.dev = dev.int().and_then(|d| u32::try_from(d).ok());
        left = inside.get(..open)?.trim_ascii_end();
    } else if head.origin.is_some() {
        // `include/shm.h:28 NCCL WARN`: no process named.
        head.torn = !left.is_empty();
        return Some(head);
    }
    let (rest, word) = last_word(left);
    head.torn = !rest.is_empty();
    let mut parts = word.rsplitn(3, |b| *b == b':');
    let (tid, pid, host) = (parts.next(), parts.next(), parts.next());
    match (host, pid.and_then(whole_number), tid.and_then(whole_number)) {
        (Some(host), Some(pid), Some(tid)) if !host.is_empty() => {
            head.host = host;
            head.pid = u32::try_from(pid).ok();
            head.tid = tid as u32;
        }
        // `node3:XXXXXX [5] …`: numbers that somebody took out.
        _ if head.dev.is_some() => {
            let host = word.get(..memchr(b':', word).unwrap_or(0)).unwrap_or_default();
            let is_name = host.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
            head.host = if is_name { host } else { b"" };
        }
        _ => return None,
    }
    Some(head)
}

fn whole_number(bytes: &[u8]) -> Option<i64> {
    let mut scan = Scan(bytes);
    scan.int().filter(|_| scan.0.is_empty())
}

/// Splits off the last word; blanks before it go too.
fn last_word(line: &[u8]) -> (&[u8], &[u8]) {
    let at = memrchr(b' ', line).map_or(0, |at| at + 1);
    let (rest, word) = line.split_at_checked(at).unwrap_or((&[], line));
    (rest.trim_ascii_end(), word)
}

/// `transport/net_ib.cc:839`.
pub(super) fn is_origin(word: &[u8]) -> bool {
    let Some(colon) = memrchr(b':', word) else { return false };
    let (Some(file), Some(line)) = (word.get(..colon), word.get(colon + 1..)) else { return false };
    let Some(dot) = memrchr(b'.', file) else { return false };
    let ending = file.get(dot + 1..).unwrap_or_default();
    (1..=7).contains(&line.len())
        && line.iter().all(u8::is_ascii_digit)
        && matches!(ending, b"cc" | b"c" | b"h" | b"cu" | b"cuh" | b"cpp" | b"hpp" | b"in" | b"inl")
        && file.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'/' | b'+'))
}
