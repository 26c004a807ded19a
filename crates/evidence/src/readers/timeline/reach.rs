//! Times of one timeline that belong together: a few damaged bytes must not make a timeline of centuries, whose sums overflow.

use ringleader_model::{Timeline, median};

/// Events farther than this from the median start are strays: 6.5 days, ns.
const REACH_NS: i64 = 1 << 49;
/// Longest event, ns: 73 minutes.
const MAX_DURATION_NS: i64 = 1 << 42;

/// Cuts long events and leaves out those far from all others. The timeline then counts as damaged.
pub(super) fn within(timeline: &mut Timeline) {
    let ends = |end_ns: i64, start_ns: i64| end_ns.clamp(start_ns, start_ns.saturating_add(MAX_DURATION_NS));
    let (mut least, mut most) = (i64::MAX, i64::MIN);
    let mut see = |at: i64| (least, most) = (least.min(at), most.max(at));
    for work in &mut timeline.work {
        work.end_ns = ends(work.end_ns, work.start_ns);
        see(work.start_ns);
    }
    for span in &mut timeline.host_spans {
        span.end_ns = ends(span.end_ns, span.start_ns);
        see(span.start_ns);
    }
    for step in &mut timeline.steps {
        step.end_ns = ends(step.end_ns, step.start_ns);
        see(step.start_ns);
    }
    if most.saturating_sub(least) <= REACH_NS {
        return;
    }
    let work = timeline.work.iter().map(|w| w.start_ns);
    let spans = timeline.host_spans.iter().map(|s| s.start_ns);
    let starts = work.chain(spans).chain(timeline.steps.iter().map(|s| s.start_ns));
    let middle = median::lower(starts).unwrap_or(0);
    let is_near = |at: i64| at.saturating_sub(middle).saturating_abs() <= REACH_NS / 2;
    timeline.work.retain(|w| is_near(w.start_ns));
    timeline.host_spans.retain(|s| is_near(s.start_ns));
    timeline.steps.retain(|s| is_near(s.start_ns));
    timeline.is_damaged = true;
}

#[cfg(test)]
mod tests {
    use ringleader_model::{DeviceWork, Recorder, Timeline, WorkKind};

    fn work(start_ns: i64, end_ns: i64) -> DeviceWork {
        DeviceWork {
            start_ns,
            end_ns,
            name: 0,
            stream: 7,
            kind: WorkKind::Compute,
            correlation: 0,
            call: 0,
            size_bytes: 0,
            n_blocks: 0,
        }
    }

    fn kept(work: Vec<DeviceWork>) -> (Vec<(i64, i64)>, bool) {
        let mut timeline = Timeline { work, ..Timeline::new(Recorder::Torch) };
        super::within(&mut timeline);
        (timeline.work.iter().map(|w| (w.start_ns, w.end_ns)).collect(), timeline.is_damaged)
    }

    #[test]
    fn a_stray_is_left_out() {
        let now = 1_730_000_000_000_000_000;
        let near = vec![work(now, now + 5), work(now + 10, now + 20)];
        assert_eq!(kept(near.clone()), (vec![(now, now + 5), (now + 10, now + 20)], false));
        let stray = [vec![work(0, 5)], near].concat();
        assert_eq!(kept(stray), (vec![(now, now + 5), (now + 10, now + 20)], true));
    }

    #[test]
    fn an_event_of_months_is_cut() {
        assert_eq!(kept(vec![work(10, i64::MAX)]), (vec![(10, 10 + super::MAX_DURATION_NS)], false));
        assert_eq!(kept(vec![work(10, 3)]), (vec![(10, 10)], false));
    }
}
