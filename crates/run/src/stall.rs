//! A stalled job: the engine of `watch` reports it, or the job prints no step. Evidence is collected during the stall. A
//! verdict that names a cause ends the attempt, unless the job recovers by itself first. If the engine sees stuck operations
//! and the evidence does not show why, only the third look ends it.
//!
//! Pure: the time and what the engine reports are arguments; who calls collects and prints.

use std::time::{Duration, Instant};

use ringleader_model::{Cause, Class, Confidence};

use crate::judgement::{self, Diagnosed, Judgement};
use crate::named::Named;

/// A pause between steps is usual up to this multiple of the longest so far: as `--stall-factor` of `watch`.
const USUAL: u32 = 5;
/// Before the first step a job loads data and compiles: it may take this multiple of the floor. Chosen.
const BEFORE_STEPS: u32 = 10;
/// An unexplained silence is examined again after this multiple of the patience.
const AGAIN: u32 = 2;
/// Looks at a job that the engine reports as stalled, before it is ended without a known cause.
const LOOKS: u32 = 3;
/// After all ranks have ended, the launcher may take this multiple of the patience.
const CLOSING: u32 = 10;

/// How long a job may print no step before it is examined. `longest`: its longest pause between steps so far; None before the
/// first step.
pub fn patience(longest: Option<Duration>, floor: Duration) -> Duration {
    longest.map_or(floor * BEFORE_STEPS, |longest| (longest * USUAL).max(floor))
}

/// What the engine of `watch` reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineReport {
    /// Operations are stuck: which ones, in one line.
    Stuck(String),
    /// They move again, or their ranks have ended.
    Moving,
}

/// Evidence of a stall, being collected and judged elsewhere.
pub trait Examination {
    /// The result, once there is one; the inner option is None if it failed.
    fn taken(&self) -> Option<Option<Diagnosed>>;
}

/// Result of one look.
#[derive(Clone, Copy, Debug)]
pub struct StallLook {
    /// This node judges what the engine reports.
    pub is_analyser: bool,
    /// Time since the last printed step.
    pub still: Duration,
    /// Longest time that is not a stall: [`patience`].
    pub patience: Duration,
    /// All ranks have ended, but the launcher still runs.
    pub is_past: bool,
}

/// State of a possible stall.
#[derive(Debug)]
pub struct StallState<E> {
    /// Why the job seems to be stalled, and since when.
    seen: Option<(String, Instant)>,
    collecting: Option<E>,
    found: Option<Diagnosed>,
    wants_halt: Option<String>,
    /// Silent output is examined again after this.
    quiet_until: Option<Duration>,
    /// Time since the last printed step.
    still: Duration,
    is_of_engine: bool,
    /// Looks since the last step that found no cause for a stall reported by the engine.
    n_looks: u32,
}

impl<E> Default for StallState<E> {
    fn default() -> Self {
        Self {
            seen: None,
            collecting: None,
            found: None,
            wants_halt: None,
            quiet_until: None,
            still: Duration::ZERO,
            is_of_engine: false,
            n_looks: 0,
        }
    }
}

impl<E: Examination> StallState<E> {
    /// Takes what the engine reports and the time since the last step.
    pub fn see(&mut self, reports: &[EngineReport], seen: &StallLook, now: Instant) {
        let StallLook { is_analyser, still, patience, is_past } = *seen;
        self.still = still;
        if is_past && still < patience * CLOSING {
            // The job is ending: the launcher's exit code will show how.
            if self.wants_halt.is_none() {
                *self = Self::default();
            }
            return;
        }
        for report in reports {
            match report {
                EngineReport::Stuck(what) if is_analyser && self.seen.is_none() => {
                    self.seen = Some((format!("stall: {what}"), now));
                    self.is_of_engine = true;
                }
                EngineReport::Moving if self.is_of_engine => {
                    self.clear();
                    self.is_of_engine = false;
                }
                _ => {}
            }
        }
        let is_silent = still > self.quiet_until.unwrap_or(patience).max(patience);
        if is_silent && self.seen.is_none() {
            let why = format!("no step for {} s, more than {USUAL} times the usual pause", still.as_secs());
            self.seen = Some((why, now));
        }
        if still < patience {
            self.quiet_until = None;
            self.n_looks = 0;
            if self.seen.is_some() && !self.is_of_engine {
                self.clear();
            }
        }
    }

    fn clear(&mut self) {
        let Self { quiet_until, still, is_of_engine, n_looks, .. } = *self;
        *self = Self { quiet_until, still, is_of_engine, n_looks, ..Self::default() };
    }

