//! The incidents of one run: how many may be collected, and which stalls belong to the last one.
//!
//! Moments are nanoseconds of one clock that is never set; the start of that clock does not matter.

use crate::verdicts::SAME_END_NS;

/// What stalls within this of another stall belongs to it.
const SAME_INCIDENT_NS: i64 = 15_000_000_000;

/// The incidents so far.
#[derive(Debug, Default)]
pub struct Incidents {
    n: u32,
    last: Option<Incident>,
}

/// When an incident began, and the ranks of this machine then, by process.
#[derive(Debug)]
struct Incident {
    at_ns: i64,
    ranks: Vec<u32>,
}

impl Incidents {
    /// A job that stalls repeatedly fills a disk otherwise.
    pub const MOST: u32 = 20;

    /// One begins.
    pub fn begin(&mut self, ranks: Vec<u32>, now_ns: i64) {
        self.n += 1;
        self.last = Some(Incident { at_ns: now_ns, ranks });
    }

    /// The last one has passed by itself and left nothing on the disk: what stalls after it is something else.
    pub fn passed(&mut self) {
        self.n = self.n.saturating_sub(1);
        self.last = None;
    }

    /// How many are counted.
    pub fn n(&self) -> u32 {
        self.n
    }

    /// Whether what stalls now belongs to the last one. Where none of its ranks is left and others are there, the job was started
    /// again, and hangs by itself.
    pub fn is_same(&self, ranks: &[u32], now_ns: i64) -> bool {
        let Some(last) = self.last.as_ref().filter(|last| now_ns - last.at_ns < SAME_INCIDENT_NS) else {
            return false;
        };
        let are_others = !ranks.is_empty() && !last.ranks.is_empty();
        !are_others || ranks.iter().any(|pid| last.ranks.contains(pid))
    }

    /// Whether a job that ends now ends because of the last one.
    pub fn is_end_of_last(&self, now_ns: i64) -> bool {
        self.last.as_ref().is_some_and(|last| now_ns - last.at_ns < SAME_END_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(ranks: &[u32]) -> Incidents {
        let mut incidents = Incidents::default();
        incidents.begin(ranks.to_vec(), 0);
        incidents
    }

    #[test]
    fn a_job_that_was_started_again_has_an_incident_of_its_own() {
        let last = with(&[101, 102]);
        assert!(last.is_same(&[101, 102], 0) && last.is_same(&[102], SAME_INCIDENT_NS - 1));
        assert!(!last.is_same(&[201, 202], 0) && !last.is_same(&[101], SAME_INCIDENT_NS));
        // Whose ranks are not seen from here.
        assert!(last.is_same(&[], 0) && with(&[]).is_same(&[201], 0));
    }

    #[test]
    fn one_that_has_passed_does_not_count() {
        let mut incidents = with(&[101]);
        assert!(incidents.is_end_of_last(SAME_END_NS - 1) && !incidents.is_end_of_last(SAME_END_NS));
        incidents.passed();
        assert!(incidents.n() == 0 && !incidents.is_same(&[101], 0) && !incidents.is_end_of_last(0));
    }
}
