//! What links carry, and what bus bandwidth nodes reach. GB = 1e9 bytes.
//!
//! Source: data sheets and standards for rates, public measurements for bandwidths; see `data/rates.toml`, row by row.

use crate::tables::{BANDWIDTHS, FACTORS, LINKS};

/// A kind of link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// `NVLink`, `PCIe`, `InfiniBand`, `Ethernet`.
    pub family: &'static str,
    /// `NVLink 4`, `PCIe 5 x16`, `NDR`, `100GbE`.
    pub name: &'static str,
    /// Further names, as in sysfs.
    pub aliases: &'static [&'static str],
    /// Where it is found, or what it is made of; may be empty.
    pub of: &'static str,
    /// One direction, GB/s. Both directions together are double, and what data sheets of NVLink state.
    pub one_way_gb_s: f64,
    /// What tools reach in one direction at best, GB/s, if a source says so.
    pub reached_gb_s: Option<f64>,
    /// Sources.
    pub cite: &'static [&'static str],
}

/// Bus bandwidth that a node was measured to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth {
    /// GPUs and how they are joined.
    pub node: &'static str,
    /// nccl-tests' name of the operation.
    pub operation: &'static str,
    /// `ring`, `NVLS`, or `default`: whatever NCCL chooses.
    pub way: &'static str,
    /// Least, GB/s.
    pub low_gb_s: f64,
    /// Best, GB/s.
    pub high_gb_s: f64,
    /// Size of messages; empty = 4 GiB and more.
    pub at: &'static str,
    /// Sources.
    pub cite: &'static [&'static str],
}

/// How nccl-tests turns algorithm bandwidth into bus bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factor {
    /// Operation.
    pub operation: &'static str,
    /// What counts as its size.
    pub counted: &'static str,
    /// busbw / algbw, with n = ranks.
    pub formula: &'static str,
    /// Sources.
    pub cite: &'static [&'static str],
}

/// All links, by family and rate.
pub fn links() -> &'static [Link] {
    LINKS
}

/// A link by one of its names, whatever the case.
pub fn link(name: &str) -> Option<&'static Link> {
    LINKS.iter().find(|l| l.has_name(name))
}

/// All measured bandwidths.
pub fn bandwidths() -> &'static [Bandwidth] {
    BANDWIDTHS
}

/// All factors.
pub fn factors() -> &'static [Factor] {
    FACTORS
}

impl Link {
    /// Whether this is one of its names, whatever the case.
    pub fn has_name(&self, name: &str) -> bool {
        std::iter::once(&self.name).chain(self.aliases).any(|own| own.eq_ignore_ascii_case(name))
    }
}
