//! Reads pickles as data: nothing is imported or called. An object consists of its class, arguments and state. Covers
//! `.metadata` of torch.distributed.checkpoint and `data.pkl` of `torch.save`.

use std::collections::BTreeMap;

/// Most values in one pickle.
const MAX_VALUES: usize = 20_000_000;

/// Index of a value.
pub type Id = u32;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum PickleValue {
    /// `None`, or a value that is not kept.
    None,
    /// A boolean.
    Bool(bool),
    /// An integer; one that does not fit is [`PickleValue::None`].
    Int(i64),
    /// A floating point number.
    Float(f64),
    /// Text.
    Text(String),
    /// Bytes: only their count.
    Bytes(usize),
    /// A list, tuple or set.
    Items(Vec<Id>),
    /// A dictionary, in insertion order.
    Pairs(Vec<(Id, Id)>),
    /// A class or function, `module.name`.
    Global(String),
    /// The result of a class or function.
    Object {
        /// The class.
        class: Id,
        /// Arguments.
        args: Id,
        /// State set afterwards.
        state: Option<Id>,
    },
    /// A reference to something outside the pickle.
    Persistent(Id),
}

/// A parsed pickle.
#[derive(Clone, Debug, Default)]
pub struct PickleTree {
    values: Vec<PickleValue>,
    root: Option<Id>,
    n_bytes: usize,
}

impl PickleTree {
    /// Length of the pickle, bytes; what follows it is ignored.
    pub fn n_bytes(&self) -> usize {
        self.n_bytes
    }

    /// The top-level value.
    pub fn root(&self) -> Option<&PickleValue> {
        self.get(self.root?)
    }

    /// A value.
    pub fn get(&self, id: Id) -> Option<&PickleValue> {
        self.values.get(id as usize)
    }

    /// The text in a value.
    pub fn text(&self, id: Id) -> Option<&str> {
        match self.get(id)? {
            PickleValue::Text(text) | PickleValue::Global(text) => Some(text),
            _ => None,
        }
    }

    /// The integer in a value.
    pub fn int(&self, id: Id) -> Option<i64> {
        match self.get(id)? {
            PickleValue::Int(n) => Some(*n),
            PickleValue::Bool(b) => Some(i64::from(*b)),
            _ => None,
        }
    }

    /// The value of a key in a dictionary or in an object's state. The last one counts.
    pub fn field(&self, of: &PickleValue, key: &str) -> Option<Id> {
        match of {
            PickleValue::Pairs(pairs) => {
                pairs.iter().rev().find(|(name, _)| self.text(*name) == Some(key)).map(|(_, id)| *id)
            }
            PickleValue::Object { state: Some(state), .. } => self.field(self.get(*state)?, key),
            _ => None,
        }
    }

    /// The class of an object.
    pub fn class(&self, of: &PickleValue) -> Option<&str> {
        match of {
            PickleValue::Object { class, .. } => self.text(*class),
            _ => None,
        }
    }

    /// All values.
    pub fn values(&self) -> &[PickleValue] {
        &self.values
    }
}

/// Reads a pickle. Errors: a description of the fault.
pub fn read(bytes: &[u8]) -> Result<PickleTree, String> {
    let mut machine = Unpickler { rest: bytes, ..Unpickler::default() };
    machine.run()?;
    let n_bytes = bytes.len() - machine.rest.len();
    Ok(PickleTree { values: machine.values, root: machine.stack.pop(), n_bytes })
}

#[derive(Default)]
struct Unpickler<'a> {
    rest: &'a [u8],
    values: Vec<PickleValue>,
    stack: Vec<Id>,
    marks: Vec<usize>,
    memo: BTreeMap<u32, Id>,
}

fn cut() -> String {
    "the pickle is truncated".to_owned()
}

