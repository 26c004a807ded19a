//! What to change: each possible change with its gain by replay. The largest gain names the cause.

use std::collections::BTreeMap;

use ringleader_model::{Cause, OpKind, RuntimeCall, WorkKind};

use crate::Analysis;
use crate::bandwidth::{Alone, Class, SizeClass};
use crate::expected::{self, Basis};
use crate::late::Why;
use crate::replay::Model;
pub use crate::replay::is_explained;
use crate::split::Split;
use crate::whatif::{self, Replays};

/// One change that would make the job faster, or a fault to fix.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// Cause of the lost time.
    pub cause: Cause,
    /// Ranks at fault; empty where all are alike.
    pub culprits: Vec<u32>,
    /// The observation, in one line.
    pub seen: String,
    /// Instruction for the user.
    pub todo: String,
    /// Estimated step after the change, ns, against [`Analysis::unrecorded_ns`].
    pub after_ns: i64,
    /// Gain in percent of the step.
    pub gain_pct: f64,
    /// What the gain is from.
    pub estimated_by: EstimatedBy,
    /// Nothing in the timeline names it.
    pub is_guess: bool,
    /// The fault is certain regardless of the gain.
    pub is_structural: bool,
    /// Whether the gain justifies a change.
    pub is_worth: bool,
}

/// What a gain is estimated by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EstimatedBy {
    /// A replay of the recorded dependencies with the change made.
    Replay,
    /// A calculation from the parts of the step: no replay shows the change, or none explains the recording.
    Formula,
}

/// Gains below this share of a step are not worth a change.
pub const LEAST_PCT: f64 = 5.0;
/// Gains up to this print as 0 %: such changes are not advised, whatever else is certain of them.
const NO_GAIN_PCT: f64 = 0.5;
/// The same for the host's own work: half of what a recorder shows of it on short steps is the recorder.
const LEAST_HOST_PCT: f64 = 45.0;
/// The same for waiting for the GPU within the step, which healthy steps do not do.
const LEAST_SYNC_PCT: f64 = 4.0;
/// Waits in a step that are no longer one look at the loss.
const MANY_SYNCS: usize = 4;
/// The same for time in which the recorder does not say what the program did.
const LEAST_GUESS_PCT: f64 = 12.0;
/// The same for partly hidden communication: the first and the last of a step are never hidden.
const LEAST_OVERLAP_PCT: f64 = 15.0;
/// Small collectives in a step that are no longer a few buckets.
const MANY_SMALL: i64 = 24;
/// Communication that is hidden to less than this share, and takes more than this share of a step, is not overlapped at
/// all.
const HIDDEN_PCT: i64 = 10;
const BARE_PCT: f64 = 2.0;
/// A rank that is late by this share of a step is worth finding.
const LATE_PCT: f64 = 4.0;
/// Messages from this size on show a bandwidth, bytes.
const LARGE_BYTES: u64 = 2 << 20;
/// Operations of a size that show a bandwidth.
const LEAST_OPS: usize = 3;
/// Part of the exposed time that overlapping gains: computation beside communication runs slower. Measured on two H200
/// with buckets of DDP, in FSDP2 and with calls in one stream: 0.3 to 0.6.
const OVERLAP_YIELD: f64 = 0.45;
/// The reverse: how much longer a step with all communication hidden is than its computation alone.
const CONTENTION: f64 = 0.5;
/// Kinds that training may run beside computation.
const OVERLAPS: [OpKind; 4] =
    [OpKind::AllReduce, OpKind::AllGather, OpKind::ReduceScatter, OpKind::Broadcast];
/// Launches of the optimizer in a step that are no longer a few for all weights together.
const MANY_UPDATES: usize = 300;
/// A rank that computes this share more than the mean of all has unequal work, percent.
const UNEQUAL_PCT: i64 = 15;

