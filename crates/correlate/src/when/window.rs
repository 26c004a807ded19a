//! Whether there is a job in the evidence at all, and the time that it spans.
//!
//! A live job begins with its first process: kernel events before that, or about other programs, are not part of it. A
//! log in a truncated archive, or beside a job that was searched for and not found, is not evidence of a whole job.

use ringleader_model::{
    Case, Fact, Note, NoteKind, PickedProcess, ProcessTable, TorchEvent, WallTime, WatchEvent,
};

use crate::when::failure::{EndSign, sign};
use crate::when::year::in_year;

const SECOND_NS: i64 = 1_000_000_000;
/// How far a statement may be before the first sign of the job: clocks of hosts differ, and setting up takes time.
/// Chosen: two minutes hold both.
const BEFORE_NS: i64 = 120 * SECOND_NS;
/// As above, where it is known when the job's first process began: both times may be cut to the second.
const BEFORE_START_NS: i64 = 2 * SECOND_NS;
/// How far a statement may be after the job's own account of its end: peers time out, after ten minutes by PyTorch's default for
/// NCCL, and the launcher waits for them.
const AFTER_NS: i64 = 600 * SECOND_NS;
/// Times without a year are compared around the turn of one, too.
const YEAR_NS: i64 = 365 * 86_400 * SECOND_NS;

/// The time that a job's own evidence spans.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    /// With year, ns.
    first: Option<i64>,
    /// Month, day and time alone, ns.
    first_in_year: Option<i64>,
    /// When its first process began, with year, ns: to the second, if no sign of it is older.
    began: Option<i64>,
    /// From the first to the last sign of a job that says that it ended, ns. None if it does not say so, or not when.
    span: Option<i64>,
}

/// Where a moment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lies {
    /// Before the job began.
    Before,
    /// While it ran, or close to it.
    Within,
    /// After its end.
    After,
}

impl Window {
    /// Of a job's own evidence.
    pub fn new(case: &Case) -> Self {
        window(case)
    }

    fn widen(&mut self, at: WallTime) {
        if at.ns <= 0 {
            return;
        }
        if at.has_year {
            self.first = Some(self.first.map_or(at.ns, |f| f.min(at.ns)));
        }
        let ns = in_year(at);
        self.first_in_year = Some(self.first_in_year.map_or(ns, |f| f.min(ns)));
    }

    /// Time since the first sign of the job, ns; None if they cannot be compared.
    fn since_first(&self, at: WallTime) -> Option<i64> {
        let first = self.first_with_year();
        if let (true, Some(first)) = (at.has_year, first) {
            return Some(at.ns.saturating_sub(first));
        }
        // A job that spans the turn of the year has its first moment at the year's end.
        let first = first.map(|ns| in_year(WallTime { ns, error_ns: 0, has_year: true }));
        Some(nearer(in_year(at).saturating_sub(first.or(self.first_in_year)?)))
    }

    /// The first sign, by a sign with a year and by what comes before it without one.
    fn first_with_year(&self) -> Option<i64> {
        let first = self.first?;
        let of_year = in_year(WallTime { ns: first, error_ns: 0, has_year: true });
        let earlier = self.first_in_year.map_or(0, |ns| nearer(of_year.saturating_sub(ns)).max(0));
        Some(first.saturating_sub(earlier))
    }

    /// Where a moment is; None if they cannot be compared.
    pub fn place(&self, at: Option<WallTime>) -> Option<Lies> {
        let at = at?;
        let since = self.since_first(at)?;
        // The first sign of a job may be minutes younger than the job.
        let is_exact = self.began.is_some() && self.began == self.first;
        let before_ns = if is_exact { BEFORE_START_NS } else { BEFORE_NS };
        Some(if since.saturating_add(at.error_ns) < -before_ns {
            Lies::Before
        } else if self.span.is_some_and(|span| since.saturating_sub(at.error_ns) - span > AFTER_NS) {
            Lies::After
        } else {
            Lies::Within
        })
    }
}

/// The time from one moment to another one without their years: the nearer of the two directions is meant.
fn nearer(apart: i64) -> i64 {
    apart.saturating_add(YEAR_NS / 2).rem_euclid(YEAR_NS) - YEAR_NS / 2
}

/// Evidence that a job leaves, or a look at it while it runs. One that was searched for and not found, or may have been
/// where an archive is cut, counts too: a kernel log beside it is not judged by itself.
pub fn has_job(case: &Case) -> bool {
    has_records(case)
        || is_cut(case)
        || case.observations.iter().any(|o| match &o.fact {
            Fact::Watch(WatchEvent::Ranks(all)) => !all.is_empty(),
            Fact::Processes(table) => {
                began(table).is_some() || table.pick.as_ref().is_some_and(|pick| pick.unread.is_some())
            }
            _ => false,
        })
}

