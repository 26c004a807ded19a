//! Stamps of one whole second, as tools print them.

use ringleader_model::{Date, WallTime};

use super::stamp;

const SECOND_NS: i64 = 1_000_000_000;

/// `2026-11-20 08:21:32`, with a blank or a `T` between, and nothing else.
pub(crate) fn iso(text: &str) -> Option<WallTime> {
    let stamp = stamp::date_time(text.as_bytes(), b' ').or_else(|| stamp::date_time(text.as_bytes(), b'T'));
    stamp.filter(|(_, rest)| rest.is_empty()).map(|(at, _)| at)
}

/// `Fri Nov 20 08:21:32 2026` of date(1) and ctime(3); a time zone before the year is passed over.
pub(crate) fn ctime(text: &str) -> Option<WallTime> {
    let (weekday, rest) = text.trim().split_once(' ')?;
    let (at, rest) = stamp::syslog(rest.as_bytes()).filter(|_| weekday.len() == 3)?;
    let year = std::str::from_utf8(rest).ok()?.split_ascii_whitespace().next_back()?.parse().ok()?;
    if !(1970..2200).contains(&year) {
        return None;
    }
    // The stamp counts from 1970 as if that were its year, which had no leap day.
    let day = at.ns.div_euclid(86_400 * SECOND_NS);
    let date = Date::from_days(day);
    let moved = Date { year, ..date }.days() - day;
    Some(WallTime { ns: at.ns + moved * 86_400 * SECOND_NS, has_year: true, ..at })
}

/// Whether a text may begin with a stamp of [`ctime`]: a weekday of three letters and a month.
pub(crate) fn begins_ctime(text: &[u8]) -> bool {
    let [_, _, _, b' ', month @ ..] = text.trim_ascii_start() else { return false };
    begins_month(month)
}

/// Whether a text begins with a month of three letters.
pub(crate) fn begins_month(text: &[u8]) -> bool {
    let Some([a, b, c, b' ']) = text.first_chunk() else { return false };
    stamp::MONTHS.chunks_exact(3).any(|m| *m == [*a, *b, *c])
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    #[test]
    fn stamps_become_seconds() {
        let at = 1_795_162_892_i64;
        assert_eq!(super::iso("2026-11-20 08:21:32").unwrap().ns / super::SECOND_NS, at);
        assert_eq!(super::ctime("Fri Nov 20 08:21:32 2026       ").unwrap().ns / super::SECOND_NS, at);
        assert_eq!(super::ctime("Fri Nov 20 08:21:32 UTC 2026").unwrap().ns / super::SECOND_NS, at);
        assert_eq!(super::iso("2024-02-29T00:00:00").unwrap().ns / super::SECOND_NS, 1_709_164_800);
        assert_eq!(super::iso("2024-13-29 00:00:00"), None);
        assert_eq!(super::ctime("Sun Mar  1 00:00:00 2026").unwrap().ns / super::SECOND_NS, 1_772_323_200);
        assert_eq!(super::ctime("Fri Nov 20"), None);
    }
}
