//! What the text of each source shows of its program: its last steps, and its own word that it is done.
//!
//! These are the bare facts, whatever became of other processes. What follows from them for the job is said by
//! [`Course`](crate::when::course::Course).

use std::collections::BTreeMap;

use ringleader_model::{Case, Cite, Fact, SourceId};

/// Of one source. Places are bytes from its start.
#[derive(Clone, Copy, Debug, Default)]
struct Trail {
    /// Distinct steps, at most 2.
    n_steps: u32,
    before_last: Option<u64>,
    last: Option<u64>,
    ended: Option<u64>,
}

/// Of all sources that show a step or an end.
#[derive(Clone, Debug, Default)]
pub struct Trails {
    of: BTreeMap<SourceId, Trail>,
}

impl Trails {
    /// Of a case.
    pub fn new(case: &Case) -> Self {
        let mut trails = Self::default();
        for observation in &case.observations {
            let Fact::Progress(progress) = &observation.fact else { continue };
            let trail = trails.of.entry(observation.cite.source).or_default();
            trail.n_steps = trail.n_steps.max(progress.n_steps);
            trails.mark(progress.before_last, |trail| &mut trail.before_last);
            trails.mark(progress.last, |trail| &mut trail.last);
            trails.mark(progress.ended, |trail| &mut trail.ended);
        }
        trails
    }

    fn mark(&mut self, cite: Option<Cite>, place: fn(&mut Trail) -> &mut Option<u64>) {
        let Some(cite) = cite else { return };
        let place = place(self.of.entry(cite.source).or_default());
        *place = (*place).max(Some(cite.start));
    }

    fn is_behind(&self, cite: Cite, place: fn(&Trail) -> Option<u64>) -> bool {
        self.of.get(&cite.source).and_then(place).is_some_and(|start| start > cite.start)
    }

    /// One more step follows in the same source. It may have been under way already.
    pub fn was_followed(&self, cite: Cite) -> bool {
        self.is_behind(cite, |trail| trail.last)
    }

    /// The program says later in the same source that it is done.
    pub fn is_done_after(&self, cite: Cite) -> bool {
        self.is_behind(cite, |trail| trail.ended)
    }

    /// The program went on in the same source: two more steps, or its end.
    pub fn went_on_after(&self, cite: Cite) -> bool {
        self.is_behind(cite, |trail| trail.before_last) || self.is_done_after(cite)
    }

    /// The program had said earlier in the same source that it is done.
    pub fn was_done_before(&self, cite: Cite) -> bool {
        let ended = self.of.get(&cite.source).and_then(|trail| trail.ended);
        ended.is_some_and(|start| start < cite.start)
    }

    /// Steps advance in any source.
    pub fn advances(&self) -> bool {
        self.of.values().any(|trail| trail.n_steps > 1)
    }

    /// Any program says that it is done.
    pub fn is_done(&self) -> bool {
        self.of.values().any(|trail| trail.ended.is_some())
    }

    /// Steps advance in any source, or a program says that it is done.
    pub fn goes_on(&self) -> bool {
        self.advances() || self.is_done()
    }

    /// A program that wrote one of these sources says that it is done; where none of them shows a step or an end, any
    /// program does.
    pub fn is_done_in(&self, sources: &[SourceId]) -> bool {
        let mut own = sources.iter().filter_map(|source| self.of.get(source)).peekable();
        if own.peek().is_none() { self.is_done() } else { own.any(|trail| trail.ended.is_some()) }
    }
}
