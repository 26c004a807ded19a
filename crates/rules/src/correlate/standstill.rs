//! What a watcher of this program said: that the job stood still when the evidence was taken.
//!
//! It saw the job's rhythm before, which the evidence may not show, so its word counts like a watchdog's: something has waited
//! for too long. It is a word of a moment: where a ring shows that something has moved since, it is void.

use std::collections::BTreeSet;

use ringleader_model::{Case, Evidence, Fact, NoteKind, Observation, SourceKind, WatchEvent, WatchedStall};

use super::ledger;

/// Nothing that lasts less is a stall, as for rings.
const FLOOR_NS: i64 = 3_000_000_000;
/// Clocks of nodes differ by as much, and a call may be told a moment after what ended before it.
const SLACK_NS: i64 = 2_000_000_000;

/// A stall of which nothing says that it was over.
#[derive(Clone, Copy, Debug)]
pub struct StandStill<'a> {
    /// Where it stands.
    pub observation: &'a Observation,
    /// What was said.
    pub stall: &'a WatchedStall,
}

impl StandStill<'_> {
    /// As cited evidence.
    pub fn evidence(&self) -> Evidence {
        let text = self.observation.text.to_string();
        Evidence { cite: self.observation.cite, text, kind: SourceKind::Watch }
    }

    /// No communicator had come about.
    pub fn is_at_start(&self) -> bool {
        &*self.stall.shape == "start"
    }
}

/// Stalls that stood when the evidence was taken, the earliest first.
pub fn standing(case: &Case) -> Vec<StandStill<'_>> {
    let events = || {
        case.observations.iter().filter_map(|o| match &o.fact {
            Fact::Watch(event) => Some((o, event)),
            _ => None,
        })
    };
    let at = |o: &Observation| o.at.map_or(0, |at| at.ns);
    let is_over = |observation: &Observation, comm: Option<u64>| {
        events().any(|(o, event)| match event {
            WatchEvent::Recovered(of) => *of == comm && at(o) >= at(observation),
            WatchEvent::Stall(_) | WatchEvent::Ranks(_) => false,
        })
    };
    let mut all: Vec<StandStill<'_>> = events()
        .filter_map(|(observation, event)| match event {
            WatchEvent::Stall(stall) => Some(StandStill { observation, stall }),
            WatchEvent::Recovered(_) | WatchEvent::Ranks(_) => None,
        })
        .filter(|s| s.stall.after_ns >= FLOOR_NS && !is_over(s.observation, s.stall.comm))
        .filter(|s| !is_cut(case, s.observation) && holds(case, s.stall))
        .collect();
    all.sort_by_key(|s| (s.stall.since_ns, s.observation.cite));
    all
}

/// Whether the file is damaged: that it was over may have stood behind the stall.
fn is_cut(case: &Case, observation: &Observation) -> bool {
    let is_damage = |kind| matches!(kind, NoteKind::Truncated | NoteKind::Malformed | NoteKind::LimitReached);
    case.notes.iter().any(|note| note.cite.source == observation.cite.source && is_damage(note.kind))
}

/// Whether the rings agree: of its communicator nothing has moved since. Those that know nothing of it do not object.
fn holds(case: &Case, stall: &WatchedStall) -> bool {
    let until = stall.since_ns.saturating_add(SLACK_NS);
    ledger::rings(case).iter().all(|(_, ring)| {
        let is_meant = |op: &&ringleader_model::RingOp| match stall.comm {
            Some(id) => ring.comms.get(op.comm as usize).is_some_and(|comm| comm.id == id),
            None => true,
        };
        ring.ops.iter().filter(is_meant).all(|op| op.ended_ns <= until)
    })
}

/// Communicators in which something has stood still, by NCCL's number.
pub fn communicators(case: &Case) -> BTreeSet<u64> {
    standing(case).iter().filter_map(|s| s.stall.comm).collect()
}
