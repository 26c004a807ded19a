//! Who comes late into collectives, without clocks that agree.
//!
//! All ranks leave a symmetric collective at about the same moment, so that the one whose kernel ran shortest came last.
//! A rank's lateness is the longest run of the same collective on any rank less its own. Rooted collectives do not vote:
//! their root may leave early.

mod reason;

use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::median;

use crate::bandwidth;
use crate::digest::{DoneDigest, StepDigest, is_symmetric};
use crate::event::{Confidence, Lag, Straggler};
use reason::{because, reason};

/// Collectives that wait for the word of more ranks.
const MAX_PENDING: usize = 32;
/// Numbers that are done with, so that digests that repeat them are not counted twice.
const MAX_JUDGED: usize = 256;
/// Ranks of a communicator that is followed at all.
const MAX_RANKS: u32 = 1 << 16;
/// How fast the past fades: of the last this many collectives. Chosen: some seconds of most jobs.
const MEMORY: f32 = 48.0;
/// Faded count of a rank's collectives before anything is said of it: a third of the memory, about 20 collectives. Chosen.
const LEAST_KEPT: f32 = MEMORY / 3.0;
/// Collectives, or steps, before anything is said. Chosen: half of the memory.
const LEAST_VOTES: u32 = 24;
/// Lateness below this share of the time between two collectives is jitter. Chosen: what costs a job less is not worth a word.
const LATE_SHARE: f32 = 0.05;
/// And below this, milliseconds: starts of kernels are seen with some microseconds of error. Chosen.
const LATE_MS: f32 = 0.2;
/// Late in this share of the collectives: persistent. Chosen: more often than not.
const PERSISTENT: f32 = 0.5;
/// Less is chance. Chosen: of a memory of 48, five.
const OCCASIONAL: f32 = 0.1;
/// And so is less than this many times what is usual among the ranks: jitter hits all alike. Chosen.
const OCCASIONAL_TIMES: f32 = 3.0;
/// Mean lateness over its own standard error: jitter that hits all alike stays below. Chosen: five is chance once in millions.
const SURE: f32 = 5.0;
/// An occasional straggler is late by at least this share of the time between two collectives. Chosen: rare and small costs nothing.
const OCCASIONAL_LATE: f32 = 0.5;
/// This many in a row, all late by about the same, are persistent, regardless of earlier steps: a fault begins at some
/// step. Chosen: seconds after it, and rare among ranks that take turns.
const CLEAR_RUN: f32 = 8.0;
/// Of what is late by about the same, the standard deviation is at most this share of the mean. Chosen.
const CLEAR_SPREAD: f32 = 0.5;
/// And the mean this many times what any other rank is late by in the mean: jitter makes runs, too. Chosen.
const CLEAR_TIMES: f32 = 4.0;
/// Such a run of late kernels costs the others at least this share of their time. On an H200 that nine jobs shared, it was 0.07 to 0.11
/// in a healthy one whose ranks took turns at more work, and 0.22 where one rank had more for good (2026-12-01).
const COSTLY_RUN: f32 = 0.15;
/// So many in a row may become a run. Chosen.
const FORMING: f32 = 3.0;
/// How fast the past fades for what a rank costs: of the last this many collectives. Chosen: long, since it may be rare.
const LONG_MEMORY: f32 = 512.0;
/// A rank that costs its peers this share of their time is late for good, however rarely it is. Chosen, above what ranks that take turns
/// on shared GPUs cost.
const COSTLY: f32 = 0.22;
/// From this share on it is worth a look at what it does. Chosen: a look costs the job little.
const WORTH_A_LOOK: f32 = 0.1;
/// And this many times what any other rank costs. Chosen.
const COSTLY_TIMES: f32 = 4.0;
/// By so many waits of equal length: a few long ones are checkpoints. Chosen.
const COSTLY_WAITS: f32 = 8.0;
/// Collectives of one kind that take this many times their best have become slow. Chosen: half the bandwidth is gone.
const SLOWED: f32 = 2.0;
/// And by at least this, milliseconds: below, starts of kernels vary as much. Chosen.
const SLOWED_MS: f32 = 1.0;
/// A wait for the network that takes this share of the collective is what it waits for. Chosen: most of it.
const WAIT_SHARE: f32 = 0.5;
/// And this many times the longest wait between any other two: only one link is slow. Chosen.
const WAIT_TIMES: f32 = 3.0;
/// Pairs of ranks that are counted.
const MAX_PAIRS: usize = 64;
/// After so many collectives without a whole step single ones count again. Chosen: more than most steps have.
const MAX_SINCE: u32 = 256;
/// The first ones of a kind may be slow: buffers are made, connections opened. Chosen.
const WARM_UP: u32 = 3;
/// Number of values in the mean, at first and later. Chosen.
const LEAST_MEAN: u32 = 8;
const MOST_MEAN: u32 = 16;
/// Share that stays, at each collective, of the sums of what was carried and for how long: the last ten count. Chosen.
const CARRIED_STAYS: f64 = 0.9;
/// A run is clear if its mean is at least this many times the lateness that counts at all. Chosen.
const CLEAR_LATE: f32 = 2.0;
/// A way that is slow in more than this share of the collectives is slow for certain. Chosen.
const CERTAIN_WAY: f32 = 0.8;
/// Kinds of collective whose best time is kept.
const MAX_KINDS: usize = 32;

