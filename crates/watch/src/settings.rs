//! How long a job may pause, and how often it is looked at.

/// What may be set.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// A pause of this many times the usual one is a stall.
    pub stall_factor: f64,
    /// No pause shorter than this is one, nanoseconds.
    pub stall_floor_ns: i64,
    /// Before a job has shown its rhythm, no pause shorter than this is one, nanoseconds: a first step may compile.
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
