//! Patterns over the free memory of each GPU, written, read back, inverted and read again.
//!
//! The memory under test is many times the L2 cache, so that what is read comes from the memory itself. With ECC on, single
//! flipped bits are corrected before a program sees them: a difference here is a fault of data paths, caches or address
//! logic, and the counters of ECC are read besides.

use std::time::{Duration, Instant};

use super::Check;
use super::inject::Spot;
use super::worker::{Worker, words};
use crate::kernels::{Pass, Pattern};
use crate::sys::{Attribute, Buffer, LibraryError};

/// One allocation.
const CHUNK_BYTES: usize = 4 << 30;
/// Memory of a brief test.
const BRIEF_BYTES: usize = 256 << 20;
/// Reads of each pattern in a later round: a weak cell fails now and then.
const N_READS: usize = 2;

pub(super) fn run(worker: &mut Worker<'_>) -> Result<(), LibraryError> {
    let (free, _) = worker.device.memory()?;
    let most = if worker.plan.is_brief { BRIEF_BYTES } else { usize::MAX };
    let wanted = free.saturating_sub(worker.plan.margin_bytes).min(most);
    let mut chunks: Vec<Buffer> = Vec::new();
    let mut taken = 0;
    while taken < wanted {
        let size = (wanted - taken).min(CHUNK_BYTES) / 4096 * 4096;
        if size == 0 {
            break;
        }
        match worker.device.alloc(size) {
            Ok(buffer) => chunks.push(buffer),
            // Memory in pieces: all that could be allocated is tested.
            Err(error) if error.is_out_of_memory() => break,
            Err(error) => return Err(error),
        }
        taken += size;
    }
    worker.outcome.coverage.memory_bytes = taken as u64;
    worker.outcome.coverage.memory_pct = taken as f64 / free.max(1) as f64 * 100.0;
    let random = worker.seed(1);
    let all = u64::MAX;
    let patterns = [
        ("own address", Pattern { kind: 1, seed: 0, invert: 0 }),
        ("zeros and ones", Pattern { kind: 0, seed: 0, invert: 0 }),
        ("0x55 and 0xaa", Pattern { kind: 0, seed: 0x5555_5555_5555_5555, invert: 0 }),
        ("walking bit", Pattern { kind: 3, seed: random & 63, invert: 0 }),
        ("random words", Pattern { kind: 2, seed: random, invert: 0 }),
        ("every twentieth word", Pattern { kind: 4, seed: random % 20, invert: 0 }),
        ("address, inverted first", Pattern { kind: 1, seed: 0, invert: all }),
    ];
    let n = if worker.plan.is_brief { 2 } else { patterns.len() };
    for (number, (name, pattern)) in patterns.into_iter().take(n).enumerate() {
        one(worker, &chunks, name, pattern, number == 0)?;
    }
    if worker.outcome.coverage.copy_gb_s == 0.0 {
        copy_speed(worker, &chunks)?;
    }
    Ok(())
}

fn one(
    worker: &mut Worker<'_>,
    chunks: &[Buffer],
    name: &str,
    pattern: Pattern,
    is_first: bool,
) -> Result<(), LibraryError> {
    worker.kernels.reset(&worker.stream)?;
    let inverted = Pattern { invert: !pattern.invert, ..pattern };
    let n_reads = if worker.round == 0 || worker.plan.is_brief { 1 } else { N_READS };
    let mut passes = vec![(pattern, Pass::Write), (pattern, Pass::ReadThenInvert)];
    passes.extend(std::iter::repeat_n((inverted, Pass::Read), n_reads));
    let total: usize = chunks.iter().map(Buffer::size_bytes).sum();
    let (mut time, mut moved) = (Duration::ZERO, 0);
    for (pattern, pass) in passes {
        let start = Instant::now();
        let mut base = 0;
        for chunk in chunks {
            worker.kernels.pattern(
                &worker.stream,
                chunk.address(),
                chunk.size_bytes(),
                pattern,
                pass,
                base,
            )?;
            base += (chunk.size_bytes() / 16) as u64;
        }
        worker.stream.wait()?;
        time += start.elapsed();
        moved += if pass == Pass::ReadThenInvert { 2 * total } else { total };
        if is_first && pass == Pass::Write {
            let at = worker.seed(2) as usize % chunks.len().max(1);
            if let Some(chunk) = chunks.get(at) {
                worker.spoil(Spot::Kept, chunk.address(), chunk.size_bytes())?;
            }
        }
    }
    let found = worker.kernels.differences(&worker.stream)?;
    worker.outcome.coverage.pattern_bytes += moved as u64;
    let speed = moved as f64 / time.as_secs_f64().max(1e-9) / 1e9;
    worker.outcome.coverage.pattern_gb_s = worker.outcome.coverage.pattern_gb_s.max(speed);
    let own = (found.count > 0).then(|| {
        let (count, mut text, seen) = words(name, "word", &found);
        let ecc = worker.device.driver().attribute(worker.device.index(), Attribute::Ecc).unwrap_or_default();
        if ecc == 1 {
            text.push_str(" (ECC is on: not a flipped cell, but the path to it)");
        }
        (count, text, seen)
    });
    worker.blame_own(Check::Memory, own)
}

/// What the GPU's own copy reaches, counting what is read and written.
fn copy_speed(worker: &mut Worker<'_>, chunks: &[Buffer]) -> Result<(), LibraryError> {
    let Some(chunk) = chunks.first() else { return Ok(()) };
    let half = chunk.size_bytes() / 2;
    for is_warm_up in [true, false] {
        let start = Instant::now();
        for _ in 0..4 {
            worker.stream.copy(chunk.address() + half as u64, chunk.address(), half)?;
        }
        worker.stream.wait()?;
        if !is_warm_up {
            worker.outcome.coverage.copy_gb_s =
                8.0 * half as f64 / start.elapsed().as_secs_f64().max(1e-9) / 1e9;
        }
    }
    Ok(())
}
