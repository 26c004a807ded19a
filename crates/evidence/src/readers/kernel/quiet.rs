//! Stamps of lines that say nothing, which are nearly all lines of a kernel's log: they count for what the log covers.
//!
//! Only the forms in which most tools print are known here, and only where no part of a prefix can follow that
//! `prefix` would read on; every other line is left to it. What both read is the same.

use memchr::memchr;
use ringleader_model::WallTime;

use super::prefix::{self, Prefix};
use crate::ground::{scan::Scan, stamp};

/// A quiet line's stamp.
pub(super) struct Stamp<'a> {
    pub(super) uptime_us: Option<u64>,
    pub(super) at: Option<WallTime>,
    pub(super) speaker: Speaker<'a>,
    /// What follows.
    pub(super) text: &'a [u8],
}

/// Whose kernel it is.
#[derive(Clone, Copy)]
pub(super) enum Speaker<'a> {
    /// The line does not say.
    Nobody,
    /// The speaker of the line before.
    Last,
    Other(&'a [u8]),
}

/// Reads stamps; keeps what the last ones said, since lines of one second and of one host share it.
#[derive(Default)]
pub(super) struct Stamps {
    /// `Nov 20 08:21:34 `, `[Fri Aug 30 11:43:09 2024] `, as printed and as read.
    stamp: Vec<u8>,
    at: Option<WallTime>,
    /// `node7 kernel: `.
    speaker: Vec<u8>,
    /// Whether the caller knows whose it is.
    is_told: bool,
}

impl Stamps {
    /// The stamp of a line, unless another part of a prefix may follow or it has a form that is not known here.
    #[inline]
    pub(super) fn read<'a>(&mut self, line: &'a [u8]) -> Option<Stamp<'a>> {
        let (mut uptime_us, mut at) = (None, None);
        let mut speaker = Speaker::Nobody;
        let mut text: &[u8];
        match line {
            [b'[', ..] => (uptime_us, at, text) = self.bracketed(line)?,
            // `dmesg -x`
            [b'k', b'e', b'r', b'n', ..] => (uptime_us, at, text) = self.bracketed(levelled(line)?)?,
            [b'A'..=b'Z', ..] => {
                (at, text) = self.syslog(line)?;
                (speaker, text) = self.speaker(text)?;
            }
            [b'0'..=b'9', _, _, _, b'-', ..] => {
                let (time, rest) = stamp::date_time(line, b'T')?;
                at = Some(time);
                text = stamp::after_zone(rest).strip_prefix(b" ")?;
                (speaker, text) = self.speaker(text)?;
            }
            [b'0'..=b'9', ..] => {
                let (us, rest) = numbered(line)?;
                (uptime_us, text) = (Some(us), rest);
            }
            _ => return None,
        }
        match text {
            // syslog: the uptime behind the speaker.
            [b'[', b' ' | b'0'..=b'9', ..]
                if uptime_us.is_none() && at.is_some() && speaker.is_somebody() =>
            {
                let (us, rest) = uptime(text)?;
                (uptime_us, text) = (Some(us), rest);
            }
            _ => {}
        }
        if let Some(rest) = after_caller(text) {
            text = rest;
        }
        if names_kernel(text) {
            // `journalctl -o short-monotonic`
            if speaker.is_somebody() {
                return None;
            }
            (speaker, text) = self.speaker(text)?;
            if names_kernel(text) {
                return None;
            }
        }
        if !is_text(text) {
            return None;
        }
        self.is_told |= speaker.is_somebody();
        Some(Stamp { uptime_us, at, speaker, text })
    }

    /// `[   12.345678] `, `[Fri Aug 30 11:43:09 2024] `.
    #[inline]
    fn bracketed<'a>(&mut self, line: &'a [u8]) -> Option<(Option<u64>, Option<WallTime>, &'a [u8])> {
        if let [b'[', b' ' | b'0'..=b'9', ..] = line {
            let (us, rest) = uptime(line)?;
            return Some((Some(us), None, rest));
        }
        let (head, rest) = line.split_at_checked(27)?;
        if self.stamp != head {
            let [b'[', a, b, c, b' ', .., b']', b' '] = head else { return None };
            if ![a, b, c].iter().all(|x| x.is_ascii_alphabetic()) {
                return None;
            }
            let at = crate::ground::clock::ctime(
                std::str::from_utf8(head.get(1..25)?).ok().filter(|t| t.is_ascii())?,
            )?;
            self.keep(head, at);
        }
        Some((None, self.at, rest))
    }

    /// `Nov 20 08:21:34 `, with a fraction or without.
    #[inline]
    fn syslog<'a>(&mut self, line: &'a [u8]) -> Option<(Option<WallTime>, &'a [u8])> {
        let (head, rest) = line.split_at_checked(16)?;
        if self.stamp != head {
            let (at, rest) = stamp::syslog(line)?;
            let rest = rest.strip_prefix(b" ")?;
            if head.last() != Some(&b' ') {
                return Some((Some(at), rest));
            }
            self.keep(head, at);
        }
        Some((self.at, rest))
    }

    #[cold]
    fn keep(&mut self, stamp: &[u8], at: WallTime) {
        stamp.clone_into(&mut self.stamp);
        self.at = Some(at);
    }

    /// `node7 kernel: `.
    #[inline]
    fn speaker<'a>(&mut self, line: &'a [u8]) -> Option<(Speaker<'a>, &'a [u8])> {
        if self.is_told
            && let Some(rest) = line.strip_prefix(&*self.speaker)
        {
            return Some((Speaker::Last, rest));
        }
        self.other_speaker(line)
    }

    #[cold]
    fn other_speaker<'a>(&mut self, line: &'a [u8]) -> Option<(Speaker<'a>, &'a [u8])> {
        // Names that begin otherwise may be taken for another part of a prefix.
        if !matches!(line, [b'a'..=b'z', ..]) || line.starts_with(b"local") {
            return None;
        }
        let mut prefix = Prefix { text: line, ..Prefix::default() };
        let rest = prefix::speaker(&mut prefix)?;
        let name = prefix.host?;
        line.get(..line.len() - rest.len())?.clone_into(&mut self.speaker);
        self.is_told = false;
        Some((Speaker::Other(name), rest))
    }
}

