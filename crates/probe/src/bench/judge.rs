//! What a collective should reach on these GPUs, and why it does not. Pure: a function of the report.

use std::collections::BTreeSet;

use ringleader_knowledge as knowledge;
use ringleader_model::Cause;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bench::pairs::Slow;
use crate::bench::{Report, Row};
use crate::collective::Collective;
use crate::facts::Gpu;

/// Below this share of what is reachable a result is low. nccl-tests' own mark is 0.9 of a number that the user states; ours
/// is derived from rates, which costs a few percent of certainty.
pub const LOW: f64 = 0.85;
/// Only sizes from here on show bandwidth; below, a call is bound by latency.
pub const JUDGED_BYTES: u64 = 64 << 20;
/// Share of the links' rate that a ring reaches where no source states one (A100 232 of 300, H200 366 of 450, B200 675 of
/// 900).
const RING_SHARE: f64 = 0.77;
/// Share of PCIe's rate with direct access between GPUs; NCCL's own model counts 12, 24 for 15.75 and 31.5.
const PCIE_SHARE: f64 = 0.76;
/// Without direct access every byte crosses the host's memory twice.
const STAGED_SHARE: f64 = 0.4;
/// Share of the sum of a node's NICs that rings over many nodes reach (192 of 200, 377 of 400).
const NETWORK_SHARE: f64 = 0.94;
/// A GPU is busy with something else from this share of time on.
const BUSY_PCT: u32 = 10;

/// What one collective reached.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Verdict")]
pub struct CollectiveVerdict {
    /// The collective.
    pub collective: String,
    /// The size that was judged: the largest.
    pub size_bytes: u64,
    /// Bus bandwidth, GB/s.
    pub bus_gb_s: f64,
    /// What it should reach, GB/s.
    pub reach_gb_s: Option<f64>,
    /// Where that number comes from.
    pub why: String,
    /// Reached over reachable.
    pub fraction: Option<f64>,
    /// How it is.
    pub level: Level,
    /// Why it is low, most likely first; also what would keep it from reaching more.
    pub causes: Vec<Reason>,
    /// Wrong elements over all sizes.
    pub wrong: u64,
}

/// The verdict on a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// As this topology should.
    AsExpected,
    /// The sizes are too small, or the topology is unknown.
    NotJudged,
    /// Below 85 % of it.
    Low,
    /// Elements were wrong.
    Wrong,
}

/// One reason, as an id of the closed list of causes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// Id of the cause.
    pub cause: String,
    /// What was seen, and where.
    pub text: String,
}

/// Judges every collective of a report by its largest size.
pub fn judge(report: &Report) -> Vec<CollectiveVerdict> {
    let mut names: Vec<&str> = Vec::new();
    for row in &report.rows {
        if !names.contains(&row.collective.as_str()) {
            names.push(&row.collective);
        }
    }
    names.into_iter().filter_map(|name| of_collective(report, name)).collect()
}

