//! A job that stands still: seen by the engine, or because it prints no step. Evidence is taken while it stands; only a
//! verdict that names a cause leads to its end, and only if the job does not go on by itself.

use std::time::{Duration, Instant};

use ringleader_model::{Class, Confidence};
use ringleader_watch::event::{Event, What};

use crate::run::duty::{Duty, Found};
use crate::watch::words;

/// A silence that nothing explains is looked at again after so many times the patience.
const AGAIN: u32 = 2;

/// What is known of it.
#[derive(Default)]
pub(crate) struct Stall {
    /// Why it seems to stand still, and since when.
    seen: Option<(String, Instant)>,
    collecting: Option<Duty<Found>>,
    found: Option<Found>,
    wants_halt: Option<String>,
    /// Silence of the output is looked at again after this.
    quiet_until: Option<Duration>,
    is_of_engine: bool,
}

impl Stall {
    /// Takes in what the engine says, and how long no step was printed.
    pub(crate) fn see(&mut self, events: &[Event], is_analyser: bool, still: Duration, patience: Duration) {
        for event in events {
            match &event.what {
                What::Stall(stall) if is_analyser && self.seen.is_none() => {
                    self.seen = Some((format!("stall: {}", words::headline(stall)), Instant::now()));
                    self.is_of_engine = true;
                }
                What::Recovered { .. } if self.is_of_engine => self.clear(),
                _ => {}
            }
        }
        let is_silent = still > self.quiet_until.unwrap_or(patience).max(patience);
        if is_silent && self.seen.is_none() {
            let why = format!("no step for {} s, more than five times the usual", still.as_secs());
            self.seen = Some((why, Instant::now()));
        }
        if still < patience {
            self.quiet_until = None;
            if self.seen.is_some() && !self.is_of_engine {
                self.clear();
            }
        }
    }

    fn clear(&mut self) {
        *self = Self { quiet_until: self.quiet_until, ..Self::default() };
    }

    /// Goes on with what is open; answers with what is to be said.
    pub(crate) fn turn(
        &mut self,
        grace: Duration,
        collect: impl FnOnce(String) -> Duty<Found>,
    ) -> Vec<String> {
        let Some((why, since)) = self.seen.clone() else { return Vec::new() };
        if self.wants_halt.is_some() {
            return Vec::new();
        }
        let Some(found) = &self.found else {
            return match &self.collecting {
                None => {
                    self.collecting = Some(collect(why.clone()));
                    vec![format!("{why}; collecting evidence")]
                }
                Some(collecting) => match collecting.taken() {
                    Some(found) => self.take(found, since),
                    None => Vec::new(),
                },
            };
        };
        if since.elapsed() < grace {
            return Vec::new();
        }
        let halt = format!("{why}; {}: {}", found.judgement.cause, found.judgement.summary);
        self.wants_halt = Some(halt.clone());
        vec![format!("it did not go on within {} s: the attempt is ended", grace.as_secs())]
    }

    fn take(&mut self, found: Option<Found>, since: Instant) -> Vec<String> {
        self.collecting = None;
        let judgement = found.as_ref().map(|found| &found.judgement);
        // Slow is not stuck; a verdict that names nothing, or hardly, ends no job that may only be busy.
        let is_cause = judgement.is_some_and(|judgement| {
            let is_named = !matches!(judgement.cause.as_str(), "none" | "undecided");
            is_named && (judgement.class != Class::Unknown || judgement.confidence > Confidence::Low)
        });
        if is_cause || self.is_of_engine && found.is_some() {
            let said = judgement.map(|judgement| format!("{}: {}", judgement.cause, judgement.summary));
            self.found = found;
            return said.into_iter().collect();
        }
        let still = since.elapsed();
        self.clear();
        self.quiet_until = Some(self.quiet_until.unwrap_or(still).max(Duration::from_secs(5)) * AGAIN);
        vec!["the evidence shows no fault: the job goes on".to_owned()]
    }

    /// Something is being found out.
    pub(crate) fn is_open(&self) -> bool {
        self.seen.is_some()
    }

    /// Why the attempt should be ended.
    pub(crate) fn wants_halt(&self) -> Option<String> {
        self.wants_halt.clone()
    }

    /// Evidence that was taken while it stood, once it is to be ended for that.
    pub(crate) fn found(&mut self) -> Option<Found> {
        self.wants_halt.as_ref().and(self.found.take())
    }
}
