//! NCCL RAS, JSON and verbose text, as `ncclras` 2.28.9 prints them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::WriteContext;
use super::clock::stamp;
use crate::job::{CallKind, Halt};
use crate::sim::HostEnd;

const FUNCTIONS: [&str; 5] = ["Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"];

fn function(kind: CallKind) -> Option<usize> {
    match kind {
        CallKind::Broadcast => Some(0),
        CallKind::Reduce => Some(1),
        CallKind::AllGather => Some(2),
        CallKind::ReduceScatter => Some(3),
        CallKind::AllReduce | CallKind::Barrier => Some(4),
        CallKind::Send | CallKind::Recv => None,
    }
}

/// Size (largest first), nodes, missing ranks, errors: communicators with equal values form a group of the
/// report.
type Shape = (std::cmp::Reverse<usize>, usize, usize, &'static str);

/// RAS's data on one communicator.
struct RasCommState {
    group: u16,
    answered: Vec<(u32, [u64; 5])>,
    missing: Vec<u32>,
}

impl RasCommState {
    fn mismatch(&self) -> bool {
        self.answered.windows(2).any(|w| w[0].1 != w[1].1)
    }

    fn errors(&self) -> &'static str {
        match (self.missing.is_empty(), self.mismatch()) {
            (true, false) => "OK",
            (true, true) => "MISMATCH",
            (false, false) => "INCOMPLETE",
            (false, true) => "INCOMPLETE,MISMATCH",
        }
    }
}

fn answers(scene: &WriteContext<'_>, rank: u32) -> bool {
    scene.alive(rank) && !matches!(scene.run.ranks[rank as usize].end, HostEnd::Standing(Halt::Stopped, _))
}

pub(crate) fn write(scene: &WriteContext<'_>, looked_ns: i64, files: &mut Vec<(String, Vec<u8>)>) {
    let job = scene.job;
    let mut counts: BTreeMap<(u16, u32), [u64; 5]> = BTreeMap::new();
    for rank in 0..job.n {
        for made in &scene.run.ranks[rank as usize].made {
            if let Some(f) = function(job.calls[usize::from(made.call)].kind) {
                counts.entry((made.group, rank)).or_default()[f] += 1;
            }
        }
    }
    let comms: Vec<RasCommState> = (0..job.groups.len() as u16)
        .map(|group| {
            let ranks = &job.group(group).ranks;
            let of = |r: &u32| (*r, counts.get(&(group, *r)).copied().unwrap_or_default());
            RasCommState {
                group,
                answered: ranks.iter().filter(|r| answers(scene, **r)).map(of).collect(),
                missing: ranks.iter().copied().filter(|r| !answers(scene, *r)).collect(),
            }
        })
        .filter(|c| !c.answered.is_empty())
        .collect();
    files.push(("ras.json".into(), json(scene, looked_ns, &comms).into_bytes()));
    files.push(("ras_verbose.txt".into(), text(scene, &comms).into_bytes()));
}

