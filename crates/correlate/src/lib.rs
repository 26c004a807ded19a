//! From a case to a scene: all evidence of a job, joined. Which process is which rank, what each rank called, which
//! rank waits for which, when the job failed, and the condition of each process.
//!
//! The stages. A module imports only those above it, and [`track`] and [`operation`], the types of the ledger:
//!
//! | module | what |
//! |---|---|
//! | [`prepare`] | copies left out, sizes of communicators completed, jobs separated, rings of earlier ones set aside |
//! | [`who`] | ranks, processes, hosts and GPUs joined; the owners of dumps and of tools' output |
//! | [`said`] | what messages, watchdogs, schedulers and a watcher report |
//! | [`when`] | the time that the job spans, its failure, and what it got over |
//! | [`signs`] | facts that are no faults by themselves, from which causes follow where several are there |
//! | [`machine`] | kernel logs, links and faults, and how they belong to the job |
//! | [`process`] | processes: alive and where, stopped, dead and how |
//! | [`calls`] | each rank's operations per group, and where ranks differ |
//! | [`waits`] | which rank waits for which, and which ranks hold the others up |
//!
//! Whoever judges a case applies `prepare` to it first. [`Scene::new`] is the one place that knows all the others. It
//! makes them in this order, but for two parts: each rank's operations come before processes, as they need none; what
//! ranks call differently ([`calls::mismatch`]) comes after, as it names where each process is.
//!
//! Everything here is a pure function of the case. It draws no conclusion: rules do.

pub mod calls;
pub mod machine;
pub mod operation;
pub mod prepare;
pub mod process;
pub mod said;
mod scene;
pub mod signs;
#[cfg(any(test, feature = "staging"))]
pub mod staging;
pub mod track;
pub mod waits;
pub mod when;
pub mod who;

pub use crate::said::messages::{Claim, Claims};
pub use crate::scene::{NcclLine, Scene, TorchStatement};
pub use crate::who::roster::{Member, Roster};
