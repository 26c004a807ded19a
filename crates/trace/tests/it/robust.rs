//! Recordings that are incomplete, shifted, or of more ranks: answers stay what they were, or become silent.

use std::path::Path;

use ringleader_model::{Case, Cause, Fact, Rank, Timeline};
use ringleader_trace::{Analysis, analyse};

/// Cause and ranks at fault; None if nothing is worth a change.
type Answer = Option<(Cause, Vec<u32>)>;

/// Recordings with what they show.
fn recordings() -> Vec<(&'static str, Answer)> {
    vec![
        ("trace-control", None),
        ("trace-experts-control", None),
        ("ddp-profile", None),
        ("trace-slow-gpu", Some((Cause::Straggler, vec![0]))),
        ("trace-more-work", Some((Cause::Straggler, vec![1]))),
        ("trace-late-host", Some((Cause::Straggler, vec![0]))),
        ("trace-experts", Some((Cause::LoadImbalance, vec![1]))),
        ("trace-huge-bucket", Some((Cause::NoComputeOverlap, vec![]))),
        ("trace-empty-cache", Some((Cause::AllocatorStalls, vec![]))),
        ("trace-reader", Some((Cause::DataLoadingBound, vec![]))),
        ("trace-offload", Some((Cause::TransferBound, vec![]))),
    ]
}

fn timelines(case: &str) -> Vec<Timeline> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases").join(case).join("evidence");
    let case: Case = crate::read(&folder);
    let of = |fact: Fact| match fact {
        Fact::Timeline(timeline) => Some(*timeline),
        _ => None,
    };
    let mut found: Vec<Timeline> = case.observations.into_iter().filter_map(|o| of(o.fact)).collect();
    found.sort_by_key(|timeline| timeline.rank);
    found
}

fn answer(name: &str, timelines: &[Timeline]) -> Answer {
    let analysis: Analysis<'_> = analyse(timelines.iter().map(|timeline| (timeline, None)));
    for (steps, splits) in analysis.steps.iter().zip(&analysis.splits) {
        for (step, split) in steps.all.iter().zip(splits) {
            assert_eq!(split.sum_ns(), step.length_ns(), "{name}");
        }
    }
    for one in &analysis.advice {
        assert!(one.gain_pct.is_finite() && (-0.01..=100.0).contains(&one.gain_pct), "{name}: {one:?}");
        let is_there = |rank: &u32| timelines.iter().any(|t| t.rank == Some(Rank(*rank)));
        assert!(one.culprits.iter().all(is_there), "{name}: {one:?}");
    }
    analysis.advice.first().filter(|a| a.is_worth).map(|a| (a.cause, a.culprits.clone()))
}

/// Numbers that look like chance, and are the same each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn shift(timeline: &mut Timeline, by: impl Fn(i64) -> i64) {
    for work in &mut timeline.work {
        (work.start_ns, work.end_ns) = (by(work.start_ns), by(work.end_ns));
    }
    for span in &mut timeline.host_spans {
        (span.start_ns, span.end_ns) = (by(span.start_ns), by(span.end_ns));
    }
    for step in &mut timeline.steps {
        (step.start_ns, step.end_ns) = (by(step.start_ns), by(step.end_ns));
    }
}

/// As the recorder leaves it that is stopped at this share of the recording, percent.
fn cut(timeline: &mut Timeline, pct: i64) {
    let from = timeline.host_spans.first().map_or(0, |s| s.start_ns);
    let to = timeline.work.iter().map(|w| w.end_ns).max().unwrap_or(from);
    let end = from + (to - from) * pct / 100;
    timeline.work.retain(|w| w.end_ns <= end);
    timeline.host_spans.retain(|s| s.end_ns <= end);
    timeline.steps.retain(|s| s.end_ns <= end);
    timeline.is_damaged = true;
}

fn thin(timeline: &mut Timeline, pct: u64, chance: &mut Chance) {
    timeline.work.retain(|_| chance.below(100) >= pct);
    timeline.host_spans.retain(|_| chance.below(100) >= pct);
}

fn sorted(timeline: &mut Timeline) {
    timeline.work.sort_by_key(|w| (w.start_ns, w.end_ns));
    timeline.host_spans.sort_by_key(|s| (s.start_ns, std::cmp::Reverse(s.end_ns)));
}

/// So many ranks, each a copy of one of the two: `of` tells which.
fn more(two: &[Timeline], n: u32, of: impl Fn(u32) -> usize) -> Vec<Timeline> {
    let copy = |rank: u32| {
        let mut timeline = two[of(rank)].clone();
        (timeline.rank, timeline.device, timeline.world_size) = (Some(Rank(rank)), Some(rank), Some(n));
        for call in &mut timeline.calls {
            call.group_size = n;
            if !call.ranks.is_empty() {
                call.ranks = (0..n).collect();
            }
        }
        timeline.groups.clear();
        timeline
    };
    (0..n).map(copy).collect()
}

