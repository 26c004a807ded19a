//! Puts a dump together: interns frames, stacks and calls, joins process groups. Shared by the pickle and JSON forms.

use std::collections::BTreeSet;
use std::sync::Arc;

use ringleader_model::{
    FlightDump, FlightGroup, FlightOp, Frame, GroupRank, NoteKind, OpKind, OpState, Rank, Signature,
};

use super::known::{CarriedOver, MAX_RANKS};
use crate::ground::intern::{Index, hash_of};

/// Process groups of one process that are kept.
pub(super) const MAX_GROUPS: usize = 1 << 14;
/// Frames of one stack.
pub(super) const MAX_FRAMES: usize = 1 << 12;
/// Recording threads that are kept.
const MAX_THREADS: usize = 1024;
/// Characters of a function's, file's, group's or operation's name.
const MAX_NAME_CHARS: usize = 4096;

/// What an entry tells of its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct GroupKey<'a> {
    /// `pg_id`; -1 if absent.
    pub(super) id: i64,
    /// First of `process_group`.
    pub(super) name: &'a [u8],
    /// Second of `process_group`.
    pub(super) desc: &'a [u8],
}

/// Shapes and types of one call, as in an entry.
#[derive(Clone, Debug, Default)]
pub(super) struct Tensors {
    pub(super) input_sizes: Box<[Box<[u64]>]>,
    pub(super) output_sizes: Box<[Box<[u64]>]>,
    pub(super) input_dtypes: Box<[Box<str>]>,
    pub(super) output_dtypes: Box<[Box<str>]>,
}

impl Tensors {
    /// Bytes that it takes, about.
    fn cost(&self) -> usize {
        let shapes =
            self.input_sizes.iter().chain(&self.output_sizes).map(|s| 24 + s.len() * 8).sum::<usize>();
        let types = self.input_dtypes.iter().chain(&self.output_dtypes).map(|d| 24 + d.len()).sum::<usize>();
        128 + shapes + types
    }
}

/// One group of `pg_config`.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupConfig<'a> {
    pub(super) key: &'a [u8],
    pub(super) name: &'a [u8],
    pub(super) desc: &'a [u8],
    pub(super) ranks: Arc<[Rank]>,
}

/// One group of `pg_status`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GroupStatus<'a> {
    pub(super) key: &'a [u8],
    pub(super) enqueued: Option<i64>,
    pub(super) started: Option<i64>,
    pub(super) completed: Option<i64>,
}

/// The tables would take more memory than their file can account for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OverBudget;

/// Items of the tables that can be found.
#[derive(Clone, Copy, Debug, Default)]
struct Indexed {
    frames: usize,
    stacks: usize,
    signatures: usize,
}

impl Indexed {
    fn of(known: &CarriedOver) -> Self {
        Self { frames: known.frames.len(), stacks: known.stacks.len(), signatures: known.signatures.len() }
    }
}

/// A dump under construction.
pub(super) struct Build<'a> {
    pub(super) dump: FlightDump,
    /// Tables of the dump, and what the dump before has left.
    pub(super) known: CarriedOver,
    pub(super) configs: Vec<GroupConfig<'a>>,
    pub(super) statuses: Vec<GroupStatus<'a>>,
    /// Kind, byte offset, text.
    pub(super) notes: Vec<(NoteKind, usize, String)>,
    groups: Vec<GroupKey<'a>>,
    group_index: Index,
    frame_index: Index,
    stack_index: Index,
    signature_index: Index,
    indexed: Indexed,
    threads: BTreeSet<u64>,
    budget: usize,
    /// Scratch for whole stacks.
    pub(super) stack: Vec<u32>,
}

impl<'a> Build<'a> {
    /// For a file of `size_bytes`. Tables may take a few times as much, which honest dumps are far from; small files
    /// name a path once and use it often, hence the floor.
    pub(super) fn new(size_bytes: usize, known: CarriedOver) -> Self {
        Self {
            dump: FlightDump::default(),
            known,
            configs: Vec::new(),
            statuses: Vec::new(),
            notes: Vec::new(),
            groups: Vec::new(),
            group_index: Index::default(),
            frame_index: Index::default(),
            stack_index: Index::default(),
            signature_index: Index::default(),
            indexed: Indexed::default(),
            threads: BTreeSet::new(),
            budget: size_bytes.saturating_mul(12).saturating_add(8 << 20),
            stack: Vec::new(),
        }
    }

