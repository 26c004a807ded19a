//! One rank's timeline, with launches joined to the work they launched.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::{DeviceWork, HostSpan, Recorder, RuntimeCall, SpanKind, Timeline, WorkKind};

use crate::intervals::Intervals;

/// One rank's timeline.
#[derive(Debug)]
pub struct RankTimeline<'a> {
    /// The rank: as stated, else by order.
    pub rank: u32,
    /// Whether the file states the rank.
    pub is_rank_stated: bool,
    /// The timeline.
    pub timeline: &'a Timeline,
    /// Place of each work's launch in `runtime`; `NONE` if unknown.
    pub launch_of: Vec<u32>,
    /// Runtime calls of threads that launch work, as places in `host_spans`, by start.
    pub runtime: Vec<u32>,
    /// The stream with most compute time; of a recording of communication alone, with most of that.
    pub main_stream: u32,
    /// When the program loads input, by its annotations.
    pub loading: Intervals,
    /// When host threads that launch work do anything the recorder knows.
    pub known: Intervals,
    /// The recorder's own cost.
    pub overhead: Intervals,
    /// Calls of communication, with all that the framework does for them.
    pub comm_calls: Intervals,
    /// When the optimizer updates the weights, by PyTorch's annotation.
    pub optimizer: Intervals,
    /// Cost for the host of each event that the recorder keeps, ns.
    pub record_ns: i64,
    /// Starts of everything recorded of threads that launch work.
    recorded: Vec<i64>,
}

/// The recorder's cost for each event where the timeline does not show it, ns.
const RECORD_NS: i64 = 1_600;
/// The recorder's cost of an event is this many times the lower quartile of the time between the start of an operator and the
/// start of the first operator within it: nearly all of that time is the recorder's. Fits jobs that their hosts bound, timed
/// with and without a recorder: 0.75 us
/// and 1.6 us on two H200, 1.0 to 1.3 us and 2.5 to 3.0 us on two H100 with a slower host.
const RECORD_FACTOR: f64 = 2.2;
/// Smallest and largest cost of recording an event, ns.
const RECORD_LIMITS_NS: (i64, i64) = (800, 5_000);
/// Least number of pairs of operators for this estimate.
const LEAST_PAIRS: usize = 200;

/// Cost for the host of each recorded event, from operators that begin within another one.
fn record_ns(spans: &[HostSpan]) -> i64 {
    let mut last: BTreeMap<u32, &HostSpan> = BTreeMap::new();
    let mut gaps = Vec::new();
    for span in spans.iter().filter(|s| s.kind == SpanKind::Operator) {
        let before = last.insert(span.thread, span);
        gaps.extend(
            before.filter(|outer| span.end_ns <= outer.end_ns).map(|outer| span.start_ns - outer.start_ns),
        );
    }
    if gaps.len() < LEAST_PAIRS {
        return RECORD_NS;
    }
    let at = gaps.len() / 4;
    let (_, gap, _) = gaps.select_nth_unstable(at);
    ((*gap as f64 * RECORD_FACTOR) as i64).clamp(RECORD_LIMITS_NS.0, RECORD_LIMITS_NS.1)
}

/// Loading, with the time between two loads in which the program does next to nothing else: an epoch ends, and the workers
/// of the next one start.
fn with_starts(loading: &Intervals, known: &Intervals, launches: &[i64]) -> Intervals {
    let between = loading.list().windows(2).filter_map(|pair| match pair {
        [(_, from), (to, _)] => Some((*from, *to)),
        _ => None,
    });
    let starts = between.filter(|(from, to)| {
        let launched = launches.partition_point(|at| at < to) > launches.partition_point(|at| at < from);
        !launched && known.length_within(*from, *to) * 100 < (to - from) * ELSE_PCT
    });
    Intervals::of(loading.list().iter().copied().chain(starts))
}

/// Share of such a time, percent, that other work of the program stays below.
const ELSE_PCT: i64 = 3;

/// Index for work without a recorded launch.
pub const NONE: u32 = u32::MAX;

/// Parts of names of annotations that load input, in lower case.
const LOADING: [&str; 11] = [
    "dataloader",
    "data_load",
    "load_data",
    "load_batch",
    "read_batch",
    "next_batch",
    "get_batch",
    "fetch_batch",
    "data_fetch",
    "collate",
    "input_pipeline",
];