impl Speaker<'_> {
    fn is_somebody(self) -> bool {
        !matches!(self, Self::Nobody)
    }
}

/// `[   12.345678] `.
#[inline]
fn uptime(line: &[u8]) -> Option<(u64, &[u8])> {
    let inside = line.get(1..)?;
    let pad = inside.iter().take(16).take_while(|b| **b == b' ').count();
    let mut scan = Scan(inside.get(pad..)?);
    let seconds = scan.dec()?;
    let ([b'.', digits @ .., b']', b' '], rest) = scan.0.split_first_chunk::<9>()? else { return None };
    let mut us = 0;
    for digit in digits {
        let digit = u64::from(digit.wrapping_sub(b'0'));
        if digit > 9 {
            return None;
        }
        us = us * 10 + digit;
    }
    Some((seconds.checked_mul(1_000_000)?.checked_add(us)?, rest))
}

/// What follows `kern  :warn  : `.
#[inline]
fn levelled(line: &[u8]) -> Option<&[u8]> {
    let (head, rest) = line.split_first_chunk::<15>()?;
    let [b'k', b'e', b'r', b'n', b' ', b' ', b':', level @ .., b':', b' '] = head else { return None };
    let is_level = matches!(
        level,
        b"emerg " | b"alert " | b"crit  " | b"err   " | b"warn  " | b"notice" | b"info  " | b"debug "
    );
    is_level.then_some(rest)
}

/// `6,1234,567890,-;` of /dev/kmsg: its time, and what follows.
fn numbered(line: &[u8]) -> Option<(u64, &[u8])> {
    let mut scan = Scan(line);
    scan.dec()?;
    scan.lit(b",")?;
    scan.dec()?;
    scan.lit(b",")?;
    let us = scan.dec()?;
    scan.lit(b",-;")?;
    Some((us, scan.0))
}

/// What follows `[   T1946] `, `[    C12] `: the thread or processor that printed.
#[inline]
fn after_caller(text: &[u8]) -> Option<&[u8]> {
    if !text.starts_with(b"[") {
        return None;
    }
    let pad = text.iter().skip(1).take(10).take_while(|b| **b == b' ').count();
    let [b'T' | b'C', digits @ ..] = text.get(1 + pad..)? else { return None };
    let n = digits.iter().take(10).take_while(|b| b.is_ascii_digit()).count();
    digits.get(n..)?.strip_prefix(b"] ").filter(|_| n > 0)
}

/// Whether a host's name and `kernel` may follow.
#[inline]
fn names_kernel(text: &[u8]) -> bool {
    let near = text.get(..96).unwrap_or(text);
    let rest = memchr(b' ', near).and_then(|gap| near.get(gap + 1..)).unwrap_or_default();
    rest.starts_with(b"kernel") || text.starts_with(b"kernel")
}

/// Whether nothing at the start of a text can be taken for one more part of a prefix, [`names_kernel`] aside.
#[inline]
fn is_text(text: &[u8]) -> bool {
    match text {
        [b'[', b'T' | b'C', b'0'..=b'9', ..] => false,
        // `[drm] `, `[UFW BLOCK] `: too short for a date.
        [b'[', b'a'..=b'z' | b'A'..=b'Z', rest @ ..] => {
            memchr(b']', rest.get(..16).unwrap_or(rest)).is_some()
        }
        // `Nov 20 08:21:34 `, `Thu 2026-11-20 08:21:34 `.
        [b'[' | b'<' | b'0'..=b'9', ..] | [b'A'..=b'Z', _, _, b' ', b' ' | b'0'..=b'9', ..] => false,
        _ => true,
    }
}

#[cfg(test)]
#[path = "quiet_tests.rs"]
mod tests;