    /// Takes `cost` bytes or units of work from what this file may cause.
    pub(super) fn charge(&mut self, cost: usize) -> Result<(), OverBudget> {
        self.budget = self.budget.checked_sub(cost).ok_or(OverBudget)?;
        Ok(())
    }

    pub(super) fn note(&mut self, kind: NoteKind, offset: usize, text: impl Into<String>) {
        if self.notes.len() < 64 {
            self.notes.push((kind, offset, text.into()));
        }
    }

    /// Makes findable what was put into the tables without being looked for.
    fn index(&mut self) {
        let Self { known, indexed, .. } = self;
        for (at, frame) in known.frames.items().iter().enumerate().skip(indexed.frames) {
            let hash = hash_of(&(frame.function.as_bytes(), frame.file.as_bytes(), frame.line));
            self.frame_index.place(hash, at as u32, |_| false);
        }
        for (at, stack) in known.stacks.items().iter().enumerate().skip(indexed.stacks) {
            self.stack_index.place(hash_of(&**stack), at as u32, |_| false);
        }
        for (at, signature) in known.signatures.items().iter().enumerate().skip(indexed.signatures) {
            self.signature_index.place(hash_of(signature), at as u32, |_| false);
        }
        self.indexed = Indexed::of(&self.known);
    }

    pub(super) fn frame(&mut self, function: &[u8], file: &[u8], line: u32) -> Result<u32, OverBudget> {
        if self.indexed.frames < self.known.frames.len() {
            self.index();
        }
        self.charge((function.len() + file.len()) / 64)?;
        let is_same =
            |f: &Frame| f.line == line && f.function.as_bytes() == function && f.file.as_bytes() == file;
        let frames = &self.known.frames;
        let next = frames.len() as u32;
        let hash = hash_of(&(function, file, line));
        let place = self.frame_index.place(hash, next, |at| frames.get(at).is_some_and(is_same));
        if place == next {
            self.charge(64 + function.len() + file.len())?;
            let make = || Frame { function: text(function), file: text(file), line };
            self.known.frames.push(is_same, make);
            self.indexed.frames += 1;
        }
        Ok(place)
    }

    /// Interns `self.stack`.
    pub(super) fn stack(&mut self) -> Result<u32, OverBudget> {
        if self.indexed.stacks < self.known.stacks.len() {
            self.index();
        }
        self.charge(self.stack.len() / 8)?;
        let stack = self.stack.as_slice();
        let stacks = &self.known.stacks;
        let next = stacks.len() as u32;
        let place =
            self.stack_index.place(hash_of(stack), next, |at| stacks.get(at).is_some_and(|s| **s == *stack));
        if place == next {
            self.charge(48 + self.stack.len() * 4)?;
            let stack = self.stack.as_slice();
            self.known.stacks.push(|s| **s == *stack, || stack.into());
            self.indexed.stacks += 1;
        }
        Ok(place)
    }

    /// `profiling_name` and tensors.
    pub(super) fn signature(&mut self, profiling_name: &[u8], tensors: Tensors) -> Result<u32, OverBudget> {
        if self.indexed.signatures < self.known.signatures.len() {
            self.index();
        }
        let cost = tensors.cost() + profiling_name.len();
        self.charge(cost / 64)?;
        let name = String::from_utf8_lossy(profiling_name);
        let name = name.strip_prefix("nccl:").unwrap_or(&name);
        let kind = OpKind::from_profiling_name(name);
        let (me, peer) = pair(kind, name).unzip();
        let says_more = name != kind.name() && pair(kind, name).is_none();
        let signature = Signature {
            kind,
            name: if says_more { bounded(name) } else { Box::default() },
            peer,
            me,
            input_sizes: tensors.input_sizes,
            output_sizes: tensors.output_sizes,
            input_dtypes: tensors.input_dtypes,
            output_dtypes: tensors.output_dtypes,
        };
        let signatures = &self.known.signatures;
        let next = signatures.len() as u32;
        let place = self
            .signature_index
            .place(hash_of(&signature), next, |at| signatures.get(at).is_some_and(|s| *s == signature));
        if place == next {
            self.charge(cost)?;
            self.known.signatures.push(|s| *s == signature, || signature.clone());
            self.indexed.signatures += 1;
        }
        Ok(place)
    }

