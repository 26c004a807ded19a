//! What precedes the text of a kernel's line: stamps, level, host. They stack in any order that a tool prints.

use ringleader_model::WallTime;

use crate::ground::{scan::Scan, stamp};

const NS_PER_S: i64 = 1_000_000_000;
/// Parts of a prefix; a line with more is no log.
const MAX_PARTS: u32 = 8;
/// Bytes that one part may have.
const MAX_PART: usize = 80;
const FACILITIES: [&[u8]; 12] = [
    b"kern",
    b"user",
    b"mail",
    b"daemon",
    b"auth",
    b"syslog",
    b"lpr",
    b"news",
    b"uucp",
    b"cron",
    b"authpriv",
    b"ftp",
];
const LEVELS: [&[u8]; 10] =
    [b"emerg", b"alert", b"crit", b"err", b"error", b"warn", b"warning", b"notice", b"info", b"debug"];

/// What a line's prefix says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prefix<'a> {
    /// Microseconds since boot.
    pub(super) uptime_us: Option<u64>,
    /// Wall time.
    pub(super) at: Option<WallTime>,
    pub(super) host: Option<&'a [u8]>,
    /// It says `kernel: ` and nothing else, which a program may print too.
    pub(super) says_kernel: bool,
    /// The line is the kernel's, surely.
    pub(super) is_kernel: bool,
    /// What follows.
    pub(super) text: &'a [u8],
}

/// Reads prefixes; keeps the last stamp of `dmesg -T`, since lines of one second share it.
#[derive(Default)]
pub(super) struct Stamps {
    last: Vec<u8>,
    last_at: Option<WallTime>,
}

impl Stamps {
    pub(super) fn read<'a>(&mut self, line: &'a [u8]) -> Prefix<'a> {
        let mut prefix = Prefix { text: line, ..Prefix::default() };
        for _ in 0..MAX_PARTS {
            let next = match prefix.text {
                [b'[', ..] => self.bracket(&mut prefix),
                [b'<', ..] => priority(prefix.text),
                [b'0'..=b'9', ..] => number(&mut prefix),
                [b'a'..=b'z', ..] if !prefix.is_kernel => level(&mut prefix).or_else(|| speaker(&mut prefix)),
                [b'A'..=b'Z', ..] if prefix.at.is_none() => {
                    date(&mut prefix).or_else(|| speaker(&mut prefix))
                }
                [b'a'..=b'z' | b'A'..=b'Z', ..] if prefix.host.is_none() && !prefix.says_kernel => {
                    speaker(&mut prefix)
                }
                _ => None,
            };
            match next {
                Some(next) => prefix.text = next,
                None => break,
            }
        }
        prefix
    }

    /// `[   12.345678]`, `[Fri Aug 30 11:43:09 2024]`, `[   T1946]`, `[2026-04-22T21:27:51.288830314Z]:`.
    fn bracket<'a>(&mut self, prefix: &mut Prefix<'a>) -> Option<&'a [u8]> {
        let inside = prefix.text.get(1..)?;
        let near = inside.get(..MAX_PART).unwrap_or(inside);
        let close = memchr::memchr(b']', near)?;
        let (inside, rest) = (inside.get(..close)?, inside.get(close + 1..)?);
        let trimmed = inside.trim_ascii();
        match trimmed {
            [b'0'..=b'9', b'0'..=b'9', b'0'..=b'9', b'0'..=b'9', b'-', ..] => {
                let (at, zone) = stamp::date_time(trimmed, b'T')?;
                if !stamp::after_zone(zone).is_empty() || !prefix.is_kernel {
                    return None;
                }
                prefix.at = Some(at);
                let rest = rest.strip_prefix(b":").unwrap_or(rest);
                return Some(rest.strip_prefix(b" ").unwrap_or(rest));
            }
            [b'0'..=b'9', ..] => prefix.uptime_us = Some(uptime(trimmed)?),
            // The thread or processor that printed it: only behind the time.
            [b'T' | b'C', digits @ ..] if prefix.uptime_us.is_some() || prefix.at.is_some() => {
                if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
                    return None;
                }
            }
            _ => {
                if self.last != trimmed {
                    let at = civil(trimmed)?;
                    trimmed.clone_into(&mut self.last);
                    self.last_at = Some(at);
                }
                prefix.at = self.last_at;
            }
        }
        prefix.is_kernel = true;
        Some(rest.strip_prefix(b" ").unwrap_or(rest))
    }
}

