//! Takes digests, and says at every look what has changed.

use crate::digest::Digest;
use crate::event::Event;
use crate::view::View;

/// What may be set.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// A pause of this many times the usual one is a stall.
    pub stall_factor: f64,
    /// No pause shorter than this is one, nanoseconds.
    pub stall_floor_ns: i64,
    /// Before a job has shown its rhythm, no pause shorter than this is one, nanoseconds.
    pub first_floor_ns: i64,
    /// Usual time between two digests of an agent, nanoseconds.
    pub interval_ns: i64,
    /// Between two events of progress, nanoseconds.
    pub progress_ns: i64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            stall_factor: 5.0,
            stall_floor_ns: 5_000_000_000,
            first_floor_ns: 600_000_000_000,
            interval_ns: 500_000_000,
            progress_ns: 5_000_000_000,
        }
    }
}

/// Follows one job.
#[derive(Debug, Default)]
pub struct Engine {
    settings: Settings,
    view: View,
}

impl Engine {
    /// Nothing is known yet.
    pub fn new(settings: Settings) -> Self {
        Self { settings, view: View::default() }
    }

    /// Takes an agent's word, which came at `now_ns` (nanoseconds since 1970 by the clock of the one who looks). An older
    /// one than is already known of that agent is dropped.
    pub fn take(&mut self, digest: Digest, now_ns: i64) {
        let _ = (digest, now_ns, &self.settings);
    }

    /// What has changed since the last look. Call it a few times a second, after the digests that have come.
    pub fn look(&mut self, now_ns: i64) -> Vec<Event> {
        self.view.at_ns = now_ns;
        Vec::new()
    }

    /// The job as of the last look.
    pub fn view(&self) -> &View {
        &self.view
    }
}