/// One rank's word of one collective, milliseconds.
#[derive(Clone, Copy, Debug)]
struct CollectiveSample {
    ran: f32,
    queued: f32,
    gap: f32,
    /// From the previous one's end to this one's.
    period: f32,
    /// It waited for the network to take its data: peer, how long.
    sent_to: Option<(u32, f32)>,
}

#[derive(Debug)]
struct Pending {
    function: String,
    bytes: u64,
    words: Vec<Option<CollectiveSample>>,
    n: u32,
}

/// What is remembered of a rank, fading.
#[derive(Clone, Copy, Debug, Default)]
struct RankHistory {
    /// Weight of what follows.
    votes: f32,
    /// Lateness beyond the mean of the others, and its square.
    excess: f32,
    square: f32,
    /// Lateness beyond that of the others where it was later than they.
    behind: f32,
    /// The newest collectives in a row for which it was late: how many, their lateness, and its square.
    run: [f32; 3],
    /// Collectives for which it was late.
    late: f32,
    /// Sum of the squares of its lateness over those.
    late_square: f32,
    /// Sums over those: lateness, its part that the host made, and where the GPU was known to be busy.
    late_ms: f32,
    host_ms: f32,
    busy_ms: f32,
    /// Of the ranks that were not late, while this one was: how long their calls were queued.
    others_queued_ms: f32,
}

impl RankHistory {
    /// Its lateness is no chance.
    fn is_sure(&self) -> bool {
        let mean = self.excess / self.votes.max(f32::MIN_POSITIVE);
        let error = ((self.square / self.votes - mean * mean).max(0.0) / self.votes).sqrt();
        mean > 0.0 && mean >= SURE * error
    }
}

/// Time that one kind of collective takes once all are there.
#[derive(Clone, Copy, Debug)]
struct KindTimes {
    key: u64,
    best: f32,
    now: f32,
    votes: u32,
}

/// One communicator's.
#[derive(Debug, Default)]
pub struct Lateness {
    size: u32,
    /// By number, and of whole steps by how many collectives they have.
    pending: BTreeMap<(u64, u32), Pending>,
    judged: BTreeSet<(u64, u32)>,
    /// Most ranks that ever reported one collective.
    most: u32,
    ranks: Vec<RankHistory>,
    /// The same over [`LONG_MEMORY`] collectives, and the time from the first to the last of them, fading alike.
    long: Vec<RankHistory>,
    long_ms: f32,
    n_long: u32,
    votes: u32,
    period_ms: f32,
    kinds: Vec<KindTimes>,
    pairs: Vec<((u32, u32), f32, f32)>,
    /// Collectives whose waits were looked at.
    timed: u32,
    carried: f64,
    carried_ns: f64,
    /// Ranks tell of whole steps: these vote, not each collective.
    by_steps: bool,
    /// Collectives since the newest step.
    n_since: u32,
    has_news: bool,
}

