//! The verdicts on the present stall: what the best one was worth, and whether a further one says more. And how long a verdict
//! is held back where what it names may end by itself.
//!
//! Moments are nanoseconds of one clock that is never set; the start of that clock does not matter.

use crate::answer::VerdictExcerpt;

const SECOND_NS: i64 = 1_000_000_000;
/// A verdict on a rank that works is held this many times as long: an evaluation on one rank takes a minute or two.
const WORKERS: i64 = 4;
/// A rank works if it has used this share of a processor since the verdict, percent.
const WORK_PERCENT: i64 = 50;
/// The least time over which that is measured.
const MEASURED_NS: i64 = SECOND_NS;
/// What is seen within this of a verdict, and a job that ends within this of an incident, has the same cause.
pub(crate) const SAME_END_NS: i64 = 120 * SECOND_NS;

/// What was reported of the present stall.
#[derive(Debug, Default)]
pub struct StallVerdicts {
    best_worth: u8,
    n_recoveries: u32,
    n_stalls: u32,
    last_ns: Option<i64>,
    /// The ranks that the last verdict on a rank elsewhere named; none after any other verdict.
    elsewhere: Vec<u32>,
    is_over: bool,
}

impl StallVerdicts {
    /// All that stalled goes on.
    pub fn recovered(&mut self) {
        self.n_recoveries += 1;
        self.best_worth = 0;
        self.elsewhere.clear();
    }

    /// Something stalls.
    pub fn stalled(&mut self) {
        self.n_stalls += 1;
    }

    /// The job ends, or the watcher does: nothing is held back any more.
    pub fn over(&mut self) {
        self.is_over = true;
    }

    /// How often something stalled.
    pub fn n_stalls(&self) -> u32 {
        self.n_stalls
    }

    /// How often all that stalled went on by itself.
    pub fn n_recoveries(&self) -> u32 {
        self.n_recoveries
    }

    /// What the best verdict on the present stall was worth: [`VerdictExcerpt::worth`].
    pub fn best_worth(&self) -> u8 {
        self.best_worth
    }

    /// A verdict is reported.
    pub fn report(&mut self, answer: &VerdictExcerpt, now_ns: i64) {
        self.best_worth = self.best_worth.max(answer.worth());
        self.last_ns = Some(now_ns);
        self.elsewhere = if answer.may_pass() { answer.ranks().to_vec() } else { Vec::new() };
    }

    /// The last verdict named a rank that was elsewhere. Such a rank may fail there, which then explains the stall.
    pub fn may_be_revised(&self) -> bool {
        !self.elsewhere.is_empty()
    }

    /// Whether a verdict at the end says that a rank that was elsewhere has failed there.
    pub fn is_revised_by(&self, answer: &VerdictExcerpt) -> bool {
        let ranks = answer.ranks();
        answer.is_failure_of_a_process()
            && !ranks.is_empty()
            && ranks.iter().all(|rank| self.elsewhere.contains(rank))
    }

    /// A look at the same stall soon after the verdict before it sees less: its ranks are ending by then.
    pub fn sees_less(&self, answer: &VerdictExcerpt, now_ns: i64) -> bool {
        let is_same = self.last_ns.is_some_and(|at| now_ns - at < SAME_END_NS);
        answer.worth() == 0 && self.best_worth > 0 && is_same
    }
}

/// What becomes of a verdict that is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldStep {
    /// It is not known yet.
    Wait,
    /// The stall lasts: the verdict is to be reported.
    Report,
    /// What it named has ended by itself.
    Passed,
}

/// A verdict on a stall that is held back until the stall is so old.
#[derive(Clone, Debug)]
pub struct Hold {
    /// Start of the stall.
    since_ns: i64,
    /// How old the stall is when the verdict is reported, unless the culprit works.
    until_ns: i64,
    /// Start of the measurement of the culprit's work.
    judged_ns: i64,
    /// Recoveries when the evidence was collected.
    n_recoveries: u32,
    /// The culprit works: it is held longer.
    is_longer: bool,
}

impl Hold {
    /// None if what the verdict names does not end by itself. `hold_ns` is the usual time; `n_recoveries` those before the evidence
    /// was collected. Work of the culprits is measured from now on.
    pub fn new(
        answer: &VerdictExcerpt,
        since_ns: i64,
        hold_ns: i64,
        n_recoveries: u32,
        now_ns: i64,
    ) -> Option<Self> {
        let until_ns = answer.hold_ns(hold_ns);
        let new = Self { since_ns, until_ns, judged_ns: now_ns, n_recoveries, is_longer: false };
        answer.may_pass().then_some(new)
    }

