//! Moments without their year: torch and kernels print month, day and time of day alone.

use ringleader_model::{Date, WallTime};

const SECOND_NS: i64 = 1_000_000_000;

/// Month, day and time of a moment, as if its year were 1970.
pub fn in_year(at: WallTime) -> i64 {
    const DAY_NS: i64 = 86_400 * SECOND_NS;
    if !at.has_year {
        return at.ns;
    }
    let (days, of_day) = (at.ns.div_euclid(DAY_NS), at.ns.rem_euclid(DAY_NS));
    Date { year: 1970, ..Date::from_days(days) }.days() * DAY_NS + of_day
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_year_is_left_away() {
        let at = |ns, has_year| WallTime { ns, error_ns: 0, has_year };
        // 2026-11-20 08:21:34 and `Nov 20 08:21:34`
        assert_eq!(in_year(at(1_795_162_894 * SECOND_NS, true)), 27_937_294 * SECOND_NS);
        assert_eq!(in_year(at(27_937_294 * SECOND_NS, false)), 27_937_294 * SECOND_NS);
        // 2024-02-29 is as far as 1970-03-01; 2024-03-01 is the same: 1970 had no such day.
        assert_eq!(in_year(at(1_704_067_200 * SECOND_NS, true)), 0, "2024-01-01");
        assert_eq!(in_year(at(1_735_603_200 * SECOND_NS, true)), 364 * 86_400 * SECOND_NS, "2024-12-31");
    }
}
