//! A replay of the timelines' dependencies: the job as recorded, or with something changed.
//!
//! The host of a rank is one sequence of runtime calls with the time between them; the GPU's streams are queues. Work
//! starts once it is launched, the work before it in its stream has ended, and so has work of other streams that it
//! depends on. A collective ends its cost after its last member has started. A call that waited for the GPU waits for the
//! same work again.

use ringleader_model::{DeviceWork, RuntimeCall, SpanKind, WorkKind};

use crate::intervals::Intervals;
use crate::join::Join;
use crate::steps::Steps;
use crate::view::{NONE, RankTimeline};

/// A time before all others.
const NEVER: i64 = i64::MIN / 4;
/// A launch takes effect after this time.
const LAUNCH_NS: i64 = 4_000;
/// Longest part of a launch before the work may start.
const SUBMIT_NS: i64 = 6_000;
/// Two events are at the same time.
const CLOSE_NS: i64 = 3_000;
/// Work starts within this time of what it waited for.
const BOUND_NS: i64 = 12_000;
/// A runtime call that takes longer may wait for something.
const LONG_NS: i64 = 30_000;
/// Launches that may be outstanding.
const QUEUE: usize = 1_000;
/// Rounds until the ranks agree on when collectives start: at least, and at most where the recording is small.
const ROUNDS: (usize, usize) = (24, 400);
/// Calls and works that are replayed in all rounds of one replay, beyond the least number of rounds.
const MAX_REPLAYED: usize = 40_000_000;

/// Effect of a host call in a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Launches or does something; takes its time.
    Plain,
    /// Waits for the GPU.
    Sync,
    /// Waits for its own copy.
    BlockingCopy,
    /// Waits for its own kernel.
    BlockingLaunch,
    /// Allocates or frees.
    Alloc,
}

/// One host call.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// Host time before it that loads input, ns.
    pub data_ns: i64,
    /// Host time before it that is outside of anything known, ns.
    pub outside_ns: i64,
    /// Other host time before it, ns.
    pub busy_ns: i64,
    /// Part of that time that is the recorder's, ns.
    pub recorder_ns: i64,
    /// Its own time without waiting, ns.
    pub own_ns: i64,
    /// Effect of the call on the replay.
    pub act: Act,
    /// Work that it waits for; `NONE` for nothing.
    pub waits_for: u32,
    /// Step, as a place; `NONE` before the first.
    pub step: u32,
    /// It launches communication.
    pub is_comm: bool,
    /// It is a part of the optimizer.
    pub is_optimizer: bool,
}

/// One kernel or copy on the GPU.
#[derive(Clone, Copy, Debug)]
pub struct WorkPiece {
    /// Its time, or its cost if it is a joined collective, ns.
    pub cost_ns: i64,
    /// Stream, as a small number.
    pub stream: u32,
    /// Place of its launch in `hosts`. Of work that was launched before the recording began, that of the next work in its
    /// stream; `NONE` if there is none.
    pub launch: u32,
    /// Whether its own launch is known.
    pub is_launched: bool,
    /// Work of another stream that it waits for; `NONE` for nothing.
    pub after: u32,
    /// Also waits for all communication launched before.
    pub after_comm: bool,
    /// Operation plus 1 that joins it with other ranks; 0 for none.
    pub op: u32,
    /// Kind of the work.
    pub kind: WorkKind,
    /// Step, as a place; `NONE` before the first.
    pub step: u32,
}

/// One rank, ready to be replayed.
#[derive(Clone, Debug)]
pub struct Model {
    /// Host calls in order.
    pub hosts: Vec<Host>,
    /// Work by launch.
    pub pieces: Vec<WorkPiece>,
    /// Places of `pieces` in the order of their launches.
    order: Vec<u32>,
    n_streams: usize,
    /// Start of the first call, ns on the common clock.
    begin_ns: i64,
    n_steps: usize,
}

