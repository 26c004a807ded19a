//! Dates of the Gregorian calendar and days since 1970, by the usual era arithmetic: years begin in March, so
//! a leap day is the last day of its year.
//!
//! Arithmetic only: callers handle zones and clocks. A day beyond the end of its month counts on from the
//! month's first day: a timestamp without a year may be 29 February.

/// Days from 0000-03-01 to 1970-01-01.
const TO_ERA: i64 = 719_468;
/// Days in 400 years.
const DAYS_OF_ERA: i64 = 146_097;

/// A date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    /// Year.
    pub year: i64,
    /// Month, from 1.
    pub month: i64,
    /// Day, from 1.
    pub day: i64,
}

impl Date {
    /// Days from 1970-01-01 to the date.
    #[inline]
    pub fn days(self) -> i64 {
        let year = if self.month <= 2 { self.year - 1 } else { self.year };
        let of_era = year.rem_euclid(400);
        let of_year = (153 * (self.month + if self.month > 2 { -3 } else { 9 }) + 2) / 5 + self.day - 1;
        year.div_euclid(400) * DAYS_OF_ERA + of_era * 365 + of_era / 4 - of_era / 100 + of_year - TO_ERA
    }

    /// The date this many days after 1970-01-01.
    #[inline]
    pub fn from_days(days: i64) -> Self {
        let shifted = days + TO_ERA;
        let of_era = shifted.rem_euclid(DAYS_OF_ERA);
        let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let from_march = (5 * of_year + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        Self {
            year: year + shifted.div_euclid(DAYS_OF_ERA) * 400 + i64::from(month <= 2),
            month,
            day: of_year - (153 * from_march + 2) / 5 + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Date;

    #[test]
    fn days_and_dates_agree() {
        for (year, month, day, days) in [
            (1970, 1, 1, 0),
            (1970, 3, 1, 59),
            (2000, 2, 29, 11_016),
            (2026, 11, 20, 20_777),
            (1969, 12, 31, -1),
            (1600, 1, 1, -135_140),
        ] {
            let date = Date { year, month, day };
            assert_eq!(date.days(), days, "{date:?}");
            assert_eq!(Date::from_days(days), date);
        }
        for days in (-200_000..200_000).step_by(97) {
            assert_eq!(Date::from_days(days).days(), days);
        }
    }

    #[test]
    fn a_leap_day_of_a_common_year_is_the_day_after() {
        assert_eq!(Date { year: 1970, month: 2, day: 29 }.days(), 59);
    }
}
