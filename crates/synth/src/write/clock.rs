//! Wall clock times as programs print them.

use ringleader_model::Date;

/// A time, split into fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) year: i64,
    pub(crate) month: u32,
    pub(crate) day: u32,
    pub(crate) hour: u32,
    pub(crate) minute: u32,
    pub(crate) second: u32,
    pub(crate) nanos: u32,
}

/// ns since 1970 to calendar fields (proleptic Gregorian, UTC).
pub(crate) fn stamp(ns: i64) -> Stamp {
    let seconds = ns.div_euclid(1_000_000_000);
    let days = seconds.div_euclid(86_400);
    let of_day = seconds.rem_euclid(86_400) as u32;
    let Date { year, month, day } = Date::from_days(days);
    Stamp {
        year,
        month: month as u32,
        day: day as u32,
        hour: of_day / 3_600,
        minute: of_day / 60 % 60,
        second: of_day % 60,
        nanos: ns.rem_euclid(1_000_000_000) as u32,
    }
}

impl Stamp {
    /// As glog prints it, without its letter: `1120 08:21:34.879176503`.
    pub(crate) fn glog(self) -> String {
        format!(
            "{:02}{:02} {:02}:{:02}:{:02}.{:09}",
            self.month, self.day, self.hour, self.minute, self.second, self.nanos
        )
    }

    /// As torch's Python loggers print it: `1120 08:21:50.946000`.
    pub(crate) fn python(self) -> String {
        format!(
            "{:02}{:02} {:02}:{:02}:{:02}.{:03}000",
            self.month,
            self.day,
            self.hour,
            self.minute,
            self.second,
            self.nanos / 1_000_000
        )
    }

    /// `2026-11-20 08:21:25`.
    pub(crate) fn plain(self) -> String {
        format!(
            "{}-{:02}-{:02} {:02}:{:02}:{:02}",
            self.year, self.month, self.day, self.hour, self.minute, self.second
        )
    }

    /// `2026-11-20_08:21:51`.
    pub(crate) fn launcher(self) -> String {
        self.plain().replace(' ', "_")
    }

    /// `Fri Nov 20 08:21:32 2026`.
    pub(crate) fn ctime(self, ns: i64) -> String {
        const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let weekday = ns.div_euclid(86_400_000_000_000).rem_euclid(7) as usize;
        format!(
            "{} {} {:2} {:02}:{:02}:{:02} {}",
            DAYS[weekday],
            MONTHS[self.month as usize - 1],
            self.day,
            self.hour,
            self.minute,
            self.second,
            self.year
        )
    }
}
