//! Scripted rings, for cases whose states are chosen individually: the calls of a rank, one word per call.
//!
//! `AllReduce:4096*40` means forty all-reduces of 4,096 floats that ended, `AllReduce:8:ncclFloat16` one of 8 halves. A
//! word with `?` is in flight and its kernel runs; with `!` its kernel has not started; with `~` NCCL has not passed it
//! to the GPU yet. `dp/` before a word names the communicator (the default is the first one), `Send>2:8` and `Recv<1:8`
//! are messages to and from ranks of it.

use ringleader_ring::{CallArgs, Comm, Done, Op, Phase, ReadMoment, RingProcess, State, Wait};

/// Wall clock at which the nodes of these jobs had been up for [`UP_NS`], ns since 1970.
const UP_AT_NS: u64 = 1_795_000_000_000_000_000;
/// Monotonic clock at the job's first call, ns.
const UP_NS: u64 = 5_000_000_000_000;

/// A job from which rings are written.
#[derive(Clone, Debug)]
pub struct RingJob {
    /// Host of each rank.
    pub hosts: Vec<String>,
    /// Communicators: name and members in group-rank order.
    pub comms: Vec<(String, Vec<u32>)>,
    /// Time from one call to the next, ns.
    pub period_ns: u64,
    /// Script of each rank.
    pub scripts: Vec<String>,
    /// Milliseconds from the job's last call to the reading.
    pub read_after_ms: u64,
    /// State of each process when its ring was read.
    pub ends: Vec<RingEnd>,
    /// What the proxies of a rank's last call wait for: rank, peer, channel, phase.
    pub waits: Vec<(u32, u32, u8, Phase)>,
    /// Microseconds by which a rank enters each call late because its GPU is busy; others wait for it.
    pub late_us: Vec<u64>,
    /// Calls after which the job pauses, and the length of the pause, ms.
    pub pauses: Vec<(usize, u64)>,
}

/// State of a process when its ring was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingEnd {
    /// An image of a live process.
    Lives,
    /// The file left by a process that did not end in order.
    Gone,
    /// The file left by a process that had closed its communicators.
    Ended,
}

/// One word of a script.
struct ScriptedCall {
    comm: usize,
    function: String,
    peer: Option<u32>,
    count: u64,
    datatype: String,
    times: usize,
    stage: CallStage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CallStage {
    Entered,
    Launched,
    Started,
    Ended,
}

impl RingJob {
    /// A job with one rank per script on one node, one communicator, ten calls per second, read a minute after its last
    /// call.
    pub fn new(scripts: &[&str]) -> Self {
        let n = scripts.len() as u32;
        Self {
            hosts: vec!["node1".to_owned(); scripts.len()],
            comms: vec![("default_pg".to_owned(), (0..n).collect())],
            period_ns: 100_000_000,
            scripts: scripts.iter().map(|s| (*s).to_owned()).collect(),
            read_after_ms: 60_000,
            ends: vec![RingEnd::Lives; scripts.len()],
            waits: Vec::new(),
            late_us: vec![0; scripts.len()],
            pauses: Vec::new(),
        }
    }

    /// Pid of a rank's process.
    pub fn pid(rank: usize) -> u32 {
        4200 + rank as u32
    }

    /// Name and bytes of each rank's ring.
    pub fn files(&self) -> Vec<(String, Vec<u8>)> {
        let newest = (0..self.scripts.len()).map(|rank| self.last_ns(rank)).max().unwrap_or(UP_NS);
        let of_rank = |rank: usize| {
            let end = self.ends.get(rank).copied().unwrap_or(RingEnd::Lives);
            let state = self.state(rank, newest + self.read_after_ms * 1_000_000, end);
            let name = format!("ring-{}-{}", Self::pid(rank), state.process.start_ticks);
            (name, state.to_bytes((end == RingEnd::Lives).then_some(true)))
        };
        (0..self.scripts.len()).map(of_rank).collect()
    }

    fn words(&self, rank: usize) -> Vec<ScriptedCall> {
        let script = self.scripts.get(rank).map_or("", String::as_str);
        script.split_whitespace().filter_map(|word| self.word(word)).collect()
    }

    fn word(&self, text: &str) -> Option<ScriptedCall> {
        let (text, stage) = match text.as_bytes().last()? {
            b'?' => (text.strip_suffix('?')?, CallStage::Started),
            b'!' => (text.strip_suffix('!')?, CallStage::Launched),
            b'~' => (text.strip_suffix('~')?, CallStage::Entered),
            _ => (text, CallStage::Ended),
        };
        let (text, times) =
            text.split_once('*').map_or(Some((text, 1)), |(w, n)| Some((w, n.parse().ok()?)))?;
        let (comm, text) = match text.split_once('/') {
            Some((name, rest)) => (self.comms.iter().position(|(known, _)| known == name)?, rest),
            None => (0, text),
        };
        let (what, size) = text.split_once(':')?;
        let (count, datatype) = size.split_once(':').unwrap_or((size, "ncclFloat32"));
        let (function, peer) = match what.split_once(['>', '<']) {
            Some((function, peer)) => (function, Some(peer.parse().ok()?)),
            None => (what, None),
        };
        let (function, datatype) = (function.to_owned(), datatype.to_owned());
        Some(ScriptedCall { comm, function, peer, count: count.parse().ok()?, datatype, times, stage })
    }

