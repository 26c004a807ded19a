//! A ring's state as a digest says it: what is in flight, and a bounded choice of what has ended.

use std::collections::BTreeMap;

use ringleader_model::median;
use ringleader_ring::{Comm, Done, Op, Phase, State};

use super::{
    CommDigest, DoneDigest, MAX_COMMS, MAX_IN_FLIGHT, MAX_RECENT, MAX_STEPS, MAX_WAITS, OpDigest,
    PeriodDigest, RankDigest, ReceiveDigest, SeenBy, StepDigest, WaitDigest, is_p2p, is_symmetric,
};
use crate::period;

/// Of the ended operations that a digest carries, those that are simply the newest.
const NEWEST: usize = 4;
/// How far back a digest reaches.
const WINDOW_NS: u64 = 4_000_000_000;
/// Ended operations that a period is looked for in.
const HISTORY: usize = 1024;

/// Content of the ring of one process. Pid, process state and processor time are the agent's to fill in: a ring knows
/// the pid within its container only.
pub fn from_ring(state: &State) -> RankDigest {
    let lost = &state.lost;
    let mut records: BTreeMap<u32, Vec<&Done>> = BTreeMap::new();
    for done in &state.recent {
        records.entry(done.comm).or_default().push(done);
    }
    // What runs, before what has ended: a job may make and destroy communicators by the thousand.
    let mut comms: Vec<&Comm> = state.comms.iter().collect();
    comms.sort_by_key(|c| {
        (c.ended_ns.is_some(), c.in_flight.is_empty(), std::cmp::Reverse(c.progress_ns), c.slot)
    });
    comms.truncate(MAX_COMMS);
    comms.sort_by_key(|c| (c.slot, c.created_ns));
    RankDigest {
        rank: state.process.rank,
        local_rank: state.process.local_rank,
        world_size: state.process.world_size,
        pid: state.process.pid,
        seen_by: SeenBy::Ring,
        is_ended: state.process.is_ended,
        receives: receives(state),
        seconds: super::seconds::seconds(state),
        comms: comms
            .into_iter()
            .map(|c| comm(state, c, records.get(&c.slot).map(Vec::as_slice).unwrap_or_default()))
            .collect(),
        lost: [lost.comms, lost.ops, lost.waits, lost.records, lost.faults].iter().sum(),
        ..RankDigest::default()
    }
}

/// Receives are summed over this time, ns.
const RECEIVES_NS: u64 = 20_000_000_000;

/// For how long receives from other ranks ran in the newest seconds.
fn receives(state: &State) -> Option<ReceiveDigest> {
    let ranks: BTreeMap<u32, u32> =
        state.comms.iter().filter_map(|comm| Some((comm.slot, comm.rank?))).collect();
    let own = |done: &Done| done.call.peer.is_some() && ranks.get(&done.comm) == done.call.peer.as_ref();
    let is_meant =
        |done: &&Done| done.is_p2p && done.call.function == "Recv" && done.is_end_seen && !own(done);
    let now = state.taken.mono_ns;
    // What the ring no longer holds is not known not to have run.
    let first = state.recent.iter().map(|done| done.ended_ns).min()?;
    let from = first.max(now.saturating_sub(RECEIVES_NS));
    let mut spans: Vec<(u64, u64)> = state
        .recent
        .iter()
        .filter(is_meant)
        .filter(|done| done.ended_ns > from)
        .map(|done| (done.started_ns.clamp(from, now), done.ended_ns.min(now)))
        .collect();
    if spans.is_empty() {
        return None;
    }
    spans.sort_unstable();
    let ms = |ns: u64| u32::try_from(ns / 1_000_000).unwrap_or(u32::MAX);
    let longest = spans.iter().map(|(start, end)| end.saturating_sub(*start)).max().unwrap_or_default();
    let (mut ran, mut upto) = (0, from);
    for (start, end) in &spans {
        ran += end.saturating_sub((*start).max(upto));
        upto = upto.max(*end);
    }
    Some(ReceiveDigest {
        span_ms: ms(now.saturating_sub(from)),
        ran_ms: ms(ran),
        n: u32::try_from(spans.len()).unwrap_or(u32::MAX),
        longest_ms: ms(longest),
    })
}

