//! One rank of a measurement. The order of work is nccl-tests': warm up all sizes; for each size one call, then all calls
//! back to back on the host's clock; then the check.

use std::time::Instant;

use crate::bench::readback::Connection;
use crate::bench::{BenchPlan, Row, Timing, pairs, share_facts};
use crate::collective::{Collective, CollectiveCall, Counts};
use crate::facts::{Gpu, Sampler};
use crate::kernels::Kernels;
use crate::sys::{Buffer, CommHandle, Device, Driver, LibraryError, Nccl, Stream, Wish};
use crate::team::TeamMember;
use crate::values;

/// Up to this size the times of single calls are taken as often as asked.
const LATENCY_BYTES: usize = 16 << 20;

/// From this size on the GPUs are looked at while they work.
const SAMPLED_BYTES: usize = 4 << 20;

/// What one rank returns. Rows are the same in all ranks.
pub(super) struct Measured {
    pub(super) gpus: Vec<Gpu>,
    pub(super) rows: Vec<Row>,
    pub(super) pairs: Vec<pairs::Pair>,
    pub(super) connections: Vec<Connection>,
    pub(super) notes: Vec<String>,
}

/// A rank with all that it needs.
struct BenchRank<'a> {
    member: &'a TeamMember<'a>,
    device: &'a Device,
    stream: Stream,
    comm: CommHandle,
    kernels: Option<Kernels>,
    send: Buffer,
    recv: Buffer,
    plan: &'a BenchPlan,
    /// The reduction's number in the communicator.
    op: i32,
}

pub(super) fn rank(
    member: &TeamMember<'_>,
    driver: Driver,
    nccl: Nccl,
    plan: &BenchPlan,
    (mut own, connections): (Gpu, &[Connection]),
    progress: &dyn Fn(&Row),
) -> Result<Measured, LibraryError> {
    let device = Device::open(driver, member.device)?;
    let stream = device.stream()?;
    let mut notes = Vec::new();
    let kernels = if plan.n_checks == 0 {
        None
    } else {
        match Kernels::new(&device) {
            Ok(kernels) => Some(kernels),
            Err(error) => {
                notes.push(format!("results are not compared: {error}"));
                None
            }
        }
    };
    let all_have_kernels = agree(member, plan.n_checks == 0 || kernels.is_some())?;
    let kernels = kernels.filter(|_| all_have_kernels);
    let comm = member.communicator(nccl, Wish { is_nvlink_centric: true, ..Wish::default() })?;
    let most = plan.sizes.iter().copied().max().unwrap_or(0);
    let buffer = || nccl.alloc(most)?.map_or_else(|| device.alloc(most), Ok);
    let (send, recv) = (buffer()?, buffer()?);
    let op = comm.op(plan.op, plan.dtype, values::scalar(plan.dtype, member.rank))?;
    own.reaches = reaches(member, driver, &own)?;
    let sampler = Sampler::start(vec![own.bus.clone()]);
    let mut rank = BenchRank { member, device: &device, stream, comm, kernels, send, recv, plan, op };
    rank.stream.set(rank.send.address(), 0, most)?;
    rank.stream.set(rank.recv.address(), 0, most)?;
    rank.stream.wait()?;
    let mut rows = Vec::new();
    for collective in &plan.collectives {
        if !collective.fits(member.n_ranks) {
            notes.push(format!("{} needs a power-of-two number of ranks: skipped", collective.name()));
            continue;
        }
        rank.warm_up(*collective)?;
        for size in &plan.sizes {
            sampler.rest(*size < SAMPLED_BYTES);
            let row = rank.row(*collective, *size)?;
            progress(&row);
            rows.push(row);
        }
    }
    rank.comm.forget(rank.op);
    let BenchRank { comm, send, recv, stream, .. } = rank;
    drop(comm);
    let gpus = share_facts(member, Some(sampler), own)?;
    let pairs = if plan.pairs && member.n_ranks > 1 {
        pairs::scan(member, nccl, &stream, (&send, &recv), &gpus, plan.timeout)?
    } else {
        Vec::new()
    };
    let connections = share_connections(member, connections)?;
    Ok(Measured { gpus, rows, pairs, connections, notes })
}

/// Whether it is so for all ranks.
fn agree(member: &TeamMember<'_>, own: bool) -> Result<bool, LibraryError> {
    Ok(member.exchange(vec![u8::from(own)])?.iter().all(|one| one.first() == Some(&1)))
}

