//! The plugin's side of the ring. After `Writer::create` nothing here allocates, locks, waits or makes a system call:
//! every loop is bounded, and what finds no free entry is dropped and counted.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU64};

use crate::clock::mono_ns;
use crate::file::{Map, OpenError, RingOptions};
use crate::groups::OpenGroups;
use crate::handle::{GENERATION, Handle, HandleKind};
use crate::layout::{
    COMMS, END_SEEN, JOURNAL, NAMES, OPS, P2P_BIT, PASSED_OVER, Region, comm, done, head, op, wait,
};
use crate::names::{self, NameKind};
use crate::progress::{self, ChannelProgress, HANDED_OVER, LAUNCHED, PROXIED, StepResult};
use crate::{journal, slot};

mod passed;
mod proxies;

/// Entries tried after the last freed one, then elsewhere, before giving up.
const NEAR_PROBES: usize = 8;
const FAR_PROBES: usize = 64;

/// How often a new communicator tries to take the place of one that ended.
const COMM_TRIES: usize = 256;

/// The word for an index that no correct caller uses.
static NOWHERE: AtomicU64 = AtomicU64::new(0);

/// A communicator, as `init` describes it.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewComm<'a> {
    /// commId or commHash; 0 if unknown.
    pub id: u64,
    /// Name given by the program.
    pub name: &'a [u8],
    /// Number of ranks; 0 if unknown.
    pub size: u32,
    /// Its own rank.
    pub rank: Option<u32>,
    /// Number of nodes; 0 if unknown.
    pub nodes: u32,
    /// Whether kernels are reported (interface 3 and later).
    pub sees_kernels: bool,
    /// Whether the number of channels of an operation is exact (interface 4 and later).
    pub sees_channels: bool,
}

/// A call, as its descriptor gives it. Codes are those of `names`; 0 means unknown.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallDescriptor {
    /// Code of the function.
    pub function: u8,
    /// Code of the type.
    pub datatype: u8,
    /// Code of the algorithm.
    pub algorithm: u8,
    /// Code of the protocol.
    pub protocol: u8,
    /// Channels.
    pub channels: u8,
    /// A send or receive.
    pub is_p2p: bool,
    /// Part of a CUDA graph.
    pub is_captured: bool,
    /// NCCL was not asked to report its kernels and proxies, so no event will show its start and end.
    pub is_passed_over: bool,
    /// NCCL's number per communicator and function.
    pub sequence: Option<u64>,
    /// Elements.
    pub count: u64,
    /// Root.
    pub root: Option<u32>,
    /// Peer.
    pub peer: Option<u32>,
}

impl CallDescriptor {
    fn codes(&self) -> u64 {
        u64::from(self.function)
            | u64::from(self.datatype) << 8
            | u64::from(self.algorithm) << 16
            | u64::from(self.protocol) << 24
            | u64::from(self.channels) << 32
            | u64::from(self.is_captured) << 48
            | if self.is_passed_over { PASSED_OVER } else { 0 }
    }
    fn ranks(&self) -> u64 {
        one_more(self.root) | one_more(self.peer) << 32
    }
}

fn one_more(number: Option<u32>) -> u64 {
    number.map_or(0, |number| u64::from(number.wrapping_add(1)))
}

/// One entry of a region, or nothing.
#[derive(Clone, Copy)]
struct RegionEntry<'a>(&'a [AtomicU64]);

impl<'a> RegionEntry<'a> {
    fn at(self, word: usize) -> &'a AtomicU64 {
        self.0.get(word).unwrap_or(&NOWHERE)
    }
    fn get(self, word: usize) -> u64 {
        self.at(word).load(Relaxed)
    }
    fn set(self, word: usize, value: u64) {
        self.at(word).store(value, Relaxed);
    }
    fn tag(self) -> &'a AtomicU64 {
        self.at(0)
    }
    /// Prefetches an entry that is written soon: a locked instruction on a line that is still in memory takes as long
    /// as everything else.
    fn expect(self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint that reads nothing, whatever the address; SSE is part of the architecture.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.0.as_ptr().cast());
        }
    }
}

