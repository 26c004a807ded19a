//! The rhythm that a communicator has shown, and how long it may pause.
//!
//! What is learnt are pauses: how long nothing moved in what the communicator waits for. The longest pause that recurs, or
//! the step that the calls show, is the usual one; a stall is several times that. Rarer pauses (evaluation, checkpoint) are
//! remembered one by one, with the kind of call that they came before.

use crate::digest::PeriodDigest;

/// A pause that was seen may last longer the next time: evaluation sets and storage vary. Chosen.
const SEEN_SLACK: f64 = 2.0;
/// After all ranks were outside together, they come back this much of that time apart: all compile or evaluate, and not all
/// are equally fast. Chosen.
const TOGETHER_SLACK: f64 = 1.0;
/// All ranks outside together for this many times the longest such pause is a stall. Chosen: a longer evaluation is no alarm.
const OUTSIDE_FACTOR: f64 = 3.0;
/// Patience with a communicator that has shown no rhythm in a job that has, in that job's own patience. Chosen.
const NEW_SLACK: f64 = 2.0;
/// Share of the pauses from which on a length is usual rather than rare. Chosen: once in 20 steps.
const USUAL_SHARE: f64 = 0.05;
/// And no fewer than this: two may be chance.
const USUAL_LEAST: u32 = 3;
/// Pauses after which all counts are halved, so that a job may change its ways. Chosen: an hour of steps of a second.
const MEMORY: u32 = 4096;
/// Rare pauses that are remembered.
const MAX_RARE: usize = 32;
/// Kinds of call whose pauses are remembered apart.
const MAX_KINDS: usize = 64;
/// Looks at which a kind of call was met before its own pauses speak for it. Chosen.
const KNOWN_KIND: u32 = 20;
/// Time over which a training loop must have been seen before it is a rhythm: a burst of calls at start is none. Chosen.
const LEAST_SPAN_NS: i64 = 3_000_000_000;
/// As many steps alike are one in less time, with more patience until it has taken that time. Chosen.
const YOUNG_STEPS: u32 = 16;
/// As above, where each step is a single call: loops that warm up have some, too. Chosen.
const YOUNG_CALLS: u32 = 40;
/// And in no less time than this: calls that warm up pass at once. Chosen.
const YOUNG_SPAN_NS: i64 = 1_000_000_000;
/// How much more patience a young rhythm has. Chosen.
const YOUNG_SLACK: f64 = 1.5;
/// Steps that it must have made: two may be chance. Chosen.
const LEAST_STEPS: u32 = 3;
/// Where each step is a single call, which also occurs before training. Chosen.
const LEAST_CALLS: u32 = 10;
/// Where the calls show no step, time over which they came steadily. Longer for calls that also occur before the first
/// step. Chosen.
const STEADY_NS: i64 = 20_000_000_000;
/// As above, for those calls. Chosen.
const STEADY_UNSURE_NS: i64 = 60_000_000_000;
/// Looks that saw something move, in that time. Chosen.
const STEADY_LOOKS: u32 = 8;
/// A pause longer than this breaks steadiness: the least that may be a stall, `Settings::stall_floor_ns`.
const STEADY_PAUSE_NS: i64 = 5_000_000_000;

/// Buckets of the histogram: quarters of an octave from 2^24 ns (17 ms) on.
const BUCKETS: usize = 100;
const FIRST_OCTAVE: f64 = 24.0;

/// A pause that is not usual.
#[derive(Clone, Copy, Debug)]
struct Rare {
    /// Of the call that it came before.
    kind: u64,
    ns: i64,
    ended_ns: i64,
}

/// One communicator's.
#[derive(Clone, Debug)]
pub struct Rhythm {
    counts: Vec<u32>,
    n_pauses: u32,
    rare: Vec<Rare>,
    kinds: Vec<(u64, u32)>,
    longest_outside_ns: i64,
    step_ns: i64,
    is_ready: bool,
    /// There are enough steps for a rhythm, which has not lasted for long yet.
    is_young: bool,
    /// The step when the calls had shown enough steps alike, or had become much quicker.
    paced_ns: Option<i64>,
    steady_since_ns: i64,
    n_moving: u32,
    trains: bool,
    moved_ns: i64,
    /// Longest stillness seen since something last moved.
    pause_ns: i64,
    /// Longest time for which its ranks did nothing in any communicator, of that pause.
    idle_ns: i64,
    was_inside: bool,
    /// How long all were outside before the present wait.
    together_ns: i64,
    /// When the first came in again.
    back_ns: i64,
    kind: u64,
    is_excused: bool,
}

