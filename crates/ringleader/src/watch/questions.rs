//! What is asked of the evidence of a job in which nothing stalls, and when: whether it prints NaN, whether a rank is late, gone, or
//! never came.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ringleader_model::Cause;
use ringleader_watch::answer::{Reason, VerdictExcerpt};
use ringleader_watch::event::Straggler;

use super::eye::Eye;
use super::gone::GoneRanks;
use super::late::LateRank;
use super::nan::{self, Nan};
use super::start::Start;

/// A wait is told of at 15 s, and each time after twice as long.
const WAITED_FOR: Duration = Duration::from_mins(1);

/// The questions of one job.
pub(super) struct Questions {
    nan: Nan,
    /// The rank that is late.
    late: Option<LateRank>,
    start: Start,
    /// Ranks are there, and none has a communicator.
    meeting: Start,
    gone: GoneRanks,
    /// When a wait was told of last.
    waited: Option<Instant>,
}

impl Questions {
    pub(super) fn new() -> Self {
        let (start, meeting) = (Start::default(), Start::default());
        Self { nan: Nan::new(), late: None, start, meeting, gone: GoneRanks::default(), waited: None }
    }

    /// Those that are due, in a few words. `own` are the files that the command prints into; a job that stalls (`is_still`) answers by
    /// its stall.
    pub(super) fn due(&mut self, eye: &Eye, own: &[PathBuf], is_still: bool) -> Vec<(&'static str, Reason)> {
        let mut due = Vec::new();
        if self.nan.is_due_in(own, eye.agent.logs()) {
            due.push(("NaN in its output", Reason::NotFinite));
        }
        if eye.is_late() && self.late.as_mut().is_some_and(LateRank::is_due) {
            due.push(("a rank is late", Reason::Slow));
        }
        if self.start.is_due(!eye.is_without_ranks()) {
            due.push(("no rank is there", Reason::Start));
        }
        if self.meeting.is_due(eye.is_without_ranks() || !eye.view().comms.is_empty()) {
            due.push(("no rank has a communicator", Reason::Start));
        }
        if self.gone.is_due(eye.view()) && !is_still {
            due.push(("a rank is gone", Reason::Gone));
        }
        due
    }

    /// A wait is told of.
    pub(super) fn waits(&mut self) {
        self.waited = Some(Instant::now());
    }

    /// A rank is late; whether that is what is to be looked into.
    pub(super) fn is_late(&mut self, late: &Straggler) -> bool {
        self.late.insert(LateRank::seen(self.late, late)).is_of(late)
    }

    /// A verdict was told.
    pub(super) fn told(&mut self, answer: &VerdictExcerpt) {
        self.start.told(answer.worth());
        self.meeting.told(answer.worth());
        if let Some(late) = self.late.as_mut().filter(|_| answer.cause() == Cause::Straggler) {
            late.told();
        }
        if answer.is_failure_of_a_process() {
            self.gone.told(answer.worth());
        }
    }

    /// What is asked at the end of a job: an earlier verdict on that end was worth `than`.
    pub(super) fn at_the_end(&self, was_seen: bool, than: u8) -> Reason {
        let is_slow_told = self.late.as_ref().is_some_and(LateRank::is_told);
        let has_waited = self.waited.is_some_and(|at| at.elapsed() < WAITED_FOR);
        Reason::Doubt { was_seen, has_waited, is_slow_told, than }
    }

    /// What was told of a job of which no rank has come since, or of ranks that are still gone: [`VerdictExcerpt::worth`].
    pub(super) fn worth(&self) -> u8 {
        self.start.worth().max(self.meeting.worth()).max(self.gone.worth())
    }

    /// What is asked at the end of a command that ended in order and prints into these files.
    pub(super) fn in_order(&self, files: &[PathBuf]) -> Option<Reason> {
        if nan::is_in(files) {
            return Some(Reason::NotFinite);
        }
        self.late.filter(|late| !late.is_told()).map(|_| Reason::Slow)
    }
}
