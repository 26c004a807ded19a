//! What a watcher of this program said of a job while it watched it.

use crate::{Rank, RankSet, Who};

/// One event of a watcher that rules use.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent {
    /// The job stood still.
    Stall(Box<WatchedStall>),
    /// What had stood still moved again: NCCL's number of the communicator, none where no operation was seen.
    Recovered(Option<u64>),
    /// Processes of the job with their ranks, those that have ended included.
    Ranks(Vec<Who>),
    /// When the first of these processes began, ns since 1970 by the clock of their node.
    Began(i64),
    /// Collectives have become slow, nobody is late, and the network is slow in one place.
    SlowLink(Box<WatchedLink>),
}

/// A link that a watcher saw to be slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedLink {
    /// The rank behind it.
    pub rank: Rank,
    /// The rank at the other end, where nothing tells which end is slow.
    pub peer: Option<Rank>,
    /// The same in words.
    pub text: Box<str>,
}

/// What a stall looks like, as far as conclusions differ by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum StallShape {
    /// No communicator has come about, and all ranks that are there wait.
    Start,
    /// Any other, including one of a newer watcher.
    #[default]
    Other,
}

/// A job, or a communicator of it, that stood still for longer than its rhythm explains.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchedStall {
    /// NCCL's number of the communicator in which it showed; none where no operation was seen.
    pub comm: Option<u64>,
    /// When something last moved, ns since 1970 by the watcher's clock.
    pub since_ns: i64,
    /// How long that was ago when it was said, ns.
    pub after_ns: i64,
    /// How long it might have stood still, by its rhythm or by the patience with a job that has none yet, ns.
    pub expected_ns: i64,
    /// What kind of stall it is.
    pub shape: StallShape,
    /// Ranks that the watcher would look at first.
    pub suspects: RankSet,
    /// The same in words.
    pub text: Box<str>,
}
