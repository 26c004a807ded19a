//! When the job first failed and how it ended, as its own evidence tells: what machines report is weighed against it.

use ringleader_model::{Case, Fact, TorchEvent, WallTime};

use crate::when::window::in_year;

const MILLISECOND_NS: i64 = 1_000_000;

/// How the job ended. Times are month, day and time of day alone (torch's stamps have no year), ns.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ending {
    /// First sign that something failed, and whether the fault cannot have begun much earlier: a watchdog says since
    /// when it has waited, NCCL reports an error at once. A process that was killed may have hung for hours before.
    pub failed: Option<(i64, bool)>,
    /// Every communicator was destroyed in order, and nothing failed.
    pub in_order: bool,
}

impl Ending {
    /// Of the evidence of a case.
    pub fn new(case: &Case) -> Self {
        let mut ending = Self::default();
        let mut has_ended = false;
        for observation in &case.observations {
            match &observation.fact {
                Fact::Torch(event) => {
                    has_ended |= matches!(
                        event,
                        TorchEvent::ChildFailure { .. }
                            | TorchEvent::ChildExit { .. }
                            | TorchEvent::LauncherFailed { .. }
                    );
                    if let (Some(at), Some((earlier_ns, is_start))) = (observation.at, failure(event)) {
                        ending.fail(in_year(at) - earlier_ns, is_start);
                    }
                }
                Fact::Nccl(log) => {
                    let errors =
                        log.messages.iter().filter(|m| m.is_warn && m.result.is_some_and(|r| r != 0));
                    errors.filter_map(|m| m.at).for_each(|at| ending.fail(in_year(at), true));
                }
                _ => {}
            }
        }
        let logs = case.observations.iter().filter_map(|o| match &o.fact {
            Fact::Nccl(log) => Some(log),
            _ => None,
        });
        let mut ready = logs.flat_map(|l| &l.comms).filter(|c| c.completed.is_some()).peekable();
        let all_gone = ready.peek().is_some() && ready.all(|c| c.destroyed.is_some());
        ending.in_order = all_gone && !has_ended && stated_failure(case).is_none();
        ending
    }

    fn fail(&mut self, at: i64, is_start: bool) {
        if self.failed.is_none_or(|(first, _)| at < first) {
            self.failed = Some((at, is_start));
        }
    }

    /// Time from a moment to the first failure, ns; None if either is unknown.
    pub fn before_failure(&self, at: Option<WallTime>) -> Option<(i64, bool)> {
        let (failed, is_start) = self.failed?;
        Some((failed - in_year(at?), is_start))
    }
}

/// How much earlier than its line a failure began, ns, and whether that is surely its start; None: no failure.
fn failure(event: &TorchEvent) -> Option<(i64, bool)> {
    match event {
        TorchEvent::WatchdogTimeout { ran_ms, .. } => {
            Some((i64::try_from(*ran_ms).ok()?.saturating_mul(MILLISECOND_NS), true))
        }
        TorchEvent::AsyncError { .. } | TorchEvent::WatchdogDied { .. } => Some((0, true)),
        TorchEvent::Exception(_)
        | TorchEvent::Crash { .. }
        | TorchEvent::ChildFailure { .. }
        | TorchEvent::ChildExit { .. }
        | TorchEvent::LauncherFailed { .. } => Some((0, false)),
        _ => None,
    }
}

/// The first statement that something failed, in words.
pub fn stated_failure(case: &Case) -> Option<&'static str> {
    let of_torch = case.observations.iter().find_map(|o| match &o.fact {
        Fact::Torch(event) => match event {
            TorchEvent::WatchdogTimeout { .. } => Some("a collective timed out"),
            TorchEvent::WatchdogStuck { .. } => Some("a watchdog is stuck"),
            TorchEvent::AsyncError { .. } | TorchEvent::WatchdogDied { .. } => {
                Some("an NCCL error was reported")
            }
            TorchEvent::Exception(_) => Some("an exception was raised"),
            TorchEvent::Crash { .. } => Some("a process crashed"),
            TorchEvent::ChildFailure { .. } | TorchEvent::LauncherFailed { .. } => {
                Some("the launcher reports failed ranks")
            }
            TorchEvent::ChildExit { exit_code } if *exit_code != 0 => {
                Some("the launcher reports a failed rank")
            }
            _ => None,
        },
        _ => None,
    });
    let of_nccl = || {
        case.observations.iter().any(|o| match &o.fact {
            Fact::Nccl(log) => log.messages.iter().any(|m| m.is_warn && m.result.is_some_and(|r| r != 0)),
            _ => false,
        })
    };
    of_torch.or_else(|| of_nccl().then_some("NCCL reports an error"))
}

/// When torch or a launcher first said that something failed.
pub fn first_failure(case: &Case) -> Option<WallTime> {
    let failed = case.observations.iter().filter(|o| match &o.fact {
        Fact::Torch(event) => {
            matches!(
                event,
                TorchEvent::WatchdogTimeout { .. }
                    | TorchEvent::AsyncError { .. }
                    | TorchEvent::Crash { .. }
                    | TorchEvent::Exception(_)
                    | TorchEvent::ChildFailure { .. }
            ) || matches!(event, TorchEvent::ChildExit { exit_code } if *exit_code != 0)
        }
        _ => false,
    });
    failed.filter_map(|o| o.at).filter(|at| at.ns > 0).min_by_key(|at| (!at.has_year, at.ns))
}