/// Where to look for a free entry: after the last freed one, so that few cache lines are used; otherwise further on.
#[derive(Debug, Default)]
struct Hint {
    near: AtomicU64,
    far: AtomicU64,
}

/// The writing side of a ring.
#[derive(Debug)]
pub struct Writer {
    map: Map,
    seed: u64,
    /// Times of phases count from here, so that they fit 56 bits.
    base_ns: u64,
    ops: Hint,
    waits: Hint,
    groups: OpenGroups,
    /// The last code of each kind of name: programs make the same calls repeatedly.
    last_codes: [AtomicU8; 4],
}

impl Writer {
    /// Creates the ring file of this process, or continues with it if the process has one already.
    ///
    /// # Errors
    /// No directory can be written, there is not enough space, or the file belongs to something else.
    pub fn create(options: &RingOptions) -> Result<Self, OpenError> {
        let map = Map::create(options)?;
        let words = map.words();
        let head = |at: usize| words.get(at).map_or(0, |word| word.load(Relaxed));
        let (seed, base_ns) = (head(head::SEED), head(head::MADE_MONO));
        Ok(Self {
            map,
            seed,
            base_ns,
            ops: Hint::default(),
            waits: Hint::default(),
            groups: OpenGroups::default(),
            last_codes: [const { AtomicU8::new(0) }; 4],
        })
    }

    /// Path of the ring.
    pub fn path(&self) -> &std::path::Path {
        self.map.path()
    }

