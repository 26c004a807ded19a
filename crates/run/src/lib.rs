//! Supervision of a launcher: decides what to do when it fails, and keeps the state needed for that.
//!
//! [`policy`], [`judge`], [`judgement`], [`named`], [`decide`], [`next`], [`stall`], [`steps`], [`effective`] and [`agree`] are pure: time and
//! randomness are arguments. [`checkpoint`], [`resume`], [`doubt`] and [`traceback`] only read files. [`journal`], [`state`], [`holder`],
//! [`tree`], [`store`] and [`history`] touch the system.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod agree;
pub mod checkpoint;
pub mod decide;
pub mod doubt;
pub mod effective;
#[cfg(feature = "history")]
pub mod history;
pub mod holder;
pub mod journal;
pub mod judge;
pub mod judgement;
pub mod named;
pub mod next;
pub mod output;
pub mod policy;
pub mod resume;
pub mod scripts;
pub mod site;
pub mod stall;
pub mod state;
pub mod steps;
pub mod store;
pub mod traceback;
pub mod tree;
mod words;