impl Default for Rhythm {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            n_pauses: 0,
            rare: Vec::new(),
            kinds: Vec::new(),
            longest_outside_ns: 0,
            step_ns: 0,
            is_ready: false,
            is_young: false,
            paced_ns: None,
            steady_since_ns: 0,
            n_moving: 0,
            trains: false,
            moved_ns: 0,
            pause_ns: 0,
            idle_ns: 0,
            was_inside: false,
            together_ns: 0,
            back_ns: 0,
            kind: 0,
            is_excused: false,
        }
    }
}

/// What is seen of a communicator at one look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Glance {
    /// When something that it waits for last moved.
    pub moved_ns: i64,
    /// When any of its ranks last made progress, in any communicator.
    pub busy_ns: i64,
    /// Up to when the digests tell.
    pub known_ns: i64,
    /// A rank waits inside.
    pub is_inside: bool,
    /// Kind of the call that is waited in: see [`kind`].
    pub kind: u64,
    /// The calls are what training consists of.
    pub trains: bool,
    /// Something explains the pause that will not recur: a stopped process.
    pub is_excused: bool,
}

/// How long it may pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patience {
    /// While a rank waits inside, nanoseconds.
    pub inside_ns: i64,
    /// While all are outside.
    pub outside_ns: i64,
}

/// Kind of a call: function and magnitude, for sizes may vary from step to step.
pub fn kind(function: &str, count: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in function.bytes().chain([count.checked_ilog2().map_or(0, |l| l as u8 / 2 + 1)]) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}

impl Rhythm {
    /// Learns from a look.
    pub fn look(&mut self, glance: Glance) {
        let still = (glance.known_ns - glance.moved_ns).max(0);
        if glance.moved_ns > self.moved_ns {
            if self.moved_ns > 0 {
                self.learn();
            }
            if self.steady_since_ns == 0 || self.pause_ns > STEADY_PAUSE_NS {
                self.steady_since_ns = glance.moved_ns;
                self.n_moving = 0;
            }
            self.n_moving += 1;
            // The first one has come in: what went before was a pause of all.
            if !self.was_inside {
                self.together_ns = self.idle_ns;
                self.back_ns = glance.moved_ns;
            }
            // All are back: they are outside one after another again, or have moved on for long enough.
            let back = (self.together_ns as f64 * (1.0 + TOGETHER_SLACK)) as i64;
            if self.was_inside && (!glance.is_inside || glance.moved_ns - self.back_ns > back) {
                self.together_ns = 0;
            }
            self.moved_ns = glance.moved_ns;
            self.pause_ns = 0;
            self.idle_ns = 0;
            self.is_excused = false;
        }
        self.pause_ns = self.pause_ns.max(still);
        self.idle_ns = self.idle_ns.max((glance.known_ns - glance.busy_ns).clamp(0, still));
        self.was_inside = glance.is_inside;
        self.is_excused |= glance.is_excused;
        if glance.trains && !self.trains {
            // What came before the first step says nothing of the steps.
            self.trains = true;
            self.steady_since_ns = glance.moved_ns;
            self.n_moving = 0;
        }
        if glance.is_inside {
            self.kind = glance.kind;
            self.meet(glance.kind);
        }
        // Up to the newest movement: a pause is not steady, however short as yet.
        let steady = self.moved_ns - self.steady_since_ns;
        let wanted = if self.trains { STEADY_NS } else { STEADY_UNSURE_NS };
        self.is_ready |= self.n_moving >= STEADY_LOOKS && steady >= wanted;
    }

    /// Learns the step that the calls themselves show, as reported at `known_ns`.
    pub fn hear(&mut self, period: &PeriodDigest, known_ns: i64) {
        self.step_ns = period.step_ns.max(0);
        self.trains |= period.is_training;
        // Without the first step, which may have taken minutes.
        let usual_ns = period.step_ns.saturating_mul(i64::from(period.repeats) - 1);
        let lasts_for = |ns: i64| usual_ns.min(period.span_ns) >= ns;
        let steps = if period.ops == 1 { LEAST_CALLS } else { LEAST_STEPS };
        let lasts = period.repeats >= steps && lasts_for(LEAST_SPAN_NS.max(3 * period.step_ns));
        let steps = if period.ops == 1 { YOUNG_CALLS } else { YOUNG_STEPS };
        let is_young = period.repeats >= steps && lasts_for(YOUNG_SPAN_NS);
        if !period.is_training || !lasts && !is_young {
            self.is_young &= !self.is_ready;
            return;
        }
        self.is_ready |= lasts;
        self.is_young = !self.is_ready;
        let is_news = self.paced_ns.is_none_or(|before| period.step_ns < before / 2);
        if is_news {
            self.paced_ns = Some(period.step_ns);
            // The first steps are slow for reasons of their own: three pauses of theirs are no habit. Each is remembered as a
            // rare one, but for those of the first step and before it: connecting and compiling do not come again.
            self.counts.fill(0);
            self.n_pauses = 0;
            // Whatever came in between, the first step ended no later.
            let second_step_ns = known_ns - usual_ns + period.step_ns;
            self.rare.retain(|rare| rare.ended_ns > second_step_ns);
            if self.back_ns <= second_step_ns {
                self.together_ns = 0;
            }
        }
    }

