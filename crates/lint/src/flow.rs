//! Collectives of each process on each path, and the places where two processes diverge.
//!
//! Functions are tried on the first process of a small job and on others that differ from it in one axis, with the same
//! outcome of all conditions that do not depend on the process. What they call is compared by group.

pub(crate) mod attributes;
mod branches;
pub(crate) mod calls;
pub(crate) mod catalog;
pub(crate) mod compare;
pub(crate) mod eval;
pub(crate) mod facts;
mod forms;
mod given;
mod guards;
pub(crate) mod held;
pub(crate) mod hooks;
mod job;
mod known;
pub(crate) mod machine;
mod memo;
pub(crate) mod mentions;
mod names;
pub(crate) mod outside;
mod own;
mod recall;
pub(crate) mod scope;
pub(crate) mod statements;
mod stops;
pub(crate) mod trace;
pub(crate) mod value;
mod wrapped;
