//! What a watcher of this program reports: that the job was stalled when the evidence was taken.
//!
//! It saw the job's rhythm before, which the evidence may not show, so its report counts like a watchdog's timeout:
//! something has waited for too long. It is of one moment: where a ring shows that something has moved since, it is
//! void.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::{
    Case, Evidence, Fact, NoteKind, Observation, SourceKind, StallShape, WatchEvent, WatchedStall,
};

use crate::prepare::rings::rings;

/// Nothing that lasts less is a stall, as for rings.
const FLOOR_NS: i64 = 3_000_000_000;
/// Clocks of nodes differ by as much, and a call may be reported a moment after what ended before it.
const SLACK_NS: i64 = 2_000_000_000;

/// A stall that nothing shows to be over.
#[derive(Clone, Copy, Debug)]
pub struct StandStill<'a> {
    /// Its place in the evidence.
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

    /// A process had ended or was stopped while others waited for it.
    pub fn is_of_process(&self) -> bool {
        self.stall.shape == StallShape::Process
    }

    /// No communicator had been made.
    pub fn is_at_start(&self) -> bool {
        self.stall.shape == StallShape::Start
    }
}

/// Stalls that lasted when the evidence was taken, the earliest first.
pub fn standing(case: &Case) -> Vec<StandStill<'_>> {
    let mut all: Vec<StandStill<'_>> = Vec::new();
    let mut recovered: BTreeMap<Option<u64>, i64> = BTreeMap::new();
    let at = |o: &Observation| o.at.map_or(0, |at| at.ns);
    for observation in &case.observations {
        match &observation.fact {
            Fact::Watch(WatchEvent::Stall(stall)) => all.push(StandStill { observation, stall }),
            Fact::Watch(WatchEvent::Recovered(comm)) => {
                let newest = recovered.entry(*comm).or_insert(i64::MIN);
                *newest = at(observation).max(*newest);
            }
            _ => {}
        }
    }
    if all.is_empty() {
        return all;
    }
    // Its end may have been recorded after the stall where the file is damaged.
    let is_damage = |kind| matches!(kind, NoteKind::Truncated | NoteKind::Malformed | NoteKind::LimitReached);
    let damaged: BTreeSet<_> =
        case.notes.iter().filter(|note| is_damage(note.kind)).map(|note| note.cite.source).collect();
    let newest_end = newest_ends(case);
    all.retain(|s| {
        let is_over = recovered.get(&s.stall.comm).is_some_and(|over| *over >= at(s.observation));
        // Rings that lack its communicator do not contradict it.
        let moved_ns = newest_end.get(&s.stall.comm).copied().unwrap_or(0);
        (s.stall.after_ns >= FLOOR_NS || s.is_of_process())
            && !is_over
            && !damaged.contains(&s.observation.cite.source)
            && moved_ns <= s.stall.since_ns.saturating_add(SLACK_NS)
    });
    all.sort_by_key(|s| (s.stall.since_ns, s.observation.cite));
    all
}

/// When the rings saw an operation end last, of each communicator by NCCL's number, and of all.
fn newest_ends(case: &Case) -> BTreeMap<Option<u64>, i64> {
    let mut newest = BTreeMap::new();
    for (_, ring) in rings(case) {
        for op in &ring.ops {
            let own = ring.comms.get(op.comm as usize).map(|comm| Some(comm.id));
            for comm in own.into_iter().chain([None]) {
                let at = newest.entry(comm).or_insert(op.ended_ns);
                *at = op.ended_ns.max(*at);
            }
        }
    }
    newest
}

/// Communicators in which something is stalled, by NCCL's number.
pub fn communicators(standing: &[StandStill<'_>]) -> BTreeSet<u64> {
    standing.iter().filter_map(|s| s.stall.comm).collect()
}