impl Lateness {
    /// Takes ended collectives of one rank, and sums over its steps.
    pub fn take(&mut self, rank: u32, size: u32, recent: &[DoneDigest], steps: &[StepDigest]) {
        if !(2..=MAX_RANKS).contains(&size) || rank >= size {
            return;
        }
        if self.size != size {
            let ranks = vec![RankHistory::default(); size as usize];
            *self = Self { size, long: ranks.clone(), ranks, ..Self::default() };
        }
        if !self.by_steps && steps.iter().any(|s| s.ops > 0 && s.step > 0 && !self.is_known((s.first, s.ops)))
        {
            // What single collectives have shown does not compare with it.
            self.forget(true);
        }
        for done in recent.iter().filter(|d| is_symmetric(&d.function)) {
            let sent_to = done.longest_wait.as_ref().filter(|(phase, ..)| phase == "send-net");
            let word = CollectiveSample {
                ran: ms(done.ran_ns),
                queued: ms(done.queued_ns),
                gap: ms(done.gap_ns),
                period: ms(done.period_ns),
                sent_to: sent_to.map(|(_, peer, ns)| (*peer, ms(*ns))),
            };
            self.hear((done.number, 0), rank, word, &done.function, done.bytes);
        }
        for step in steps.iter().filter(|s| s.ops > 0 && s.step > 0) {
            // The sums are over somewhat more than one.
            let share = step.step as f32 / step.ops as f32;
            let word = CollectiveSample {
                ran: ms(step.ran_ns) * share,
                queued: ms(step.queued_ns) * share,
                gap: ms(step.gap_ns) * share,
                period: ms(step.period_ns) * share,
                sent_to: None,
            };
            self.hear((step.first, step.ops), rank, word, "", 0);
        }
        while self.pending.len() > 4 * MAX_PENDING {
            self.pending.pop_first();
        }
    }

    /// From here on whole steps vote, or single collectives.
    fn forget(&mut self, by_steps: bool) {
        let ranks = vec![RankHistory::default(); self.size as usize];
        (self.by_steps, self.long, self.ranks) = (by_steps, ranks.clone(), ranks);
        (self.votes, self.period_ms, self.n_long, self.long_ms, self.n_since) = (0, 0.0, 0, 0.0, 0);
    }

    /// It was judged, or is older than all that is remembered.
    fn is_known(&self, key: (u64, u32)) -> bool {
        let is_old = self.judged.len() >= MAX_JUDGED && self.judged.first().is_some_and(|f| key < *f);
        is_old || self.judged.contains(&key)
    }

    fn hear(&mut self, key: (u64, u32), rank: u32, word: CollectiveSample, function: &str, bytes: u64) {
        if self.is_known(key) {
            return;
        }
        let size = self.size as usize;
        let pending = self.pending.entry(key).or_insert_with(|| Pending {
            function: function.to_owned(),
            bytes,
            words: vec![None; size],
            n: 0,
        });
        if let Some(slot) = pending.words.get_mut(rank as usize).filter(|w| w.is_none()) {
            *slot = Some(word);
            pending.n += 1;
            self.most = self.most.max(pending.n);
        }
    }

    /// Judges the collectives that are completely reported, in their order: the order of arrival does not matter.
    pub fn settle(&mut self) {
        let full: Vec<(u64, u32)> =
            self.pending.iter().filter(|(_, p)| p.n == self.size).map(|(n, _)| *n).collect();
        let left = self.pending.len() - full.len();
        let late = self.pending.iter().filter(|(_, p)| p.n != self.size).map(|(n, _)| *n);
        let mut closed: Vec<(u64, u32)> = late.take(left.saturating_sub(MAX_PENDING)).chain(full).collect();
        closed.sort_unstable();
        for number in closed {
            self.close(number);
        }
    }

    /// All that will be heard of a collective has been.
    fn close(&mut self, key: (u64, u32)) {
        let Some(pending) = self.pending.remove(&key) else { return };
        self.judged.insert(key);
        if self.judged.len() > MAX_JUDGED {
            self.judged.pop_first();
        }
        // Ranks without a plugin never tell; those that do must.
        if pending.n >= 2 && pending.n == self.most {
            if key.1 == 0 {
                let shortest = pending.words.iter().flatten().map(|w| w.ran).fold(f32::MAX, f32::min);
                self.time(&pending, shortest);
                self.ways(&pending, shortest);
            }
            self.n_since = if key.1 > 0 { 0 } else { self.n_since.saturating_add(1) };
            if self.by_steps && self.n_since > MAX_SINCE {
                // Its steps have changed, and are not whole any more.
                self.forget(false);
            }
            if (key.1 > 0) == self.by_steps {
                self.cost(&pending);
                self.vote(&pending);
            }
        }
    }

    fn vote(&mut self, pending: &Pending) {
        let period = pending.period_ms();
        if period > 0.0 {
            let is_first = self.period_ms == 0.0;
            self.period_ms += (period - self.period_ms) / if is_first { 1.0 } else { 16.0 };
        }
        let least = LATE_MS.max(LATE_SHARE * self.period_ms);
        count(&mut self.ranks, pending, least, 1.0 - 1.0 / MEMORY);
        self.votes = self.votes.saturating_add(1);
        self.has_news = true;
    }

    /// What the ranks cost one another. Of many collectives a step, few are reported one by one, and more often the
    /// long ones.
    fn cost(&mut self, pending: &Pending) {
        let keep = 1.0 - 1.0 / LONG_MEMORY;
        self.long_ms = self.long_ms * keep + pending.period_ms();
        self.n_long = self.n_long.saturating_add(1);
        count(&mut self.long, pending, LATE_MS, keep);
        self.has_news = true;
    }