fn json(scene: &WriteContext<'_>, looked_ns: i64, comms: &[RasCommState]) -> String {
    let job = scene.job;
    let mut s = String::from(
        "OK\nOK\n{\n  \"nccl_version\": \"2.28.9\",\n  \"cuda_runtime_version\": 13000,\n  \"cuda_driver_version\": 13000,\n",
    );
    let _ = writeln!(s, "  \"timestamp\": \"{}\",", stamp(scene.wall(0, looked_ns)).plain());
    let _ = writeln!(s, "  \"communicators_count\": {},\n  \"communicators\": [", comms.len());
    for (at, comm) in comms.iter().enumerate() {
        let group = job.group(comm.group);
        let _ = write!(
            s,
            "    {{\n      \"hash\": \"{:#018x}\",\n      \"secondary_hash\": \"{:#018x}:{:#018x}\",\n      \"size\": {},\n      \
             \"ranks_count\": {},\n      \"missing_ranks_count\": {},\n      \"ranks\": [\n",
            group.hash,
            group.hash.rotate_left(17),
            group.hash.rotate_left(41),
            group.ranks.len(),
            comm.answered.len(),
            comm.missing.len()
        );
        for (i, (rank, counts)) in comm.answered.iter().enumerate() {
            peer(&mut s, scene, comm.group, *rank, true);
            s.push_str(
                "          \"status\": {\n            \"init_state\": 0,\n            \"async_error\": 0,\n            \"finalize_called\": false,\n            \
                 \"destroy_flag\": false,\n            \"abort_flag\": false\n          },\n          \"collective_counts\": {\n",
            );
            for (f, name) in FUNCTIONS.iter().enumerate() {
                let comma = if f + 1 < FUNCTIONS.len() { "," } else { "" };
                let _ = writeln!(s, "            \"{name}\": {}{comma}", counts[f]);
            }
            s.push_str("          }\n        }");
            s.push_str(if i + 1 < comm.answered.len() { ",\n" } else { "\n" });
        }
        s.push_str("      ],\n      \"missing_ranks\": [\n");
        for (i, rank) in comm.missing.iter().enumerate() {
            // The comma after `nvml_dev` is missing in 2.28.9.
            peer(&mut s, scene, comm.group, *rank, false);
            let stopped = matches!(scene.run.ranks[*rank as usize].end, HostEnd::Standing(..));
            let _ = write!(
                s,
                "          \"status\": {{\n            \"unresponsive\": {stopped},\n            \"considered_dead\": false\n          }}\n        }}"
            );
            s.push_str(if i + 1 < comm.missing.len() { ",\n" } else { "\n" });
        }
        if comm.missing.is_empty() {
            s.push('\n');
        }
        s.push_str("      ]\n    }");
        s.push_str(if at + 1 < comms.len() { ",\n" } else { "\n" });
    }
    s.push_str(
        "  ],\n  \"ras\": {\n    \"collection_time_sec\": 0.001,\n    \"timeouts_count\": 0\n  }\n}\n",
    );
    s
}

fn peer(s: &mut String, scene: &WriteContext<'_>, group: u16, rank: u32, comma: bool) {
    let info = scene.job.info(rank);
    let _ = writeln!(
        s,
        "        {{\n          \"rank\": {},\n          \"host\": \"{}\",\n          \"pid\": {},\n          \"cuda_dev\": {dev},\n          \"nvml_dev\": {dev}{}",
        scene.job.group(group).rank_of(rank).unwrap_or(0),
        scene.job.node_of(rank).addr,
        info.pid,
        if comma { "," } else { "" },
        dev = info.local,
    );
}

fn who(scene: &WriteContext<'_>, rank: u32) -> String {
    let info = scene.job.info(rank);
    format!("GPU {} managed by process {} on node {}", info.local, info.pid, scene.job.node_of(rank).addr)
}

