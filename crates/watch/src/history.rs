//! The history of a communicator: what is remembered of it from look to look.

use std::collections::VecDeque;

use crate::digest::PeriodDigest;
use crate::ledger::{Group, Ledger, Stage};
use crate::rhythm::{Glance, Patience, Rhythm, kind};

/// Time over which rates are taken.
const RATE_NS: i64 = 6_000_000_000;
/// Readings within it.
const MAX_READINGS: usize = 16;

/// One communicator's.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) rhythm: Rhythm,
    /// What the newest digest of any of its ranks said.
    pub(crate) period: Option<PeriodDigest>,
    readings: VecDeque<(i64, u64, u64)>,
    pub(crate) patience: Patience,
    /// A look at which it was still there.
    pub(crate) seen_ns: i64,
    pub(crate) ops_done: u64,
    pub(crate) bytes: u64,
    pub(crate) late: crate::straggler::Lateness,
    /// Ended calls that ranks made differently.
    pub(crate) differing: crate::differing::Differing,
    /// Since when its collectives are slow without a late rank.
    pub(crate) slow_since_ns: Option<i64>,
    /// When it was last reported that its collectives have become slow.
    pub(crate) slow_told_ns: i64,
}

impl History {
    /// Takes what a look shows: when something that it waits for last moved, and when anything of its ranks did.
    pub(crate) fn look(
        &mut self,
        ledger: &Ledger<'_>,
        group: &Group<'_>,
        (moved_ns, busy_ns): (i64, i64),
        is_excused: bool,
    ) {
        self.seen_ns = ledger.now_ns;
        let done = group.tracks.iter().filter(|c| c.stage != Stage::Unseen).map(|c| &c.digest);
        let collectives =
            done.clone().map(|d| d.collectives_done.unwrap_or(d.collectives)).min().unwrap_or(0);
        let pairs = done.clone().map(|d| d.p2p_done.unwrap_or(d.p2p)).max().unwrap_or(0);
        self.ops_done = collectives + pairs;
        let n = done.clone().count().max(1) as u64;
        self.bytes = done.map(|d| d.bytes_done / n).sum();
        let reading = (ledger.known_ns, self.ops_done, self.bytes);
        if self.readings.back().is_none_or(|(at, ..)| at + RATE_NS / MAX_READINGS as i64 <= reading.0) {
            self.readings.push_back(reading);
        }
        while self.readings.len() > 2
            && (self.readings.len() > MAX_READINGS
                || self.readings.get(1).is_some_and(|(at, ..)| at + RATE_NS < ledger.known_ns))
        {
            self.readings.pop_front();
        }
        let op =
            group.front.and_then(|f| f.op).or_else(|| group.tracks.iter().find_map(|c| c.pairs().next()));
        self.rhythm.look(Glance {
            moved_ns,
            busy_ns,
            known_ns: ledger.known_ns,
            is_inside: group.is_inside,
            kind: op.map_or(0, |op| kind(&op.function, op.count)),
            trains: op.is_some_and(|op| op.function.contains("Reduce") || op.peer.is_some()),
            is_excused,
        });
        // After the pause that has just ended is known: where steps are quick, the one before the first of them.
        if let Some(period) = self.period.take() {
            // A look takes time, in which the job goes on: the newest movement may be later than the look says it was made.
            self.rhythm.hear(&period, ledger.known_ns.max(moved_ns));
        }
    }

    /// Operations and bytes a second.
    pub(crate) fn rates(&self) -> (f64, f64) {
        let (Some(first), Some(last)) = (self.readings.front(), self.readings.back()) else {
            return (0.0, 0.0);
        };
        let seconds = (last.0 - first.0) as f64 / 1e9;
        if seconds <= 0.0 {
            return (0.0, 0.0);
        }
        (last.1.saturating_sub(first.1) as f64 / seconds, last.2.saturating_sub(first.2) as f64 / seconds)
    }
}
