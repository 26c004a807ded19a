//! Lines of terminals: colours, and what else a terminal is told within a line, are no part of what is said.
//!
//! ```text
//! \x1b[1;31mRuntimeError: boom\x1b[0m          a control sequence (ECMA-48, CSI)
//! \x1b]8;;file:///srv/train.py\x07train.py     a command of the operating system (OSC), here a link
//! ```

use std::borrow::Cow;

use memchr::memchr;

const ESCAPE: u8 = 0x1b;
/// A longer sequence is none.
const MAX_SEQUENCE: usize = 4_096;

/// Whether a control sequence of a terminal is in these bytes.
#[inline]
pub(super) fn has_any(bytes: &[u8]) -> bool {
    memchr(ESCAPE, bytes).is_some()
}

/// The line without that.
pub(super) fn plain(line: &[u8]) -> Cow<'_, [u8]> {
    if !has_any(line) {
        return Cow::Borrowed(line);
    }
    let mut out = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = memchr(ESCAPE, rest) {
        let (before, sequence) = rest.split_at_checked(at).unwrap_or((rest, b""));
        out.extend_from_slice(before);
        // An escape that begins no sequence stays as it is.
        let n = length(sequence).unwrap_or_else(|| {
            out.push(ESCAPE);
            1
        });
        rest = sequence.get(n..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    Cow::Owned(out)
}

/// Bytes of the sequence that begins here.
fn length(sequence: &[u8]) -> Option<usize> {
    let inside = sequence.get(2..)?;
    let inside = inside.get(..MAX_SEQUENCE).unwrap_or(inside);
    match sequence.get(1)? {
        b'[' => {
            let n = inside.iter().take_while(|b| matches!(b, 0x20..=0x3f)).count();
            inside.get(n).filter(|b| matches!(b, 0x40..=0x7e)).map(|_| n + 3)
        }
        b']' => {
            let end = inside.iter().position(|b| matches!(*b, 0x07 | ESCAPE))?;
            let is_long = inside.get(end) == Some(&ESCAPE);
            (!is_long || inside.get(end + 1) == Some(&b'\\')).then_some(end + if is_long { 4 } else { 3 })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &str) {
        assert_eq!(String::from_utf8_lossy(&plain(line.as_bytes())), expected);
    }

    #[test]
    fn colours_links_and_erasures() {
        check("\x1b[1;31m[rank0]: boom\x1b[0m", "[rank0]: boom");
        check("\x1b[K\x1b[?25lstep 3\x1b[38;2;1;2;3m ok", "step 3 ok");
        check("see \x1b]8;;file:///a.py\x07a.py\x1b]8;;\x1b\\ there", "see a.py there");
        check("none", "none");
    }

    #[test]
    fn what_is_no_sequence_stays() {
        check("cut \x1b[1;3", "cut \x1b[1;3");
        check("\x1b", "\x1b");
        check("a \x1bz b \x1b]open", "a \x1bz b \x1b]open");
    }
}
