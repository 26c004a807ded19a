//! The launchers' stderr: output of the ranks that torchrun passes on (prints, watchdog, tracebacks, crash reports)
//! and its own messages. One file per node, because each node has its own launcher.

use std::fmt::Write as _;

use super::clock::stamp;
use super::flight::work_seq;
use super::{JobEnd, Timeout, WriteContext};
use crate::job::{CallKind, Halt, Node, ProcessFailure};
use crate::places::PlaceId;
use crate::sim::HostEnd;

const ADVICE: &str = "This is most likely caused by incorrect usages of collectives, e.g., wrong sizes used across ranks, the order of collectives is not same for all ranks or the scheduled collective, for some reason, didn't run. Additionally, this can be caused by GIL deadlock or other reasons such as network errors or bugs in the communications library (e.g. NCCL), etc. ";
const MODULES: &str = "Extension modules: numpy._core._multiarray_umath, numpy.linalg._umath_linalg, torch._C, torch._C._dynamo.autograd_compiler, torch._C._dynamo.eval_frame, torch._C._dynamo.guards, torch._C._dynamo.utils, torch._C._fft, torch._C._linalg, torch._C._nested, torch._C._nn, torch._C._sparse, torch._C._special (total: 13)";
const ELASTIC: &str = "torch/distributed/elastic/multiprocessing/api.py";

/// The end of a process as the launcher saw it.
#[derive(Clone, Copy)]
struct LauncherExit {
    rank: u32,
    code: i32,
    at_ns: i64,
}

struct Node0<'a> {
    scene: &'a WriteContext<'a>,
    node: &'a Node,
    /// (time, order of entry, text).
    blocks: Vec<(i64, String)>,
    /// Processes that ended by themselves.
    exits: Vec<LauncherExit>,
}

pub(crate) fn write(scene: &WriteContext<'_>, files: &mut Vec<(String, Vec<u8>)>) {
    for node in &scene.job.nodes {
        let mut log = Node0 { scene, node, blocks: Vec::new(), exits: Vec::new() };
        match scene.line.outcome {
            JobEnd::NeverBegan => log.never_began(),
            _ => log.all(),
        }
        let mut s = String::new();
        log.blocks.sort_by_key(|b| b.0);
        for (_, text) in &log.blocks {
            s.push_str(text);
        }
        let name = if scene.job.nodes.len() == 1 {
            "stderr.log".into()
        } else {
            format!("stderr_{}.log", node.host)
        };
        files.push((name, s.into_bytes()));
    }
}

