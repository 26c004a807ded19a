//! Time stamps of log lines: ISO 8601 with a blank or a `T`, with or without fraction and zone, and syslog's.

use ringleader_model::{Date, WallTime};

const NS_PER_S: i64 = 1_000_000_000;
/// Months, three letters each.
pub(super) const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";

fn two(bytes: &[u8]) -> Option<i64> {
    match bytes {
        [a @ b'0'..=b'9', b @ b'0'..=b'9', ..] => Some(i64::from(a - b'0') * 10 + i64::from(b - b'0')),
        _ => None,
    }
}

/// `08:21:34` as hours, minutes and seconds, which need be none: `88:21:34` has the shape.
fn clock(bytes: &[u8]) -> Option<[i64; 3]> {
    let [_, _, b':', _, _, b':', _, _] = bytes.first_chunk::<8>()? else { return None };
    Some([two(bytes)?, two(bytes.get(3..)?)?, two(bytes.get(6..)?)?])
}

/// The second of the day.
fn second([h, m, s]: [i64; 3]) -> Option<i64> {
    (h < 24 && m < 60 && s < 61).then_some(h * 3600 + m * 60 + s)
}

/// `.123456789` or `,123`: nanoseconds, the worth of half the last digit, and the rest.
fn fraction(bytes: &[u8]) -> (i64, i64, &[u8]) {
    let none = (0, NS_PER_S / 2, bytes);
    let [b'.' | b',', digits @ ..] = bytes else { return none };
    let n = digits.iter().take_while(|b| b.is_ascii_digit()).count();
    if n == 0 {
        return none;
    }
    let (mut ns, mut unit) = (0, NS_PER_S);
    for digit in digits.iter().take(n.min(9)) {
        unit /= 10;
        ns += i64::from(digit - b'0') * unit;
    }
    (ns, unit / 2, digits.get(n..).unwrap_or_default())
}

/// `2026-11-20 08:21:34` or with `between` = `T`, and a fraction. Returns the time and what follows.
pub(crate) fn date_time(bytes: &[u8], between: u8) -> Option<(WallTime, &[u8])> {
    let (at, rest) = date_time_shaped(bytes, between)?;
    Some((at?, rest))
}

/// The same, and whatever has its shape: `2026-99-20 88:21:34` has no time, but is a stamp where prefixes are stripped.
/// What is stripped must not depend on the value of a digit.
pub(crate) fn date_time_shaped(bytes: &[u8], between: u8) -> Option<(Option<WallTime>, &[u8])> {
    let [y @ .., b'-', _, _, b'-', _, _, gap] = bytes.first_chunk::<11>()? else { return None };
    if *gap != between {
        return None;
    }
    let year = two(y)? * 100 + two(y.get(2..)?)?;
    let (month, day) = (two(bytes.get(5..)?)?, two(bytes.get(8..)?)?);
    let clock = clock(bytes.get(11..)?)?;
    let (ns, error_ns, rest) = fraction(bytes.get(19..)?);
    let at = || {
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        // Nanoseconds end in the year 2262: a later one is no time.
        let days = Date { year, month, day }.days();
        let ns = (days * 86_400 + second(clock)?).checked_mul(NS_PER_S)?.checked_add(ns)?;
        Some(WallTime { ns, error_ns, has_year: true })
    };
    Some((at(), rest))
}

/// What follows a zone: `Z`, `+00:00`, `+0000`. A stamp without one gives `bytes` itself.
pub(crate) fn after_zone(bytes: &[u8]) -> &[u8] {
    match bytes {
        [b'Z', rest @ ..] => rest,
        [b'+' | b'-', _, _, b':', m @ b'0'..=b'9', _, rest @ ..] if m.is_ascii_digit() => rest,
        [b'+' | b'-', a, b, c, d, rest @ ..] if [a, b, c, d].iter().all(|x| x.is_ascii_digit()) => rest,
        _ => bytes,
    }
}

/// `Nov 20 08:21:34` of syslog, which prints no year. Returns the time and what follows.
pub(crate) fn syslog(bytes: &[u8]) -> Option<(WallTime, &[u8])> {
    let (at, rest) = syslog_shaped(bytes)?;
    Some((at?, rest))
}

/// The same, and whatever has its shape.
pub(crate) fn syslog_shaped(bytes: &[u8]) -> Option<(Option<WallTime>, &[u8])> {
    let [m0, m1, m2, b' ', d0, d1, b' '] = bytes.first_chunk::<7>()? else { return None };
    let month = MONTHS.chunks_exact(3).position(|m| *m == [*m0, *m1, *m2])? as i64 + 1;
    let day = match d0 {
        b' ' => two(&[b'0', *d1])?,
        _ => two(&[*d0, *d1])?,
    };
    let clock = clock(bytes.get(7..)?)?;
    let (ns, error_ns, rest) = fraction(bytes.get(15..)?);
    let days = Date { year: 1970, month, day }.days();
    let at = second(clock).map(|s| WallTime {
        ns: (days * 86_400 + s) * NS_PER_S + ns,
        error_ns,
        has_year: false,
    });
    Some((at, rest))
}