/// Fills in the replays and the advice.
pub fn judge(analysis: &mut Analysis<'_>) {
    let replays = Replays::new(analysis);
    analysis.replayed_ns = replays.recorded_ns;
    analysis.unrecorded_ns = replays.base_ns;
    let mut advice = Vec::new();
    // What the replay does not reproduce, it cannot improve. And what a program does once, at its start, no step does.
    if is_explained(analysis.step_ns, replays.recorded_ns) && analysis.has_steps() {
        host_side(analysis, &replays, &mut advice);
    }
    if analysis.has_steps() {
        communication(analysis, &replays, &mut advice);
        ranks(analysis, &replays, &mut advice);
    }
    let n_syncs = whatif::n_syncs(analysis, &replays);
    for one in &mut advice {
        let least = match one.cause {
            Cause::HostBound => LEAST_HOST_PCT,
            Cause::SyncStalls if n_syncs >= MANY_SYNCS => LEAST_SYNC_PCT,
            Cause::DataLoadingBound if one.is_guess => LEAST_GUESS_PCT,
            Cause::NoComputeOverlap => LEAST_OVERLAP_PCT,
            _ => LEAST_PCT,
        };
        one.is_worth = one.gain_pct >= least || one.is_structural;
    }
    analysis.n_tried = advice.len();
    advice.retain(|one| one.gain_pct > NO_GAIN_PCT);
    let key = |a: &Advice| (a.is_worth, a.is_structural && !a.culprits.is_empty(), a.gain_pct);
    advice.sort_by(|a, b| key(b).partial_cmp(&key(a)).unwrap_or(std::cmp::Ordering::Equal));
    analysis.advice = advice;
}

/// The observation, with the place in the program if it was recorded.
fn seen_at(analysis: &Analysis<'_>, seen: &str, is_wanted: impl Fn(RuntimeCall, i64) -> bool) -> String {
    match crate::place::of_calls(&analysis.views, is_wanted) {
        Some(place) => format!("{seen} (most of it in {place})"),
        None => seen.to_owned(),
    }
}

/// Calls of the runtime that take longer wait for something, ns.
const LONG_NS: i64 = 30_000;

/// Advice whose gain is from a replay.
fn advise(base_ns: i64, after_ns: i64, cause: Cause, seen: String, todo: &str) -> Advice {
    let after_ns = after_ns.min(base_ns);
    let gain_pct = (base_ns - after_ns) as f64 * 100.0 / base_ns.max(1) as f64;
    Advice {
        cause,
        culprits: Vec::new(),
        seen,
        todo: todo.to_owned(),
        after_ns,
        gain_pct,
        estimated_by: EstimatedBy::Replay,
        is_guess: false,
        is_structural: false,
        is_worth: false,
    }
}

/// Formats ns as milliseconds for reports.
pub fn ms(ns: i64) -> String {
    format!("{:.1} ms", ns as f64 / 1e6)
}

/// A step cannot become shorter than the GPU's own work; communication that is hidden then slows it down.
fn floor_ns(analysis: &Analysis<'_>) -> i64 {
    let floors = analysis.means.iter().map(|m| {
        let comm = (m.exposed_comm_ns - analysis.lateness.mean_wait_ns).max(0);
        m.compute_ns + (comm as f64 * CONTENTION) as i64
    });
    floors.max().unwrap_or(0)
}