fn comm(state: &State, comm: &Comm, records: &[&Done]) -> CommDigest {
    let unix = |mono: u64| state.taken.unix_of(mono) as i64;
    let kernels = !comm.lacks_kernels;
    // What a rank sends to itself waits for nobody, and NCCL reports no kernel for it.
    let is_own = |op: &&Op| op.call.peer.is_some() && op.call.peer == comm.rank;
    let mut ops: Vec<&Op> =
        comm.in_flight.iter().filter(|op| (!op.call.is_captured || has_started(op)) && !is_own(op)).collect();
    ops.sort_by_key(|op| op.enqueued_ns);
    // A slot is used again: what ended before this communicator was made is not its own.
    let mut records: Vec<&Done> =
        records.iter().copied().filter(|d| d.enqueued_ns >= comm.created_ns).collect();
    let ended = records.iter().map(|d| d.ended_ns);
    let started = ops.iter().filter_map(|op| op.started_ns);
    let waits = ops.iter().flat_map(|op| op.waits.iter().map(|w| w.since_ns));
    let mut moved = ended.chain(started).chain(waits).max();
    records.sort_by_key(|d| (d.enqueued_ns, d.number));
    if !kernels && records.last().is_some_and(|d| !d.is_end_seen) {
        // Ends are not reported: only calls show progress.
        moved = None;
    }
    let period = pattern(records.get(records.len().saturating_sub(HISTORY)..).unwrap_or_default());
    CommDigest {
        id: if comm.id == 0 { String::new() } else { format!("{:x}", comm.id) },
        name: comm.name.clone(),
        size: comm.size,
        rank: comm.rank,
        collectives: comm.collectives,
        collectives_done: kernels.then_some(comm.collectives_done),
        p2p: comm.p2p,
        p2p_done: kernels.then_some(comm.p2p_done),
        bytes_done: comm.bytes_done,
        progress_ns: if comm.progress_ns == 0 { 0 } else { unix(comm.progress_ns) },
        moved_ns: moved.map_or(0, unix),
        is_ended: comm.ended_ns.is_some(),
        n_in_flight: ops.len() as u32,
        in_flight: oldest(&ops).into_iter().map(|op| digest_of(op, kernels, unix)).collect(),
        recent: recent(&records),
        steps: steps(&records, period.as_ref().map_or(0, |p| p.ops)),
        period,
    }
}

/// Handed over with no word of a launch: a call that NCCL does not report further, or that the plugin does not follow.
fn is_end_unseen(op: &Op) -> bool {
    !has_started(op) && (!op.is_end_visible || op.handed_over_ns.is_some() && !op.is_launched)
}

fn has_started(op: &Op) -> bool {
    op.started_ns.is_some() || !op.waits.is_empty()
}

/// The oldest operations, the oldest of each kind and of each peer before others like them.
fn oldest<'a>(ops: &[&'a Op]) -> Vec<&'a Op> {
    let mut seen = Vec::new();
    let mut firsts: Vec<(bool, usize)> = ops
        .iter()
        .enumerate()
        .map(|(at, op)| {
            let key = (op.call.peer.is_some(), op.call.peer, op.call.function.as_str());
            // Collectives end in their order: the order of all of them is worth more than one of each kind.
            let again = op.call.peer.is_some() && seen.contains(&key);
            seen.push(key);
            (again, at)
        })
        .collect();
    let first_collective = ops.iter().position(|op| op.call.peer.is_none());
    firsts.sort_unstable_by_key(|(again, at)| (Some(*at) != first_collective, *again, *at));
    firsts.truncate(MAX_IN_FLIGHT);
    firsts.sort_unstable_by_key(|(_, at)| *at);
    firsts.into_iter().filter_map(|(_, at)| ops.get(at).copied()).collect()
}

