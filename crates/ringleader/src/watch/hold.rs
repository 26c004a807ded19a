//! Holds a verdict back in the thread of its incident, and measures meanwhile what its culprits compute. How long is decided by
//! `ringleader_watch::verdicts`.

use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ringleader_collect::follow;
use ringleader_report::json::Culprit;
use ringleader_watch::verdicts::{Hold, HoldStep, StallVerdicts};

use super::incident::Judged;

/// Between two looks at whether a stall is over.
const NAP: Duration = Duration::from_millis(50);

/// Nanoseconds of a clock that is never set. It starts when it is first asked.
pub(super) fn steady_ns() -> i64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    i64::try_from(START.elapsed().as_nanos()).unwrap_or(i64::MAX)
}

/// What was reported of the present stall, shared with the threads of incidents.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedVerdicts(Arc<Mutex<StallVerdicts>>);

impl SharedVerdicts {
    pub(super) fn lock(&self) -> MutexGuard<'_, StallVerdicts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Recoveries and stalls so far.
    pub(super) fn counts(&self) -> (u32, u32) {
        let verdicts = self.lock();
        (verdicts.n_recoveries(), verdicts.n_stalls())
    }

    /// Waits for what a verdict names to end by itself, where it may; whether it did. `since_ns`: start of the stall;
    /// `n_recoveries`: those before the evidence was collected.
    pub(super) fn passes(&self, judged: &Judged, since_ns: i64, hold_ns: i64, n_recoveries: u32) -> bool {
        let Some(mut hold) = Hold::new(&judged.answer, since_ns, hold_ns, n_recoveries, steady_ns()) else {
            return false;
        };
        let effort = CulpritEffort::new(&judged.report.verdict.culprits);
        loop {
            let step = hold.step(&self.lock(), || effort.most_ms(), steady_ns());
            match step {
                HoldStep::Wait => thread::sleep(NAP),
                HoldStep::Report => return false,
                HoldStep::Passed => return true,
            }
        }
    }
}

/// Processor time of the culprits on this machine, clock ticks by process, to be compared later.
struct CulpritEffort {
    ticks: Vec<(u32, u64)>,
}

impl CulpritEffort {
    fn new(culprits: &[Culprit]) -> Self {
        let host = follow::host();
        let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        let is_here = |c: &&Culprit| c.host.as_deref().is_none_or(|name| short(name) == short(&host));
        let pids = culprits.iter().filter(is_here).filter_map(|c| c.pid);
        Self { ticks: pids.filter_map(|pid| Some((pid, ticks(pid)?))).collect() }
    }

    /// What the one that used most has used since, milliseconds.
    fn most_ms(&self) -> u64 {
        let used = |(pid, before): &(u32, u64)| ticks(*pid).map_or(0, |now| now.saturating_sub(*before));
        self.ticks.iter().map(used).max().unwrap_or(0) * 1000 / follow::ticks_per_second()
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
    fn a_process_that_computes_uses_time_and_one_that_sleeps_does_not() {
        let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().expect("sleep starts");
        let (own, other) = (
            CulpritEffort::new(&[culprit(std::process::id())]),
            CulpritEffort::new(&[culprit(sleeper.id())]),
        );
        let nobody =
            CulpritEffort::new(&[Culprit { host: Some("elsewhere".into()), ..culprit(std::process::id()) }]);
        let until = Instant::now() + Duration::from_millis(400);
        let mut sum = 0_u64;
        while Instant::now() < until {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(1));
        }
        assert!(own.most_ms() > 0);
        assert!(other.most_ms() == 0 && nobody.most_ms() == 0);
        sleeper.kill().expect("it is ours");
        sleeper.wait().expect("it ends");
    }
}
