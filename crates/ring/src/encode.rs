//! Encodes a state as the bytes of a ring, so that tests, synthetic jobs and recorded cases get rings without a GPU.

use crate::layout::{
    COMM_WORDS_1_0, COMMS, END_SEEN, HEADER, MAGIC, MAJOR, P2P_BIT, REGIONS, Region, comm, done, head, op,
    wait,
};
use crate::names::{NameKind, key};
use crate::progress::{HANDED_OVER, LAUNCHED, PROXIED};
use crate::slot;
use crate::state::{CallArgs, Comm, Done, Op, Phase, State, Wait};

impl State {
    /// Returns the bytes of a ring with this state. If `read` is `Some(lives)` they are an image of a process that
    /// was running or not when it was read, otherwise the file that a dead process leaves. Regions are as long as
    /// their content. Not kept: names unknown to NCCL, proxy operations for other processes, and derived values
    /// (losses of the journal).
    pub fn to_bytes(&self, read: Option<bool>) -> Vec<u8> {
        let mut to = Bytes::new(self);
        to.header(self, read);
        let ops = self.comms.iter().flat_map(|comm| comm.in_flight.iter().map(move |op| (comm, op)));
        let mut n_waits = 0;
        for (place, comm) in self.comms.iter().enumerate() {
            to.comm(place, comm);
        }
        for (place, (comm, op)) in ops.enumerate() {
            to.op(place, self.place_of(comm.slot), op);
            for wait in &op.waits {
                to.wait(n_waits, place, wait);
                n_waits += 1;
            }
        }
        for (place, done) in self.recent.iter().enumerate() {
            to.done(place, self.place_of(done.comm), done);
        }
        to.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn place_of(&self, slot: u32) -> usize {
        self.comms.iter().position(|comm| comm.slot == slot).unwrap_or(0)
    }
}

struct Bytes {
    words: Vec<u64>,
    regions: [Region; 5],
    base_ns: u64,
}

impl Bytes {
    fn new(state: &State) -> Self {
        let n_ops = state.comms.iter().map(|comm| comm.in_flight.len()).sum();
        let n_waits = state.comms.iter().flat_map(|comm| &comm.in_flight).map(|op| op.waits.len()).sum();
        let lengths = [1, state.comms.len(), n_ops, n_waits, state.recent.len()];
        let mut regions = REGIONS;
        let mut at = HEADER.words;
        for (region, entries) in regions.iter_mut().zip(lengths) {
            let words = if *region == COMMS { COMM_WORDS_1_0 } else { region.words };
            *region = Region { at, entries: entries.max(1), words };
            at += region.words * region.entries;
        }
        let base_ns = state.comms.iter().map(|comm| comm.created_ns).min().unwrap_or(state.taken.mono_ns);
        Self { words: vec![0; at], regions, base_ns }
    }

    fn set(&mut self, at: usize, value: u64) {
        if let Some(word) = self.words.get_mut(at) {
            *word = value;
        }
    }

    fn text(&mut self, at: usize, words: usize, text: &str) {
        for (place, bytes) in text.as_bytes().chunks(8).take(words).enumerate() {
            let mut word = [0; 8];
            word.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
            self.set(at + place, u64::from_le_bytes(word));
        }
    }

