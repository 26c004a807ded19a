//! Copies between every ordered pair of GPUs, within each, and to the host and back, each compared bit for bit.

use std::time::Instant;

use super::Check;
use super::inject::Spot;
use super::place::Trial;
use super::worker::{Worker, words};
use crate::bench::hunt::round_robin;
use crate::kernels::{Pass, Pattern};
use crate::sys::{Buffer, LibraryError};

const SIZE_BYTES: usize = 256 << 20;
const BRIEF_BYTES: usize = 1 << 20;
/// Copies of one direction; the last one is compared: all of them carry the same bits.
const N_COPIES: usize = 4;

pub(super) fn run(worker: &mut Worker<'_>) -> Result<(), LibraryError> {
    let size = if worker.plan.is_brief { BRIEF_BYTES } else { SIZE_BYTES };
    let own = worker.device.alloc(size)?;
    let got = worker.device.alloc(size)?;
    let addresses: Vec<u64> = worker.member.exchange_words(&[own.address()])?.into_iter().flatten().collect();
    let (trial, signs) = pairs(worker, &own, &got, &addresses, size)?;
    worker.outcome.coverage.pairs = (worker.member.n_ranks * (worker.member.n_ranks - 1)) as u64;
    if !signs.is_empty() {
        worker.blame_trial(&trial, signs);
    }
    host(worker, &own, &got, size)
}

/// The pattern of what a rank sends in this round.
fn pattern(worker: &Worker<'_>, rank: usize) -> Pattern {
    Pattern { kind: 2, seed: worker.seed(10 + rank as u64), invert: 0 }
}

/// Compares memory with a pattern; what is wrong, in words.
fn compare(
    worker: &Worker<'_>,
    at: u64,
    size: usize,
    pattern: Pattern,
    what: &str,
) -> Result<Option<(u64, String, Vec<u64>)>, LibraryError> {
    worker.kernels.reset(&worker.stream)?;
    worker.kernels.pattern(&worker.stream, at, size, pattern, Pass::Read, 0)?;
    let found = worker.kernels.differences(&worker.stream)?;
    Ok((found.count > 0).then(|| words(what, "word", &found)))
}

/// Every ordered pair once, and each GPU with itself.
fn pairs(
    worker: &mut Worker<'_>,
    own: &Buffer,
    got: &Buffer,
    addresses: &[u64],
    size: usize,
) -> Result<(Trial, Vec<super::Sign>), LibraryError> {
    let (rank, n) = (worker.member.rank, worker.member.n_ranks);
    let sent = pattern(worker, rank);
    worker.kernels.pattern(&worker.stream, own.address(), size, sent, Pass::Write, 0)?;
    worker.spoil(Spot::Sent, own.address(), size)?;
    worker.stream.wait()?;
    worker.member.line_up()?;
    let mut trial = Trial { n, ..Trial::default() };
    let mut signs = Vec::new();
    let gather = |worker: &Worker<'_>, own| -> Result<Vec<Option<super::Sign>>, LibraryError> {
        worker.share(Check::Links, own)
    };
    // With itself.
    worker.stream.copy(got.address(), own.address(), size)?;
    worker.spoil(Spot::Copied, got.address(), size)?;
    let spoilt = compare(worker, own.address(), size, sent, "its own buffer")?;
    let alone = match &spoilt {
        // A corrupted buffer makes a corrupted copy.
        Some(_) => None,
        None => compare(worker, got.address(), size, sent, "a copy within the GPU")?,
    };
    for (rank, sign) in gather(worker, spoilt)?.into_iter().enumerate() {
        trial.spoilt.extend(sign.as_ref().map(|_| rank));
        signs.extend(sign);
    }
    for (rank, sign) in gather(worker, alone)?.into_iter().enumerate() {
        trial.alone.extend(sign.as_ref().map(|_| rank));
        signs.extend(sign);
    }
    let mut slowest: Option<f64> = None;
    for round in round_robin(n) {
        let partner = round.iter().find_map(|(a, b)| match rank {
            rank if rank == *a => Some(*b),
            rank if rank == *b => Some(*a),
            _ => None,
        });
        worker.member.line_up()?;
        let mut wrong = None;
        let mut speed = f64::INFINITY;
        if let Some((partner, from)) = partner.and_then(|partner| Some((partner, *addresses.get(partner)?))) {
            let start = Instant::now();
            for _ in 0..N_COPIES {
                worker.stream.copy(got.address(), from, size)?;
            }
            worker.stream.wait()?;
            speed = (N_COPIES * size) as f64 / start.elapsed().as_secs_f64().max(1e-9) / 1e9;
            worker.spoil(Spot::Received(Some(partner)), got.address(), size)?;
            let sent = pattern(worker, partner);
            wrong = compare(worker, got.address(), size, sent, &format!("what came from rank {partner}"))?;
            worker.outcome.coverage.link_bytes += (N_COPIES * size) as u64;
        }
        for (rank, sign) in gather(worker, wrong)?.into_iter().enumerate() {
            if let Some(sign) = sign {
                let partner = round.iter().find_map(|(a, b)| match rank {
                    rank if rank == *a => Some(*b),
                    rank if rank == *b => Some(*a),
                    _ => None,
                });
                trial.pairs.extend(partner.map(|partner| (partner, rank)));
                signs.push(sign);
            }
        }
        let speeds = worker.member.exchange_numbers(&[speed])?;
        let least = speeds.into_iter().flatten().fold(f64::INFINITY, f64::min);
        slowest = Some(slowest.map_or(least, |slowest| slowest.min(least)));
    }
    if worker.outcome.coverage.slowest_pair_gb_s.is_none() {
        worker.outcome.coverage.slowest_pair_gb_s = slowest.filter(|speed| speed.is_finite());
    }
    Ok((trial, signs))
}

/// To the host and back.
fn host(worker: &mut Worker<'_>, own: &Buffer, got: &Buffer, size: usize) -> Result<(), LibraryError> {
    let size = size.min(64 << 20);
    let sent = pattern(worker, 1000 + worker.member.rank);
    let mut pinned = worker.device.alloc_host(size)?;
    worker.kernels.pattern(&worker.stream, own.address(), size, sent, Pass::Write, 0)?;
    worker.stream.to_pinned(&mut pinned, own.address(), size)?;
    worker.stream.from_pinned(got.address(), &pinned, size)?;
    worker.stream.wait()?;
    worker.spoil(Spot::Copied, got.address(), size)?;
    worker.outcome.coverage.link_bytes += 2 * size as u64;
    let wrong = compare(worker, got.address(), size, sent, "to the host and back")?;
    worker.blame_own(Check::Links, wrong)
}

/// The trial of all pairs by itself, for signs that another check saw.
pub(super) fn trial(worker: &mut Worker<'_>) -> Result<Trial, LibraryError> {
    let size = BRIEF_BYTES;
    let own = worker.device.alloc(size)?;
    let got = worker.device.alloc(size)?;
    let addresses: Vec<u64> = worker.member.exchange_words(&[own.address()])?.into_iter().flatten().collect();
    let mut all = Trial { n: worker.member.n_ranks, ..Trial::default() };
    // A fault that comes now and then may need several tries.
    for _ in 0..N_TRIALS {
        let (one, _) = pairs(worker, &own, &got, &addresses, size)?;
        all.spoilt.extend(one.spoilt);
        all.alone.extend(one.alone);
        all.pairs.extend(one.pairs);
        if all.spoilt.len() + all.alone.len() + all.pairs.len() > 0 {
            break;
        }
    }
    Ok(all)
}

const N_TRIALS: usize = 8;