impl<'a> RankTimeline<'a> {
    /// Joins what belongs together.
    pub fn new(rank: u32, timeline: &'a Timeline) -> Self {
        let spans = &timeline.host_spans;
        let launching = launching_threads(spans);
        let runtime: Vec<u32> = (0..spans.len() as u32)
            .filter(|at| {
                spans
                    .get(*at as usize)
                    .is_some_and(|s| matches!(s.kind, SpanKind::Runtime(_)) && launching.contains(&s.thread))
            })
            .collect();
        let mut by_link: Vec<(u32, u32)> = runtime
            .iter()
            .enumerate()
            .filter_map(|(place, at)| {
                let span = spans.get(*at as usize)?;
                (span.link != 0).then_some((span.link, place as u32))
            })
            .collect();
        by_link.sort_unstable();
        let launch_of = timeline
            .work
            .iter()
            .map(|work| {
                let at = by_link.partition_point(|(link, _)| *link < work.correlation);
                match by_link.get(at) {
                    Some((link, place)) if *link == work.correlation && work.correlation != 0 => *place,
                    _ => NONE,
                }
            })
            .collect();
        let is_loading: Vec<bool> = timeline
            .names
            .iter()
            .map(|name| {
                let name = name.to_ascii_lowercase();
                // Ranges of FSDP2 end with the name of a module, which may be any: `FSDP::pre_forward (collate)`.
                !name.starts_with("fsdp::") && LOADING.iter().any(|part| name.contains(part))
            })
            .collect();
        let is_comm: Vec<bool> = timeline
            .names
            .iter()
            .map(|name| &**name == "record_param_comms" || name.starts_with("c10d::"))
            .collect();
        let named = |s: &&HostSpan| is_loading.get(s.name as usize).copied().unwrap_or(false);
        let of = |span: &HostSpan| (span.start_ns, span.end_ns);
        let annotations = spans.iter().filter(|s| s.kind == SpanKind::Annotation);
        let is_optimizer: Vec<bool> =
            timeline.names.iter().map(|name| name.starts_with("Optimizer.step")).collect();
        let updates = |s: &&HostSpan| is_optimizer.get(s.name as usize).copied().unwrap_or(false);
        // XLA prepares a step in one thread and launches it in others.
        let is_xla = timeline.recorder == Recorder::Xla;
        let is_known = |s: &&HostSpan| {
            matches!(s.kind, SpanKind::Runtime(_) | SpanKind::Operator)
                && (is_xla || launching.contains(&s.thread))
        };
        let known = Intervals::of(spans.iter().filter(is_known).map(of));
        let launches: Vec<i64> = spans
            .iter()
            .filter(|s| s.kind == SpanKind::Runtime(RuntimeCall::Launch) && launching.contains(&s.thread))
            .map(|s| s.start_ns)
            .collect();
        Self {
            rank,
            is_rank_stated: timeline.rank.is_some(),
            timeline,
            launch_of,
            runtime,
            main_stream: main_stream(&timeline.work),
            loading: with_starts(
                &Intervals::of(annotations.clone().filter(named).map(of)),
                &known,
                &launches,
            ),
            known,
            overhead: Intervals::of(spans.iter().filter(|s| s.kind == SpanKind::Overhead).map(of)),
            comm_calls: Intervals::of(
                spans
                    .iter()
                    .filter(|s| s.kind == SpanKind::Operator && is_comm.get(s.name as usize) == Some(&true))
                    .map(of),
            ),
            optimizer: Intervals::of(annotations.filter(updates).map(of)),
            record_ns: record_ns(spans),
            recorded: spans.iter().filter(|s| launching.contains(&s.thread)).map(|s| s.start_ns).collect(),
        }
    }

    /// Events that the recorder kept of the launching threads in this time.
    pub fn n_recorded(&self, from: i64, to: i64) -> usize {
        self.recorded.partition_point(|at| *at < to) - self.recorded.partition_point(|at| *at < from)
    }

    /// Whether the recorder shows any computation.
    pub fn computes(&self) -> bool {
        self.work().iter().any(|work| work.kind == WorkKind::Compute)
    }

    /// Kernels and copies of the GPU.
    pub fn work(&self) -> &'a [DeviceWork] {
        &self.timeline.work
    }

    /// A runtime call by its place in `runtime`.
    pub fn call(&self, place: u32) -> Option<&'a HostSpan> {
        self.timeline.host_spans.get(*self.runtime.get(place as usize)? as usize)
    }

    /// The call that launched a work.
    pub fn launch(&self, work: usize) -> Option<&'a HostSpan> {
        self.launch_of.get(work).filter(|place| **place != NONE).and_then(|place| self.call(*place))
    }

    /// Time in which work of this kind runs.
    pub fn busy(&self, is: impl Fn(WorkKind) -> bool) -> Intervals {
        Intervals::of(self.work().iter().filter(|w| is(w.kind)).map(|w| (w.start_ns, w.end_ns)))
    }

    /// Start and end of everything.
    pub fn span(&self) -> Option<(i64, i64)> {
        let ends = self.work().iter().map(|w| (w.start_ns, w.end_ns));
        let all = ends.chain(self.timeline.host_spans.iter().map(|s| (s.start_ns, s.end_ns)));
        all.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }
}

/// Whether all views are of one node with a GPU each: then NVLink is between them, where these GPUs have one.
pub fn is_one_node(views: &[RankTimeline<'_>]) -> bool {
    let hosts: BTreeSet<_> = views.iter().filter_map(|v| v.timeline.host.as_deref()).collect();
    let mut devices: Vec<u32> = views.iter().filter_map(|v| v.timeline.device).collect();
    devices.sort_unstable();
    devices.dedup();
    match hosts.len() {
        0 => devices.len() == views.len() && views.len() >= 2,
        n => n == 1,
    }
}

/// Threads that launch a part of the work that matters: not those of a loader, nor a watchdog.
fn launching_threads(spans: &[HostSpan]) -> Vec<u32> {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    for span in spans.iter().filter(|s| s.kind == SpanKind::Runtime(RuntimeCall::Launch)) {
        *counts.entry(span.thread).or_default() += 1;
    }
    let total: usize = counts.values().sum();
    counts.into_iter().filter(|(_, n)| n * 100 >= total).map(|(thread, _)| thread).collect()
}

fn main_stream(work: &[DeviceWork]) -> u32 {
    let mut time: BTreeMap<u32, i64> = BTreeMap::new();
    let has_compute = work.iter().any(|w| w.kind == WorkKind::Compute);
    let kind = if has_compute { WorkKind::Compute } else { WorkKind::Comm };
    for work in work.iter().filter(|w| w.kind == kind) {
        *time.entry(work.stream).or_default() += work.end_ns - work.start_ns;
    }
    time.into_iter()
        .max_by_key(|(stream, ns)| (*ns, std::cmp::Reverse(*stream)))
        .map_or(0, |(stream, _)| stream)
}
