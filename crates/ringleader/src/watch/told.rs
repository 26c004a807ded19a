//! What was told of the present stall, and what is worth telling of it still.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use std::path::Path;

use ringleader_collect::follow;
use ringleader_report::json::Culprit;

use super::incident::Judged;

/// Between two looks at whether a stall is over.
const NAP: Duration = Duration::from_millis(50);
/// A verdict on a rank that works is held this many times as long: an evaluation on one rank takes a minute or two.
const WORKERS: u32 = 4;
/// A rank works if it has used this share of a processor since the verdict, percent.
const WORK_PERCENT: u64 = 50;
/// The least time over which that is measured.
const MEASURED: Duration = Duration::from_secs(1);
/// Said where a later look finds no cause.
pub(super) const STANDS: &str = "another look at the same stall shows no more: the verdict before it stands";
/// `Answer::worth` of a verdict that nothing can better.
pub(super) const SUREST: u8 = 3;

/// Shared with the threads of incidents.
#[derive(Debug, Default)]
pub(super) struct WatchSummary {
    /// What the best verdict on the present stall was worth.
    best: AtomicU8,
    /// How often all that stalled went on by itself.
    n_recoveries: AtomicU32,
    /// How often something stalled.
    n_stalls: AtomicU32,
    last: Mutex<Option<Instant>>,
    /// The ranks that the last verdict on a rank elsewhere named; none after any other verdict.
    elsewhere: Mutex<Vec<u32>>,
    is_over: AtomicBool,
}

impl WatchSummary {
    /// All that stalled goes on.
    pub(super) fn recovered(&self) {
        self.n_recoveries.fetch_add(1, Ordering::Relaxed);
        self.best.store(0, Ordering::Relaxed);
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Something stalls.
    pub(super) fn stalled(&self) {
        self.n_stalls.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of stalls so far.
    pub(super) fn n_stalls(&self) -> u32 {
        self.n_stalls.load(Ordering::Relaxed)
    }

    /// The job ends, or the watcher does: nothing is held back any more.
    pub(super) fn over(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// What the best verdict on the present stall was worth.
    pub(super) fn best(&self) -> u8 {
        self.best.load(Ordering::Relaxed)
    }

    /// A verdict is told.
    pub(super) fn tell(&self, judged: &Judged) {
        self.best.fetch_max(judged.answer.worth(), Ordering::Relaxed);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        *self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner) =
            if judged.answer.may_pass() { judged.answer.ranks().to_vec() } else { Vec::new() };
    }

    /// The last verdict named a rank that was elsewhere. Such a rank may fail there, which then explains the stall.
    pub(super) fn may_be_revised(&self) -> bool {
        !self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Whether a verdict at the end says that a rank that was elsewhere has failed there.
    pub(super) fn is_revised_by(&self, judged: &Judged) -> bool {
        let elsewhere = self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner);
        let ranks = judged.answer.ranks();
        judged.answer.is_failure_of_a_process()
            && !ranks.is_empty()
            && ranks.iter().all(|rank| elsewhere.contains(rank))
    }

    /// A look at the same stall, within `same` of the verdict before it, sees less: its ranks are ending by then.
    pub(super) fn sees_less(&self, judged: &Judged, same: Duration) -> bool {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        judged.answer.worth() == 0 && self.best() > 0 && last.is_some_and(|at| at.elapsed() < same)
    }

    /// The number of recoveries so far, for [`Self::persists`].
    pub(super) fn n_recoveries(&self) -> u32 {
        self.n_recoveries.load(Ordering::Relaxed)
    }

    /// Waits for what a verdict names to end by itself, where it may; whether it did. As [`Self::persists`].
    pub(super) fn passes(&self, judged: &Judged, since: Instant, hold: Duration, before: u32) -> bool {
        if !judged.answer.may_pass() {
            return false;
        }
        let effort = Effort::new(&judged.report.verdict.culprits);
        let hold = judged.answer.hold(hold);
        if !self.persists(since, hold, before) {
            return true;
        }
        let longer = hold * WORKERS;
        if since.elapsed() >= longer || hold.is_zero() || self.is_over.load(Ordering::Relaxed) {
            return false;
        }
        let measured = effort.began.elapsed();
        if measured < MEASURED && !self.persists(Instant::now(), MEASURED.saturating_sub(measured), before) {
            return true;
        }
        effort.goes_on() && !self.persists(since, longer, before)
    }

    /// Waits until the stall is as old as `hold`, or the job ends; whether it still lasts. `before`: recoveries when it began.
    pub(super) fn persists(&self, since: Instant, hold: Duration, before: u32) -> bool {
        while since.elapsed() < hold && !self.is_over.load(Ordering::Relaxed) {
            if self.n_recoveries() != before {
                return false;
            }
            thread::sleep(NAP);
        }
        self.n_recoveries() == before
    }
}

/// Processor time of the culprits on this machine, to be compared later.
struct Effort {
    began: Instant,
    /// Ticks of each process.
    ticks: Vec<(u32, u64)>,
}

impl Effort {
    fn new(culprits: &[Culprit]) -> Self {
        let host = follow::host();
        let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        let is_here = |c: &&Culprit| c.host.as_deref().is_none_or(|name| short(name) == short(&host));
        let pids = culprits.iter().filter(is_here).filter_map(|c| c.pid);
        Self { began: Instant::now(), ticks: pids.filter_map(|pid| Some((pid, ticks(pid)?))).collect() }
    }

    /// One of them works.
    fn goes_on(&self) -> bool {
        let ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.ticks.iter().any(|(pid, before)| {
            let used = ticks(*pid).map_or(0, |now| now.saturating_sub(*before));
            used * 1000 / follow::ticks_per_second() * 100 >= ms.saturating_mul(WORK_PERCENT)
        })
    }
}

fn ticks(pid: u32) -> Option<u64> {
    follow::process(Path::new("/proc"), pid).map(|stat| stat.cpu_ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn culprit(pid: u32) -> Culprit {
        Culprit { rank: Some(0), host: None, pid: Some(pid), local_rank: None, gpu: None, place: None }
    }

    #[test]
    fn a_process_that_computes_works_and_one_that_sleeps_does_not() {
        let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().expect("sleep starts");
        let (own, other) =
            (Effort::new(&[culprit(std::process::id())]), Effort::new(&[culprit(sleeper.id())]));
        let nobody =
            Effort::new(&[Culprit { host: Some("elsewhere".into()), ..culprit(std::process::id()) }]);
        let until = Instant::now() + Duration::from_millis(400);
        let mut sum = 0_u64;
        while Instant::now() < until {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(1));
        }
        assert!(own.goes_on());
        assert!(!other.goes_on() && !nobody.goes_on());
        sleeper.kill().expect("it is ours");
        sleeper.wait().expect("it ends");
    }

    const HOLD: Duration = Duration::from_millis(400);

    #[test]
    fn a_stall_that_lasts_is_told() {
        let told = WatchSummary::default();
        let since = Instant::now();
        assert!(told.persists(since, HOLD, told.n_recoveries()));
        assert!(since.elapsed() >= HOLD);
    }

    #[test]
    fn one_that_passes_is_not() {
        let told = WatchSummary::default();
        let before = told.n_recoveries();
        told.recovered();
        assert!(!told.persists(Instant::now(), HOLD, before));
    }

    #[test]
    fn at_the_end_nothing_is_held_back() {
        let told = WatchSummary::default();
        told.over();
        let since = Instant::now();
        assert!(told.persists(since, Duration::from_mins(1), told.n_recoveries()));
        assert!(since.elapsed() < HOLD);
    }
}
