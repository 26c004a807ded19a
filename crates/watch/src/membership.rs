//! Membership: which processes are of the job, and which of them are its ranks. Pure: what was read of the processes comes in
//! as values.
//!
//! [`jobs`] says which writers of rings belong to one job, [`ranks`] which of the processes that carry a rank's variables
//! compute, and [`attempts`] which of several processes of one rank is the present one. What starts ranks and is none is in
//! `knowledge::program`. `ringleader_check::jobs` says why it answers by itself.

pub mod attempts;
pub mod jobs;
pub mod ranks;