fn host_side(analysis: &Analysis<'_>, replays: &Replays, advice: &mut Vec<Advice>) {
    let base = replays.base_ns;
    let first = advice.len();
    let after = replays.after(analysis, |_, model| whatif::without_loading(model));
    advice.push(advise(
        base,
        after,
        Cause::DataLoadingBound,
        "the GPU waits while the program loads input".to_owned(),
        "load input while the GPU computes: more DataLoader workers, pinned memory, prefetch",
    ));
    let after = replays.after(analysis, |_, model| whatif::without_outside(model));
    let mut outside = advise(
        base,
        after,
        Cause::DataLoadingBound,
        "the GPU waits while the program works outside the framework in each step".to_owned(),
        "check what the main thread does there (py-spy); read input in workers while the GPU computes",
    );
    outside.is_guess = true;
    advice.push(outside);
    let after = replays.after(analysis, |rank, model| whatif::without_syncs(analysis, rank, model));
    advice.push(advise(
        base,
        after,
        Cause::SyncStalls,
        seen_at(
            analysis,
            "the host waits for the GPU within the step, then the GPU waits for the host",
            |call, ns| call == RuntimeCall::Synchronize && ns > LONG_NS,
        ),
        "take item(), synchronize() and printing of tensors out of the step; unset CUDA_LAUNCH_BLOCKING",
    ));
    let after = replays.after(analysis, |_, model| whatif::without_allocator(model));
    advice.push(advise(
        base,
        after,
        Cause::AllocatorStalls,
        seen_at(analysis, "GPU memory is allocated and freed within the step", |call, _| {
            call == RuntimeCall::Allocate
        }),
        "no empty_cache() within the step; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; leave memory free",
    ));
    let after = replays.after(analysis, |rank, model| whatif::without_copies(analysis, rank, model));
    advice.push(advise(
        base,
        after,
        Cause::TransferBound,
        seen_at(analysis, "copies between host and GPU delay the step", |call, ns| {
            call == RuntimeCall::Copy && ns > LONG_NS
        }),
        "pin the memory and copy with non_blocking=True in a stream of its own; keep on the GPU what every step needs",
    ));
    let after = replays.after(analysis, |_, model| whatif::without_host(model));
    advice.push(advise(
        base,
        after,
        Cause::HostBound,
        "the GPU waits for the host to launch small pieces of work".to_owned(),
        "use fewer and larger kernels: torch.compile, CUDA graphs, fused optimizers, larger batches",
    ));
    let n_updates = whatif::n_updates(analysis, replays);
    if n_updates >= MANY_UPDATES {
        let after = replays.after(analysis, |_, model| whatif::with_fused_optimizer(model));
        let mut one = advise(
            base,
            after,
            Cause::HostBound,
            format!("the optimizer makes {n_updates} launches a step, while the GPU has nothing else to do"),
            "update all weights in a few kernels: a fused or foreach optimizer, or torch.compile around its step",
        );
        one.is_structural = one.gain_pct >= LEAST_PCT;
        advice.push(one);
    }
    let floor = floor_ns(analysis).min(base);
    for one in advice.iter_mut().skip(first).filter(|one| one.after_ns < floor) {
        // Up to a fourth is the cost of hidden communication, which the replay does not know.
        if (floor - one.after_ns) * 4 > base - one.after_ns {
            one.estimated_by = EstimatedBy::Formula;
        }
        one.after_ns = floor;
        one.gain_pct = (base - floor) as f64 * 100.0 / base.max(1) as f64;
    }
}

/// Mean over ranks of a part of a step.
fn mean(analysis: &Analysis<'_>, part: impl Fn(&Split) -> i64) -> i64 {
    analysis.means.iter().map(part).sum::<i64>() / analysis.means.len().max(1) as i64
}

