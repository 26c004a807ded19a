//! The report as text.

use std::fmt::Write as _;

use super::place::FaultSite;
use super::{Proof, Report};
use crate::facts::Gpu;

/// A place in words.
pub fn place(place: &FaultSite, gpus: &[Gpu]) -> String {
    let gpu = |rank: usize| match gpus.get(rank) {
        Some(gpu) => format!("GPU {} ({} {})", gpu.device, gpu.bus, gpu.uuid),
        None => format!("rank {rank}"),
    };
    match place {
        FaultSite::Gpu(rank) => gpu(*rank),
        FaultSite::Link(from, to) => format!("the path from {} to {}", gpu(*from), gpu(*to)),
        FaultSite::OneOf(ranks) => {
            let all: Vec<String> = ranks.iter().map(|rank| gpu(*rank)).collect();
            format!("one of {}, or their connection: the evidence does not show which", all.join(", "))
        }
    }
}

/// The report.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    let c = &report.coverage;
    for finding in &report.findings {
        let checks: Vec<&str> = finding.checks.iter().map(|check| check.name()).collect();
        let _ = writeln!(
            out,
            "WRONG VALUES: {}\n  {} · seen by {}",
            place(&finding.place, &report.gpus),
            finding.cause,
            checks.join(", ")
        );
        for sign in finding.signs.iter().take(4) {
            let _ = writeln!(out, "  rank {}: {}", sign.rank, sign.text);
        }
        if finding.signs.len() > 4 {
            let _ = writeln!(out, "  and {} more", finding.signs.len() - 4);
        }
    }
    if report.findings.is_empty() {
        let cut = if report.is_cut { ", stopped before every check had run once" } else { "" };
        let _ = writeln!(out, "{} GPUs, {:.1} s, no wrong value{cut}", report.gpus.len(), report.seconds);
    }
    let _ = writeln!(out, "checked, in {} rounds:", c.rounds);
    if c.pattern_bytes > 0 {
        let _ = writeln!(
            out,
            "  memory       {} under test ({:.0} % of what was free), {} written and read at {:.0} GB/s ({:.0} % of the GPU's copy)",
            bytes(c.memory_bytes),
            c.memory_pct,
            bytes(c.pattern_bytes),
            c.pattern_gb_s,
            c.pattern_gb_s / c.copy_gb_s.max(1e-9) * 100.0
        );
    }
    if c.products + c.unit_passes > 0 {
        let _ = writeln!(
            out,
            "  products     {} of cuBLAS ({}; {:.1} x 10^12 operations), {} passes of our kernels",
            c.products,
            c.product_kinds.join(", "),
            c.product_tflop,
            c.unit_passes
        );
    }
    if c.link_bytes > 0 {
        let speed =
            c.slowest_pair_gb_s.map_or_else(String::new, |speed| format!(", slowest pair {speed:.0} GB/s"));
        let _ =
            writeln!(out, "  links        {} ordered pairs, {} copied{speed}", c.pairs, bytes(c.link_bytes));
    }
    if c.collectives > 0 {
        let ways = if c.ways.is_empty() { String::new() } else { format!("; forced: {}", c.ways.join(", ")) };
        let _ =
            writeln!(out, "  collectives  {} calls, {} elements compared{ways}", c.collectives, c.elements);
    }
    for (rank, (before, after)) in report.errors.iter().enumerate() {
        let grew = |a: Option<u64>, b: Option<u64>| a.zip(b).map_or(0, |(a, b)| b.saturating_sub(a));
        let (corrected, uncorrected) =
            (grew(before.corrected, after.corrected), grew(before.uncorrected, after.uncorrected));
        if corrected + uncorrected > 0 {
            let _ = writeln!(
                out,
                "  rank {rank}: the GPU counted {corrected} corrected and {uncorrected} uncorrected memory errors during the run"
            );
        }
    }
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

/// The score of planted faults.
pub fn proofs(proofs: &[Proof], n_false: usize) -> String {
    let right = proofs.iter().filter(|proof| proof.is_right).count();
    let mut out = format!(
        "{right} of {} planted faults found in the right place, {n_false} findings without a fault\n",
        proofs.len()
    );
    for proof in proofs.iter().filter(|proof| !proof.is_right) {
        let _ = writeln!(
            out,
            "  {:?}: found {:?} by {:?} ({} bits flipped)",
            proof.fault, proof.found, proof.checks, proof.n_flipped
        );
    }
    out
}

fn bytes(n: u64) -> String {
    let n = n as f64;
    match n {
        n if n >= 1e12 => format!("{:.1} TB", n / 1e12),
        n if n >= 1e9 => format!("{:.1} GB", n / 1e9),
        n => format!("{:.1} MB", n / 1e6),
    }
}
