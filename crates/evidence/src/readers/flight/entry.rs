//! Entries of a dump in the layout torch writes, read straight from the bytes.
//!
//! Torch's pickler puts only strings and frame dicts into the memo, so from the second entry on an entry is about 75
//! opcodes; all but a handful repeat byte for byte: `}(` then per key `h`+place and its value, then `u`. The same bytes
//! mean the same while no place of the memo changes. So an entry is first compared with the template that came next the
//! last time ([`super::template`]); failing that it is read field by field here, with whole stacks and all shapes and
//! types of a call recognised as byte strings; and anything unexpected sends it to the general machine.

use ringleader_model::{FlightOp, OpState};

use super::build::{self, BLANK, GroupKey, OverBudget};
use super::learned::{CallShapes, Draft, Learned};
use super::lesson::{EntryStep, MemoSizes};
use super::machine::{PickleEnd, PickleMachine, long};
use super::memo::{Keyword, Memo, StackValue};
use super::template::{MAX_VARYING, Template, ValueSpan, Varying};
use crate::ground::intern::hash_of;

/// Dimensions and tensors of one call that are kept.
const MAX_DIMS: usize = 1 << 16;

/// Memo place of a string that has none.
const NO_PLACE: u32 = u32::MAX;
/// Not read yet.
const UNSET: u32 = u32::MAX;

/// A string: its text, what it means as a key, its memo place.
#[derive(Clone, Copy)]
struct Text<'a> {
    bytes: &'a [u8],
    word: Keyword,
    at: u32,
}