    fn header(&mut self, state: &State, read: Option<bool>) {
        let (process, taken, base) = (&state.process, state.taken, self.base_ns);
        self.set(head::MAGIC, MAGIC);
        // All of them are among the operations, so format 1.0 is sufficient.
        self.set(head::VERSION, MAJOR << 32);
        self.set(head::FILE_BYTES, self.words.len() as u64 * 8);
        for (number, region) in self.regions.into_iter().enumerate() {
            for (word, value) in [region.at, region.words, region.entries].into_iter().enumerate() {
                self.set(head::REGIONS + number * 3 + word, value as u64);
            }
        }
        self.set(head::PID, u64::from(process.pid));
        self.set(head::START_TICKS, process.start_ticks);
        self.set(head::RANK, one_more(process.rank));
        self.set(head::LOCAL_RANK, one_more(process.local_rank));
        self.set(head::WORLD_SIZE, one_more(process.world_size));
        self.set(head::INTERFACE, u64::from(process.interface));
        self.set(head::MADE_MONO, base);
        self.set(head::MADE_UNIX, taken.unix_of(base));
        self.text(head::BOOT_ID, head::BOOT_ID_WORDS, &process.boot_id);
        self.text(head::HOST, head::HOST_WORDS, &process.host);
        if let Some(lives) = read {
            self.set(head::TAKEN_MONO, taken.mono_ns);
            self.set(head::TAKEN_UNIX, taken.unix_ns);
            self.set(head::TORN, state.lost.torn);
            self.set(head::HELD, 1 + u64::from(lives));
        }
        let n_live = state.comms.iter().filter(|comm| comm.ended_ns.is_none()).count() as u64;
        self.set(head::COMMS_MADE, state.comms.len() as u64 + u64::from(process.is_ended));
        self.set(head::COMMS_LIVE, if process.is_ended { 0 } else { n_live.max(1) });
        self.set(head::JOURNAL_HEAD, state.recent.len() as u64 + state.lost.overwritten);
        self.set(head::LOST_COMMS, state.lost.comms);
        self.set(head::LOST_OPS, state.lost.ops);
        self.set(head::LOST_WAITS, state.lost.waits);
        self.set(head::LOST_RECORDS, state.lost.records);
        self.set(head::FAULTS, state.lost.faults);
        self.set(head::KERNELS_ENDED, process.kernels_ended_ns.unwrap_or(0));
        if let Some(exit) = process.exit {
            self.set(head::EXIT_CODE, u64::from(exit.code) + 1);
            self.set(head::EXITED, exit.at_ns);
        }
    }

    /// Word index of an entry of the n-th region.
    fn entry(&self, region: usize, place: usize) -> usize {
        self.regions.get(region).map_or(usize::MAX, |region| region.at + place * region.words)
    }

    fn comm(&mut self, place: usize, from: &Comm) {
        let at = self.entry(1, place);
        self.set(at, slot::LIVE);
        self.set(at + comm::ID, from.id);
        self.text(at + comm::NAME, comm::NAME_WORDS, &from.name);
        for (word, value) in [
            (comm::SIZE, u64::from(from.size) | u64::from(from.nodes) << 32),
            (comm::RANK, one_more(from.rank)),
            (comm::CREATED, from.created_ns),
            (comm::ENDED, from.ended_ns.unwrap_or(0)),
            (comm::ORDER, place as u64),
            (comm::SIGHT, u64::from(!from.lacks_kernels)),
            (comm::COLLECTIVES, from.collectives),
            (comm::COLLECTIVES_DONE, from.collectives_done),
            (comm::P2P, from.p2p),
            (comm::P2P_DONE, from.p2p_done),
            (comm::BYTES_DONE, from.bytes_done),
            (comm::PROGRESS, from.progress_ns),
        ] {
            self.set(at + word, value);
        }
    }

    fn op(&mut self, place: usize, of_comm: usize, from: &Op) {
        let at = self.entry(2, place);
        let flag = |is: bool, flag: u64| if is { flag } else { 0 };
        let control = u64::from(from.channels_started.min(255))
            | u64::from(from.channels_stopped.min(255)) << 8
            | (from.waits.len() as u64).min(0xfff) << 16
            | u64::from(from.call.channels.min(255)) << 28
            | flag(from.handed_over_ns.is_some(), HANDED_OVER)
            | flag(from.is_launched, LAUNCHED)
            | flag(!from.waits.is_empty(), PROXIED);
        self.set(at, slot::LIVE);
        for (word, value) in [
            (op::COMM, slot::reference(of_comm, 0)),
            (op::NUMBER, from.number | if from.is_p2p { P2P_BIT } else { 0 }),
            (op::CODES, codes(&from.call)),
            (op::SEQUENCE, from.call.sequence.map_or(0, |n| n + 1)),
            (op::COUNT, from.call.count),
            (op::RANKS, ranks(&from.call)),
            (op::ENQUEUED, from.enqueued_ns),
            (op::HANDED_OVER, from.handed_over_ns.unwrap_or(0)),
            (op::STARTED, from.started_ns.unwrap_or(0)),
            (op::CONTROL, control),
            (op::OPEN, from.open_channels),
            (op::GPU_STARTED, u64::MAX),
        ] {
            self.set(at + word, value);
        }
    }