fn digest_of(op: &Op, kernels: bool, unix: impl Fn(u64) -> i64) -> OpDigest {
    let mut waits: Vec<_> = op.waits.iter().collect();
    waits.sort_by_key(|w| (w.since_ns, w.channel, w.peer, w.is_send));
    waits.truncate(MAX_WAITS);
    OpDigest {
        number: op.number,
        function: op.call.function.clone(),
        count: op.call.count,
        datatype: op.call.datatype.clone(),
        root: op.call.root,
        peer: op.call.peer,
        enqueued_ns: unix(op.enqueued_ns),
        started_ns: op.started_ns.map(&unix),
        // Before NCCL launches it, it connects, or the program has not ended its group: no GPU is to blame.
        is_start_visible: kernels && op.is_launched,
        is_end_unseen: is_end_unseen(op),
        channels: [op.channels_started, op.channels_stopped, op.call.channels],
        waits: waits
            .into_iter()
            .map(|w| WaitDigest {
                peer: w.peer,
                channel: w.channel,
                is_send: w.is_send,
                phase: phase(w.phase).to_owned(),
                since_ns: unix(w.since_ns),
            })
            .collect(),
    }
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Unknown => "unknown",
        Phase::SendGpu => "send-gpu",
        Phase::SendPeer => "send-peer",
        Phase::SendNet => "send-net",
        Phase::RecvNet => "recv-net",
        Phase::RecvFlush => "recv-flush",
        Phase::RecvGpu => "recv-gpu",
    }
}