fn communication(analysis: &Analysis<'_>, replays: &Replays, advice: &mut Vec<Advice>) {
    let base = replays.base_ns;
    let exposed = mean(analysis, |s| s.exposed_comm_ns);
    let wait = analysis.lateness.mean_wait_ns.min(exposed);
    let exposed_cost = exposed - wait;
    let (mut cost, mut ideal, mut slow_share) = (0.0, 0.0, 0.0_f64);
    let mut ns_per_byte = f64::MAX;
    for class in &analysis.sizes {
        let total = class.cost_ns as f64 * analysis.n_per_step(class);
        cost += total;
        let share = match (class.busbw_gbs, class.expected) {
            (Some(busbw), Some(expected)) if is_judged(class) => {
                slow_share = slow_share.max(expected.by.slow_share());
                (busbw / expected.gbs).min(1.0)
            }
            _ => 1.0,
        };
        ideal += total * share;
        if let (Some(expected), Some(kind)) = (expected_of(analysis, class), class.kind) {
            ns_per_byte = ns_per_byte.min(expected::bus_factor(kind, class.n_ranks) / expected);
        } else if class.size_bytes >= LARGE_BYTES {
            ns_per_byte = ns_per_byte.min(class.cost_ns as f64 / class.size_bytes as f64);
        }
    }
    let comm_ns = cost as i64;
    // Of a rank alone, the rest may be waiting.
    let exposed_cost = if analysis.join.ops.is_empty() { exposed_cost.min(comm_ns) } else { exposed_cost };
    let share = if cost > 0.0 { ideal / cost } else { 1.0 };
    if share < slow_share {
        let worst = analysis.sizes.iter().filter(|c| is_judged(c)).find_map(|c| {
            let (mb, expected) = (c.size_bytes as f64 / 1e6, c.expected?);
            let (busbw, by) =
                (c.busbw_gbs?, if expected.by == Basis::Baseline { "the baseline" } else { "like GPUs" });
            let at = format!("{busbw:.0} of the {:.0} GB/s of bus bandwidth that {by} reached", expected.gbs);
            Some(format!("{at} at {mb:.0} MB{}", channels(analysis, c)))
        });
        let (after, estimated_by) = if replays.explain(analysis) && !analysis.join.ops.is_empty() {
            let shares = reached(analysis);
            let faster = |_, model: &mut Model| whatif::with_bandwidth(analysis, &shares, model);
            (replays.after(analysis, faster), EstimatedBy::Replay)
        } else {
            (base - (exposed_cost as f64 * (1.0 - share)) as i64, EstimatedBy::Formula)
        };
        let mut one = advise(
            base,
            after,
            Cause::BandwidthBelowExpected,
            format!("collectives reach {}", worst.unwrap_or_default()),
            "check which transport NCCL chose (NCCL_DEBUG=INFO); unset NCCL_P2P_DISABLE; run ringleader check",
        );
        one.estimated_by = estimated_by;
        advice.push(one);
        return;
    }
    if ns_per_byte < f64::MAX {
        let after = replays.after(analysis, |_, model| whatif::with_buckets(analysis, model, ns_per_byte));
        let is_small = |c: &&SizeClass| !c.is_on_path && whatif::is_gatherable(c.kind, c.size_bytes);
        let n = analysis.sizes.iter().filter(is_small).map(|c| analysis.n_per_step(c)).sum::<f64>() as i64;
        let n_all = analysis.sizes.iter().map(|c| analysis.n_per_step(c)).sum::<f64>() as i64;
        let mut one = advise(
            base,
            after,
            Cause::SmallMessages,
            format!("{n} collectives per step carry less than 8 MiB each"),
            "gather gradients into buckets (bucket_cap_mb, coalesced calls)",
        );
        one.is_structural = n >= MANY_SMALL && n * 2 >= n_all && one.gain_pct >= BARE_PCT;
        let is_small = one.is_structural;
        advice.push(one);
        if is_small {
            // Until they are gathered, overlap says little.
            return;
        }
    }
    overlap(analysis, base, (exposed_cost, comm_ns), ns_per_byte, advice);
    if let Some((n, again)) = whatif::repeated(analysis) {
        let after = replays.after(analysis, |rank, model| {
            whatif::without(again.get(rank).map_or(&[][..], Vec::as_slice), model);
        });
        let mut one = advise(
            base,
            after,
            Cause::NoComputeOverlap,
            format!("the same gradients are reduced {n} times a step"),
            "accumulate them on each rank, and reduce them after the last backward pass only (no_sync(), accumulate())",
        );
        one.is_structural = one.gain_pct >= LEAST_PCT;
        advice.push(one);
    }
    shared_sms(analysis, base, comm_ns, advice);
}

/// Shares that operations reach of the bandwidth expected of them, by kind, bytes and ranks; at most 1.
fn reached(analysis: &Analysis<'_>) -> BTreeMap<Class, f64> {
    let of = |class: &SizeClass| {
        let share = class.busbw_gbs? / class.expected?.gbs;
        Some(((class.kind, class.size_bytes, class.n_ranks), share.min(1.0)))
    };
    analysis.sizes.iter().filter(|class| is_judged(class)).filter_map(of).collect()
}

/// Channels here and in the baseline, where both were measured.
fn channels(analysis: &Analysis<'_>, class: &SizeClass) -> String {
    let way = class.kind.and_then(|kind| analysis.baseline?.way(kind, class.size_bytes));
    match (class.n_ctas, way) {
        (Some(n), Some(way)) => format!(" (here with {n} channels, there {way})"),
        _ => String::new(),
    }
}

/// Communication takes SMs from the computation beside it.
fn shared_sms(analysis: &Analysis<'_>, base: i64, comm_ns: i64, advice: &mut Vec<Advice>) {
    let Some(contention) = analysis.contention else { return };
    // With half of the channels it may take twice as long, and must still be hidden.
    if contention.n_ctas < 2 || 2 * comm_ns > mean(analysis, |s| s.compute_ns) {
        return;
    }
    let gain = contention.lost_ns as f64 * contention.yield_of_half();
    let mut one = advise(
        base,
        base - gain as i64,
        Cause::NoComputeOverlap,
        format!(
            "computation beside communication takes {:.2} times as long, {} a step: NCCL's kernels hold {} of {} SMs",
            contention.slowdown,
            ms(contention.lost_ns),
            contention.n_ctas,
            contention.n_sms
        ),
        "try half as many channels (NCCL_MAX_CTAS, or max_ctas in the options of the process group) and time the step",
    );
    // All of it is hidden already: what is known of partly hidden communication does not apply.
    one.is_structural = one.gain_pct >= LEAST_PCT;
    one.estimated_by = EstimatedBy::Formula;
    advice.push(one);
}