impl Model {
    /// The model of a rank as recorded.
    pub fn new(views: &[RankTimeline<'_>], place: usize, steps: &Steps, join: &Join) -> Option<Self> {
        let view = views.get(place)?;
        let shift = join.shift_ns.get(place).copied().unwrap_or(0);
        let work = view.work();
        let mut by_launch: Vec<Vec<u32>> = vec![Vec::new(); view.runtime.len()];
        for (at, launch) in view.launch_of.iter().enumerate() {
            if let Some(list) = by_launch.get_mut(*launch as usize) {
                list.push(at as u32);
            }
        }
        let ends = EndIndex::new(work);
        let is_blocking = launches_block(view);
        let mut hosts = Vec::with_capacity(view.runtime.len());
        let mut end_before = view.call(0)?.start_ns;
        let begin_ns = end_before + shift;
        for at in 0..view.runtime.len() as u32 {
            let call = view.call(at)?;
            let launched = by_launch.get(at as usize).map_or(&[][..], Vec::as_slice);
            let from = end_before.min(call.start_ns);
            let mut host = host(view, steps, &ends, at, (from, call.start_ns), launched);
            if host.act == Act::BlockingLaunch && !is_blocking {
                (host.act, host.waits_for) = (Act::Plain, NONE);
            }
            hosts.push(host);
            end_before = end_before.max(call.end_ns);
        }
        let (pieces, n_streams) = pieces(views, place, steps, join)?;
        let mut order: Vec<u32> = (0..pieces.len() as u32).collect();
        let key = |at: &u32| {
            let piece = pieces.get(*at as usize);
            piece.map_or((u32::MAX, 0), |p| (p.launch, *at))
        };
        order.sort_by_key(key);
        Some(Self { hosts, pieces, order, n_streams, begin_ns, n_steps: steps.all.len() })
    }
}

/// Ends of work, to find what a call waited for.
struct EndIndex {
    /// Ends of works with their index, in order of the end.
    ends: Vec<(i64, u32)>,
}

impl EndIndex {
    fn new(work: &[DeviceWork]) -> Self {
        let mut ends: Vec<(i64, u32)> = work.iter().map(|w| w.end_ns).zip(0..).collect();
        ends.sort_unstable();
        Self { ends }
    }