/// A number that is spread evenly and the same for every agent: which operations are kept must not follow the pattern of a
/// step, and must be the same on all ranks.
fn spread(number: u64) -> u64 {
    let x = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Some ended collectives: the newest, and of the rest those whose spread numbers are smallest by powers of two, so that
/// ranks whose rings reach differently far choose much the same.
fn recent(records: &[&Done]) -> Vec<DoneDigest> {
    let collectives: Vec<&Done> = records.iter().copied().filter(|d| is_timed(d)).collect();
    // Agents speak at different moments of a second or two: there must be some that all still tell of, and many of those.
    let end = collectives.last().map_or(0, |d| d.ended_ns);
    let old = collectives.partition_point(|d| d.ended_ns + WINDOW_NS < end);
    let first = old.min(collectives.len().saturating_sub(NEWEST));
    let mut previous = first.checked_sub(1).and_then(|at| collectives.get(at).copied());
    let collectives = collectives.get(first..).unwrap_or_default();
    let Some(newest) = collectives.len().checked_sub(NEWEST.min(collectives.len())) else {
        return Vec::new();
    };
    let mut bits = 0;
    let kept = |at: usize, bits: u32| {
        at >= newest || collectives.get(at).is_some_and(|d| spread(d.number).trailing_zeros() >= bits)
    };
    while bits < 48 && (0..collectives.len()).filter(|at| kept(*at, bits)).count() > MAX_RECENT {
        bits += 1;
    }
    let mut out = Vec::new();
    for (at, done) in collectives.iter().copied().enumerate() {
        if kept(at, bits) {
            out.push(done_digest(done, previous));
        }
        previous = Some(done);
    }
    out
}

/// A collective whose end was seen: of others it is not known when they ended.
fn is_timed(done: &Done) -> bool {
    done.is_end_seen && !done.is_p2p && done.call.peer.is_none() && !is_p2p(&done.call.function)
}

fn done_digest(done: &Done, previous: Option<&Done>) -> DoneDigest {
    let before = previous.filter(|p| p.number + 1 == done.number);
    DoneDigest {
        number: done.number,
        function: done.call.function.clone(),
        bytes: done.call.count.saturating_mul(done.call.element_bytes().unwrap_or(1)),
        queued_ns: done.started_ns.saturating_sub(done.enqueued_ns),
        ran_ns: done.gpu_ns.unwrap_or_else(|| done.ended_ns.saturating_sub(done.started_ns)),
        gap_ns: before.map_or(0, |p| done.enqueued_ns.saturating_sub(p.ended_ns)),
        period_ns: before.map_or(0, |p| done.ended_ns.saturating_sub(p.ended_ns)),
        longest_wait: done.longest_wait.map(|(p, peer, ns)| (phase(p).to_owned(), peer, ns)),
    }
}

/// Sums over the newest whole steps. Where they begin does not matter, only that it is the same on all ranks.
fn steps(records: &[&Done], step: u32) -> Vec<StepDigest> {
    let ops = step.next_power_of_two();
    if ops < 2 {
        return Vec::new();
    }
    let mut out: Vec<StepDigest> = Vec::new();
    let mut open: Option<(StepDigest, u32)> = None;
    let mut previous: Option<&Done> = None;
    for done in records.iter().copied().filter(|d| is_timed(d)) {
        let one = done_digest(done, previous);
        previous = Some(done);
        if done.number.is_multiple_of(u64::from(ops)) {
            open = Some((StepDigest { first: done.number, ops, step, ..StepDigest::default() }, 0));
        }
        let Some((sum, n)) = &mut open else { continue };
        // All of them, and each after the one before.
        if done.number != sum.first + u64::from(*n) || one.period_ns == 0 {
            open = None;
            continue;
        }
        sum.period_ns += one.period_ns;
        // Who waits in a broadcast waits for its root, or the root for whom it waits: DDP begins each step with those of buffers. The
        // root of a reduction waits for all, and none of them for it.
        if is_symmetric(&one.function) || one.function == "Broadcast" {
            sum.queued_ns += one.queued_ns;
            sum.ran_ns += one.ran_ns;
            sum.gap_ns += one.gap_ns;
        }
        *n += 1;
        if *n == ops {
            out.extend(open.take().map(|(sum, _)| sum));
        }
    }
    out.split_off(out.len().saturating_sub(MAX_STEPS))
}

/// The step that the ended calls show.
fn pattern(records: &[&Done]) -> Option<PeriodDigest> {
    let calls: Vec<u64> = records
        .iter()
        .map(|d| {
            // FNV-1a: stable, and short of nothing here.
            let mut hash = 0xcbf2_9ce4_8422_2325_u64;
            let numbers = [
                d.call.count,
                d.call.root.map_or(0, |r| u64::from(r) + 1),
                d.call.peer.map_or(0, |p| u64::from(p) + 1),
            ];
            let bytes = numbers.iter().flat_map(|n| n.to_le_bytes());
            for byte in d.call.function.bytes().chain(bytes) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
            hash
        })
        .collect();
    let Some(found) = period::period(&calls) else { return by_marker(records, &calls) };
    let own = records.get(found.first..)?;
    let ends: Vec<i64> = own.iter().map(|d| d.ended_ns as i64).collect();
    let (first, last) = (ends.iter().min()?, ends.iter().max()?);
    Some(PeriodDigest {
        ops: found.calls as u32,
        repeats: found.repeats as u32,
        step_ns: period::step(&ends, found.calls)?,
        span_ns: last - first,
        is_training: trains(own),
    })
}

fn trains(records: &[&Done]) -> bool {
    records.iter().any(|d| {
        d.call.function.contains("Reduce")
            || is_p2p(&d.call.function)
            || d.call.function.starts_with("AlltoAll")
    })
}

/// Steps that a loop must have made whose calls come in no fixed order, or vary in size.
const MARKS: usize = 16;
/// And over so much time: calls that warm up pass at once.
const MARKED_NS: i64 = 3_000_000_000;
/// The longest step of nine in ten, measured by the usual one.
const UNEVEN: i64 = 3;

/// A step of any shape: the rarest call that comes repeatedly, at even distances, is made once in each.
fn by_marker(records: &[&Done], calls: &[u64]) -> Option<PeriodDigest> {
    let mut places: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (at, call) in calls.iter().enumerate() {
        places.entry(*call).or_default().push(at);
    }
    let marks = places
        .into_values()
        .filter(|at| at.len() > MARKS)
        .min_by_key(|at| (at.len(), at.first().copied()))?;
    let (first, last) = (*marks.first()?, *marks.last()?);
    let end = |at: usize| records.get(at).map_or(0, |done| done.ended_ns as i64);
    let mut steps: Vec<i64> =
        marks.windows(2).filter_map(|pair| Some(end(*pair.get(1)?) - end(*pair.first()?))).collect();
    let usual = median::upper(steps.iter().copied())?;
    steps.sort_unstable();
    let long = *steps.get(steps.len() * 9 / 10)?;
    let span_ns = end(last) - end(first);
    // What is made repeatedly within one step comes in bursts.
    let is_even = usual > 0 && long <= usual.saturating_mul(UNEVEN);
    let own = records.get(first..=last)?;
    (is_even && span_ns >= MARKED_NS && trains(own)).then(|| PeriodDigest {
        ops: ((own.len() - 1) / steps.len()).max(2) as u32,
        repeats: steps.len() as u32,
        step_ns: usual,
        span_ns,
        is_training: true,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ringleader_ring::{CallArgs, Comm, Done, Op, State, Wait};

    use super::from_ring;
    use crate::digest::{MAX_COMMS, MAX_IN_FLIGHT, MAX_RECENT, MAX_STEPS, MAX_WAITS};

    fn call(function: &str, peer: Option<u32>) -> CallArgs {
        CallArgs {
            function: function.to_owned(),
            count: 8,
            datatype: "ncclFloat16".to_owned(),
            peer,
            ..CallArgs::default()
        }
    }

    /// A ring that reaches from call `from` to call `to`, ten each second, three in a step.
    fn ring(from: u64, to: u64) -> State {
        let done = |number: u64| Done {
            number,
            call: CallArgs { count: 8 + number % 3, ..call("AllReduce", None) },
            enqueued_ns: number * 100_000_000,
            started_ns: number * 100_000_000 + 10,
            ended_ns: number * 100_000_000 + 30,
            is_end_seen: true,
            ..Done::default()
        };
        let mut state =
            State { comms: vec![Comm { id: 0xbeef, size: 4, ..Comm::default() }], ..State::default() };
        state.process.interface = 5;
        state.recent = (from..to).map(done).collect();
        state
    }

    #[test]
    fn ended_ones_that_agents_have_in_common() {
        let numbers = |from, to| -> BTreeSet<u64> {
            let digest = from_ring(&ring(from, to));
            let recent = &digest.comms.first().unwrap().recent;
            assert!(recent.len() <= MAX_RECENT && recent.is_sorted_by_key(|d| d.number));
            let one = recent.last().unwrap();
            assert_eq!(
                (one.bytes, one.queued_ns, one.ran_ns, one.period_ns),
                (16 + (to - 1) % 3 * 2, 10, 20, 100_000_000)
            );
            recent.iter().map(|d| d.number).collect()
        };
        // Rings that reach differently far, read a second apart.
        let common = numbers(0, 900).intersection(&numbers(600, 910)).count();
        assert!(common >= 4, "{common}");
        assert_eq!(from_ring(&ring(0, 0)).comms.first().unwrap().recent, []);
    }

    #[test]
    fn steps_add_up() {
        let digest = from_ring(&ring(7, 200));
        let comm = digest.comms.first().unwrap();
        let period = comm.period.clone().unwrap();
        assert_eq!((period.ops, period.step_ns, period.is_training), (3, 300_000_000, true));
        assert_eq!(comm.steps.len(), MAX_STEPS);
        for step in &comm.steps {
            assert_eq!((step.first % 4, step.ops, step.step), (0, 4, 3));
            assert_eq!((step.ran_ns, step.queued_ns, step.period_ns), (80, 40, 400_000_000));
        }
    }

    #[test]
    fn steps_that_begin_with_a_broadcast() {
        let state = |function: &str| {
            let mut state = ring(7, 200);
            for done in state.recent.iter_mut().filter(|d| d.number.is_multiple_of(3)) {
                done.call.function = function.to_owned();
            }
            state
        };
        let sums = |function: &str| -> Vec<(u64, u64)> {
            let digest = from_ring(&state(function));
            digest.comms.first().unwrap().steps.iter().map(|s| (s.ran_ns, s.period_ns)).collect()
        };
        assert_eq!(sums("Broadcast"), [(80, 400_000_000); MAX_STEPS]);
        // Of a reduction the root alone waits; its time passes all the same.
        let reduced = sums("Reduce");
        assert!(
            reduced.len() == MAX_STEPS && reduced.iter().all(|s| s.0 < 80 && s.1 == 400_000_000),
            "{reduced:?}"
        );
    }

    /// As of a sharded model whose gathers are made ahead: 24 calls a step in another order each time, some of another size.
    #[test]
    fn sixty_steps_of_no_fixed_order_are_a_rhythm() {
        let done = |number: u64| {
            let (step, at) = (number / 24, number % 24);
            // Where the one call that ends a step stands, differs.
            let is_end = at == 20 + step % 4;
            let count = if is_end { 7 } else { 100 + ((number * 2_654_435_761) >> 7) % 11 };
            Done {
                number,
                call: CallArgs { count, ..call(if is_end { "AllReduce" } else { "AllGather" }, None) },
                enqueued_ns: number * 5_500_000,
                started_ns: number * 5_500_000 + 10,
                ended_ns: number * 5_500_000 + 30,
                is_end_seen: true,
                ..Done::default()
            }
        };
        let mut state =
            State { comms: vec![Comm { id: 0xbeef, size: 2, ..Comm::default() }], ..State::default() };
        state.process.interface = 5;
        state.recent = (0..60 * 24).map(done).collect();
        let digest = from_ring(&state);
        let period = digest.comms.first().and_then(|comm| comm.period.clone()).unwrap();
        assert!(period.is_training && period.repeats >= 16, "{period:?}");
        assert!((100_000_000..160_000_000).contains(&period.step_ns), "{period:?}");
        // A burst is none: all within a second.
        for done in &mut state.recent {
            for ns in [&mut done.enqueued_ns, &mut done.started_ns, &mut done.ended_ns] {
                *ns /= 20;
            }
        }
        assert_eq!(from_ring(&state).comms.first().unwrap().period, None);
    }

    #[test]
    fn receives_of_the_newest_seconds() {
        let state = |peer: u32| {
            let recv = |n: u64| Done {
                number: n,
                call: call("Recv", Some(peer)),
                enqueued_ns: n * 200_000_000,
                started_ns: n * 200_000_000,
                ended_ns: n * 200_000_000 + 150_000_000,
                is_p2p: true,
                is_end_seen: true,
                ..Done::default()
            };
            // Two that ran at the same time.
            let twin = |n: u64| Done { number: n + 1000, ..recv(n) };
            let comm = Comm { id: 0xbeef, size: 2, rank: Some(0), ..Comm::default() };
            let mut state = State { comms: vec![comm], ..State::default() };
            state.recent = (0..200).map(recv).chain((100..200).map(twin)).collect();
            state.taken.mono_ns = 40_000_000_000;
            state
        };
        let word = from_ring(&state(1)).receives.unwrap();
        assert_eq!((word.span_ms, word.n, word.longest_ms), (20_000, 200, 150));
        assert!((14_900..=15_000).contains(&word.ran_ms), "{word:?}");
        // What a rank sends to itself.
        assert_eq!(from_ring(&state(0)).receives, None);
    }

    #[test]
    fn bounded() {
        let op = |number: u64, peer| Op {
            number,
            call: call(if peer == 0 { "AllReduce" } else { "Send" }, (peer > 0).then_some(peer)),
            enqueued_ns: number,
            waits: (0..50).map(|channel| Wait { channel, ..Wait::default() }).collect(),
            ..Op::default()
        };
        let comm = |slot| Comm {
            slot,
            id: 1,
            in_flight: (0..90).map(|n| op(n, u32::from(n != 70) * 3)).collect(),
            ..Comm::default()
        };
        let digest = from_ring(&State { comms: (0..500).map(comm).collect(), ..State::default() });
        assert_eq!(digest.comms.len(), MAX_COMMS);
        let first = digest.comms.first().unwrap();
        assert_eq!((first.in_flight.len(), first.n_in_flight), (MAX_IN_FLIGHT, 90));
        // The collective is told of, however many sends there are.
        assert!(first.in_flight.iter().any(|op| op.number == 70));
        assert!(first.in_flight.iter().all(|op| op.waits.len() == MAX_WAITS));
        let size = serde_json::to_string(&digest).unwrap().len();
        assert!(size < 150_000, "{size}");
    }
}
