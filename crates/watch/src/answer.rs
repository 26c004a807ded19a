//! What a verdict on a followed job is worth to whoever asked: whether it is told, and how long it is held back.

use ringleader_knowledge::place::ids::SLEEP;
use ringleader_model::{Category, Cause, Confidence, Verdict};

/// The verdict on a rank that sleeps is held this many times as long as on one that is elsewhere.
const SLEEPERS: i64 = 2;

/// Why evidence is collected.
#[derive(Clone, Copy, Debug)]
pub enum Reason {
    /// A stall, or a job that did not end in order: the verdict is reported whatever it is.
    Incident,
    /// A job that has ended, nobody knows how: only a verdict that says that it failed is reported, and only then is the
    /// bundle kept.
    Doubt {
        /// Operations of it were seen. It ran, so a guess or a remark on its speed is no reason to speak.
        was_seen: bool,
        /// A wait was reported shortly before: a guess that the job hung is worth a word.
        has_waited: bool,
        /// A verdict on a late rank was reported while the job ran.
        is_slow_told: bool,
        /// What an earlier verdict on the same end was worth: only a better one is worth a word.
        than: u8,
    },
    /// A job that prints NaN: only a verdict of corruption is reported and kept.
    NotFinite,
    /// A rank is late for good: only a verdict that is certain of that is reported and kept.
    Slow,
    /// A rank is gone while others live: only a verdict that says for certain what failed is reported and kept.
    Gone,
    /// Ranks called different collectives that ended all the same: only a verdict on the calls is reported and kept.
    Differ,
    /// No rank is there, or none has met another: only a verdict that the launcher waits for others, or that the ranks cannot meet, is
    /// reported and kept.
    Start,
}

impl Reason {
    /// Whether only some answers are worth a word.
    pub fn is_a_question(self) -> bool {
        !matches!(self, Self::Incident)
    }

    /// Whether it counts among the incidents of a run: the others are questions about a job that runs and may stall as well.
    pub fn is_of_an_incident(self) -> bool {
        matches!(self, Self::Incident | Self::Doubt { .. })
    }
}

/// The part of a verdict that decides what becomes of it.
#[derive(Clone, Debug)]
pub struct VerdictExcerpt {
    cause: Cause,
    category: Category,
    confidence: Confidence,
    has_findings: bool,
    /// The ranks that it names.
    ranks: Vec<u32>,
    /// One of them is in a sleep.
    sleeps: bool,
}

impl VerdictExcerpt {
    /// [`Self::worth`] of a verdict that nothing can better.
    pub const SUREST: u8 = 3;

    /// What a verdict says.
    pub fn of(verdict: &Verdict) -> Self {
        let ranks: Vec<u32> = verdict.culprits.iter().filter_map(|c| Some(c.rank?.0)).collect();
        let sleeps =
            verdict.ranks.iter().any(|look| look.activity == Some(SLEEP) && ranks.contains(&look.rank));
        Self {
            cause: verdict.cause,
            category: verdict.category,
            confidence: verdict.confidence,
            has_findings: !verdict.findings.is_empty(),
            ranks,
            sleeps,
        }
    }

    /// The cause that it names.
    pub fn cause(&self) -> Cause {
        self.cause
    }

    /// The ranks that it names.
    pub fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// How much it says, from 0, nothing, to [`Self::SUREST`], a cause with high confidence.
    pub fn worth(&self) -> u8 {
        match (self.cause, self.confidence) {
            (Cause::None | Cause::Undecided, _) => 0,
            (_, Confidence::Low) => 1,
            (_, Confidence::Medium) => 2,
            (_, Confidence::High) => Self::SUREST,
        }
    }

    /// Whether what it names may end by itself: a rank that lives and is elsewhere may come back, from a checkpoint, say.
    pub fn may_pass(&self) -> bool {
        matches!(self.cause, Cause::StuckOutsideCollective | Cause::SlowRankStall)
    }

    /// Whether it says, not as a guess, that a process failed.
    pub fn is_failure_of_a_process(&self) -> bool {
        matches!(self.category, Category::Crash | Category::Error)
            && self.confidence != Confidence::Low
            && !matches!(self.cause, Cause::Undecided | Cause::StoppedFromOutside)
    }