/// Whether a bandwidth that is too low is a fault: a large message of a group that is wholly recorded, against what must be
/// reached here.
fn is_judged(class: &SizeClass) -> bool {
    let is_binding = class.expected.is_some_and(|expected| expected.by.is_binding());
    is_binding && class.size_bytes >= LARGE_BYTES && class.n >= LEAST_OPS && !class.is_lower_bound
}

/// Expected bandwidth of large messages of this kind, GB/s.
fn expected_of(analysis: &Analysis<'_>, class: &SizeClass) -> Option<f64> {
    class.expected.filter(|expected| expected.by.is_binding())?;
    let group = (class.n_ranks, class.n_nodes);
    Some(analysis.references.at(class.kind?, group, whatif::BUCKET_BYTES)?.gbs)
}

fn overlap(
    analysis: &Analysis<'_>,
    base: i64,
    (exposed_cost, comm_ns): (i64, i64),
    ns_per_byte: f64,
    advice: &mut Vec<Advice>,
) {
    let bare = bare_ns(analysis);
    let compute = mean(analysis, |s| s.compute_ns);
    if compute == 0 || exposed_cost == 0 {
        return;
    }
    let exposed_cost = exposed_cost.min(bare.1);
    // The last bucket stays exposed; of less than a few usual buckets smaller ones can be made.
    let largest = analysis.sizes.iter().map(|class| class.size_bytes).max().unwrap_or(0);
    let bucket = whatif::BUCKET_BYTES.min(largest / 4);
    let tail = if ns_per_byte < f64::MAX { (bucket as f64 * ns_per_byte) as i64 } else { 0 };
    let left = tail.max(comm_ns - compute).max(0);
    let gain = (exposed_cost - left).max(0) as f64 * OVERLAP_YIELD;
    let mut one = advise(
        base,
        base - gain as i64,
        Cause::NoComputeOverlap,
        format!(
            "{} of {} communication a step run while nothing computes{}",
            ms(exposed_cost),
            ms(comm_ns.max(exposed_cost)),
            if in_main_stream(analysis) { ", in the stream of the computation" } else { "" }
        ),
        if in_main_stream(analysis) {
            "give the communication a stream of its own (async_op=True, wait() where the result is needed)"
        } else {
            "start communication earlier: smaller buckets, prefetching, a stream of its own"
        },
    );
    one.is_structural = analysis.pct(bare.0) > BARE_PCT && !has_idle_gpus(analysis, base);
    one.estimated_by = EstimatedBy::Formula;
    advice.push(one);
}

/// Share of a step, percent, in which the GPUs have nothing to do beyond what the recorder itself causes: communication then
/// delays nothing, whatever it overlaps.
const IDLE_PCT: i64 = 25;

fn has_idle_gpus(analysis: &Analysis<'_>, base: i64) -> bool {
    let recorder = (analysis.replayed_ns - base).max(0);
    let idle = analysis.means.iter().map(Split::all_idle_ns).max().unwrap_or(0) - recorder;
    idle * 100 > base * IDLE_PCT
}

/// Whether most communication is queued in the stream that computes: then nothing of it can be hidden.
fn in_main_stream(analysis: &Analysis<'_>) -> bool {
    let (mut main, mut all) = (0, 0);
    for view in &analysis.views {
        for work in view.work().iter().filter(|w| w.kind == WorkKind::Comm) {
            let time = work.end_ns - work.start_ns;
            all += time;
            main += if work.stream == view.main_stream { time } else { 0 };
        }
    }
    main * 2 > all
}

