//! Separates recordings: a folder may hold several windows of one job, and several attempts.

use std::collections::BTreeMap;

use ringleader_model::Timeline;

/// A timeline, and the rank that a source other than the file gives it.
pub(crate) type Ranked<'a> = (&'a Timeline, Option<u32>);

/// The rank of a timeline, as it states or as something else says.
pub(crate) fn rank_of((timeline, given): &Ranked<'_>) -> Option<u32> {
    timeline.rank.map(|rank| rank.0).or(*given)
}

/// A timeline with its start and end.
type Window<'a> = ((i64, i64), Ranked<'a>);

/// The owner of a timeline's recording.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    Rank(u32),
    Process(Option<String>, u32, Option<u32>),
    Nobody(usize),
}

/// A rank whose newest window began this long before the newest of all lacks that one, ns.
const APART_NS: i64 = 60_000_000_000;

/// The timelines of the newest recording, and how many recordings there are in all. Of two timelines of one rank at the
/// same time, the one with more work counts.
pub(crate) fn newest<'a>(timelines: Vec<Ranked<'a>>) -> (Vec<Ranked<'a>>, usize) {
    let mut of: BTreeMap<Whose, Vec<Window<'a>>> = BTreeMap::new();
    for (at, one) in timelines.into_iter().enumerate() {
        let timeline = one.0;
        let whose = match (rank_of(&one), timeline.pid) {
            (Some(rank), _) => Whose::Rank(rank),
            (None, Some(pid)) => {
                Whose::Process(timeline.host.as_deref().map(str::to_owned), pid.0, timeline.device)
            }
            (None, None) => Whose::Nobody(at),
        };
        of.entry(whose).or_default().push((span(timeline), one));
    }
    for windows in of.values_mut() {
        windows.sort_by_key(|(span, one)| (*span, one.0.work.len()));
        let mut apart: Vec<Window<'a>> = Vec::new();
        for (span, one) in windows.drain(..) {
            match apart.last_mut() {
                Some(last) if span.0 < last.0.1 || span == last.0 => {
                    let more = if one.0.work.len() > last.1.0.work.len() { one } else { last.1 };
                    *last = ((last.0.0, last.0.1.max(span.1)), more);
                }
                _ => apart.push((span, one)),
            }
        }
        *windows = apart;
    }
    let n_sets = of.values().map(Vec::len).max().unwrap_or(0);
    if n_sets < 2 {
        return (of.into_values().flatten().map(|(_, one)| one).collect(), n_sets);
    }
    let begun = of.values().filter_map(|w| w.last()).map(|(span, _)| span.0).max().unwrap_or(0);
    let has_newest = |windows: &[Window<'a>]| {
        windows.len() == n_sets
            || windows.last().is_some_and(|(span, _)| begun.saturating_sub(span.0) < APART_NS)
    };
    let kept = of.into_values().filter(|windows| has_newest(windows)).filter_map(|mut w| w.pop());
    (kept.map(|(_, one)| one).collect(), n_sets)
}

/// Start of the first and end of the last thing in a timeline.
fn span(timeline: &Timeline) -> (i64, i64) {
    let work = timeline.work.iter().map(|w| (w.start_ns, w.end_ns));
    let spans = timeline.host_spans.iter().map(|s| (s.start_ns, s.end_ns));
    work.chain(spans).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0, 0))
}

#[cfg(test)]
mod tests {
    use super::newest;
    use ringleader_model::{DeviceWork, Rank, Recorder, Timeline, WorkKind};

    fn window(rank: u32, start_ns: i64, n: i64) -> Timeline {
        let work = (0..n).map(|at| DeviceWork {
            start_ns: start_ns + at * 10,
            end_ns: start_ns + at * 10 + 5,
            name: 0,
            stream: 0,
            kind: WorkKind::Compute,
            correlation: 0,
            call: 0,
            size_bytes: 0,
            n_blocks: 1,
        });
        Timeline { rank: Some(Rank(rank)), work: work.collect(), ..Timeline::new(Recorder::Torch) }
    }

    fn kept(list: &[Timeline]) -> (Vec<(u32, i64)>, usize) {
        let (kept, n) = newest(list.iter().map(|t| (t, None)).collect());
        (kept.iter().map(|(t, _)| (t.rank.map_or(9, |r| r.0), t.work[0].start_ns)).collect(), n)
    }

    #[test]
    fn the_newest_window_of_each_rank_is_taken() {
        let early = [window(0, 0, 90), window(1, 3, 90)];
        let late = [window(0, 5_000, 20), window(1, 5_002, 20)];
        let both = [early[0].clone(), late[1].clone(), early[1].clone(), late[0].clone()];
        assert_eq!(kept(&both), (vec![(0, 5_000), (1, 5_002)], 2));
        assert_eq!(kept(&early), (vec![(0, 0), (1, 3)], 1));
    }

    #[test]
    fn a_rank_without_the_newest_window_is_left_out() {
        let minutes = 600_000_000_000;
        let list = [window(0, 0, 5), window(1, 0, 5), window(0, minutes, 5)];
        assert_eq!(kept(&list), (vec![(0, minutes)], 2));
    }

    #[test]
    fn two_recordings_of_one_time_are_one() {
        let list = [window(0, 0, 5), window(0, 1, 50), window(1, 0, 5)];
        assert_eq!(kept(&list), (vec![(0, 1), (1, 0)], 1));
    }
}