/// What the logs of all processes say: each knows the connections of its own ranks.
fn share_connections(member: &TeamMember<'_>, own: &[Connection]) -> Result<Vec<Connection>, LibraryError> {
    let wrong = |error: serde_json::Error| LibraryError::World(error.to_string());
    let mut all: Vec<Connection> = Vec::new();
    for one in member.exchange(serde_json::to_vec(own).map_err(wrong)?)? {
        all.extend(serde_json::from_slice::<Vec<Connection>>(&one).map_err(wrong)?);
    }
    all.sort();
    all.dedup();
    Ok(all)
}

/// Ranks on this host whose memory this GPU reaches directly.
fn reaches(member: &TeamMember<'_>, driver: Driver, own: &Gpu) -> Result<Vec<usize>, LibraryError> {
    let name = format!("{}\n{}", own.host, own.bus);
    let all = member.exchange(name.into_bytes())?;
    let mut visible = Vec::new();
    for device in 0..driver.n_devices()? {
        visible.push((device, driver.bus(device)?));
    }
    let mut out = Vec::new();
    for (rank, name) in all.iter().enumerate() {
        let name = String::from_utf8_lossy(name);
        let Some((host, bus)) = name.split_once('\n') else { continue };
        if host == own.host
            && bus != own.bus
            && let Some((device, _)) = visible.iter().find(|(_, one)| one == bus)
            && driver.can_access_peer(own.device, *device)?
        {
            out.push(rank);
        }
    }
    Ok(out)
}