    /// Continues with an open stall; returns lines to print.
    pub fn turn(&mut self, now: Instant, grace: Duration, collect: impl FnOnce(String) -> E) -> Vec<String> {
        let Some((why, since)) = self.seen.clone() else { return Vec::new() };
        if self.wants_halt.is_some() {
            return Vec::new();
        }
        let Some(found) = &self.found else {
            return match &self.collecting {
                None => {
                    self.collecting = Some(collect(why.clone()));
                    vec![format!("{why}; collecting evidence")]
                }
                Some(collecting) => match collecting.taken() {
                    Some(found) => self.take(found, now.saturating_duration_since(since)),
                    None => Vec::new(),
                },
            };
        };
        if now.saturating_duration_since(since) < grace {
            return Vec::new();
        }
        let halt = format!("{why}; {}: {}", found.judgement.cause, found.judgement.summary);
        self.wants_halt = Some(halt.clone());
        vec![format!("no progress within {} s: ending the attempt", grace.as_secs())]
    }

    /// `open`: the time since the stall was seen.
    fn take(&mut self, found: Option<Diagnosed>, open: Duration) -> Vec<String> {
        self.collecting = None;
        let judgement = found.as_ref().map(|found| &found.judgement);
        // Slow is not stuck: without a named cause of sufficient confidence the job may only be busy.
        let is_cause = judgement.is_some_and(|judgement| {
            let is_named = can_end(&judgement.cause) && judgement.cause != Cause::Undecided;
            is_named && (judgement.class != Class::Unknown || judgement.confidence > Confidence::Low)
        });
        let doubt = found.as_ref().and_then(|found| found.doubt.clone());
        let is_cause = is_cause && doubt.is_none();
        self.n_looks += u32::from(self.is_of_engine && !is_cause);
        if is_cause || self.is_of_engine && found.is_some() && self.n_looks >= LOOKS {
            let found = found.map(certain);
            let said =
                found.as_ref().map(|found| format!("{}: {}", found.judgement.cause, found.judgement.summary));
            self.found = found;
            return said.into_iter().collect();
        }
        let said = match judgement.map(|judgement| &judgement.cause) {
            Some(cause) if doubt.is_some() => format!("{cause}, but {}", doubt.unwrap_or_default()),
            Some(cause) if !cause.says_nothing() && !can_end(cause) => {
                format!("{cause} does not end a job")
            }
            _ => "the evidence shows no fault".to_owned(),
        };
        // The engine has seen operations that are stuck: silence alone may be a long evaluation.
        let looked = if self.is_of_engine { self.quiet_until.unwrap_or(open) } else { self.still };
        self.clear();
        self.quiet_until = Some(looked.max(Duration::from_secs(5)) * AGAIN);
        vec![format!("{said}: the job continues")]
    }

    /// A stall is being examined.
    pub fn is_open(&self) -> bool {
        self.seen.is_some()
    }

    /// Why the attempt should be ended.
    pub fn wants_halt(&self) -> Option<String> {
        self.wants_halt.clone()
    }

    /// Evidence collected during the stall, once the attempt is to be ended because of it.
    pub fn found(&mut self) -> Option<Diagnosed> {
        self.wants_halt.as_ref().and(self.found.take())
    }
}

fn can_end(cause: &Named) -> bool {
    cause.known().is_some_and(judgement::can_end)
}

