//! Entries that the general machine read: any key order, any protocol, unknown keys passed over.

use ringleader_model::{FlightOp, NoteKind};

use super::build::{self, BLANK, GroupKey, OverBudget, Tensors};
use super::machine::{PickleContainer, PickleEnd, PickleMachine};
use super::memo::{Keyword, StackValue};

impl<'a> PickleMachine<'a> {
    /// An entry that the general machine read; unknown keys are passed over.
    pub(super) fn read_entry_node(&mut self, item: StackValue<'a>) -> Result<(), PickleEnd> {
        let StackValue::Node(at) = item else {
            self.build.note(NoteKind::Malformed, self.offset(), "an entry is not a dict; skipped");
            return Ok(());
        };
        let Some(PickleContainer::Dict(items)) = self.nodes.get(at as usize) else {
            self.build.note(NoteKind::Malformed, self.offset(), "an entry is not a dict; skipped");
            return Ok(());
        };
        let mut op = BLANK;
        let mut is_empty = true;
        let mut group = GroupKey { id: -1, ..GroupKey::default() };
        let mut name: &[u8] = b"";
        let mut tensors = Tensors::default();
        let items = items.clone();
        self.build.stack.clear();
        let int = |value: StackValue<'a>| if let StackValue::Int(n) = value { n } else { 0 };
        for (key, value) in items.chunks_exact(2).filter_map(|pair| Some((*pair.first()?, *pair.get(1)?))) {
            let StackValue::Str(key) = key else { continue };
            match Keyword::of(key) {
                Keyword::Frames => self.frames_of(value)?,
                Keyword::RecordId => {
                    op.record_id = build::count(int(value));
                    is_empty = false;
                }
                Keyword::PgId => group.id = int(value),
                Keyword::ProcessGroup => {
                    let mut parts = self
                        .items(value)
                        .iter()
                        .map(|v| if let StackValue::Str(s) = v { s } else { b"" as &[u8] });
                    group.name = parts.next().unwrap_or_default();
                    group.desc = parts.next().unwrap_or_default();
                }
                Keyword::ThreadId => match value {
                    StackValue::Str(id) => self.build.thread(id),
                    StackValue::Int(id) => self.build.thread(id.to_string().as_bytes()),
                    _ => {}
                },
                Keyword::Seq => op.seq = build::count(int(value)),
                Keyword::P2pSeq => op.p2p_seq = build::count(int(value)),
                Keyword::ProfilingName => {
                    name = if let StackValue::Str(name) = value { name } else { b"" };
                    is_empty = false;
                }
                Keyword::Created => op.created_ns = int(value),
                Keyword::Duration => {
                    op.duration_us = match value {
                        StackValue::Float(ms) => build::duration_us(ms),
                        StackValue::Int(ms) => build::duration_us(ms as f64),
                        _ => 0,
                    };
                }
                Keyword::InputSizes => tensors.input_sizes = self.sizes_of(value)?,
                Keyword::OutputSizes => tensors.output_sizes = self.sizes_of(value)?,
                Keyword::InputDtypes => tensors.input_dtypes = self.dtypes_of(value)?,
                Keyword::OutputDtypes => tensors.output_dtypes = self.dtypes_of(value)?,
                Keyword::State => {
                    let text = if let StackValue::Str(text) = value { text } else { b"" };
                    match build::state(text) {
                        Some(state) => op.state = state,
                        None => self.build.unknown_state(text, self.bytes.len() - self.rest.len()),
                    }
                }
                Keyword::Started => op.started_ns = int(value),
                Keyword::Completed => op.completed_ns = int(value),
                Keyword::Retired => op.flags |= u8::from(value == StackValue::Bool(true)) * FlightOp::RETIRED,
                Keyword::Timeout => op.timeout_ms = build::count(int(value)),
                Keyword::IsP2p => op.flags |= u8::from(value == StackValue::Bool(true)) * FlightOp::P2P,
                _ => {}
            }
        }
        if is_empty {
            self.build.note(NoteKind::Malformed, self.offset(), "an entry names no operation; skipped");
            return Ok(());
        }
        op.stack = self.build.stack()?;
        op.group = self.build.group(group)?;
        op.signature = self.build.signature(name, tensors)?;
        self.build.dump.ops.push(op);
        Ok(())
    }

    /// Items of a container; none of anything else.
    pub(super) fn items(&self, value: StackValue<'a>) -> &[StackValue<'a>] {
        match value {
            StackValue::Node(at) => {
                self.nodes.get(at as usize).map(PickleContainer::items).unwrap_or_default()
            }
            _ => &[],
        }
    }

    /// Interns the frames of a stack into `build.stack`.
    fn frames_of(&mut self, value: StackValue<'a>) -> Result<(), OverBudget> {
        let n_frames = self.items(value).len().min(build::MAX_FRAMES);
        self.build.charge(n_frames)?;
        for i in 0..n_frames {
            let Some(item) = self.items(value).get(i).copied() else { break };
            let frame = if let StackValue::Frame(frame) = item {
                frame
            } else {
                let (mut function, mut file, mut line): (&[u8], &[u8], u32) = (b"", b"", 0);
                for pair in self.items(item).chunks_exact(2).take(16) {
                    match pair {
                        [StackValue::Str(b"name"), StackValue::Str(text)] => function = text,
                        [StackValue::Str(b"filename"), StackValue::Str(text)] => file = text,
                        [StackValue::Str(b"line"), StackValue::Int(n)] => line = build::count(*n),
                        _ => {}
                    }
                }
                self.build.frame(function, file, line)?
            };
            self.build.stack.push(frame);
        }
        Ok(())
    }

    fn sizes_of(&mut self, value: StackValue<'a>) -> Result<Box<[Box<[u64]>]>, OverBudget> {
        let n_tensors = self.items(value).len();
        self.build.charge(n_tensors / 8)?;
        let mut shapes = Vec::new();
        for i in 0..n_tensors {
            let Some(shape) = self.items(value).get(i).copied() else { break };
            self.build.charge(self.items(shape).len() / 2)?;
            let mut has_negative = false;
            let shape = self.items(shape).iter().map(|n| match n {
                StackValue::Int(n) => u64::try_from(*n).unwrap_or_else(|_| {
                    has_negative = true;
                    0
                }),
                _ => 0,
            });
            shapes.push(shape.collect());
            if has_negative {
                self.build.note(NoteKind::Malformed, self.offset(), "a negative size; taken for 0");
            }
        }
        Ok(shapes.into())
    }

    fn dtypes_of(&mut self, value: StackValue<'a>) -> Result<Box<[Box<str>]>, OverBudget> {
        let cost = |v: &StackValue<'_>| if let StackValue::Str(name) = v { 1 + name.len() } else { 1 };
        self.build.charge(self.items(value).iter().map(cost).sum())?;
        Ok(self
            .items(value)
            .iter()
            .map(|v| if let StackValue::Str(name) = v { build::text(name) } else { "".into() })
            .collect())
    }
}
