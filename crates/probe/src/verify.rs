//! `verify`: GPUs and links that compute, keep or carry wrong values and say nothing.
//!
//! Every check has one right answer that is known beforehand or shared by all GPUs, and compares every bit. A wrong GPU does
//! not judge itself alone: digests are compared on the host, and a suspicion is tried again before it is stated.

mod collectives;
pub mod inject;
mod links;
mod memory;
pub mod place;
mod products;
mod rank;
pub mod table;
mod worker;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::inject::{Fault, Random};
use self::place::FaultSite;
use crate::facts::{Errors, Gpu, Meter, Sampler};
use crate::sys::{Blas, Driver, LibraryError, Nccl};
use crate::team;
use crate::world::Wire;

/// Name of the format.
pub const SCHEMA: &str = "ringleader.verify.v1";
/// Memory left to others: what contexts, NCCL and cuBLAS take while the test runs.
pub const MARGIN_BYTES: usize = 2 << 30;

/// A kind of check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// Patterns over free memory.
    Memory,
    /// Matrix products and arithmetic, bit for bit.
    Products,
    /// Copies between GPUs, and to the host and back.
    Links,
    /// Collectives with known answers.
    Collectives,
}

impl Check {
    /// All.
    pub const ALL: [Self; 4] = [Self::Memory, Self::Products, Self::Links, Self::Collectives];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Products => "products",
            Self::Links => "links",
            Self::Collectives => "collectives",
        }
    }
}

/// What is to be checked.
#[derive(Clone, Debug)]
pub struct VerifyPlan {
    /// How long. Every check runs once even if that takes longer, unless it is stopped.
    pub duration: Duration,
    /// Which checks.
    pub checks: Vec<Check>,
    /// Memory left free, bytes.
    pub margin_bytes: usize,
    /// Least work that still checks everything: for tests of the checks themselves.
    pub is_brief: bool,
    /// A planted fault.
    pub inject: Option<Fault>,
    /// Changes all values.
    pub seed: u64,
    /// Longest wait for one collective.
    pub timeout: Duration,
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Coverage {
    /// Rounds of all checks that were completed.
    pub rounds: u64,
    /// Memory under test, bytes, of all GPUs together.
    pub memory_bytes: u64,
    /// Share of the free memory that was under test, percent; the least of all GPUs.
    pub memory_pct: f64,
    /// Bytes written and read by memory patterns.
    pub pattern_bytes: u64,
    /// Speed of a pattern pass, GB/s, the slowest GPU.
    pub pattern_gb_s: f64,
    /// Speed of a copy within a GPU, GB/s read and written, the slowest GPU.
    pub copy_gb_s: f64,
    /// Matrix products, over all GPUs.
    pub products: u64,
    /// Kinds of products that ran.
    pub product_kinds: Vec<String>,
    /// Multiplications and additions of products, 10^12.
    pub product_tflop: f64,
    /// Passes over arithmetic units outside of cuBLAS.
    pub unit_passes: u64,
    /// Ordered pairs of GPUs.
    pub pairs: u64,
    /// Bytes copied between GPUs, within them and to the host.
    pub link_bytes: u64,
    /// Slowest ordered pair, GB/s.
    pub slowest_pair_gb_s: Option<f64>,
    /// Collectives run and compared.
    pub collectives: u64,
    /// Elements that were compared.
    pub elements: u64,
    /// Algorithms and protocols that were forced, besides NCCL's own choice.
    pub ways: Vec<String>,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Where it is.
    pub place: FaultSite,
    /// Id of the cause.
    pub cause: String,
    /// Checks that saw it.
    pub checks: Vec<Check>,
    /// What was seen.
    pub signs: Vec<Sign>,
}

/// One wrong result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sign {
    /// The check.
    pub check: Check,
    /// The rank that saw it.
    pub rank: usize,
    /// What was wrong, with place and values.
    pub text: String,
    /// Wrong words or elements.
    pub count: u64,
    /// Multiprocessors that compared the first of them.
    pub multiprocessors: Vec<u64>,
}

