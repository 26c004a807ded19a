//! Collectives whose answer is known: every operation and type that this NCCL has, at sizes around its switches.

use super::inject::Spot;
use super::place::Trial;
use super::worker::{Worker, words};
use super::{Check, Sign, links};
use crate::bench::expected;
use crate::collective::{Call, Collective};
use crate::sys::{Buffer, Comm, DataType, RedOp, Trouble};
use crate::values;

/// Bytes of a rank's part: odd, so that tails are there; around the switches of protocols; and large.
const SIZES: [usize; 4] = [4 * 1027, 1 << 16, (1 << 20) + 4096, 16 << 20];
const BRIEF_SIZES: [usize; 2] = [4 * 1027, 1 << 16];

/// One case.
#[derive(Clone, Copy)]
struct Case {
    collective: Collective,
    dtype: DataType,
    op: RedOp,
    size_bytes: usize,
    root: usize,
}

/// All operations and types.
pub(super) fn run(worker: &mut Worker<'_>) -> Result<(), Trouble> {
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
                cases.push(Case { collective, dtype: DataType::U8, op: RedOp::Sum, size_bytes, root });
                continue;
            }
            for dtype in &types {
                for op in RedOp::ALL {
                    if nccl.is_at_least(op.since().0, op.since().1) {
                        cases.push(Case { collective, dtype: *dtype, op, size_bytes, root });
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

/// Sums of all types with the algorithm and protocol that the environment forces on all_reduce.
pub(super) fn forced(worker: &mut Worker<'_>, way: &str) -> Result<(), Trouble> {
    let Some(comm) = worker.comm.take() else { return Ok(()) };
    let mut cases = Vec::new();
    for dtype in [DataType::F32, DataType::Bf16, DataType::F16, DataType::F64, DataType::I64, DataType::I8] {
        for size_bytes in SIZES {
            for op in [RedOp::Sum, RedOp::Max] {
                cases.push(Case { collective: Collective::AllReduce, dtype, op, size_bytes, root: 0 });
            }
        }
    }
    let done = all(worker, comm, &cases, way)?;
    worker.comm = Some(done);
    Ok(())
}

fn all(worker: &mut Worker<'_>, mut comm: Comm, cases: &[Case], way: &str) -> Result<Comm, Trouble> {
    let n = worker.member.n_ranks;
    // The largest buffer is a part from each rank.
    let most = cases.iter().map(|case| case.size_bytes).max().unwrap_or(16) * n;
    let (send, recv) = (worker.device.alloc(most)?, worker.device.alloc(most)?);
    let mut own: Option<(u64, String, Vec<u64>)> = None;
    for (number, case) in cases.iter().enumerate() {
        let wrong = one(worker, &mut comm, case, (&send, &recv), number as u64, way)?;
        if let Some(wrong) = wrong {
            own = Some(match own {
                None => wrong,
                Some((count, text, seen)) => (count + wrong.0, text, seen),
            });
        }
        worker.outcome.coverage.collectives += 1;
    }
    let signs: Vec<Sign> = worker.share(Check::Collectives, own)?.into_iter().flatten().collect();
    if !signs.is_empty() {
        let mut trial = links::trial(worker)?;
        by_nccl(worker, &mut comm, (&send, &recv), &mut trial)?;
        worker.blame_trial(&trial, signs);
    }
    Ok(comm)
}

/// Tries every ordered pair by sending through NCCL, whose kernels store otherwise than the copy engines do.
fn by_nccl(
    worker: &mut Worker<'_>,
    comm: &mut Comm,
    (send, recv): (&Buffer, &Buffer),
    trial: &mut Trial,
) -> Result<(), Trouble> {
    let (rank, n_ranks) = (worker.member.rank, worker.member.n_ranks);
    let n = send.size_bytes().min(TRIAL_BYTES);
    for turn in 0..N_TRIALS {
        for (from, to) in (0..n_ranks).flat_map(|a| (0..n_ranks).map(move |b| (a, b))).filter(|(a, b)| a != b)
        {
            let plan = values::Plan::copy(DataType::U8, worker.seed(500_000 + turn));
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
    comm: &mut Comm,
    case: &Case,
    (send, recv): (&Buffer, &Buffer),
    number: u64,
    way: &str,
) -> Result<Option<(u64, String, Vec<u64>)>, Trouble> {
    let Case { collective, dtype, op, size_bytes, root } = *case;
    let (rank, n_ranks) = (worker.member.rank, worker.member.n_ranks);
    let seed = worker.seed(1_000 + number);
    let plan = if collective.reduces() {
        // No exact values for so many ranks in so few bits.
        let Some(plan) = values::Plan::reduce(dtype, op, n_ranks, seed) else { return Ok(None) };
        plan
    } else {
        values::Plan::copy(dtype, seed)
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
    let call = Call { collective, n: counts.param, dtype, op: number_of_op, root, rank, n_ranks };
    call.queue(comm, send.address(), recv.address(), &worker.stream)?;
    worker.member.wait(&worker.stream, comm, worker.plan.timeout)?;
    comm.forget(number_of_op);
    let pieces = expected(collective, counts, (rank, n_ranks, root));
    if let Some(first) = pieces.first() {
        let at = recv.address() + (first.at * dtype.size()) as u64;
        worker.spoil(Spot::Received(None), at, first.n * dtype.size())?;
    }
    for piece in pieces {
        let at = recv.address() + (piece.at * dtype.size()) as u64;
        worker.kernels.compare(&worker.stream, values, (at, piece.n), piece.of, piece.base)?;
        worker.outcome.coverage.elements += piece.n as u64;
    }
    let found = worker.kernels.differences(&worker.stream)?;
    if found.count == 0 {
        return Ok(None);
    }
    let operation = if collective.reduces() { format!(" {}", op.name()) } else { String::new() };
    let what =
        format!("{} of {}{operation}, {} elements, {way}", collective.name(), dtype.name(), counts.param);
    Ok(Some(words(&what, "element", &found)))
}