fn of_collective(report: &Report, name: &str) -> Option<CollectiveVerdict> {
    let rows: Vec<&Row> = report.rows.iter().filter(|row| row.collective == name).collect();
    let row = rows.iter().max_by_key(|row| row.size_bytes)?;
    let wrong: u64 = rows
        .iter()
        .flat_map(|row| [row.out_of_place.wrong, row.in_place.and_then(|timing| timing.wrong)])
        .flatten()
        .sum();
    let reach = if report.n_ranks > 1 { reachable(report, Collective::by_name(name)?, row) } else { None };
    let bus = row.out_of_place.bus_gb_s;
    let fraction = reach.as_ref().map(|(gb_s, _)| bus / gb_s).filter(|_| row.size_bytes >= JUDGED_BYTES);
    let level = match fraction {
        _ if wrong > 0 => Level::Wrong,
        Some(fraction) if fraction < LOW => Level::Low,
        Some(_) => Level::AsExpected,
        None => Level::NotJudged,
    };
    let mut causes = reasons(report, row);
    if level == Level::Low && causes.is_empty() {
        causes.push(Reason {
            cause: Cause::BandwidthBelowExpected.id().to_owned(),
            text: "no setting, neighbour, clock or link explains it; compare with a baseline of this node, or take NCCL's \
                   log (NCCL_DEBUG=INFO)"
                .to_owned(),
        });
    }
    if level == Level::Wrong {
        causes.insert(
            0,
            Reason {
                cause: Cause::SilentCorruption.id().to_owned(),
                text: format!("{wrong} elements were wrong; `ringleader verify` finds the GPU or link"),
            },
        );
    }
    Some(CollectiveVerdict {
        collective: name.to_owned(),
        size_bytes: row.size_bytes,
        bus_gb_s: bus,
        why: match &reach {
            Some((_, why)) if fraction.is_some() => why.clone(),
            Some((_, why)) => format!("{why}; only sizes from 64 MiB on are judged"),
            None if report.n_ranks < 2 => "a single rank moves no data over a link".to_owned(),
            None => "neither NVML nor the name of the GPU shows how they are linked".to_owned(),
        },
        reach_gb_s: reach.map(|(gb_s, _)| gb_s),
        fraction,
        level,
        causes,
        wrong,
    })
}

/// Bus bandwidth over what rings reach at best. Of more ranks as measured on four H200 (all_reduce 354, all_gather and
/// reduce_scatter 327, alltoall 338, broadcast 360 GB/s, of 370); of two as measured on two (NCCL 2.28.9, nccl-tests 2.19.6
/// gives the same): with one partner the copy to itself weighs more.
fn share(collective: Collective, n_ranks: usize) -> f64 {
    let is_pair = n_ranks == 2;
    match collective {
        Collective::AllReduce if is_pair => 0.9,
        Collective::AllGather | Collective::ReduceScatter if is_pair => 0.75,
        Collective::AllToAll if is_pair => 0.92,
        Collective::SendRecv | Collective::Broadcast | Collective::Reduce if is_pair => 1.0,
        Collective::HyperCube if is_pair => 0.72,
        // All of it goes to others, and the bus bandwidth counts a part for itself.
        Collective::AllToAllV if is_pair => 0.5,
        Collective::AllToAllV => 0.9 * (n_ranks as f64 - 1.0) / n_ranks.max(1) as f64,
        Collective::AllReduce => 0.95,
        Collective::Broadcast | Collective::Reduce => 0.97,
        Collective::AllGather | Collective::ReduceScatter => 0.88,
        Collective::AllToAll | Collective::SendRecv => 0.9,
        // Every other rank at once to or from one.
        Collective::Gather | Collective::Scatter => 0.9,
        // Each step waits for the one before.
        Collective::HyperCube => 0.6,
    }
}

/// Bytes at which a call reaches half of its bandwidth, at 370 GB/s: measured between 7 and 27 MB on two H200. With other
/// rates it grows with them: the latency behind it is the same.
const HALF_BYTES: f64 = 20e6;
const HALF_AT_GB_S: f64 = 370.0;

/// The part of a bandwidth that a call of this size reaches.
fn of_size(size_bytes: u64, rate_gb_s: f64) -> f64 {
    let half = HALF_BYTES * rate_gb_s / HALF_AT_GB_S;
    size_bytes as f64 / (size_bytes as f64 + half)
}

