//! NCCL_DEBUG=INFO logs of NCCL 2.28.9, one file per process (`NCCL_DEBUG_FILE`).

use std::fmt::Write as _;

use super::clock::stamp;
use super::{JobEnd, WriteContext};
use crate::job::CallKind;
use crate::sim::HostEnd;

const BUSES: [u8; 8] = [0x1b, 0x43, 0x52, 0x61, 0x9d, 0xc3, 0xd1, 0xdf];

/// PCI bus of a node's GPU.
pub(crate) fn bus(local: u32) -> u8 {
    BUSES[local as usize % BUSES.len()]
}

/// NCCL's datatype number.
fn datatype(name: &str) -> u8 {
    match name {
        "Half" => 6,
        "Double" => 8,
        "BFloat16" => 9,
        _ => 7,
    }
}

/// Name and count as NCCL prints them: a gather counts what one rank sends, a scatter what one rank receives.
fn coll(kind: CallKind, numel_in: u64, numel_out: u64) -> (&'static str, u64) {
    match kind {
        CallKind::AllReduce | CallKind::Barrier => ("AllReduce", numel_in),
        CallKind::AllGather => ("AllGather", numel_in),
        CallKind::ReduceScatter => ("ReduceScatter", numel_out),
        CallKind::Broadcast => ("Broadcast", numel_in),
        CallKind::Reduce => ("Reduce", numel_in),
        CallKind::Send => ("Send", numel_in),
        CallKind::Recv => ("Recv", numel_in),
    }
}

/// The pointer of a communicator: meaningless outside its process.
fn pointer(scene: &WriteContext<'_>, rank: u32, group: u16) -> u64 {
    // A separate heap address for each communicator of the process.
    let nth = scene.job.groups_of[rank as usize].iter().position(|g| *g == group).unwrap_or(0) as u64;
    let mut prng = scene.prng.fork(20_000 + u64::from(rank));
    0x2000_0000 + prng.below(0x1fff_ffff) / 16 * 16 + nth * 0x0a5c_3b90
}

struct Log<'a> {
    scene: &'a WriteContext<'a>,
    rank: u32,
    out: String,
}

impl Log<'_> {
    fn line(&mut self, at_ns: i64, text: &str) {
        let scene = self.scene;
        let info = scene.job.info(self.rank);
        if scene.job.nccl_stamps {
            let _ = write!(self.out, "[{}] ", stamp(scene.wall(self.rank, at_ns)).plain());
        }
        let host = &scene.job.node_of(self.rank).host;
        let _ = writeln!(self.out, "{host}:{0}:{0} [{1}] NCCL INFO {text}", info.pid, info.local);
    }
}

pub(crate) fn write(scene: &WriteContext<'_>, calls: bool, files: &mut Vec<(String, Vec<u8>)>) {
    for rank in 0..scene.job.n {
        let never_began = scene.line.outcome == JobEnd::NeverBegan;
        if never_began && rank == scene.plant.rank {
            continue;
        }
        let mut log = Log { scene, rank, out: String::new() };
        if never_began {
            log.line(1_000_000_000, "ENV/Plugin: Could not find: libnccl-env.so");
            log.line(scene.line.end_ns, "ENV/Plugin: Closing env plugin ncclEnvDefault");
        } else {
            introduce(&mut log);
            if calls {
                call_lines(&mut log);
            }
            farewell(&mut log);
        }
        let name = format!("nccl_{}_{}.log", scene.job.node_of(rank).host, scene.job.info(rank).pid);
        files.push((name, log.out.into_bytes()));
    }
}

