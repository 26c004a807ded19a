//! The bandwidth that a group of ranks should reach at a size: as measured on the same machine before, else on machines of
//! its kind.

use ringleader_knowledge::rate::{self, Reach};
use ringleader_model::OpKind;

use crate::view::{RankTimeline, is_one_node};

/// Bus bandwidth over algorithm bandwidth, as nccl-tests defines it.
pub fn bus_factor(kind: OpKind, n_ranks: u32) -> f64 {
    let n = f64::from(n_ranks.max(1));
    match kind {
        OpKind::AllReduce => 2.0 * (n - 1.0) / n,
        OpKind::AllGather | OpKind::ReduceScatter | OpKind::AllToAll => (n - 1.0) / n,
        _ => 1.0,
    }
}

/// A bandwidth to compare with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// Bandwidth, GB/s (10^9 bytes).
    pub gbs: f64,
    /// Origin of the bandwidth.
    pub by: Basis,
}

/// Origin of an expected bandwidth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Basis {
    /// A measurement that the user gave.
    Baseline,
    /// A rule that fits nodes with NVLink.
    NvLink,
    /// Published measurements of similar machines.
    Table(&'static Reach),
}

impl Basis {
    /// Whether a lower bandwidth is a fault: between nodes the network decides, which timelines do not name.
    pub fn is_binding(self) -> bool {
        match self {
            Self::Baseline | Self::NvLink => true,
            Self::Table(reach) => reach.n_nodes == 1,
        }
    }

    /// Share of it below which a busy GPU is no explanation.
    pub fn slow_share(self) -> f64 {
        match self {
            Self::Baseline => SLOW_OF_BASELINE,
            Self::NvLink => SLOW_OF_RULE,
            Self::Table(_) => SLOW_OF_TABLE,
        }
    }
}

/// Slow by the machine's own measurement, which differs from it by nothing but the computation beside. Chosen.
const SLOW_OF_BASELINE: f64 = 0.5;
/// Slow by the rule for NVLink. On two H200 and two H100, collectives beside computation reached 76 % of the rule and more, and
/// 26 to 38 % with a protocol that does not fit (LL at 25 to 150 MiB); between the two, nearer to the slow ones.
const SLOW_OF_RULE: f64 = 0.45;
/// Slow by measurements of others, whose machines may differ from this one. Chosen.
const SLOW_OF_TABLE: f64 = 0.3;

/// Bandwidths that were measured on the machine of the timelines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Baseline {
    /// Name for messages: the file of the measurement.
    pub name: String,
    /// GPUs, by rank; empty if unknown.
    pub device: String,
    /// NCCL's release; empty if unknown.
    pub nccl: String,
    /// Number of ranks.
    pub n_ranks: u32,
    /// Number of nodes; 0 if unknown.
    pub n_nodes: u32,
    /// Kind, bytes and GB/s, in any order.
    pub points: Vec<(OpKind, u64, f64)>,
    /// Kind, bytes, and algorithm, protocol and channels, as NCCL's log said.
    pub ways: Vec<(OpKind, u64, String)>,
}

impl Baseline {
    /// The origin as a phrase for reports.
    pub fn words(&self) -> String {
        let nodes = match self.n_nodes {
            0 => String::new(),
            1 => " on one node".to_owned(),
            n => format!(" on {n} nodes"),
        };
        let part = |before: &str, text: &str| {
            if text.is_empty() { String::new() } else { format!("{before}{text}") }
        };
        let (device, nccl) = (part(" of ", &self.device), part(", NCCL ", &self.nccl));
        format!("{}: {} ranks{nodes}{device}{nccl}", self.name, self.n_ranks)
    }

