//! The faults that can be planted, by name.

use std::fmt;

macro_rules! faults {
    ($($variant:ident => $name:literal),+ $(,)?) => {
        /// The planted fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "the names are those of the causes that they show")]
        pub enum Fault { $($variant),+ }

        impl Fault {
            /// All faults, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Name on the command line and in tables.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

faults! {
    None => "none",
    NoneStopped => "none-stopped-from-outside",
    SkippedCollective => "skipped-collective",
    ExtraCollective => "extra-collective",
    OpMismatch => "op-mismatch",
    RootMismatch => "op-mismatch-root",
    ShapeMismatch => "shape-mismatch",
    DtypeMismatch => "dtype-mismatch",
    OrderMismatch => "collective-order-mismatch",
    DeadlockCycle => "deadlock-cycle",
    MissingSend => "unmatched-p2p-send",
    MissingRecv => "unmatched-p2p-recv",
    UnevenInputs => "uneven-inputs",
    ExitedEarly => "rank-exited-early",
    Killed => "process-killed",
    Crashed => "process-crashed",
    Exception => "application-exception",
    Stopped => "process-stopped",
    StuckOutside => "stuck-outside-collective",
    Uninterruptible => "process-uninterruptible",
    MissingRank => "missing-rank",
    GpuStuck => "gpu-kernel-stuck",
    SlowRankStall => "slow-rank-stall",
    Straggler => "straggler",
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Fault {
    /// The fault with this [`Fault::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|f| f.name() == name)
    }

    /// Smallest number of ranks: faults that only make a rank differ from its peers need a majority, so three ranks.
    pub(crate) fn min_ranks(self) -> u32 {
        match self {
            Self::SkippedCollective
            | Self::ExtraCollective
            | Self::OpMismatch
            | Self::RootMismatch
            | Self::ShapeMismatch
            | Self::DtypeMismatch
            | Self::OrderMismatch
            | Self::UnevenInputs
            | Self::Straggler
            | Self::GpuStuck => 3,
            Self::DeadlockCycle | Self::MissingSend | Self::MissingRecv => 4,
            _ => 2,
        }
    }
}
