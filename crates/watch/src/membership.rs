//! Which processes belong together: writers of rings to a job, processes with a rank's variables to that rank, attempts of one
//! rank to each other. What a process shows is an argument; nothing here looks at it.

pub mod attempts;
pub mod jobs;
pub mod ranks;