/// Whether a line without any word of the kernel's may bear its stamp; digits do not count.
pub(super) fn may_begin(line: &[u8]) -> bool {
    let near = line.get(..2 * MAX_PART).unwrap_or(line);
    let is_numbered = || {
        let n = line.iter().take_while(|b| b.is_ascii_digit()).count();
        n > 0 && line.get(n) == Some(&b',')
    };
    let is_civil = |at: usize| near.get(at + 1..).is_some_and(crate::ground::clock::begins_ctime);
    is_numbered()
        || memchr::memchr_iter(b'[', near).any(is_civil)
        || memchr::memmem::find(near, "月".as_bytes()).is_some()
}

/// `12.345678`: the kernel prints six digits.
fn uptime(text: &[u8]) -> Option<u64> {
    let mut scan = Scan(text);
    let seconds = scan.dec()?;
    scan.lit(b".")?;
    let fraction = scan.0;
    if fraction.len() != 6 {
        return None;
    }
    let us = scan.dec().filter(|_| scan.0.is_empty())?;
    seconds.checked_mul(1_000_000)?.checked_add(us)
}

/// `Fri Aug 30 11:43:09 2024`, and the same where the month is a number with a sign behind it (`二 9月  3 05:57:48 2024`).
fn civil(text: &[u8]) -> Option<WallTime> {
    let text = std::str::from_utf8(text).ok()?;
    if let Some(at) = crate::ground::clock::ctime(text).filter(|_| text.is_ascii()) {
        return Some(at);
    }
    let mut words = text.split_ascii_whitespace();
    let (_, month, day, time, year) =
        (words.next()?, words.next()?, words.next()?, words.next()?, words.next()?);
    let month: i64 = month.strip_suffix('月')?.parse().ok().filter(|m| (1..=12).contains(m))?;
    let day: i64 = day.parse().ok().filter(|d| (1..=31).contains(d))?;
    let year: i64 = year.parse().ok().filter(|y| (1970..2200).contains(y))?;
    let iso = format!("{year:04}-{month:02}-{day:02} {time}");
    let (at, rest) = stamp::date_time(iso.as_bytes(), b' ')?;
    (rest.is_empty() && words.next().is_none()).then_some(at)
}

/// `<6>`, `<4>1 ` of RFC 5424.
fn priority(line: &[u8]) -> Option<&[u8]> {
    let mut scan = Scan(line.get(1..)?);
    scan.dec32().filter(|n| *n < 192)?;
    scan.lit(b">")?;
    match scan.0 {
        [b'1', b' ', rest @ ..] if stamp::date_time(rest, b'T').is_some() => Some(rest),
        [b'[' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z', ..] => Some(scan.0),
        _ => None,
    }
}

/// `6,1234,567890,-;` of /dev/kmsg, and `2025-01-21T04:41:44,285060+00:00 `.
fn number<'a>(prefix: &mut Prefix<'a>) -> Option<&'a [u8]> {
    let mut scan = Scan(prefix.text);
    scan.dec()?;
    match scan.0.first() {
        Some(b',') => {
            scan.lit(b",")?;
            scan.dec()?;
            scan.lit(b",")?;
            let us = scan.dec()?;
            scan.lit(b",")?;
            let near = scan.0.get(..MAX_PART).unwrap_or(scan.0);
            let end = memchr::memchr(b';', near)?;
            prefix.uptime_us = Some(us);
            prefix.is_kernel = true;
            scan.0.get(end + 1..)
        }
        Some(b'-') => {
            let (at, rest) = stamp::date_time(prefix.text, b'T')?;
            let rest = stamp::after_zone(rest).strip_prefix(b" ")?;
            prefix.at = Some(at);
            Some(rest)
        }
        // `journalctl -o short-unix`.
        Some(b'.') => {
            let seconds = Scan(prefix.text).dec().filter(|s| (1_000_000_000..4_000_000_000).contains(s))?;
            scan.lit(b".")?;
            let us = scan.dec().filter(|us| *us < 1_000_000)?;
            scan.lit(b" ")?;
            let ns = (seconds as i64).checked_mul(NS_PER_S)? + us as i64 * 1_000;
            let at = WallTime { ns, error_ns: 500, has_year: true };
            let mut new = Prefix { at: Some(at), text: scan.0, ..*prefix };
            let rest = speaker(&mut new)?;
            *prefix = new;
            Some(rest)
        }
        _ => None,
    }
}