    /// Share of their time that a rank costs the others, on balance: what it waits for them counts against it, so that noise that
    /// hits all alike is nothing. Negative where the others cost it more; none before there were enough, or of a few long waits.
    fn balance(&self, rank: usize) -> Option<f32> {
        let standing = self.long.get(rank).filter(|_| self.n_long >= LEAST_VOTES && self.long_ms > 0.0)?;
        let waits = standing.late_ms * standing.late_ms / standing.late_square.max(f32::MIN_POSITIVE);
        (waits >= COSTLY_WAITS).then_some((standing.excess / self.long_ms).min(1.0))
    }

    /// The rank that costs the others much of their time, and which share.
    fn costly(&self) -> Option<(usize, &RankHistory, f32)> {
        let shares = (0..self.long.len()).filter_map(|rank| Some((rank, self.balance(rank)?)));
        let (rank, share) = shares.max_by(|a, b| a.1.total_cmp(&b.1))?;
        let standing = self.long.get(rank)?;
        let others = || self.long.iter().enumerate().filter(|(other, _)| *other != rank).map(|(_, s)| s);
        let is_most = standing.excess >= COSTLY_TIMES * others().map(|s| s.excess).fold(0.0, f32::max);
        // A few waits of one rank, or many among those of others.
        let is_alone = standing.late_ms >= COSTLY_TIMES * others().map(|s| s.late_ms).fold(0.0, f32::max);
        let is_no_chance = is_alone || standing.is_sure();
        // What costs less is told later: it may be late in most of its collectives, which takes as many to say.
        let least = if self.n_long < 2 * LEAST_VOTES { COSTLY } else { WORTH_A_LOOK };
        (share >= least && is_most && is_no_chance).then_some((rank, standing, share))
    }

    /// How long a collective takes once all are there.
    fn time(&mut self, pending: &Pending, shortest: f32) {
        if let Some(factor) = bandwidth::factor(&pending.function, self.size) {
            self.carried = self.carried * CARRIED_STAYS + factor * pending.bytes as f64;
            self.carried_ns = self.carried_ns * CARRIED_STAYS + f64::from(shortest) * 1e6;
        }
        let key = crate::rhythm::kind(&pending.function, pending.bytes);
        if let Some(kind) = self.kinds.iter_mut().find(|k| k.key == key) {
            kind.votes = kind.votes.saturating_add(1);
            let n = kind.votes.saturating_sub(WARM_UP).clamp(1, MOST_MEAN);
            kind.now += (shortest - kind.now) / n as f32;
            // The best is of the mean, not of one lucky collective.
            if kind.votes >= WARM_UP + LEAST_MEAN {
                kind.best = kind.best.min(kind.now);
            }
        } else if self.kinds.len() < MAX_KINDS {
            self.kinds.push(KindTimes { key, best: f32::MAX, now: shortest, votes: 1 });
        }
    }