/// An archive ends before its end. It is a source of its own, of no kind, where something is to be said of it.
pub fn is_cut(case: &Case) -> bool {
    let is_archive = |note: &Note| {
        case.sources.get(note.cite.source.0 as usize).is_some_and(|source| source.kinds.is_empty())
    };
    case.notes.iter().any(|note| note.kind == NoteKind::Truncated && is_archive(note))
}

/// What a job itself has written, or NCCL within it.
pub fn has_records(case: &Case) -> bool {
    case.observations.iter().any(|o| {
        matches!(o.fact, Fact::Nccl(_) | Fact::Torch(_) | Fact::Flight(_) | Fact::Ras(_) | Fact::Ring(_))
    })
}

/// When the first of a job's processes that live began, ns; of a job that has no rank yet, its launcher.
fn began(table: &ProcessTable) -> Option<i64> {
    let first = |is: fn(&PickedProcess) -> bool| {
        let picked = table.rows.iter().filter_map(|row| row.picked.as_deref()).filter(|p| is(p));
        picked.filter_map(|p| p.started_ns).min()
    };
    first(|p| p.is_of_job).or_else(|| first(|p| p.was_asked_for))
}

/// Between what made a collective wait and its call.
const EARLIER_NS: i64 = 60 * SECOND_NS;

fn window(case: &Case) -> Window {
    let mut window = Window::default();
    let mut signs: Vec<WallTime> = Vec::new();
    let mut is_ended = false;
    let (mut n_comms, mut n_closed) = (0_usize, 0_usize);
    // A job whose launcher says that its processes ended is not the one that is seen to live.
    let is_over =
        case.observations.iter().any(|o| matches!(&o.fact, Fact::Torch(event) if sign(event).is_end()));
    let mut first_seen: Option<i64> = None;
    for observation in &case.observations {
        match &observation.fact {
            Fact::Processes(table) => {
                if let Some(ns) = began(table).filter(|_| !is_over) {
                    first_seen = Some(first_seen.map_or(ns, |first| first.min(ns)));
                }
                continue;
            }
            Fact::Kernel(_) | Fact::Gpus(_) | Fact::GpuTests(_) | Fact::GpuService(_) | Fact::Limits(_) => {
                continue;
            }
            Fact::Nccl(log) => {
                let stamps = log
                    .processes
                    .iter()
                    .filter_map(|p| p.last_at)
                    .chain(log.comms.iter().filter_map(|c| c.at))
                    .chain(log.messages.iter().filter_map(|m| m.at));
                stamps.for_each(|at| {
                    window.widen(at);
                    signs.push(at);
                });
                n_comms += log.comms.len();
                n_closed += log.comms.iter().filter(|c| c.destroyed.is_some() || c.aborted.is_some()).count();
                if let Some(call) = log.calls.iter().find(|c| c.at_s > 0) {
                    let ns = i64::from(call.at_s) * SECOND_NS;
                    window.widen(WallTime { ns, error_ns: SECOND_NS, has_year: true });
                }
            }
            Fact::Flight(dump) => {
                if let Some(op) = dump.ops.iter().find(|op| op.created_ns > 0) {
                    window.widen(WallTime { ns: op.created_ns, error_ns: 0, has_year: true });
                }
            }
            _ => {}
        }
        if let Fact::Watch(WatchEvent::Began(ns)) = observation.fact {
            window.began = Some(window.began.map_or(ns, |began| began.min(ns)));
        }
        if let Fact::Torch(event) = &observation.fact {
            is_ended |= observation.at.is_some() && sign(event) != EndSign::Nothing;
        }
        if let Some(at) = observation.at {
            window.widen(at);
            signs.push(at);
            // It waited for so long, and what made it wait came somewhat earlier. A log of errors alone begins at the end of that.
            if let Fact::Torch(TorchEvent::WatchdogTimeout { ran_ms, .. }) = &observation.fact {
                let ran_ns = i64::try_from(*ran_ms).unwrap_or(i64::MAX).saturating_mul(1_000_000);
                window.widen(WallTime { ns: at.ns.saturating_sub(ran_ns).saturating_sub(EARLIER_NS), ..at });
            }
        }
    }
    if let Some(ns) = first_seen {
        window.began = Some(window.began.map_or(ns, |began| began.min(ns)));
        window.widen(WallTime { ns, error_ns: 0, has_year: true });
    }
    if is_ended || (n_comms > 0 && n_closed == n_comms) {
        window.span = signs.into_iter().filter_map(|at| window.since_first(at)).max();
    }
    window
}
