//! The numbers of ranks that can load a checkpoint. ZeRO's partitions of the optimizer, and files that each rank writes for itself,
//! belong to as many ranks as wrote them. Shards whose index states the place of each tensor can be distributed anew, and so can
//! what one rank wrote for all. States of random generators are of ranks, but no program fails without them: Trainer and
//! accelerate say that they found none, and go on.

use super::{FoundCheckpoint, Search};

/// The numbers of ranks that can load a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loads {
    /// All.
    #[default]
    Any,
    /// This number: each of them wrote its part.
    By(u32),
    /// This number, if an attempt of the job had as many ranks: only some ranks may have written files.
    ByWriters(u32),
    /// Multiples of this number: the parts of a model that is split over ranks.
    ByMultiples(u32),
}

impl Loads {
    /// For partitions of this number of ranks.
    pub(super) fn by(n: usize) -> Self {
        u32::try_from(n).ok().filter(|n| *n > 1).map_or(Self::Any, Self::By)
    }

    /// For files that this number of ranks wrote, each for itself.
    pub(super) fn by_writers(n: usize) -> Self {
        u32::try_from(n).ok().filter(|n| *n > 1).map_or(Self::Any, Self::ByWriters)
    }

    /// For a model in this number of parts.
    pub(super) fn by_multiples(n: usize) -> Self {
        u32::try_from(n).ok().filter(|n| *n > 1).map_or(Self::Any, Self::ByMultiples)
    }

    /// Whether this number of ranks can load it. `worlds`: the numbers of ranks of earlier attempts.
    pub fn on(self, ranks: u32, worlds: &[u32]) -> bool {
        match self {
            Self::Any => true,
            Self::By(n) => ranks == n,
            Self::ByWriters(n) => ranks == n || !worlds.contains(&n),
            Self::ByMultiples(n) => ranks.is_multiple_of(n),
        }
    }

    /// A phrase for people.
    pub fn words(self) -> String {
        match self {
            Self::Any => "any number of ranks can load it".to_owned(),
            Self::By(n) | Self::ByWriters(n) => format!("only {n} ranks can load it, as many as wrote it"),
            Self::ByMultiples(n) => {
                format!("only a multiple of {n} ranks can load it, since the model is in {n} parts")
            }
        }
    }
}

/// Whether some checkpoint can be loaded by a number of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// One can, or there is none yet.
    Well,
    /// There are usable checkpoints, and none that so many ranks can load: the newest one, and by whom it can be loaded.
    Misfit(String),
}

impl Search {
    /// Whether this number of ranks can load one of these checkpoints.
    pub fn fit(&self, ranks: u32, worlds: &[u32]) -> Fit {
        let usable = || self.all.iter().filter(|found| found.is_usable());
        match usable().next() {
            Some(newest) if usable().all(|found| !found.loads.on(ranks, worlds)) => Fit::Misfit(said(newest)),
            _ => Fit::Well,
        }
    }
}

fn said(found: &FoundCheckpoint) -> String {
    format!("{} ({}): {}", found.path.display(), found.layout.name(), found.loads.words())
}