    fn wait(&mut self, place: usize, of_op: usize, from: &Wait) {
        let at = self.entry(3, place);
        let step = u64::from(from.steps_done);
        let since = from.since_ns.saturating_sub(self.base_ns) & ((1 << 56) - 1);
        let phase = number(from.phase) << 61 | (step & 31) << 56 | since;
        let phases = at + wait::PHASES + (step % wait::PHASES_WORDS as u64) as usize;
        let what = u64::from(from.peer) | u64::from(from.channel) << 32 | u64::from(from.is_send) << 40;
        self.set(at, slot::LIVE);
        self.set(at + wait::OP, slot::reference(of_op, 0));
        self.set(at + wait::WHAT, what);
        self.set(at + wait::STEPS, u64::from(from.steps) | u64::from(from.net_open) << 32);
        self.set(at + wait::DONE, step);
        self.set(at + wait::STARTED, from.since_ns);
        self.set(phases, if from.phase == Phase::Unknown { 0 } else { phase });
    }

    fn done(&mut self, place: usize, of_comm: usize, from: &Done) {
        let at = self.entry(4, place);
        let longest = from
            .longest_wait
            .map_or(0, |(phase, peer, ns)| ns << 22 | number(phase) << 18 | u64::from(peer & 0x3_ffff));
        self.set(at, place as u64 * 2 + 2);
        for (word, value) in [
            (done::COMM, slot::reference(of_comm, 0)),
            (done::NUMBER, from.number | if from.is_p2p { P2P_BIT } else { 0 }),
            (done::CODES, codes(&from.call)),
            (done::SEQUENCE, from.call.sequence.map_or(0, |n| n + 1)),
            (done::COUNT, from.call.count),
            (done::RANKS, ranks(&from.call)),
            (done::ENQUEUED, from.enqueued_ns),
            (done::STARTED, from.started_ns),
            (done::ENDED, from.ended_ns),
            (done::GPU_STARTED, from.gpu_started_ns.unwrap_or(0)),
            (done::GPU_NS, from.gpu_ns.map_or(0, |ns| ns + 1)),
            (done::LONGEST, longest),
            (done::FLAGS, if from.is_end_seen { END_SEEN } else { 0 }),
        ] {
            self.set(at + word, value);
        }
    }
}

fn one_more(number: Option<u32>) -> u64 {
    number.map_or(0, |number| u64::from(number.wrapping_add(1)))
}

fn ranks(call: &CallArgs) -> u64 {
    one_more(call.root) | one_more(call.peer) << 32
}

fn codes(call: &CallArgs) -> u64 {
    let code = |kind: NameKind, name: &str| u64::from(kind.code(&key(name.as_bytes())).unwrap_or(0));
    code(NameKind::Function, &call.function)
        | code(NameKind::Datatype, &call.datatype) << 8
        | code(NameKind::Algorithm, &call.algorithm) << 16
        | code(NameKind::Protocol, &call.protocol) << 24
        | u64::from(call.channels.min(255)) << 32
        | u64::from(call.is_captured) << 48
}

fn number(phase: Phase) -> u64 {
    match phase {
        Phase::Unknown => 0,
        Phase::SendGpu => 1,
        Phase::SendPeer => 2,
        Phase::SendNet => 3,
        Phase::RecvNet => 4,
        Phase::RecvFlush => 5,
        Phase::RecvGpu => 6,
    }
}

#[cfg(test)]
mod tests {
    use crate::layout::{done, op};
    use crate::{CallArgs, Comm, Done, Exit, Op, Phase, ReadMoment, RingProcess, State, Wait};

