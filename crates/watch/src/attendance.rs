//! Who keeps the others waiting, second by second: a rank that calls its collectives later than the others, or whose GPU comes to
//! them later.
//!
//! A rank that waits for others has a collective open. Where all ranks make the same collectives, the share of the time in which a
//! rank has one open differs by what it waits for others. Neither steps nor single collectives need be known, so this also holds for
//! loops of no fixed order. Kernels that run measure the same behind the GPU's queue; where jobs share GPUs, that depends on their turns.

use std::collections::{BTreeMap, BTreeSet};

use crate::digest::{ProcessState, RankDigest, SecondDigest};
use crate::event::{Confidence, Lag, Straggler};

/// Seconds that are remembered.
const MEMORY: usize = 64;
/// Nothing is said of fewer.
const LEAST: usize = 24;
/// The first ones, in which programs compile and warm up, are left out.
const WARM_UP_S: i64 = 10;
/// Ranks that are followed.
const MAX_RANKS: usize = 4096;
/// Share of the time that a rank's calls are missing while the others have called. On H200 that 12 jobs shared, it was at most
/// 0.03 in steady healthy jobs, and 0.08 to 0.44 in those with a slow rank (2026-12-01).
const LATE_CALLS: f64 = 0.06;
/// From this share on [`SURE`] is enough: healthy jobs with pauses reached 6.5 standard errors.
const PLAINLY_LATE: f64 = 0.12;
/// The mean of a smaller share over its own standard error.
const SURE_OF_LITTLE: f64 = 9.0;
/// The same of kernels: healthy jobs whose ranks share a GPU with those of eight others reached 0.26.
const LATE_KERNELS: f64 = 0.35;
/// The mean over its own standard error.
const SURE: f64 = 6.0;
/// Share of the seconds in which it holds.
const HABIT: f64 = 0.8;
/// Of the others, the one that waits least waits by this share of the mean more than the late one.
const ALONE: f64 = 0.5;
/// So many steps are in the time that is looked at: less is one long pause. Chosen.
const PAUSE: usize = 8;
/// Seconds without a pause among them that are judged although most of them show no collective: nearly all that are remembered, so that
/// a job with long steps is seen for a minute. Chosen.
const LEAST_SLOW: usize = MEMORY * 3 / 4;
/// Collectives of the ranks differ by this share at most: they make the same ones.
const ALIKE: f64 = 0.1;

/// What the ranks of a job did in the newest seconds.
#[derive(Debug, Default)]
pub struct Attendance {
    seconds: BTreeMap<i64, BTreeMap<u32, SecondDigest>>,
    /// The first second in which a collective ended.
    since: Option<i64>,
}

/// A rank that the others wait for.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    rank: u32,
    /// Share of the time that the others wait longer than it does.
    cost: f64,
    /// Share of the seconds in which they do.
    habit: f64,
    of: Lag,
    /// Collectives in a second.
    rate: f64,
    /// Seconds that were counted.
    n_seconds: u32,
}

impl Attendance {
    /// Takes the newest words of one agent's ranks.
    pub fn hear(&mut self, ranks: &[RankDigest]) {
        let lives = |rank: &&RankDigest| !matches!(rank.process, ProcessState::Dead | ProcessState::Zombie);
        for rank in ranks.iter().filter(lives) {
            let number = rank.rank.or_else(|| rank.comms.iter().max_by_key(|comm| comm.size)?.rank);
            let Some(number) = number else { continue };
            for second in &rank.seconds {
                self.take(number, *second);
            }
        }
        while self.seconds.len() > MEMORY {
            self.seconds.pop_first();
        }
    }

    fn take(&mut self, rank: u32, second: SecondDigest) {
        if second.n > 0 {
            self.since = Some(self.since.map_or(second.second, |since| since.min(second.second)));
        }
        let is_old = self.seconds.len() >= MEMORY
            && self.seconds.first_key_value().is_some_and(|(first, _)| second.second < *first);
        let words = (!is_old).then(|| self.seconds.entry(second.second).or_default());
        if let Some(words) = words.filter(|w| w.len() < MAX_RANKS) {
            words.insert(rank, second);
        }
    }

    /// The rank for which the others wait: because it calls late, or else because its GPU comes late.
    pub fn straggler(&self, comm: &str) -> Option<Straggler> {
        let ranks: BTreeSet<u32> = self.seconds.values().flat_map(BTreeMap::keys).copied().collect();
        let since = self.since?.saturating_add(WARM_UP_S);
        let whole: Vec<&BTreeMap<u32, SecondDigest>> =
            self.seconds.range(since..).map(|(_, words)| words).filter(|w| w.len() == ranks.len()).collect();
        if ranks.len() < 2 || !are_alike(&whole) {
            return None;
        }
        let whole = moving(whole)?;
        // What began a moment ago shows in the newest ones.
        let newest = whole.get(whole.len().checked_sub(LEAST)?..)?;
        let by_calls = |of| awaited(of, |s| s.open_ms, LATE_CALLS).map(|found| (Lag::Host, found));
        let by_kernels = |of| awaited(of, |s| s.ran_ms, LATE_KERNELS).map(|found| (Lag::Compute, found));
        let (of, found) = by_calls(newest)
            .or_else(|| by_calls(&whole))
            .or_else(|| by_kernels(newest))
            .or_else(|| by_kernels(&whole))?;
        Some(told(Awaited { of, ..found }, comm))
    }
}