/// A cause that does not explain the stall is not the verdict on it.
fn certain(found: Diagnosed) -> Diagnosed {
    let cause = found.judgement.cause.clone();
    let why = match &found.doubt {
        Some(doubt) => format!("{cause}, but {doubt}"),
        None if !cause.says_nothing() && !can_end(&cause) => {
            format!("the job hangs, which {cause} does not explain")
        }
        None => return found,
    };
    let bundle = found.judgement.bundle;
    let judgement = Judgement { bundle, doubted: Some(cause), ..Judgement::unjudged(&why) };
    Diagnosed { judgement, ..found }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It is never asked: tests give its result.
    #[derive(Debug)]
    struct Examining;

    impl Examination for Examining {
        fn taken(&self) -> Option<Option<Diagnosed>> {
            None
        }
    }

    type State = StallState<Examining>;

    const FLOOR: Duration = Duration::from_mins(1);

    fn found(cause: Cause, class: Class) -> Diagnosed {
        let judgement = Judgement { cause: cause.into(), class, ..Judgement::unjudged("so") };
        Diagnosed { judgement, text: String::new(), cause, ranks: Vec::new(), doubt: None }
    }

    fn seen(still_s: u64, is_past: bool) -> StallLook {
        StallLook { is_analyser: true, still: Duration::from_secs(still_s), patience: FLOOR, is_past }
    }

    #[test]
    fn a_cause_ends_it_and_no_cause_only_at_the_third_look_of_the_engine() {
        let mut stall = State::default();
        stall.take(Some(found(Cause::SkippedCollective, Class::Program)), Duration::ZERO);
        assert!(stall.found.is_some());
        for (is_of_engine, n_until) in [(true, 3), (false, u32::MAX)] {
            let mut stall = State { is_of_engine, ..State::default() };
            for n in 1..=5_u32.min(n_until) {
                assert!(stall.found.is_none(), "look {n}");
                stall.take(Some(found(Cause::Undecided, Class::Unknown)), Duration::ZERO);
            }
            assert_eq!(stall.found.is_some(), is_of_engine);
        }
        // A step in between resets the count.
        let mut stall = State { is_of_engine: true, ..State::default() };
        for _ in 0..4 {
            stall.take(Some(found(Cause::Undecided, Class::Unknown)), Duration::ZERO);
            stall.see(&[], &seen(1, false), Instant::now());
        }
        assert!(stall.found.is_none());
    }

    #[test]
    fn a_silence_without_a_cause_is_examined_again_after_twice_its_length() {
        let mut stall = State::default();
        stall.see(&[], &seen(200, false), Instant::now());
        assert!(stall.is_open());
        stall.take(Some(found(Cause::None, Class::Unknown)), Duration::ZERO);
        for (still_s, is_open) in [(203, false), (390, false), (401, true)] {
            stall.see(&[], &seen(still_s, false), Instant::now());
            assert_eq!(stall.is_open(), is_open, "{still_s} s");
        }
        // A step in between makes it a silence of its own.
        stall.take(Some(found(Cause::None, Class::Unknown)), Duration::ZERO);
        stall.see(&[], &seen(1, false), Instant::now());
        stall.see(&[], &seen(61, false), Instant::now());
        assert!(stall.is_open());
    }

    #[test]
    fn a_cause_of_slowness_or_in_doubt_ends_nothing() {
        let sure = |cause: Cause, class| {
            let found = found(cause, class);
            let judgement = Judgement { confidence: Confidence::High, ..found.judgement };
            Diagnosed { judgement, ..found }
        };
        let handled = Diagnosed {
            doubt: Some("it was handled".to_owned()),
            ..sure(Cause::ApplicationException, Class::Program)
        };
        for (found, said) in [
            (sure(Cause::Straggler, Class::Unknown), "straggler does not end a job"),
            (handled, "it was handled"),
        ] {
            let mut stall = State::default();
            for _ in 0..5 {
                let told = stall.take(Some(found.clone()), Duration::ZERO);
                assert!(stall.found.is_none() && told[0].contains(said), "{told:?}");
            }
            // Where the engine sees stuck operations, the third look ends it, and not for this cause.
            let mut stall = State { is_of_engine: true, ..State::default() };
            for _ in 0..3 {
                stall.take(Some(found.clone()), Duration::ZERO);
            }
            let judgement = stall.found.map_or(Judgement::unjudged("none"), |found| found.judgement);
            assert_eq!(judgement.cause, Cause::Undecided);
            assert_eq!(judgement.doubted, Some(found.judgement.cause));
        }
        let mut stall = State::default();
        stall.take(Some(sure(Cause::IllegalMemoryAccess, Class::Unknown)), Duration::ZERO);
        assert!(stall.found.is_some());
    }

    #[test]
    fn a_launcher_that_closes_after_its_ranks_is_left_alone_for_a_while() {
        let mut stall = State::default();
        stall.see(&[], &seen(100, true), Instant::now());
        assert!(!stall.is_open());
        stall.see(&[], &seen(601, true), Instant::now());
        assert!(stall.is_open());
        let mut stall = State::default();
        stall.see(&[], &seen(100, false), Instant::now());
        assert!(stall.is_open());
    }

    #[test]
    fn a_stall_of_the_engine_ends_the_attempt_after_the_grace_unless_it_moves_again() {
        struct Done;
        impl Examination for Done {
            fn taken(&self) -> Option<Option<Diagnosed>> {
                Some(Some(found(Cause::SkippedCollective, Class::Program)))
            }
        }
        let (now, grace) = (Instant::now(), Duration::from_secs(30));
        let stuck = EngineReport::Stuck("AllReduce".to_owned());
        let mut stall = StallState::default();
        stall.see(&[stuck], &seen(1, false), now);
        let begun = stall.turn(now, grace, |_| Done);
        assert_eq!(begun, ["stall: AllReduce; collecting evidence"]);
        assert_eq!(stall.turn(now, grace, |_| Done), ["skipped-collective: so"]);
        assert!(stall.turn(now + grace / 2, grace, |_| Done).is_empty());
        assert!(stall.wants_halt().is_none());
        let ends = stall.turn(now + grace, grace, |_| Done);
        assert!(ends[0].starts_with("no progress within 30 s") && stall.wants_halt().is_some());
        let mut stall = StallState { found: Some(found(Cause::SkippedCollective, Class::Program)), ..stall };
        stall.wants_halt = None;
        stall.see(&[EngineReport::Moving], &seen(1, false), now + grace);
        assert!(!stall.is_open() && stall.turn(now + grace, grace, |_| Done).is_empty());
    }

    #[test]
    fn patience_follows_the_pauses_of_the_job() {
        assert_eq!(patience(None, FLOOR), FLOOR * 10);
        assert_eq!(patience(Some(Duration::from_secs(2)), FLOOR), FLOOR);
        assert_eq!(patience(Some(FLOOR), FLOOR), FLOOR * 5);
    }
}
