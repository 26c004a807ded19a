//! Did the job fail, and when? The one answer, with its evidence.
//!
//! Every statement of torch and of launchers is given its meaning for the end of the job here, and nowhere else: the
//! match of [`sign`] has no wildcard, so a new event has to decide. NCCL's warnings with a result count too.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_knowledge::message::Role;
use ringleader_knowledge::signal::{SIGKILL, is_exit_by};
use ringleader_model::{
    Case, Cite, Evidence, Fact, NcclMessage, Observation, Rank, SourceId, SourceKind, TorchEvent, WallTime,
    WatchEvent, WatchedEnd,
};

use crate::said::messages::Claims;
use crate::when::trail::Trails;
use crate::when::year::in_year;

const MILLISECOND_NS: i64 = 1_000_000;

/// In which way something failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// A collective timed out.
    TimedOut,
    /// A watchdog is stuck.
    Stuck,
    /// torch reports an error of NCCL or CUDA.
    NcclError,
    /// An exception that was not caught, or that a logger printed.
    Raised,
    /// A crash report.
    Crashed,
    /// A row in the launcher's table of failures.
    RankFailed,
    /// The launcher failed; its table is cut off or empty.
    LauncherFailed,
    /// The launcher saw a process end with an error.
    RankExited,
    /// A warning of NCCL with a result.
    NcclWarned,
}

impl Way {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::TimedOut => "a collective timed out",
            Self::Stuck => "a watchdog is stuck",
            Self::NcclError => "an NCCL error was reported",
            Self::Raised => "an exception was raised",
            Self::Crashed => "a process crashed",
            Self::RankFailed | Self::LauncherFailed => "the launcher reports failed ranks",
            Self::RankExited => "the launcher reports a failed rank",
            Self::NcclWarned => "NCCL reports an error",
        }
    }

    /// A process ended by it. (An exception may have been caught, a timeout need not end a process.)
    pub fn ends_process(self) -> bool {
        match self {
            Self::Crashed | Self::RankFailed | Self::LauncherFailed | Self::RankExited => true,
            Self::TimedOut | Self::Stuck | Self::NcclError | Self::Raised | Self::NcclWarned => false,
        }
    }
}

/// When a fault began, by the line that reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// This long before the line, ns, and no earlier: a watchdog says how long it has waited, NCCL reports an error
    /// at once.
    Exactly(i64),
    /// The line is the end; the fault may have begun long before.
    Line,
    /// The line does not show it.
    Untold,
}

/// What a statement says of the end of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndSign {
    /// Something failed.
    Failed(Way, Since),
    /// A process ended, and nothing was wrong with it.
    Ended,
    /// Nothing, or nothing by itself.
    Nothing,
}

impl EndSign {
    /// A launcher reports that processes of the job ended.
    pub fn is_end(self) -> bool {
        match self {
            Self::Failed(way, _) => matches!(way, Way::RankFailed | Way::LauncherFailed | Way::RankExited),
            Self::Ended => true,
            Self::Nothing => false,
        }
    }
}

/// What an event of torch or a launcher says of the end of the job.
pub fn sign(event: &TorchEvent) -> EndSign {
    match event {
        TorchEvent::WatchdogTimeout { ran_ms, .. } => {
            let waited_ns = i64::try_from(*ran_ms).unwrap_or(i64::MAX).saturating_mul(MILLISECOND_NS);
            EndSign::Failed(Way::TimedOut, Since::Exactly(waited_ns))
        }
        TorchEvent::WatchdogStuck { .. } => EndSign::Failed(Way::Stuck, Since::Untold),
        TorchEvent::AsyncError { .. } | TorchEvent::WatchdogDied { .. } => {
            EndSign::Failed(Way::NcclError, Since::Exactly(0))
        }
        TorchEvent::Exception(_) => EndSign::Failed(Way::Raised, Since::Line),
        TorchEvent::Crash { .. } => EndSign::Failed(Way::Crashed, Since::Line),
        TorchEvent::ChildFailure { .. } => EndSign::Failed(Way::RankFailed, Since::Line),
        TorchEvent::LauncherFailed { .. } => EndSign::Failed(Way::LauncherFailed, Since::Line),
        TorchEvent::ChildExit { exit_code, .. } if *exit_code != 0 => EndSign::Failed(Way::RankExited, Since::Line),
        TorchEvent::ChildExit { .. } | TorchEvent::Started => EndSign::Ended,
        // The watchdog's numbers and dumps accompany a timeout, or are asked for of a job that runs.
        TorchEvent::WatchdogPosition { .. }
        | TorchEvent::FailedCollectiveStack { .. }
        | TorchEvent::DumpSignal { .. }
        | TorchEvent::GilStuck
        | TorchEvent::Desync { .. }
        | TorchEvent::FingerprintMismatch { .. }
        // About the end of others.
        | TorchEvent::ClosingSignal { .. }
        | TorchEvent::LauncherKilled { .. }
        // Stores and gloo try again.
        | TorchEvent::Store(_)
        | TorchEvent::Gloo(_)
        | TorchEvent::BarrierMissed { .. }
        | TorchEvent::NoNccl { .. }
        // The table of sayings has their meaning.
        | TorchEvent::Echo { .. }
        | TorchEvent::ErrorLine { .. } => EndSign::Nothing,
    }
}

