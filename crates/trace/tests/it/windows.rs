//! Recordings of a given time, which begin and end anywhere, and rhythms that are longer than a step: made timelines of two
//! ranks.

use ringleader_model::{
    Cause, CommCall, DeviceWork, HostSpan, OpKind, Rank, Recorder, RuntimeCall, SpanKind, Timeline, WorkKind,
};
use ringleader_trace::view::RankTimeline;
use ringleader_trace::{Analysis, analyse};

const MS: i64 = 1_000_000;
/// Kernels of a step before its reductions.
const N_KERNELS: i64 = 20;

/// A job: each step computes, reduces, and updates.
struct Job {
    /// Start of each step on the GPU.
    starts: Vec<i64>,
    /// The host is ahead of the GPU by this.
    lag_ns: i64,
    /// A kernel of each rank takes this long.
    kernel_ns: [i64; 2],
    /// Elements of the reductions.
    reductions: Vec<u64>,
    /// Kernels of the optimizer, and the time from one launch to the next.
    updates: (i64, i64),
    /// Calls of optimizers, one after the other.
    n_optimizers: i64,
}

impl Job {
    fn new(starts: impl IntoIterator<Item = i64>) -> Self {
        Self {
            starts: starts.into_iter().collect(),
            lag_ns: 0,
            kernel_ns: [MS, MS],
            reductions: vec![16 << 20],
            updates: (12, 20_000),
            n_optimizers: 1,
        }
    }

    fn timelines(&self) -> [Timeline; 2] {
        [0, 1].map(|rank| self.timeline(rank))
    }

    fn timeline(&self, rank: usize) -> Timeline {
        let mut timeline = Timeline::new(Recorder::Torch);
        (timeline.rank, timeline.device) = (Some(Rank(rank as u32)), Some(rank as u32));
        timeline.names =
            ["Optimizer.step#SGD.step", "cudaLaunchKernel", "gemm", "update", "ncclDevKernel_AllReduce"]
                .map(Into::into)
                .to_vec();
        for start in &self.starts {
            let host = start - self.lag_ns;
            let mut free = start + 30_000;
            for at in 0..N_KERNELS {
                let from = free.max(host + at * 200_000 + 30_000);
                free = from + self.kernel_ns[rank];
                launch(&mut timeline, host + at * 200_000, (2, WorkKind::Compute), (from, free), 0);
            }
            let slowest = start + 30_000 + N_KERNELS * self.kernel_ns[0].max(self.kernel_ns[1]).max(230_000);
            let mut called = host + N_KERNELS * 200_000;
            for elements in &self.reductions {
                timeline.calls.push(CommCall {
                    kind: Some(OpKind::AllReduce),
                    group: "0".into(),
                    group_size: 2,
                    in_elements: *elements,
                    out_elements: *elements,
                    element_bytes: 4,
                    ..CommCall::default()
                });
                let end = free.max(slowest) + 2 * MS;
                let call = timeline.calls.len() as u32;
                launch(&mut timeline, called, (4, WorkKind::Comm), (free, end), call);
                (free, called) = (end, called + 20_000);
            }
            let (n, each) = self.updates;
            for at in 0..n {
                let from = free.max(called + at * each + 30_000);
                free = from + 2_000;
                launch(&mut timeline, called + at * each, (3, WorkKind::Compute), (from, free), 0);
            }
            for at in 0..self.n_optimizers {
                let part = n * each / self.n_optimizers;
                let (start_ns, end_ns) = (called + at * part, called + (at + 1) * part - 5_000);
                let kind = SpanKind::Annotation;
                timeline.host_spans.push(HostSpan { start_ns, end_ns, name: 0, thread: 1, kind, link: 0 });
            }
        }
        timeline.host_spans.sort_by_key(|span| (span.start_ns, -span.end_ns));
        timeline.work.sort_by_key(|work| work.start_ns);
        timeline
    }

    /// What a recording of this time holds.
    fn within(&self, from: i64, to: i64) -> [Timeline; 2] {
        let mut timelines = self.timelines();
        for timeline in &mut timelines {
            timeline.host_spans.retain(|span| span.start_ns >= from && span.end_ns <= to);
            timeline.work.retain(|work| work.start_ns >= from && work.end_ns <= to);
        }
        timelines
    }
}

/// A launch of 5 us, and its work.
fn launch(timeline: &mut Timeline, called: i64, what: (u32, WorkKind), at: (i64, i64), call: u32) {
    let link = timeline.work.len() as u32 + 1;
    let kind = SpanKind::Runtime(RuntimeCall::Launch);
    let (start_ns, end_ns) = (called, called + 5_000);
    timeline.host_spans.push(HostSpan { start_ns, end_ns, name: 1, thread: 1, kind, link });
    let ((name, kind), (start_ns, end_ns)) = (what, at);
    let stream = if kind == WorkKind::Comm { 20 } else { 7 };
    let correlation = link;
    timeline.work.push(DeviceWork {
        start_ns,
        end_ns,
        name,
        stream,
        kind,
        correlation,
        call,
        size_bytes: 0,
        n_blocks: 1,
    });
}

fn look(timelines: &[Timeline; 2]) -> Analysis<'_> {
    let analysis = analyse(timelines.iter().map(|timeline| (timeline, None)));
    for (steps, splits) in analysis.steps.iter().zip(&analysis.splits) {
        assert!(steps.all.iter().zip(splits).all(|(step, split)| split.sum_ns() == step.length_ns()));
    }
    analysis
}