    /// Between which two ranks the network holds a collective up.
    fn ways(&mut self, pending: &Pending, shortest: f32) {
        self.timed = self.timed.saturating_add(1);
        let keep = 1.0 - 1.0 / MEMORY;
        for (_, n, ms) in &mut self.pairs {
            *n *= keep;
            *ms *= keep;
        }
        let sent = |(rank, word): (usize, &Option<CollectiveSample>)| {
            let (peer, ms) = (*word)?.sent_to?;
            Some(((rank as u32, peer), ms))
        };
        let waits: Vec<((u32, u32), f32)> = pending.words.iter().enumerate().filter_map(sent).collect();
        let Some((longest, ms)) = waits.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)) else { return };
        if ms < WAIT_SHARE * shortest || ms < LATE_MS {
            return;
        }
        let long = || waits.iter().filter(|(_, other)| ms < WAIT_TIMES * other).map(|(pair, _)| *pair);
        let pair = if long().count() == 1 {
            longest
        } else {
            // Several ways that have one end in common: that rank's.
            let in_all = |rank: &u32| long().all(|(from, to)| from == *rank || to == *rank);
            match [longest.0, longest.1].into_iter().filter(in_all).collect::<Vec<_>>()[..] {
                [one] if self.size > 3 => (one, one),
                _ => return,
            }
        };
        if let Some((_, n, sum)) = self.pairs.iter_mut().find(|(p, ..)| *p == pair) {
            *n += 1.0;
            *sum += ms;
        } else if self.pairs.len() < MAX_PAIRS {
            self.pairs.push((pair, 1.0, ms));
        } else if let Some(least) = self.pairs.iter_mut().min_by(|a, b| a.1.total_cmp(&b.1)) {
            *least = (pair, 1.0, ms);
        }
    }

    /// Something was learnt since [`Self::straggler`] was last asked.
    pub fn has_news(&self) -> bool {
        self.has_news
    }

    /// Mean lateness of a rank beyond that of the others, milliseconds, and the share of the last collectives for which it was
    /// late. None before there were enough.
    pub fn of(&self, rank: u32) -> Option<(f64, f64)> {
        let standing =
            self.ranks.get(rank as usize).filter(|s| s.votes > 0.0 && self.votes >= LEAST_VOTES)?;
        Some((
            f64::from(standing.excess / standing.votes).max(0.0),
            f64::from(standing.late / standing.votes),
        ))
    }

    /// Bus bandwidth of the newest collectives while they ran, GB/s.
    pub fn busbw_gbs(&self) -> Option<f64> {
        (self.carried > 0.0 && self.carried_ns > 0.0).then(|| self.carried / self.carried_ns)
    }

    /// Slowdown of collectives relative to their best time, if they have become slow on all ranks while no rank is
    /// late.
    pub fn slowed(&self) -> Option<f64> {
        self.slow_kinds(2 * LEAST_VOTES).map(|k| f64::from(k.now / k.best)).max_by(f64::total_cmp)
    }

    /// The same as milliseconds now and at best, of the kind that costs most. For callers that know more than that, as
    /// soon as there is a best; otherwise as above.
    pub fn slowed_ms(&self, knows_more: bool) -> Option<(f64, f64)> {
        let cost = |k: &&KindTimes| k.now - k.best;
        let votes = if knows_more { 0 } else { 2 * LEAST_VOTES };
        let most = self.slow_kinds(votes).max_by(|a, b| cost(a).total_cmp(&cost(b)))?;
        Some((most.now.into(), most.best.into()))
    }

    fn slow_kinds(&self, votes: u32) -> impl Iterator<Item = &KindTimes> {
        let is_slow = |k: &&KindTimes| k.now >= SLOWED * k.best && k.now - k.best >= SLOWED_MS;
        self.kinds.iter().filter(move |k| k.votes >= votes).filter(is_slow)
    }

    /// The rank that is late most, or the two between which the network is slow.
    pub fn straggler(&mut self, comm: &str, job_rank: impl Fn(u32) -> u32) -> Option<Straggler> {
        self.has_news = false;
        let late = if self.votes < LEAST_VOTES { None } else { self.late(comm, &job_rank) };
        let late = match late {
            Some(late) if late.persistent => Some(late),
            occasional => self.costs(comm, &job_rank).or(occasional),
        };
        late.or_else(|| if self.votes < LEAST_VOTES { None } else { self.slow_way(comm, &job_rank) })
    }

    fn costs(&self, comm: &str, job_rank: &impl Fn(u32) -> u32) -> Option<Straggler> {
        let (rank, standing, share) = self.costly()?;
        let (of, confidence) = reason(standing);
        let late_ms = f64::from(standing.late_ms / standing.late);
        let rank = job_rank(rank as u32);
        Some(Straggler {
            rank,
            late_ms,
            share: f64::from(standing.late / standing.votes),
            cost: Some(f64::from(share)),
            over_s: None,
            persistent: share >= COSTLY,
            of,
            confidence,
            comm: comm.to_owned(),
            peer: None,
            text: format!(
                "the others wait for rank {rank} for {:.0} % of the time, {late_ms:.1} ms in the mean: {}",
                share * 100.0,
                because(of)
            ),
        })
    }

    fn late(&self, comm: &str, job_rank: &impl Fn(u32) -> u32) -> Option<Straggler> {
        let least = LATE_MS.max(LATE_SHARE * self.period_ms);
        let told = self.ranks.iter().enumerate().filter(|(_, s)| s.votes >= LEAST_KEPT);
        let is_late = |s: &RankHistory| s.excess / s.votes >= least && s.is_sure();
        let share = |s: &RankHistory| s.late / s.votes;
        let persistent = told
            .clone()
            .filter(|(rank, s)| share(s) >= PERSISTENT && is_late(s) || self.is_clear(*rank, s, least))
            .filter(|(rank, s)| share(s) >= PERSISTENT || self.is_worth_a_run(*rank, s));
        let usual = usual(told.clone().map(|(_, s)| share(s)));
        let occasional = told.filter(|(_, s)| {
            share(s) >= OCCASIONAL.max(OCCASIONAL_TIMES * usual)
                && s.late_ms / s.late >= OCCASIONAL_LATE * self.period_ms
        });
        let most = |a: &(usize, &RankHistory), b: &(usize, &RankHistory)| a.1.late_ms.total_cmp(&b.1.late_ms);
        let is_persistent = persistent.clone().next().is_some();
        let (rank, standing) =
            if is_persistent { persistent.max_by(most)? } else { occasional.max_by(most)? };
        let (of, confidence) = reason(standing);
        let late_ms = f64::from(standing.late_ms / standing.late);
        let cost = self.balance(rank).map(|cost| f64::from(cost.max(0.0)));
        let rank = job_rank(rank as u32);
        let why = because(of);
        let share = f64::from(share(standing));
        Some(Straggler {
            rank,
            late_ms,
            share,
            cost,
            over_s: None,
            persistent: is_persistent,
            of,
            confidence,
            comm: comm.to_owned(),
            peer: None,
            text: format!(
                "rank {rank} comes {late_ms:.1} ms late into {:.0} % of the {}: {why}",
                share * 100.0,
                if self.by_steps { "steps" } else { "collectives" }
            ),
        })
    }

    /// Whether what is late in a run alone costs enough: kernels of ranks whose GPU other processes use, too, take turns.
    fn is_worth_a_run(&self, rank: usize, standing: &RankHistory) -> bool {
        reason(standing).0 != Lag::Compute || self.balance(rank).is_some_and(|cost| cost >= COSTLY_RUN)
    }

    /// Late in all of the newest, by about the same, and as no other is: since a moment ago, for good.
    fn is_clear(&self, rank: usize, standing: &RankHistory, least: f32) -> bool {
        let [n, sum, square] = standing.run;
        if n < CLEAR_RUN {
            return false;
        }
        let mean = sum / n;
        let spread = (square / n - mean * mean).max(0.0).sqrt();
        let others = self.ranks.iter().enumerate().filter(|(r, s)| *r != rank && s.votes > 0.0);
        let other = others.map(|(_, s)| s.behind / s.votes).fold(0.0, f32::max);
        mean >= CLEAR_LATE * least && spread <= CLEAR_SPREAD * mean && mean >= CLEAR_TIMES * other
    }

    /// Somebody has been late for some collectives in a row: why they take longer will show.
    pub fn is_forming(&self) -> bool {
        self.ranks.iter().any(|s| s.run[0] >= FORMING)
    }

    fn slow_way(&self, comm: &str, job_rank: &impl Fn(u32) -> u32) -> Option<Straggler> {
        let ((from, to), n, sum) = self.pairs.iter().max_by(|a, b| a.1.total_cmp(&b.1)).copied()?;
        let votes = (1.0 - (1.0 - 1.0 / MEMORY).powi(self.timed.min(1000) as i32)) * MEMORY;
        let share = n / votes;
        if share < PERSISTENT {
            return None;
        }
        let (rank, late_ms) = (job_rank(from), f64::from(sum / n));
        let peer = (from != to).then(|| job_rank(to));
        // Of a few ranks some have an end in common by chance.
        if peer.is_none() && self.slowed_ms(true).is_none() {
            return None;
        }
        let way = peer.map_or_else(
            || format!("to and from rank {rank}"),
            |peer| format!("from rank {rank} to rank {peer}"),
        );
        Some(Straggler {
            rank,
            late_ms,
            share: f64::from(share).min(1.0),
            cost: None,
            over_s: None,
            persistent: true,
            of: Lag::Network,
            confidence: if share > CERTAIN_WAY { Confidence::High } else { Confidence::Medium },
            comm: comm.to_owned(),
            peer,
            text: format!(
                "no rank is late; the network carries data {way} slowly, {late_ms:.1} ms per collective"
            ),
        })
    }
}

