//! Bandwidths that were measured on the machine of the timelines: of `ringleader bench`, or of nccl-tests.

use std::collections::BTreeSet;
use std::path::Path;

use ringleader_model::{BenchRun, Fact, OpKind};
use ringleader_probe::bench::{self, Report};
use ringleader_trace::expected::Baseline;

use crate::failure::Failure;
use crate::gather;

/// Reads it.
pub(super) fn load(path: &Path) -> Result<Baseline, Failure> {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let failed = |why: String| Failure::Measurement { path: path.to_owned(), why };
    let bytes =
        std::fs::read(path).map_err(|source| Failure::NoSuchFile { path: path.to_owned(), source })?;
    let text = String::from_utf8_lossy(&bytes);
    let baseline = if text.contains(bench::SCHEMA) {
        of_report(name, &bench::baseline::parse(&text).map_err(failed)?)
    } else {
        let case = gather::gather(&[path.to_owned()], true)?;
        let runs: Vec<&BenchRun> = case
            .observations
            .iter()
            .filter_map(|o| match &o.fact {
                Fact::Bench(run) => Some(&**run),
                _ => None,
            })
            .collect();
        of_runs(name, &runs)
    };
    if baseline.points.is_empty() {
        return Err(failed("it holds no bandwidth of a collective".to_owned()));
    }
    Ok(baseline)
}

/// By nccl-tests' name, with or without its underlines.
fn kind(collective: &str) -> Option<OpKind> {
    let name = collective.replace('_', "");
    Some(match name.as_str() {
        "allreduce" => OpKind::AllReduce,
        "allgather" => OpKind::AllGather,
        "reducescatter" => OpKind::ReduceScatter,
        "alltoall" => OpKind::AllToAll,
        "broadcast" => OpKind::Broadcast,
        "reduce" => OpKind::Reduce,
        "sendrecv" => OpKind::Send,
        _ => return None,
    })
}

/// The name that all GPUs have, if it is one.
fn common<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: BTreeSet<&str> = names.collect();
    match (names.len(), names.first()) {
        (1, Some(name)) => (*name).to_owned(),
        _ => String::new(),
    }
}

fn of_report(name: String, report: &Report) -> Baseline {
    let hosts: BTreeSet<&str> = report.gpus.iter().map(|gpu| gpu.host.as_str()).collect();
    let points = report.rows.iter().filter_map(|row| {
        let in_place = row.in_place.map_or(0.0, |timing| timing.bus_gb_s);
        Some((kind(&row.collective)?, row.size_bytes, row.out_of_place.bus_gb_s.max(in_place)))
    });
    let ways = report
        .rows
        .iter()
        .filter_map(|row| Some((kind(&row.collective)?, row.size_bytes, row.way.clone()?)))
        .collect();
    Baseline {
        name,
        ways,
        device: common(report.gpus.iter().map(|gpu| gpu.name.as_str())),
        nccl: report.nccl.0.clone(),
        n_ranks: report.n_ranks as u32,
        n_nodes: hosts.len() as u32,
        points: points.collect(),
    }
}

/// Of runs with as many ranks as the largest has.
fn of_runs(name: String, runs: &[&BenchRun]) -> Baseline {
    let n_ranks = runs.iter().map(|run| run.devices.len()).max().unwrap_or(0);
    let mut baseline = Baseline { name, n_ranks: n_ranks as u32, ..Baseline::default() };
    for run in runs.iter().filter(|run| run.devices.len() == n_ranks) {
        baseline.device = common(run.devices.iter().map(|device| &*device.name));
        baseline.n_nodes = run.hosts().len() as u32;
        run.nccl_version.as_deref().unwrap_or_default().clone_into(&mut baseline.nccl);
        let Some(kind) = run.collective.as_deref().and_then(kind) else { continue };
        let figures = run.rows.iter().flat_map(|row| {
            let figures = [row.out_of_place, row.in_place].into_iter().flatten();
            figures.map(|figure| (row.size_bytes, figure.busbw_gbs))
        });
        baseline.points.extend(figures.map(|(size_bytes, gbs)| (kind, size_bytes, gbs)));
    }
    baseline
}
