//! Collectives whose answer is known: every operation and type that this NCCL has, at sizes around its switches.

use super::inject::Spot;
use super::place::{Trial, of_trial};
use super::worker::{Worker, words};
use super::{Check, Sign, links};
use crate::bench::{BufferPiece, expected};
use crate::collective::{Collective, CollectiveCall};
use crate::sys::{Buffer, CommHandle, DataType, LibraryError, RedOp, Wish};
use crate::values;

/// Bytes of a rank's part: odd, so that tails are there; around the switches of protocols; and large.
const SIZES: [usize; 4] = [4 * 1027, 1 << 16, (1 << 20) + 4096, 16 << 20];
const BRIEF_SIZES: [usize; 2] = [4 * 1027, 1 << 16];

/// What NCCL does in rings.
const IN_RINGS: [Collective; 5] = [
    Collective::AllReduce,
    Collective::AllGather,
    Collective::ReduceScatter,
    Collective::Broadcast,
    Collective::Reduce,
];

/// One case.
#[derive(Clone, Copy)]
struct CollectiveCheck {
    collective: Collective,
    dtype: DataType,
    op: RedOp,
    size_bytes: usize,
    root: usize,
}

/// All operations and types.
pub(super) fn run(worker: &mut Worker<'_>) -> Result<(), LibraryError> {
    let Some(comm) = worker.comm.take() else { return Ok(()) };
    let nccl = comm.nccl();
    let n = worker.member.n_ranks;
    let sizes: &[usize] = if worker.plan.is_brief { &BRIEF_SIZES } else { &SIZES };
    let types: Vec<DataType> = DataType::ALL
        .into_iter()
        .filter(|dtype| nccl.is_at_least(dtype.since().0, dtype.since().1))
        // Reductions of 8-bit floats need sm_90.
        .filter(|dtype| {
            !matches!(dtype, DataType::F8E4m3 | DataType::F8E5m2)
                || worker.gpus.iter().all(|gpu| gpu.capability >= 90)
        })
        .collect();
    let mut cases = Vec::new();
    for collective in Collective::ALL.into_iter().filter(|collective| collective.fits(n)) {
        for (k, size_bytes) in sizes.iter().copied().enumerate() {
            // Roots turn from round to round.
            let root = (worker.round as usize + k) % n;
            if !collective.reduces() {
                cases.push(CollectiveCheck {
                    collective,
                    dtype: DataType::U8,
                    op: RedOp::Sum,
                    size_bytes,
                    root,
                });
                continue;
            }
            for dtype in &types {
                for op in RedOp::ALL {
                    if nccl.is_at_least(op.since().0, op.since().1) {
                        cases.push(CollectiveCheck { collective, dtype: *dtype, op, size_bytes, root });
                    }
                }
            }
        }
    }
    if worker.plan.is_brief {
        // A few of each kind, others in each round.
        let turn = worker.round as usize;
        cases = cases
            .into_iter()
            .enumerate()
            .filter(|(k, _)| (k + turn).is_multiple_of(7))
            .map(|(_, case)| case)
            .collect();
    }
    let done = all(worker, comm, &cases, "NCCL's own choice")?;
    worker.comm = Some(done);
    Ok(())
}

/// Sums and maxima of all types, and copies, with the algorithm and protocol that the environment forces: on all_reduce, or on
/// everything that is not sent point to point.
pub(super) fn forced(worker: &mut Worker<'_>, way: &str) -> Result<(), LibraryError> {
    let Some(comm) = worker.comm.take() else { return Ok(()) };
    let types = [DataType::F32, DataType::Bf16, DataType::F16, DataType::F64, DataType::I64, DataType::I8];
    let collectives: &[Collective] =
        if way.starts_with("allreduce:") { &[Collective::AllReduce] } else { &IN_RINGS };
    let mut cases = Vec::new();
    for (k, size_bytes) in SIZES.into_iter().enumerate() {
        let root = k % worker.member.n_ranks;
        for collective in collectives.iter().copied() {
            if !collective.reduces() {
                cases.push(CollectiveCheck {
                    collective,
                    dtype: DataType::U8,
                    op: RedOp::Sum,
                    size_bytes,
                    root,
                });
                continue;
            }
            for dtype in types {
                for op in [RedOp::Sum, RedOp::Max] {
                    cases.push(CollectiveCheck { collective, dtype, op, size_bytes, root });
                }
            }
        }
    }
    let done = all(worker, comm, &cases, way)?;
    worker.comm = Some(done);
    Ok(())
}