/// The seconds in which the job moves: a pause is no habit. Where steps take longer than a second, all of them, if no pause is among
/// them.
fn moving(whole: Vec<&BTreeMap<u32, SecondDigest>>) -> Option<Vec<&BTreeMap<u32, SecondDigest>>> {
    let moves = |words: &&BTreeMap<u32, SecondDigest>| words.values().any(|s| s.n > 0);
    let (n, n_moving) = (whole.len(), whole.iter().filter(|words| moves(words)).count());
    if 2 * n_moving >= n {
        return Some(whole.into_iter().filter(moves).collect());
    }
    let longest = whole
        .chunk_by(|a, b| moves(a) == moves(b))
        .filter(|run| !run.iter().all(moves))
        .map(<[_]>::len)
        .max();
    (n >= LEAST_SLOW && longest.is_none_or(|longest| longest <= n / PAUSE)).then_some(whole)
}

/// All ranks make as many collectives.
fn are_alike(whole: &[&BTreeMap<u32, SecondDigest>]) -> bool {
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    for (rank, second) in whole.iter().flat_map(|words| words.iter()) {
        *sums.entry(*rank).or_default() += u64::from(second.n);
    }
    let (least, most) = (sums.values().min().copied(), sums.values().max().copied());
    let Some((least, most)) = least.zip(most).filter(|(least, _)| *least > 0) else { return false };
    (most - least) as f64 <= ALIKE * most as f64
}

/// The rank that waits less than the others, in nearly all of the seconds.
fn awaited(
    whole: &[&BTreeMap<u32, SecondDigest>],
    of: impl Fn(&SecondDigest) -> u32,
    least: f64,
) -> Option<Awaited> {
    let n = whole.len() as f64;
    let mut sums: BTreeMap<u32, f64> = BTreeMap::new();
    for (rank, second) in whole.iter().flat_map(|words| words.iter()) {
        *sums.entry(*rank).or_default() += f64::from(of(second)) / 1e3;
    }
    let all: f64 = sums.values().sum();
    let (rank, own) = sums.iter().min_by(|a, b| a.1.total_cmp(b.1))?;
    let next = sums.iter().filter(|(other, _)| *other != rank).map(|(_, sum)| *sum).fold(f64::MAX, f64::min);
    let n_others = (sums.len() - 1) as f64;
    let cost = ((all - own) / n_others - own) / n;
    if cost < least || next - own < ALONE * cost * n {
        return None;
    }
    let excess = |words: &&BTreeMap<u32, SecondDigest>| {
        let own = words.get(rank).map_or(0.0, |s| f64::from(of(s)) / 1e3);
        let all: f64 = words.values().map(|s| f64::from(of(s)) / 1e3).sum();
        (all - own) / n_others - own
    };
    let variance = whole.iter().map(|words| (excess(words) - cost).powi(2)).sum::<f64>() / n;
    let habit = whole.iter().filter(|words| excess(words) > 0.0).count() as f64 / n;
    let sure = if cost < PLAINLY_LATE { SURE_OF_LITTLE } else { SURE };
    if habit < HABIT || cost < sure * (variance / n).sqrt() {
        return None;
    }
    let n_ended: f64 = whole.iter().filter_map(|words| Some(f64::from(words.get(rank)?.n))).sum();
    let n_seconds = u32::try_from(whole.len()).unwrap_or(u32::MAX);
    Some(Awaited { rank: *rank, cost, habit, of: Lag::Unknown, rate: n_ended / n, n_seconds })
}

fn told(found: Awaited, comm: &str) -> Straggler {
    let (rank, percent) = (found.rank, found.cost * 100.0);
    let text = match found.of {
        Lag::Host => format!(
            "for {percent:.0} % of the time the others have called a collective that rank {rank} has not: its program calls late"
        ),
        _ => format!(
            "kernels of collectives run for {percent:.0} % of the time longer on the others than on rank {rank}: its GPU comes late"
        ),
    };
    Straggler {
        rank,
        late_ms: found.cost * 1e3 / found.rate.max(f64::MIN_POSITIVE),
        share: found.habit,
        cost: Some(found.cost),
        over_s: Some(found.n_seconds),
        persistent: true,
        of: found.of,
        confidence: Confidence::High,
        comm: comm.to_owned(),
        peer: None,
        text,
    }
}