/// `kern  :warn  : ` of `dmesg -x`, `kern: warning: ` of Talos.
fn level<'a>(prefix: &mut Prefix<'a>) -> Option<&'a [u8]> {
    let near = prefix.text.get(..24).unwrap_or(prefix.text);
    let colon = memchr::memchr(b':', near)?;
    let facility = near.get(..colon)?.trim_ascii_end();
    if !FACILITIES.contains(&facility) && !facility.starts_with(b"local") {
        return None;
    }
    let rest = prefix.text.get(colon + 1..)?;
    let near = rest.get(..12).unwrap_or(rest);
    let end = memchr::memchr(b':', near)?;
    if !LEVELS.contains(&near.get(..end)?.trim_ascii()) {
        return None;
    }
    prefix.is_kernel = facility == b"kern";
    rest.get(end + 1..)?.strip_prefix(b" ")
}

/// `Nov 20 08:21:34 ` of syslog, `Thu 2026-11-20 08:21:34 UTC ` of `journalctl -o short-full`.
fn date<'a>(prefix: &mut Prefix<'a>) -> Option<&'a [u8]> {
    if let Some((at, rest)) = stamp::syslog(prefix.text) {
        let rest = rest.strip_prefix(b" ")?;
        let mut new = Prefix { at: Some(at), text: rest, ..*prefix };
        // Another program's line is not the kernel's, and its text is not ours to search from here.
        let rest = speaker(&mut new)?;
        *prefix = new;
        return Some(rest);
    }
    let (weekday, rest) = prefix.text.split_at_checked(4)?;
    if weekday.last() != Some(&b' ') {
        return None;
    }
    let (at, rest) = stamp::date_time(rest, b' ')?;
    let rest = rest.strip_prefix(b" ")?;
    let zone = memchr::memchr(b' ', rest.get(..8).unwrap_or(rest))?;
    prefix.at = Some(at);
    rest.get(zone + 1..)
}

/// `host kernel: `, `kernel: `, `host kernel - - - ` of RFC 5424.
pub(super) fn speaker<'a>(prefix: &mut Prefix<'a>) -> Option<&'a [u8]> {
    let line = prefix.text;
    if let Some(rest) = line.strip_prefix(b"kernel: ") {
        prefix.is_kernel |= prefix.at.is_some() || prefix.uptime_us.is_some();
        prefix.says_kernel = true;
        return Some(rest);
    }
    let near = line.get(..MAX_PART).unwrap_or(line);
    let gap = memchr::memchr(b' ', near)?;
    let (host, rest) = (line.get(..gap)?, line.get(gap + 1..)?);
    let is_name = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    if !host.iter().all(is_name) {
        return None;
    }
    let rest = rest
        .strip_prefix(b"kernel: ")
        .or_else(|| rest.strip_prefix(b"kernel - - - "))
        .or_else(|| rest.strip_prefix(b"kernel - - "))?;
    prefix.host = Some(host).filter(|h| *h != b"localhost");
    prefix.is_kernel = true;
    Some(rest)
}

/// Programs that write to the kernel's log, or share its console in a guest: what they say is no statement of the kernel.
const PROGRAMS: [&[u8]; 4] = [b"nv-fabricmanager: ", b"nvidia-persistenced: ", b"NVRC: ", b"nv-hostengine: "];

/// Whether one of [`PROGRAMS`] speaks in the text behind the stamp.
pub(super) fn is_of_program(text: &[u8]) -> bool {
    matches!(text.first(), Some(b'n' | b'N')) && PROGRAMS.iter().any(|program| text.starts_with(program))
}
