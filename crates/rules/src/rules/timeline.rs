//! What the timelines of a job's ranks show.

pub(super) mod time_lost;
