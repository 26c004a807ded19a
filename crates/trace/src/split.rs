//! What a step is made of: each moment of the GPU counted once, and each idle moment attributed to what delayed the
//! next work.

use ringleader_model::{RuntimeCall, SpanKind, WorkKind};

use crate::intervals::{Interval, Intervals};
use crate::steps::{Step, Steps};
use crate::view::RankTimeline;

/// Why a GPU was idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Idle {
    /// Between two pieces of work that were both queued, or while a launch takes effect.
    Launch,
    /// The host was busy with what leads to the next launch.
    Host,
    /// The host was outside anything recorded.
    Outside,
    /// The host loaded input.
    Data,
    /// The host had waited for the GPU, which was then idle.
    Sync,
    /// The host allocated or freed memory of the GPU.
    Alloc,
    /// The host was held by a copy.
    Copy,
    /// Work was queued and waited for something else.
    Event,
    /// The recorder itself held the host.
    Recorder,
    /// The launch of the next work is not in the file.
    Unexplained,
}

impl Idle {
    /// All reasons, in the order of `Split::idle_ns`.
    pub const ALL: [Self; 10] = [
        Self::Launch,
        Self::Host,
        Self::Outside,
        Self::Data,
        Self::Sync,
        Self::Alloc,
        Self::Copy,
        Self::Event,
        Self::Recorder,
        Self::Unexplained,
    ];

    /// Stable name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::Host => "host",
            Self::Outside => "outside",
            Self::Data => "data-loading",
            Self::Sync => "synchronisation",
            Self::Alloc => "allocator",
            Self::Copy => "blocking-copy",
            Self::Event => "waits-for-event",
            Self::Recorder => "recorder",
            Self::Unexplained => "unexplained",
        }
    }
}

/// Parts of one rank's step, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Length of the step, ns.
    pub length_ns: i64,
    /// Kernels that compute run.
    pub compute_ns: i64,
    /// Communication runs and nothing computes.
    pub exposed_comm_ns: i64,
    /// Copies or fills run, and neither computation nor communication.
    pub exposed_copy_ns: i64,
    /// Nothing runs, by reason, in the order of [`Idle::ALL`].
    pub idle_ns: [i64; 10],
    /// Communication beside computation: part of `compute_ns`.
    pub hidden_comm_ns: i64,
}

impl Split {
    /// Idle time of one reason.
    pub fn idle(&self, reason: Idle) -> i64 {
        Idle::ALL.iter().zip(self.idle_ns).find(|(r, _)| **r == reason).map_or(0, |(_, ns)| ns)
    }

    /// Idle time of all reasons, ns.
    pub fn all_idle_ns(&self) -> i64 {
        self.idle_ns.iter().sum()
    }

    /// The parts together: always the whole.
    pub fn sum_ns(&self) -> i64 {
        self.compute_ns + self.exposed_comm_ns + self.exposed_copy_ns + self.all_idle_ns()
    }

    fn add_idle(&mut self, reason: Idle, ns: i64) {
        for (slot, of) in self.idle_ns.iter_mut().zip(Idle::ALL) {
            if of == reason {
                *slot += ns;
            }
        }
    }

    /// Mean of several steps, part by part.
    pub fn mean(splits: &[Self]) -> Self {
        let n = splits.len().max(1) as i64;
        let mut mean = Self::default();
        for split in splits {
            mean.length_ns += split.length_ns;
            mean.compute_ns += split.compute_ns;
            mean.exposed_comm_ns += split.exposed_comm_ns;
            mean.exposed_copy_ns += split.exposed_copy_ns;
            mean.hidden_comm_ns += split.hidden_comm_ns;
            for (sum, part) in mean.idle_ns.iter_mut().zip(split.idle_ns) {
                *sum += part;
            }
        }
        let parts = [
            &mut mean.compute_ns,
            &mut mean.exposed_comm_ns,
            &mut mean.exposed_copy_ns,
            &mut mean.hidden_comm_ns,
        ];
        for part in parts {
            *part /= n;
        }
        for part in &mut mean.idle_ns {
            *part /= n;
        }
        // Of rounded parts, so that they remain the whole.
        mean.length_ns = mean.sum_ns();
        mean
    }
}

/// Two pieces of queued work follow one another within this time; a launch takes effect within it, too.
const LAUNCH_NS: i64 = 20_000;
/// A gap on the host at least this long without any recorded event is outside the framework.
const OUTSIDE_NS: i64 = 400_000;
/// A copy that takes the host this long waits for its end.
const BLOCKING_NS: i64 = 30_000;