fn introduce(log: &mut Log<'_>) {
    let scene = log.scene;
    let job = scene.job;
    let rank = log.rank;
    let info = job.info(rank);
    let node = job.node_of(rank);
    // Communicators are created in the seconds before the first step.
    let mut at = -3_000_000_000;
    let own = |at: i64| at + i64::from(rank % 8) * 3_000_000;
    log.line(at, "cudaDriverVersion 13000");
    log.line(at, &format!("Bootstrap: Using eth0:{}<0>", node.addr));
    log.line(at, "NCCL version 2.28.9+cuda13.0");
    log.line(at, "NET/Plugin: Could not find: libnccl-net.so");
    if job.nodes.len() > 1 {
        log.line(
            at,
            &format!("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:{}<0>", node.addr),
        );
        log.line(at, "Using network IB");
    } else {
        log.line(at, "NET/IB : No device found.");
        log.line(at, &format!("NET/Socket : Using [0]eth0:{}<0>", node.addr));
        log.line(at, "Using network Socket");
    }
    let world = pointer(scene, rank, 0);
    let mut splits = 0;
    for (number, index) in job.groups_of[rank as usize].iter().enumerate() {
        let group = job.group(*index);
        let me = group.rank_of(rank).unwrap_or(0);
        let n = group.ranks.len() as u32;
        let comm = pointer(scene, rank, *index);
        let head = format!(
            "comm {comm:#x} rank {me} nranks {n} cudaDev {0} nvmlDev {0} busId {1:x}000",
            info.local,
            bus(info.local)
        );
        if number == 0 {
            let text = format!("ncclCommInitRankConfig {head} commId {:#018x} - Init ", group.hash);
            log.line(own(at), &format!("{text}START"));
            log.line(
                own(at),
                &format!(
                    "MNNVL busId {:#x}000 fabric UUID 0.0 cliqueId 0x0 state 3 healthMask 0x0",
                    bus(info.local)
                ),
            );
            log.line(own(at), "P2P Chunksize set to 524288");
            log.line(own(at + 400_000_000), &format!("{text}COMPLETE"));
        } else {
            // Every member of the parent takes part in every split; a rank counts those that it belongs to.
            splits += 1;
            let color = 1_000_000 + (group.hash % 2_000_000_000);
            let text =
                format!("ncclCommSplit {head} parent {world:#x} splitCount {splits} color {color} key {me}");
            log.line(own(at), &format!("{text}- Init START"));
            log.line(own(at + 200_000_000), &format!("{text} - Init COMPLETE"));
        }
        at += 450_000_000;
        if n == 1 {
            continue;
        }
        let next = (me + 1) % n;
        let device = |r: u32| job.info(group.ranks[r as usize]).local;
        for channel in 0..2 {
            let pair = format!("Channel {channel:02}/0 : {me}[{}] -> {next}[{}]", device(me), device(next));
            if job.info(group.ranks[next as usize]).node == info.node {
                log.line(own(at), &format!("{pair} via P2P/CUMEM"));
            } else {
                log.line(own(at), &format!("{pair} [send] via NET/IB/{channel}/GDRDMA"));
            }
        }
        log.line(own(at), "Connected all rings, use ring PXN 0 GDR 1");
    }
}

fn call_lines(log: &mut Log<'_>) {
    let scene = log.scene;
    let job = scene.job;
    let rank = log.rank;
    let mut counts = vec![0_u64; job.groups.len()];
    let mut address = 0x7f10_0000_0000_u64 + u64::from(rank % 16) * 0x10_0000_0000;
    for made in &scene.run.ranks[rank as usize].made {
        let group = job.group(made.group);
        let call = &job.calls[usize::from(made.call)];
        let (name, count) = coll(call.kind, call.numel_in(), call.numel_out());
        // Within one node the counter is never transmitted and stays 0.
        let op_count = if group.one_node { 0 } else { counts[usize::from(made.group)] };
        counts[usize::from(made.group)] += 1;
        address = 0x7f10_0000_0000 | (address.wrapping_add(0x61_c400) & 0xff_ffff_ff00);
        let send = if matches!(call.kind, CallKind::Recv | CallKind::Send) {
            "(nil)".to_owned()
        } else {
            format!("{address:#x}")
        };
        let root = made.peer.map_or(call.root, u32::from);
        let comm = pointer(scene, rank, made.group);
        log.line(
            made.at_ns,
            &format!(
                "{name}: opCount {op_count:x} sendbuff {send} recvbuff {address:#x} count {count} datatype {} op {} root {root} \
                 comm {comm:#x} [nranks={}] stream (nil)",
                datatype(call.dtype),
                if call.kind == CallKind::ReduceScatter { 4 } else { 0 },
                group.ranks.len()
            ),
        );
    }
}

fn farewell(log: &mut Log<'_>) {
    let scene = log.scene;
    let rank = log.rank;
    let job = scene.job;
    let run = &scene.run.ranks[rank as usize];
    let info = job.info(rank);
    let gone = |word: &str, group: u16| {
        let g = job.group(group);
        format!(
            "comm {:#x} rank {} nranks {} cudaDev {} busId {:x}000 - {word} COMPLETE",
            pointer(scene, rank, group),
            g.rank_of(rank).unwrap_or(0),
            g.ranks.len(),
            info.local,
            bus(info.local)
        )
    };
    match run.end {
        HostEnd::Finished if scene.line.outcome == JobEnd::Finished => {
            for group in job.groups_of[rank as usize].iter().rev() {
                log.line(scene.line.end_ns - 500_000_000, &gone("Destroy", *group));
            }
        }
        HostEnd::Exited => {
            for group in job.groups_of[rank as usize].iter().rev() {
                log.line(run.end_ns + 50_000_000, &gone("Abort", *group));
            }
            log.line(run.end_ns + 60_000_000, "ENV/Plugin: Closing env plugin ncclEnvDefault");
        }
        _ => {
            for other in 0..job.n {
                let peer = &scene.run.ranks[other as usize];
                if peer.end == HostEnd::Exited && job.info(other).node == info.node && other != rank {
                    let text =
                        format!("[Service thread] Connection closed by localRank {}", job.info(other).local);
                    log.line(peer.end_ns + 70_000_000, &text);
                }
            }
        }
    }
}
