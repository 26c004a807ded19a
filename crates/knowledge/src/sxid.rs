//! SXids: faults that an NVSwitch reports in the kernel log (`nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Fatal,
//! …`), NVSwitch of Volta to Hopper systems. Blackwell reports through Xids 144 to 150.
//!
//! Source: `ctrl_dev_nvswitch.h` and the interrupt handlers of both switch chips in NVIDIA/open-gpu-kernel-modules
//! 595.45.04, and the appendix of NVIDIA's Fabric Manager User Guide.

pub use crate::remedy::{Exclude, Kills, Move};
use crate::tables::SXIDS;

/// One code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sxid {
    /// Number, five digits.
    pub code: u32,
    /// Name in the driver.
    pub symbol: &'static str,
    /// Part of the switch.
    pub unit: &'static str,
    /// Texts that the driver prints with it; may be empty.
    pub texts: &'static [&'static str],
    /// How the driver of an A100's switch (LR10) prints it; None if it does not.
    pub lr10: Option<Print>,
    /// How the driver of an H100's or H200's switch (LS10) prints it; None if it does not.
    pub ls10: Option<Print>,
    /// Its class in the guide.
    pub guide: Guide,
    /// The recommended action.
    pub action: Move,
    /// Whether it ends a job that uses the switch.
    pub kills_job: Kills,
    /// Whether the node must be excluded.
    pub exclude_node: Exclude,
    /// Further remarks; may be empty.
    pub note: &'static str,
    /// Sources.
    pub cite: &'static [&'static str],
}

/// How the driver of one chip prints a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Print {
    /// `Fatal` rather than `Non-fatal`.
    pub fatal: bool,
    /// Whether the driver gives up the whole switch.
    pub device: bool,
}

/// Class in the guide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Guide {
    /// Nothing stops.
    NonFatal,
    /// On a port to a GPU it affects that GPU, whose Xid 74 follows; on a port between switches it affects the whole
    /// fabric.
    PotentiallyFatal,
    /// The fabric is down.
    AlwaysFatal,
    /// Worth noting.
    Notable,
    /// The guide does not list it.
    Unlisted,
}

/// All codes, ascending.
pub fn all() -> &'static [Sxid] {
    SXIDS
}

/// The code with this number.
pub fn get(code: u32) -> Option<&'static Sxid> {
    SXIDS.binary_search_by_key(&code, |x| x.code).ok().and_then(|i| SXIDS.get(i))
}