    pub(super) fn group(&mut self, key: GroupKey<'a>) -> Result<u16, OverBudget> {
        self.charge((key.name.len() + key.desc.len()) / 64)?;
        let groups = &self.groups;
        let next = groups.len() as u32;
        let place = self.group_index.place(hash_of(&key), next, |at| groups.get(at as usize) == Some(&key));
        if place == next {
            if next as usize >= MAX_GROUPS {
                return Err(OverBudget);
            }
            self.charge(160 + key.name.len() + key.desc.len())?;
            self.groups.push(key);
        }
        Ok(place as u16)
    }

    /// `thread_id`: a pthread handle in decimal.
    pub(super) fn thread(&mut self, id: &[u8]) {
        if let Some(id) = decimal(id)
            && self.threads.len() < MAX_THREADS
        {
            self.threads.insert(id);
        }
    }

    /// A group of `pg_config`; `list` is its list of ranks as a text, if it is one.
    pub(super) fn config(&mut self, mut config: GroupConfig<'a>, list: Option<&[u8]>) {
        if let Some(list) = list {
            if let Some(ranks) = self.known.lists.read(list) {
                config.ranks = ranks;
            } else {
                let list: String = text(list).chars().take(80).collect();
                let name = text(if config.name.is_empty() { config.key } else { config.name });
                self.note(
                    NoteKind::Malformed,
                    0,
                    format!("the ranks of group `{name}` could not be read: `{list}`"),
                );
            }
        }
        self.configs.push(config);
    }

    /// Notes a state that no known version writes.
    pub(super) fn unknown_state(&mut self, state: &[u8], offset: usize) {
        let state: String = text(state).chars().take(40).collect();
        self.note(
            NoteKind::UnknownVersion,
            offset,
            format!("the state `{state}` is not known; taken for scheduled"),
        );
    }

    /// Joins groups and closes the dump.
    ///
    /// `pg_config` is keyed by the group's name and `pg_status` by `pg_id`, this process's creation number; only
    /// entries state both.
    pub(super) fn finish(mut self) -> (FlightDump, Vec<(NoteKind, usize, String)>, CarriedOver) {
        let mut groups: Vec<FlightGroup> = self
            .groups
            .iter()
            .map(|key| FlightGroup {
                id: if key.id < 0 { Box::default() } else { key.id.to_string().into() },
                name: text(key.name),
                desc: text(key.desc),
                ..FlightGroup::default()
            })
            .collect();
        let mut rest = Vec::new();
        for config in &self.configs {
            let mut is_used = false;
            for (group, key) in groups.iter_mut().zip(&self.groups) {
                let is_same_desc = key.desc.is_empty() || config.desc.is_empty() || key.desc == config.desc;
                if (key.name == config.name || key.name == config.key) && is_same_desc {
                    group.ranks.clone_from(&config.ranks);
                    if group.desc.is_empty() {
                        group.desc = text(config.desc);
                    }
                    is_used = true;
                }
            }
            if !is_used {
                rest.push(config);
            }
        }
        let mut unused: Vec<&GroupStatus<'_>> = Vec::new();
        for status in &self.statuses {
            match groups.iter_mut().find(|g| g.id.as_bytes() == status.key) {
                Some(group) => status.put(group),
                None => unused.push(status),
            }
        }
        // Groups without entries: creation numbers and the numbers that name groups rise together.
        let mut pairs: Vec<Option<&GroupStatus<'_>>> = Vec::new();
        if unused.len() == rest.len()
            && unused.iter().all(|s| decimal(s.key).is_some())
            && rest.iter().all(|c| decimal(c.key).is_some())
        {
            unused.sort_by_key(|s| decimal(s.key));
            rest.sort_by_key(|c| decimal(c.key));
            pairs.extend(unused.drain(..).map(Some));
        } else {
            for config in &rest {
                let at = unused.iter().position(|s| s.key == config.key);
                pairs.push(at.map(|at| unused.remove(at)));
            }
        }
        let lone = unused.into_iter().map(|s| (None, Some(s)));
        for (config, status) in rest.into_iter().map(Some).zip(pairs).chain(lone) {
            if groups.len() >= MAX_GROUPS * 2 {
                self.note(
                    NoteKind::LimitReached,
                    0,
                    "more process groups than are kept; the rest was left out",
                );
                break;
            }
            let mut group = FlightGroup {
                id: status.map(|s| s.key).or(config.map(|c| c.key)).map(text).unwrap_or_default(),
                ..FlightGroup::default()
            };
            if let Some(config) = config {
                group.name = text(if config.name.is_empty() { config.key } else { config.name });
                group.desc = text(config.desc);
                group.ranks.clone_from(&config.ranks);
            }
            if let Some(status) = status {
                status.put(&mut group);
            }
            groups.push(group);
        }
        self.dump.groups = groups;
        self.dump.frames = self.known.frames.finish();
        self.dump.stacks = self.known.stacks.finish();
        self.dump.signatures = self.known.signatures.finish();
        self.dump.thread_ids = self.threads.into_iter().collect();
        (self.dump, self.notes, self.known)
    }
}

