//! A running job followed: digests joined, rhythm, states of ranks, who is late. Pure: time comes in as an argument.
//!
//! An agent makes a [`digest::Digest`] of what it sees; [`engine::Engine`] takes those of all nodes, keeps the newest of
//! each, and at every look says what has changed as [`event::Event`]s; [`view::View`] is the whole job at that moment.
//! [`inquiry`], [`incidents`] and [`verdicts`] decide when the evidence is asked, and when a verdict on it is reported.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod answer;
pub mod attendance;
pub mod bandwidth;
mod differing;
pub mod digest;
pub mod engine;
pub mod event;
mod history;
pub mod incidents;
pub mod inquiry;
mod ledger;
mod links;
pub mod membership;
pub mod messages;
mod network;
pub mod outside;
mod period;
mod places;
pub mod rhythm;
mod roster;
mod settings;
mod stall;
pub mod standing;
mod start;
pub mod straggler;
pub mod tree;
pub mod verdicts;
pub mod view;
mod waiting;
mod waits;
mod words;
