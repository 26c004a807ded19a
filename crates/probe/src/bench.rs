//! `bench`: what collectives reach on the GPUs at hand, what they should reach, and why they do not.

pub mod baseline;
pub mod html;
pub mod hunt;
pub mod judge;
mod measure;
pub(crate) use self::measure::{BufferPiece, expected};
pub mod pairs;
pub mod readback;
pub mod table;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::collective::Collective;
use crate::facts::{Gpu, Sampler};
use crate::sys::{DataType, Driver, LibraryError, Nccl, RedOp};
use crate::team::{self, TeamMember};
use crate::world::Wire;

/// Name of the format.
pub const SCHEMA: &str = "ringleader.bench.v1";

/// What is to be measured, and how. The defaults of the numbers are nccl-tests' own.
#[derive(Clone, Debug)]
pub struct BenchPlan {
    /// Which collectives.
    pub collectives: Vec<Collective>,
    /// Sizes, bytes, rising.
    pub sizes: Vec<usize>,
    /// Type of the elements.
    pub dtype: DataType,
    /// The reduction.
    pub op: RedOp,
    /// The root, where there is one.
    pub root: usize,
    /// Calls before the first measurement, of each size.
    pub n_warmup: usize,
    /// Calls of a measurement.
    pub n_iterations: usize,
    /// Runs whose result is compared, element by element, after each measurement.
    pub n_checks: usize,
    /// Launches of a graph of all calls of a measurement; 0 measures without graphs.
    pub n_graphs: usize,
    /// Calls whose times are taken one by one, for percentiles; 0 takes none.
    pub n_latencies: usize,
    /// Measure in place, too.
    pub in_place: bool,
    /// Measure each pair of GPUs, or the pairs that a search picks.
    pub pairs: bool,
    /// Longest wait for one measurement.
    pub timeout: Duration,
}

/// Sizes from `least` to `most`, each `factor` times the one before, or `step` bytes more.
pub fn sizes(least: usize, most: usize, factor: usize, step: Option<usize>) -> Vec<usize> {
    let next = |size: &usize| {
        let next =
            step.map_or_else(|| size.checked_mul(factor.max(2)), |step| size.checked_add(step.max(1)))?;
        (next <= most).then_some(next)
    };
    std::iter::successors(Some(least.max(1)).filter(|least| *least <= most), next).take(MOST_SIZES).collect()
}

/// More sizes than this are a typing error.
const MOST_SIZES: usize = 4096;

/// What was measured, and what it means.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// `ringleader.bench.v1`.
    pub schema: String,
    /// Ranks, a GPU each.
    pub n_ranks: usize,
    /// Processes.
    pub n_processes: usize,
    /// NCCL's version and the file it was loaded from.
    pub nccl: (String, String),
    /// The newest CUDA of the driver, as 13000.
    pub cuda: i32,
    /// Numbers of the measurement.
    pub method: Method,
    /// GPUs, by rank.
    pub gpus: Vec<Gpu>,
    /// NCCL's variables that are set.
    pub settings: Vec<(String, String)>,
    /// Measurements.
    pub rows: Vec<Row>,
    /// What each collective reached against what it should.
    pub verdicts: Vec<judge::CollectiveVerdict>,
    /// Pairs of GPUs, where they were measured.
    pub pairs: Vec<pairs::Pair>,
    /// How NCCL connected the ranks, by its log.
    pub connections: Vec<readback::Connection>,
    /// What differs from the baseline, if one was given.
    pub changes: Vec<baseline::Change>,
    /// What could not be done, and why.
    pub notes: Vec<String>,
}

/// Numbers of the measurement.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Method {
    /// Type of the elements.
    pub dtype: String,
    /// Calls before the first measurement.
    pub warmup: usize,
    /// Calls of a measurement.
    pub iterations: usize,
    /// Runs whose result was compared.
    pub checks: usize,
    /// Launches of a graph; 0 without.
    pub graphs: usize,
}

/// One size of one collective.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// nccl-tests' name of the collective.
    pub collective: String,
    /// The reduction; none for copies.
    pub op: Option<String>,
    /// The root; none where there is none.
    pub root: Option<usize>,
    /// Size as nccl-tests counts it, bytes.
    pub size_bytes: u64,
    /// Count of the call, elements.
    pub count: u64,
    /// Into another buffer.
    pub out_of_place: Timing,
    /// Into the same buffer.
    pub in_place: Option<Timing>,
    /// Algorithm, protocol and channels that NCCL chose, as its log says.
    pub way: Option<String>,
}