impl GroupStatus<'_> {
    /// Sets one number; -1 means none.
    pub(super) fn set(&mut self, key: &[u8], n: Option<i64>) {
        let n = n.filter(|n| *n >= 0);
        match key {
            b"last_enqueued_collective" => self.enqueued = n,
            b"last_started_collective" => self.started = n,
            b"last_completed_collective" => self.completed = n,
            _ => {}
        }
    }

    fn put(&self, group: &mut FlightGroup) {
        group.last_enqueued = self.enqueued;
        group.last_started = self.started;
        group.last_completed = self.completed;
    }
}

/// An entry with nothing known yet.
pub(super) const BLANK: FlightOp = FlightOp {
    created_ns: 0,
    started_ns: 0,
    completed_ns: 0,
    seq: 0,
    p2p_seq: 0,
    record_id: 0,
    signature: 0,
    stack: 0,
    timeout_ms: 0,
    duration_us: 0,
    group: 0,
    state: OpState::Scheduled,
    flags: 0,
};

/// (me, peer) of `send 1->2` and `recv 3<-0`.
fn pair(kind: OpKind, name: &str) -> Option<(GroupRank, GroupRank)> {
    let arrow = match kind {
        OpKind::Send => "->",
        OpKind::Recv => "<-",
        _ => return None,
    };
    let (me, peer) = name.split_once(' ')?.1.split_once(arrow)?;
    Some((GroupRank(me.trim().parse().ok()?), GroupRank(peer.trim().parse().ok()?)))
}

/// Text of a name, bounded.
pub(super) fn text(bytes: &[u8]) -> Box<str> {
    if let (Ok(name), true) = (std::str::from_utf8(bytes), bytes.len() <= MAX_NAME_CHARS) {
        return name.into();
    }
    bounded(&String::from_utf8_lossy(bytes.get(..MAX_NAME_CHARS * 4).unwrap_or(bytes)))
}

fn bounded(name: &str) -> Box<str> {
    if name.len() <= MAX_NAME_CHARS {
        return name.into();
    }
    match name.char_indices().nth(MAX_NAME_CHARS) {
        Some((at, _)) => name.get(..at).unwrap_or_default().into(),
        None => name.into(),
    }
}

/// A decimal number and nothing else.
pub(super) fn decimal(bytes: &[u8]) -> Option<u64> {
    std::str::from_utf8(bytes).ok().filter(|s| s.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()
}

/// Ranks as numbers.
pub(super) fn rank_numbers(list: impl Iterator<Item = Option<i64>>) -> Arc<[Rank]> {
    list.take(MAX_RANKS).map_while(|n| u32::try_from(n?).ok().map(Rank)).collect()
}

/// Milliseconds as microseconds; a recorded duration is never 0.
pub(super) fn duration_us(ms: f64) -> u32 {
    if ms.is_finite() && ms >= 0.0 { ((ms * 1000.0).round() as u32).max(1) } else { 0 }
}

/// A count or size; what does not fit is the nearest that does.
pub(super) fn count(n: i64) -> u32 {
    u32::try_from(n.max(0)).unwrap_or(u32::MAX)
}

/// `completed` and the like.
pub(super) fn state(name: &[u8]) -> Option<OpState> {
    match name {
        b"scheduled" => Some(OpState::Scheduled),
        b"started" => Some(OpState::Started),
        b"completed" => Some(OpState::Completed),
        _ => None,
    }
}

/// The rank in a file's own name: `nccl_trace_rank_3`, `dumps.tar!fr/rank7.json.gz`.
pub(super) fn name_hint(name: &str) -> Option<Rank> {
    let mut own = name.rsplit(['/', '!']).next()?;
    while let Some((stem, extension)) = own.rsplit_once('.') {
        if !matches!(extension, "json" | "pkl" | "pickle" | "bin" | "gz" | "zst") {
            break;
        }
        own = stem;
    }
    let digits = own.len() - own.bytes().rev().take_while(u8::is_ascii_digit).count();
    own.get(digits..)?.parse().ok().map(Rank)
}
