//! Versions and settings with whose they are, and where ranks differ in what they called.

use std::collections::BTreeMap;

use ringleader_correlate::Scene;
use ringleader_correlate::who::settings;
use ringleader_model::{Fact, Host, PicturedFact, PicturedValue, Rank, RankSet, SystemFact};

/// Facts and values that are kept.
const MAX_FACTS: usize = 96;
const MAX_VALUES: usize = 8;
/// Characters of a value.
const MAX_VALUE: usize = 120;
/// Differences that are kept.
const MAX_DIFFERENCES: usize = 16;

/// Packages whose version matters beside NCCL.
const PACKAGES: &[&str] = &[
    "torch",
    "nccl",
    "cuda",
    "cudnn",
    "driver",
    "jax",
    "deepspeed",
    "megatron",
    "lightning",
    "transformers",
    "accelerate",
    "ray",
    "vllm",
    "ofed",
    "efa",
    "ucx",
    "horovod",
    "tensorflow",
    "triton",
];

/// Names that say who a process is: they differ by design.
const IDENTITY: &[&str] = &[
    "RANK",
    "LOCAL_RANK",
    "GROUP_RANK",
    "ROLE_RANK",
    "NODE_RANK",
    "HOSTNAME",
    "CUDA_VISIBLE_DEVICES",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURMD_NODENAME",
    "SLURM_GTIDS",
    "TORCHELASTIC_ERROR_FILE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_NODE_RANK",
    "PMIX_RANK",
    "PMI_RANK",
];

#[derive(Default)]
struct Holders {
    ranks: Vec<Rank>,
    hosts: Vec<Host>,
    n: usize,
}

type Known = BTreeMap<(bool, String), BTreeMap<String, Holders>>;

/// Versions and settings; those that differ between processes first.
pub(super) fn facts(scene: &Scene<'_>) -> Vec<PicturedFact> {
    let mut known: Known = BTreeMap::new();
    let mut add = |is_setting: bool, name: &str, value: &str, rank: Option<Rank>, host: Option<&Host>| {
        let value: String = value.trim().chars().take(MAX_VALUE).collect();
        let holders = known.entry((is_setting, name.to_owned())).or_default().entry(value).or_default();
        holders.n += 1;
        holders.ranks.extend(rank);
        holders.hosts.extend(host.filter(|host| !holders.hosts.contains(host)).cloned());
    };
    for (_, log) in scene.nccl_logs() {
        for process in &log.processes {
            let member = scene.roster().find(&process.who);
            let rank = member.and_then(|m| m.rank).or(process.who.rank);
            let host = process.who.host.as_ref();
            let mut of = |name: &str, value: Option<&str>| {
                if let Some(value) = value {
                    add(false, name, value, rank, host);
                }
            };
            of("NCCL", process.nccl_version.as_deref());
            of("CUDA driver", process.cuda_driver_version.map(|v| v.to_string()).as_deref());
            of("NCCL network", process.network.as_deref());
        }
    }
    for owned in scene.dumps() {
        if let Some(version) = &owned.dump.library_version {
            add(false, "NCCL of the dump", version, owned.rank, None);
        }
    }
    for (observation, table) in scene.gpu_tables() {
        let host = observation.who.host.as_ref();
        for (name, value) in [("driver", &table.driver_version), ("CUDA of the driver", &table.cuda_version)]
        {
            if let Some(value) = value {
                add(false, name, value, None, host);
            }
        }
    }
    for (observation, run) in scene.benches() {
        let largest = run.rows.iter().max_by_key(|row| row.size_bytes);
        let Some(row) = largest else { continue };
        if let Some(figure) = row.out_of_place.or(row.in_place) {
            let name = format!("bus bandwidth of nccl-tests at {} bytes", row.size_bytes);
            add(false, &name, &format!("{} GB/s", figure.busbw_gbs), None, observation.who.host.as_ref());
        }
    }
    for (observation, fact) in scene.system() {
        let SystemFact::Packages(packages) = fact else { continue };
        let host = scene.host_of(observation);
        for (name, version) in packages {
            if PACKAGES.iter().any(|part| name.to_ascii_lowercase().contains(part)) {
                add(false, name, version, None, host.as_ref());
            }
        }
    }
    for listing in settings::of(scene.case()) {
        let rank = scene.roster().find(listing.who).and_then(|m| m.rank).or(listing.who.rank);
        for set in &listing.sets {
            add(true, set.written, set.value, rank, listing.who.host.as_ref());
        }
    }
    let mut facts: Vec<PicturedFact> =
        known.into_iter().map(|((is_setting, name), values)| fact(name, is_setting, values)).collect();
    facts.sort_by_key(|f| (!f.differs, f.is_setting));
    facts.truncate(MAX_FACTS);
    facts
}

fn fact(name: String, is_setting: bool, values: BTreeMap<String, Holders>) -> PicturedFact {
    let differs = values.len() > 1 && !IDENTITY.contains(&name.as_str());
    let mut values: Vec<PicturedValue> = values
        .into_iter()
        .map(|(value, holders)| PicturedValue {
            value,
            ranks: holders.ranks.into_iter().collect::<RankSet>(),
            hosts: holders.hosts,
            n: holders.n,
        })
        .collect();
    // Rare values come first.
    values.sort_by_key(|value| value.n);
    values.truncate(MAX_VALUES);
    PicturedFact { name, is_setting, differs, values }
}

/// Where ranks differ in what they called, in words.
pub(super) fn differences(scene: &Scene<'_>) -> Vec<String> {
    let one = |m: &ringleader_correlate::calls::mismatch::Mismatch| {
        let odd: RankSet = m.odd.iter().filter_map(|node| node.rank()).collect();
        let odd =
            if odd.is_empty() { "one rank (unknown which)".to_owned() } else { crate::drafting::ranks(&odd) };
        let bygone = if m.is_bygone { "; all have gone on since" } else { "" };
        format!(
            "call #{} of {}: {odd}: {}; {}: {}{bygone}",
            m.seq,
            m.group,
            m.odd_call,
            crate::drafting::ranks(&m.usual),
            m.usual_call
        )
    };
    scene.mismatches().iter().take(MAX_DIFFERENCES).map(one).collect()
}

/// The time that the evidence spans on its wall clocks, ns in the year.
pub(super) fn span(scene: &Scene<'_>) -> Option<(i64, i64)> {
    use ringleader_correlate::when::year::in_year;
    let times = || {
        let of = |o: &ringleader_model::Observation| match &o.fact {
            // A kernel log may reach back for weeks.
            Fact::Kernel(_) => None,
            _ => o.at.map(in_year),
        };
        scene.case().observations.iter().filter_map(of)
    };
    Some((times().min()?, times().max()?))
}