impl Node0<'_> {
    fn ranks(&self) -> std::ops::Range<u32> {
        self.node.first..self.node.first + self.node.n_ranks
    }

    fn push(&mut self, at_ns: i64, text: String) {
        self.blocks.push((at_ns, text));
    }

    /// `[rank3]:[E1120 08:21:34.879176503 ProcessGroupNCCL.cpp:689] `
    fn glog(&self, rank: u32, letter: char, at_ns: i64, source: &str) -> String {
        let time = stamp(self.scene.wall(rank, at_ns)).glog();
        format!("[rank{rank}]:[{letter}{time} {source}] ")
    }

    /// `[PG ID 0 PG GUID 0(default_pg) Rank 3] `; the rank is the one within the group.
    fn pg(&self, rank: u32, group: u16) -> String {
        let job = self.scene.job;
        let g = job.group(group);
        let id = job.groups_of[rank as usize].iter().position(|x| *x == group).unwrap_or(0);
        format!("[PG ID {id} PG GUID {}({}) Rank {}] ", g.name, g.desc, g.rank_of(rank).unwrap_or(0))
    }

    fn launcher(&self, letter: char, at_ns: i64, source: &str) -> String {
        let time = stamp(self.scene.wall(self.node.first, at_ns)).python();
        format!("{letter}{time} {} {source}] ", self.node.launcher_pid)
    }

    fn all(&mut self) {
        self.prints();
        for rank in self.ranks() {
            self.watchdog(rank);
            self.failure(rank);
        }
        self.launcher_end();
    }

    fn prints(&mut self) {
        let job = self.scene.job;
        let mut steps: Vec<(i64, u32, usize)> = Vec::new();
        for rank in self.ranks() {
            if rank == 0 || job.all_print {
                for (step, at) in self.scene.run.ranks[rank as usize].steps.iter().enumerate() {
                    steps.push((*at, rank, step));
                }
            }
        }
        steps.sort_unstable();
        let mut prng = self.scene.prng.fork(40 + u64::from(self.node.first));
        let pieces = |rank: u32, step: usize, at: i64| {
            let loss = 213 + (u64::from(rank) * 7 + step as u64 * 13) % 9;
            let seconds = at / 10_000_000 + 40;
            let time = format!("{}.{:02}", seconds / 100, seconds % 100);
            [
                format!("[rank {rank}]"),
                "step".into(),
                step.to_string(),
                "loss".into(),
                format!("0.0{loss}"),
                "t".into(),
                time,
            ]
        };
        let mut at = 0;
        while let Some((when, rank, step)) = steps.get(at).copied() {
            let one = pieces(rank, step, when);
            match steps.get(at + 1).copied() {
                // print() writes its arguments one by one: the output of two ranks may interleave.
                Some((later, other, next)) if other != rank && prng.chance(35) => {
                    let two = pieces(other, next, later);
                    let both: Vec<String> = one.iter().zip(&two).map(|(a, b)| format!("{a}{b}")).collect();
                    self.push(when, format!("{}\n\n", both.join("  ")));
                    at += 2;
                }
                _ => {
                    self.push(when, format!("{}\n", one.join(" ")));
                    at += 1;
                }
            }
        }
        for rank in self.ranks() {
            let run = &self.scene.run.ranks[rank as usize];
            if rank == self.scene.plant.rank
                && let Some(words) = &self.scene.plant.print
            {
                let at = run.made.last().map_or(run.end_ns, |m| m.at_ns.max(*run.steps.last().unwrap_or(&0)));
                self.push(at + 1, format!("[rank {rank}] {words}\n"));
            }
            if run.end == HostEnd::Finished
                && self.scene.line.outcome == JobEnd::Finished
                && (rank == 0 || job.all_print)
            {
                self.push(run.end_ns + 300_000_000, format!("[rank {rank}] done\n"));
            }
        }
    }

    fn stack_of(&self, place: PlaceId) -> String {
        let mut s = String::new();
        for (i, f) in self.scene.job.places.stack(place).iter().enumerate() {
            let _ = writeln!(s, "#{i} {} from {}:{}", f.function, f.file, f.line);
        }
        s
    }

    fn watchdog(&mut self, rank: u32) {
        let scene = self.scene;
        let Some((first_ns, first_rank)) = scene.line.first else { return };
        let run = &scene.run.ranks[rank as usize];
        let timeouts = scene.line.timeouts[rank as usize].clone();
        let Some(dumped) = scene.line.dumped[rank as usize] else { return };
        let own = |t: &&Timeout| t.at_ns < dumped;
        let mut any = None;
        for t in timeouts.iter().filter(own) {
            let made = &run.made[t.made];
            let call = &scene.job.calls[usize::from(made.call)];
            let kind = match call.kind {
                CallKind::AllReduce | CallKind::Barrier => "ALLREDUCE",
                CallKind::AllGather => "_ALLGATHER_BASE",
                CallKind::ReduceScatter => "_REDUCE_SCATTER_BASE",
                CallKind::Broadcast => "BROADCAST",
                CallKind::Reduce => "REDUCE",
                CallKind::Send => "SEND",
                CallKind::Recv => "RECV",
            };
            let seq = work_seq(made);
            let me = scene.job.group(t.group).rank_of(rank).unwrap_or(0);
            let ran = (t.at_ns - made.at_ns) / 1_000_000;
            let text = format!(
                "{}[Rank {me}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={kind}, NumelIn={}, NumelOut={}, \
                 Timeout(ms)={}) ran for {ran} milliseconds before timing out.\n",
                self.glog(rank, 'E', t.at_ns, "ProcessGroupNCCL.cpp:689"),
                call.numel_in(),
                call.numel_out(),
                scene.job.timeout_ms
            );
            self.push(t.at_ns, text);
            let (enqueued, completed) = self.positions(rank, t.group);
            let later = t.at_ns + 140_000;
            let text = format!(
                "{}{} failure detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {enqueued}, last completed work: {completed}\n",
                self.glog(rank, 'E', later, "ProcessGroupNCCL.cpp:2303"),
                self.pg(rank, t.group)
            );
            self.push(later, text);
            let later = (t.at_ns + 2_500_000_000).min(dumped - 500_000_000).max(t.at_ns + 200_000);
            let mut text = format!(
                "{}Stack trace of the failed collective: \n{}\n",
                self.glog(rank, 'E', later, "ProcessGroupNCCL.cpp:733"),
                self.stack_of(made.place)
            );
            if any.is_none() {
                let _ = writeln!(
                    text,
                    "{}{}First PG on this rank to signal dumping.",
                    self.glog(rank, 'E', later + 100_000, "ProcessGroupNCCL.cpp:2636"),
                    self.pg(rank, t.group)
                );
                any = Some(t.group);
            }
            self.push(later, text);
        }
        let (enqueued, completed) = self.positions(rank, any.unwrap_or(0));
        let pg = self.pg(rank, 0);
        let from = if any.is_some() {
            "this local rank".to_owned()
        } else {
            let seen = format!(
                "{}{pg}Observed flight recorder dump signal from another rank via TCPStore.\n",
                self.glog(rank, 'E', dumped - 600_000, "ProcessGroupNCCL.cpp:1849")
            );
            self.push(dumped - 600_000, seen);
            format!(" rank {first_rank}")
        };
        let text = format!(
            "{}{pg}Received a dump signal due to a collective timeout from {from} and we will try our best to dump the debug info. Last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.{ADVICE}\n\
             {}{pg}ProcessGroupNCCL preparing to dump debug info. Include stack trace: 1, only active collectives: 0\n",
            self.glog(rank, 'E', dumped - 500_000, "ProcessGroupNCCL.cpp:1914"),
            self.glog(rank, 'E', dumped - 300_000, "ProcessGroupNCCL.cpp:1628"),
        );
        self.push(dumped - 500_000, text);
        if any.is_some() {
            let end = first_ns + 12_000_000_000 + (dumped - first_ns);
            let mut text = format!(
                "{}{pg}{pg}Terminating the process after attempting to dump debug info, due to collective timeout or exception.\n",
                self.glog(rank, 'F', end, "ProcessGroupNCCL.cpp:1653")
            );
            let place = match run.end {
                HostEnd::Waiting(place) | HostEnd::Standing(_, place) => Some(place),
                _ => None,
            };
            text.push_str(&self.crash("Aborted", rank, place, false));
            self.push(end, text);
            self.exits.push(LauncherExit { rank, code: -6, at_ns: end });
        }
    }

    /// Last enqueued and last completed work of a group in the watchdog's count; -1 for none.
    fn positions(&self, rank: u32, group: u16) -> (i64, i64) {
        let made = &self.scene.run.ranks[rank as usize].made;
        let of = || made.iter().filter(|m| m.group == group);
        let last = of().next_back().map_or(-1, |m| i64::from(work_seq(m)));
        let done =
            of().filter(|m| m.done_ns.is_some()).map(|m| i64::from(work_seq(m))).next_back().unwrap_or(-1);
        (last, done)
    }

    /// The report of faulthandler.
    fn crash(&self, reason: &str, rank: u32, place: Option<PlaceId>, current: bool) -> String {
        let info = self.scene.job.info(rank);
        let mut s = format!("Fatal Python error: {reason}\n\n");
        for n in 0..4_u64 {
            let thread = info.autograd + n * 0x80_1000;
            let _ = writeln!(s, "Thread 0x{thread:016x} (most recent call first):\n  <no Python frame>\n");
        }
        let word = if current { "Current thread" } else { "Thread" };
        let _ = writeln!(s, "{word} 0x{:016x} (most recent call first):", info.thread);
        if let Some(place) = place {
            for f in self.scene.job.places.stack(place) {
                let _ = writeln!(s, "  File \"{}\", line {} in {}", f.file, f.line, f.function);
            }
        }
        let _ = writeln!(s, "\n{MODULES}");
        s
    }

    fn failure(&mut self, rank: u32) {
        let run = &self.scene.run.ranks[rank as usize];
        let HostEnd::Failed(how, place) = run.end else { return };
        let at = run.end_ns;
        let code = match how {
            ProcessFailure::Killed => -9,
            ProcessFailure::Crashed => {
                let text = self.crash("Segmentation fault", rank, Some(place), true);
                self.push(at, text);
                -11
            }
            ProcessFailure::Raised => {
                let mut prng = self.scene.prng.fork(50);
                let (class, message, source) = prng.pick(&[
                    (
                        "RuntimeError",
                        "bad sample in shard 17",
                        "raise RuntimeError(\"bad sample in shard 17\")",
                    ),
                    ("KeyError", "'labels'", "return batch[\"labels\"]"),
("AssertionError", "3 labels for 4 samples", "assert len(labels) == len(batch), f\"{len(labels)} labels for {len(batch)} samples\""),
                    ("ValueError", "could not convert string to float: '1.2.3'", "x = float(field)"),
                ]);
                let mut text = format!("[rank{rank}]: Traceback (most recent call last):\n");
                for (i, f) in self.scene.job.places.stack(place).iter().enumerate().rev() {
                    let code = if i == 0 {
                        source.to_owned()
                    } else {
                        format!("{}()", self.scene.job.places.stack(place)[i - 1].function)
                    };
                    let _ = writeln!(
                        text,
                        "[rank{rank}]:   File \"{}\", line {}, in {}\n[rank{rank}]:     {code}",
                        f.file, f.line, f.function
                    );
                }
                let _ = writeln!(text, "[rank{rank}]: {class}: {message}");
                self.push(at, text);
                1
            }
        };
        self.exits.push(LauncherExit { rank, code, at_ns: at + 150_000_000 });
    }

    fn launcher_end(&mut self) {
        let scene = self.scene;
        self.exits.sort_by_key(|e| e.at_ns);
        let Some(first) = self.exits.first().copied() else {
            // Nothing failed on this node: its launcher is told to stop when the job ends.
            if scene.line.outcome != JobEnd::Finished {
                self.told_to_stop(scene.line.end_ns + 3_000_000_000);
            }
            return;
        };
        let mut at = first.at_ns + 100_000_000;
        let alive: Vec<u32> = self
            .ranks()
            .filter(|r| *r != first.rank && scene.run.ranks[*r as usize].end != HostEnd::Exited)
            .collect();
        for rank in &alive {
            let text = format!(
                "{}Sending process {} closing signal SIGTERM\n",
                self.launcher('W', at, &format!("{ELASTIC}:1012")),
                scene.job.info(*rank).pid
            );
            self.push(at, text);
            at += 1_000_000;
        }
        let deaf: Vec<u32> = alive
            .iter()
            .copied()
            .filter(|r| {
                matches!(
                    scene.run.ranks[*r as usize].end,
                    HostEnd::Standing(Halt::Stopped | Halt::Uninterruptible, _)
                )
            })
            .collect();
        if !deaf.is_empty() {
            if scene.prng.fork(60).chance(50) {
                // The operator loses patience with a process that ignores SIGTERM.
                self.told_to_stop(at + 8_000_000_000);
                return;
            }
            at += 30_000_000_000;
            for rank in &deaf {
                let text = format!(
                    "{}Unable to shutdown process {} via Signals.SIGTERM, forcefully exiting via Signals.SIGKILL\n",
                    self.launcher('W', at, &format!("{ELASTIC}:1031")),
                    scene.job.info(*rank).pid
                );
                self.push(at, text);
            }
        }
        at += 300_000_000;
        let mut exits: Vec<LauncherExit> = vec![first];
        for rank in alive {
            let code = match self.exits.iter().find(|e| e.rank == rank) {
                Some(e) if e.at_ns < at => e.code,
                _ if deaf.contains(&rank) => -9,
                _ => -15,
            };
            exits.push(LauncherExit { rank, code, at_ns: at });
        }
        let text = self.table(at, &exits);
        self.push(at, text);
    }

    fn told_to_stop(&mut self, at: i64) {
        let mut text = format!(
            "{}Received 15 death signal, shutting down workers\n",
            self.launcher('W', at, "torch/distributed/elastic/agent/server/api.py:739")
        );
        for rank in self.ranks().filter(|r| self.scene.run.ranks[*r as usize].end != HostEnd::Exited) {
            let _ = writeln!(
                text,
                "{}Sending process {} closing signal SIGTERM",
                self.launcher('W', at + 1_000_000, &format!("{ELASTIC}:1012")),
                self.scene.job.info(rank).pid
            );
        }
        let sp = &self.scene.job.places.packages;
        let _ = write!(
            text,
            "Traceback (most recent call last):\n  File \"<frozen runpy>\", line 198, in _run_module_as_main\n  File \"<frozen runpy>\", line 88, in _run_code\n\
             \x20 File \"{sp}torch/distributed/run.py\", line 994, in <module>\n    main()\n\
             \x20 File \"{sp}torch/distributed/elastic/multiprocessing/api.py\", line 86, in _terminate_process_handler\n    \
             raise SignalException(f\"Process {{os.getpid()}} got signal: {{sigval}}\", sigval=sigval)\n\
             torch.distributed.elastic.multiprocessing.api.SignalException: Process {} got signal: 15\n",
            self.node.launcher_pid
        );
        self.push(at, text);
    }

    fn table(&self, at: i64, exits: &[LauncherExit]) -> String {
        let job = self.scene.job;
        let sp = &job.places.packages;
        let first = exits[0];
        let info = job.info(first.rank);
        let mut s = format!(
            "{}failed (exitcode: {}) local_rank: {} (pid: {}) of binary: /opt/venv/bin/python3\n",
            self.launcher('E', at, &format!("{ELASTIC}:986")),
            first.code,
            info.local,
            info.pid
        );
        let _ = write!(
            s,
            "Traceback (most recent call last):\n  File \"<frozen runpy>\", line 198, in _run_module_as_main\n  File \"<frozen runpy>\", line 88, in _run_code\n\
             \x20 File \"{sp}torch/distributed/run.py\", line 994, in <module>\n    main()\n\
             \x20 File \"{sp}torch/distributed/elastic/multiprocessing/errors/__init__.py\", line 362, in wrapper\n    return f(*args, **kwargs)\n           ^^^^^^^^^^^^^^^^^^\n\
             \x20 File \"{sp}torch/distributed/run.py\", line 981, in run\n    elastic_launch(\n\
             \x20 File \"{sp}torch/distributed/launcher/api.py\", line 317, in launch_agent\n    raise ChildFailedError(\n\
             torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        );
        let rule = 54;
        let _ = writeln!(
            s,
            "{}\n{} FAILED\n{}\nFailures:",
            "=".repeat(rule),
            job.places.script,
            "-".repeat(rule)
        );
        if exits.len() == 1 {
            s.push_str("  <NO_OTHER_FAILURES>\n");
        }
        for (number, exit) in exits.iter().enumerate().skip(1) {
            self.row(&mut s, number, *exit);
        }
        let _ = writeln!(s, "{}\nRoot Cause (first observed failure):", "-".repeat(rule));
        self.row(&mut s, 0, first);
        let _ = writeln!(s, "{}", "=".repeat(rule));
        s
    }

    fn row(&self, s: &mut String, number: usize, exit: LauncherExit) {
        let info = self.scene.job.info(exit.rank);
        let host = if self.scene.job.nodes.len() == 1 { "localhost" } else { &self.node.host };
        let what = match exit.code {
            -6 => format!("Signal 6 (SIGABRT) received by PID {}", info.pid),
            -9 => format!("Signal 9 (SIGKILL) received by PID {}", info.pid),
            -11 => format!("Signal 11 (SIGSEGV) received by PID {}", info.pid),
            -15 => format!("Signal 15 (SIGTERM) received by PID {}", info.pid),
            _ => "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html".to_owned(),
        };
        let _ = writeln!(
            s,
            "[{number}]:\n  time      : {}\n  host      : {host}\n  rank      : {} (local_rank: {})\n  exitcode  : {} (pid: {})\n  error_file: <N/A>\n  traceback : {what}",
            stamp(self.scene.wall(exit.rank, exit.at_ns)).launcher(),
            exit.rank,
            info.local,
            exit.code,
            info.pid
        );
    }

    /// The ranks that started give up: rank 0 counts the clients, the others wait for a key that nobody sets.
    fn never_began(&mut self) {
        let scene = self.scene;
        let job = scene.job;
        let missing = scene.plant.rank;
        let timeout_ms = job.timeout_ms;
        let mut prng = scene.prng.fork(70 + u64::from(self.node.first));
        let sp = job.places.packages.clone();
        let script = job.places.script.clone();
        let main = job.places.names.main;
        for rank in self.ranks().filter(|r| *r != missing) {
            let mut at = i64::from(timeout_ms) * 1_000_000 + prng.below(900_000_000) as i64;
            let head = format!(
                "Traceback (most recent call last):\n  File \"{script}\", line 411, in <module>\n    {main}()\n  File \"{script}\", line 395, in {main}\n    \
                 dist.init_process_group(\"nccl\", timeout=TIMEOUT)\n  File \"{sp}torch/distributed/c10d_logger.py\", line 83, in wrapper\n    return func(*args, **kwargs)\n           ^^^^^^^^^^^^^^^^^^^^^\n"
            );
            let text = if rank == 0 {
                at += 1_000_000_000;
                format!(
                    "{head}  File \"{sp}torch/distributed/distributed_c10d.py\", line 1831, in init_process_group\n    store, rank, world_size = next(rendezvous_iterator)\n\
                     \x20 File \"{sp}torch/distributed/rendezvous.py\", line 199, in _create_c10d_store\n    return TCPStore(\n           ^^^^^^^^^\n\
                     torch.distributed.DistStoreError: Timed out after {} seconds waiting for clients. {}/{} clients joined.\n",
                    timeout_ms / 1_000 + 1,
                    job.n - 1,
                    job.n
                )
            } else if missing == 0 {
                // Nothing listens: rank 0 hosts the store.
                format!(
                    "{head}  File \"{sp}torch/distributed/rendezvous.py\", line 199, in _create_c10d_store\n    return TCPStore(\n           ^^^^^^^^^\n\
                     torch.distributed.DistNetworkError: The client socket has timed out after {timeout_ms}ms while trying to connect to ({}, 29500).\n",
                    job.nodes[0].addr
                )
            } else {
                format!(
                    "{head}  File \"{sp}torch/distributed/distributed_c10d.py\", line 2253, in _new_process_group_helper\n    eager_backend.eager_connect_single_device(device_id)\n\
                     torch.distributed.DistBackendError: [{rank}] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: \
                     wait timeout after {timeout_ms}ms, keys: /default_pg/0//cuda//0\n\
                     Exception raised from doWait at /pytorch/torch/csrc/distributed/c10d/TCPStore.cpp:603 (most recent call first):\n\
                     frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x9d (0x7f419eb7305d in {sp}torch/lib/libc10.so)\n\
                     . This may indicate a possible application crash on rank 0 or a network set up issue.\n"
                )
            };
            self.push(at, text);
        }
    }
}
