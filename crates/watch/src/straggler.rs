//! Who comes late into collectives, without clocks that agree.

use crate::digest::DoneDigest;
use crate::event::Straggler;

/// One communicator's.
#[derive(Debug, Default)]
pub struct Lateness {}

impl Lateness {
    /// Takes ended collectives of one rank.
    pub fn take(&mut self, _rank: u32, _size: u32, _recent: &[DoneDigest]) {}

    /// Something was learnt since the last question.
    pub fn has_news(&self) -> bool {
        false
    }

    /// Mean lateness of a rank, milliseconds, and the share of the last collectives for which it was late.
    pub fn of(&self, _rank: u32) -> Option<(f64, f64)> {
        None
    }

    /// Bus bandwidth while collectives ran, GB/s.
    pub fn busbw_gbs(&self) -> Option<f64> {
        None
    }

    /// The rank that is late most, if one is.
    pub fn straggler(&mut self, _comm: &str, _job_rank: impl Fn(u32) -> u32) -> Option<Straggler> {
        None
    }
}
