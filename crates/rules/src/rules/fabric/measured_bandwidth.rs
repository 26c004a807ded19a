//! # What it shows
//!
//! nccl-tests measured far less than this topology reaches, or one node far less than its peers with the same test.
//!
//! # Why it happens
//!
//! NVLink or peer access is not used, a link or GPU is degraded, ACS redirects traffic, a NIC is at half its width.
//!
//! # Evidence
//!
//! Bus bandwidth of large sizes over the GPUs of one node against 60 % of NVLink's rate in one direction, and against
//! the median of the other nodes' runs.
//!
//! # What looks like it but is not
//!
//! Small sizes measure latency; the average over all sizes says nothing. PCIe cards and bridged pairs have other rates,
//! runs over several nodes depend on their network, and a run with peer access disabled is slow by design.
//!
//! # What to do
//!
//! Look at the topology and at what NCCL's log says of the channels.
//!
//! # References
//!
//! NVIDIA/nccl-tests doc/PERFORMANCE.md; measured figures in NVIDIA/nccl-tests issues 212, 272 and stas00/ml-engineering.

use std::collections::BTreeMap;

use ringleader_knowledge::{rate, remedy};
use ringleader_model::{
    BenchRun, Cause, Confidence, Culprit, Evidence, Finding, Impact, Observation, Severity, SourceKind,
    median,
};

use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::who::tools::shown;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "measured-bandwidth",
    title: "nccl-tests measured too little bandwidth",
    since: "0.1",
    doc: include_str!("measured_bandwidth.rs"),
    check,
};

/// Sizes from here on are limited by bandwidth on every topology in the table: 1 GiB reaches 95 % of 8 GiB's figure.
const LARGE_BYTES: u64 = 1 << 30;
/// Peers are compared from here on: they pay the same latency.
const COMPARED_BYTES: u64 = 64 << 20;
/// Share of NVLink's rate below which something is wrong. Healthy rings reach 73 to 82 % at 1 GiB.
const SHARE: f64 = 0.6;
/// Share of the peers' median below which a node is slow.
const PEER_SHARE: f64 = 0.75;