fn plural(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

fn text(scene: &WriteContext<'_>, comms: &[RasCommState]) -> String {
    let job = scene.job;
    let per_node = job.nodes[0].n_ranks;
    let mut s = String::from(
        "OK\nNCCL version 2.28.9 compiled with CUDA 13.0\nCUDA runtime version 13000, driver version 13000\n\n",
    );
    s.push_str("Job summary\n===========\n\n  Nodes  Processes         GPUs  Processes     GPUs\n(total)   per node  per process    (total)  (total)\n");
    let _ = writeln!(s, "{:7}{per_node:11}{:13}{:11}{:9}", job.nodes.len(), 1, job.n, job.n);
    s.push_str("\nCommunicators... (0.001s)\n=============\n\nGroup     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n    #  in group  per comm  per node  per comm  in group\n");
    // Communicators of equal shape and state form a group; the largest is first.
    let mut groups: Vec<(Shape, Vec<&RasCommState>)> = Vec::new();
    for comm in comms {
        let mut nodes: Vec<u32> = comm.answered.iter().map(|(r, _)| job.info(*r).node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let size = job.group(comm.group).ranks.len();
        let key = (std::cmp::Reverse(size), nodes.len(), comm.missing.len(), comm.errors());
        match groups.iter_mut().find(|(k, _)| *k == key) {
            Some((_, list)) => list.push(comm),
            None => groups.push((key, vec![comm])),
        }
    }
    groups.sort_by(|a, b| a.0.cmp(&b.0));
    for (number, (key, list)) in groups.iter().enumerate() {
        let answered: usize = list.iter().map(|c| c.answered.len()).sum();
        let mut per: BTreeMap<(usize, u32), u32> = BTreeMap::new();
        for (i, comm) in list.iter().enumerate() {
            for (rank, _) in &comm.answered {
                *per.entry((i, job.info(*rank).node)).or_default() += 1;
            }
        }
        let (low, high) =
            (per.values().min().copied().unwrap_or(0), per.values().max().copied().unwrap_or(0));
        let per_node = if low == high { low.to_string() } else { format!("{low}-{high}") };
        let _ = writeln!(
            s,
            "{number:5}{:10}{:10}{per_node:>10}{:10}{answered:10}{:>10}  {}",
            list.len(),
            key.1,
            key.0.0,
            "RUNNING",
            key.3
        );
    }
    s.push_str("\nErrors\n======\n\n");
    let gone: Vec<u32> = (0..job.n).filter(|r| !answers(scene, *r)).collect();
    if !gone.is_empty() {
        let _ = writeln!(
            s,
            "INCOMPLETE\n  Missing communicator data from {}",
            plural(gone.len(), "job process", "job processes")
        );
        for rank in &gone {
            let info = job.info(*rank);
            let _ = writeln!(
                s,
                "  Process {} on node {} managing GPU {}",
                info.pid,
                job.node_of(*rank).addr,
                info.local
            );
        }
        s.push('\n');
    }
    for (number, (_, list)) in groups.iter().enumerate() {
        for (i, comm) in list.iter().enumerate().filter(|(_, c)| !c.missing.is_empty()) {
            let group = job.group(comm.group);
            let _ = writeln!(
                s,
                "#{number}-{i} ({:016x}) INCOMPLETE\n  Missing communicator data from {}",
                group.hash,
                plural(comm.missing.len(), "rank", "ranks")
            );
            for rank in &comm.missing {
                let _ = writeln!(s, "  Rank {} -- {}", group.rank_of(*rank).unwrap_or(0), who(scene, *rank));
            }
            s.push('\n');
        }
    }
    s.push_str("Warnings\n========\n\n");
    for (number, (_, list)) in groups.iter().enumerate() {
        for (i, comm) in list.iter().enumerate().filter(|(_, c)| c.mismatch()) {
            let _ = writeln!(s, "#{number}-{i} ({:016x}) MISMATCH", job.group(comm.group).hash);
            for (f, name) in FUNCTIONS.iter().enumerate() {
                mismatch(&mut s, scene, comm, f, name);
            }
        }
    }
    s
}

fn mismatch(s: &mut String, scene: &WriteContext<'_>, comm: &RasCommState, f: usize, name: &str) {
    let mut by_count: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for (rank, counts) in &comm.answered {
        by_count.entry(counts[f]).or_default().push(*rank);
    }
    if by_count.len() < 2 {
        return;
    }
    let mut sets: Vec<(u64, Vec<u32>)> = by_count.into_iter().collect();
    sets.sort_by_key(|(count, ranks)| (std::cmp::Reverse(ranks.len()), std::cmp::Reverse(*count)));
    let group = scene.job.group(comm.group);
    let _ = writeln!(s, "  Communicator ranks have different {name} operation counts");
    for (count, ranks) in &sets {
        let did = match count {
            0 => "not launched any operations".to_owned(),
            n => format!("launched up to operation {n}"),
        };
        if let [rank] = ranks.as_slice() {
            let number = group.rank_of(*rank).unwrap_or(0);
            let _ = writeln!(s, "  Rank {number} has {did} -- {}", who(scene, *rank));
            continue;
        }
        let _ = writeln!(s, "  {} ranks have {did}", ranks.len());
        // Verbose: any set smaller than half is listed.
        if ranks.len() * 2 < comm.answered.len() {
            for rank in ranks {
                let _ =
                    writeln!(s, "    Rank {} -- {}", group.rank_of(*rank).unwrap_or(0), who(scene, *rank));
            }
        }
    }
    s.push('\n');
}