/// GB/s that a collective should reach, and where the number comes from.
fn reachable(report: &Report, collective: Collective, row: &Row) -> Option<(f64, String)> {
    let gpus = &report.gpus;
    let hosts: BTreeSet<&str> = gpus.iter().map(|gpu| gpu.host.as_str()).collect();
    let inside = inside(gpus);
    if hosts.len() < 2 {
        if let Some(known) = known_node(report, collective, row) {
            return Some(known);
        }
        let (ring, why) = inside?;
        return Some((ring * share(collective, report.n_ranks) * of_size(row.size_bytes, ring), why));
    }
    // Rings over many nodes: every NIC of a node carries its part of the bus bandwidth.
    let nics = hosts
        .iter()
        .map(|host| {
            let of = gpus.iter().filter(|gpu| gpu.host == **host);
            of.map(|gpu| gpu.rdma_gb_s.iter().map(|(_, rate)| rate).sum::<f64>()).fold(0.0, f64::max)
        })
        .fold(f64::INFINITY, f64::min);
    if nics <= 0.0 {
        return None;
    }
    let network = nics * NETWORK_SHARE;
    let why = format!("{nics:.0} GB/s of RDMA ports per node; rings reach {NETWORK_SHARE} of it");
    match inside {
        Some((ring, of_ring)) if ring < network => {
            Some((ring * share(collective, report.n_ranks) * of_size(row.size_bytes, ring), of_ring))
        }
        // What a ring reaches counts the share of an all_reduce already.
        _ => {
            let share = share(collective, report.n_ranks.max(3)) / share(Collective::AllReduce, 3);
            Some((network * share, why))
        }
    }
}

/// A public measurement of this very node: so many GPUs of this model, and the way that NCCL chose.
fn known_node(report: &Report, collective: Collective, row: &Row) -> Option<(f64, String)> {
    let model = model(&report.gpus.first()?.name)?;
    let way = row.way.as_deref()?.split('/').next()?.to_owned();
    let found = knowledge::rate::bandwidths().iter().find(|known| {
        known.node.starts_with(&format!("{}x {model}", report.n_ranks))
            && !known.node.contains("PCIe")
            && known.operation.split(", ").any(|operation| operation == collective.name())
            && known.way.eq_ignore_ascii_case(&way)
    })?;
    let why = format!("{} {} of {}", found.way, found.operation, found.node);
    // Its numbers are of 4 GiB and more.
    Some((found.low_gb_s * 0.97, why))
}

/// `H200` of `NVIDIA H200`.
fn model(name: &str) -> Option<&str> {
    name.split(|c: char| !c.is_ascii_alphanumeric()).find(|word| {
        word.len() > 2
            && word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.ends_with(|c: char| c.is_ascii_digit())
    })
}

/// What a ring inside of one node reaches, GB/s.
fn inside(gpus: &[Gpu]) -> Option<(f64, String)> {
    let links = knowledge::rate::links();
    let reach_each_other = gpus.iter().all(|gpu| {
        let neighbours = gpus.iter().filter(|other| other.host == gpu.host && other.rank != gpu.rank);
        neighbours.into_iter().all(|other| gpu.reaches.contains(&other.rank))
    });
    let by_name = || {
        let model = model(&gpus.first()?.name)?;
        let of = |link: &&knowledge::rate::LinkRate| {
            link.family == "NVLink" && link.of.split([',', ' ', '(']).any(|word| word == model)
        };
        links.iter().find(of).map(|link| link.one_way_gb_s)
    };
    let least = gpus.iter().map(|gpu| gpu.nvlink_gb_s).collect::<Option<Vec<f64>>>();
    let is_linked = gpus.iter().any(|gpu| gpu.nvlinks.is_some_and(|n| n > 0));
    // NVML may not show a guest its links; then the name decides, unless it is the PCIe board.
    let is_told = gpus.iter().all(|gpu| gpu.nvlinks.is_some());
    let nvlink = least.map(|all| all.into_iter().fold(f64::INFINITY, f64::min)).or_else(|| {
        let is_pcie = gpus.iter().any(|gpu| gpu.name.contains("PCIe") || gpu.name.contains("PCI-E"));
        if is_told || is_linked || is_pcie { None } else { by_name() }
    });
    if let Some(one_way) = nvlink {
        let known =
            links.iter().find(|link| link.family == "NVLink" && (link.one_way_gb_s - one_way).abs() < 1.0);
        let reached = known.and_then(|link| link.reached_gb_s).unwrap_or(one_way * RING_SHARE);
        let name = known.map_or("NVLink", |link| link.name);
        return Some((reached, format!("{name}, {one_way:.0} GB/s one way; rings reach {reached:.0}")));
    }
    let rates = gpus.iter().map(|gpu| {
        let (generation, width) = (gpu.pcie.generation_max?, gpu.pcie.width_max?);
        let link = knowledge::rate::link(&format!("PCIe {generation} x16"))?;
        Some(link.one_way_gb_s * f64::from(width) / 16.0)
    });
    let rate = rates.collect::<Option<Vec<f64>>>()?.into_iter().fold(f64::INFINITY, f64::min);
    let (share, how) =
        if reach_each_other { (PCIE_SHARE, "directly") } else { (STAGED_SHARE, "through the host's memory") };
    Some((rate * share, format!("PCIe, {rate:.1} GB/s one way, {how}")))
}