/// Whether an event is a collective that timed out, of whichever process.
pub fn is_timeout(event: &TorchEvent) -> bool {
    matches!(sign(event), EndSign::Failed(Way::TimedOut, _))
}

/// Where a launcher reports that a process ended by SIGKILL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillReport {
    /// In a line of its own, when it saw the end.
    Line,
    /// In its table of failures.
    Table,
}

/// Where an event reports that a process ended by SIGKILL; None if it does not.
pub fn kill(event: &TorchEvent) -> Option<KillReport> {
    let (code, report) = match event {
        TorchEvent::ChildExit { exit_code, .. } => (*exit_code, KillReport::Line),
        TorchEvent::ChildFailure { exit_code, .. } => (*exit_code, KillReport::Table),
        _ => return None,
    };
    is_exit_by(code, SIGKILL).then_some(report)
}

/// A signal by which somebody asked a launcher to stop, as the launcher reports it.
#[derive(Clone, Debug)]
pub struct StopRequest {
    /// Name or number of the signal, in the launcher's words.
    pub signal: Box<str>,
    /// When it was reported.
    pub at: Option<WallTime>,
    /// The report.
    pub evidence: Evidence,
}

/// A warning of NCCL that names a result is an error.
pub fn is_error(message: &NcclMessage) -> bool {
    message.is_warn && message.result.is_some_and(|r| r != 0)
}

/// What is known of the job's failure, and of its end. Times are month, day and time of day alone (torch's stamps have
/// no year), ns.
#[derive(Clone, Debug, Default)]
pub struct JobFailure {
    /// The first statement that something failed: torch and launchers before NCCL.
    first: Option<(Way, Evidence)>,
    ways: BTreeSet<Way>,
    /// First moment of a fault, and whether the fault cannot have begun much earlier.
    began: Option<(i64, bool)>,
    /// When torch or a launcher first said so.
    told_at: Option<WallTime>,
    /// A message of any sort claims a fault that is not known to be harmless.
    is_claimed: bool,
    /// The first, in source order.
    stop_request: Option<StopRequest>,
    launcher_saw_end: bool,
    exited_well: bool,
}

/// Whether the last process of every rank is known to have ended with exit code 0: whatever failed before, the job got over
/// it.
fn exited_well(case: &Case) -> bool {
    let mut last: BTreeMap<Rank, WatchedEnd> = BTreeMap::new();
    let mut is_all = false;
    for observation in &case.observations {
        let Fact::Watch(WatchEvent::Gone(ended, all)) = &observation.fact else { continue };
        is_all |= *all;
        for end in ended {
            let newest = last.entry(end.rank).or_insert(*end);
            if end.at_ns > newest.at_ns {
                *newest = *end;
            }
        }
    }
    // A watcher may come too late for the code; a ring keeps it.
    let by_ring = |rank: Rank| {
        let own = |o: &&Observation| o.who.rank == Some(rank);
        let exits = case.observations.iter().filter(own).filter_map(|o| match &o.fact {
            Fact::Ring(ring) => Some((ring.taken_ns, ring.exit.map(|(code, _)| code))),
            _ => None,
        });
        exits.max().and_then(|(_, code)| code)
    };
    let is_well = |end: &WatchedEnd| match end.exit_code {
        Some(code) => code == 0,
        None => by_ring(end.rank) == Some(0),
    };
    is_all && !last.is_empty() && last.values().all(is_well)
}

/// What programs went on after.
struct Survived<'a> {
    trails: &'a Trails,
    /// Exceptions that a source survived: class and message. A program that catches one catches it again, if a step
    /// follows.
    caught: BTreeSet<(SourceId, &'a str, &'a str)>,
    exited_well: bool,
}

impl<'a> Survived<'a> {
    fn new(case: &'a Case, trails: &'a Trails, exited_well: bool) -> Self {
        let mut survived = Self { trails, caught: BTreeSet::new(), exited_well };
        let caught = case.observations.iter().filter_map(|observation| {
            let Fact::Torch(TorchEvent::Exception(exception)) = &observation.fact else { return None };
            let cite = observation.cite;
            survived.outlived(Way::Raised, cite).then_some((
                cite.source,
                &*exception.class,
                &*exception.message,
            ))
        });
        survived.caught = caught.collect();
        survived
    }

    /// Whether an event did not end its program.
    fn has(&self, way: Way, event: &TorchEvent, cite: Cite) -> bool {
        let is_caught = match event {
            TorchEvent::Exception(e) => {
                self.trails.was_followed(cite) && self.caught.contains(&(cite.source, &*e.class, &*e.message))
            }
            _ => false,
        };
        is_caught || self.outlived(way, cite)
    }