/// NVLink of a GPU.
#[derive(Clone, Copy)]
enum NvLink {
    /// The link of this name in the table of rates, whole.
    Whole(&'static str),
    /// Less by design, GB/s in one direction.
    Cut(f64),
    /// None, or what the name of the GPU does not tell.
    Untold,
}

/// By the name that CUDA gives the GPU; the first that it contains.
const NVLINKS: [(&str, NvLink); 12] = [
    ("H100 80GB HBM3", NvLink::Whole("NVLink 4")),
    ("H200 NVL", NvLink::Untold),
    ("H200", NvLink::Whole("NVLink 4")),
    ("GH200", NvLink::Untold),
    ("H20", NvLink::Whole("NVLink 4")),
    ("H800", NvLink::Cut(200.0)),
    ("A100-SXM", NvLink::Whole("NVLink 3")),
    ("A800-SXM", NvLink::Cut(200.0)),
    ("V100-SXM2", NvLink::Whole("NVLink 2")),
    ("B200", NvLink::Whole("NVLink 5")),
    ("B300", NvLink::Whole("NVLink 5")),
    ("H100 PCIe", NvLink::Untold),
];

fn check(scene: &Scene<'_>) -> Outcome {
    let by_peers = against_peers(scene);
    if !by_peers.is_empty() {
        return Outcome::Found(by_peers);
    }
    Outcome::from_findings(against_rate(scene).into_iter().collect())
}

/// Best bus bandwidth of the largest size, if that is at least `from` bytes: line, bytes, GB/s.
fn largest(run: &BenchRun, from: u64) -> Option<(u32, u64, f64)> {
    let row = run.rows.iter().filter(|r| r.size_bytes >= from).max_by_key(|r| r.size_bytes)?;
    let best =
        [row.out_of_place, row.in_place].into_iter().flatten().map(|f| f.busbw_gbs).fold(0.0, f64::max);
    (best > 0.0).then_some((row.line, row.size_bytes, best))
}

/// Slow by order.
fn is_held_back(run: &BenchRun) -> bool {
    run.settings.iter().any(|(name, value)| {
        matches!(
            &**name,
            "NCCL_P2P_DISABLE" | "NCCL_SHM_DISABLE" | "NCCL_P2P_LEVEL" | "NCCL_ALGO" | "NCCL_PROTO"
        ) && &**value != "0"
            || matches!(&**name, "NCCL_MAX_NCHANNELS" | "NCCL_MAX_CTAS")
    })
}

/// NVLink's rate in one direction, GB/s.
fn nvlink_rate(run: &BenchRun) -> Option<f64> {
    let name = &run.devices.first()?.name;
    if run.devices.iter().any(|d| d.name != *name) {
        return None;
    }
    match NVLINKS.iter().find(|(part, _)| name.contains(part))?.1 {
        NvLink::Whole(link) => Some(rate::link(link)?.one_way_gb_s),
        NvLink::Cut(rate) => Some(rate),
        NvLink::Untold => None,
    }
}

fn measured(observation: &Observation, run: &BenchRun, (line, size, busbw): (u32, u64, f64)) -> Evidence {
    let name = run.collective.as_deref().unwrap_or("the test");
    let text = format!("{name}: {busbw} GB/s bus bandwidth at {size} bytes over {} GPUs", run.devices.len());
    shown(observation, Some(line), SourceKind::NcclTests, text)
}

fn against_rate(scene: &Scene<'_>) -> Option<Finding> {
    // With two GPUs a bridge may be all there is.
    let slow: Vec<_> = scene
        .benches()
        .filter(|(_, run)| run.devices.len() > 2 && run.hosts().len() == 1 && !is_held_back(run))
        .filter_map(|(o, run)| {
            let rate = nvlink_rate(run)?;
            let figure = largest(run, LARGE_BYTES)?;
            (figure.2 < SHARE * rate).then_some((o, run, figure, rate))
        })
        .collect();
    let (_, run, figure, rate) = slow.first()?;
    let title = format!(
        "{:.0} GB/s bus bandwidth over NVLink that carries {rate:.0} GB/s each way ({})",
        figure.2,
        run.collective.as_deref().unwrap_or("nccl-tests")
    );
    Draft::new(RULE.id, Cause::BandwidthBelowExpected, title)
        .severity(Severity::Warning)
        .confidence(Confidence::Medium)
        .culprits(run.hosts().first().map(|h| Culprit { host: Some((*h).clone()), ..Culprit::default() }))
        .evidence(slow.iter().take(4).map(|(o, run, figure, _)| measured(o, run, *figure)))
        .advise_command(Impact::Harmless, "check whether NVLink is up and used", "nvidia-smi topo -m; nvidia-smi nvlink -s; NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH ./build/all_reduce_perf -b 8G -e 8G -g <number of GPUs>")
        .advise_command(Impact::Harmless, "check the clocks and what limits them", remedy::SHOW_CLOCKS)
        .build()
}

/// Runs of one sort on single nodes, compared with each other.
fn against_peers(scene: &Scene<'_>) -> Vec<Finding> {
    type Sort<'a> = (&'a str, usize, u64);
    type Measured<'a> = (&'a Observation, &'a BenchRun, (u32, u64, f64));
    let mut sorts: BTreeMap<Sort<'_>, Vec<Measured<'_>>> = BTreeMap::new();
    for (observation, run) in scene.benches() {
        let (Some(figure), Some(name), [_]) =
            (largest(run, COMPARED_BYTES), run.collective.as_deref(), run.hosts().as_slice())
        else {
            continue;
        };
        if !is_held_back(run) && run.devices.len() > 1 {
            sorts.entry((name, run.devices.len(), figure.1)).or_default().push((observation, run, figure));
        }
    }
    let mut findings = Vec::new();
    for ((name, ..), mut runs) in sorts {
        runs.sort_by(|a, b| b.2.2.total_cmp(&a.2.2));
        let (true, Some(median)) = (runs.len() >= 3, median::lower(runs.iter().map(|r| r.2.2))) else {
            continue;
        };
        for (observation, run, figure) in runs.iter().filter(|r| r.2.2 < PEER_SHARE * median) {
            let Some(host) = run.hosts().first().map(|h| (*h).clone()) else { continue };
            let peer = runs.iter().find(|r| r.2.2 >= median);
            findings.extend(
                Draft::new(
                    RULE.id,
                    Cause::SlowLink,
                    format!("{host}: {:.0} GB/s in {name} where its peers reach {median:.0} GB/s", figure.2),
                )
                .severity(Severity::Warning)
                .confidence(Confidence::Medium)
                .culprit(Culprit { host: Some(host), ..Culprit::default() })
                .evidence([measured(observation, run, *figure)])
                .evidence(peer.map(|(o, run, figure)| measured(o, run, *figure)))
                .advise_command(
                    Impact::Harmless,
                    "compare links, widths and clocks of this node with another one",
                    "nvidia-smi nvlink -s; nvidia-smi nvlink -e; nvidia-smi -q -d PCIE,CLOCK,PERFORMANCE",
                )
                .advise(Impact::Disruptive, "leave the node out until it reaches the bandwidth of its peers")
                .build(),
            );
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use ringleader_model::Cause;

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    const GB: u64 = 1 << 30;

    #[test]
    fn far_below_nvlink() {
        StagedCase::new()
            .bench(("node0", "NVIDIA H200", 8), GB, 42.0, 0, &[])
            .concludes(&RULE, "bandwidth-below-expected , medium");
    }

    #[test]
    fn one_node_below_its_peers() {
        let run =
            |stage: StagedCase, host: &str, busbw| stage.bench((host, "NVIDIA H200", 8), GB, busbw, 0, &[]);
        let stage = ["node0", "node1", "node2"].iter().fold(StagedCase::new(), |s, host| run(s, host, 470.0));
        let stage = run(stage, "node3", 300.0);
        let finding = stage.finding(&RULE);
        assert_eq!(finding.cause, Cause::SlowLink);
        assert_eq!(finding.culprits.first().and_then(|c| c.host.as_deref()), Some("node3"));
    }

    #[test]
    fn what_is_healthy_small_or_held_back() {
        let one = |name, size, busbw, settings: &[(&str, &str)]| {
            StagedCase::new().bench(("node0", name, 8), size, busbw, 0, settings)
        };
        one("NVIDIA H200", GB, 325.0, &[]).silent(&RULE);
        one("NVIDIA H200", 64 << 20, 42.0, &[]).silent(&RULE);
        one("NVIDIA H200", GB, 42.0, &[("NCCL_P2P_DISABLE", "1")]).silent(&RULE);
        one("NVIDIA H100 PCIe", GB, 42.0, &[]).silent(&RULE);
        one("NVIDIA L40S", GB, 20.0, &[]).silent(&RULE);
        StagedCase::new().bench(("node0", "NVIDIA H800", 2), 64, 0.0, 0, &[]).silent(&RULE);
    }
}