/// What was checked and found.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// `ringleader.verify.v1`.
    pub schema: String,
    /// GPUs, by rank.
    pub gpus: Vec<Gpu>,
    /// NCCL's version and file; none where there is no NCCL or one GPU.
    pub nccl: Option<(String, String)>,
    /// cuBLAS's version; none where there is none.
    pub cublas: Option<String>,
    /// How long it took, seconds.
    pub seconds: f64,
    /// What was done.
    pub coverage: Coverage,
    /// What was found.
    pub findings: Vec<Finding>,
    /// Errors of memory that the GPUs counted before and after, by rank.
    pub errors: Vec<(Errors, Errors)>,
    /// It was stopped before every check had run once.
    pub is_cut: bool,
    /// The planted fault, if any.
    pub injected: Option<Fault>,
    /// What could not be done, and why.
    pub notes: Vec<String>,
}

/// The libraries and GPUs of a run.
pub struct Tools {
    /// The driver.
    pub driver: Driver,
    /// NCCL and its file.
    pub nccl: Option<(Nccl, String)>,
    /// cuBLAS.
    pub blas: Option<Blas>,
    /// GPUs, by their number among those visible.
    pub devices: Vec<usize>,
}

/// What a run reports while it works, and whether it should end.
pub struct Watcher<'a> {
    /// Called by rank 0 with the share of the time that is over and what it does.
    pub progress: &'a (dyn Fn(f64, &str) + Sync),
    /// Set from outside: end cleanly.
    pub stop: &'a AtomicBool,
}

/// Clears what changes the results of products, and keeps the driver from writing compiled kernels to disk.
///
/// Call it before the first thread is started: nothing may read the environment at the same time.
pub fn clean_environment() {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("CUBLAS_") || name == "NVIDIA_TF32_OVERRIDE" || name == "CUDA_LAUNCH_BLOCKING" {
            crate::sys::set_variable(&name, None);
        }
    }
    crate::sys::set_variable("CUDA_CACHE_DISABLE", Some("1"));
}

/// Facts of the GPUs, and why they may not be used: another process uses them.
///
/// # Errors
/// If the driver fails.
pub fn look(tools: &Tools) -> Result<(Vec<Gpu>, Vec<String>), LibraryError> {
    let meter = Meter::new();
    let mut gpus = Vec::new();
    let mut in_use = Vec::new();
    for (rank, device) in tools.devices.iter().enumerate() {
        let gpu = meter.gpu(tools.driver, *device, rank)?;
        let place = format!("GPU {device} ({})", gpu.bus);
        if !gpu.processes.is_empty() {
            let pids: Vec<String> = gpu.processes.iter().map(u32::to_string).collect();
            in_use.push(format!("{place} is used by process {}", pids.join(", ")));
        } else if gpu.busy_pct.is_some_and(|busy| busy >= 10) {
            in_use.push(format!("{place} is {} % busy", gpu.busy_pct.unwrap_or_default()));
        }
        gpus.push(gpu);
    }
    Ok((gpus, in_use))
}

/// Algorithms and protocols to force: what NCCL's own choice at the sizes of this test may leave out. Each is a pair of
/// NCCL_ALGO and NCCL_PROTO. LL128 needs stores of 128 bytes to arrive whole, which only NVLink promises here.
fn ways(nccl: Nccl, gpus: &[Gpu]) -> Vec<(&'static str, &'static str)> {
    let has_nvlink = gpus.iter().all(|gpu| gpu.nvlinks.is_some_and(|n| n > 0) && gpu.capability >= 70);
    let protocols: &[&str] = if has_nvlink { &["LL", "LL128", "Simple"] } else { &["LL", "Simple"] };
    // One algorithm for one function can be forced from 2.24 on; before, other functions would fail. Rings do all that is not
    // sent point to point.
    if !nccl.is_at_least(2, 24) {
        return Vec::new();
    }
    ["ring", "allreduce:tree"]
        .into_iter()
        .flat_map(|algorithm| protocols.iter().map(move |protocol| (algorithm, *protocol)))
        .collect()
}

