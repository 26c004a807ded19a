//! Jobs made by hand for the tests of rules on collective logic and processes.
//!
//! What a rank called is written as a script, one word per call: `ar:100` is an all-reduce of 100 elements that
//! finished, `ar:100?` one that did not, `dp/ag:8:Half@90?` an unfinished all-gather of halves on the group `dp`, called
//! from line 90, `ar:4@main.90` one called from the function `main`, `send>1:8` and `recv<0:8` messages to and from
//! group ranks, `ar:100*20` twenty calls alike, `ar:10x10` a tensor of that shape. Rank `r` is process `100 + r` throughout.

use std::sync::Arc;

use ringleader_model::{
    Fact, FlightDump, FlightGroup, FlightOp, Frame, GpuRow, GpuTable, GroupLabel, GroupRank, Host, LocalRank,
    NcclCall, NcclLog, OpKind, OpState, Pid, ProcessRow, ProcessStacks, ProcessTable, Rank, RasComm, RasPeer,
    RasRank, RasReport, SampledStack, Signature, SourceKind, StackSamples, ThreadStack, TorchEvent, Who,
    WorkDescription,
};

use crate::staging::{SampledAt, StagedCase};

/// Enqueue of the first call, ns since 1970.
pub const START_NS: i64 = 1_763_000_000_000_000_000;
/// From one enqueue to the next, ns.
pub const STEP_NS: i64 = 10_000_000;
/// Hash of the communicator of the whole job, the same in logs and RAS.
pub const WORLD: u64 = 0xc0de;

/// Process of a rank.
fn pid(rank: u32) -> Pid {
    Pid(100 + rank)
}

/// One word of a script.
#[derive(Clone, Debug)]
pub(crate) struct ScriptCall {
    pub(crate) group: String,
    pub(crate) kind: OpKind,
    pub(crate) peer: u32,
    shape: Vec<u64>,
    pub(crate) dtype: String,
    place: (String, u32),
    pub(crate) open: bool,
    /// Its kernel has not started (rings only).
    pub(crate) is_waiting: bool,
    pub(crate) times: u32,
}

/// Reads a script; see the module's description.
pub(crate) fn words(script: &str) -> Vec<ScriptCall> {
    script.split_whitespace().map(|w| word(w).unwrap_or_else(|| panic!("no call: {w}"))).collect()
}

fn word(text: &str) -> Option<ScriptCall> {
    let (text, times) = text.split_once('*').map_or((text, "1"), |(w, n)| (w, n));
    let (text, is_waiting) = text.strip_suffix('!').map_or((text, false), |w| (w, true));
    let (text, open) = text.strip_suffix('?').map_or((text, is_waiting), |w| (w, true));
    let (text, place) = text.split_once('@').map_or((text, "10"), |(w, p)| (w, p));
    let (function, line) = place.split_once('.').map_or(("step", place), |(f, l)| (f, l));
    let (group, text) = text.split_once('/').map_or(("default_pg", text), |(g, w)| (g, w));
    let mut parts = text.split(':');
    let (name, peer) = parts.next().map(|n| n.split_once(['>', '<']).unwrap_or((n, "0")))?;
    let shape = parts.next()?.split('x').map(str::parse).collect::<Result<_, _>>().ok()?;
    let kind = match name {
        "ar" => OpKind::AllReduce,
        "ag" => OpKind::AllGather,
        "rs" => OpKind::ReduceScatter,
        "bc" => OpKind::Broadcast,
        "rd" => OpKind::Reduce,
        "ga" => OpKind::Gather,
        "aa" => OpKind::AllToAll,
        "send" => OpKind::Send,
        "recv" => OpKind::Recv,
        _ => return None,
    };
    Some(ScriptCall {
        group: group.to_owned(),
        kind,
        peer: peer.parse().ok()?,
        shape,
        dtype: parts.next().unwrap_or("Float").to_owned(),
        place: (function.to_owned(), line.parse().ok()?),
        open,
        is_waiting,
        times: times.parse().ok()?,
    })
}

impl ScriptCall {
    pub(crate) fn elements(&self) -> u64 {
        self.shape.iter().product()
    }
}

pub(crate) fn index_of<T: PartialEq>(table: &mut Vec<T>, item: T) -> u32 {
    let at = table.iter().position(|t| *t == item).unwrap_or_else(|| {
        table.push(item);
        table.len() - 1
    });
    at as u32
}