/// Time per step of communication that could overlap computation: of kinds that barely overlap, and of all kinds while
/// nothing computes.
fn bare_ns(analysis: &Analysis<'_>) -> (i64, i64) {
    let mut kinds: BTreeMap<OpKind, (i64, i64)> = BTreeMap::new();
    let mut n = 0;
    let alone = Alone::new(&analysis.views, &analysis.join);
    let on_path = crate::axes::on_path(&analysis.axes);
    for (place, (view, steps)) in analysis.views.iter().zip(&analysis.steps).enumerate() {
        let compute = view.busy(|kind| kind == WorkKind::Compute);
        n += steps.usual.len() as i64;
        for (at, work) in view.work().iter().enumerate().filter(|(_, w)| w.kind == WorkKind::Comm) {
            if !steps.of_work.get(at).is_some_and(|step| steps.usual.contains(step)) {
                continue;
            }
            let op = analysis.join.op_of(place, at);
            if op.is_some_and(|op| on_path.contains(&op.group)) {
                continue;
            }
            let kind = op.and_then(|op| op.kind).or_else(|| view.timeline.call_of(work)?.kind);
            let Some(kind) = kind.filter(|kind| OVERLAPS.contains(kind)) else { continue };
            // Buffers are broadcast before each forward pass; weights are large.
            if kind == OpKind::Broadcast && op.is_none_or(|op| op.size_bytes < LARGE_BYTES) {
                continue;
            }
            // Waiting for other ranks is no cost.
            let cost = match op {
                Some(op) => analysis.join.cost_ns(&analysis.views, op),
                None => alone.cost_ns(place, view, at, &analysis.join).unwrap_or(work.end_ns - work.start_ns),
            };
            let from = work.end_ns - cost.min(work.end_ns - work.start_ns);
            let hidden = compute.length_within(from, work.end_ns);
            let sums = kinds.entry(kind).or_default();
            sums.0 += hidden;
            sums.1 += work.end_ns - from - hidden;
        }
    }
    let n = n.max(1);
    let bare = kinds.values().filter(|(hidden, alone)| hidden * 100 < HIDDEN_PCT * (hidden + alone));
    (bare.map(|(_, alone)| alone).sum::<i64>() / n, kinds.values().map(|(_, alone)| alone).sum::<i64>() / n)
}

/// Advice on unequal work.
const EQUAL_WORK: &str = "give the ranks equal work: sort or pack by length, balance experts";

/// Along which axis ranks are unequal, and in what; empty if that is unknown.
fn along(analysis: &Analysis<'_>) -> String {
    let Some((axis, unequal)) = crate::axes::culprit(&analysis.axes) else { return String::new() };
    format!(
        " ({}: one rank has {:.0} % more {} than the mean of its group)",
        axis.name,
        unequal.excess_pct,
        unequal.what.words()
    )
}

/// Unequal work of the GPUs, where the recorded hosts are so slow that another rank is late: without the recorder it is the
/// one that computes most.
fn unequal(analysis: &Analysis<'_>, replays: &Replays, advice: &mut Vec<Advice>) {
    let base = replays.base_ns;
    if !is_explained(analysis.step_ns, replays.recorded_ns) {
        return;
    }
    let compute: Vec<i64> = analysis.means.iter().map(|split| split.compute_ns).collect();
    let mean = compute.iter().sum::<i64>() / (compute.len() as i64).max(1);
    let Some((at, most)) = compute.into_iter().enumerate().max_by_key(|(_, ns)| *ns) else { return };
    if most * 100 < mean * (100 + UNEQUAL_PCT) || !crate::axes::has_unequal_work(analysis) {
        return;
    }
    let after = replays.after(analysis, |rank, model| whatif::with_equal_work(analysis, rank, model));
    let rank = analysis.views.get(at).map_or(0, |view| view.rank);
    let mut one = advise(
        base,
        after,
        Cause::LoadImbalance,
        format!(
            "rank {rank} computes {} a step more than the mean of all{}",
            ms(most - mean),
            along(analysis)
        ),
        EQUAL_WORK,
    );
    one.culprits = vec![rank];
    one.is_structural = one.gain_pct >= LATE_PCT;
    advice.push(one);
}

/// The gain by replay; or by formula, if the replay shows less than half of it. Then the program waits for the GPU in a way
/// that was not recorded, which the replay takes for work of the host.
fn replayed(formula_ns: i64, by_replay_ns: Option<i64>) -> (i64, EstimatedBy) {
    match by_replay_ns.filter(|ns| ns * 2 >= formula_ns) {
        Some(ns) => (ns, EstimatedBy::Replay),
        None => (formula_ns, EstimatedBy::Formula),
    }
}

