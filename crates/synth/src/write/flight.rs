//! Flight Recorder dumps as torch 2.11 writes them (format 2.10, pickle protocol 2): key order, opcodes and memo use of
//! real dumps. BINPUT follows only strings and frame dicts; lists and tuples are never memoised.

use std::collections::BTreeMap;

use super::WriteContext;
use super::expected::ExpectedOp;
use crate::job::CallKind;
use crate::places::PlaceId;
use crate::sim::Made;

/// Writes pickle.
#[derive(Default)]
struct Pickle {
    out: Vec<u8>,
    strings: BTreeMap<String, u32>,
    frames: BTreeMap<(u16, usize), u32>,
    by_frame: BTreeMap<(String, String, u32), u32>,
    n_memo: u32,
}

impl Pickle {
    fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    fn int(&mut self, n: i64) {
        if let Ok(byte) = u8::try_from(n) {
            self.raw(&[b'K', byte]);
        } else if let Ok(short) = u16::try_from(n) {
            self.raw(b"M");
            self.raw(&short.to_le_bytes());
        } else if let Ok(int) = i32::try_from(n) {
            self.raw(b"J");
            self.raw(&int.to_le_bytes());
        } else {
            self.raw(b"\x8a\x08");
            self.raw(&n.to_le_bytes());
        }
    }

    fn put(&mut self) -> u32 {
        let index = self.n_memo;
        self.n_memo += 1;
        if let Ok(byte) = u8::try_from(index) {
            self.raw(&[b'q', byte]);
        } else {
            self.raw(b"r");
            self.raw(&index.to_le_bytes());
        }
        index
    }

    fn get(&mut self, index: u32) {
        if let Ok(byte) = u8::try_from(index) {
            self.raw(&[b'h', byte]);
        } else {
            self.raw(b"j");
            self.raw(&index.to_le_bytes());
        }
    }

    fn str(&mut self, text: &str) {
        if let Some(index) = self.strings.get(text) {
            return self.get(*index);
        }
        self.raw(b"X");
        self.raw(&(text.len() as u32).to_le_bytes());
        self.raw(text.as_bytes());
        let index = self.put();
        self.strings.insert(text.to_owned(), index);
    }

    fn key_int(&mut self, key: &str, n: i64) {
        self.str(key);
        self.int(n);
    }

    fn key_str(&mut self, key: &str, text: &str) {
        self.str(key);
        self.str(text);
    }

    fn frame(&mut self, scene: &WriteContext<'_>, place: PlaceId, at: usize) {
        if let Some(index) = self.frames.get(&(place.0, at)) {
            return self.get(*index);
        }
        let frame = &scene.job.places.stack(place)[at];
        let key = (frame.function.clone(), frame.file.clone(), frame.line);
        if let Some(index) = self.by_frame.get(&key).copied() {
            self.frames.insert((place.0, at), index);
            return self.get(index);
        }
        self.raw(b"}(");
        self.key_str("name", &frame.function);
        self.key_str("filename", &frame.file);
        self.key_int("line", i64::from(frame.line));
        self.raw(b"u");
        let index = self.put();
        self.frames.insert((place.0, at), index);
        self.by_frame.insert(key, index);
    }

    fn shape(&mut self, shape: &[u64]) {
        self.raw(b"](](");
        for n in shape {
            self.int(*n as i64);
        }
        self.raw(b"ee");
    }
}

/// `profiling_name` without `nccl:`.
pub(crate) fn profiling_name(kind: CallKind, me: u32, peer: u32) -> String {
    match kind {
        CallKind::AllReduce => "all_reduce".into(),
        CallKind::AllGather => "_all_gather_base".into(),
        CallKind::ReduceScatter => "_reduce_scatter_base".into(),
        CallKind::Broadcast => "broadcast".into(),
        CallKind::Reduce => "reduce".into(),
        CallKind::Barrier => "all_reduce_barrier".into(),
        CallKind::Send => format!("send {me}->{peer}"),
        CallKind::Recv => format!("recv {me}<-{peer}"),
    }
}

/// The sequence number that torch's watchdog prints for a call: point-to-point calls have their own counter.
pub(crate) fn work_seq(made: &Made) -> u32 {
    if made.peer.is_some() { made.p2p_seq } else { made.coll_seq }
}

/// Writes the dump of `rank`.
pub(crate) fn dump(scene: &WriteContext<'_>, rank: u32) -> (Vec<u8>, Vec<ExpectedOp>) {
    let job = scene.job;
    let made = &scene.run.ranks[rank as usize].made;
    let dumped_ns = scene.line.dumped[rank as usize].unwrap_or(0);
    let healthy = !scene.run.hangs();
    let mut prng = scene.prng.fork(10_000 + u64::from(rank));
    let poll_phase = prng.below(100_000_000) as i64;
    // The watchdog retires ended work when it polls; dumps through the pipe often come before that.
    let retired_until =
        if healthy { dumped_ns - 400_000_000 + prng.below(300_000_000) as i64 } else { i64::MAX };
    let dump = Dump { scene, rank, dumped_ns, poll_phase, retired_until };
    let mut p = Pickle::default();
    p.raw(b"\x80\x02}(");
    p.key_str("version", "2.10");
    dump.groups(&mut p, made);
    p.str("entries");
    p.raw(b"](");
    let mut expected = Vec::new();
    let skip = made.len().saturating_sub(job.ring);
    let mut op_ids: BTreeMap<u16, i64> = BTreeMap::new();
    for (record, m) in made.iter().enumerate() {
        let op_id = op_ids.entry(m.group).or_default();
        *op_id += 1;
        if record >= skip {
            expected.push(dump.entry(&mut p, record, *op_id, m));
        }
    }
    p.raw(b"eu.");
    (p.out, expected)
}

