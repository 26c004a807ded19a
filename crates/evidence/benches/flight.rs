//! Reads the Flight Recorder dumps of a big job, beside reading the same bytes and doing nothing with them.
//!
//! `cargo bench -p ringleader-evidence --bench flight [-- RANKS [ENTRIES]]` (default 128 x 2,000 = 42 MB). The dumps
//! are made here, in the layout torch 2.10 and newer write: world, tensor- and data-parallel groups, 113 operations a
//! step. Each figure is the best of several rounds, file by file; the files come from the page cache.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench writes files, reads clocks and prints"
)]

mod dumps;

use std::fs;
use std::hint::black_box;
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringleader_evidence::{Limits, Scratch};

/// Best time of each file over the rounds, added up: a round of one file is shorter than what a busy machine takes away
/// at a time.
fn best(files: &[PathBuf], mut run: impl FnMut(usize, &Path)) -> Duration {
    let mut best = vec![Duration::MAX; files.len()];
    for _ in 0..ROUNDS {
        for (i, (file, best)) in files.iter().zip(&mut best).enumerate() {
            let start = Instant::now();
            run(i, file);
            *best = start.elapsed().min(*best);
        }
    }
    best.iter().sum()
}

const ROUNDS: usize = 15;

fn main() {
    let numbers: Vec<i64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let n_ranks = numbers.first().copied().unwrap_or(128);
    let n_entries = numbers.get(1).copied().unwrap_or(2000);
    let folder = std::env::temp_dir().join(format!("ringleader-bench-flight-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let mut n_bytes = 0;
    let files: Vec<PathBuf> = (0..n_ranks)
        .map(|rank| {
            let path = folder.join(format!("dump_{rank}"));
            let bytes = dumps::dump(rank, n_ranks, n_entries);
            n_bytes += bytes.len();
            fs::File::create(&path).unwrap().write_all(&bytes).unwrap();
            path
        })
        .collect();
    // Into one buffer that stays, which is the fastest that reading can be.
    let mut buffer = Vec::new();
    let plain = best(&files, |_, file| {
        buffer.clear();
        fs::File::open(file).unwrap().read_to_end(&mut buffer).unwrap();
        black_box(&buffer);
    });
    let fresh = best(&files, |_, file| drop(black_box(fs::read(file).unwrap())));
    let limits = Limits::default();
    let mut scratch = Scratch::default();
    let mut read = |file: &Path, input: &mut dyn Read| {
        let extract = ringleader_evidence::read(file.to_str().unwrap(), input, &mut scratch, &limits);
        assert!(extract.observations.len() == 1 && extract.notes.is_empty(), "each file is one dump");
        extract
    };
    let dropped = best(&files, |_, file| drop(black_box(read(file, &mut fs::File::open(file).unwrap()))));
    let mut kept = Vec::new();
    let keeping = best(&files, |i, file| {
        let extract = read(file, &mut fs::File::open(file).unwrap());
        if i == 0 {
            kept.clear();
        }
        kept.push(extract);
    });
    let memory: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    let pure = best(&files, |i, file| drop(black_box(read(file, &mut memory[i].as_slice()))));
    fs::remove_dir_all(&folder).unwrap();
    let rate = |time: Duration| n_bytes as f64 / 1e9 / time.as_secs_f64();
    println!("{n_ranks} dumps of {n_entries} entries, {:.1} MB, one core", n_bytes as f64 / 1e6);
    for (what, time) in [
        ("bytes into one buffer", plain),
        ("std::fs::read of each", fresh),
        ("read, dumps dropped", dropped),
        ("read, dumps kept", keeping),
        ("read from memory", pure),
    ] {
        println!(
            "{what:24} {:8.2} ms {:6.2} GB/s {:5.2} x std::fs::read {:5.2} x one buffer",
            time.as_secs_f64() * 1e3,
            rate(time),
            time.as_secs_f64() / fresh.as_secs_f64(),
            time.as_secs_f64() / plain.as_secs_f64(),
        );
    }
}
