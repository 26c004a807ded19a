//! Stamps of one whole second, as tools print them.

use ringleader_model::WallTime;

const SECOND_NS: i64 = 1_000_000_000;

/// `2026-11-20 08:21:32`, with a space or a `T` between.
pub(crate) fn iso(text: &str) -> Option<WallTime> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let mut date = date.splitn(3, '-').map(|n| n.parse::<i64>().ok());
    whole_second(date.next()??, date.next()??, date.next()??, time)
}

/// `Fri Nov 20 08:21:32 2026` of date(1) and ctime(3); a time zone before the year is passed over.
pub(crate) fn ctime(text: &str) -> Option<WallTime> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split_ascii_whitespace();
    let _weekday = words.next().filter(|w| w.len() == 3)?;
    let month = words.next()?;
    let month = MONTHS.iter().position(|m| *m == month)? as i64 + 1;
    let day = words.next()?.parse().ok()?;
    let time = words.next()?;
    let year = words.last()?.parse().ok()?;
    whole_second(year, month, day, time)
}

fn whole_second(year: i64, month: i64, day: i64, time: &str) -> Option<WallTime> {
    let time = time.get(..8).filter(|_| time.len() == 8)?;
    let mut time = time.splitn(3, ':').map(|n| n.parse::<i64>().ok());
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    let is_sane = (1970..2200).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..=60).contains(&second);
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    // The stamp names the second that had begun.
    is_sane.then(|| WallTime { ns: seconds * SECOND_NS, error_ns: SECOND_NS, has_year: true })
}

/// Days of the proleptic Gregorian calendar. Years run from March, so that the leap day is their last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
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
        assert_eq!(super::ctime("Fri Nov 20"), None);
    }
}
