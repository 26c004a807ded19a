//! Who keeps the others waiting in sends and receives: a slow stage of a pipeline, a slow neighbour in an exchange.
//!
//! The kernel of a receive runs until its peer has sent, so the share of the time in which a rank's receives run is what it waits
//! for others. Stages of a pipeline wait for one another even where they are alike. Where one rank waits little, and all others
//! much, that one is what they wait for.

use std::collections::BTreeMap;

use crate::digest::{ProcessState, RankDigest, ReceiveDigest};
use crate::event::{Confidence, Lag, Straggler};

/// Nothing is said of a shorter time, milliseconds.
const LEAST_MS: u32 = 5_000;
/// Or of fewer receives.
const LEAST_RECEIVES: u32 = 16;
/// One wait of this share of all is a pause (a compilation, a checkpoint).
const PAUSE: f32 = 0.25;
/// Each of the others waits for this share of its time. On two H200, stages of equal pipelines waited for 29 to 44 %.
const WAITS: f32 = 0.5;
/// More than the one that they wait for, by this share of the time,
const MORE: f32 = 0.3;
/// and this many times as long.
const TIMES: f32 = 2.0;
/// In this many words in a row.
const IN_A_ROW: u32 = 12;
/// Ranks that are followed.
const MAX_RANKS: usize = 4096;

/// What the ranks of a job say of their receives.
#[derive(Debug, Default)]
pub struct Messages {
    newest: BTreeMap<u32, ReceiveDigest>,
    /// Who has been waited for, and how many times in a row that was seen.
    held: Option<(u32, u32)>,
}

impl Messages {
    /// Takes the newest words of one agent's ranks. Of a rank that was started again, its living process speaks.
    pub fn hear(&mut self, ranks: &[RankDigest]) {
        let lives = |rank: &RankDigest| !matches!(rank.process, ProcessState::Dead | ProcessState::Zombie);
        let number =
            |rank: &RankDigest| rank.rank.or_else(|| rank.comms.iter().max_by_key(|comm| comm.size)?.rank);
        let (living, dead): (Vec<_>, Vec<_>) = ranks.iter().partition(|rank| lives(rank));
        for number in dead.into_iter().filter_map(number) {
            self.take(number, None);
        }
        for rank in living {
            if let Some(number) = number(rank) {
                self.take(number, rank.receives.as_ref().filter(|_| !rank.is_ended));
            }
        }
    }

    fn take(&mut self, rank: u32, receives: Option<&ReceiveDigest>) {
        match receives {
            Some(receives) if self.newest.len() < MAX_RANKS || self.newest.contains_key(&rank) => {
                self.newest.insert(rank, receives.clone());
            }
            _ => {
                self.newest.remove(&rank);
            }
        }
    }

    /// The rank for which all others wait. To be called once for each look.
    pub fn straggler(&mut self, comm: &str) -> Option<Straggler> {
        let found = self.awaited();
        let n = match (&found, self.held) {
            (Some((rank, ..)), Some((before, n))) if *rank == before => n.saturating_add(1),
            (Some(_), _) => 1,
            (None, _) => 0,
        };
        let (rank, least, own) = found.or_else(|| {
            self.held = None;
            None
        })?;
        self.held = Some((rank, n));
        if n < IN_A_ROW {
            return None;
        }
        let others = self.newest.iter().filter(|(other, _)| **other != rank).map(|(_, word)| word);
        let (ran, count) =
            others.fold((0.0, 0.0), |(ran, n), word| (ran + f64::from(word.ran_ms), n + f64::from(word.n)));
        let cost = f64::from(least - own);
        Some(Straggler {
            rank,
            late_ms: ran / count,
            share: 1.0,
            cost: Some(cost),
            over_s: None,
            persistent: true,
            of: Lag::Unknown,
            confidence: Confidence::High,
            comm: comm.to_owned(),
            peer: None,
            text: format!(
                "the others wait for messages of rank {rank} for {:.0} % of the time, it waits for {:.0} %: it does more, or does it more slowly",
                least * 100.0,
                own * 100.0
            ),
        })
    }