fn numbers(counts: &str) -> Vec<(OpKind, u64)> {
    words(counts).into_iter().map(|w| (w.kind, w.elements())).collect()
}

impl StagedCase {
    /// A process group; the first one is torch's default group.
    pub fn group(mut self, name: &str, ranks: impl IntoIterator<Item = u32>) -> Self {
        let id = self.groups.len().to_string();
        self.groups.push(FlightGroup {
            id: id.as_str().into(),
            name: id.into(),
            desc: name.into(),
            ranks: ranks.into_iter().map(Rank).collect(),
            ..FlightGroup::default()
        });
        self
    }

    /// A job with this many ranks: its default group.
    pub fn job(n_ranks: u32) -> Self {
        Self::new().group("default_pg", 0..n_ranks)
    }

    /// The NCCL log of a rank whose communicator of the whole job is up, and of the calls it made on it. The host's
    /// last digit is also that of its address.
    pub fn log(mut self, rank: u32, host: &str, script: &str) -> Self {
        let n_ranks = self.groups.first().map_or(0, |g| g.ranks.len()) as u32;
        let node = host.trim_start_matches(|c: char| !c.is_ascii_digit());
        self = self.process(host, pid(rank).0, None).comm(rank, n_ranks, rank as u8 + 1, true);
        self = self.about(|p| p.bootstrap = Some(format!("eth0:10.0.0.{node}<0>").into()));
        for word in words(script) {
            for _ in 0..word.times {
                self = self.change_log(|log, line| {
                    log.calls.push(NcclCall {
                        count: word.elements(),
                        offset: u64::from(line) * 100,
                        op_count: 0,
                        at_s: 0,
                        comm: 0,
                        line,
                        root: if word.kind.is_p2p() { word.peer as i32 } else { 0 },
                        kind: word.kind,
                        datatype: if word.dtype == "Half" { 6 } else { 7 },
                        redop: 0,
                    });
                });
            }
        }
        self
    }

    /// Changes the last NCCL log.
    pub fn change_log(mut self, change: impl FnOnce(&mut NcclLog, u32)) -> Self {
        let last = self.case.observations.iter_mut().rev().find_map(|o| match &mut o.fact {
            Fact::Nccl(log) => Some(log),
            _ => None,
        });
        if let Some(log) = last {
            let line = log.calls.len() as u32 + 10;
            change(log, line);
        }
        self
    }

    /// Logs of all ranks, on one node, with communicators up and no calls: they tie ranks to processes.
    pub fn logs(self) -> Self {
        let n_ranks = self.groups.first().map_or(0, |g| g.ranks.len()) as u32;
        (0..n_ranks).fold(self, |stage, rank| stage.log(rank, "node1", ""))
    }

    /// The Flight Recorder dump of a rank.
    pub fn dump(self, rank: u32, script: &str) -> Self {
        self.timed_dump(rank, script, |nth| (i64::from(nth) * STEP_NS, STEP_NS / 10))
    }