    /// Whether the program went on after what was reported at `cite`, whatever became of others. A crash report of a
    /// process is survived only where the program ends in order after it.
    fn outlived(&self, way: Way, cite: Cite) -> bool {
        match way {
            Way::Raised => self.exited_well || self.trails.went_on_after(cite),
            Way::Crashed => self.exited_well || self.trails.is_done_after(cite),
            Way::TimedOut
            | Way::Stuck
            | Way::NcclError
            | Way::RankFailed
            | Way::LauncherFailed
            | Way::RankExited
            | Way::NcclWarned => false,
        }
    }
}

fn of_torch(observation: &Observation) -> Evidence {
    Evidence { cite: observation.cite, text: observation.text.to_string(), kind: SourceKind::TorchLog }
}

impl JobFailure {
    /// Of the evidence of a case.
    pub fn new(case: &Case, claims: &Claims<'_>, trails: &Trails) -> Self {
        let mut failure = Self {
            is_claimed: claims.all().iter().any(|c| c.saying.role != Role::Harmless),
            exited_well: exited_well(case),
            ..Self::default()
        };
        let survived = Survived::new(case, trails, failure.exited_well);
        let mut of_nccl = None;
        for observation in &case.observations {
            match &observation.fact {
                Fact::Torch(event) => {
                    if let TorchEvent::LauncherKilled { signal } = event {
                        failure.stop_request.get_or_insert_with(|| StopRequest {
                            signal: signal.clone(),
                            at: observation.at,
                            evidence: of_torch(observation),
                        });
                    }
                    let sign = sign(event);
                    failure.launcher_saw_end |= sign.is_end();
                    let EndSign::Failed(way, since) = sign else { continue };
                    if survived.has(way, event, observation.cite) {
                        continue;
                    }
                    failure.ways.insert(way);
                    failure.first.get_or_insert_with(|| (way, of_torch(observation)));
                    failure.tell(observation.at, way, since);
                }
                Fact::Nccl(log) => {
                    for message in log.messages.iter().filter(|m| is_error(m)) {
                        let way = Way::NcclWarned;
                        failure.ways.insert(way);
                        of_nccl.get_or_insert_with(|| {
                            let text = message.text.to_string();
                            (way, Evidence { cite: message.cite, text, kind: SourceKind::NcclLog })
                        });
                        failure.tell(message.at, way, Since::Exactly(0));
                    }
                }
                _ => {}
            }
        }
        failure.first = failure.first.or(of_nccl);
        failure
    }

    fn tell(&mut self, at: Option<WallTime>, way: Way, since: Since) {
        let Some(at) = at else { return };
        let began = match since {
            Since::Exactly(earlier_ns) => Some((in_year(at).saturating_sub(earlier_ns), true)),
            Since::Line => Some((in_year(at), false)),
            Since::Untold => None,
        };
        if let Some((ns, _)) = began
            && self.began.is_none_or(|(first, _)| ns < first)
        {
            self.began = began;
        }
        let key = |at: WallTime| (!at.has_year, at.ns);
        if way != Way::NcclWarned && at.ns > 0 && self.told_at.is_none_or(|first| key(at) < key(first)) {
            self.told_at = Some(at);
        }
    }

    /// The first statement that something failed, and in which way.
    pub fn first(&self) -> Option<(Way, &Evidence)> {
        self.first.as_ref().map(|(way, evidence)| (*way, evidence))
    }

    /// Something states that the job failed.
    pub fn is_stated(&self) -> bool {
        self.first.is_some()
    }

    /// Something states that the job failed, or a message claims a fault.
    pub fn is_claimed(&self) -> bool {
        self.is_stated() || self.is_claimed
    }

    /// Whether anything failed in this way.
    pub fn has(&self, way: Way) -> bool {
        self.ways.contains(&way)
    }

    /// A launcher reports that a signal asked it to stop: what it ended after that did not fail.
    pub fn was_asked_to_stop(&self) -> bool {
        self.stop_request.is_some()
    }

    /// The first such report, in source order.
    pub fn stop_request(&self) -> Option<&StopRequest> {
        self.stop_request.as_ref()
    }

    /// A process of the job is known to have ended by a failure.
    pub fn ended_process(&self) -> bool {
        self.ways.iter().any(|way| way.ends_process())
    }

    /// The last process of every rank ended with exit code 0.
    pub(super) fn exited_well(&self) -> bool {
        self.exited_well
    }

    /// A launcher reports that a process of the job ended, well or not.
    pub(super) fn launcher_saw_end(&self) -> bool {
        self.launcher_saw_end
    }

    /// First sign that something failed, and whether the fault cannot have begun much earlier: a process that was
    /// killed may have hung for hours before. Without its year, ns.
    pub fn began(&self) -> Option<(i64, bool)> {
        self.began
    }

    /// Time from a moment to the first failure, ns, and whether that is surely its start; None if either is unknown.
    pub fn after(&self, at: Option<WallTime>) -> Option<(i64, bool)> {
        let (failed, is_start) = self.began?;
        Some((failed - in_year(at?), is_start))
    }

    /// When torch or a launcher first said that something failed.
    pub fn told_at(&self) -> Option<WallTime> {
        self.told_at
    }
}