impl Pending {
    /// From the end of the one before to its own, as is usual among the ranks, ms.
    fn period_ms(&self) -> f32 {
        usual(self.words.iter().flatten().map(|w| w.period).filter(|p| *p > 0.0))
    }
}

/// Counts one collective: who was late, by how much, and why. `least` is what counts, ms; of what was counted before, the share
/// `keep` is kept.
fn count(ranks: &mut [RankHistory], pending: &Pending, least: f32, keep: f32) {
    let words = || pending.words.iter().enumerate().filter_map(|(r, w)| Some((r, (*w)?)));
    let longest = words().map(|(_, w)| w.ran).fold(0.0, f32::max);
    let sum: f32 = words().map(|(_, w)| longest - w.ran).sum();
    let (gap, queued) = (usual(words().map(|(_, w)| w.gap)), usual(words().map(|(_, w)| w.queued)));
    for (rank, word) in words() {
        let Some(standing) = ranks.get_mut(rank) else { continue };
        // Against the mean of the others: of two ranks, neither is the usual one.
        let own = longest - word.ran;
        let excess = own - (sum - own) / (pending.n - 1) as f32;
        standing.votes = standing.votes * keep + 1.0;
        standing.excess = standing.excess * keep + excess;
        standing.square = standing.square * keep + excess * excess;
        standing.behind = standing.behind * keep + excess.max(0.0);
        for sum in [
            &mut standing.late,
            &mut standing.late_square,
            &mut standing.late_ms,
            &mut standing.host_ms,
            &mut standing.busy_ms,
            &mut standing.others_queued_ms,
        ] {
            *sum *= keep;
        }
        if excess < least {
            standing.run = [0.0; 3];
        } else {
            let [n, sum, square] = standing.run;
            standing.run = [n + 1.0, sum + excess, square + excess * excess];
            standing.late += 1.0;
            standing.late_ms += excess;
            standing.late_square += excess * excess;
            let host = (word.gap - gap).clamp(0.0, excess);
            standing.host_ms += host;
            // Between the last collective's end and this kernel's start, what is not the host's is the GPU's. A call that
            // came before that end waited for nothing but the GPU.
            let waited = (word.period - word.ran - word.gap).min(word.queued);
            standing.busy_ms += waited.clamp(0.0, excess - host);
            standing.others_queued_ms += queued;
        }
    }
}

