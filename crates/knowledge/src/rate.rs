//! Rates of links, and the bus bandwidth that nodes reach. GB = 1e9 bytes.
//!
//! Source: data sheets and standards for rates, public measurements for bandwidths; `data/rates.toml` names them in
//! each row.

use crate::tables::{BANDWIDTHS, FACTORS, LINKS, REACHES};

/// A kind of link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkRate {
    /// `NVLink`, `PCIe`, `InfiniBand`, `Ethernet`.
    pub family: &'static str,
    /// `NVLink 4`, `PCIe 5 x16`, `NDR`, `100GbE`.
    pub name: &'static str,
    /// Other names, as in sysfs.
    pub aliases: &'static [&'static str],
    /// Where it is found, or what it consists of; may be empty.
    pub of: &'static str,
    /// One direction, GB/s. NVLink data sheets state the sum of both directions, which is double.
    pub one_way_gb_s: f64,
    /// The best that tools reach in one direction, GB/s, if a source states it.
    pub reached_gb_s: Option<f64>,
    /// Sources.
    pub cite: &'static [&'static str],
}

/// Bus bandwidth measured on a kind of node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth {
    /// The GPUs and their interconnect.
    pub node: &'static str,
    /// nccl-tests' name of the operation.
    pub operation: &'static str,
    /// `ring`, `NVLS`, or `default`: NCCL's own choice.
    pub way: &'static str,
    /// Lowest, GB/s.
    pub low_gb_s: f64,
    /// Highest, GB/s.
    pub high_gb_s: f64,
    /// Size of messages; empty = 4 GiB and more.
    pub at: &'static str,
    /// Sources.
    pub cite: &'static [&'static str],
}

/// Bus bandwidth over message size, measured on a kind of machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reach {
    /// The GPUs, their interconnect, and the network.
    pub node: &'static str,
    /// Parts of the GPU's name, all of which it contains, ignoring case.
    pub gpu: &'static [&'static str],
    /// Ranks of the group on each node.
    pub n_gpus: u32,
    /// Nodes. Of several, the network decides, which the GPU's name does not tell.
    pub n_nodes: u32,
    /// nccl-tests' name of the operation.
    pub operation: &'static str,
    /// Bytes and GB/s, rising.
    pub points: &'static [(u64, f64)],
    /// Time of a message of no bytes, µs: below the first point, times fall towards it.
    pub latency_us: f64,
    /// Sources.
    pub cite: &'static [&'static str],
}

/// How nccl-tests converts algorithm bandwidth to bus bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factor {
    /// Operation.
    pub operation: &'static str,
    /// What counts as the size.
    pub counted: &'static str,
    /// busbw / algbw, with n = number of ranks.
    pub formula: &'static str,
    /// Sources.
    pub cite: &'static [&'static str],
}

/// All links, by family and rate.
pub fn links() -> &'static [LinkRate] {
    LINKS
}

/// The link with this name, ignoring case.
pub fn link(name: &str) -> Option<&'static LinkRate> {
    LINKS.iter().find(|l| l.has_name(name))
}

/// All measured bandwidths.
pub fn bandwidths() -> &'static [Bandwidth] {
    BANDWIDTHS
}

/// The bandwidth over size that was measured on machines like this one.
pub fn reach(gpu: &str, n_gpus: u32, n_nodes: u32, operation: &str) -> Option<&'static Reach> {
    let gpu = gpu.to_ascii_uppercase();
    let is_named = |reach: &Reach| reach.gpu.iter().all(|part| gpu.contains(&part.to_ascii_uppercase()));
    let is_alike = |reach: &Reach| (reach.n_gpus, reach.n_nodes) == (n_gpus, n_nodes);
    REACHES.iter().find(|reach| is_alike(reach) && reach.operation == operation && is_named(reach))
}

/// All factors.
pub fn factors() -> &'static [Factor] {
    FACTORS
}

impl LinkRate {
    /// Whether this is one of its names, ignoring case.
    pub fn has_name(&self, name: &str) -> bool {
        std::iter::once(&self.name).chain(self.aliases).any(|own| own.eq_ignore_ascii_case(name))
    }
}