    /// Why it says nothing of a group; None if it does.
    fn misfit(&self, device: &str, (n_ranks, n_nodes): (u32, Option<u32>)) -> Option<String> {
        let gpu = |name: &str| name.trim().trim_start_matches("NVIDIA ").to_ascii_lowercase();
        if !self.device.is_empty() && !device.is_empty() && gpu(&self.device) != gpu(device) {
            return Some(format!("it is of {}, the timelines are of {device}", self.device));
        }
        if self.n_ranks != n_ranks {
            return Some(format!("it has {} ranks, groups of the timelines have {n_ranks}", self.n_ranks));
        }
        match n_nodes {
            Some(n) if self.n_nodes > 0 && n != self.n_nodes => {
                Some(format!("its ranks are on {} nodes, those of the timelines on {n}", self.n_nodes))
            }
            _ => None,
        }
    }

    /// Algorithm, protocol and channels at the largest measured size up to this one.
    pub fn way(&self, kind: OpKind, size_bytes: u64) -> Option<&str> {
        let up_to = self.ways.iter().filter(|way| same(way.0, kind) && way.1 <= size_bytes);
        up_to.max_by_key(|way| way.1).map(|way| way.2.as_str())
    }

    /// At a size, between its measurements; beyond the largest, what that reached. Nothing below the smallest.
    fn at(&self, kind: OpKind, size_bytes: u64) -> Option<f64> {
        let mut points: Vec<(u64, f64)> =
            self.points.iter().filter(|p| same(p.0, kind) && p.2 > 0.0).map(|p| (p.1, p.2)).collect();
        points.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        // Of one size in and out of place, the larger counts.
        points.reverse();
        points.dedup_by_key(|point| point.0);
        points.reverse();
        (size_bytes >= points.first()?.0).then(|| between(&points, size_bytes))?
    }
}

/// nccl-tests measures sending and receiving together.
fn same(a: OpKind, b: OpKind) -> bool {
    a == b || a.is_p2p() && b.is_p2p()
}

/// Between two points, linear in the logarithm of the size; beyond the last, its bandwidth.
fn between(points: &[(u64, f64)], size_bytes: u64) -> Option<f64> {
    let at = points.partition_point(|(bytes, _)| *bytes <= size_bytes);
    let low = points.get(at.checked_sub(1)?)?;
    let Some(high) = points.get(at) else { return Some(low.1) };
    let log = |bytes: u64| (bytes.max(1) as f64).ln();
    let share = (log(size_bytes) - log(low.0)) / (log(high.0) - log(low.0));
    Some(low.1 + (high.1 - low.1) * share)
}

/// Of a table, at a size. Below its first point, time falls in proportion to the size towards the latency.
fn of_table(reach: &Reach, factor: f64, size_bytes: u64) -> Option<f64> {
    let (bytes, gbs) = *reach.points.first()?;
    if size_bytes >= bytes {
        return between(reach.points, size_bytes);
    }
    let time_ns = bytes as f64 * factor / gbs;
    let latency_ns = (reach.latency_us * 1e3).min(time_ns / 2.0);
    let time_ns = latency_ns + (time_ns - latency_ns) * size_bytes as f64 / bytes as f64;
    Some(size_bytes as f64 * factor / time_ns)
}

/// NVLink of a kind of GPU.
struct NvLinkRate {
    /// Part of the GPU's name.
    name: &'static str,
    /// Bandwidth of one direction, GB/s.
    rate_gbs: f64,
}

/// One-way NVLink rates by product. Source: NVIDIA's data sheets (half of the bidirectional figure).
const LINKS: [NvLinkRate; 9] = [
    NvLinkRate { name: "GB200", rate_gbs: 900.0 },
    NvLinkRate { name: "GB300", rate_gbs: 900.0 },
    NvLinkRate { name: "B200", rate_gbs: 900.0 },
    NvLinkRate { name: "B300", rate_gbs: 900.0 },
    NvLinkRate { name: "H200", rate_gbs: 450.0 },
    NvLinkRate { name: "H100", rate_gbs: 450.0 },
    NvLinkRate { name: "H20", rate_gbs: 450.0 },
    NvLinkRate { name: "A100-SXM", rate_gbs: 300.0 },
    NvLinkRate { name: "V100-SXM", rate_gbs: 150.0 },
];
/// Parts of names of GPUs that are joined by PCIe, or by bridges in pairs.
const NO_NVLINK: [&str; 2] = ["PCIE", " NVL"];