fn all(
    worker: &mut Worker<'_>,
    mut comm: CommHandle,
    cases: &[CollectiveCheck],
    way: &str,
) -> Result<CommHandle, LibraryError> {
    let n = worker.member.n_ranks;
    // The largest buffer is a part from each rank.
    let most = cases.iter().map(|case| case.size_bytes).max().unwrap_or(16) * n;
    let (send, recv) = (worker.device.alloc(most)?, worker.device.alloc(most)?);
    let mut own: Option<(u64, String, Vec<u64>)> = None;
    let mut first = u64::MAX;
    for (number, case) in cases.iter().enumerate() {
        let wrong = one(worker, &mut comm, case, (&send, &recv), number as u64, way)?;
        if let Some(wrong) = wrong {
            first = first.min(number as u64);
            own = Some(match own {
                None => wrong,
                Some((count, text, seen)) => (count + wrong.0, text, seen),
            });
        }
        worker.outcome.coverage.collectives += 1;
    }
    let mut signs: Vec<Sign> = worker.share(Check::Collectives, own)?.into_iter().flatten().collect();
    if !signs.is_empty() {
        let mut trial = links::trial(worker)?;
        by_nccl(worker, &mut comm, (&send, &recv), &mut trial)?;
        // Copies between pairs do not show it: NCCL's own way of it may.
        if of_trial(&trial).is_empty() {
            let first = worker.member.exchange_words(&[first])?.into_iter().flatten().min();
            let case = first.and_then(|first| cases.get(usize::try_from(first).ok()?));
            if let Some(case) = case {
                let text = by_channels(worker, &mut comm, case, (&send, &recv))?;
                for sign in &mut signs {
                    sign.text.push_str(&text);
                }
            }
        }
        worker.blame_trial(&trial, signs);
    }
    Ok(comm)
}