    /// A rank, what each of the others waits at least, and what it waits itself: shares of the time.
    fn awaited(&self) -> Option<(u32, f32, f32)> {
        let mut shares = Vec::new();
        for (rank, word) in &self.newest {
            let is_enough = word.span_ms >= LEAST_MS && word.n >= LEAST_RECEIVES;
            let is_even = word.longest_ms as f32 <= PAUSE * word.ran_ms as f32 || word.ran_ms < LEAST_MS / 10;
            if !is_enough || !is_even {
                return None;
            }
            shares.push((*rank, word.ran_ms as f32 / word.span_ms as f32));
        }
        shares.sort_by(|a, b| a.1.total_cmp(&b.1));
        let ((rank, own), (_, least)) = (*shares.first()?, *shares.get(1)?);
        (least >= WAITS && least - own >= MORE && least >= TIMES * own).then_some((rank, least, own))
    }
}

#[cfg(test)]
mod tests {
    use super::{IN_A_ROW, Messages};
    use crate::digest::ReceiveDigest;

    /// Shares of the time, percent, that the ranks' receives run.
    fn told(shares: &[u32], longest_ms: u32) -> Option<(u32, f64)> {
        let mut messages = Messages::default();
        let mut last = None;
        for _ in 0..IN_A_ROW {
            for (rank, share) in (0..).zip(shares) {
                let word = ReceiveDigest { span_ms: 20_000, ran_ms: share * 200, n: 100, longest_ms };
                messages.take(rank, Some(&word));
            }
            assert!(last.is_none(), "too early");
            last = messages.straggler("a");
        }
        last.map(|straggler| (straggler.rank, straggler.cost.unwrap_or_default()))
    }

    #[test]
    fn one_that_waits_little_and_the_others_much() {
        assert_eq!(told(&[63, 27], 150).map(|(rank, _)| rank), Some(1));
        assert_eq!(told(&[23, 84], 150).map(|(rank, _)| rank), Some(0));
        assert_eq!(told(&[60, 20, 58, 61], 150).map(|(rank, _)| rank), Some(1));
    }

    #[test]
    fn ranks_that_are_alike() {
        assert_eq!(told(&[42, 29], 150), None);
        assert_eq!(told(&[66, 73], 150), None);
        // Several are waited for by the last one.
        assert_eq!(told(&[10, 20, 58, 61], 150), None);
    }

    #[test]
    fn one_long_pause() {
        assert_eq!(told(&[63, 27], 9_000), None);
    }

    #[test]
    fn a_rank_that_has_ended_says_nothing() {
        use crate::digest::{ProcessState, RankDigest};
        let word = |rank: u32, share: u32, process| RankDigest {
            rank: Some(rank),
            process,
            receives: Some(ReceiveDigest { span_ms: 20_000, ran_ms: share * 200, n: 100, longest_ms: 150 }),
            ..RankDigest::default()
        };
        let told = |ranks: &[RankDigest]| {
            let mut messages = Messages::default();
            let mut last = None;
            for _ in 0..IN_A_ROW {
                messages.hear(ranks);
                last = messages.straggler("a");
            }
            last.map(|straggler| straggler.rank)
        };
        let (alive, dead) = (ProcessState::Alive, ProcessState::Dead);
        assert_eq!(told(&[word(0, 63, alive), word(1, 27, alive)]), Some(1));
        assert_eq!(told(&[word(0, 63, alive), word(1, 27, dead)]), None);
        // Started again: the new process speaks for it.
        assert_eq!(told(&[word(0, 63, alive), word(1, 27, alive), word(1, 60, dead)]), Some(1));
    }

    #[test]
    fn nobody_tells_or_one_alone() {
        let mut messages = Messages::default();
        assert!(messages.straggler("a").is_none());
        let word = ReceiveDigest { span_ms: 20_000, ran_ms: 15_000, n: 100, longest_ms: 200 };
        messages.take(0, Some(&word));
        assert!((0..2 * IN_A_ROW).all(|_| messages.straggler("a").is_none()));
        messages.take(1, Some(&ReceiveDigest { ran_ms: 1_000, ..word }));
        messages.take(1, None);
        assert!((0..2 * IN_A_ROW).all(|_| messages.straggler("a").is_none()));
    }
}
