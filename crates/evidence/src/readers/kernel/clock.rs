//! From uptime to wall time, where one source holds both.
//!
//! A line stamped with both says when the boot was; of several such lines the earliest boot counts, since a logger
//! that starts late stamps the first lines late. Failing that, the kernel's own word of the clock it set counts.

use ringleader_model::WallTime;

/// A boot's start, in two degrees of trust.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Boot {
    stamped: Option<WallTime>,
    told: Option<WallTime>,
}

/// Boots of one source, in order.
#[derive(Debug)]
pub(super) struct Clock {
    boots: Vec<Boot>,
    last_us: u64,
}

impl Default for Clock {
    fn default() -> Self {
        Self { boots: vec![Boot::default()], last_us: 0 }
    }
}

/// Uptime that runs back further than this is another boot: lines of several processors come a little out of order.
const BACKWARDS_US: u64 = 10_000_000;
/// Boots that are kept apart.
const MAX_BOOTS: usize = 1_000;

fn minus(at: WallTime, us: u64) -> Option<WallTime> {
    let ns = i64::try_from(us).ok()?.checked_mul(1_000)?;
    Some(WallTime { ns: at.ns.checked_sub(ns)?, ..at })
}

impl Clock {
    /// Takes a line's stamps and gives the number of its boot.
    pub(super) fn line(&mut self, uptime_us: Option<u64>, at: Option<WallTime>) -> u32 {
        if let Some(us) = uptime_us {
            if us.saturating_add(BACKWARDS_US) < self.last_us {
                self.next();
            }
            self.last_us = us;
            if let Some(boot) = at.and_then(|at| minus(at, us))
                && let Some(now) = self.boots.last_mut()
                && now.stamped.is_none_or(|known| boot.ns < known.ns)
            {
                now.stamped = Some(boot);
            }
        }
        (self.boots.len() - 1) as u32
    }

    /// The kernel says it is `epoch_ns` now.
    pub(super) fn told(&mut self, uptime_us: Option<u64>, epoch_ns: i64) {
        let at = WallTime { ns: epoch_ns, error_ns: 1_000_000_000, has_year: true };
        if let Some(us) = uptime_us
            && let Some(now) = self.boots.last_mut()
            && now.told.is_none()
        {
            now.told = minus(at, us);
        }
    }

    /// Another boot begins.
    pub(super) fn next(&mut self) {
        if self.boots.len() < MAX_BOOTS {
            self.boots.push(Boot::default());
        }
        self.last_us = 0;
    }

    /// When a boot was.
    pub(super) fn booted(&self, boot: u32) -> Option<WallTime> {
        let boot = self.boots.get(boot as usize)?;
        boot.stamped.or(boot.told)
    }

    /// The last boot's number.
    pub(super) fn last_boot(&self) -> u32 {
        (self.boots.len() - 1) as u32
    }

    /// Wall time of an uptime.
    pub(super) fn wall(&self, boot: u32, uptime_us: u64) -> Option<WallTime> {
        let at = self.booted(boot)?;
        let ns = i64::try_from(uptime_us).ok()?.checked_mul(1_000)?;
        Some(WallTime { ns: at.ns.checked_add(ns)?, ..at })
    }
}
