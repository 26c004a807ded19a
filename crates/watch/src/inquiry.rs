//! What is asked of the evidence of a job in which nothing stalls, and when: whether it prints NaN, whether a rank is late, lost, or
//! never came. And what is asked once it has ended.
//!
//! Moments are nanoseconds of one clock that is never set; the start of that clock does not matter.

mod late;
mod lost;
mod start;

use ringleader_model::Cause;

use self::late::LateRank;
use self::lost::LostRanks;
use self::start::NotStarted;
use crate::answer::{Reason, VerdictExcerpt};
use crate::event::Straggler;
use crate::verdicts::StallVerdicts;
use crate::view::View;

const SECOND_NS: i64 = 1_000_000_000;
/// A wait is reported at 15 s, and each time after twice as long.
const WAITED_FOR_NS: i64 = 60 * SECOND_NS;

/// Looks that grow rarer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NextLook {
    /// The last look, or the start.
    since_ns: i64,
    wait_ns: i64,
}

impl NextLook {
    fn new(now_ns: i64, wait_ns: i64) -> Self {
        Self { since_ns: now_ns, wait_ns }
    }

    /// Whether it is time for a look; if so the next one is set, after `times` the wait before it and at most `longest_ns`.
    fn is_due(&mut self, now_ns: i64, times: i64, longest_ns: i64) -> bool {
        let is_due = now_ns - self.since_ns >= self.wait_ns;
        if is_due {
            *self = Self::new(now_ns, (self.wait_ns * times).min(longest_ns));
        }
        is_due
    }
}

/// What one look at a job has shown.
#[derive(Clone, Copy, Debug)]
pub struct JobLook<'v> {
    /// The job.
    pub view: &'v View,
    /// So many lines with NaN were printed that they are worth a look.
    pub prints_nan: bool,
    /// The rank that was late still is the slowest.
    pub is_late: bool,
    /// Processes of the job live, and none of them is a rank.
    pub is_without_ranks: bool,
    /// It stalls: the stall answers what a lost rank asks.
    pub is_stalled: bool,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobEnd {
    /// What brought it down was judged just before, or is being judged.
    pub is_judged: bool,
    /// It did not end in order.
    pub is_bad: bool,
    /// Operations of it were seen.
    pub was_seen: bool,
    /// It was started by the watcher, which has its exit code and its output.
    pub has_command: bool,
    /// A verdict was reported at any time.
    pub has_verdict: bool,
}

/// The questions of one job.
#[derive(Debug, Default)]
pub struct Inquiries {
    late: Option<LateRank>,
    /// No rank is there.
    start: NotStarted,
    /// Ranks are there, and none has a communicator.
    meeting: NotStarted,
    lost: LostRanks,
    /// It was asked about calls that differ.
    asked_of_calls: bool,
    /// When a wait was reported last.
    waited_ns: Option<i64>,
}

impl Inquiries {
    /// Those that are due, in a few words.
    pub fn due(&mut self, look: &JobLook<'_>, now_ns: i64) -> Vec<(&'static str, Reason)> {
        let mut due = Vec::new();
        if look.prints_nan {
            due.push(("NaN in its output", Reason::NotFinite));
        }
        if look.is_late && self.late.as_mut().is_some_and(|late| late.is_due(now_ns)) {
            due.push(("a rank is late", Reason::Slow));
        }
        if self.start.is_due(!look.is_without_ranks, now_ns) {
            due.push(("no rank is there", Reason::Start));
        }
        if self.meeting.is_due(look.is_without_ranks || !look.view.comms.is_empty(), now_ns) {
            due.push(("no rank has a communicator", Reason::Start));
        }
        if look.view.differing.is_some() && !std::mem::replace(&mut self.asked_of_calls, true) {
            due.push(("ranks called different collectives", Reason::Differ));
        }
        if self.lost.is_due(&look.view.processes, now_ns) && !look.is_stalled {
            due.push(("a rank is gone", Reason::Gone));
        }
        due
    }

    /// A wait is reported.
    pub fn waits(&mut self, now_ns: i64) {
        self.waited_ns = Some(now_ns);
    }

    /// A rank is late; whether that is what is to be looked into.
    pub fn is_late(&mut self, late: &Straggler, now_ns: i64) -> bool {
        self.late.insert(LateRank::seen(self.late, late, now_ns)).is_of(late)
    }

    /// A verdict was reported.
    pub fn answered(&mut self, answer: &VerdictExcerpt) {
        self.start.answered(answer.worth());
        self.meeting.answered(answer.worth());
        if let Some(late) = self.late.as_mut().filter(|_| answer.cause() == Cause::Straggler) {
            late.answered();
        }
        if answer.is_failure_of_a_process() {
            self.lost.answered(answer.worth());
        }
    }