/// The dump of one rank while it is written.
struct Dump<'a> {
    scene: &'a WriteContext<'a>,
    rank: u32,
    dumped_ns: i64,
    /// Phase of the watchdog's polls within a tenth of a second, ns.
    poll_phase: i64,
    /// Work that ended before this is retired.
    retired_until: i64,
}

impl Dump<'_> {
    fn local_id(&self, group: u16) -> i64 {
        let groups = &self.scene.job.groups_of[self.rank as usize];
        groups.iter().position(|g| *g == group).unwrap_or(0) as i64
    }

    /// The groups of the rank, and the progress of each.
    fn groups(&self, p: &mut Pickle, made: &[Made]) {
        let job = self.scene.job;
        let mut groups: Vec<u16> = job.groups_of[self.rank as usize].clone();
        p.str("pg_config");
        p.raw(b"}(");
        // A std::map sorted by name: "10" is before "2".
        groups.sort_by(|a, b| job.group(*a).name.cmp(&job.group(*b).name));
        for group in &groups {
            let group = job.group(*group);
            p.str(&group.name);
            p.raw(b"}(");
            p.key_str("name", &group.name);
            p.key_str("desc", group.desc);
            let ranks: Vec<String> = group.ranks.iter().map(ToString::to_string).collect();
            p.key_str("ranks", &format!("[{}]", ranks.join(", ")));
            p.raw(b"u");
        }
        p.raw(b"u");
        p.key_str("comm_lib_version", "2.28.9");
        p.str("pg_status");
        p.raw(b"}(");
        for group in &job.groups_of[self.rank as usize] {
            let last = |done: bool| {
                let of = made.iter().filter(|m| {
                    m.group == *group && (!done || m.done_ns.is_some_and(|d| d < self.retired_until))
                });
                of.map(|m| i64::from(work_seq(m))).next_back().unwrap_or(-1)
            };
            p.str(&self.local_id(*group).to_string());
            p.raw(b"}(");
            p.key_int("last_enqueued_collective", last(false));
            p.key_int("last_started_collective", -1);
            p.key_int("last_completed_collective", last(true));
            p.raw(b"u");
        }
        p.raw(b"u");
    }

    /// Writes one entry: the `record`-th call of the rank and the `op_id`-th of its group.
    fn entry(&self, p: &mut Pickle, record: usize, op_id: i64, m: &Made) -> ExpectedOp {
        let job = self.scene.job;
        let info = job.info(self.rank);
        let call = &job.calls[usize::from(m.call)];
        let group = job.group(m.group);
        let me = group.rank_of(self.rank).unwrap_or(0);
        let name = profiling_name(call.kind, me, u32::from(m.peer.unwrap_or(0)));
        let stack = job.places.stack(m.place);
        p.raw(b"}(");
        p.str("frames");
        p.raw(b"](");
        for at in 0..stack.len() {
            p.frame(self.scene, m.place, at);
        }
        p.raw(b"e");
        p.key_int("record_id", record as i64);
        p.key_int("pg_id", self.local_id(m.group));
        p.str("process_group");
        p.str(&group.name);
        p.str(group.desc);
        p.raw(b"\x86");
        // Hooks run in the autograd engine's thread: their stacks do not contain the script.
        let in_autograd = !stack.iter().any(|f| f.file == job.places.script);
        p.key_str("thread_name", if in_autograd { "pt_autograd_0" } else { "python3" });
        p.key_str("thread_id", &(if in_autograd { info.autograd } else { info.thread }).to_string());
        p.key_int("collective_seq_id", i64::from(m.coll_seq));
        p.key_int("p2p_seq_id", i64::from(m.p2p_seq));
        p.key_int("op_id", op_id);
        p.key_str("profiling_name", &format!("nccl:{name}"));
        let created_ns = self.scene.wall(self.rank, m.at_ns);
        p.key_int("time_created_ns", created_ns);
        p.str("input_sizes");
        p.shape(&call.input);
        p.str("input_dtypes");
        p.raw(b"](");
        p.str(call.dtype);
        p.raw(b"e");
        p.str("output_sizes");
        p.shape(&call.output);
        p.str("output_dtypes");
        p.raw(b"](");
        p.str(call.dtype);
        p.raw(b"e");
        p.key_str("state", if m.done_ns.is_some() { "completed" } else { "scheduled" });
        p.str("time_discovered_started_ns");
        p.raw(b"N");
        p.str("time_discovered_completed_ns");
        match m.done_ns {
            Some(done) => {
                // The watchdog polls ten times a second.
                let seen = (done - self.poll_phase).div_euclid(100_000_000) * 100_000_000
                    + 100_000_000
                    + self.poll_phase;
                let seen = seen.min(self.dumped_ns - 1_000).max(done) + record as i64 % 97 * 1_450;
                p.int(self.scene.wall(self.rank, seen));
            }
            None => p.raw(b"N"),
        }
        p.str("retired");
        p.raw(if m.done_ns.is_some_and(|d| d < self.retired_until) { b"\x88" } else { b"\x89" });
        p.key_int("timeout_ms", i64::from(job.timeout_ms));
        p.str("is_p2p");
        p.raw(if m.peer.is_some() { b"\x88u" } else { b"\x89u" });
        ExpectedOp {
            group: group.name.clone(),
            members: group.ranks.clone(),
            seq: m.coll_seq,
            p2p_seq: m.p2p_seq,
            record_id: record as u32,
            name,
            input: call.input.clone(),
            output: call.output.clone(),
            dtype: call.dtype.to_owned(),
            completed: m.done_ns.is_some(),
            is_p2p: m.peer.is_some(),
            created_ns,
            functions: stack.iter().map(|f| f.function.clone()).collect(),
        }
    }
}
