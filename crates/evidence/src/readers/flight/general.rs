//! Entries that the general machine read: any key order, any protocol, unknown keys passed over.

use ringleader_model::{FlightOp, NoteKind};

use super::build::{self, BLANK, GroupKey, OverBudget, Tensors};
use super::machine::{End, Machine, Node};
use super::memo::{Value, Word};

impl<'a> Machine<'a> {
    /// An entry that the general machine read; unknown keys are passed over.
    pub(super) fn read_entry_node(&mut self, item: Value<'a>) -> Result<(), End> {
        let Value::Node(at) = item else {
            self.build.note(NoteKind::Malformed, self.offset(), "an entry is not a dict; skipped");
            return Ok(());
        };
        let Some(Node::Dict(items)) = self.nodes.get(at as usize) else {
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
        let int = |value: Value<'a>| if let Value::Int(n) = value { n } else { 0 };
        for (key, value) in items.chunks_exact(2).filter_map(|pair| Some((*pair.first()?, *pair.get(1)?))) {
            let Value::Str(key) = key else { continue };
            match Word::of(key) {
                Word::Frames => self.frames_of(value)?,
                Word::RecordId => {
                    op.record_id = build::count(int(value));
                    is_empty = false;
                }
                Word::PgId => group.id = int(value),
                Word::ProcessGroup => {
                    let mut parts = self
                        .items(value)
                        .iter()
                        .map(|v| if let Value::Str(s) = v { s } else { b"" as &[u8] });
                    group.name = parts.next().unwrap_or_default();
                    group.desc = parts.next().unwrap_or_default();
                }
                Word::ThreadId => match value {
                    Value::Str(id) => self.build.thread(id),
                    Value::Int(id) => self.build.thread(id.to_string().as_bytes()),
                    _ => {}
                },
                Word::Seq => op.seq = build::count(int(value)),
                Word::P2pSeq => op.p2p_seq = build::count(int(value)),
                Word::ProfilingName => {
                    name = if let Value::Str(name) = value { name } else { b"" };
                    is_empty = false;
                }
                Word::Created => op.created_ns = int(value),
                Word::Duration => {
                    op.duration_us = match value {
                        Value::Float(ms) => build::duration_us(ms),
                        Value::Int(ms) => build::duration_us(ms as f64),
                        _ => 0,
                    };
                }
                Word::InputSizes => tensors.input_sizes = self.sizes_of(value)?,
                Word::OutputSizes => tensors.output_sizes = self.sizes_of(value)?,
                Word::InputDtypes => tensors.input_dtypes = self.dtypes_of(value)?,
                Word::OutputDtypes => tensors.output_dtypes = self.dtypes_of(value)?,
                Word::State => {
                    let text = if let Value::Str(text) = value { text } else { b"" };
                    match build::state(text) {
                        Some(state) => op.state = state,
                        None => self.build.unknown_state(text, self.bytes.len() - self.rest.len()),
                    }
                }
                Word::Started => op.started_ns = int(value),
                Word::Completed => op.completed_ns = int(value),
                Word::Retired => op.flags |= u8::from(value == Value::Bool(true)) * FlightOp::RETIRED,
                Word::Timeout => op.timeout_ms = build::count(int(value)),
                Word::IsP2p => op.flags |= u8::from(value == Value::Bool(true)) * FlightOp::P2P,
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
    pub(super) fn items(&self, value: Value<'a>) -> &[Value<'a>] {
        match value {
            Value::Node(at) => self.nodes.get(at as usize).map(Node::items).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Interns the frames of a stack into `build.stack`.
    fn frames_of(&mut self, value: Value<'a>) -> Result<(), OverBudget> {
        let n_frames = self.items(value).len().min(build::MAX_FRAMES);
        self.build.charge(n_frames)?;
        for i in 0..n_frames {
            let Some(item) = self.items(value).get(i).copied() else { break };
            let frame = if let Value::Frame(frame) = item {
                frame
            } else {
                let (mut function, mut file, mut line): (&[u8], &[u8], u32) = (b"", b"", 0);
                for pair in self.items(item).chunks_exact(2).take(16) {
                    match pair {
                        [Value::Str(b"name"), Value::Str(text)] => function = text,
                        [Value::Str(b"filename"), Value::Str(text)] => file = text,
                        [Value::Str(b"line"), Value::Int(n)] => line = build::count(*n),
                        _ => {}
                    }
                }
                self.build.frame(function, file, line)?
            };
            self.build.stack.push(frame);
        }
        Ok(())
    }

    fn sizes_of(&mut self, value: Value<'a>) -> Result<Box<[Box<[u64]>]>, OverBudget> {
        let n_tensors = self.items(value).len();
        self.build.charge(n_tensors / 8)?;
        let mut shapes = Vec::new();
        for i in 0..n_tensors {
            let Some(shape) = self.items(value).get(i).copied() else { break };
            self.build.charge(self.items(shape).len() / 2)?;
            let mut has_negative = false;
            let shape = self.items(shape).iter().map(|n| match n {
                Value::Int(n) => u64::try_from(*n).unwrap_or_else(|_| {
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

    fn dtypes_of(&mut self, value: Value<'a>) -> Result<Box<[Box<str>]>, OverBudget> {
        let cost = |v: &Value<'_>| if let Value::Str(name) = v { 1 + name.len() } else { 1 };
        self.build.charge(self.items(value).iter().map(cost).sum())?;
        Ok(self
            .items(value)
            .iter()
            .map(|v| if let Value::Str(name) = v { build::text(name) } else { "".into() })
            .collect())
    }
}