    /// The same with times: for the n-th call, ns from the start to its enqueue and from there to its end.
    pub fn timed_dump(self, rank: u32, script: &str, time: impl Fn(u32) -> (i64, i64)) -> Self {
        let groups: Vec<FlightGroup> =
            self.groups.iter().filter(|g| g.ranks.contains(&Rank(rank))).cloned().collect();
        let mut dump = FlightDump { name_hint: Some(Rank(rank)), ..FlightDump::default() };
        let mut numbers = vec![(0_u32, 0_u32); groups.len()];
        for word in words(script) {
            let group = groups.iter().position(|g| *g.desc == *word.group);
            let group = group.unwrap_or_else(|| panic!("rank {rank} is not in {}", word.group));
            let p2p = word.kind.is_p2p();
            let me = groups[group].ranks.iter().position(|r| r.0 == rank).map(|at| GroupRank(at as u32));
            let sizes: Box<[Box<[u64]>]> = [word.shape.as_slice().into()].into();
            let dtypes: Box<[Box<str>]> = [word.dtype.as_str().into()].into();
            let signature = Signature {
                kind: word.kind,
                name: "".into(),
                peer: p2p.then_some(GroupRank(word.peer)),
                me: me.filter(|_| p2p),
                input_sizes: sizes.clone(),
                output_sizes: sizes,
                input_dtypes: dtypes.clone(),
                output_dtypes: dtypes,
            };
            let signature = index_of(Arc::make_mut(&mut dump.signatures), signature);
            let (function, line) = &word.place;
            let frame =
                Frame { function: function.as_str().into(), file: "/srv/train.py".into(), line: *line };
            let frame = index_of(Arc::make_mut(&mut dump.frames), frame);
            let stack = index_of(Arc::make_mut(&mut dump.stacks), [frame].into());
            for _ in 0..word.times {
                let (seq, p2p_seq) = &mut numbers[group];
                *(if p2p { &mut *p2p_seq } else { &mut *seq }) += 1;
                let nth = dump.ops.len() as u32;
                let (after, took) = time(nth);
                let created_ns = START_NS + self.shift_ns + after;
                dump.ops.push(FlightOp {
                    created_ns,
                    started_ns: 0,
                    completed_ns: if word.open { 0 } else { created_ns + took },
                    seq: *seq,
                    p2p_seq: *p2p_seq,
                    record_id: nth,
                    signature,
                    stack,
                    timeout_ms: 600_000,
                    duration_us: 0,
                    group: group as u16,
                    state: if word.open { OpState::Scheduled } else { OpState::Completed },
                    flags: if p2p { FlightOp::P2P } else { 0 },
                });
            }
        }
        dump.groups = groups;
        self.push(SourceKind::FlightRecorder, Who::default(), Fact::Flight(Box::new(dump)))
    }

    /// Dumps of ranks 0, 1, …, one script each.
    pub fn dumps(self, scripts: &[&str]) -> Self {
        scripts.iter().enumerate().fold(self, |stage, (rank, script)| stage.dump(rank as u32, script))
    }

    /// A RAS report on the communicator of the whole job, of processes on one node: each rank's counts (`ar:5 bc:1`),
    /// or `-` for a process that did not answer.
    pub fn ras(self, counts: &[&str]) -> Self {
        let nodes = vec![1; counts.len()];
        self.ras_of(counts, &nodes)
    }

    /// The same with each rank's node.
    pub fn ras_of(self, counts: &[&str], nodes: &[u32]) -> Self {
        let mut comm =
            RasComm { hash: WORLD, size: counts.len() as u32, listed_all: true, ..RasComm::default() };
        for ((rank, counts), node) in (0..).zip(counts).zip(nodes) {
            let peer = RasPeer {
                rank: Some(GroupRank(rank)),
                host: Some(Host::from(format!("10.0.0.{node}"))),
                pid: Some(pid(rank)),
                unresponsive: *counts == "-",
                ..RasPeer::default()
            };
            if peer.unresponsive {
                comm.missing.push(peer);
            } else {
                comm.ranks.push(RasRank { peer, counts: numbers(counts), ..RasRank::default() });
            }
        }
        let report = RasReport { comms: vec![comm], ..RasReport::default() };
        self.push(SourceKind::Ras, Who::default(), Fact::Ras(Box::new(report)))
    }

    /// The watchdog of a rank in the default group: what timed out (`ar:100`), its number, and the last one enqueued.
    pub fn timed_out(self, rank: u32, call: &str, seq: u32, last_enqueued: u32) -> Self {
        let group =
            GroupLabel { id: Some("0".into()), guid: Some("0".into()), desc: Some("default_pg".into()) };
        let word = words(call).remove(0);
        let work = WorkDescription {
            seq: Some(u64::from(seq)),
            kind: word.kind,
            numel_in: Some(word.elements()),
            numel_out: Some(word.elements()),
            timeout_ms: Some(600_000),
        };
        let position = TorchEvent::WatchdogPosition {
            seq: Some(u64::from(seq)),
            last_enqueued: i64::from(last_enqueued),
            last_completed: i64::from(seq) - 1,
            group: group.clone(),
        };
        let timeout = TorchEvent::WatchdogTimeout { work, ran_ms: 600_050, group };
        self.torch(Some(rank), timeout, "Watchdog caught collective operation timeout").torch(
            Some(rank),
            position,
            "failure detected by watchdog",
        )
    }

