//! The bandwidth of pairs of ranks, one way and the other.

use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bench::hunt;
use crate::facts::Gpu;
use crate::sys::{Buffer, DataType, LibraryError, Nccl, Stream, Wish};
use crate::team::TeamMember;

/// Up to this many ranks every pair is measured; above, the pairs that a search picks.
const ALL_PAIRS: usize = 16;
/// Bytes of one message: large enough for the full rate of NVLink.
const SIZE_BYTES: usize = 128 << 20;
const N_CALLS: usize = 8;

/// A pair of ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pair {
    /// The lower rank.
    pub a: usize,
    /// The higher rank.
    pub b: usize,
    /// From `a` to `b`, GB/s.
    pub forth_gb_s: f64,
    /// From `b` to `a`, GB/s.
    pub back_gb_s: f64,
    /// What the search concluded: this pair is slow, or one of the two is slow with every partner.
    pub slow: Slow,
}

/// What is slow about a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Slow {
    /// Nothing.
    No,
    /// The two together.
    Pair,
    /// The lower rank, with every partner.
    A,
    /// The higher rank.
    B,
}

/// Measures pairs. All ranks get the same list.
pub(crate) fn scan(
    member: &TeamMember<'_>,
    nccl: Nccl,
    stream: &Stream,
    buffers: (&Buffer, &Buffer),
    gpus: &[Gpu],
    timeout: Duration,
) -> Result<Vec<Pair>, LibraryError> {
    let n = gpus.len();
    let mut pairs: Vec<Pair> = Vec::new();
    let mut measure = |round: &[(usize, usize)]| -> Result<Vec<f64>, LibraryError> {
        let measured = one_round(member, nccl, stream, buffers, round, timeout)?;
        for ((a, b), [forth_gb_s, back_gb_s]) in round.iter().zip(&measured) {
            let (a, b, forth_gb_s, back_gb_s) =
                if a < b { (*a, *b, *forth_gb_s, *back_gb_s) } else { (*b, *a, *back_gb_s, *forth_gb_s) };
            pairs.push(Pair { a, b, forth_gb_s, back_gb_s, slow: Slow::No });
        }
        Ok(measured.into_iter().map(|[forth, back]| f64::min(forth, back)).collect())
    };
    let found = if n <= ALL_PAIRS {
        let mut rates = Vec::new();
        for round in hunt::round_robin(n) {
            let measured = measure(&round)?;
            rates.extend(round.into_iter().zip(measured).map(|((a, b), rate)| (a, b, rate)));
        }
        hunt::of_all_pairs(n, &rates)
    } else {
        hunt::neighbours(n, measure)?
    };
    for pair in &mut pairs {
        let is = |rank: usize| found.members.contains(&rank);
        pair.slow = if is(pair.a) {
            Slow::A
        } else if is(pair.b) {
            Slow::B
        } else if found
            .pairs
            .iter()
            .any(|(a, b)| (*a, *b) == (pair.a, pair.b) || (*b, *a) == (pair.a, pair.b))
        {
            Slow::Pair
        } else {
            Slow::No
        };
    }
    Ok(pairs)
}

/// Both directions of disjoint pairs, at the same time, in the order of the pairs.
fn one_round(
    member: &TeamMember<'_>,
    nccl: Nccl,
    stream: &Stream,
    (send, recv): (&Buffer, &Buffer),
    round: &[(usize, usize)],
    timeout: Duration,
) -> Result<Vec<[f64; 2]>, LibraryError> {
    let groups: Vec<Vec<usize>> = round.iter().map(|(a, b)| vec![*a, *b]).collect();
    let mut comm = member.group(nccl, &groups, Wish::default())?;
    let is_first = round.iter().any(|(a, _)| *a == member.rank);
    let n = send.size_bytes().min(recv.size_bytes()).min(SIZE_BYTES);
    let mut own = [0.0; 2];
    for (direction, rate) in own.iter_mut().enumerate() {
        // The first of a pair sends in the first direction.
        let sends = is_first == (direction == 0);
        for is_warm_up in [true, false] {
            member.line_up()?;
            let Some(comm) = &mut comm else { continue };
            let start = Instant::now();
            for _ in 0..N_CALLS {
                if sends {
                    comm.send(send.address(), n, DataType::I8, usize::from(is_first), stream)?;
                } else {
                    comm.recv(recv.address(), n, DataType::I8, usize::from(is_first), stream)?;
                }
            }
            member.wait(stream, comm, timeout)?;
            if !is_warm_up {
                *rate = (n * N_CALLS) as f64 / start.elapsed().as_secs_f64() / 1e9;
            }
        }
    }
    let all = member.exchange_numbers(&own)?;
    Ok(round
        .iter()
        .map(|(a, b)| {
            // The receiver's time: it ends when the data is there.
            let at = |rank: usize, direction: usize| {
                all.get(rank).and_then(|one| one.get(direction)).copied().unwrap_or_default()
            };
            [at(*b, 0), at(*a, 1)]
        })
        .collect())
}