fn ms(ns: u64) -> f32 {
    (ns as f64 / 1e6) as f32
}

/// What is usual; 0 without any value.
fn usual(values: impl Iterator<Item = f32>) -> f32 {
    median::lower(values).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::{Lateness, MAX_JUDGED, MAX_PENDING};
    use crate::digest::{DoneDigest, StepDigest};
    use crate::event::{Confidence, Lag};

    fn done(number: u64, ran_ms: u64, gap_ms: u64) -> DoneDigest {
        DoneDigest {
            number,
            function: "AllReduce".to_owned(),
            bytes: 1 << 20,
            ran_ns: ran_ms * 1_000_000,
            gap_ns: gap_ms * 1_000_000,
            queued_ns: 1000,
            period_ns: (ran_ms + gap_ms) * 1_000_000,
            ..DoneDigest::default()
        }
    }

    /// Collectives of four ranks; what each says of each.
    fn heard(n: u64, say: impl Fn(u64, u32) -> DoneDigest) -> Lateness {
        let mut late = Lateness::default();
        for number in 0..n {
            for rank in 0..4 {
                late.take(rank, 4, &[say(number, rank)], &[]);
            }
            late.settle();
        }
        late
    }

    #[test]
    fn the_one_whose_kernel_ran_shortest_came_last() {
        let mut late = heard(60, |n, rank| if rank == 2 { done(n, 10, 40) } else { done(n, 40, 10) });
        let told = late.straggler("c", |r| r + 100).unwrap();
        assert_eq!((told.rank, told.of, told.persistent), (102, Lag::Host, true), "{told:?}");
        assert!((told.late_ms - 30.0).abs() < 0.1 && told.share > 0.99, "{told:?}");
        // Nobody's call waits for a GPU: a slow GPU would make a late call too.
        assert_eq!(told.confidence, Confidence::Medium);
        assert!(late.of(0).unwrap().0 < 0.01 && late.of(2).unwrap().0 > 29.0);
        assert!(!late.has_news());
    }

    #[test]
    fn two_ranks_between_which_the_network_is_slow() {
        let mut late = heard(60, |n, rank| {
            let wait = if rank == 1 { 30_000_000 } else { 1_000_000 };
            DoneDigest {
                longest_wait: Some(("send-net".to_owned(), (rank + 1) % 4, wait)),
                ..done(n, 40, 10)
            }
        });
        let told = late.straggler("c", |r| r).unwrap();
        assert_eq!((told.rank, told.peer, told.of), (1, Some(2), Lag::Network), "{told:?}");
    }

    #[test]
    fn a_rank_to_and_from_which_the_network_is_slow() {
        // Ranks 1 and 2 send over the link of 2, in a ring; from a moment on.
        let job = |slowed: bool, long: [u32; 2]| {
            heard(120, move |n, rank| {
                let is_slow = slowed && n >= 40;
                let wait = if long.contains(&rank) { 30_000_000 } else { 1_000_000 };
                let longest_wait = Some(("send-net".to_owned(), (rank + 1) % 4, wait));
                DoneDigest { longest_wait, ..done(n, if is_slow { 40 } else { 10 }, 10) }
            })
        };
        let told = job(true, [1, 2]).straggler("c", |r| r).unwrap();
        assert_eq!((told.rank, told.peer, told.of), (2, None, Lag::Network), "{told:?}");
        // It was always so; and two that have no end in common.
        assert_eq!(job(false, [1, 2]).straggler("c", |r| r), None);
        assert_eq!(job(true, [0, 2]).straggler("c", |r| r), None);
    }

    #[test]
    fn slow_for_all_alike() {
        let mut late = heard(200, |n, _| done(n, if n < 100 { 10 } else { 35 }, 10));
        assert_eq!(late.straggler("c", |r| r), None);
        assert!(late.slowed().is_some_and(|times| times > 2.0 && times < 4.0), "{:?}", late.slowed());
        assert_eq!(heard(200, |n, _| done(n, 10 + n % 3, 10)).slowed(), None);
    }

    #[test]
    fn what_has_a_root_does_not_vote() {
        let rooted = |n, rank| DoneDigest {
            function: "Broadcast".to_owned(),
            ..done(n, 10 + u64::from(rank) * 10, 10)
        };
        let mut late = heard(60, rooted);
        assert_eq!((late.straggler("c", |r| r), late.of(0)), (None, None));
    }

    #[test]
    fn a_rank_that_is_late_now_and_then_and_costs_much() {
        // Every `every`-th collective it is late by `by` ms, where the others take 10.
        let job = |every: u64, by: u64, n: u64| {
            heard(n, move |n, rank| match (n % every == 0, rank == 2) {
                (true, false) => done(n, 1 + by, 9),
                (true, true) => done(n, 1, 9 + by),
                _ => done(n, 1, 9),
            })
        };
        let told = job(20, 300, 200).straggler("c", |r| r).unwrap();
        assert_eq!((told.rank, told.persistent, told.of), (2, true, Lag::Host), "{told:?}");
        assert!(told.text.contains("60 % of the time"), "{told:?}");
        // Costs little; a few long pauses.
        assert_eq!(job(20, 30, 200).straggler("c", |r| r).filter(|s| s.persistent), None);
        assert_eq!(job(100, 5_000, 250).straggler("c", |r| r).filter(|s| s.persistent), None);
    }

    #[test]
    fn a_rank_that_costs_more_than_it_loses_among_ranks_that_are_late_by_turns() {
        // GPUs that are shared: each collective somebody else comes 15 ms late; rank 2 now and then by more.
        let job = |by: u64| {
            heard(400, move |n, rank| {
                let is_late = n * 7 % 11 % 4 == u64::from(rank);
                let late = u64::from(is_late) * 15 + if rank == 2 && n % 3 == 0 { by } else { 0 };
                let most = 15.max(u64::from(n % 3 == 0) * (by + 15));
                done(n, 1 + most - late.min(most), 5 + late)
            })
        };
        let told = |by| job(by).straggler("c", |r| r).map(|s| (s.rank, s.persistent));
        assert_eq!((told(60), told(12), told(0)), (Some((2, true)), Some((2, false)), None));
    }

    #[test]
    fn steps_that_are_told_of_no_more() {
        let mut late = Lateness::default();
        let step = StepDigest { first: 4, ops: 4, step: 4, ran_ns: 1, period_ns: 9, ..StepDigest::default() };
        for number in 8..500 {
            for rank in 0..4 {
                let ran = if rank == 2 { 10 } else { 40 };
                // The digests repeat the last whole step, which was long ago.
                late.take(rank, 4, &[done(number, ran, 10)], std::slice::from_ref(&step));
            }
            late.settle();
        }
        assert_eq!(late.straggler("c", |r| r).map(|s| (s.rank, s.persistent)), Some((2, true)));
    }

    #[test]
    fn ranks_that_never_tell_and_words_that_come_twice() {
        let mut late = Lateness::default();
        for number in 0..400 {
            for rank in 0..3 {
                let ran = if rank == 0 { 10 } else { 40 };
                late.take(rank, 4, &[done(number, ran, 10), done(number, ran, 10)], &[]);
            }
            late.settle();
            assert!(late.pending.len() <= MAX_PENDING && late.judged.len() <= MAX_JUDGED);
        }
        assert_eq!(late.straggler("c", |r| r).map(|s| s.rank), Some(0));
        late.take(9, 4, &[done(1, 1, 1)], &[]);
        late.take(0, u32::MAX, &[done(1, 1, 1)], &[]);
        late.settle();
    }
}