impl<'a> Unpickler<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], String> {
        if n > self.rest.len() {
            return Err(cut());
        }
        let (head, rest) = self.rest.split_at(n);
        self.rest = rest;
        Ok(head)
    }

    fn number(&mut self, n: usize) -> Result<usize, String> {
        let bytes = self.take(n)?;
        let number = bytes
            .iter()
            .rev()
            .try_fold(0_usize, |all, byte| all.checked_mul(256)?.checked_add(*byte as usize));
        number.ok_or_else(|| "a length exceeds the data".to_owned())
    }

    fn line(&mut self) -> Result<String, String> {
        let end = self.rest.iter().position(|byte| *byte == b'\n').ok_or_else(cut)?;
        let line = String::from_utf8_lossy(self.take(end)?).into_owned();
        self.take(1)?;
        Ok(line)
    }

    fn text(&mut self, length: usize) -> Result<(), String> {
        let n = self.number(length)?;
        let text = String::from_utf8_lossy(self.take(n)?).into_owned();
        self.push(PickleValue::Text(text))
    }

    fn bytes(&mut self, length: usize) -> Result<(), String> {
        let n = self.number(length)?;
        self.take(n)?;
        self.push(PickleValue::Bytes(n))
    }

    fn push(&mut self, value: PickleValue) -> Result<(), String> {
        if self.values.len() >= MAX_VALUES {
            return Err(format!("more than {MAX_VALUES} values"));
        }
        self.stack.push(self.values.len() as Id);
        self.values.push(value);
        Ok(())
    }

    fn pop(&mut self) -> Result<Id, String> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err("the pickle pops from an empty stack".to_owned());
        }
        self.stack.pop().ok_or_else(cut)
    }

    fn top(&self) -> Result<Id, String> {
        self.stack.last().copied().ok_or_else(|| "the pickle reads an empty stack".to_owned())
    }

    fn marked(&mut self) -> Result<Vec<Id>, String> {
        let at = self.marks.pop().ok_or_else(|| "no mark".to_owned())?;
        Ok(self.stack.split_off(at.min(self.stack.len())))
    }

    fn items(&mut self, n: usize) -> Result<(), String> {
        let mut items = Vec::new();
        for _ in 0..n {
            items.push(self.pop()?);
        }
        items.reverse();
        self.push(PickleValue::Items(items))
    }

    fn set_pairs(&mut self, items: &[Id]) -> Result<(), String> {
        let target = self.top()?;
        let new = items.chunks_exact(2).filter_map(|pair| Some((*pair.first()?, *pair.get(1)?)));
        let state = match self.values.get_mut(target as usize) {
            Some(PickleValue::Pairs(pairs)) => {
                pairs.extend(new);
                return Ok(());
            }
            // A dictionary subclass: its items are kept as its state.
            Some(PickleValue::Object { state, .. }) => *state,
            _ => return Ok(()),
        };
        let new: Vec<(Id, Id)> = new.collect();
        if let Some(PickleValue::Pairs(pairs)) = state.and_then(|id| self.values.get_mut(id as usize)) {
            pairs.extend(new);
            return Ok(());
        }
        self.push(PickleValue::Pairs(new))?;
        let made = self.pop()?;
        if let Some(PickleValue::Object { state, .. }) = self.values.get_mut(target as usize) {
            *state = Some(made);
        }
        Ok(())
    }

    fn append(&mut self, new: &[Id]) -> Result<(), String> {
        let target = self.top()?;
        if let Some(PickleValue::Items(items)) = self.values.get_mut(target as usize) {
            items.extend(new);
        }
        Ok(())
    }

    fn object(&mut self) -> Result<(), String> {
        let (args, class) = (self.pop()?, self.pop()?);
        // For an ordered dictionary only the items matter.
        if self
            .values
            .get(class as usize)
            .is_some_and(|class| *class == PickleValue::Global("collections.OrderedDict".to_owned()))
        {
            return self.push(PickleValue::Pairs(Vec::new()));
        }
        self.push(PickleValue::Object { class, args, state: None })
    }

    fn build(&mut self) -> Result<(), String> {
        let new = self.pop()?;
        let target = self.top()?;
        // A pair of states: the second one holds the slots of a dataclass.
        let new = match self.values.get(new as usize) {
            Some(PickleValue::Items(items)) if items.len() == 2 => {
                let is_dict =
                    |id: &&Id| matches!(self.values.get(**id as usize), Some(PickleValue::Pairs(_)));
                items.iter().rev().find(is_dict).copied().unwrap_or(new)
            }
            _ => new,
        };
        if let Some(PickleValue::Object { state, .. }) = self.values.get_mut(target as usize) {
            *state = Some(new);
        }
        Ok(())
    }

    fn put(&mut self, index: u32) -> Result<(), String> {
        let top = self.top()?;
        self.memo.insert(index, top);
        Ok(())
    }

    fn get(&mut self, index: u32) -> Result<(), String> {
        let id = self.memo.get(&index).copied().ok_or_else(|| "a value that was not kept".to_owned())?;
        self.stack.push(id);
        Ok(())
    }

    fn long(&mut self, n: usize) -> Result<(), String> {
        let bytes = self.take(n)?;
        if n > 8 {
            return self.push(PickleValue::None);
        }
        let is_negative = bytes.last().is_some_and(|byte| *byte >= 0x80);
        let mut all = if is_negative { [0xff; 8] } else { [0; 8] };
        for (to, from) in all.iter_mut().zip(bytes) {
            *to = *from;
        }
        self.push(PickleValue::Int(i64::from_le_bytes(all)))
    }

    fn run(&mut self) -> Result<(), String> {
        loop {
            let code = self.take(1)?.first().copied().unwrap_or_default();
            if code == b'.' {
                return Ok(());
            }
            if !(self.plain(code)? || self.made(code)?) {
                return Err(format!("unsupported opcode {code:#04x}"));
            }
        }
    }

    /// Opcodes that push a value. False: another opcode.
    fn plain(&mut self, code: u8) -> Result<bool, String> {
        match code {
            0x80 => drop(self.take(1)?),
            0x95 => drop(self.take(8)?),
            b'N' => self.push(PickleValue::None)?,
            0x88 => self.push(PickleValue::Bool(true))?,
            0x89 => self.push(PickleValue::Bool(false))?,
            b'K' => self.small(1)?,
            b'M' => self.small(2)?,
            b'J' => {
                let bytes = self.take(4)?.try_into().unwrap_or_default();
                self.push(PickleValue::Int(i64::from(i32::from_le_bytes(bytes))))?;
            }
            0x8a => {
                let n = self.number(1)?;
                self.long(n)?;
            }
            0x8b => {
                let n = self.number(4)?;
                self.long(n)?;
            }
            b'I' | b'L' => {
                let line = self.line()?;
                self.push(line.trim_end_matches('L').parse().map_or(PickleValue::None, PickleValue::Int))?;
            }
            b'G' => {
                let bytes = self.take(8)?.try_into().unwrap_or_default();
                self.push(PickleValue::Float(f64::from_be_bytes(bytes)))?;
            }
            b'F' => {
                let line = self.line()?;
                self.push(line.parse().map_or(PickleValue::None, PickleValue::Float))?;
            }
            0x8c => self.text(1)?,
            b'X' | b'T' => self.text(4)?,
            b'U' => self.text(1)?,
            0x8d => self.text(8)?,
            b'V' | b'S' => {
                let line = self.line()?;
                self.push(PickleValue::Text(line))?;
            }
            b'C' => self.bytes(1)?,
            b'B' => self.bytes(4)?,
            0x8e | 0x96 => self.bytes(8)?,
            b']' | b')' | 0x8f => self.push(PickleValue::Items(Vec::new()))?,
            b'}' => self.push(PickleValue::Pairs(Vec::new()))?,
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.push(PickleValue::Global(format!("{module}.{name}")))?;
            }
            b'P' => {
                let line = self.line()?;
                self.push(PickleValue::Text(line))?;
                let id = self.pop()?;
                self.push(PickleValue::Persistent(id))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn small(&mut self, n: usize) -> Result<(), String> {
        let number = self.number(n)?;
        self.push(PickleValue::Int(i64::try_from(number).unwrap_or(i64::MAX)))
    }

    /// Opcodes that use values on the stack. False: another opcode.
    fn made(&mut self, code: u8) -> Result<bool, String> {
        match code {
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.marked()?),
            b'2' => {
                let top = self.top()?;
                self.stack.push(top);
            }
            b'q' => {
                let index = self.number(1)? as u32;
                self.put(index)?;
            }
            b'r' => {
                let index = self.number(4)? as u32;
                self.put(index)?;
            }
            0x94 => self.put(self.memo.len() as u32)?,
            b'h' => {
                let index = self.number(1)? as u32;
                self.get(index)?;
            }
            b'j' => {
                let index = self.number(4)? as u32;
                self.get(index)?;
            }
            b'p' => {
                let index = self.line()?.parse().map_err(|_| cut())?;
                self.put(index)?;
            }
            b'g' => {
                let index = self.line()?.parse().map_err(|_| cut())?;
                self.get(index)?;
            }
            0x85 => self.items(1)?,
            0x86 => self.items(2)?,
            0x87 => self.items(3)?,
            b't' | b'l' | 0x91 => {
                let items = self.marked()?;
                self.push(PickleValue::Items(items))?;
            }
            b'd' => {
                let items = self.marked()?;
                self.push(PickleValue::Pairs(Vec::new()))?;
                self.set_pairs(&items)?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set_pairs(&[key, value])?;
            }
            b'u' => {
                let items = self.marked()?;
                self.set_pairs(&items)?;
            }
            b'a' => {
                let item = self.pop()?;
                self.append(&[item])?;
            }
            b'e' | 0x90 => {
                let items = self.marked()?;
                self.append(&items)?;
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let text = |id: Id| match self.values.get(id as usize) {
                    Some(PickleValue::Text(text)) => text.clone(),
                    _ => String::new(),
                };
                let global = format!("{}.{}", text(module), text(name));
                self.push(PickleValue::Global(global))?;
            }
            b'R' | 0x81 => self.object()?,
            0x92 => {
                let _ = self.pop()?;
                self.object()?;
            }
            b'b' => self.build()?,
            b'Q' => {
                let id = self.pop()?;
                self.push(PickleValue::Persistent(id))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