/// Settings that disable something in NCCL, and what.
const LIMITS: &[(&str, &str, Cause)] = &[
    ("NCCL_P2P_DISABLE", "direct access between GPUs is disabled", Cause::WrongTransport),
    ("NCCL_P2P_LEVEL", "direct access is limited by distance", Cause::WrongTransport),
    ("NCCL_SHM_DISABLE", "shared memory between processes of a node is disabled", Cause::WrongTransport),
    ("NCCL_IB_DISABLE", "InfiniBand and RoCE are disabled", Cause::WrongTransport),
    ("NCCL_NET_GDR_LEVEL", "GPUDirect RDMA is limited by distance", Cause::WrongTransport),
    ("NCCL_NET", "the network is fixed", Cause::WrongTransport),
    ("NCCL_ALGO", "the algorithm is forced", Cause::NcclEnvMisconfigured),
    ("NCCL_PROTO", "the protocol is forced", Cause::NcclEnvMisconfigured),
    ("NCCL_MAX_NCHANNELS", "fewer channels", Cause::NcclEnvMisconfigured),
    ("NCCL_MAX_CTAS", "fewer blocks", Cause::NcclEnvMisconfigured),
    ("NCCL_NTHREADS", "the number of threads is fixed", Cause::NcclEnvMisconfigured),
    ("NCCL_BUFFSIZE", "the size of buffers is fixed", Cause::NcclEnvMisconfigured),
    ("NCCL_DEBUG", "logging costs time at small sizes", Cause::NcclEnvMisconfigured),
];

/// Values with which a switch disables nothing.
fn is_harmless(name: &str, value: &str) -> bool {
    match name {
        "NCCL_DEBUG" => !matches!(value.to_ascii_uppercase().as_str(), "INFO" | "TRACE"),
        name if name.ends_with("_DISABLE") => value == "0",
        _ => value.is_empty(),
    }
}