impl BenchRank<'_> {
    fn call(&self, collective: Collective, counts: Counts) -> CollectiveCall {
        CollectiveCall {
            collective,
            n: counts.param,
            dtype: self.plan.dtype,
            op: self.op,
            root: self.plan.root,
            rank: self.member.rank,
            n_ranks: self.member.n_ranks,
        }
    }

    /// Buffers of the n-th call: they move through memory, so that a small size does not live in the L2 cache.
    fn addresses(&self, collective: Collective, counts: Counts, n: usize, in_place: bool) -> (u64, u64) {
        let size = counts.size_bytes.max(1);
        let steps = (self.send.size_bytes() / size).max(1);
        let shift = (size * (n % steps)) as u64;
        let (send, recv) = (self.send.address() + shift, self.recv.address() + shift);
        if !in_place {
            return (send, recv);
        }
        let offset = (collective.in_place_offset(counts, self.member.rank) * self.plan.dtype.size()) as u64;
        match collective {
            Collective::ReduceScatter | Collective::Scatter => (recv, recv + offset),
            _ => (recv + offset, recv),
        }
    }

    fn queue(
        &self,
        collective: Collective,
        counts: Counts,
        n: usize,
        in_place: bool,
    ) -> Result<(), LibraryError> {
        let (from, to) = self.addresses(collective, counts, n, in_place);
        self.call(collective, counts).queue(&self.comm, from, to, &self.stream)
    }

    fn wait(&mut self) -> Result<(), LibraryError> {
        self.member.wait(&self.stream, &mut self.comm, self.plan.timeout)
    }

    fn warm_up(&mut self, collective: Collective) -> Result<(), LibraryError> {
        for size in &self.plan.sizes {
            let counts = collective.counts(*size, self.plan.dtype, self.member.n_ranks);
            for n in 0..self.plan.n_warmup {
                self.queue(collective, counts, n, false)?;
            }
            self.wait()?;
        }
        Ok(())
    }

    fn row(&mut self, collective: Collective, size: usize) -> Result<Row, LibraryError> {
        let counts = collective.counts(size, self.plan.dtype, self.member.n_ranks);
        let out_of_place = self.timing(collective, counts, false)?;
        let in_place = if self.plan.in_place { Some(self.timing(collective, counts, true)?) } else { None };
        Ok(Row {
            collective: collective.name().to_owned(),
            op: collective.reduces().then(|| self.plan.op.name().to_owned()),
            root: collective.has_root().then_some(self.plan.root),
            size_bytes: counts.size_bytes as u64,
            count: counts.param as u64,
            out_of_place,
            in_place,
            way: None,
        })
    }

    fn timing(
        &mut self,
        collective: Collective,
        counts: Counts,
        in_place: bool,
    ) -> Result<Timing, LibraryError> {
        let plan = self.plan;
        self.queue(collective, counts, 0, in_place)?;
        self.wait()?;
        let n_calls = plan.n_iterations.max(1);
        let seconds = if plan.n_graphs == 0 {
            self.member.line_up()?;
            let start = Instant::now();
            for n in 0..n_calls {
                self.queue(collective, counts, n, in_place)?;
            }
            self.wait()?;
            start.elapsed().as_secs_f64() / n_calls as f64
        } else {
            let graph = self
                .stream
                .graph(|| (0..n_calls).try_for_each(|n| self.queue(collective, counts, n, in_place)))?;
            // The first launch uploads it.
            graph.launch(&self.stream)?;
            self.wait()?;
            self.member.line_up()?;
            let start = Instant::now();
            for _ in 0..plan.n_graphs {
                graph.launch(&self.stream)?;
            }
            self.wait()?;
            start.elapsed().as_secs_f64() / (n_calls * plan.n_graphs) as f64
        };
        let percentiles = self.latencies(collective, counts, in_place)?;
        let wrong = self.check(collective, counts, in_place)?;
        let own = [seconds, wrong.map_or(-1.0, |wrong| wrong as f64)];
        let all = self.member.exchange_numbers(&own)?;
        let times: Vec<f64> = all.iter().filter_map(|one| one.first().copied()).collect();
        let mean = times.iter().sum::<f64>() / times.len().max(1) as f64;
        let slowest = times.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(rank, _)| rank);
        let counted = collective.counted_bytes(counts, plan.dtype, self.member.n_ranks) as f64;
        let alg_gb_s = if mean > 0.0 { counted / mean / 1e9 } else { 0.0 };
        let is_compared = all.iter().all(|one| one.get(1).is_some_and(|wrong| *wrong >= 0.0));
        Ok(Timing {
            time_us: mean * 1e6,
            alg_gb_s,
            bus_gb_s: alg_gb_s * collective.bus_factor(self.member.n_ranks),
            fastest_us: times.iter().copied().fold(f64::INFINITY, f64::min) * 1e6,
            slowest_us: times.iter().copied().fold(0.0, f64::max) * 1e6,
            slowest_rank: slowest,
            wrong: is_compared.then(|| all.iter().filter_map(|one| one.get(1)).sum::<f64>() as u64),
            percentiles_us: percentiles,
        })
    }

    /// Times of single calls, between events on the GPU. The events cost about a microsecond, so they are no part of the
    /// measurement of the mean.
    fn latencies(
        &mut self,
        collective: Collective,
        counts: Counts,
        in_place: bool,
    ) -> Result<Option<[f64; 4]>, LibraryError> {
        // Percentiles are of calls that latency decides; of the others as many as were measured anyway are enough.
        let most = if counts.size_bytes > LATENCY_BYTES { self.plan.n_iterations } else { usize::MAX };
        let n = self.plan.n_latencies.min(most);
        if n == 0 {
            return Ok(None);
        }
        let events = (0..=n).map(|_| self.device.event()).collect::<Result<Vec<_>, _>>()?;
        self.member.line_up()?;
        if let Some(first) = events.first() {
            self.stream.record(first)?;
        }
        for (n, event) in events.iter().skip(1).enumerate() {
            self.queue(collective, counts, n, in_place)?;
            self.stream.record(event)?;
        }
        self.wait()?;
        let own: Vec<f64> = events
            .windows(2)
            .map(|two| Ok(two[1].since(&two[0])?.as_secs_f64() * 1e6))
            .collect::<Result<_, LibraryError>>()?;
        let all = self.member.exchange_numbers(&own)?;
        let mut slowest: Vec<f64> = (0..n)
            .map(|call| all.iter().filter_map(|one| one.get(call).copied()).fold(0.0, f64::max))
            .collect();
        slowest.sort_by(f64::total_cmp);
        Ok(Some([
            percentile(&slowest, 50),
            percentile(&slowest, 90),
            percentile(&slowest, 99),
            percentile(&slowest, 100),
        ]))
    }

    /// Runs with values whose result is known, and counts the wrong elements of this rank.
    fn check(
        &mut self,
        collective: Collective,
        counts: Counts,
        in_place: bool,
    ) -> Result<Option<u64>, LibraryError> {
        if self.kernels.is_none() || self.plan.n_checks == 0 || in_place && !collective.is_right_in_place() {
            return Ok(None);
        }
        let mut wrong = 0;
        for run in 0..self.plan.n_checks {
            let seed = 0x5EED + 97 * run as u64 + counts.size_bytes as u64;
            let dtype = self.plan.dtype;
            let plan = if collective.reduces() {
                let Some(plan) = values::ValuePlan::reduce(dtype, self.plan.op, self.member.n_ranks, seed)
                else {
                    return Ok(None);
                };
                plan
            } else {
                values::ValuePlan::copy(dtype, seed)
            };
            wrong += self.check_once(collective, counts, &plan, in_place)?;
        }
        Ok(Some(wrong))
    }

    fn check_once(
        &mut self,
        collective: Collective,
        counts: Counts,
        plan: &values::ValuePlan,
        in_place: bool,
    ) -> Result<u64, LibraryError> {
        let Some(kernels) = &self.kernels else { return Ok(0) };
        let (rank, n_ranks, root) = (self.member.rank, self.member.n_ranks, self.plan.root);
        let table = kernels.table(self.device, &self.stream, plan)?;
        kernels.reset(&self.stream)?;
        let (from, to) = self.addresses(collective, counts, 0, in_place);
        if !in_place {
            self.stream.set(to, 0xA5, counts.recv * self.plan.dtype.size())?;
        }
        kernels.fill(&self.stream, (plan, &table), (from, counts.send), rank, 0)?;
        // All ranks have filled before one of them sends.
        self.stream.wait()?;
        self.member.line_up()?;
        self.queue(collective, counts, 0, in_place)?;
        self.wait()?;
        let Some(kernels) = &self.kernels else { return Ok(0) };
        for piece in expected(collective, counts, (rank, n_ranks, root)) {
            let at = to + (piece.at * self.plan.dtype.size()) as u64;
            kernels.compare(&self.stream, (plan, &table), (at, piece.n), piece.of, piece.base)?;
        }
        Ok(kernels.differences(&self.stream)?.count)
    }
}