/// Checks everything, for as long as was asked.
///
/// # Errors
/// If a GPU or a library fails outright.
pub fn run(tools: &Tools, plan: &VerifyPlan, watcher: &Watcher<'_>) -> Result<Report, LibraryError> {
    let start = Instant::now();
    let (mut gpus, _) = look(tools)?;
    let meter = Meter::new();
    let before: Vec<Errors> = gpus.iter().map(|gpu| meter.errors(&gpu.bus)).collect();
    let mut results = worker::WorkerResult::default();
    let deadline = start + plan.duration;
    let does_collectives =
        plan.checks.contains(&Check::Collectives) && tools.nccl.is_some() && tools.devices.len() > 1;
    let forced = match &tools.nccl {
        Some((nccl, _)) if does_collectives && !plan.is_brief => ways(*nccl, &gpus),
        _ => Vec::new(),
    };
    // Forced ways first: each needs a communicator of its own, and the variables are read when it is made. They may take a
    // third of the time.
    let until = start + plan.duration / 3;
    let set = |algorithm: Option<&str>, protocol: Option<&str>| {
        crate::sys::set_variable("NCCL_ALGO", algorithm);
        crate::sys::set_variable("NCCL_PROTO", protocol);
    };
    let own = ["NCCL_ALGO", "NCCL_PROTO"].map(|name| std::env::var(name).ok());
    for (n, (algorithm, protocol)) in forced.iter().enumerate() {
        if watcher.stop.load(Ordering::Relaxed) || Instant::now() > until {
            results.notes.push(format!(
                "{} of {} forced algorithms and protocols were skipped for lack of time",
                forced.len() - n,
                forced.len()
            ));
            break;
        }
        let way = format!("{algorithm} {protocol}");
        // No other thread of this program runs here.
        set(Some(algorithm), Some(protocol));
        match rank::forced(tools, plan, watcher, &gpus, &way) {
            Ok(one) => results.merge(one),
            // From 2.24 on NCCL refuses what it cannot do.
            Err(LibraryError::Nccl { code: 3 | 5, .. }) => {
                results.notes.push(format!("{way}: this NCCL does not support it here"));
            }
            Err(error) => {
                set(own[0].as_deref(), own[1].as_deref());
                return Err(error);
            }
        }
    }
    if !forced.is_empty() {
        set(own[0].as_deref(), own[1].as_deref());
    }
    let sampler = Sampler::start(gpus.iter().map(|gpu| gpu.bus.clone()).collect());
    results.merge(rank::all(tools, plan, watcher, &gpus, deadline)?);
    sampler.finish(&mut gpus);
    let after: Vec<Errors> = gpus.iter().map(|gpu| meter.errors(&gpu.bus)).collect();
    let mut notes = std::mem::take(&mut results.notes);
    notes.dedup();
    if !meter.is_there() {
        notes.push("NVML cannot be opened: error counters and other processes are unknown".to_owned());
    }
    for check in &plan.checks {
        if *check == Check::Collectives && !does_collectives {
            notes.push(match &tools.nccl {
                None => "collectives were not checked: there is no NCCL".to_owned(),
                Some(_) => "collectives and links were not checked: there is one GPU".to_owned(),
            });
        }
    }
    Ok(Report {
        schema: SCHEMA.to_owned(),
        gpus,
        nccl: tools.nccl.as_ref().map(|(nccl, path)| (nccl.version_text(), path.clone())),
        cublas: results.cublas.clone(),
        seconds: start.elapsed().as_secs_f64(),
        is_cut: results.coverage.rounds == 0,
        coverage: results.coverage.clone(),
        findings: worker::findings(results),
        errors: before.into_iter().zip(after).collect(),
        injected: plan.inject,
        notes,
    })
}

/// One planted fault, and whether it was found where it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// The fault.
    pub fault: Fault,
    /// Places that were found.
    pub found: Vec<FaultSite>,
    /// Checks that saw it.
    pub checks: Vec<Check>,
    /// Bits that were flipped.
    pub n_flipped: u64,
    /// Exactly that place was found.
    pub is_right: bool,
}

/// Plants `n` random faults, one after the other, and checks for each. A run without a fault comes first, and after every
/// ten: it must find nothing.
///
/// # Errors
/// If a GPU or a library fails outright.
pub fn prove(
    tools: &Tools,
    plan: &VerifyPlan,
    n: usize,
    watcher: &Watcher<'_>,
) -> Result<(Vec<Proof>, usize), LibraryError> {
    let (gpus, _) = look(tools)?;
    let plan = VerifyPlan { is_brief: true, ..plan.clone() };
    let results = team::run(Wire::Alone, (0, tools.devices.len()), &tools.devices, |member| {
        rank::prove(&member, tools, &plan, &gpus, n, watcher)
    })?;
    Ok(results.into_iter().next().unwrap_or_default())
}

/// The faults of a proof, the same in every rank.
fn faults(seed: u64, n: usize, n_gpus: usize) -> Vec<Fault> {
    let mut random = Random(seed);
    (0..n).map(|_| Fault::random(&mut random, n_gpus)).collect()
}
