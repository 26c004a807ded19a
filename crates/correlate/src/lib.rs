//! From a case to a scene: what was seen, joined. Who is who, what each rank called, who waits for whom, when the job
//! failed, and in what condition each process is.
//!
//! The stages, in the order of their making:
//!
//! | module | what |
//! |---|---|
//! | [`prepare`] | copies left out, sizes of communicators completed, jobs separated, rings of earlier ones set aside |
//! | [`who`] | ranks, processes, hosts and GPUs joined; whose dump, whose tool |
//! | [`said`] | what messages, watchdogs and a watcher state |
//! | [`when`] | the time that the job spans, and its failure |
//! | [`machine`] | kernel logs and what they have to do with the job |
//! | [`process`] | processes: alive and where, stopped, dead and how |
//! | [`calls`] | each rank's operations per group, and where ranks part ways |
//! | [`waits`] | who waits for whom, and who holds the others up |
//!
//! A module sees only those above it, and [`track`] and [`operation`], the words of the ledger. [`Scene::new`] is the
//! one place that knows all.
//!
//! Everything here is a pure function of the case. It concludes nothing: rules do.

pub mod calls;
pub mod machine;
pub mod operation;
pub mod prepare;
pub mod process;
pub mod said;
mod scene;
#[cfg(any(test, feature = "staging"))]
pub mod staging;
pub mod track;
pub mod waits;
pub mod when;
pub mod who;

pub use crate::said::messages::{Claim, Claims};
pub use crate::scene::{NcclLine, Scene, Statement};
pub use crate::who::roster::{Member, Roster};