    /// Time of the n-th call of a rank.
    fn due_ns(&self, nth: usize) -> u64 {
        let paused: u64 =
            self.pauses.iter().filter(|(after, _)| nth > *after).map(|(_, ms)| ms * 1_000_000).sum();
        UP_NS + nth as u64 * self.period_ns + paused
    }

    fn last_ns(&self, rank: usize) -> u64 {
        let n = self.words(rank).iter().map(|w| w.times).sum::<usize>();
        self.due_ns(n.saturating_sub(1))
    }

    fn state(&self, rank: usize, read_ns: u64, end: RingEnd) -> State {
        let host = self.hosts.get(rank).cloned().unwrap_or_default();
        let boot = self.hosts.iter().position(|h| *h == host).unwrap_or(0);
        let world = self.scripts.len() as u32;
        let mut state = State {
            process: RingProcess {
                pid: Self::pid(rank),
                start_ticks: 499_000 + rank as u64,
                boot_id: format!("{:032x}", 0xb007_0000 + boot),
                host,
                rank: Some(rank as u32),
                local_rank: Some(rank as u32),
                world_size: Some(world),
                interface: 5,
                is_ended: end == RingEnd::Ended,
                kernels_ended_ns: None,
                exit: None,
            },
            taken: ReadMoment {
                mono_ns: read_ns,
                unix_ns: UP_AT_NS - UP_NS + read_ns,
                is_held: (end == RingEnd::Lives).then_some(true),
            },
            ..State::default()
        };
        let mut slots = vec![usize::MAX; self.comms.len()];
        for (at, (name, members)) in self.comms.iter().enumerate() {
            let Some(me) = members.iter().position(|m| *m == rank as u32) else { continue };
            if let Some(slot) = slots.get_mut(at) {
                *slot = state.comms.len();
            }
            state.comms.push(Comm {
                slot: state.comms.len() as u32,
                id: 0x51de_0000_0000_c0de + at as u64,
                name: name.clone(),
                size: members.len() as u32,
                rank: Some(me as u32),
                nodes: 1,
                created_ns: UP_NS - 2_000_000_000,
                progress_ns: UP_NS - 2_000_000_000,
                ..Comm::default()
            });
        }
        let mut nth = 0;
        for word in self.words(rank) {
            let Some(slot) = slots.get(word.comm).copied().filter(|s| *s < state.comms.len()) else {
                continue;
            };
            for _ in 0..word.times {
                self.call(&mut state, rank, slot, &word, nth);
                nth += 1;
            }
        }
        for comm in &mut state.comms {
            comm.ended_ns = (end == RingEnd::Ended).then_some(comm.progress_ns + 1_000_000);
        }
        self.add_waits(&mut state, rank);
        state
    }

    fn call(&self, state: &mut State, rank: usize, slot: usize, word: &ScriptedCall, nth: usize) {
        let due = self.due_ns(nth);
        let late = |r: usize| self.late_us.get(r).copied().unwrap_or(0) * 1_000;
        let worst = (0..self.scripts.len()).map(late).max().unwrap_or(0);
        let comm = &mut state.comms[slot];
        let (count, n_done) = if word.peer.is_some() {
            (&mut comm.p2p, &mut comm.p2p_done)
        } else {
            (&mut comm.collectives, &mut comm.collectives_done)
        };
        let number = *count;
        *count += 1;
        let call = CallArgs {
            function: word.function.clone(),
            sequence: Some(number),
            count: word.count,
            datatype: word.datatype.clone(),
            root: matches!(word.function.as_str(), "Broadcast" | "Reduce").then_some(0),
            peer: word.peer,
            algorithm: "RING".to_owned(),
            protocol: "SIMPLE".to_owned(),
            channels: 2,
            is_captured: false,
        };
        // Called ahead of time, as programs do while their GPU is busy.
        let started = due + 4_000_000 + late(rank);
        let ended = due + 4_600_000 + worst;
        if word.stage == CallStage::Ended {
            *n_done += 1;
            comm.progress_ns = comm.progress_ns.max(ended);
            state.recent.push(Done {
                comm: slot as u32,
                number,
                call,
                enqueued_ns: due,
                started_ns: started,
                ended_ns: ended,
                gpu_ns: Some(ended - started),
                gpu_started_ns: Some(started),
                longest_wait: None,
                is_p2p: word.peer.is_some(),
                is_end_seen: true,
            });
            return;
        }
        let has_started = word.stage == CallStage::Started;
        comm.progress_ns = comm.progress_ns.max(if has_started { started } else { due + 9_000 });
        comm.in_flight.push(Op {
            number,
            channels_started: if has_started { call.channels } else { 0 },
            open_channels: if has_started { 0b11 } else { 0 },
            call,
            enqueued_ns: due,
            handed_over_ns: Some(due + 9_000),
            started_ns: has_started.then_some(started),
            is_end_visible: true,
            is_p2p: word.peer.is_some(),
            is_launched: word.stage != CallStage::Entered,
            ..Op::default()
        });
    }

    fn add_waits(&self, state: &mut State, rank: usize) {
        let Some(op) = state.comms.iter_mut().flat_map(|c| &mut c.in_flight).last() else { return };
        for (_, peer, channel, phase) in self.waits.iter().filter(|(r, ..)| *r as usize == rank) {
            op.waits.push(Wait {
                peer: *peer,
                channel: *channel,
                is_send: matches!(phase, Phase::SendGpu | Phase::SendPeer | Phase::SendNet),
                phase: *phase,
                since_ns: op.enqueued_ns + 5_000_000,
                steps_done: 6,
                steps: 64,
                net_open: 0,
            });
        }
    }
}
