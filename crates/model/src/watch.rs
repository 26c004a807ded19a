//! Events that a watcher of this program reported while it watched a job.

use crate::{Rank, RankSet, Who};

/// An event of a watcher that rules use.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent {
    /// The job stalled.
    Stall(Box<WatchedStall>),
    /// A stall ended: NCCL's id of the communicator, None if no operation was seen.
    Recovered(Option<u64>),
    /// Processes of the job with their ranks, including those that have ended.
    Ranks(Vec<Who>),
    /// Which of them have ended, and whether all have.
    Gone(Vec<WatchedEnd>, bool),
    /// When the first of these processes started, ns since 1970 by the clock of its node.
    Began(i64),
    /// Collectives have become slow, no rank is late, and the network is slow in one place.
    SlowLink(Box<WatchedLink>),
    /// A rank is late in nearly all steps, and the watcher is sure of it.
    Late(Box<WatchedLate>),
}

/// The end of a process with a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchedEnd {
    /// Its rank.
    pub rank: Rank,
    /// When the watcher saw that it had ended, ns since 1970 by the clock of its node.
    pub at_ns: i64,
    /// Its exit code, or the number of its signal, negative.
    pub exit_code: Option<i64>,
}

/// A rank that a watcher saw come late for as long as it looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedLate {
    /// Its rank in the job.
    pub rank: Rank,
    /// It costs so much, and is late so often, that nothing else need say so.
    pub is_sure: bool,
    /// Share of their time that the others lose to it, percent.
    pub cost_percent: Option<u32>,
    /// The event as text.
    pub text: Box<str>,
}

/// A link that a watcher found to be slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedLink {
    /// The rank that uses it.
    pub rank: Rank,
    /// The rank at the other end, if it is unknown which end is slow.
    pub peer: Option<Rank>,
    /// The event as text.
    pub text: Box<str>,
}

/// The shape of a stall, as far as conclusions depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum StallShape {
    /// No communicator was created, and all existing ranks wait.
    Start,
    /// A process is stopped, gone or a zombie while others wait for it: that is no matter of time.
    Process,
    /// Any other shape, including those of a newer watcher.
    #[default]
    Other,
}

/// A job, or one of its communicators, that stalled for longer than its rhythm explains.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchedStall {
    /// NCCL's id of the communicator in which it showed; None if no operation was seen.
    pub comm: Option<u64>,
    /// Time of the last progress, ns since 1970 by the watcher's clock.
    pub since_ns: i64,
    /// How long ago that was when the stall was reported, ns.
    pub after_ns: i64,
    /// Longest pause allowed by its rhythm, or by the patience with a job that has no rhythm yet, ns.
    pub expected_ns: i64,
    /// The shape of the stall.
    pub shape: StallShape,
    /// Ranks to examine first according to the watcher.
    pub suspects: RankSet,
    /// The event as text.
    pub text: Box<str>,
}
