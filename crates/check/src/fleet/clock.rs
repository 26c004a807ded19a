//! Compares the clocks of nodes as far as the request itself allows.
//!
//! A node states when it began to read and how long that took. Both ends are between the moment when it was asked and
//! the moment when the answer was complete, so its clock is in an interval around the asking host's: half the
//! round-trip time to either side. The time that most intervals contain is the fleet's time (Marzullo's intersection,
//! by which NTP selects its sources: RFC 5905, A.5.5.1); a node is named only if its whole interval is away from that.

use ringleader_model::hostlist;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Fleet, Timing};
use crate::report::NodeReport;

/// Gap between a node's interval and the fleet's time above which it is named. Synchronised clocks agree to
/// milliseconds; logs of ranks are ordered by tenths of a second.
const GAP_NS: i64 = 100_000_000;
/// Largest number of nodes named.
const MAX_NAMED: usize = 16;

/// Clocks of the nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Clocks {
    /// Nodes whose clock could be placed.
    pub n_measured: usize,
    /// One sentence.
    pub text: String,
    /// Most of the nodes agree on a time, so that others can be named.
    pub has_majority: bool,
    /// Half the width of the widest interval, milliseconds: the measurement error.
    pub error_ms: f64,
    /// Clocks of nodes that differ from that of most, farthest first.
    pub outliers: Vec<ClockOutlier>,
    /// Nodes that differ and are not listed.
    pub n_more: usize,
    /// The asker's own clock against that of most nodes, if it differs; milliseconds it is ahead.
    pub own_ahead_ms: Option<f64>,
}

/// A clock that is off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockOutlier {
    /// Node.
    pub host: String,
    /// Milliseconds ahead of most nodes; negative: behind.
    pub ahead_ms: f64,
    /// Half the width of the interval, milliseconds.
    pub error_ms: f64,
}

/// Nanoseconds that the node's clock is ahead of the asking host's, and half the width of the interval. None if the
/// answer contradicts itself (it took longer than the round trip, so its clock was set meanwhile).
pub(super) fn offset(report: &NodeReport, timing: Timing) -> Option<(i64, i64)> {
    let took_ns = i64::try_from(report.took_ms).ok()?.checked_mul(1_000_000)?;
    let latest_start = timing.arrived_ns.checked_sub(took_ns)?;
    // took_ms is truncated to whole milliseconds.
    let width = latest_start.checked_sub(timing.sent_ns)?;
    if report.at_ns == 0 || width < 0 {
        return None;
    }
    Some((report.at_ns.checked_sub(timing.sent_ns + width / 2)?, width / 2 + 1_000_000))
}

/// The comparison of the clocks; None if fewer than two could be placed.
pub(super) fn clocks(fleet: &Fleet) -> Option<Clocks> {
    let intervals: Vec<(&str, i64, i64)> = fleet.offsets().collect();
    if intervals.len() < 2 {
        return None;
    }
    let n = intervals.len();
    let ms = |ns: i64| (ns as f64 / 1e5).round() / 10.0;
    let mut clocks = Clocks {
        n_measured: n,
        error_ms: ms(intervals.iter().map(|(.., error)| *error).max().unwrap_or(0)),
        ..Clocks::default()
    };
    let (low, high, n_agree) = intersection(&intervals);
    let middle = low + (high - low) / 2;
    let gap = |offset: i64, error: i64| (offset - error - high).max(low - offset - error);
    let mut away: Vec<&(&str, i64, i64)> =
        intervals.iter().filter(|(_, offset, error)| gap(*offset, *error) > GAP_NS).collect();
    if away.is_empty() {
        clocks.has_majority = n >= 3;
        clocks.text = format!("{n} clocks agree within the measurement error (± {} ms)", clocks.error_ms);
    } else if n < 3 || n_agree * 2 <= n {
        let (first, last) = intervals.iter().fold((i64::MAX, i64::MIN), |(first, last), (_, offset, _)| {
            (first.min(*offset), last.max(*offset))
        });
        let apart = ms(last - first);
        clocks.text = if n_agree * 2 == n && n >= 4 {
            format!(
                "{n_agree} of {n} clocks agree, but the others are up to {apart} ms away; there is no majority, so it is unknown which are wrong"
            )
        } else {
            format!(
                "{n} clocks are up to {apart} ms apart, and no majority agrees, so it is unknown which are wrong"
            )
        };
    } else {
        clocks.has_majority = true;
        away.sort_by_key(|(name, offset, _)| (std::cmp::Reverse((offset - middle).abs()), *name));
        let names: Vec<&str> = away.iter().map(|(name, ..)| *name).collect();
        clocks.text = format!("{n_agree} of {n} clocks agree; away from them: {}", hostlist::print(&names));
        clocks.n_more = away.len().saturating_sub(MAX_NAMED);
        clocks.outliers = away
            .iter()
            .take(MAX_NAMED)
            .map(|(name, offset, error)| ClockOutlier {
                host: (*name).to_owned(),
                ahead_ms: ms(offset - middle),
                error_ms: ms(error + (high - low) / 2),
            })
            .collect();
    }
    if clocks.has_majority && low.max(-high) > GAP_NS {
        clocks.own_ahead_ms = Some(ms(-middle));
    }
    Some(clocks)
}

/// The range that most intervals contain, and their number.
fn intersection(intervals: &[(&str, i64, i64)]) -> (i64, i64, usize) {
    let mut ends: Vec<(i64, bool)> = intervals
        .iter()
        // Starts sort before ends, so that touching intervals agree.
        .flat_map(|(_, offset, error)| [(offset - error, false), (offset + error, true)])
        .collect();
    ends.sort_unstable();
    let (mut open, mut best) = (0_usize, (0, 0, 0));
    for (at, (edge, is_end)) in ends.iter().enumerate() {
        if *is_end {
            open = open.saturating_sub(1);
            continue;
        }
        open += 1;
        if open > best.2 {
            let until = ends.get(at + 1).map_or(*edge, |(next, _)| *next);
            best = (*edge, until, open);
        }
    }
    best
}