/// Tries a case again with fewer channels: with one more of them than is right begins the channel that is wrong. In words, the
/// same in all ranks.
fn by_channels(
    worker: &mut Worker<'_>,
    comm: &mut CommHandle,
    case: &CollectiveCheck,
    buffers: (&Buffer, &Buffer),
) -> Result<String, LibraryError> {
    let (nccl, member) = (comm.nccl(), worker.member);
    // Large enough for all channels.
    let case = CollectiveCheck {
        size_bytes: case.size_bytes.max(buffers.0.size_bytes() / worker.member.n_ranks),
        ..*case
    };
    let mut is_wrong = |comm: &mut CommHandle| {
        for turn in 0..N_TRIALS {
            let wrong = one(worker, comm, &case, buffers, 600_000 + turn, "")?;
            let count = wrong.map_or(0, |(count, ..)| count);
            if member.exchange_words(&[count])?.iter().flatten().any(|count| *count > 0) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    if !is_wrong(comm)? {
        return Ok("; it did not recur".to_owned());
    }
    let mut with = |n: i32| -> Result<bool, LibraryError> {
        let mut comm = member.communicator(nccl, Wish { max_channels: Some(n), ..Wish::default() })?;
        is_wrong(&mut comm)
    };
    if !nccl.takes(Wish { max_channels: Some(1), ..Wish::default() }) {
        return Ok("; it recurs".to_owned());
    }
    if with(1)? {
        return Ok("; it recurs, with a single channel too".to_owned());
    }
    // The limit itself may change what is sent.
    if !with(MOST_CHANNELS)? {
        return Ok("; it recurs, and not where the number of channels is asked for".to_owned());
    }
    let (mut right, mut wrong) = (1, MOST_CHANNELS);
    while right + 1 < wrong {
        let middle = right.midpoint(wrong);
        if with(middle)? {
            wrong = middle;
        } else {
            right = middle;
        }
    }
    // One that comes and goes would end the search anywhere.
    if with(right)? || !with(wrong)? {
        return Ok("; it recurs, and not each time".to_owned());
    }
    Ok(format!("; it recurs, with {right} channels it is right and with {wrong} wrong: channel {right}"))
}

/// As many channels as NCCL may have (MAXCHANNELS).
const MOST_CHANNELS: i32 = 64;

/// Tries every ordered pair by sending through NCCL, whose kernels store otherwise than the copy engines do.
fn by_nccl(
    worker: &mut Worker<'_>,
    comm: &mut CommHandle,
    (send, recv): (&Buffer, &Buffer),
    trial: &mut Trial,
) -> Result<(), LibraryError> {
    let (rank, n_ranks) = (worker.member.rank, worker.member.n_ranks);
    let n = send.size_bytes().min(TRIAL_BYTES);
    for turn in 0..N_TRIALS {
        for (from, to) in (0..n_ranks).flat_map(|a| (0..n_ranks).map(move |b| (a, b))).filter(|(a, b)| a != b)
        {
            let plan = values::ValuePlan::copy(DataType::U8, worker.seed(500_000 + turn));
            let table = worker.kernels.table(worker.device, &worker.stream, &plan)?;
            worker.kernels.reset(&worker.stream)?;
            let mut wrong = 0;
            if rank == from {
                worker.kernels.fill(&worker.stream, (&plan, &table), (send.address(), n), rank, 0)?;
                worker.spoil(Spot::Sent, send.address(), n)?;
                comm.send(send.address(), n, DataType::U8, to, &worker.stream)?;
            } else if rank == to {
                comm.recv(recv.address(), n, DataType::U8, from, &worker.stream)?;
            }
            worker.member.wait(&worker.stream, comm, worker.plan.timeout)?;
            if rank == to {
                worker.spoil(Spot::Received(Some(from)), recv.address(), n)?;
                worker.kernels.compare(
                    &worker.stream,
                    (&plan, &table),
                    (recv.address(), n),
                    Some(from),
                    0,
                )?;
                wrong = worker.kernels.differences(&worker.stream)?.count;
            }
            let seen = worker.member.exchange_words(&[wrong])?;
            if seen.iter().flatten().any(|count| *count > 0) {
                trial.pairs.insert((from, to));
            }
        }
        if !trial.pairs.is_empty() {
            break;
        }
    }
    Ok(())
}

const TRIAL_BYTES: usize = 1 << 20;
const N_TRIALS: u64 = 4;

/// Runs one case; what is wrong with this rank's result, or with what it sent.
fn one(
    worker: &mut Worker<'_>,
    comm: &mut CommHandle,
    case: &CollectiveCheck,
    (send, recv): (&Buffer, &Buffer),
    number: u64,
    way: &str,
) -> Result<Option<(u64, String, Vec<u64>)>, LibraryError> {
    let CollectiveCheck { collective, dtype, op, size_bytes, root } = *case;
    let (rank, n_ranks) = (worker.member.rank, worker.member.n_ranks);
    let seed = worker.seed(1_000 + number);
    let plan = if collective.reduces() {
        // No exact values for so many ranks in so few bits.
        let Some(plan) = values::ValuePlan::reduce(dtype, op, n_ranks, seed) else { return Ok(None) };
        plan
    } else {
        values::ValuePlan::copy(dtype, seed)
    };
    let whole = if matches!(
        collective,
        Collective::AllReduce | Collective::Broadcast | Collective::Reduce | Collective::SendRecv
    ) {
        size_bytes
    } else {
        size_bytes * n_ranks
    };
    let counts = collective.counts(whole, dtype, n_ranks);
    let table = worker.kernels.table(worker.device, &worker.stream, &plan)?;
    let values = (&plan, &table);
    worker.kernels.reset(&worker.stream)?;
    worker.kernels.fill(&worker.stream, values, (send.address(), counts.send), rank, 0)?;
    worker.stream.set(recv.address(), 0xA5, counts.recv * dtype.size())?;
    worker.spoil(Spot::Sent, send.address(), counts.send * dtype.size())?;
    worker.stream.wait()?;
    let number_of_op =
        if collective.reduces() { comm.op(op, dtype, values::scalar(dtype, rank))? } else { 0 };
    let call = CollectiveCall { collective, n: counts.param, dtype, op: number_of_op, root, rank, n_ranks };
    call.queue(comm, send.address(), recv.address(), &worker.stream)?;
    worker.member.wait(&worker.stream, comm, worker.plan.timeout)?;
    comm.forget(number_of_op);
    let pieces = expected(collective, counts, (rank, n_ranks, root));
    if let Some(first) = pieces.first() {
        let at = recv.address() + (first.at * dtype.size()) as u64;
        worker.spoil(Spot::Received(None), at, first.n * dtype.size())?;
    }
    let compare = |worker: &Worker<'_>, piece: &BufferPiece| {
        let at = recv.address() + (piece.at * dtype.size()) as u64;
        worker.kernels.compare(&worker.stream, values, (at, piece.n), piece.of, piece.base)
    };
    for piece in &pieces {
        compare(worker, piece)?;
        worker.outcome.coverage.elements += piece.n as u64;
    }
    let found = worker.kernels.differences(&worker.stream)?;
    if found.count == 0 {
        return Ok(None);
    }
    // What came from whom, where it is a copy.
    let mut senders = Vec::new();
    for piece in &pieces {
        worker.kernels.reset(&worker.stream)?;
        compare(worker, piece)?;
        if worker.kernels.differences(&worker.stream)?.count > 0 {
            senders.extend(piece.of.map(|rank| rank.to_string()));
        }
    }
    let senders =
        if senders.is_empty() { String::new() } else { format!(", sent by rank {}", senders.join(", ")) };
    let operation = if collective.reduces() { format!(" {}", op.name()) } else { String::new() };
    let what = format!(
        "{} of {}{operation}, {} elements{senders}, {way}",
        collective.name(),
        dtype.name(),
        counts.param
    );
    Ok(Some(words(&what, "element", &found)))
}