    /// The open file whose lock shows that the process is alive. A forked child inherits the file and with it the lock.
    pub fn lock(&self) -> std::os::fd::BorrowedFd<'_> {
        self.map.lock()
    }

    /// The clock of all its times: CLOCK_MONOTONIC, nanoseconds.
    pub fn now_ns(&self) -> u64 {
        mono_ns()
    }

    fn head(&self, at: usize) -> &AtomicU64 {
        self.map.words().get(at).unwrap_or(&NOWHERE)
    }

    fn entry(&self, region: &Region, index: usize) -> RegionEntry<'_> {
        let at = region.entry(index);
        RegionEntry(self.map.words().get(at..at + region.words).unwrap_or(&[]))
    }

    fn handle(&self, kind: HandleKind, index: usize, generation: u64, extra: u64) -> Handle {
        Handle::new(kind, index, generation.wrapping_add(self.seed), extra)
    }

    /// The low 24 bits of the generation in a handle.
    fn named(&self, handle: Handle) -> u64 {
        handle.generation().wrapping_sub(self.seed) & GENERATION
    }

    /// The entry of a handle with its full generation, if the handle is still valid.
    fn live(&self, region: &Region, handle: Handle) -> Option<(RegionEntry<'_>, u64)> {
        if handle.index() >= region.entries {
            return None;
        }
        let entry = self.entry(region, handle.index());
        let tag = entry.tag().load(Acquire);
        let generation = slot::generation(tag);
        (slot::is_live(tag) && generation & GENERATION == self.named(handle)).then_some((entry, generation))
    }

    /// Counts a fault inside the plugin.
    pub fn fault(&self) {
        self.head(head::FAULTS).fetch_add(1, Relaxed);
    }

    /// Records that the process called `exit`.
    pub fn exits(&self, code: u8) {
        self.head(head::EXITED).store(mono_ns(), Relaxed);
        // Whoever sees the code sees the time.
        self.head(head::EXIT_CODE).store(u64::from(code) + 1, Release);
    }

    /// Records the profiler interface that NCCL asked for: 1 to 7.
    pub fn interface(&self, version: u8) {
        self.head(head::INTERFACE).store(u64::from(version), Relaxed);
    }

    /// The code of a name; 0 if it is empty or the region of names is full.
    pub fn code(&self, kind: NameKind, name: &[u8]) -> u8 {
        self.code_of(kind, &names::key(name))
    }

    /// As `code`, for a name that is already a key.
    pub fn code_of(&self, kind: NameKind, key: &names::Key) -> u8 {
        if key.first() == Some(&0) {
            return 0;
        }
        let code = kind.code(key).unwrap_or_else(|| self.own_code(key));
        if let Some(last) = self.last_codes.get(kind as usize) {
            last.store(code, Relaxed);
        }
        code
    }

    /// The code that `code_of` found last for this kind, with its name, if it is in the lists.
    pub fn last_code(&self, kind: NameKind) -> Option<(u8, &'static names::Key)> {
        let code = self.last_codes.get(kind as usize)?.load(Relaxed);
        kind.key_of(code).map(|key| (code, key))
    }

    #[cold]
    fn own_code(&self, key: &names::Key) -> u8 {
        for index in 0..NAMES.entries {
            let entry = self.entry(&NAMES, index);
            let tag = entry.tag().load(Acquire);
            if slot::is_live(tag) {
                if key.iter().enumerate().all(|(at, word)| entry.get(at + 1) == *word) {
                    return names::OWN + index as u8;
                }
            } else if let Some(generation) = slot::claim(entry.tag()) {
                for (at, word) in key.iter().enumerate() {
                    entry.set(at + 1, *word);
                }
                slot::publish(entry.tag(), generation);
                return names::OWN + index as u8;
            }
        }
        0
    }

    // Communicators are rare, so the whole region may be searched.

    /// Begins a communicator. Returns `NONE` if there is no free entry, which is counted.
    pub fn comm_begins(&self, new: &NewComm<'_>) -> Handle {
        let Some((index, generation)) = self.comm_place() else {
            self.head(head::LOST_COMMS).fetch_add(1, Relaxed);
            return Handle::NONE;
        };
        let entry = self.entry(&COMMS, index);
        for word in 1..COMMS.words {
            entry.set(word, 0);
        }
        let now = mono_ns();
        entry.set(comm::ID, new.id);
        let mut name = new.name.iter().take(comm::NAME_WORDS * 8 - 1);
        for word in comm::NAME..comm::NAME + comm::NAME_WORDS {
            let mut bytes = [0_u8; 8];
            for (to, from) in bytes.iter_mut().zip(&mut name) {
                *to = *from;
            }
            entry.set(word, u64::from_le_bytes(bytes));
        }
        entry.set(comm::SIZE, u64::from(new.size) | u64::from(new.nodes) << 32);
        entry.set(comm::RANK, one_more(new.rank));
        entry.set(comm::CREATED, now);
        entry.set(comm::PROGRESS, now);
        entry.set(comm::ORDER, self.head(head::COMMS_MADE).fetch_add(1, Relaxed));
        entry.set(comm::SIGHT, u64::from(new.sees_kernels) | u64::from(new.sees_channels) << 1);
        self.head(head::COMMS_LIVE).fetch_add(1, Relaxed);
        slot::publish(entry.tag(), generation);
        self.handle(HandleKind::Comm, index, generation, 0)
    }

    /// Records that kernels are no longer reported for any communicator.
    #[cold]
    pub fn kernels_end(&self) {
        let _first = self.head(head::KERNELS_ENDED).compare_exchange(0, mono_ns(), Relaxed, Relaxed);
        for index in 0..COMMS.entries {
            self.entry(&COMMS, index).at(comm::SIGHT).fetch_and(!1, Relaxed);
        }
    }

    fn comm_place(&self) -> Option<(usize, u64)> {
        for index in 0..COMMS.entries {
            if let Some(generation) = slot::claim(self.entry(&COMMS, index).tag()) {
                return Some((index, generation));
            }
        }
        // No entry is free: replace the communicator that ended longest ago. Other threads may try the same: a try fails
        // only where one of them succeeds, and four threads that split all the while made four tries in a row fail.
        for _ in 0..COMM_TRIES {
            let mut oldest: Option<(u64, usize, u64)> = None;
            for index in 0..COMMS.entries {
                let entry = self.entry(&COMMS, index);
                let tag = entry.tag().load(Acquire);
                let ended = entry.get(comm::ENDED);
                if slot::is_live(tag) && ended != 0 && oldest.is_none_or(|(at, ..)| ended < at) {
                    oldest = Some((ended, index, tag));
                }
            }
            let (_, index, tag) = oldest?;
            if let Some(generation) = slot::reclaim(self.entry(&COMMS, index).tag(), tag) {
                return Some((index, generation));
            }
        }
        None
    }

    /// Ends a communicator. Its operations in flight stay in the ring: after an abort they are the evidence.
    pub fn comm_ends(&self, handle: Handle) {
        let Some((entry, _)) = self.comm_of(handle) else { return };
        let first = entry.at(comm::ENDED).compare_exchange(0, mono_ns(), Relaxed, Relaxed).is_ok();
        if first {
            for at in 0..comm::UNSEEN_WORDS {
                self.forget_unseen(entry.at(comm::UNSEEN + at).swap(0, Relaxed), true);
            }
            self.head(head::COMMS_LIVE).fetch_sub(1, Relaxed);
        }
    }

    /// Sets the communicator's id and rank from an operation if `init` did not report them (interfaces 1 to 3). Only
    /// the first call has an effect.
    pub fn comm_is(&self, handle: Handle, id: u64, rank: Option<u32>) {
        if let Some((entry, _)) = self.comm_of(handle)
            && entry.get(comm::RANK) == 0
        {
            entry.set(comm::ID, id);
            entry.set(comm::RANK, one_more(rank));
        }
    }

    fn comm_of(&self, handle: Handle) -> Option<(RegionEntry<'_>, u64)> {
        match handle.kind() {
            Some(HandleKind::Comm) => {
                self.live(&COMMS, handle).filter(|(entry, _)| entry.get(comm::ENDED) == 0)
            }
            _ => None,
        }
    }

    /// The communicator of an operation, if its entry is still valid.
    fn comm_by(&self, reference: u64) -> Option<RegionEntry<'_>> {
        let (index, generation) = slot::referred(reference)?;
        let entry = self.entry(&COMMS, index);
        let tag = entry.tag().load(Acquire);
        (slot::is_live(tag) && slot::same_generation(tag, generation)).then_some(entry)
    }

    // Operations.

    /// Begins an operation: NCCL takes a call from the program, within a group. The operation's number is that of the
    /// call.
    pub fn call(&self, comm: Handle, group: Handle, told: &CallDescriptor) -> Handle {
        if told.is_captured {
            // Only captured: each run of the graph launches it again.
            return Handle::CAPTURED.following(!told.is_passed_over);
        }
        let Some((entry, generation)) = self.comm_of(comm) else { return Handle::NONE };
        let Some((index, generation)) = self.begin(comm.index(), entry, generation, told, 0, 0) else {
            return Handle::NONE;
        };
        let call = self.handle(HandleKind::Call, index, generation, 0);
        // NCCL may not report a launch for these: they count as handed over at the end of the group.
        if told.function == names::BROADCAST || told.is_passed_over {
            self.groups.add(group, call, self.entry(&OPS, index).at(op::BEFORE));
        }
        call
    }

    /// Begins a group of calls; a single call is a group, too.
    pub fn group_begins(&self) -> Handle {
        self.groups.begin()
    }

    /// Ends a group: its calls have been launched.
    ///
    /// NCCL may merge broadcasts into one launch and then does not report them (2.29 and later, all but those of
    /// symmetric memory): they are handed over, and no event will show their end.
    pub fn group_ends(&self, group: Handle) {
        let mut next = self.groups.end(group);
        for _ in 0..OPS.entries {
            let call = Handle(next);
            if call.kind() != Some(HandleKind::Call) {
                return;
            }
            let Some((entry, _)) = self.live(&OPS, call) else { return };
            next = entry.get(op::BEFORE);
            if !ChannelProgress(entry.get(op::CONTROL)).has(LAUNCHED) {
                self.handed_over(Self::handle_as_op(call));
            }
        }
    }

    fn handle_as_op(call: Handle) -> Handle {
        Handle((HandleKind::Op as u64) << 60 | call.0 & 0x0fff_ffff_ffff_ffff)
    }

    /// Begins a launch of the communicator (NCCL's group event).
    pub fn plan_begins(&self, comm: Handle) -> Handle {
        let Some((entry, _)) = self.comm_of(comm) else { return Handle::NONE };
        let plan = entry.at(comm::PLANS).fetch_add(1, Relaxed) + 1;
        Handle((HandleKind::Plan as u64) << 60 | (comm.index() as u64) << 40 | Handle(plan).plan())
    }

    /// Records the launch of an operation; `parent` is the call's handle, if calls are reported.
    pub fn launch(&self, comm: Handle, parent: Handle, plan: Handle, told: &CallDescriptor) -> Handle {
        let Some((entry, generation)) = self.comm_of(comm) else { return Handle::NONE };
        let plan = match plan.kind() {
            Some(HandleKind::Plan) => plan.plan(),
            _ => 0,
        };
        let sight = entry.get(comm::SIGHT);
        let tells_channels = !matches!(told.algorithm, names::ALGORITHM_UNKNOWN | names::ALGORITHM_CE);
        let expected =
            if sight & 3 == 3 && tells_channels && !told.is_passed_over { told.channels } else { 0 };
        if parent.kind() == Some(HandleKind::Call)
            && let Some(handle) = self.attach(parent, told, plan, expected)
        {
            return handle;
        }
        let is_captured = parent.kind() == Some(HandleKind::Captured);
        let told = CallDescriptor { is_captured: told.is_captured || is_captured, ..*told };
        let flags = ChannelProgress(LAUNCHED).expecting(expected).0;
        self.begin(comm.index(), entry, generation, &told, plan, flags)
            .map_or(Handle::NONE, |(index, generation)| self.handle(HandleKind::Op, index, generation, 0))
    }

    /// Joins a launch to its call: the launch knows algorithm and channels, the call knows what the program asked for.
    fn attach(&self, call: Handle, told: &CallDescriptor, plan: u64, expected: u8) -> Option<Handle> {
        let (entry, generation) = self.live(&OPS, call)?;
        let passed_over = entry.get(op::CODES) & PASSED_OVER;
        let expected = if passed_over == 0 { expected } else { 0 };
        let change = |progress: ChannelProgress| {
            (!progress.has(LAUNCHED)).then(|| progress.with(LAUNCHED).expecting(expected))
        };
        if progress::step(entry.at(op::CONTROL), generation, change) != StepResult::Goes {
            return None;
        }
        // Function, type, count and root stay those of the call: NCCL converts some to bytes before the launch.
        let own = entry.get(op::CODES) & 0xffff;
        entry.set(op::CODES, told.codes() & !0xffff | own | passed_over);
        entry.set(op::SEQUENCE, told.sequence.map_or(0, |sequence| sequence.wrapping_add(1)));
        if told.peer.is_some() {
            entry.set(op::RANKS, told.ranks());
        }
        if plan != 0 {
            entry.set(op::PLAN, plan);
        }
        Some(self.handle(HandleKind::Op, call.index(), generation, 0))
    }

    fn begin(
        &self,
        comm_index: usize,
        comm: RegionEntry<'_>,
        comm_generation: u64,
        told: &CallDescriptor,
        plan: u64,
        flags: u64,
    ) -> Option<(usize, u64)> {
        let counter = if told.is_p2p { comm::P2P } else { comm::COLLECTIVES };
        // The number is assigned before an entry is sought: a dropped operation must not shift the numbers of later
        // ones.
        let number = comm.at(counter).fetch_add(1, Relaxed);
        let Some((index, generation)) = self.take(&OPS, &self.ops, Self::may_take_op) else {
            self.head(head::LOST_OPS).fetch_add(1, Relaxed);
            return None;
        };
        let now = mono_ns();
        let entry = self.entry(&OPS, index);
        entry.set(op::COMM, slot::reference(comm_index, comm_generation));
        entry.set(op::NUMBER, number | if told.is_p2p { P2P_BIT } else { 0 });
        entry.set(op::CODES, told.codes());
        entry.set(op::SEQUENCE, told.sequence.map_or(0, |sequence| sequence.wrapping_add(1)));
        entry.set(op::COUNT, told.count);
        entry.set(op::RANKS, told.ranks());
        entry.set(op::ENQUEUED, now);
        for word in [op::HANDED_OVER, op::STARTED, op::OPEN, op::GPU_ENDED, op::LONGEST, op::STOPPED] {
            entry.set(word, 0);
        }
        entry.set(op::GPU_STARTED, u64::MAX);
        entry.set(op::PLAN, plan);
        entry.set(op::CONTROL, ChannelProgress::new(generation).0 | flags);
        slot::publish(entry.tag(), generation);
        comm.set(comm::PROGRESS, now);
        Some((index, generation))
    }

    /// Records that NCCL has passed the operation to the stream.
    pub fn handed_over(&self, handle: Handle) {
        if handle.kind() != Some(HandleKind::Op) {
            return;
        }
        let Some((entry, generation)) = self.live(&OPS, handle) else { return };
        entry.set(op::HANDED_OVER, mono_ns());
        let change = |progress: ChannelProgress| Some(progress.with(HANDED_OVER));
        match progress::step(entry.at(op::CONTROL), generation, change) {
            StepResult::Ends => self.put_away(handle.index(), entry, generation, true),
            StepResult::Goes if ChannelProgress(entry.get(op::CONTROL)).expected() == 0 => {
                // Its end may never be reported. The newest few such operations are kept in flight.
                if let Some(comm) = self.comm_by(entry.get(op::COMM)) {
                    let at = (entry.get(op::NUMBER) % comm::UNSEEN_WORDS as u64) as usize;
                    self.forget_unseen(comm.at(comm::UNSEEN + at).swap(handle.0, Relaxed), false);
                }
            }
            StepResult::Goes | StepResult::Refused => {}
        }
    }

    fn forget_unseen(&self, handle: u64, is_last_call: bool) {
        let handle = Handle(handle);
        if handle.kind() != Some(HandleKind::Op) {
            return;
        }
        let Some((entry, generation)) = self.live(&OPS, handle) else { return };
        if !is_last_call && self.may_start_yet(entry) {
            return;
        }
        if progress::put_away(entry.at(op::CONTROL), generation, true) {
            let seen = ChannelProgress(entry.get(op::CONTROL));
            self.put_away(handle.index(), entry, generation, seen.started() > 0 || seen.has(PROXIED));
        }
    }

    /// Whether the kernel of an operation will still be reported although its number of channels is unknown (interface
    /// 3). Later calls do not show that it is over; a later launch that has started does.
    fn may_start_yet(&self, entry: RegionEntry<'_>) -> bool {
        let Some(comm) = self.comm_by(entry.get(op::COMM)) else { return false };
        comm.get(comm::SIGHT) & 3 == 1
            && entry.get(op::CODES) & PASSED_OVER == 0
            && ChannelProgress(entry.get(op::CONTROL)).started() == 0
            && entry.get(op::PLAN) >= comm.get(comm::PLAN_STARTED)
    }

    /// Writes an ended operation into the journal and frees its entry. Only the thread that set `OVER` gets here.
    fn put_away(&self, index: usize, entry: RegionEntry<'_>, generation: u64, is_end_seen: bool) {
        let number = entry.get(op::NUMBER);
        let (enqueued, handed, started, stopped) = (
            entry.get(op::ENQUEUED),
            entry.get(op::HANDED_OVER),
            entry.get(op::STARTED),
            entry.get(op::STOPPED),
        );
        let ended = stopped.max(handed).max(enqueued);
        let (gpu_started, gpu_ended) = (entry.get(op::GPU_STARTED), entry.get(op::GPU_ENDED));
        let has_gpu = gpu_started != u64::MAX && gpu_ended >= gpu_started;
        let codes = entry.get(op::CODES);
        let count = entry.get(op::COUNT);
        let comm = entry.get(op::COMM);

        let place = self.head(head::JOURNAL_HEAD).fetch_add(1, Relaxed);
        let record = self.entry(&JOURNAL, (place % JOURNAL.entries as u64) as usize);
        if journal::begin(record.tag(), place) {
            record.set(done::COMM, comm);
            record.set(done::NUMBER, number);
            record.set(done::CODES, codes);
            record.set(done::SEQUENCE, entry.get(op::SEQUENCE));
            record.set(done::COUNT, count);
            record.set(done::RANKS, entry.get(op::RANKS));
            record.set(done::ENQUEUED, enqueued);
            record.set(done::STARTED, if started == 0 { enqueued } else { started });
            record.set(done::ENDED, ended);
            record.set(done::GPU_STARTED, if gpu_started == u64::MAX { 0 } else { gpu_started });
            record.set(done::GPU_NS, if has_gpu { gpu_ended - gpu_started + 1 } else { 0 });
            record.set(done::LONGEST, entry.get(op::LONGEST));
            record.set(done::FLAGS, if is_end_seen { END_SEEN } else { 0 });
            journal::end(record.tag(), place);
        } else {
            self.head(head::LOST_RECORDS).fetch_add(1, Relaxed);
        }

        if let Some(comm) = self.comm_by(comm) {
            let counter = if number & P2P_BIT != 0 { comm::P2P_DONE } else { comm::COLLECTIVES_DONE };
            comm.at(counter).fetch_add(1, Relaxed);
            let bytes = names::element_bytes((codes >> 8) as u8).saturating_mul(count);
            comm.at(comm::BYTES_DONE).fetch_add(bytes, Relaxed);
            comm.set(comm::PROGRESS, ended.max(comm.get(comm::PROGRESS)));
        }
        slot::free(entry.tag(), generation);
        self.ops.near.store(index as u64, Relaxed);
    }

    // Kernels.

    /// Records that the kernel of a channel was seen to start. `gpu_ns` is 0 if the interface does not report it.
    pub fn kernel_starts(&self, parent: Handle, channel: u8, gpu_ns: u64) -> Handle {
        if parent.kind() != Some(HandleKind::Op) {
            return Handle::NONE;
        }
        let Some((entry, generation)) = self.live(&OPS, parent) else { return Handle::NONE };
        // From here on the operation cannot end before this channel stops.
        if progress::step(entry.at(op::CONTROL), generation, ChannelProgress::one_started) != StepResult::Goes
        {
            return Handle::NONE;
        }
        let now = mono_ns();
        if entry.get(op::STARTED) == 0 {
            let _already = entry.at(op::STARTED).compare_exchange(0, now, Relaxed, Relaxed);
        }
        entry.at(op::OPEN).fetch_or(1 << (channel % 64), Relaxed);
        if gpu_ns != 0 {
            entry.at(op::GPU_STARTED).fetch_min(gpu_ns, Relaxed);
        }
        if let Some(comm) = self.comm_by(entry.get(op::COMM)) {
            comm.set(comm::PROGRESS, now);
            let plan = entry.get(op::PLAN);
            if comm.get(comm::PLAN_STARTED) < plan {
                comm.at(comm::PLAN_STARTED).fetch_max(plan, Relaxed);
            }
            let called = entry.get(op::ENQUEUED);
            if comm.get(comm::STARTED_CALL) < called {
                comm.at(comm::STARTED_CALL).fetch_max(called, Relaxed);
            }
        }
        self.handle(HandleKind::Kernel, parent.index(), generation, u64::from(channel))
    }

    /// Records the GPU's time at the end of a channel's kernel.
    pub fn kernel_tells_stop(&self, kernel: Handle, gpu_ns: u64) {
        if kernel.kind() == Some(HandleKind::Kernel)
            && gpu_ns != 0
            && let Some((entry, _)) = self.live(&OPS, kernel)
        {
            entry.at(op::GPU_ENDED).fetch_max(gpu_ns, Relaxed);
        }
    }

    /// Records that the kernel of a channel was seen to stop.
    pub fn kernel_stops(&self, kernel: Handle) {
        if kernel.kind() != Some(HandleKind::Kernel) {
            return;
        }
        let Some((entry, generation)) = self.live(&OPS, kernel) else { return };
        let now = mono_ns();
        entry.set(op::STOPPED, now);
        entry.at(op::OPEN).fetch_and(!(1 << (kernel.extra() % 64)), Relaxed);
        self.child_stops(kernel.index(), entry, generation, now, ChannelProgress::one_stopped);
    }

    fn child_stops(
        &self,
        index: usize,
        entry: RegionEntry<'_>,
        generation: u64,
        now: u64,
        change: fn(ChannelProgress) -> Option<ChannelProgress>,
    ) {
        let comm = entry.get(op::COMM);
        match progress::step(entry.at(op::CONTROL), generation, change) {
            StepResult::Ends => self.put_away(index, entry, generation, true),
            StepResult::Goes => {
                if let Some(comm) = self.comm_by(comm) {
                    comm.set(comm::PROGRESS, now);
                }
            }
            StepResult::Refused => {}
        }
    }

    // Free entries.

    /// Takes a free entry of a region: near the last freed one, else further on, else one whose owner is gone.
    fn take(
        &self,
        region: &Region,
        hint: &Hint,
        may_take: fn(&Self, usize, RegionEntry<'_>, u64) -> bool,
    ) -> Option<(usize, u64)> {
        let near = hint.near.load(Relaxed) as usize;
        for at in near..near.saturating_add(NEAR_PROBES) {
            let index = at % region.entries;
            if let Some(generation) = slot::claim(self.entry(region, index).tag()) {
                hint.near.store(index as u64 + 1, Relaxed);
                return Some((index, generation));
            }
        }
        self.take_far(region, hint, may_take)
    }

    #[cold]
    fn take_far(
        &self,
        region: &Region,
        hint: &Hint,
        may_take: fn(&Self, usize, RegionEntry<'_>, u64) -> bool,
    ) -> Option<(usize, u64)> {
        // Spread over the whole region: entries in flight are adjacent, and hundreds of them would fill a window.
        let step = region.entries / FAR_PROBES + 1;
        let far = hint.far.fetch_add(1, Relaxed) as usize;
        for at in 0..FAR_PROBES {
            let index = far.wrapping_add(at * step) % region.entries;
            let entry = self.entry(region, index);
            if let Some(generation) = slot::claim(entry.tag()) {
                hint.near.store(index as u64 + 1, Relaxed);
                return Some((index, generation));
            }
        }
        for at in 0..FAR_PROBES {
            let index = far.wrapping_add(at * step) % region.entries;
            let entry = self.entry(region, index);
            let tag = entry.tag().load(Acquire);
            if slot::is_live(tag)
                && may_take(self, index, entry, tag)
                && let Some(generation) = slot::claim(entry.tag()).or_else(|| slot::reclaim(entry.tag(), tag))
            {
                return Some((index, generation));
            }
        }
        None
    }

    /// Whether an operation's entry may be taken: it is over although no event said so, or its communicator is gone.
    fn may_take_op(&self, index: usize, entry: RegionEntry<'_>, tag: u64) -> bool {
        let generation = slot::generation(tag);
        let control = entry.at(op::CONTROL);
        let Some(comm) = self.comm_by(entry.get(op::COMM)) else {
            return progress::put_away(control, generation, false);
        };
        if comm.get(comm::ENDED) != 0 {
            return progress::put_away(control, generation, false);
        }
        if entry.get(op::PLAN) < comm.get(comm::PLAN_STARTED) && progress::put_away(control, generation, true)
        {
            let seen = ChannelProgress(control.load(Relaxed));
            self.put_away(index, entry, generation, seen.started() > 0 || seen.has(PROXIED));
            return true;
        }
        false
    }

    /// Whether a proxy operation's entry may be taken: its operation is gone.
    fn may_take_wait(&self, _index: usize, entry: RegionEntry<'_>, _tag: u64) -> bool {
        let Some((index, generation)) = slot::referred(entry.get(wait::OP)) else { return false };
        let tag = self.entry(&OPS, index).tag().load(Acquire);
        !slot::is_live(tag) || !slot::same_generation(tag, generation)
    }
}