/// Sets of times of one rank that splitting needs.
#[derive(Debug)]
pub struct Busy {
    /// Kernels that compute.
    pub compute: Intervals,
    /// Kernels that communicate.
    pub comm: Intervals,
    copy: Intervals,
    sync: Intervals,
    alloc: Intervals,
    blocking_copy: Intervals,
}

impl Busy {
    /// Collects the sets of one rank.
    pub fn new(view: &RankTimeline<'_>) -> Self {
        let calls = |is: &dyn Fn(RuntimeCall, i64) -> bool| {
            let spans = (0..view.runtime.len() as u32).filter_map(|place| view.call(place));
            Intervals::of(spans.filter_map(|s| match s.kind {
                SpanKind::Runtime(kind) if is(kind, s.end_ns - s.start_ns) => Some((s.start_ns, s.end_ns)),
                _ => None,
            }))
        };
        Self {
            compute: view.busy(|kind| kind == WorkKind::Compute),
            comm: view.busy(|kind| kind == WorkKind::Comm),
            copy: view.busy(|kind| matches!(kind, WorkKind::Copy { .. } | WorkKind::Fill)),
            sync: calls(&|kind, _| kind == RuntimeCall::Synchronize),
            alloc: calls(&|kind, _| kind == RuntimeCall::Allocate),
            blocking_copy: calls(&|kind, ns| kind == RuntimeCall::Copy && ns > BLOCKING_NS),
        }
    }
}

/// Splits the steps of one rank.
pub fn split(view: &RankTimeline<'_>, steps: &Steps, busy: &Busy) -> Vec<Split> {
    steps.all.iter().map(|step| one(view, step, busy)).collect()
}

fn one(view: &RankTimeline<'_>, step: &Step, busy: &Busy) -> Split {
    let (from, to) = step.window;
    let whole = Intervals::of([(from, to)]);
    let compute = busy.compute.within(from, to);
    let comm = busy.comm.within(from, to);
    let exposed_comm = comm.without(&compute);
    let exposed_copy = busy.copy.within(from, to).without(&compute).without(&comm);
    let idle = whole.without(&compute).without(&exposed_comm).without(&exposed_copy);
    let mut split = Split {
        length_ns: to - from,
        compute_ns: compute.length(),
        exposed_comm_ns: exposed_comm.length(),
        exposed_copy_ns: exposed_copy.length(),
        hidden_comm_ns: comm.and(&compute).length(),
        ..Split::default()
    };
    for gap in idle.list() {
        explain(view, busy, *gap, &mut split);
    }
    split
}

/// Attributes an idle moment to what delayed the next work.
fn explain(view: &RankTimeline<'_>, busy: &Busy, (from, to): Interval, split: &mut Split) {
    let next = view.work().partition_point(|w| w.start_ns < to);
    let Some(launch) = view.launch(next) else {
        let reason = if to - from <= LAUNCH_NS { Idle::Launch } else { Idle::Unexplained };
        return split.add_idle(reason, to - from);
    };
    if launch.start_ns <= from {
        // A long launch delays the work itself (the first use of a kernel loads it).
        let launched = launch.end_ns.clamp(from, to);
        let waited = to - launched;
        if waited <= LAUNCH_NS || launched > from {
            return split.add_idle(Idle::Launch, to - from);
        }
        return split.add_idle(Idle::Event, to - from);
    }
    let launched = launch.start_ns.min(to);
    split.add_idle(Idle::Launch, to - launched);
    let mut rest = Intervals::of([(from, launched)]);
    let mut take = |what: &Intervals, reason: Idle| {
        let part = rest.and(&what.within(from, launched));
        if !part.is_empty() {
            split.add_idle(reason, part.length());
            rest = rest.without(&part);
        }
    };
    take(&busy.alloc, Idle::Alloc);
    take(&busy.blocking_copy, Idle::Copy);
    take(&view.loading, Idle::Data);
    take(&view.overhead, Idle::Recorder);
    take(&busy.sync, Idle::Sync);
    // The GPU was idle because the host waited for it: without that, what follows would have been launched before.
    let held = |what: &Intervals| what.length_within(from - LAUNCH_NS, from + 1) > 0;
    let after = match (held(&busy.sync), held(&busy.blocking_copy), held(&busy.alloc)) {
        (true, _, _) => Idle::Sync,
        (_, true, _) => Idle::Copy,
        (_, _, true) => Idle::Alloc,
        _ => Idle::Host,
    };
    let outside = rest.without(&view.known);
    for part in rest.list() {
        let empty: i64 = outside
            .within(part.0, part.1)
            .list()
            .iter()
            .map(|(a, b)| b - a)
            .filter(|ns| *ns >= OUTSIDE_NS)
            .sum();
        split.add_idle(Idle::Outside, empty);
        split.add_idle(after, part.1 - part.0 - empty);
    }
}
