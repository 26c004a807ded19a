//! What an operator collects from a job that hangs: py-spy stacks, process lists, nvidia-smi tables.

use std::fmt::Write as _;

use super::clock::stamp;
use super::nccl::bus;
use super::{JobEnd, WriteContext};
use crate::fault::Fault;
use crate::job::{Act, Halt};
use crate::places::{PlaceId, Places};
use crate::sim::HostEnd;

const PYTHON: &str = "/opt/venv/bin/python3";

/// Frames of a process that waits for all ranks to join, as py-spy prints them.
const RENDEZVOUS: [&str; 5] = [
    "_create_c10d_store (torch/distributed/rendezvous.py:199)",
    "_env_rendezvous_handler (torch/distributed/rendezvous.py:280)",
    "init_process_group (torch/distributed/distributed_c10d.py:1831)",
    "_time_logger.<locals>.wrapper (torch/distributed/c10d_logger.py:97)",
    "_exception_logger.<locals>.wrapper (torch/distributed/c10d_logger.py:83)",
];

/// A file name as py-spy shortens it: below its package directory, or the last part.
fn short(places: &Places, file: &str) -> String {
    match file.strip_prefix(places.packages.as_str()) {
        Some(inside) => inside.to_owned(),
        None => file.rsplit('/').next().unwrap_or(file).to_owned(),
    }
}

fn frames(places: &Places, place: PlaceId) -> String {
    let mut s = String::new();
    for frame in places.stack(place) {
        let _ = writeln!(s, "    {} ({}:{})", frame.function, short(places, &frame.file), frame.line);
    }
    s
}

/// The place where a healthy rank spends most of its time: the end of a step.
fn last_sync(scene: &WriteContext<'_>, rank: u32) -> Option<PlaceId> {
    scene.plant.programs(scene.job, rank as usize).iter().rev().find_map(|act| match act {
        Act::Sync(place) => Some(*place),
        _ => None,
    })
}

pub(crate) fn stacks(scene: &WriteContext<'_>, files: &mut Vec<(String, Vec<u8>)>) {
    let job = scene.job;
    for rank in 0..job.n {
        if !scene.alive(rank) {
            continue;
        }
        let info = job.info(rank);
        let pid = info.pid;
        let script = &job.places.script;
        let head = format!("Process {pid}: {PYTHON} -u {script}\nPython v3.12.3 (/usr/bin/python3.12)\n\n");
        let mut s = String::new();
        if scene.line.outcome == JobEnd::NeverBegan {
            let _ = writeln!(s, "{head}Thread {pid} (idle): \"MainThread\"");
            for frame in RENDEZVOUS {
                let _ = writeln!(s, "    {frame}");
            }
            let name = short(&job.places, script);
            let _ = writeln!(s, "    {} ({name}:395)\n    <module> ({name}:411)", job.places.names.main);
        } else {
            match scene.run.ranks[rank as usize].end {
                HostEnd::Standing(Halt::Stopped, _) => s.push_str("process is stopped (T)\n"),
                end => {
                    let (state, place) = match end {
                        HostEnd::Standing(Halt::Busy, place) => ("active+gil", Some(place)),
                        HostEnd::Standing(_, place) => ("idle", Some(place)),
                        HostEnd::Waiting(place) => ("active", Some(place)),
                        HostEnd::Finished if scene.line.outcome == JobEnd::Finished => {
                            ("active", last_sync(scene, rank))
                        }
                        _ => ("idle", None),
                    };
                    let _ = writeln!(s, "{head}Thread {pid} ({state}): \"MainThread\"");
                    match place {
                        Some(place) => s.push_str(&frames(&job.places, place)),
                        None => s.push_str(
                            "    destroy_process_group (torch/distributed/distributed_c10d.py:2319)\n",
                        ),
                    }
                    for thread in 0..4 {
                        let _ = writeln!(s, "Thread {} (idle)", pid + 40 + thread * 3);
                    }
                }
            }
        }
        files.push((format!("stack_rank{rank}.txt"), s.into_bytes()));
    }
}