    /// What to do now. `used_ms`: processor time of that culprit that used most since [`Self::new`], milliseconds.
    pub fn step(&mut self, verdicts: &StallVerdicts, used_ms: impl FnOnce() -> u64, now_ns: i64) -> HoldStep {
        if verdicts.n_recoveries != self.n_recoveries {
            return HoldStep::Passed;
        }
        let (age_ns, longer_ns) = (now_ns - self.since_ns, self.until_ns.saturating_mul(WORKERS));
        if verdicts.is_over || self.until_ns == 0 || age_ns >= longer_ns {
            return HoldStep::Report;
        }
        let measured_ns = now_ns - self.judged_ns;
        if self.is_longer || age_ns < self.until_ns || measured_ns < MEASURED_NS {
            return HoldStep::Wait;
        }
        self.is_longer = works(used_ms(), measured_ns);
        if self.is_longer { HoldStep::Wait } else { HoldStep::Report }
    }
}

/// Whether a process that used so much processor time in that time works.
fn works(used_ms: u64, over_ns: i64) -> bool {
    let used_ns = i64::try_from(used_ms).unwrap_or(i64::MAX).saturating_mul(1_000_000);
    used_ns.saturating_mul(100) >= over_ns.saturating_mul(WORK_PERCENT)
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Category, Cause, Confidence};

    use super::*;

    const HOLD_NS: i64 = 7 * SECOND_NS;

    fn answer(cause: Cause, category: Category) -> VerdictExcerpt {
        VerdictExcerpt::sample(cause, category, Confidence::High)
    }

    fn stuck() -> VerdictExcerpt {
        answer(Cause::StuckOutsideCollective, Category::Hang)
    }

    /// Steps once a second from the verdict at 2 s on: what it came to, and when, seconds.
    fn outcome(used_ms_per_s: u64, recovers_at_s: Option<i64>, ends_at_s: Option<i64>) -> (HoldStep, i64) {
        let mut verdicts = StallVerdicts::default();
        let judged_s = 2;
        let mut hold = Hold::new(&stuck(), 0, HOLD_NS, 0, judged_s * SECOND_NS).unwrap();
        for second in judged_s.. {
            if recovers_at_s == Some(second) {
                verdicts.recovered();
            }
            if ends_at_s == Some(second) {
                verdicts.over();
            }
            let used_ms = || used_ms_per_s * (second - judged_s).unsigned_abs();
            match hold.step(&verdicts, used_ms, second * SECOND_NS) {
                HoldStep::Wait => {}
                step => return (step, second),
            }
        }
        unreachable!("the loop returns");
    }

    #[test]
    fn a_stall_that_lasts_is_reported_and_later_where_the_culprit_works() {
        assert_eq!(outcome(100, None, None), (HoldStep::Report, 7));
        assert_eq!(outcome(500, None, None), (HoldStep::Report, 28));
        assert_eq!(outcome(100, Some(5), None), (HoldStep::Passed, 5));
        assert_eq!(outcome(900, Some(20), None), (HoldStep::Passed, 20));
        assert_eq!(outcome(900, None, Some(3)), (HoldStep::Report, 3), "at the end nothing is held back");
    }

    #[test]
    fn what_is_old_or_cannot_pass_is_not_held() {
        let verdicts = StallVerdicts::default();
        assert!(Hold::new(&answer(Cause::SkippedCollective, Category::Hang), 0, HOLD_NS, 0, 0).is_none());
        for (since_ns, hold_ns) in [(-10 * HOLD_NS, HOLD_NS), (0, 0)] {
            let mut hold = Hold::new(&stuck(), since_ns, hold_ns, 0, 0).unwrap();
            assert_eq!(hold.step(&verdicts, || 0, 0), HoldStep::Report);
        }
        // Work is measured over a second at least.
        let mut hold = Hold::new(&stuck(), -HOLD_NS, HOLD_NS, 0, 0).unwrap();
        assert_eq!(hold.step(&verdicts, || 0, MEASURED_NS - 1), HoldStep::Wait);
        assert_eq!(hold.step(&verdicts, || 0, MEASURED_NS), HoldStep::Report);
    }

    #[test]
    fn a_second_look_that_shows_less_changes_nothing_and_a_failure_elsewhere_revises() {
        let mut verdicts = StallVerdicts::default();
        let nothing = answer(Cause::Undecided, Category::None);
        assert!(!verdicts.sees_less(&nothing, 0));
        verdicts.report(&stuck(), 0);
        assert!(verdicts.sees_less(&nothing, SAME_END_NS - 1) && !verdicts.sees_less(&nothing, SAME_END_NS));
        assert!(!verdicts.sees_less(&stuck(), 0));
        assert_eq!(verdicts.best_worth(), VerdictExcerpt::SUREST);
        let failed = answer(Cause::ProcessCrashed, Category::Crash);
        assert!(verdicts.may_be_revised() && verdicts.is_revised_by(&failed));
        verdicts.recovered();
        assert!(!verdicts.is_revised_by(&failed) && verdicts.best_worth() == 0);
    }
}