/// What one measurement gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timing {
    /// Mean time of a call over all ranks, µs.
    pub time_us: f64,
    /// Algorithm bandwidth, GB/s.
    pub alg_gb_s: f64,
    /// Bus bandwidth, GB/s.
    pub bus_gb_s: f64,
    /// Mean time of the fastest rank, µs.
    pub fastest_us: f64,
    /// Mean time of the slowest rank, µs.
    pub slowest_us: f64,
    /// The slowest rank.
    pub slowest_rank: usize,
    /// Wrong elements over all ranks; none where nothing was compared.
    pub wrong: Option<u64>,
    /// Times of single calls on the GPU's clock, the slowest rank of each: half of the calls were faster, 90 and 99 in a
    /// hundred, and the longest; µs.
    pub percentiles_us: Option<[f64; 4]>,
}

/// Where NCCL's environment matters: variables of this process that begin with its name.
pub fn settings() -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> =
        std::env::vars().filter(|(name, _)| name.starts_with("NCCL_")).collect();
    all.sort();
    all
}

/// Who measures: this process's GPUs, and how it reaches the others.
pub struct Crew {
    /// The driver.
    pub driver: Driver,
    /// NCCL and the file it is from.
    pub nccl: (Nccl, String),
    /// The other processes.
    pub wire: Wire,
    /// Rank of this process's first GPU, and ranks in all.
    pub ranks: (usize, usize),
    /// Processes.
    pub n_processes: usize,
    /// This process's GPUs.
    pub devices: Vec<usize>,
}

/// Measures everything. Every process gets the report; the one of rank 0 prints it. `progress` is called with each row.
///
/// # Errors
/// If a GPU, NCCL or another rank fails.
pub fn run(
    crew: Crew,
    plan: &BenchPlan,
    ways: &readback::Ways,
    progress: &(impl Fn(&Row) + Sync),
) -> Result<Report, LibraryError> {
    let Crew { driver, nccl: (nccl, path), wire, ranks, n_processes, devices } = crew;
    let meter = crate::facts::Meter::new();
    let mut notes = Vec::new();
    if !meter.is_there() {
        notes.push("NVML cannot be opened: links, clocks and other processes are unknown".to_owned());
    }
    let own: Vec<Gpu> = devices
        .iter()
        .enumerate()
        .map(|(n, device)| meter.gpu(driver, *device, ranks.0 + n))
        .collect::<Result<_, _>>()?;
    drop(meter);
    let own = &own;
    let tell = |row: &Row, rank: usize| {
        if rank == 0 {
            progress(row);
        }
    };
    let mut results = team::run(wire, ranks, &devices, |member| {
        let own = own.get(member.rank - ranks.0).cloned().unwrap_or_default();
        let known = (own, ways.connections.as_slice());
        measure::rank(&member, driver, nccl, plan, known, &|row| tell(row, member.rank))
    })?;
    let measured = results.swap_remove(0);
    let mut report = Report {
        schema: SCHEMA.to_owned(),
        n_ranks: ranks.1,
        n_processes,
        nccl: (nccl.version_text(), path),
        cuda: driver.version(),
        method: Method {
            dtype: plan.dtype.name().to_owned(),
            warmup: plan.n_warmup,
            iterations: plan.n_iterations,
            checks: plan.n_checks,
            graphs: plan.n_graphs,
        },
        gpus: measured.gpus,
        settings: settings(),
        rows: measured.rows,
        verdicts: Vec::new(),
        pairs: measured.pairs,
        connections: measured.connections,
        changes: Vec::new(),
        notes: notes.into_iter().chain(measured.notes).chain(ways.notes.iter().cloned()).collect(),
    };
    for row in &mut report.rows {
        row.way = ways.of(&row.collective, row.size_bytes);
    }
    report.verdicts = judge::judge(&report);
    Ok(report)
}

/// Facts of all ranks, after the sampler of each process has seen its GPUs at work.
pub(crate) fn share_facts(
    member: &TeamMember<'_>,
    sampler: Option<Sampler>,
    mut own: Gpu,
) -> Result<Vec<Gpu>, LibraryError> {
    if let Some(sampler) = sampler {
        sampler.finish(std::slice::from_mut(&mut own));
    }
    let bytes = serde_json::to_vec(&own).map_err(|error| LibraryError::World(error.to_string()))?;
    let all = member.exchange(bytes)?;
    all.iter()
        .map(|one| serde_json::from_slice(one).map_err(|error| LibraryError::World(error.to_string())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_double_or_step() {
        assert_eq!(sizes(8, 64, 2, None), [8, 16, 32, 64]);
        assert_eq!(sizes(8, 100, 3, None), [8, 24, 72]);
        assert_eq!(sizes(100, 400, 2, Some(150)), [100, 250, 400]);
        assert_eq!(sizes(8, 4, 2, None), Vec::<usize>::new());
        assert_eq!(sizes(0, 2, 0, None), [1, 2]);
    }
}