/// Whether an answer may be given where parts of a recording are missing: the same, none, or the same cause without a rank. What
/// makes a host late is time outside of the framework, which shows without the other rank, too.
fn is_sane(got: &Answer, right: &Answer) -> bool {
    match (got, right) {
        (None, _) => true,
        (Some((cause, ranks)), Some((right, late))) => {
            cause == right && (ranks == late || ranks.is_empty())
                || *cause == Cause::DataLoadingBound && *right == Cause::Straggler && ranks.is_empty()
        }
        (Some(_), None) => false,
    }
}

#[test]
fn other_clocks_names_and_small_delays_change_nothing() {
    for (name, right) in recordings() {
        let whole = timelines(name);
        assert_eq!(answer(name, &whole), right, "{name}");
        for by in [1_000_000_000_i64, -90_000_000, 86_400_000_000_000] {
            let mut moved = whole.clone();
            shift(&mut moved[1], |ns| ns + by);
            assert_eq!(answer(name, &moved), right, "{name}: a clock moved by {by}");
        }
        for ppm in [10_i64, 100, 1_000] {
            let mut drifting = whole.clone();
            let zero = drifting[1].host_spans[0].start_ns;
            shift(&mut drifting[1], |ns| ns + (ns - zero) / 1_000 * ppm / 1_000);
            assert_eq!(answer(name, &drifting), right, "{name}: a clock {ppm} ppm fast");
        }
        let mut trembling = whole.clone();
        let mut chance = Chance(7);
        for timeline in &mut trembling {
            for work in &mut timeline.work {
                let by = chance.below(4_000) as i64 - 2_000;
                work.start_ns += by;
                work.end_ns = (work.end_ns + by).max(work.start_ns + 1);
            }
            sorted(timeline);
        }
        assert_eq!(answer(name, &trembling), right, "{name}: work up to 2 us early or late");
        let mut renamed = whole.clone();
        for (at, timeline) in renamed.iter_mut().enumerate() {
            timeline.rank = Some(Rank(10 - at as u32));
            for call in &mut timeline.calls {
                call.ranks = call.ranks.iter().map(|rank| 10 - rank).collect();
            }
        }
        let right = right.map(|(cause, ranks)| (cause, ranks.iter().map(|rank| 10 - rank).collect()));
        assert_eq!(answer(name, &renamed), right, "{name}: other ranks");
    }
}

#[test]
fn what_is_missing_accuses_nobody() {
    for (name, right) in recordings() {
        let whole = timelines(name);
        let check = |what: &str, timelines: &[Timeline]| {
            let got = answer(name, timelines);
            assert!(is_sane(&got, &right), "{name}, {what}: {got:?} instead of {right:?}");
            got == right
        };
        let all = whole.len();
        for pct in [90, 70, 50, 30] {
            // One of the first two ranks, or all.
            for which in [0, 1, all] {
                let mut shorter = whole.clone();
                for (at, timeline) in shorter.iter_mut().enumerate() {
                    if which == all || which == at {
                        cut(timeline, pct);
                    }
                }
                let is_right = check(&format!("{pct} % of rank {which}"), &shorter);
                assert!(is_right || pct < 70 || name == "trace-reader", "{name}: {pct} % of rank {which}");
            }
        }
        for pct in [1, 5, 20] {
            let mut thinned = whole.clone();
            let mut chance = Chance(pct);
            for timeline in &mut thinned {
                thin(timeline, pct, &mut chance);
            }
            check(&format!("without {pct} % of the events"), &thinned);
        }
        for timeline in &whole {
            check("one rank", std::slice::from_ref(timeline));
        }
        let without = |what: &str, change: fn(&mut Timeline)| {
            let mut less = whole.clone();
            less.iter_mut().for_each(change);
            check(what, &less);
        };
        without("no host", |timeline| timeline.host_spans.clear());
        without("no steps", |timeline| timeline.steps.clear());
        without("no arguments", |timeline| {
            timeline.calls.clear();
            timeline.work.iter_mut().for_each(|work| work.call = 0);
        });
        without("no work", |timeline| timeline.work.clear());
        without("nothing", |timeline| *timeline = Timeline::new(timeline.recorder));
    }
}

#[test]
fn one_late_rank_of_four_and_eight_is_named() {
    for (name, right) in recordings() {
        let two = timelines(name);
        if two.len() != 2 {
            continue;
        }
        for n in [4, 8] {
            for (one, others) in [(0, 1), (1, 0)] {
                for place in [0, n - 1] {
                    let many = more(&two, n, |rank| if rank == place { one } else { others });
                    let got = answer(name, &many);
                    let expected = match &right {
                        Some((cause, ranks)) if *ranks == [one as u32] => Some((*cause, vec![place])),
                        // One has less to do than all others, which is an imbalance of work, or is faster.
                        Some((Cause::LoadImbalance, _)) => Some((Cause::LoadImbalance, vec![])),
                        Some((_, ranks)) if !ranks.is_empty() => None,
                        other => other.clone(),
                    };
                    assert_eq!(got, expected, "{name}: rank {place} of {n} is a copy of rank {one}");
                }
            }
        }
    }
}