/// Reads forward; None = not what was expected.
#[derive(Clone, Copy)]
struct Cursor<'a> {
    rest: &'a [u8],
    /// Something was put into the memo, so the same bytes will not recur.
    has_put: bool,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn eat(&mut self, literal: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(literal)?;
        Some(())
    }

    #[inline]
    fn next_is(&mut self, byte: u8) -> bool {
        match self.rest {
            [first, rest @ ..] if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// Place named by a memo reference.
    #[inline]
    fn place(&mut self) -> Option<u32> {
        match self.rest {
            [b'h', at, rest @ ..] => {
                self.rest = rest;
                Some((*at).into())
            }
            [b'j', a, b, c, d, rest @ ..] => {
                self.rest = rest;
                Some(u32::from_le_bytes([*a, *b, *c, *d]))
            }
            _ => None,
        }
    }

    /// Place into which the value before goes.
    #[inline]
    fn put(&mut self) -> Option<u32> {
        match self.rest {
            [b'q', at, rest @ ..] => {
                self.rest = rest;
                Some((*at).into())
            }
            [b'r', a, b, c, d, rest @ ..] => {
                self.rest = rest;
                Some(u32::from_le_bytes([*a, *b, *c, *d]))
            }
            _ => None,
        }
    }

    #[inline]
    fn text(&mut self, memo: &mut Memo<'a>) -> Option<Text<'a>> {
        if let Some(at) = self.place() {
            let slot = memo.get(at)?;
            return match slot.value {
                StackValue::Str(text) => Some(Text { bytes: text, word: slot.word, at }),
                _ => None,
            };
        }
        self.new_text(memo)
    }

    #[cold]
    fn new_text(&mut self, memo: &mut Memo<'a>) -> Option<Text<'a>> {
        let (text, at) = self.spelled()?;
        if at != NO_PLACE {
            self.has_put = true;
            memo.put(at as usize, StackValue::Str(text)).then_some(())?;
        }
        Some(Text { bytes: text, word: Keyword::of(text), at })
    }

    /// A string at this place, and the place it goes to.
    fn spelled(&mut self) -> Option<(&'a [u8], u32)> {
        let (text, rest) = match self.rest {
            [b'X', a, b, c, d, rest @ ..] => {
                rest.split_at_checked(u32::from_le_bytes([*a, *b, *c, *d]) as usize)?
            }
            [0x8c, n, rest @ ..] => rest.split_at_checked((*n).into())?,
            _ => return None,
        };
        self.rest = rest;
        Some((text, self.put().unwrap_or(NO_PLACE)))
    }

    /// The same as [`Self::text`] in an entry that was read before: nothing is put into the memo.
    fn text_of(&mut self, memo: &Memo<'a>) -> Option<Text<'a>> {
        let (bytes, at) = if let Some(at) = self.place() {
            let StackValue::Str(text) = memo.get(at)?.value else { return None };
            (text, at)
        } else {
            self.spelled()?
        };
        Some(Text { bytes, word: Keyword::of(bytes), at })
    }

    #[inline]
    fn int(&mut self) -> Option<i64> {
        let (n, rest) = match self.rest {
            [0x8a, 8, rest @ ..] => {
                let (digits, rest) = rest.split_first_chunk::<8>()?;
                (i64::from_le_bytes(*digits), rest)
            }
            [b'K', a, rest @ ..] => ((*a).into(), rest),
            [b'M', a, b, rest @ ..] => (u16::from_le_bytes([*a, *b]).into(), rest),
            [b'J', a, b, c, d, rest @ ..] => (i32::from_le_bytes([*a, *b, *c, *d]).into(), rest),
            [0x8a, n, rest @ ..] => {
                let (digits, rest) = rest.split_at_checked((*n).into())?;
                let StackValue::Int(n) = long(digits) else { return None };
                (n, rest)
            }
            _ => return None,
        };
        self.rest = rest;
        Some(n)
    }

    /// A number, or 0 for None.
    #[inline]
    fn int_or_none(&mut self) -> Option<i64> {
        if self.next_is(b'N') { Some(0) } else { self.int() }
    }

    #[inline]
    fn varying(&mut self, field: Varying, op: &mut FlightOp) -> Option<()> {
        match field {
            Varying::RecordId => op.record_id = build::count(self.int()?),
            Varying::Seq => op.seq = build::count(self.int()?),
            Varying::P2pSeq => op.p2p_seq = build::count(self.int()?),
            Varying::OpId => drop(self.int()?),
            Varying::Created => op.created_ns = self.int_or_none()?,
            Varying::Started => op.started_ns = self.int_or_none()?,
            Varying::Completed => op.completed_ns = self.int_or_none()?,
            Varying::Duration => op.duration_us = self.duration_us()?,
        }
        Some(())
    }

    /// Passes over a value: a string, a number, None, a list or a dict of such.
    fn pass_over(&mut self, memo: &mut Memo<'a>) -> Option<()> {
        let mut depth = 0_u32;
        loop {
            if self.eat(b"](").is_some() || self.eat(b"}(").is_some() {
                depth = depth.checked_add(1)?;
            } else if depth > 0 && (self.next_is(b'e') || self.next_is(b'u')) {
                depth -= 1;
            } else if let Some(at) = self.place() {
                memo.get(at)?;
            } else if matches!(self.rest, [b'X' | 0x8c, ..]) {
                self.new_text(memo)?;
            } else if self.bool().is_none() {
                self.duration_us()?;
            }
            if depth == 0 {
                return Some(());
            }
        }
    }

    fn bool(&mut self) -> Option<bool> {
        if self.next_is(0x88) {
            Some(true)
        } else if self.next_is(0x89) {
            Some(false)
        } else {
            None
        }
    }

    fn duration_us(&mut self) -> Option<u32> {
        match self.rest {
            [b'G', rest @ ..] => {
                let (digits, rest) = rest.split_first_chunk::<8>()?;
                self.rest = rest;
                Some(build::duration_us(f64::from_be_bytes(*digits)))
            }
            [b'N', rest @ ..] => {
                self.rest = rest;
                Some(0)
            }
            _ => self.int().map(|n| build::duration_us(n as f64)),
        }
    }
}

/// Calls `fix` with every place of the memo that an entry refers to, but for those of a group's name and description
/// and of a thread's handle. None if it is not as expected.
pub(super) fn refs<'a>(entry: &'a [u8], memo: &Memo<'a>, mut fix: impl FnMut(u32)) -> Option<()> {
    let mut cursor = Cursor { rest: entry, has_put: false };
    cursor.eat(b"}(")?;
    while !cursor.next_is(b'u') {
        let key = cursor.text_of(memo)?;
        fix(key.at);
        match key.word {
            Keyword::ProcessGroup => {
                cursor.text_of(memo)?;
                cursor.text_of(memo)?;
                cursor.eat(&[0x86])?;
            }
            Keyword::ThreadId => drop(cursor.text_of(memo)?),
            _ => {
                let mut depth = 0_u32;
                loop {
                    if cursor.eat(b"](").is_some() || cursor.eat(b"}(").is_some() {
                        depth = depth.checked_add(1)?;
                    } else if depth > 0 && cursor.next_is(b'e') {
                        depth -= 1;
                    } else if depth > 0 && cursor.next_is(b'u') {
                        depth -= 1;
                        cursor.put();
                    } else if let Some(at) = cursor.place() {
                        fix(at);
                    } else if matches!(cursor.rest, [b'X' | 0x8c, ..]) {
                        fix(cursor.text_of(memo)?.at);
                    } else if cursor.bool().is_none() {
                        cursor.duration_us()?;
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
        }
    }
    Some(())
}

/// Why an entry was not read here.
enum Miss {
    Unexpected,
    Over(OverBudget),
}

impl From<OverBudget> for Miss {
    fn from(over: OverBudget) -> Self {
        Self::Over(over)
    }
}

impl<'a> PickleMachine<'a> {
    /// Reads entries as long as they are as expected; what comes next is for the general machine.
    pub(super) fn read_entries(&mut self) -> Result<(), PickleEnd> {
        self.begin_entries();
        // Of the entry before.
        let mut n_bytes = 0;
        while self.rest.first() == Some(&b'}') {
            if self.learned.generation != self.memo.generation {
                self.learned = Learned { generation: self.memo.generation, ..Learned::default() };
                self.capture = None;
                self.follower = None;
            }
            let before = self.rest.len();
            let ops = &mut self.build.dump.ops;
            if ops.len() == ops.capacity() {
                // Entries are alike in size: room for the rest at once, and pages only when they are used.
                let n_left = before / n_bytes.max(64);
                ops.reserve_exact(if ops.is_empty() { n_left.min(60) } else { n_left + n_left / 16 } + 4);
            }
            if self.follow().is_some() {
                n_bytes = before - self.rest.len();
                continue;
            }
            let ops = &mut self.build.dump.ops;
            if let Some(rest) = self.learned.templates.read(self.bytes, self.rest, ops) {
                self.rest = rest;
            } else {
                let mut cursor = Cursor { rest: self.rest, has_put: false };
                match self.entry(&mut cursor) {
                    Ok(op) => {
                        self.rest = cursor.rest;
                        self.build.dump.ops.push(op);
                    }
                    Err(Miss::Unexpected) => break,
                    Err(Miss::Over(over)) => return Err(over.into()),
                }
            }
            n_bytes = before - self.rest.len();
        }
        Ok(())
    }

    fn entry(&mut self, cursor: &mut Cursor<'a>) -> Result<FlightOp, Miss> {
        let start = cursor.rest;
        let state = self.state();
        let mut draft = Draft {
            varying: [ValueSpan::default(); MAX_VARYING],
            n_varying: 0,
            op: FlightOp { stack: UNSET, ..BLANK },
            is_empty: true,
            pg_id: -1,
            name_at: NO_PLACE,
            desc_at: NO_PLACE,
            thread_at: NO_PLACE,
            call: UNSET,
            call_name_at: NO_PLACE,
        };
        cursor.eat(b"}(").ok_or(Miss::Unexpected)?;
        while !cursor.next_is(b'u') {
            self.field(cursor, &mut draft, start)?;
        }
        // A dict goes on in a second batch, or into the memo: not torch's layout.
        if draft.is_empty || !matches!(cursor.rest.first(), Some(b'}' | b'e')) {
            return Err(Miss::Unexpected);
        }
        if draft.op.stack == UNSET {
            self.build.stack.clear();
            draft.op.stack = self.build.stack()?;
        }
        draft.op.group = self.group_at((draft.pg_id, draft.name_at, draft.desc_at))?;
        draft.op.signature = self.signature_of(&draft)?;
        self.teach(&draft, state, start, cursor);
        Ok(draft.op)
    }

    /// Learns from an entry that was read.
    fn teach(&mut self, draft: &Draft, before: MemoSizes, start: &'a [u8], cursor: &Cursor<'a>) {
        // What puts something into the memo will not recur, unless in another dump.
        let is_teaching = !cursor.has_put || self.capture.is_some() || self.follower.is_some();
        let entry = start.get(..start.len() - cursor.rest.len()).unwrap_or_default();
        let varying = draft.varying.get(..draft.n_varying).unwrap_or_default();
        let at = self.bytes.len() - start.len();
        let template = if is_teaching { Template::new(at, entry, varying, &draft.op) } else { None };
        let mut fixed = std::mem::take(&mut self.learned.fixed);
        if let Some(template) = &template {
            template.fix(entry, &mut fixed);
        }
        let is_known = self.find_way(template.as_ref(), &fixed);
        let keeps = !cursor.has_put || self.capture.is_some();
        if let Some(template) = template.filter(|_| keeps && !is_known) {
            let is_new = self.learned.templates.learn(self.bytes, template, &fixed);
            let after = self.state();
            if let Some(capture) = self.capture.as_mut().filter(|_| is_new) {
                capture.add(EntryStep::new(before, after, draft));
            }
        } else {
            self.learned.templates.forget_last();
        }
        self.learned.fixed = fixed;
    }

    #[inline]
    fn field(&mut self, cursor: &mut Cursor<'a>, draft: &mut Draft, start: &'a [u8]) -> Result<(), Miss> {
        let unexpected = Miss::Unexpected;
        let key = cursor.text(&mut self.memo).ok_or(Miss::Unexpected)?;
        let op = &mut draft.op;
        if let Some(field) = Varying::of(key.word) {
            let from = start.len() - cursor.rest.len();
            cursor.varying(field, op).ok_or(Miss::Unexpected)?;
            let span = draft.varying.get_mut(draft.n_varying).ok_or(Miss::Unexpected)?;
            *span = ValueSpan { field, from: from as u32, to: (start.len() - cursor.rest.len()) as u32 };
            draft.n_varying += 1;
            draft.is_empty &= field != Varying::RecordId;
            return Ok(());
        }
        match key.word {
            Keyword::Frames => op.stack = self.frames(cursor)?,
            Keyword::PgId => draft.pg_id = cursor.int().ok_or(unexpected)?,
            Keyword::ProcessGroup => {
                draft.name_at = cursor.text(&mut self.memo).ok_or(Miss::Unexpected)?.at;
                draft.desc_at = cursor.text(&mut self.memo).ok_or(Miss::Unexpected)?.at;
                cursor
                    .eat(&[0x86])
                    .filter(|()| draft.name_at.max(draft.desc_at) != NO_PLACE)
                    .ok_or(unexpected)?;
            }
            Keyword::ThreadId => {
                draft.thread_at = cursor.text(&mut self.memo).ok_or(unexpected)?.at;
                self.count_thread(draft.thread_at);
            }
            Keyword::ThreadName => drop(cursor.text(&mut self.memo).ok_or(unexpected)?),
            Keyword::ProfilingName => {
                draft.call_name_at =
                    cursor.text(&mut self.memo).filter(|t| t.at != NO_PLACE).ok_or(unexpected)?.at;
                draft.is_empty = false;
            }
            Keyword::InputSizes if draft.call == UNSET => draft.call = self.call(cursor)?,
            Keyword::State => {
                op.state = match cursor.text(&mut self.memo).ok_or(Miss::Unexpected)?.word {
                    Keyword::IsScheduled => OpState::Scheduled,
                    Keyword::IsStarted => OpState::Started,
                    Keyword::IsCompleted => OpState::Completed,
                    _ => return Err(unexpected),
                };
            }
            Keyword::Retired => op.flags |= u8::from(cursor.bool().ok_or(unexpected)?) * FlightOp::RETIRED,
            Keyword::Timeout => op.timeout_ms = build::count(cursor.int_or_none().ok_or(unexpected)?),
            Keyword::IsP2p => op.flags |= u8::from(cursor.bool().ok_or(unexpected)?) * FlightOp::P2P,
            // A field that a newer version added.
            Keyword::Other => cursor.pass_over(&mut self.memo).ok_or(unexpected)?,
            _ => return Err(unexpected),
        }
        Ok(())
    }

    /// `](` frames `e`.
    #[inline]
    fn frames(&mut self, cursor: &mut Cursor<'a>) -> Result<u32, Miss> {
        cursor.eat(b"](").ok_or(Miss::Unexpected)?;
        let start = cursor.rest;
        let mut probe = *cursor;
        while probe.place().is_some() {}
        if probe.next_is(b'e') {
            let span = start.get(..start.len() - probe.rest.len()).unwrap_or_default();
            if let Some(stack) = self.learned.stacks.find(span) {
                cursor.rest = probe.rest;
                return Ok(stack);
            }
        }
        self.new_frames(cursor, start)
    }

    #[cold]
    fn new_frames(&mut self, cursor: &mut Cursor<'a>, start: &'a [u8]) -> Result<u32, Miss> {
        let had_put = std::mem::take(&mut cursor.has_put);
        self.build.stack.clear();
        while !cursor.next_is(b'e') {
            let frame = if let Some(at) = cursor.place() {
                match self.memo.get(at).map(|slot| slot.value) {
                    Some(StackValue::Frame(frame)) => frame,
                    _ => return Err(Miss::Unexpected),
                }
            } else {
                self.new_frame(cursor)?
            };
            if self.build.stack.len() >= build::MAX_FRAMES {
                return Err(Miss::Over(OverBudget));
            }
            self.build.stack.push(frame);
        }
        let stack = self.build.stack()?;
        if !cursor.has_put {
            self.learned
                .stacks
                .learn(start.get(..start.len() - cursor.rest.len()).unwrap_or_default(), stack);
        }
        cursor.has_put |= had_put;
        Ok(stack)
    }

    /// `}(` name, file and line `u`, and its place in the memo.
    fn new_frame(&mut self, cursor: &mut Cursor<'a>) -> Result<u32, Miss> {
        cursor.eat(b"}(").ok_or(Miss::Unexpected)?;
        let (mut function, mut file, mut line): (&[u8], &[u8], u32) = (b"", b"", 0);
        while !cursor.next_is(b'u') {
            match cursor.text(&mut self.memo).ok_or(Miss::Unexpected)?.word {
                Keyword::FrameName => function = cursor.text(&mut self.memo).ok_or(Miss::Unexpected)?.bytes,
                Keyword::FrameFile => file = cursor.text(&mut self.memo).ok_or(Miss::Unexpected)?.bytes,
                Keyword::FrameLine => line = build::count(cursor.int().ok_or(Miss::Unexpected)?),
                _ => return Err(Miss::Unexpected),
            }
        }
        let frame = self.build.frame(function, file, line)?;
        if let Some(at) = cursor.put() {
            cursor.has_put = true;
            if !self.memo.put(at as usize, StackValue::Frame(frame)) {
                return Err(Miss::Unexpected);
            }
        }
        Ok(frame)
    }

    /// From the value of `input_sizes` to the last value of the sizes and types.
    fn call(&mut self, cursor: &mut Cursor<'a>) -> Result<u32, Miss> {
        let start = cursor.rest;
        let had_put = std::mem::take(&mut cursor.has_put);
        self.learned.dims.clear();
        self.learned.shapes.iter_mut().for_each(Vec::clear);
        self.learned.dtypes.iter_mut().for_each(Vec::clear);
        self.sizes(cursor, 0)?;
        let mut seen = 1_u8;
        loop {
            let mut ahead = *cursor;
            // A key that is new to the memo is put there by the look ahead too, in the same place with the same text.
            let Some(key) = ahead.text(&mut self.memo) else { break };
            let bit = match key.word {
                Keyword::InputDtypes => 2,
                Keyword::OutputSizes => 4,
                Keyword::OutputDtypes => 8,
                _ => break,
            };
            if seen & bit != 0 {
                return Err(Miss::Unexpected);
            }
            seen |= bit;
            *cursor = ahead;
            match bit {
                2 => self.dtypes(cursor, 0)?,
                4 => self.sizes(cursor, 1)?,
                _ => self.dtypes(cursor, 1)?,
            }
        }
        let span = start.get(..start.len() - cursor.rest.len()).unwrap_or_default();
        let call = match (cursor.has_put, self.learned.calls.find(span)) {
            (false, Some(call)) => call,
            (has_put, _) => {
                let tensors = self.learned.tensors();
                self.build.charge(64 + span.len())?;
                let call = self.learned.call_list.len() as u32;
                self.learned.call_list.push(CallShapes { tensors, name_at: NO_PLACE, signature: 0 });
                if !has_put {
                    self.learned.calls.learn(span, call);
                }
                call
            }
        };
        cursor.has_put |= had_put;
        Ok(call)
    }

    /// `](` shapes `e`, a shape being `](` numbers `e`.
    fn sizes(&mut self, cursor: &mut Cursor<'a>, side: usize) -> Result<(), Miss> {
        cursor.eat(b"](").ok_or(Miss::Unexpected)?;
        while !cursor.next_is(b'e') {
            cursor.eat(b"](").ok_or(Miss::Unexpected)?;
            while !cursor.next_is(b'e') {
                let n = cursor.int().and_then(|n| u64::try_from(n).ok()).ok_or(Miss::Unexpected)?;
                self.learned.dims.push(n);
            }
            let end = self.learned.dims.len();
            let shapes = self.learned.shapes.get_mut(side).ok_or(Miss::Unexpected)?;
            shapes.push(end as u32);
            if end > MAX_DIMS || shapes.len() > MAX_DIMS {
                return Err(Miss::Over(OverBudget));
            }
        }
        Ok(())
    }

    fn dtypes(&mut self, cursor: &mut Cursor<'a>, side: usize) -> Result<(), Miss> {
        cursor.eat(b"](").ok_or(Miss::Unexpected)?;
        while !cursor.next_is(b'e') {
            let name = cursor.text(&mut self.memo).ok_or(Miss::Unexpected)?.bytes;
            let dtypes = self.learned.dtypes.get_mut(side).ok_or(Miss::Unexpected)?;
            dtypes.push(name);
            if dtypes.len() > MAX_DIMS {
                return Err(Miss::Over(OverBudget));
            }
        }
        Ok(())
    }

    /// Counts the thread whose handle is in this place of the memo.
    #[inline]
    pub(super) fn count_thread(&mut self, at: u32) {
        if let Some(slot) = self.memo.get_mut(at)
            && !slot.is_counted
            && let StackValue::Str(id) = slot.value
        {
            slot.is_counted = true;
            self.build.thread(id);
        }
    }

    /// The group of this `pg_id` and these places of its name and description.
    #[inline]
    pub(super) fn group_at(&mut self, key: (i64, u32, u32)) -> Result<u16, OverBudget> {
        let (id, name, desc, group) = self.learned.group;
        if (id, name, desc) == key && !self.learned.group_list.is_empty() {
            return Ok(group);
        }
        let list = &self.learned.group_list;
        let found = self
            .learned
            .groups
            .find(hash_of(&key), |at| list.get(at as usize).is_some_and(|g| (g.0, g.1, g.2) == key));
        if let Some(known) = found.and_then(|at| list.get(at as usize)) {
            self.learned.group = *known;
            return Ok(known.3);
        }
        let text = |at: u32| match self.memo.get(at).map(|slot| slot.value) {
            Some(StackValue::Str(text)) => text,
            _ => b"",
        };
        let group = self.build.group(GroupKey { id: key.0, name: text(key.1), desc: text(key.2) })?;
        self.learned.group = (key.0, key.1, key.2, group);
        self.learned.groups.place(hash_of(&key), self.learned.group_list.len() as u32, |_| false);
        self.learned.group_list.push(self.learned.group);
        Ok(group)
    }

    #[inline]
    fn signature_of(&mut self, draft: &Draft) -> Result<u32, Miss> {
        if let Some(call) = self.learned.call_list.get(draft.call as usize)
            && call.name_at == draft.call_name_at
            && call.name_at != NO_PLACE
        {
            return Ok(call.signature);
        }
        self.next_signature(draft)
    }

    fn next_signature(&mut self, draft: &Draft) -> Result<u32, Miss> {
        let key = (draft.call, draft.call_name_at);
        let list = &self.learned.pair_list;
        let next = list.len() as u32;
        let place = self
            .learned
            .pairs
            .place(hash_of(&key), next, |at| list.get(at as usize).is_some_and(|p| (p.0, p.1) == key));
        let signature = if let Some(pair) = list.get(place as usize) {
            pair.2
        } else {
            let name = match self.memo.get(draft.call_name_at).map(|slot| slot.value) {
                Some(StackValue::Str(text)) => text,
                _ => b"",
            };
            let tensors = self
                .learned
                .call_list
                .get(draft.call as usize)
                .map(|c| c.tensors.clone())
                .unwrap_or_default();
            let signature = self.build.signature(name, tensors)?;
            self.learned.pair_list.push((key.0, key.1, signature));
            signature
        };
        if let Some(call) = self.learned.call_list.get_mut(draft.call as usize) {
            call.name_at = draft.call_name_at;
            call.signature = signature;
        }
        Ok(signature)
    }
}