#[cfg(test)]
mod tests {
    use super::{Attendance, MEMORY, WARM_UP_S};
    use crate::digest::SecondDigest;
    use crate::event::Lag;

    /// Ranks over this many seconds; how many milliseconds of each second their calls are open, and their kernels run.
    fn heard(n_ranks: u32, n: i64, of: impl Fn(u32, i64) -> (u32, u32)) -> Attendance {
        let mut attendance = Attendance::default();
        for second in 0..n {
            for rank in 0..n_ranks {
                let (open_ms, ran_ms) = of(rank, second);
                attendance.take(rank, SecondDigest { second, open_ms, ran_ms, n: 20 });
            }
            while attendance.seconds.len() > MEMORY {
                attendance.seconds.pop_first();
            }
        }
        attendance
    }

    fn noise(rank: u32, second: i64) -> u32 {
        u32::try_from((second * 7 + i64::from(rank) * 13) % 11 * 10).unwrap()
    }

    #[test]
    fn a_host_that_is_late() {
        let job = heard(4, 60, |rank, s| (if rank == 2 { 500 } else { 700 } + noise(rank, s), 300));
        let told = job.straggler("c").unwrap();
        assert_eq!((told.rank, told.of, told.persistent), (2, Lag::Host, true));
        assert!(told.cost.is_some_and(|cost| (0.15..0.25).contains(&cost)), "{told:?}");
        // Too short; too little; in too few seconds.
        let late = |rank: u32, by: u32| 700 - if rank == 1 { by } else { 0 };
        assert!(heard(2, 20 + WARM_UP_S, |rank, _| (late(rank, 300), 300)).straggler("c").is_none());
        assert!(heard(2, 60, |rank, s| (late(rank, 50) + noise(rank, s), 300)).straggler("c").is_none());
        // Little, and always.
        assert_eq!(
            heard(2, 60, |rank, s| (late(rank, 80) + noise(rank, s) / 4, 300)).straggler("c").map(|s| s.rank),
            Some(1)
        );
        let rarely = |rank, s| if s % 2 == 0 { late(rank, 400) } else { 700 };
        assert!(heard(2, 60, |rank, s| (rarely(rank, s), 300)).straggler("c").is_none());
    }

    #[test]
    fn a_gpu_that_is_late() {
        let job = heard(2, 60, |rank, s| (990, if rank == 0 { 100 } else { 500 } + noise(rank, s)));
        assert_eq!(job.straggler("c").map(|s| (s.rank, s.of)), Some((0, Lag::Compute)));
        let shared = heard(2, 60, |rank, s| (990, if rank == 0 { 100 } else { 400 } + noise(rank, s)));
        assert!(shared.straggler("c").is_none());
    }

    #[test]
    fn several_that_wait_little_and_ranks_with_parts_of_their_own() {
        // Two of four wait for the other two.
        let halves = heard(4, 60, |rank, s| (if rank < 2 { 400 } else { 900 } + noise(rank, s), 300));
        assert!(halves.straggler("c").is_none());
        // One makes twice as many collectives.
        let mut parts = heard(2, 60, |rank, _| (if rank == 0 { 300 } else { 900 }, 300));
        for words in parts.seconds.values_mut() {
            words.entry(0).and_modify(|s| s.n = 40);
        }
        assert!(parts.straggler("c").is_none());
    }

    #[test]
    fn steps_that_take_longer_than_a_second() {
        // Five seconds each, and rank 1 calls three seconds late.
        let mut slow = heard(2, 74, |rank, s| (if rank == 0 || s % 5 > 2 { 1000 } else { 0 }, 100));
        for (second, words) in &mut slow.seconds {
            for word in words.values_mut().filter(|_| second % 5 != 4) {
                word.n = 0;
            }
        }
        // That is not in most of the seconds alike.
        assert!(slow.straggler("c").is_none());
    }

    #[test]
    fn a_pause_and_a_rank_that_is_silent() {
        // Rank 0 evaluates for 20 s.
        let mut pause = heard(2, 64, |rank, s| match (rank, s) {
            (0, 40..60) => (0, 0),
            (1, 40..60) => (1000, 1000),
            _ => (500, 300),
        });
        for words in pause.seconds.range_mut(40..60).map(|(_, words)| words) {
            for word in words.values_mut() {
                word.n = 0;
            }
        }
        assert!(pause.straggler("c").is_none());
        let mut silent = heard(2, 60, |rank, _| (if rank == 1 { 200 } else { 700 }, 300));
        for words in silent.seconds.values_mut() {
            words.remove(&0);
        }
        assert!(silent.straggler("c").is_none());
        assert!(Attendance::default().straggler("c").is_none());
    }
}