pub(crate) fn processes(scene: &WriteContext<'_>, looked_ns: i64, files: &mut Vec<(String, Vec<u8>)>) {
    let job = scene.job;
    let mut prng = scene.prng.fork(30);
    for node in &job.nodes {
        let mut s = String::from("  PID  PPID STAT WCHAN                    %CPU     ELAPSED COMMAND\n");
        let elapsed = (looked_ns / 1_000_000_000 + 9).max(1);
        let clock = format!("{:02}:{:02}", elapsed / 60, elapsed % 60);
        let script = &job.places.script;
        let launcher = node.launcher_pid;
        let nodes = match job.nodes.len() {
            1 => "--standalone".to_owned(),
            n => format!("--nnodes={n} --rdzv_backend=c10d"),
        };
        if scene.line.outcome != JobEnd::NeverBegan {
            let _ = writeln!(
                s,
                "{launcher:5} {:5} Ssl  {:24} {:4} {clock:>11} {PYTHON} -m torch.distributed.run {nodes} --nproc_per_node={} {script}",
                895, "hrtimer_nanosleep", "25.1", node.n_ranks
            );
        }
        for rank in node.first..node.first + node.n_ranks {
            if !scene.alive(rank) {
                continue;
            }
            let (state, wchan, cpu) = match scene.run.ranks[rank as usize].end {
                _ if scene.line.outcome == JobEnd::NeverBegan => ("Ssl", "poll_schedule_timeout.co", 31),
                HostEnd::Standing(Halt::Stopped, _) => ("Tsl", "do_signal_stop", 38),
                HostEnd::Standing(Halt::Asleep, _) => (
                    "Ssl",
                    prng.pick(&[
                        "futex_do_wait",
                        "hrtimer_nanosleep",
                        "unix_stream_read_generic",
                        "poll_schedule_timeout.co",
                    ]),
                    41,
                ),
                HostEnd::Standing(Halt::Uninterruptible, _) => (
                    "Dsl",
                    prng.pick(&["rpc_wait_bit_killable", "folio_wait_bit_common", "cl_sync_io_wait"]),
                    12,
                ),
                HostEnd::Finished if scene.line.outcome != JobEnd::Finished => ("Ssl", "futex_do_wait", 39),
                _ => ("Rsl", "-", 93 + prng.below(3)),
            };
            let ppid = if scene.line.outcome == JobEnd::NeverBegan { 895 } else { launcher };
            let _ = writeln!(
                s,
                "{:5} {ppid:5} {state:4} {wchan:24} {cpu:2}.{} {clock:>11} {PYTHON} -u {script}",
                job.info(rank).pid,
                prng.below(10)
            );
        }
        let name = if job.nodes.len() == 1 { "ps.txt".into() } else { format!("ps_{}.txt", node.host) };
        files.push((name, s.into_bytes()));
    }
}

pub(crate) fn gpus(scene: &WriteContext<'_>, looked_ns: i64, files: &mut Vec<(String, Vec<u8>)>) {
    let job = scene.job;
    let mut prng = scene.prng.fork(31);
    // A rank whose kernel waits alone, with another size or kind than its peers', may draw less power than they
    // do.
    let lonely = prng.chance(50);
    // Some kernels that never end load the GPU more than a collective does, others less.
    let hot = prng.chance(40);
    for node in &job.nodes {
        let now = scene.wall(node.first, looked_ns);
        let mut s = format!("{}       \n", stamp(now).ctime(now));
        s.push_str(TOP);
        let mut processes = String::new();
        for rank in node.first..node.first + node.n_ranks {
            let culprit = scene.plant.culprits.contains(&rank);
            let run = &scene.run.ranks[rank as usize];
            let here = scene.alive(rank);
            let healthy = scene.line.outcome == JobEnd::Finished;
            let in_kernel = healthy || run.made.iter().any(|m| m.done_ns.is_none());
            let (watts, load, memory) = if scene.line.outcome == JobEnd::NeverBegan {
                if here { (prng.range(114, 121), 0, 529) } else { (prng.range(74, 79), 0, 4) }
            } else if !here {
                (prng.range(118, 125), 0, 292)
            } else if culprit && scene.plant.fault == Fault::GpuStuck {
                (if hot { prng.range(520, 610) } else { prng.range(117, 126) }, 100, 1_699)
            } else if !in_kernel {
                (prng.range(118, 125), 0, 1_699)
            } else if culprit && lonely {
                (prng.range(119, 125), 100, 1_699)
            } else {
                (prng.range(255, 267), 100, 1_699)
            };
            let local = job.info(rank).local;
            let _ = writeln!(
                s,
                "| {local:3}  NVIDIA H200                    On  |   00000000:{:02X}:00.0 Off |                    0 |\n\
                 | N/A   {}C    P0            {watts:3}W /  700W | {memory:7}MiB / 143771MiB | {load:6}%      Default |\n\
                 |                                         |                        |             Disabled |\n\
                 +-----------------------------------------+------------------------+----------------------+",
                bus(local),
                prng.range(36, 47),
            );
            if here {
                let _ = writeln!(
                    processes,
                    "| {local:4}   N/A  N/A {:15}      C   {PYTHON:36}{:7}MiB |",
                    job.info(rank).pid,
                    memory - 9
                );
            }
        }
        s.push_str(MIDDLE);
        s.push_str(&processes);
        s.push_str(
            "+-----------------------------------------------------------------------------------------+\n",
        );
        let name = if job.nodes.len() == 1 {
            "nvidia-smi.txt".into()
        } else {
            format!("nvidia-smi_{}.txt", node.host)
        };
        files.push((name, s.into_bytes()));
    }
}

const TOP: &str = "\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.159.04             Driver Version: 580.159.04     CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
";

const MIDDLE: &str = "
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
";