/// Share of the link rate that large messages reach on a healthy node.
const USUAL: f64 = 0.78;
/// Latency of a small collective inside a node, ns: half of the peak is reached where the transfer takes as long.
const LATENCY_NS: f64 = 25_000.0;
/// Largest group within a node to which the rule applies.
const MAX_RANKS: u32 = 8;

/// Bus bandwidth that a healthy node with NVLink reaches at this size, GB/s.
fn nvlink_gbs(device: &str, size_bytes: u64) -> Option<f64> {
    let upper = device.to_ascii_uppercase();
    if NO_NVLINK.iter().any(|part| upper.contains(part)) {
        return None;
    }
    let link = LINKS.iter().find(|link| device.contains(link.name))?;
    let peak = link.rate_gbs * USUAL;
    let transfer_ns = size_bytes as f64 / peak;
    Some(peak * transfer_ns / (transfer_ns + LATENCY_NS))
}

/// References for the bandwidths of one job.
#[derive(Debug)]
pub struct References<'a> {
    baseline: Option<&'a Baseline>,
    device: &'a str,
    is_one_node: bool,
}

impl<'a> References<'a> {
    /// Collects the references for these ranks.
    pub fn new(views: &[RankTimeline<'a>], baseline: Option<&'a Baseline>) -> Self {
        let device = views.iter().find_map(|v| v.timeline.device_name.as_deref()).unwrap_or_default();
        Self { baseline, device, is_one_node: is_one_node(views) }
    }

    /// Expected bandwidth of a group with this number of ranks and nodes at a size.
    pub fn at(&self, kind: OpKind, group: (u32, Option<u32>), size_bytes: u64) -> Option<Expected> {
        let (n_ranks, n_nodes) = group;
        if size_bytes == 0 || n_ranks < 2 || kind == OpKind::Barrier {
            return None;
        }
        if let Some(baseline) = self.baseline.filter(|b| b.misfit(self.device, group).is_none())
            && let Some(gbs) = baseline.at(kind, size_bytes)
        {
            return Some(Expected { gbs, by: Basis::Baseline });
        }
        // Where not all ranks are recorded, those that are tell.
        let n_nodes = n_nodes.or(self.is_one_node.then_some(1))?;
        if n_ranks % n_nodes == 0
            && let Some(reach) = rate::reach(self.device, n_ranks / n_nodes, n_nodes, kind.name())
            && let Some(gbs) = of_table(reach, bus_factor(kind, n_ranks), size_bytes)
        {
            return Some(Expected { gbs, by: Basis::Table(reach) });
        }
        let has_rule = n_nodes == 1 && n_ranks <= MAX_RANKS;
        let gbs = has_rule.then(|| nvlink_gbs(self.device, size_bytes)).flatten()?;
        Some(Expected { gbs, by: Basis::NvLink })
    }

    /// Why the baseline says nothing of a group; None if it does, or if there is none.
    pub fn misfit(&self, group: (u32, Option<u32>)) -> Option<String> {
        self.baseline?.misfit(self.device, group)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::{Baseline, Basis, References};
    use ringleader_model::OpKind;

    fn of<'a>(device: &'a str, baseline: Option<&'a Baseline>) -> References<'a> {
        References { baseline, device, is_one_node: true }
    }

    fn gbs(device: &str, group: (u32, Option<u32>), size_bytes: u64) -> Option<i64> {
        of(device, None).at(OpKind::AllReduce, group, size_bytes).map(|e| e.gbs.round() as i64)
    }

    #[test]
    fn tables_are_of_one_topology() {
        // Measured points, between them, beyond them.
        assert_eq!(gbs("NVIDIA H200", (8, Some(1)), 16 << 20), Some(220));
        assert_eq!(gbs("NVIDIA H200", (8, Some(1)), 32 << 20), Some(283));
        assert_eq!(gbs("NVIDIA H200", (8, Some(1)), 64 << 30), Some(473));
        assert_eq!(gbs("NVIDIA B200", (32, Some(4)), 128 << 20), Some(198));
        // Other widths of NVLink: the rule.
        assert_eq!(gbs("NVIDIA H200", (2, Some(1)), 144 << 20), Some(332));
        // PCIe has no NVLink, and no value of another width.
        assert_eq!(gbs("NVIDIA H100 PCIe", (8, Some(1)), 64 << 20), None);
        assert_eq!(gbs("NVIDIA GeForce RTX 5090", (8, Some(1)), 25 << 20), Some(27));
        assert_eq!(gbs("NVIDIA GeForce RTX 5090", (2, Some(1)), 25 << 20), None);
        assert_eq!(gbs("NVIDIA A100-PCIE-40GB", (4, Some(1)), 25 << 20), Some(24));
        // Other numbers of nodes are unknown.
        assert_eq!(gbs("NVIDIA B200", (16, Some(2)), 128 << 20), None);
        // A barrier carries nothing.
        assert_eq!(gbs("NVIDIA H200", (8, Some(1)), 0), None);
    }

    #[test]
    fn small_messages_are_bound_by_latency() {
        let small = of("NVIDIA GeForce RTX 5090", None);
        let at = |size| small.at(OpKind::AllReduce, (8, Some(1)), size).unwrap().gbs;
        assert!(at(1 << 10) < 0.1 && at(1 << 20) < at(2 << 20) && at(64 << 20) < 28.0);
    }

    #[test]
    fn a_baseline_counts_for_what_it_measured() {
        let baseline = Baseline {
            name: "base.json".into(),
            device: "NVIDIA H200".into(),
            nccl: "2.28.9".into(),
            n_ranks: 8,
            n_nodes: 1,
            points: vec![
                (OpKind::AllReduce, 1 << 30, 460.0),
                (OpKind::AllReduce, 1 << 20, 50.0),
                (OpKind::AllReduce, 1 << 20, 60.0),
                (OpKind::Send, 1 << 20, 90.0),
            ],
            ways: vec![
                (OpKind::AllReduce, 1 << 20, "RING/LL x8".into()),
                (OpKind::AllReduce, 1 << 24, "NVLS/SIMPLE x24".into()),
            ],
        };
        assert_eq!(baseline.way(OpKind::AllReduce, 1 << 23), Some("RING/LL x8"));
        assert_eq!(baseline.way(OpKind::AllReduce, 1 << 19), None);
        let at = |device, kind, group, size| {
            let expected = of(device, Some(&baseline)).at(kind, group, size);
            expected.map(|e| (e.gbs.round() as i64, e.by == Basis::Baseline))
        };
        let reduce = OpKind::AllReduce;
        assert_eq!(at("NVIDIA H200", reduce, (8, Some(1)), 1 << 20), Some((60, true)));
        assert_eq!(at("NVIDIA H200", reduce, (8, None), 32 << 20), Some((260, true)));
        assert_eq!(at("H200", reduce, (8, Some(1)), 4 << 30), Some((460, true)));
        assert_eq!(at("NVIDIA H200", OpKind::Recv, (8, Some(1)), 1 << 20), Some((90, true)));
        // Below its smallest size, and of other groups, operations and GPUs, it says nothing.
        assert!(!at("NVIDIA H200", reduce, (8, Some(1)), 1 << 19).unwrap().1);
        assert!(!at("NVIDIA H200", reduce, (4, Some(1)), 1 << 25).unwrap().1);
        assert!(!at("NVIDIA H200", OpKind::AllGather, (8, Some(1)), 1 << 25).unwrap().1);
        assert!(!at("NVIDIA H100 80GB HBM3", reduce, (8, Some(1)), 1 << 25).unwrap().1);
        assert_eq!(at("NVIDIA H200", reduce, (8, Some(2)), 1 << 25), None);
        assert_eq!(baseline.words(), "base.json: 8 ranks on one node of NVIDIA H200, NCCL 2.28.9");
        assert!(of("NVIDIA H200", Some(&baseline)).misfit((4, Some(1))).unwrap().contains("has 8 ranks"));
        assert_eq!(of("NVIDIA H200", Some(&baseline)).misfit((8, Some(1))), None);
    }
}