    /// A row of torchrun's table of failures.
    pub fn failed(self, rank: u32, exit_code: i64, is_root: bool) -> Self {
        let event = TorchEvent::ChildFailure { is_root, exit_code, time: None, host: None, message: None };
        let text = format!("rank: {rank} exitcode: {exit_code} (pid: {})", pid(rank).0);
        let mut stage = self.torch(Some(rank), event, &text);
        if let Some(row) = stage.case.observations.last_mut() {
            row.who.local_rank = Some(LocalRank(rank));
            row.who.pid = Some(pid(rank));
        }
        stage
    }

    /// A process list: each rank's state (`S`, `R`, `T`, `D:kernel_function`, `Z=exit_code`), or `-` for one that is not in it.
    pub fn ps(self, states: &str) -> Self {
        let row = |(rank, word): (u32, &str)| {
            let (state, wchan) = word.split_once(':').unwrap_or((word, ""));
            let (state, exit_code) = state.split_once('=').unwrap_or((state, ""));
            (state != "-").then(|| ProcessRow {
                line: rank + 2,
                pid: Some(pid(rank)),
                state: state.into(),
                exit_code: exit_code.parse().ok(),
                wchan: wchan.into(),
                command: "python train.py".into(),
                ..ProcessRow::default()
            })
        };
        let rows = (0..).zip(states.split_whitespace()).filter_map(row).collect();
        self.push(
            SourceKind::Processes,
            Who::default(),
            Fact::Processes(Box::new(ProcessTable { rows, ..ProcessTable::default() })),
        )
    }

    /// What py-spy saw of a rank's main thread: `(file, line, function)`, innermost first.
    pub fn stands(self, rank: u32, frames: &[(&str, u32, &str)]) -> Self {
        self.threads(rank, &[frames])
    }

    /// Stacks of several threads of a rank, the main thread first.
    pub fn threads(self, rank: u32, threads: &[&[(&str, u32, &str)]]) -> Self {
        let threads = threads.iter().enumerate().map(|(at, frames)| ThreadStack {
            name: (at == 0).then(|| "MainThread".into()),
            frames: threads_frames(frames),
            ..ThreadStack::default()
        });
        let stacks =
            ProcessStacks { pid: Some(pid(rank)), threads: threads.collect(), ..ProcessStacks::default() };
        self.push(SourceKind::Stacks, Who::default(), Fact::Stacks(Box::new(stacks)))
    }

    /// Samples of a rank's main thread: in how many it stood where, `(file, line, function)`, innermost first.
    pub fn sampled(self, rank: u32, stacks: &[SampledAt<'_>]) -> Self {
        let stacks = stacks.iter().map(|(n, frames)| SampledStack { n: *n, frames: threads_frames(frames) });
        let samples = StackSamples { pid: Some(pid(rank)), stacks: stacks.collect() };
        self.push(SourceKind::Stacks, Who::rank(rank), Fact::Samples(Box::new(samples)))
    }

    /// A native crash report of faulthandler.
    pub fn crashed(self, rank: Option<u32>, reason: &str, frames: &[(&str, u32, &str)]) -> Self {
        let thread = ThreadStack { current: true, frames: threads_frames(frames), ..ThreadStack::default() };
        let event = TorchEvent::Crash { reason: reason.into(), signal: None, threads: vec![thread] };
        self.torch(rank, event, &format!("Fatal Python error: {reason}"))
    }

    /// nvidia-smi while the job hangs: each rank's power, W.
    pub fn powers(self, watts: &[f32]) -> Self {
        let gpus = (0..).zip(watts).map(|(index, power)| GpuRow {
            line: 10 + 4 * index,
            index: Some(index),
            power_w: Some(*power),
            utilization_pct: Some(100.0),
            ..GpuRow::default()
        });
        let processes = (0..watts.len() as u32).map(|index| (index, pid(index))).collect();
        let table = GpuTable { gpus: gpus.collect(), processes, ..GpuTable::default() };
        self.push(SourceKind::NvidiaSmi, Who::default(), Fact::Gpus(Box::new(table)))
    }
}

fn threads_frames(frames: &[(&str, u32, &str)]) -> Vec<Frame> {
    let frame = |(file, line, function): &(&str, u32, &str)| Frame {
        function: (*function).into(),
        file: (*file).into(),
        line: *line,
    };
    frames.iter().map(frame).collect()
}