/// Lengths of the usual steps of a rank, ms.
fn lengths(analysis: &Analysis<'_>, rank: usize) -> Vec<i64> {
    let steps = &analysis.steps[rank];
    steps.usual.iter().map(|at| steps.all[*at as usize].length_ns() / MS).collect()
}

fn every(ms: i64) -> impl Iterator<Item = i64> {
    (0..10).map(move |step| step * ms * MS)
}

#[test]
fn a_short_window_with_the_gpu_far_behind() {
    // The host is more than a step ahead: no step has both its launches and its work in the window.
    let job = Job { lag_ns: 110 * MS, kernel_ns: [MS, 4 * MS], ..Job::new(every(100)) };
    let timelines = job.within(350 * MS, 650 * MS);
    let analysis = look(&timelines);
    for rank in 0..2 {
        assert_eq!(lengths(&analysis, rank), [100, 100]);
    }
    let first = &analysis.advice[0];
    assert_eq!((first.cause, first.culprits.as_slice()), (Cause::Straggler, &[1][..]), "{first:?}");
    let lead = analysis.lateness.straggler.map_or(0, |straggler| straggler.lead_ns);
    assert!((58 * MS..62 * MS).contains(&lead), "{lead}");
}

#[test]
fn steps_that_a_window_cuts_are_left_out() {
    let job = Job { kernel_ns: [4 * MS, 4 * MS], ..Job::new(every(100)) };
    // From the middle of step 2 to the middle of step 6.
    let timelines = job.within(240 * MS, 650 * MS);
    let analysis = look(&timelines);
    for rank in 0..2 {
        // The first whole one counts as warm-up.
        assert_eq!(lengths(&analysis, rank), [100, 100]);
    }
    assert!(!analysis.advice.iter().any(|advice| advice.is_worth), "{:?}", analysis.advice.first());
}

#[test]
fn optimizers_that_follow_one_another_end_one_step() {
    let job = Job { n_optimizers: 3, ..Job::new(every(100)) };
    let timelines = job.timelines();
    assert_eq!(lengths(&look(&timelines), 0), [100; 9]);
}

#[test]
fn long_steps_count_if_they_come_again() {
    let steps = |is_long: fn(i64) -> bool| -> Vec<i64> {
        let mut at = 0;
        (0..10)
            .map(|step| {
                at += if is_long(step) { 700 * MS } else { 100 * MS };
                at
            })
            .collect()
    };
    let timelines = Job::new(steps(|step| step == 5)).timelines();
    assert_eq!(lengths(&look(&timelines), 0), [100; 8], "once is an accident");
    let timelines = Job::new(steps(|step| step % 3 == 2)).timelines();
    assert_eq!(lengths(&look(&timelines), 0), [100, 700, 100, 100, 700, 100, 100, 700, 100]);
}

#[test]
fn gradients_that_are_reduced_again() {
    let again = |reductions: Vec<u64>| {
        let timelines = Job { reductions, ..Job::new(every(100)) }.timelines();
        let seen: Vec<String> = look(&timelines).advice.into_iter().map(|advice| advice.seen).collect();
        seen.iter().find(|seen| seen.contains("gradients are reduced")).cloned()
    };
    let (a, b) = (16 << 20, 8 << 20);
    assert_eq!(
        again(vec![a, b, a, b, a, b]).as_deref(),
        Some("the same gradients are reduced 3 times a step")
    );
    assert_eq!(again(vec![a, a, a, a]), None, "buckets of one size");
    assert_eq!(again(vec![a, b, b]), None);
}

#[test]
fn an_optimizer_that_launches_weight_by_weight() {
    let job = |n| Job { updates: (n, 80_000), kernel_ns: [3 * MS, 3 * MS], ..Job::new(every(100)) };
    let timelines = job(400).timelines();
    let analysis = look(&timelines);
    let of_it = |analysis: &Analysis<'_>| {
        analysis
            .advice
            .iter()
            .find(|advice| advice.seen.contains("launches a step"))
            .map(|advice| advice.is_worth)
    };
    assert_eq!(of_it(&analysis), Some(true), "{:?}", analysis.advice);
    let timelines = job(40).timelines();
    assert_eq!(of_it(&look(&timelines)), None, "a few for all weights");
}

#[test]
fn workers_that_start_between_two_loads_are_loading() {
    let mut timeline = Job::new(every(100)).timeline(0);
    let name = timeline.names.len() as u32;
    let mut names = timeline.names.clone();
    names.push("enumerate(DataLoader)#_Iter.__next__".into());
    timeline.names = names;
    let mut load = |from: i64, to: i64| {
        let kind = SpanKind::Annotation;
        let (start_ns, end_ns) = (from * MS, to * MS);
        timeline.host_spans.push(HostSpan { start_ns, end_ns, name, thread: 1, kind, link: 0 });
    };
    // The loader ends and begins again within a step, and once more beyond one.
    load(30, 40);
    load(60, 80);
    load(150, 160);
    timeline.host_spans.sort_by_key(|span| (span.start_ns, -span.end_ns));
    let view = RankTimeline::new(0, &timeline);
    assert_eq!(view.loading.list(), [(30 * MS, 80 * MS), (150 * MS, 160 * MS)]);
}