    /// The work that ended last in `(from, to]`.
    fn last_in(&self, from: i64, to: i64) -> Option<u32> {
        let at = self.ends.partition_point(|(end, _)| *end <= to).checked_sub(1)?;
        self.ends.get(at).filter(|(end, _)| *end > from).map(|(_, place)| *place)
    }
}

fn host(
    view: &RankTimeline<'_>,
    steps: &Steps,
    ends: &EndIndex,
    at: u32,
    (from, to): (i64, i64),
    launched: &[u32],
) -> Host {
    let Some((call, kind)) = view.call(at).and_then(|call| match call.kind {
        SpanKind::Runtime(kind) => Some((call, kind)),
        _ => None,
    }) else {
        return NOTHING;
    };
    // A recorder that stops waits for the GPU: that is behind the last step, and no wait of the program.
    let is_behind = steps.all.last().is_some_and(|last| call.start_ns >= last.host.1);
    if kind == RuntimeCall::Synchronize && is_behind {
        return NOTHING;
    }
    let gap = Intervals::of([(from, to)]);
    let overhead = view.overhead.length_within(from, to);
    let data = view.loading.within(from, to);
    let empty = gap.without(&data).without(&view.known).without(&view.overhead);
    let outside_ns: i64 = empty.list().iter().map(|(a, b)| b - a).filter(|ns| *ns >= OUTSIDE_NS).sum();
    let data_ns = data.length();
    let busy_ns = ((to - from) - data_ns - outside_ns - overhead).max(0);
    let duration = call.end_ns - call.start_ns;
    let works = |at: &u32| view.work().get(*at as usize);
    let own_end = launched.iter().filter_map(works).map(|w| w.end_ns).max();
    let own = launched.last().copied().unwrap_or(NONE);
    // Within the GPU a copy is a launch.
    let is_with_host =
        launched.iter().filter_map(works).any(|w| matches!(w.kind, WorkKind::Copy { with_host: true, .. }));
    // Pageable memory goes through a buffer of the driver: the call may end a little before its copy does.
    let is_pageable =
        launched.iter().filter_map(works).any(|w| matches!(w.kind, WorkKind::Copy { pageable: true, .. }));
    let is_staged = duration > LONG_NS && is_pageable;
    let waited_for_own =
        is_staged || own_end.is_some_and(|end| call.end_ns + CLOSE_NS >= end) && duration > CLOSE_NS;
    let (act, waits_for) = match kind {
        // A small copy of pinned memory may have ended when its call has, which did not wait for it.
        RuntimeCall::Copy if waited_for_own && is_with_host && (is_pageable || duration > LONG_NS) => {
            (Act::BlockingCopy, own)
        }
        RuntimeCall::Copy if is_with_host => (Act::Plain, NONE),
        RuntimeCall::Launch | RuntimeCall::Copy if waited_for_own && duration > 2 * SUBMIT_NS => {
            (Act::BlockingLaunch, own)
        }
        RuntimeCall::Synchronize => {
            (Act::Sync, ends.last_in(call.start_ns, call.end_ns + CLOSE_NS).unwrap_or(NONE))
        }
        RuntimeCall::Allocate => {
            let target = (duration > LONG_NS).then(|| ends.last_in(call.start_ns, call.end_ns)).flatten();
            (Act::Alloc, target.unwrap_or(NONE))
        }
        _ => (Act::Plain, NONE),
    };
    let own_ns = match (act, works(&waits_for)) {
        (Act::Plain, _)
            if kind == RuntimeCall::Launch && duration > LONG_NS && view.timeline.work.len() > QUEUE =>
        {
            // A full queue: the replay has its own.
            SUBMIT_NS
        }
        (Act::Alloc, Some(target)) => (call.end_ns - target.end_ns).clamp(0, duration),
        (_, Some(_)) => duration.min(SUBMIT_NS),
        _ => duration,
    };
    let step = steps.all.partition_point(|s| s.host.0 <= call.start_ns);
    Host {
        data_ns,
        outside_ns,
        busy_ns,
        recorder_ns: view.n_recorded(from, call.end_ns) as i64 * view.record_ns,
        own_ns,
        act,
        waits_for,
        step: step.checked_sub(1).map_or(NONE, |s| s as u32),
        is_comm: launched.iter().filter_map(works).any(|w| w.kind == WorkKind::Comm)
            || view.comm_calls.length_within(call.start_ns, call.start_ns + 1) > 0,
        is_optimizer: view.optimizer.length_within(call.start_ns, call.start_ns + 1) > 0,
    }
}

/// See [`crate::split`].
const OUTSIDE_NS: i64 = 400_000;

/// Share of launches, percent, that end with their own work where launches block: a slow host is behind the GPU in some.
const BLOCKING_PCT: usize = 80;

/// Whether the program has set that every launch waits for its work. Short work ends before a launch returns anyway, where the host
/// is behind: what is longer than a launch decides.
fn launches_block(view: &RankTimeline<'_>) -> bool {
    let (mut n, mut n_waited) = (0_usize, 0_usize);
    let is_long = |w: &DeviceWork| w.kind == WorkKind::Compute && w.end_ns - w.start_ns >= LONG_NS;
    for (at, work) in view.work().iter().enumerate().filter(|(_, w)| is_long(w)) {
        let Some(call) = view.launch(at) else { continue };
        n += 1;
        n_waited += usize::from(call.end_ns + CLOSE_NS >= work.end_ns);
    }
    n > 0 && n_waited * 100 >= n * BLOCKING_PCT
}

/// A call that does nothing.
const NOTHING: Host = Host {
    data_ns: 0,
    outside_ns: 0,
    busy_ns: 0,
    recorder_ns: 0,
    own_ns: 0,
    act: Act::Plain,
    waits_for: NONE,
    step: NONE,
    is_comm: false,
    is_optimizer: false,
};

fn pieces(
    views: &[RankTimeline<'_>],
    place: usize,
    steps: &Steps,
    join: &Join,
) -> Option<(Vec<WorkPiece>, usize)> {
    let view = views.get(place)?;
    let work = view.work();
    let mut streams: Vec<u32> = work.iter().map(|w| w.stream).collect();
    streams.sort_unstable();
    streams.dedup();
    let small = |stream: u32| streams.binary_search(&stream).unwrap_or(0) as u32;
    let main = small(view.main_stream);
    let mut pieces = Vec::with_capacity(work.len());
    let mut last_of: Vec<u32> = vec![NONE; streams.len()];
    let mut by_end: Vec<(i64, u32)> = work.iter().map(|w| w.end_ns).zip(0..).collect();
    by_end.sort_unstable();
    let mut seen_step = NONE;
    for (at, item) in work.iter().enumerate() {
        let stream = small(item.stream);
        let launch = view.launch_of.get(at).copied().unwrap_or(NONE);
        let launched = view.launch(at).map_or(NEVER, |call| call.start_ns + LAUNCH_NS);
        let before = last_of.get(stream as usize).and_then(|p| work.get(*p as usize));
        let ready = launched.max(before.map_or(NEVER, |w| w.end_ns));
        let is_main = stream == main;
        let mut after = NONE;
        if item.start_ns > ready.saturating_add(CLOSE_NS) {
            // Something of another stream ended just before.
            let until = by_end.partition_point(|(end, _)| *end <= item.start_ns + 1_000);
            after = by_end
                .iter()
                .take(until)
                .rev()
                .take_while(|(end, _)| *end > ready && *end + BOUND_NS >= item.start_ns)
                .map(|(_, place)| *place)
                .find(|place| work.get(*place as usize).is_some_and(|w| w.stream != item.stream))
                .unwrap_or(NONE);
        }
        if after == NONE && item.kind == WorkKind::Comm && !is_main {
            // It needs what was computed before its call: the last work of the main stream launched earlier.
            after = last_before(view, work, at, view.main_stream, launch);
        }
        let step = steps.of_work.get(at).copied().unwrap_or(NONE);
        let after_comm = is_main && item.kind == WorkKind::Compute && step != seen_step;
        if is_main && item.kind == WorkKind::Compute {
            seen_step = step;
        }
        let op = join.of_work.get(place).and_then(|w| w.get(at)).copied().unwrap_or(0);
        let cost_ns = match join.ops.get((op as usize).wrapping_sub(1)) {
            Some(joined) if join.is_aligned() => join.cost_ns(views, joined),
            _ => item.end_ns - item.start_ns,
        };
        let is_launched = launch != NONE;
        pieces.push(WorkPiece {
            cost_ns,
            stream,
            launch,
            is_launched,
            after,
            after_comm,
            op,
            kind: item.kind,
            step,
        });
        if let Some(slot) = last_of.get_mut(stream as usize) {
            *slot = at as u32;
        }
    }
    let mut next_of: Vec<u32> = vec![NONE; streams.len()];
    for piece in pieces.iter_mut().rev() {
        let Some(next) = next_of.get_mut(piece.stream as usize) else { continue };
        if piece.is_launched {
            *next = piece.launch;
        } else {
            piece.launch = *next;
        }
    }
    Some((pieces, streams.len()))
}

/// The last work of a stream whose launch came before another one.
fn last_before(view: &RankTimeline<'_>, work: &[DeviceWork], at: usize, stream: u32, launch: u32) -> u32 {
    let start = work.get(at).map_or(0, |w| w.start_ns);
    // Work is in the order of its start, so the search goes back from here.
    let before = work.iter().enumerate().take(at).rev().take(4_096);
    let mut found = before.filter(|(other, w)| {
        w.stream == stream && w.end_ns <= start && view.launch_of.get(*other).is_none_or(|l| *l <= launch)
    });
    found.next().map_or(NONE, |(other, _)| other as u32)
}

/// When each step of each rank ends, ns on the common clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Played {
    /// For each rank, for each step: end of its work.
    pub ends: Vec<Vec<i64>>,
    /// The first call of any rank.
    pub begin_ns: i64,
}

impl Played {
    /// Mean length of a step between the first and the last of `usual`, over the slowest rank, ns.
    pub fn step_ns(&self, steps: &[Steps]) -> i64 {
        let of = |(ends, steps): (&Vec<i64>, &Steps)| -> Option<i64> {
            let (first, last) = (*steps.usual.first()?, *steps.usual.last()?);
            let end = |at: u32| ends.get(at as usize).copied().unwrap_or(NEVER);
            // From the end of the step before; without one, from the end of the first, or from the beginning.
            let (from, n) = match first.checked_sub(1) {
                Some(before) => (end(before), last - before),
                None if last > first => (end(first), last - first),
                None => (self.begin_ns, 1),
            };
            (end(last) > NEVER && from > NEVER).then(|| (end(last) - from) / i64::from(n.max(1)))
        };
        self.ends.iter().zip(steps).filter_map(of).max().unwrap_or(0)
    }
}

/// Replays all ranks.
pub fn play(models: &[Model], n_ops: usize) -> Played {
    // Last start of each operation, over the ranks; grows from round to round. In turns from the first rank to the last and back,
    // so that what one stage of a pipeline hands to the next passes all of them in one round.
    let mut last_start = vec![NEVER; n_ops];
    let mut ends = vec![Vec::new(); models.len()];
    let size: usize = models.iter().map(|model| model.hosts.len() + model.pieces.len()).sum();
    let n_rounds = (MAX_REPLAYED / size.max(1)).clamp(ROUNDS.0, ROUNDS.1);
    for round in 0..n_rounds {
        let mut next = vec![NEVER; n_ops];
        let mut one =
            |(model, ends): (&Model, &mut Vec<i64>)| *ends = play_one(model, &last_start, &mut next);
        let each = models.iter().zip(&mut ends);
        if round % 2 == 0 {
            each.for_each(&mut one);
        } else {
            each.rev().for_each(&mut one);
        }
        let settled =
            next.iter().zip(&last_start).all(|(a, b)| a.saturating_sub(*b).saturating_abs() < 1_000);
        last_start = next;
        if settled {
            break;
        }
    }
    Played { ends, begin_ns: models.iter().map(|m| m.begin_ns).min().unwrap_or(0) }
}

fn play_one(model: &Model, last_start: &[i64], next: &mut [i64]) -> Vec<i64> {
    let mut piece_ends = vec![NEVER; model.pieces.len()];
    let mut stream_ends = vec![NEVER; model.n_streams];
    let mut comm_end = NEVER;
    let mut step_ends = vec![NEVER; model.n_steps];
    let mut clock = model.begin_ns;
    let mut order = model.order.iter().copied().peekable();
    let mut starts: Vec<i64> = Vec::with_capacity(model.pieces.len());
    let mut run = |at: u32, launched: i64, piece_ends: &mut Vec<i64>, starts: &mut Vec<i64>| {
        let Some(piece) = model.pieces.get(at as usize) else { return };
        let mut start = launched;
        if let Some(end) = stream_ends.get(piece.stream as usize) {
            start = start.max(*end);
        }
        if let Some(end) = piece_ends.get(piece.after as usize) {
            start = start.max(*end);
        }
        if piece.after_comm {
            start = start.max(comm_end);
        }
        starts.push(start);
        let mut end = start.saturating_add(piece.cost_ns);
        if let Some(place) = (piece.op as usize).checked_sub(1) {
            let mut last = last_start.get(place).copied().unwrap_or(NEVER);
            if let Some(slot) = next.get_mut(place) {
                *slot = (*slot).max(start);
                last = last.max(*slot);
            }
            end = end.max(last.saturating_add(piece.cost_ns));
        }
        if let Some(slot) = stream_ends.get_mut(piece.stream as usize) {
            *slot = end;
        }
        if piece.kind == WorkKind::Comm {
            comm_end = comm_end.max(end);
        }
        if let Some(slot) = piece_ends.get_mut(at as usize) {
            *slot = end;
        }
        if let Some(slot) = step_ends.get_mut(piece.step as usize) {
            *slot = (*slot).max(end);
        }
    };
    for (at, host) in model.hosts.iter().enumerate() {
        clock += host.data_ns + host.outside_ns + host.busy_ns;
        if let Some(full) = starts.len().checked_sub(QUEUE).and_then(|n| starts.get(n)) {
            clock = clock.max(*full);
        }
        let begun = clock;
        while let Some(piece) =
            order.next_if(|p| model.pieces.get(*p as usize).is_some_and(|p| p.launch as usize == at))
        {
            let known = model.pieces.get(piece as usize).is_some_and(|p| p.is_launched);
            let launched =
                if known { begun + host.own_ns.min(SUBMIT_NS) + LAUNCH_NS } else { model.begin_ns };
            run(piece, launched, &mut piece_ends, &mut starts);
        }
        if let Some(end) = piece_ends.get(host.waits_for as usize) {
            clock = clock.max(*end);
        }
        clock += host.own_ns;
    }
    for piece in order {
        run(piece, model.begin_ns, &mut piece_ends, &mut starts);
    }
    // Steps follow one another.
    let mut before = NEVER;
    for end in &mut step_ends {
        *end = (*end).max(before);
        before = *end;
    }
    step_ends
}

/// Whether a replay of the recording is as long as the recording, within a fourth.
pub fn is_explained(step_ns: i64, replayed_ns: i64) -> bool {
    (replayed_ns - step_ns).abs() * 4 <= step_ns
}
