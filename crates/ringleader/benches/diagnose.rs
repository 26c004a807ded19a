//! A whole diagnosis of a big job, beside reading the same bytes and doing nothing with them.
//!
//! `cargo bench -p ringleader --bench diagnose [-- RANKS [ENTRIES]]` (default 1,024 x 2,000 = 340 MB). The dumps are
//! made here, in the layout torch 2.10 and newer write, and come from the page cache. Each round reads the files, then
//! diagnoses the folder: found, read, correlated and judged. The best of the rounds counts, since the machine has other
//! things to do too. Peak memory is the process's own, after a round of each.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints, and stops where it cannot go on"
)]

#[path = "../../evidence/benches/dumps/mod.rs"]
mod dumps;

use std::fs;
use std::hint::black_box;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringleader::gather::gather;
use ringleader_report::json::Report;

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 5;

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|a| a.parse::<i64>().ok());
    let (ranks, entries) = (numbers.next().unwrap_or(1024), numbers.next().unwrap_or(2000));
    let folder = tempfile::tempdir().unwrap();
    for rank in 0..ranks {
        fs::write(folder.path().join(format!("trace_rank_{rank}")), dumps::dump(rank, ranks, entries))
            .unwrap();
    }
    let files: Vec<PathBuf> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().path()).collect();
    let size: u64 = files.iter().map(|f| fs::metadata(f).unwrap().len()).sum();

    let (mut plain, mut whole) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        plain = plain.min(read_only(&files));
    }
    let before = peak_kib();
    for _ in 0..ROUNDS {
        whole = whole.min(diagnose(folder.path()));
    }
    let mb = size as f64 / 1e6;
    println!("{ranks} dumps of {entries} entries, {mb:.1} MB");
    println!("read from the page cache   {:8.1} ms", plain.as_secs_f64() * 1e3);
    println!(
        "ringleader diagnose        {:8.1} ms   {:.1} x",
        whole.as_secs_f64() * 1e3,
        whole.as_secs_f64() / plain.as_secs_f64()
    );
    println!(
        "peak memory                {:8.1} MB   ({:.1} MB before)",
        peak_kib() as f64 / 1e3,
        before as f64 / 1e3
    );
}

/// Reads every file into one buffer, one after the other.
fn read_only(files: &[PathBuf]) -> Duration {
    let mut buffer = Vec::new();
    let start = Instant::now();
    for file in files {
        buffer.clear();
        fs::File::open(file).unwrap().read_to_end(&mut buffer).unwrap();
        black_box(buffer.last());
    }
    start.elapsed()
}

fn diagnose(folder: &Path) -> Duration {
    let start = Instant::now();
    let case = gather(&[folder.to_owned()], false).unwrap();
    let verdict = ringleader_rules::diagnose(&case);
    let report = Report::new(&case, &verdict);
    black_box(report.to_json().unwrap());
    let took = start.elapsed();
    assert_eq!(verdict.cause, "none", "these dumps are of a healthy job");
    took
}

/// `VmHWM` of this process; 0 where there is no `/proc`.
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