    /// What is asked of the evidence at the end of a job; none if it need not be looked at. `prints_nan` tells whether its command has
    /// printed NaN.
    pub fn at_end(
        &self,
        end: JobEnd,
        verdicts: &StallVerdicts,
        prints_nan: impl FnOnce() -> bool,
        now_ns: i64,
    ) -> Option<Reason> {
        let than = if end.is_judged { verdicts.best_worth() } else { self.worth() };
        let has_waited = self.waited_ns.is_some_and(|at| now_ns - at < WAITED_FOR_NS);
        let is_slow_told = self.late.is_some_and(LateRank::is_answered);
        let doubt = Reason::Doubt { was_seen: end.was_seen, has_waited, is_slow_told, than };
        if end.is_judged {
            // What the ranks and their launcher say at their end may tell more than the stall did.
            let is_open = !end.has_command && than < VerdictExcerpt::SUREST || verdicts.may_be_revised();
            return is_open.then_some(doubt);
        }
        if end.is_bad {
            return Some(Reason::Incident);
        }
        // Its exit code went to somebody else. Jobs that fail before their first communicator, and ranks that end
        // their communicators in order after an error, leave their words in logs alone.
        if !end.has_command {
            return Some(doubt);
        }
        if end.has_verdict {
            return None;
        }
        if prints_nan() {
            return Some(Reason::NotFinite);
        }
        self.late.filter(|late| !late.is_answered()).map(|_| Reason::Slow)
    }

    /// Best [`VerdictExcerpt::worth`] of the verdicts on a job that has not started, on ranks that have not met, and on
    /// lost ranks.
    fn worth(&self) -> u8 {
        self.start.worth().max(self.meeting.worth()).max(self.lost.worth())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_grow_rarer_up_to_the_longest_pause() {
        let mut next = NextLook::new(0, 10);
        let due: Vec<i64> = (0..200).filter(|now| next.is_due(*now, 3, 50)).collect();
        assert_eq!(due, [10, 40, 90, 140, 190]);
    }

    #[test]
    fn a_job_without_ranks_is_asked_about_and_one_that_stalls_is_not_asked_for_lost_ranks() {
        let view = View::default();
        let mut inquiries = Inquiries::default();
        let look = JobLook {
            view: &view,
            prints_nan: false,
            is_late: false,
            is_without_ranks: true,
            is_stalled: false,
        };
        assert!(inquiries.due(&look, 0).is_empty());
        let due = inquiries.due(&look, 30 * SECOND_NS);
        assert!(matches!(due[..], [("no rank is there", Reason::Start)]));
        let due = inquiries.due(&JobLook { prints_nan: true, ..look }, 31 * SECOND_NS);
        assert!(matches!(due[..], [(_, Reason::NotFinite)]));
        let view = View { differing: Some("rank 1 called less".to_owned()), ..View::default() };
        let look = JobLook { view: &view, ..look };
        assert!(matches!(inquiries.due(&look, 32 * SECOND_NS)[..], [(_, Reason::Differ)]));
        assert!(inquiries.due(&look, 33 * SECOND_NS).is_empty(), "once");
    }

    #[test]
    fn what_is_asked_at_the_end() {
        let mut inquiries = Inquiries::default();
        let verdicts = StallVerdicts::default();
        let ask = |inquiries: &Inquiries, end| inquiries.at_end(end, &verdicts, || false, 0);
        let command = JobEnd { has_command: true, was_seen: true, ..JobEnd::default() };
        assert!(ask(&inquiries, command).is_none());
        assert!(matches!(inquiries.at_end(command, &verdicts, || true, 0), Some(Reason::NotFinite)));
        assert!(matches!(ask(&inquiries, JobEnd { is_bad: true, ..command }), Some(Reason::Incident)));
        assert!(ask(&inquiries, JobEnd { is_bad: true, is_judged: true, ..command }).is_none());
        let other = JobEnd { has_command: false, ..command };
        for is_judged in [false, true] {
            assert!(matches!(
                ask(&inquiries, JobEnd { is_judged, ..other }),
                Some(Reason::Doubt { than: 0, .. })
            ));
        }
        inquiries.waits(0);
        let has_waited = |now_ns| match inquiries.at_end(other, &verdicts, || false, now_ns) {
            Some(Reason::Doubt { has_waited, .. }) => has_waited,
            _ => false,
        };
        assert!(has_waited(WAITED_FOR_NS - 1) && !has_waited(WAITED_FOR_NS));
        assert!(inquiries.is_late(&Straggler { rank: 1, persistent: true, ..Straggler::default() }, 0));
        assert!(matches!(ask(&inquiries, command), Some(Reason::Slow)));
        assert!(ask(&inquiries, JobEnd { has_verdict: true, ..command }).is_none());
    }
}