    /// How long to wait for that, where `hold_ns` is the usual time: a sleep ends at a time of its own.
    pub fn hold_ns(&self, hold_ns: i64) -> i64 {
        if self.sleeps { hold_ns.saturating_mul(SLEEPERS) } else { hold_ns }
    }

    /// One that names rank 1.
    #[cfg(test)]
    pub(crate) fn sample(cause: Cause, category: Category, confidence: Confidence) -> Self {
        Self { cause, category, confidence, has_findings: true, ranks: vec![1], sleeps: false }
    }

    /// Whether it is what somebody wants to know.
    pub fn answers(&self, reason: Reason) -> bool {
        let is_certain = self.cause != Cause::Undecided && self.confidence != Confidence::Low;
        let is_failure = !matches!(self.category, Category::None | Category::Performance);
        let has_cause = self.cause != Cause::None && self.has_findings;
        let is_slow = self.cause == Cause::Straggler && self.confidence == Confidence::High;
        match reason {
            Reason::Incident => true,
            Reason::Doubt { was_seen, has_waited, is_slow_told, than } => {
                // Whoever ends a job ends what is in flight, and its processes one by one: a guess that it hung, or that one of them
                // went first, is no reason to speak.
                let is_of_the_end = self.category == Category::Hang || self.cause == Cause::RankExitedEarly;
                let is_guess = is_of_the_end && !is_certain && !has_waited;
                has_cause
                    && (!was_seen && !is_guess || is_certain && is_failure || is_slow && !is_slow_told)
                    // What the ranks say at their end may tell of a failure; of a hang the stacks that were there told more.
                    && (than == 0 || self.worth() > than && self.category != Category::Hang)
            }
            Reason::Slow => is_slow,
            Reason::Gone => has_cause && is_certain && self.is_failure_of_a_process(),
            Reason::Differ => matches!(self.cause, Cause::ShapeMismatch | Cause::OpMismatch) && is_certain,
            Reason::Start => {
                matches!(self.cause, Cause::MissingRank | Cause::RankEnvMisconfigured) && is_certain
            }
            Reason::NotFinite => has_cause && is_certain && self.category == Category::Corruption,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(cause: Cause, category: Category, confidence: Confidence) -> VerdictExcerpt {
        VerdictExcerpt::sample(cause, category, confidence)
    }

    #[test]
    fn only_a_culprit_that_sleeps_is_waited_for_longer() {
        let stuck = answer(Cause::StuckOutsideCollective, Category::Hang, Confidence::High);
        assert!(stuck.may_pass());
        assert_eq!(stuck.hold_ns(7), 7);
        assert_eq!(VerdictExcerpt { sleeps: true, ..stuck }.hold_ns(7), 7 * SLEEPERS);
    }

    #[test]
    fn a_question_has_few_answers() {
        let late = answer(Cause::Straggler, Category::Performance, Confidence::High);
        let hang = answer(Cause::SkippedCollective, Category::Hang, Confidence::Low);
        let doubt =
            |has_waited, than| Reason::Doubt { was_seen: false, has_waited, is_slow_told: false, than };
        assert!(late.answers(Reason::Slow) && !hang.answers(Reason::Slow));
        assert!(!late.answers(Reason::NotFinite) && !late.answers(Reason::Start));
        assert!(!hang.answers(doubt(false, 0)) && hang.answers(doubt(true, 0)));
        assert!(!hang.answers(doubt(true, 1)) && hang.answers(Reason::Incident));
        // A surer word on a hang comes without its stacks; one on a failure is news.
        let surer = answer(Cause::UnmatchedP2p, Category::Hang, Confidence::Medium);
        let failed = answer(Cause::ProcessCrashed, Category::Crash, Confidence::Medium);
        assert!(surer.answers(doubt(true, 0)) && !surer.answers(doubt(true, 1)));
        assert!(failed.answers(doubt(true, 1)) && !failed.answers(doubt(true, 2)));
        assert!(
            failed.answers(Reason::Gone) && !surer.answers(Reason::Gone) && !failed.answers(Reason::Start)
        );
        assert_eq!((hang.worth(), late.worth()), (1, 3));
    }
}