    fn state() -> State {
        let call = |function: &str, peer| CallArgs {
            function: function.to_owned(),
            sequence: Some(3),
            count: 1 << 20,
            datatype: "ncclFloat32".to_owned(),
            root: Some(0),
            peer,
            algorithm: "RING".to_owned(),
            protocol: "SIMPLE".to_owned(),
            channels: 4,
            is_captured: false,
        };
        let wait = Wait {
            peer: 1,
            channel: 2,
            is_send: true,
            phase: Phase::SendNet,
            since_ns: 7_500,
            steps_done: 9,
            steps: 16,
            net_open: 1,
        };
        let open = Op {
            number: 3,
            call: call("AllReduce", None),
            enqueued_ns: 7_000,
            handed_over_ns: Some(7_100),
            started_ns: Some(7_200),
            channels_started: 4,
            channels_stopped: 1,
            waits: vec![wait],
            is_end_visible: true,
            is_p2p: false,
            is_launched: true,
            open_channels: 0b1110,
        };
        let done = Done {
            comm: 0,
            number: 2,
            call: call("Send", Some(1)),
            enqueued_ns: 5_000,
            started_ns: 5_100,
            ended_ns: 6_000,
            gpu_ns: Some(800),
            gpu_started_ns: Some(99),
            longest_wait: Some((Phase::RecvNet, 3, 400)),
            is_p2p: true,
            is_end_seen: true,
        };
        let comm = Comm {
            slot: 0,
            id: 0xc0de,
            name: "dp".to_owned(),
            size: 2,
            rank: Some(0),
            nodes: 1,
            created_ns: 1_000,
            collectives: 4,
            collectives_done: 3,
            p2p: 3,
            p2p_done: 3,
            bytes_done: 5,
            progress_ns: 7_200,
            in_flight: vec![open],
            ended_ns: None,
            gpu_offset_ns: None,
            lacks_kernels: true,
        };
        State {
            process: RingProcess {
                pid: 7,
                start_ticks: 8,
                boot_id: "0123456789abcdef0123456789abcdef".to_owned(),
                host: "node1".to_owned(),
                rank: Some(0),
                local_rank: Some(0),
                world_size: Some(2),
                interface: 5,
                is_ended: false,
                kernels_ended_ns: Some(6),
                exit: Some(Exit { code: 3, at_ns: 8_500 }),
            },
            taken: ReadMoment { mono_ns: 9_000, unix_ns: 1_700_000_000_000_009_000, is_held: Some(true) },
            comms: vec![comm],
            recent: vec![done],
            ..State::default()
        }
    }

    /// The parsed state without derived values.
    fn parsed(bytes: &[u8]) -> State {
        let mut state = State::parse(bytes).unwrap_or_default();
        state.comms.iter_mut().for_each(|comm| comm.gpu_offset_ns = None);
        state
    }

    #[test]
    fn operations_are_found_in_the_bytes() {
        let (state, word) = (state(), |at: u64, bytes: &[u8]| {
            let at = at as usize;
            bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes)
        });
        let bytes = state.to_bytes(Some(true));
        let places = State::places(&bytes);
        assert_eq!(places.keys().collect::<Vec<_>>(), [&(0, false, 3), &(0, true, 2)]);
        for (key, enqueued, at) in
            [((0, false, 3), 7_000, op::ENQUEUED), ((0, true, 2), 5_000, done::ENQUEUED)]
        {
            let place = places.get(&key).cloned().unwrap_or_default();
            assert_eq!(word(place.start + at as u64 * 8, &bytes), Some(enqueued), "{key:?}");
            assert!(place.end <= bytes.len() as u64);
        }
        assert!(State::places(b"no ring").is_empty());
    }

    #[test]
    fn what_is_written_is_read() {
        let written = state();
        assert_eq!(parsed(&written.to_bytes(Some(true))), written);
        // In a dead process's file the reading time is the newest time in it.
        let dead = parsed(&written.to_bytes(None));
        assert_eq!(
            dead.taken,
            ReadMoment { mono_ns: 7_200, unix_ns: 1_700_000_000_000_007_200, is_held: None }
        );
        assert_eq!(dead.comms, written.comms);
    }
}
