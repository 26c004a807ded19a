//! The last word of a process that aborted: the message of a C++ exception that nobody caught.
//!
//! ```text
//! terminate called after throwing an instance of 'gloo::EnforceNotMet'
//!   what():  [enforce fail at …/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 8192 vs 4.
//! ```
//!
//! If the message table knows which cause the message states, the abort is a consequence of that cause.

use ringleader_knowledge::message::{self, MessageRow, Role};
use ringleader_knowledge::wording;
use ringleader_model::{
    Case, Cause, Evidence, Fact, Observation, PythonException, Rank, SourceKind, TorchEvent,
};

use crate::who::roster::Roster;

/// Causes that say no more than the abort itself.
const WIDE: [Cause; 3] = [Cause::ProcessCrashed, Cause::PeerProcessDied, Cause::ApplicationException];

/// What an aborted process said last.
#[derive(Clone, Debug)]
pub struct Thrown {
    /// The row of the message table.
    pub row: MessageRow,
    /// The cause that it states.
    pub cause: Cause,
    /// The exception as it was printed.
    pub evidence: Evidence,
}

/// The last word of this rank: its own, or, if none is known to be its own, what no rank is known to have said. None if the
/// table does not know what it states, or if there are several that state different causes.
pub(crate) fn thrown(case: &Case, roster: &Roster, rank: Rank) -> Option<Thrown> {
    let of = |speaker: Option<Rank>| {
        let words = case.observations.iter().filter_map(|o| Some((o, message_of(o)?)));
        words.filter(move |(o, _)| roster.speaker(o) == speaker).map(|(o, text)| read(o, text))
    };
    let mut own = of(Some(rank)).peekable();
    if own.peek().is_some() { one(own) } else { one(of(None)) }
}

/// Whether the watchdog of its process group ended this rank: the exception that nobody caught reports an error of NCCL.
pub(crate) fn is_of_watchdog(case: &Case, roster: &Roster, rank: Rank) -> bool {
    let mut own =
        case.observations.iter().filter(|o| roster.speaker(o).is_none_or(|speaker| speaker == rank));
    own.any(|o| message_of(o).is_some_and(wording::is_of_watchdog))
}

/// The first, if all others state the same.
fn one(mut all: impl Iterator<Item = Option<Thrown>>) -> Option<Thrown> {
    let first = all.next()??;
    let is_same = |other: Option<Thrown>| other.is_some_and(|other| other.cause == first.cause);
    all.all(is_same).then_some(first)
}

/// Rows of the message table that the message of an exception was printed from, the narrowest first.
pub fn rows(raised: &PythonException) -> impl Iterator<Item = MessageRow> {
    let text = format!("{}: {}", raised.class, raised.message);
    let mut rows = Vec::new();
    message::classify(&text, &mut rows);
    rows.into_iter().map(|found| found.row).collect::<Vec<_>>().into_iter()
}

fn message_of(observation: &Observation) -> Option<&str> {
    let Fact::Torch(TorchEvent::Crash { reason, .. }) = &observation.fact else { return None };
    wording::thrown(reason)
}

fn read(observation: &Observation, text: &str) -> Option<Thrown> {
    let mut rows = Vec::new();
    message::classify(text, &mut rows);
    let row = rows.iter().map(|found| found.row).find(|row| row.role() == Role::States)?;
    let cause = Cause::of_id(row.cause()).filter(|cause| !WIDE.contains(cause))?;
    let evidence =
        Evidence { cite: observation.cite, text: observation.text.to_string(), kind: SourceKind::TorchLog };
    Some(Thrown { row, cause, evidence })
}