/// A piece of the received buffer and what it should hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferPiece {
    /// Where it begins, elements.
    pub(crate) at: usize,
    /// Its length, elements.
    pub(crate) n: usize,
    /// Whose values; none: the reduction over all.
    pub(crate) of: Option<usize>,
    /// Number of its first element in the sender's buffer.
    pub(crate) base: u64,
}

/// What the received buffer of a rank should hold.
pub(crate) fn expected(
    collective: Collective,
    counts: Counts,
    (rank, n_ranks, root): (usize, usize, usize),
) -> Vec<BufferPiece> {
    let n = counts.param;
    let each = |base: fn(usize, usize) -> usize| {
        (0..n_ranks)
            .map(|of| BufferPiece { at: of * n, n, of: Some(of), base: base(rank, n) as u64 })
            .collect::<Vec<_>>()
    };
    match collective {
        Collective::AllReduce => vec![BufferPiece { at: 0, n, of: None, base: 0 }],
        Collective::Reduce if rank == root => vec![BufferPiece { at: 0, n, of: None, base: 0 }],
        Collective::ReduceScatter => vec![BufferPiece { at: 0, n, of: None, base: (rank * n) as u64 }],
        Collective::Broadcast => vec![BufferPiece { at: 0, n, of: Some(root), base: 0 }],
        Collective::AllGather | Collective::HyperCube => each(|_, _| 0),
        Collective::Gather if rank == root => each(|_, _| 0),
        Collective::AllToAll => each(|rank, n| rank * n),
        Collective::Scatter => vec![BufferPiece { at: 0, n, of: Some(root), base: (rank * n) as u64 }],
        Collective::SendRecv => {
            vec![BufferPiece { at: 0, n, of: Some((rank + n_ranks - 1) % n_ranks), base: 0 }]
        }
        Collective::AllToAllV => {
            let part = |from: usize, to: usize| counts.uneven((to + n_ranks - from) % n_ranks, n_ranks);
            let mut at = 0;
            (0..n_ranks)
                .map(|from| {
                    let base = (0..rank).map(|before| part(from, before)).sum::<usize>() as u64;
                    let piece = BufferPiece { at, n: part(from, rank), of: Some(from), base };
                    at += piece.n;
                    piece
                })
                .filter(|piece| piece.n > 0)
                .collect()
        }
        Collective::Reduce | Collective::Gather => Vec::new(),
    }
}

/// The smallest value that `share` in a hundred do not exceed.
pub(crate) fn percentile(sorted: &[f64], share: usize) -> f64 {
    let rank = (sorted.len() * share).div_ceil(100).clamp(1, sorted.len().max(1));
    sorted.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::DataType;

    #[test]
    #[expect(clippy::float_cmp, reason = "each is one of the values")]
    fn percentiles_are_of_the_nearest_rank() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!([50, 90, 99, 100].map(|share| percentile(&values, share)), [100.0, 180.0, 198.0, 200.0]);
        assert_eq!(percentile(&[7.0], 50), 7.0);
        assert_eq!(percentile(&[], 50), 0.0);
    }

    #[test]
    fn every_received_element_is_expected_once() {
        for collective in Collective::ALL {
            for n_ranks in [2, 4] {
                let counts = collective.counts(4096, DataType::F32, n_ranks);
                for rank in 0..n_ranks {
                    let mut seen = vec![0; counts.recv];
                    for piece in expected(collective, counts, (rank, n_ranks, 1)) {
                        seen[piece.at..piece.at + piece.n].iter_mut().for_each(|n| *n += 1);
                    }
                    let is_root = matches!(collective, Collective::Reduce | Collective::Gather);
                    let want = usize::from(!is_root || rank == 1);
                    assert!(seen.iter().all(|n| *n == want), "{collective:?} {rank}");
                }
            }
        }
    }
}