    /// A pause is over.
    fn learn(&mut self) {
        if self.is_excused {
            return;
        }
        let pause = self.pause_ns;
        if let Some(count) = self.counts.get_mut(bucket(pause)) {
            *count += 1;
        }
        self.n_pauses += 1;
        if self.n_pauses >= MEMORY {
            self.n_pauses = 0;
            for count in &mut self.counts {
                *count /= 2;
                self.n_pauses += *count;
            }
        }
        if self.was_inside {
            self.remember(pause);
        } else {
            self.longest_outside_ns = self.longest_outside_ns.max(self.idle_ns);
        }
    }

    fn remember(&mut self, pause: i64) {
        let new = Rare { kind: self.kind, ns: pause, ended_ns: self.moved_ns.saturating_add(pause) };
        if let Some(old) = self.rare.iter_mut().find(|rare| rare.kind == self.kind) {
            if pause >= old.ns {
                *old = new;
            }
        } else if self.rare.len() < MAX_RARE {
            self.rare.push(new);
        } else if let Some(least) =
            self.rare.iter_mut().min_by_key(|rare| rare.ns).filter(|rare| rare.ns < pause)
        {
            // The shortest says least.
            *least = new;
        }
    }

    fn meet(&mut self, kind: u64) {
        if let Some((_, n)) = self.kinds.iter_mut().find(|(k, _)| *k == kind) {
            *n = n.saturating_add(1);
        } else if self.kinds.len() < MAX_KINDS {
            self.kinds.push((kind, 1));
        } else if let Some(least) = self.kinds.iter_mut().min_by_key(|(_, n)| *n) {
            *least = (kind, 1);
        }
    }

    /// It has shown a rhythm.
    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// The longest pause that is usual: one that recurs, or the step; none before there is a rhythm.
    pub fn usual_ns(&self) -> Option<i64> {
        self.is_ready.then(|| self.longest_usual_ns())
    }

    /// The longest pause so far in which a rank waited inside.
    pub fn longest_inside_ns(&self) -> i64 {
        self.rare.iter().map(|rare| rare.ns).max().unwrap_or(0)
    }

    fn longest_usual_ns(&self) -> i64 {
        self.step_ns.max(self.recurrent_ns())
    }

    fn recurrent_ns(&self) -> i64 {
        let wanted = ((f64::from(self.n_pauses) * USUAL_SHARE).ceil() as u32).max(USUAL_LEAST);
        let mut above = 0;
        for (index, count) in self.counts.iter().enumerate().rev() {
            above += count;
            if above >= wanted {
                return upper(index);
            }
        }
        0
    }

    /// How long it may pause now. `usual_ns` is that of the whole job, for communicators that pause with it.
    pub fn patience(&self, factor: f64, floor_ns: i64, first_floor_ns: i64, usual_ns: i64) -> Patience {
        let own = if self.is_ready || self.is_young { self.longest_usual_ns() } else { 0 };
        let usual = own.max(usual_ns);
        let by_factor = floor_ns.max((usual as f64 * factor) as i64);
        let known = self.kinds.iter().any(|(k, n)| *k == self.kind && *n >= KNOWN_KIND);
        let of_kind = |rare: &&Rare| !known || rare.kind == self.kind;
        let seen = self.rare.iter().filter(of_kind).map(|rare| rare.ns).max().unwrap_or(0);
        let together = by_factor + (self.together_ns as f64 * TOGETHER_SLACK) as i64;
        let inside_ns = by_factor.max((seen as f64 * SEEN_SLACK) as i64).max(together);
        let inside_ns = match (self.is_ready, usual_ns > 0) {
            (true, _) => inside_ns,
            // The job has a rhythm; a communicator that is new to it may still connect.
            (false, true) => (inside_ns as f64 * NEW_SLACK) as i64,
            (false, false) if self.is_young => (inside_ns as f64 * YOUNG_SLACK) as i64,
            (false, false) => inside_ns.max(first_floor_ns),
        };
        let outside = self.longest_outside_ns.max(usual);
        Patience {
            inside_ns,
            outside_ns: inside_ns.max(first_floor_ns).max((outside as f64 * OUTSIDE_FACTOR) as i64),
        }
    }
}

fn bucket(ns: i64) -> usize {
    let octaves = (ns.max(1) as f64).log2() - FIRST_OCTAVE;
    ((octaves * 4.0).max(0.0) as usize).min(BUCKETS - 1)
}

/// Upper end of a bucket.
fn upper(bucket: usize) -> i64 {
    (FIRST_OCTAVE + (bucket + 1) as f64 / 4.0).exp2() as i64
}