fn ranks(analysis: &Analysis<'_>, replays: &Replays, advice: &mut Vec<Advice>) {
    let base = replays.base_ns;
    let late = &analysis.lateness;
    let p2p_share = analysis.pct(late.p2p_wait_ns);
    if p2p_share > 2.0 * LATE_PCT && late.p2p_wait_ns * 2 > late.mean_wait_ns {
        let mut one = advise(
            base,
            base - late.p2p_wait_ns / 2,
            Cause::PipelineBubble,
            format!("stages wait {} per step for one another{}", ms(late.p2p_wait_ns), along(analysis)),
            "more microbatches, an interleaved schedule, stages of equal work",
        );
        one.estimated_by = EstimatedBy::Formula;
        advice.push(one);
        return;
    }
    if let Some(straggler) = late.straggler.filter(|s| analysis.pct(s.lead_ns) > LATE_PCT) {
        let rank = analysis.views.get(straggler.view as usize).map_or(0, |v| v.rank);
        let cause = match straggler.why {
            Why::LargerWork => Cause::LoadImbalance,
            _ => Cause::Straggler,
        };
        // Work that is only distributed better does not disappear.
        let n = analysis.views.len().max(1) as i64;
        let at = straggler.view as usize;
        let work = whatif::host_work(analysis, replays);
        let after = replays.after(analysis, |rank, model| {
            if rank == at {
                whatif::like_the_others(analysis, rank, &work, model);
            }
        });
        // What the recorder itself costs a host may make one of two equal ranks late.
        let recorder = (replays.recorded_ns - base).max(0);
        let is_replayed = replays.explain(analysis);
        let equal = || replays.after(analysis, |rank, model| whatif::with_equal_work(analysis, rank, model));
        let (gain, estimated_by) = match (cause, straggler.why) {
            (_, Why::Unknown) => (straggler.lead_ns - recorder, EstimatedBy::Formula),
            (Cause::LoadImbalance, _) => {
                replayed(straggler.lead_ns * (n - 1) / n, is_replayed.then(|| base - equal()))
            }
            // Of two hosts that bound the step alike, the one that is ahead waits for the other: the lead is no gain.
            (_, Why::Host | Why::Data) if is_replayed => (base - after, EstimatedBy::Replay),
            _ => replayed(straggler.lead_ns, is_replayed.then_some(base - after)),
        };
        let mut one = advise(
            base,
            base - gain,
            cause,
            format!(
                "rank {rank} is late by {} per step: {}{}",
                ms(straggler.lead_ns),
                straggler.why.words(),
                if cause == Cause::LoadImbalance { along(analysis) } else { String::new() }
            ),
            match cause {
                Cause::LoadImbalance => EQUAL_WORK,
                _ => "check what this rank does that the others do not",
            },
        );
        one.culprits = vec![rank];
        one.estimated_by = estimated_by;
        // Lateness of a single rank is its own fault, for any reason.
        let host_side = advice.iter().map(|a| a.gain_pct).fold(0.0, f64::max);
        // If its input alone is late, a step like the others' gains nearly what a step without loading gains.
        let share = if straggler.why == Why::Data { 0.75 } else { 0.6 };
        one.is_structural = one.gain_pct >= LEAST_PCT && one.gain_pct > host_side * share;
        let is_of_host = is_replayed && matches!(straggler.why, Why::Host | Why::Data);
        if !is_of_host || whatif::does_more(&work, at) {
            advice.push(one);
        } else {
            unequal(analysis, replays, advice);
        }
    } else if analysis.pct(late.imbalance_ns.min(late.mean_wait_ns)) > LATE_PCT
        && crate::axes::has_unequal_work(analysis)
    {
        let equal = |rank, model: &mut Model| whatif::with_equal_work(analysis, rank, model);
        let by_replay = replays.explain(analysis).then(|| base - replays.after(analysis, equal));
        let (gain, estimated_by) = replayed(late.imbalance_ns, by_replay);
        let mut one = advise(
            base,
            base - gain,
            Cause::LoadImbalance,
            format!(
                "ranks wait {} per step for one another, each time for a different one{}",
                ms(late.mean_wait_ns),
                along(analysis)
            ),
            EQUAL_WORK,
        );
        one.estimated_by = estimated_by;
        advice.push(one);
    }
}