/// What was seen that explains less than the topology gives, most direct first.
fn reasons(report: &Report, row: &Row) -> Vec<Reason> {
    let mut out: Vec<Reason> = Vec::new();
    let mut say = |cause: Cause, text: String| {
        let reason = Reason { cause: cause.id().to_owned(), text };
        if !out.contains(&reason) {
            out.push(reason);
        }
    };
    for (name, value) in &report.settings {
        let limit = LIMITS.iter().find(|(limit, ..)| limit == name);
        if let Some((_, what, cause)) = limit.filter(|_| !is_harmless(name, value)) {
            let way = row.way.as_ref().map_or_else(String::new, |way| format!(" (NCCL chose {way})"));
            let way = if *cause == Cause::NcclEnvMisconfigured { way } else { String::new() };
            say(*cause, format!("{name}={value}: {what}{way}"));
        }
    }
    for connection in &report.connections {
        let host = |rank: usize| report.gpus.get(rank).map(|gpu| gpu.host.as_str());
        let (from, to) = (connection.from, connection.to);
        let could = report.gpus.get(from).is_some_and(|gpu| gpu.reaches.contains(&to));
        if could && host(from) == host(to) && !connection.via.starts_with("P2P") {
            let text = format!(
                "ranks {from} and {to} can reach each other directly; NCCL connected them via {}",
                connection.via
            );
            say(Cause::WrongTransport, text);
        }
    }
    for gpu in &report.gpus {
        let place = format!("rank {} ({} {})", gpu.rank, gpu.host, gpu.bus);
        let pids: Vec<String> = gpu.processes.iter().map(u32::to_string).collect();
        if let Some(busy) = gpu.busy_pct.filter(|busy| *busy >= BUSY_PCT) {
            let who =
                if pids.is_empty() { String::new() } else { format!(", by process {}", pids.join(", ")) };
            say(Cause::GpuBusy, format!("{place}: its GPU was {busy} % busy before the run{who}"));
        }
        if !gpu.slowed_by.is_empty() {
            say(Cause::GpuThrottled, format!("{place}: {} during the run", gpu.slowed_by.join(", ")));
        }
        if let (Some(width), Some(most)) = (gpu.pcie.width, gpu.pcie.width_max)
            && width < most
        {
            say(Cause::PcieDegraded, format!("{place}: PCIe has {width} of {most} lanes"));
        }
        let most = report.gpus.iter().filter_map(|other| other.nvlinks).max();
        if let (Some(up), Some(most)) = (gpu.nvlinks, most)
            && up < most
        {
            say(
                Cause::NvlinkError,
                format!("{place}: {up} NVLinks are up, {most} at another GPU of this run"),
            );
        }
    }
    for pair in &report.pairs {
        let rates = format!("{:.0} and {:.0} GB/s", pair.forth_gb_s, pair.back_gb_s);
        match pair.slow {
            Slow::No => {}
            Slow::Pair => say(
                Cause::SlowLink,
                format!(
                    "between ranks {} and {}: {rates}; each of them is faster with other ranks",
                    pair.a, pair.b
                ),
            ),
            Slow::A => say(Cause::Straggler, format!("rank {} is slow with every partner", pair.a)),
            Slow::B => say(Cause::Straggler, format!("rank {} is slow with every partner", pair.b)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Method, Timing, pairs::Pair, readback::Connection};
    use crate::facts::Pcie;

    fn gpu(rank: usize, n: usize) -> Gpu {
        Gpu {
            rank,
            host: "a".to_owned(),
            device: rank,
            name: "NVIDIA H200".to_owned(),
            bus: format!("0000:00:0{rank}.0"),
            nvlinks: Some(18),
            nvlinks_down: Some(0),
            nvlink_gb_s: Some(450.0),
            reaches: (0..n).filter(|other| *other != rank).collect(),
            busy_pct: Some(0),
            pcie: Pcie { generation: Some(5), width: Some(16), generation_max: Some(5), width_max: Some(16) },
            ..Gpu::default()
        }
    }

    fn report(n: usize, bus_gb_s: f64) -> Report {
        Report {
            schema: crate::bench::SCHEMA.to_owned(),
            n_ranks: n,
            n_processes: 1,
            nccl: ("2.28.9".to_owned(), String::new()),
            cuda: 13000,
            method: Method { dtype: "float".to_owned(), warmup: 1, iterations: 20, checks: 1, graphs: 0 },
            gpus: (0..n).map(|rank| gpu(rank, n)).collect(),
            settings: Vec::new(),
            rows: vec![Row {
                collective: "all_reduce".to_owned(),
                op: Some("sum".to_owned()),
                root: None,
                size_bytes: 1 << 30,
                count: 1 << 28,
                out_of_place: Timing { bus_gb_s, wrong: Some(0), ..Timing::default() },
                in_place: None,
                way: Some("RING/SIMPLE x24".to_owned()),
            }],
            verdicts: Vec::new(),
            pairs: Vec::new(),
            connections: Vec::new(),
            changes: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn one(report: &Report) -> (Level, Vec<String>) {
        let verdict = judge(report).remove(0);
        (verdict.level, verdict.causes.into_iter().map(|reason| reason.cause).collect())
    }

    #[test]
    fn a_healthy_node_is_as_expected() {
        assert_eq!(one(&report(4, 354.0)), (Level::AsExpected, vec![]));
        assert_eq!(one(&report(8, 366.0)), (Level::AsExpected, vec![]));
        let verdict = judge(&report(4, 354.0)).remove(0);
        assert!((0.95..1.05).contains(&verdict.fraction.unwrap()), "{verdict:?}");
        let mut nvls = report(8, 366.0);
        nvls.rows[0].way = Some("NVLS/SIMPLE x16".to_owned());
        assert_eq!(one(&nvls).0, Level::Low, "NVLS should reach 473");
    }

    #[test]
    fn what_is_low_has_its_cause() {
        assert_eq!(one(&report(2, 300.0)), (Level::AsExpected, vec![]));
        let mut set = report(2, 40.0);
        set.settings = vec![("NCCL_P2P_DISABLE".to_owned(), "1".to_owned())];
        assert_eq!(one(&set), (Level::Low, vec!["wrong-transport".to_owned()]));
        set.settings = vec![("NCCL_P2P_DISABLE".to_owned(), "0".to_owned())];
        assert_eq!(one(&set).1, ["bandwidth-below-expected"]);
        set.connections =
            vec![Connection { from: 0, to: 1, via: "SHM/direct/direct".to_owned(), n_channels: 2 }];
        assert_eq!(one(&set).1, ["wrong-transport"]);

        let mut forced = report(2, 250.0);
        forced.settings = vec![("NCCL_ALGO".to_owned(), "Tree".to_owned())];
        assert_eq!(one(&forced).1, ["nccl-env-misconfigured"]);

        let mut busy = report(2, 200.0);
        busy.gpus[1].busy_pct = Some(97);
        assert_eq!(one(&busy).1, ["gpu-busy"]);
        assert!(judge(&busy)[0].causes[0].text.contains("rank 1"));

        let mut lanes = report(2, 200.0);
        lanes.gpus[0].pcie.width = Some(8);
        assert_eq!(one(&lanes).1, ["pcie-degraded"]);

        let mut links = report(4, 200.0);
        links.gpus[2].nvlinks = Some(9);
        links.gpus[2].nvlink_gb_s = Some(225.0);
        links.pairs = vec![Pair { a: 1, b: 2, forth_gb_s: 200.0, back_gb_s: 200.0, slow: Slow::B }];
        assert_eq!(one(&links).1, ["nvlink-error", "straggler"]);
        let mut hot = report(2, 200.0);
        hot.gpus[0].slowed_by = vec!["power brake".to_owned()];
        assert_eq!(one(&hot).1, ["gpu-throttled"]);
    }

    #[test]
    fn what_cannot_be_judged_is_not() {
        let mut small = report(2, 1.0);
        small.rows[0].size_bytes = 1 << 20;
        assert_eq!(one(&small).0, Level::NotJudged);
        assert_eq!(one(&report(1, 0.0)).0, Level::NotJudged);
        let mut unknown = report(2, 1.0);
        for gpu in &mut unknown.gpus {
            *gpu = Gpu { name: "Some GPU".to_owned(), ..Gpu::default() };
        }
        assert_eq!(one(&unknown).0, Level::NotJudged);
        // NVML shows a guest nothing: the name decides.
        for gpu in &mut unknown.gpus {
            gpu.name = "NVIDIA H200".to_owned();
        }
        assert_eq!(one(&unknown).0, Level::Low);
        let mut wrong = report(2, 350.0);
        wrong.rows[0].out_of_place.wrong = Some(3);
        assert_eq!(one(&wrong), (Level::Wrong, vec!["silent-corruption".to_owned()]));
    }

    #[test]
    fn over_many_nodes_the_network_decides() {
        let mut many = report(4, 190.0);
        for (rank, gpu) in many.gpus.iter_mut().enumerate() {
            gpu.host = ["a", "a", "b", "b"][rank].to_owned();
            gpu.rdma_gb_s = (0..4).map(|n| (format!("mlx5_{n}/1"), 50.0)).collect();
        }
        assert_eq!(one(&many).0, Level::AsExpected);
        many.rows[0].out_of_place.bus_gb_s = 90.0;
        assert_eq!(one(&many).0, Level::Low);
    }
}
