//! A pickle machine for plain data: no opcode that names, calls or builds anything is carried out.
//!
//! It is the slow and general path. The dump's own layout is read by [`super::entry`]; what that does not expect is
//! read here, an entry at a time, and so is all that surrounds the entries.

use super::machine::{PickleContainer, PickleEnd, PickleMachine, long};
use super::memo::StackValue;

/// Values on the stack.
const MAX_STACK: usize = 1 << 20;
/// Containers within containers.
const MAX_DEPTH: usize = 1000;
/// Containers that are kept.
const MAX_NODES: usize = 1 << 20;
/// Values in containers that are kept.
const MAX_KEPT: usize = 4 << 20;

impl<'a> PickleMachine<'a> {
    /// Runs to the end. On an error `rest` begins at the opcode that caused it.
    pub(super) fn run(&mut self) -> PickleEnd {
        loop {
            if self.is_between_entries() {
                if let Err(end) = self.read_entries() {
                    return end;
                }
            } else if self.is_entry_complete()
                && let Err(end) = self.harvest_last()
            {
                return end;
            }
            let before = self.rest;
            match self.step() {
                Ok(true) => {}
                Ok(false) => return PickleEnd::Stop,
                Err(end) => {
                    self.rest = before;
                    return end;
                }
            }
        }
    }

    /// The dict at the bottom of the stack, with what was not yet put into it; None if the top object is no dict.
    pub(super) fn root_items(&self) -> Option<Vec<StackValue<'a>>> {
        let (StackValue::Node(root), above) = self.stack.split_first()? else { return None };
        let PickleContainer::Dict(items) = self.nodes.get(*root as usize)? else { return None };
        Some(items.iter().chain(above).copied().collect())
    }

    fn is_between_entries(&self) -> bool {
        self.entries_at.is_some_and(|at| self.stack.len() == at + 1 && self.marks.last() == Some(&(at + 1)))
    }

    /// Whether an entry is on the list's mark and the next opcode has no more to do with it.
    fn is_entry_complete(&self) -> bool {
        self.entries_at.is_some_and(|at| self.stack.len() == at + 2 && self.marks.last() == Some(&(at + 1)))
            && match self.rest.first() {
                Some(b'}' | b']' | b'e') => true,
                Some(b'(') => self.is_closed,
                _ => false,
            }
    }

    fn harvest_last(&mut self) -> Result<(), PickleEnd> {
        let Some(item) = self.stack.pop() else { return Ok(()) };
        self.harvest(item)?;
        self.release();
        Ok(())
    }

    /// Makes an operation of an entry's dict.
    fn harvest(&mut self, item: StackValue<'a>) -> Result<(), PickleEnd> {
        self.read_entry_node(item)?;
        if let StackValue::Node(at) = item
            && let Some(node) = self.nodes.get_mut(at as usize)
        {
            let items = std::mem::take(node.items_mut());
            self.n_kept = self.n_kept.saturating_sub(items.len());
        }
        Ok(())
    }

    /// Lets go of the containers of entries that were read, but for those in the memo.
    fn release(&mut self) {
        for node in self.nodes.drain(self.n_pinned.min(self.nodes.len())..) {
            self.n_kept = self.n_kept.saturating_sub(node.items().len());
        }
    }

    /// One opcode; false at STOP.
    #[expect(clippy::too_many_lines, reason = "one arm for each opcode of the format")]
    fn step(&mut self) -> Result<bool, PickleEnd> {
        let op = u8::from_le_bytes(self.take()?);
        let was_closed = std::mem::take(&mut self.is_closed);
        match op {
            0x80 => {
                let [version] = self.take()?;
                if version > 5 {
                    return Err(PickleEnd::Bad(format!("pickle protocol {version} is not known")));
                }
            }
            0x95 => drop(self.take::<8>()?),
            b'.' => {
                return if self.stack.len() == 1 && self.marks.is_empty() {
                    Ok(false)
                } else {
                    Err(PickleEnd::Bad("the pickle stops before its object is complete".into()))
                };
            }
            b'(' => {
                if self.marks.len() >= MAX_DEPTH {
                    return Err(PickleEnd::Limit("containers are nested more than 1,000 deep"));
                }
                self.marks.push(self.stack.len());
            }
            b'N' => self.push(StackValue::None)?,
            0x88 => self.push(StackValue::Bool(true))?,
            0x89 => self.push(StackValue::Bool(false))?,
            b'K' => {
                let n = u8::from_le_bytes(self.take()?);
                self.push(StackValue::Int(n.into()))?;
            }
            b'M' => {
                let n = u16::from_le_bytes(self.take()?);
                self.push(StackValue::Int(n.into()))?;
            }
            b'J' => {
                let n = i32::from_le_bytes(self.take()?);
                self.push(StackValue::Int(n.into()))?;
            }
            0x8a => {
                let n = u8::from_le_bytes(self.take()?);
                self.long(n.into())?;
            }
            0x8b => {
                let n = i32::from_le_bytes(self.take()?);
                self.long(length(n.into())?)?;
            }
            b'G' => {
                let x = f64::from_be_bytes(self.take()?);
                self.push(StackValue::Float(x))?;
            }
            b'X' | b'B' => {
                let n = u32::from_le_bytes(self.take()?);
                self.string(n as usize)?;
            }
            0x8c | b'C' | b'U' => {
                let n = u8::from_le_bytes(self.take()?);
                self.string(n.into())?;
            }
            0x8d | 0x8e => {
                let n = u64::from_le_bytes(self.take()?);
                self.string(usize::try_from(n).unwrap_or(usize::MAX))?;
            }
            b'T' => {
                let n = i32::from_le_bytes(self.take()?);
                self.string(length(n.into())?)?;
            }
            b']' => {
                let is_entries = self.starts_entries();
                let at = self.stack.len();
                self.push_node(PickleContainer::List(Vec::new()))?;
                if is_entries {
                    self.entries_at = Some(at);
                    self.n_pinned = self.nodes.len();
                }
            }
            b'}' => self.push_node(PickleContainer::Dict(Vec::new()))?,
            b')' => self.push_node(PickleContainer::Tuple(Vec::new()))?,
            b'l' => {
                let items = self.pop_mark()?;
                self.push_node(PickleContainer::List(items))?;
            }
            b't' => {
                let items = self.pop_mark()?;
                self.push_node(PickleContainer::Tuple(items))?;
            }
            b'd' => {
                let items = self.pop_mark()?;
                self.push_node(PickleContainer::Dict(items))?;
                self.is_closed = true;
            }
            0x85..=0x87 => {
                let items = self.pop_some(usize::from(op - 0x84))?;
                self.push_node(PickleContainer::Tuple(items))?;
            }
            b'a' => {
                let items = self.pop_some(1)?;
                self.extend(items, false)?;
            }
            b'e' => {
                let items = self.pop_mark()?;
                self.extend(items, false)?;
            }
            b's' => {
                let items = self.pop_some(2)?;
                self.extend(items, true)?;
            }
            b'u' => {
                let items = self.pop_mark()?;
                self.extend(items, true)?;
                self.is_closed = true;
            }
            b'q' => {
                let at = u8::from_le_bytes(self.take()?);
                self.put(at.into())?;
                self.is_closed = was_closed;
            }
            b'r' => {
                let at = u32::from_le_bytes(self.take()?);
                self.put(at as usize)?;
                self.is_closed = was_closed;
            }
            0x94 => {
                self.put(self.memo.next())?;
                self.is_closed = was_closed;
            }
            b'h' => {
                let at = u8::from_le_bytes(self.take()?);
                self.get(at.into())?;
            }
            b'j' => {
                let at = u32::from_le_bytes(self.take()?);
                self.get(at)?;
            }
            b'0' => drop(self.pop_some(1)?),
            b'1' => drop(self.pop_mark()?),
            b'2' => {
                let value = self.top()?;
                self.push(value)?;
            }
            _ => {
                return Err(PickleEnd::Bad(match refused(op) {
                    Some(name) => format!("opcode {name} is not used by Flight Recorder dumps; refused"),
                    None => format!("byte 0x{op:02x} is no pickle opcode"),
                }));
            }
        }
        Ok(true)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], PickleEnd> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(PickleEnd::Cut)?;
        self.rest = rest;
        Ok(*head)
    }

    fn push(&mut self, value: StackValue<'a>) -> Result<(), PickleEnd> {
        if self.stack.len() >= MAX_STACK {
            return Err(PickleEnd::Limit("more than a million values are open at once"));
        }
        self.stack.push(value);
        Ok(())
    }

    fn push_node(&mut self, node: PickleContainer<'a>) -> Result<(), PickleEnd> {
        if self.nodes.len() >= MAX_NODES {
            return Err(PickleEnd::Limit("more than a million containers"));
        }
        self.keep(node.items().len())?;
        self.nodes.push(node);
        self.push(StackValue::Node(self.nodes.len() as u32 - 1))
    }

    fn keep(&mut self, n: usize) -> Result<(), PickleEnd> {
        self.n_kept += n;
        if self.n_kept > MAX_KEPT {
            Err(PickleEnd::Limit("more than four million values in containers"))
        } else {
            Ok(())
        }
    }

    fn long(&mut self, n_bytes: usize) -> Result<(), PickleEnd> {
        let (digits, rest) = self.rest.split_at_checked(n_bytes).ok_or(PickleEnd::Cut)?;
        self.rest = rest;
        self.push(long(digits))
    }

    fn string(&mut self, n_bytes: usize) -> Result<(), PickleEnd> {
        let (text, rest) = self.rest.split_at_checked(n_bytes).ok_or(PickleEnd::Cut)?;
        self.rest = rest;
        self.push(StackValue::Str(text))
    }

    /// Lowest place on the stack that an opcode may take, unless it takes the mark.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn top(&self) -> Result<StackValue<'a>, PickleEnd> {
        let value = if self.stack.len() > self.floor() { self.stack.last() } else { None };
        value.copied().ok_or_else(underflow)
    }

    fn pop_some(&mut self, n: usize) -> Result<Vec<StackValue<'a>>, PickleEnd> {
        let at = self.stack.len().checked_sub(n).filter(|at| *at >= self.floor()).ok_or_else(underflow)?;
        if self.entries_at.is_some_and(|entries| entries >= at) {
            self.entries_at = None;
        }
        Ok(self.stack.split_off(at))
    }

    fn pop_mark(&mut self) -> Result<Vec<StackValue<'a>>, PickleEnd> {
        let at =
            self.marks.pop().ok_or_else(|| PickleEnd::Bad("a container ends that never began".into()))?;
        if self.entries_at.is_some_and(|entries| entries >= at) {
            self.entries_at = None;
        }
        Ok(self.stack.split_off(at.min(self.stack.len())))
    }

    /// Adds items to the container on top.
    fn extend(&mut self, items: Vec<StackValue<'a>>, is_dict: bool) -> Result<(), PickleEnd> {
        if self.entries_at.is_some_and(|at| self.stack.len() == at + 1) && !is_dict {
            for item in items {
                self.harvest(item)?;
            }
            self.release();
            return Ok(());
        }
        let StackValue::Node(at) = self.top()? else {
            return Err(PickleEnd::Bad("items are added to a value that is no container".into()));
        };
        self.keep(items.len())?;
        match self.nodes.get_mut(at as usize) {
            Some(PickleContainer::Dict(to)) if is_dict && items.len().is_multiple_of(2) => to.extend(items),
            Some(PickleContainer::List(to)) if !is_dict => to.extend(items),
            _ => return Err(PickleEnd::Bad("items are added to a value that cannot hold them".into())),
        }
        Ok(())
    }

    fn put(&mut self, at: usize) -> Result<(), PickleEnd> {
        let value = self.top()?;
        if let StackValue::Node(node) = value {
            self.n_pinned = self.n_pinned.max(node as usize + 1);
        }
        if self.memo.put(at, value) {
            Ok(())
        } else {
            Err(PickleEnd::Limit("the memo is larger than dumps need"))
        }
    }

    fn get(&mut self, at: u32) -> Result<(), PickleEnd> {
        let slot = self
            .memo
            .get(at)
            .ok_or_else(|| PickleEnd::Bad(format!("memo place {at} is used before it is set")))?;
        self.push(slot.value)
    }

    /// Whether a list that begins here is the list of entries: the value of the top dict's `entries`.
    fn starts_entries(&self) -> bool {
        match self.stack.as_slice() {
            // Dumps before 2.0 are a bare list.
            [] => self.marks.is_empty(),
            [StackValue::Node(root), .., StackValue::Str(b"entries")] => {
                self.marks.len() <= 1
                    && self.stack.len().is_multiple_of(2)
                    && matches!(self.nodes.get(*root as usize), Some(PickleContainer::Dict(_)))
            }
            _ => false,
        }
    }
}

fn underflow() -> PickleEnd {
    PickleEnd::Bad("the pickle takes a value from an empty stack".into())
}

fn length(n: i64) -> Result<usize, PickleEnd> {
    usize::try_from(n).map_err(|_| PickleEnd::Bad(format!("a length of {n}")))
}

/// Opcodes that exist and are not carried out.
fn refused(op: u8) -> Option<&'static str> {
    Some(match op {
        b'c' => "GLOBAL",
        b'R' => "REDUCE",
        b'b' => "BUILD",
        b'i' => "INST",
        b'o' => "OBJ",
        b'P' => "PERSID",
        b'Q' => "BINPERSID",
        b'I' => "INT",
        b'L' => "LONG",
        b'F' => "FLOAT",
        b'S' => "STRING",
        b'V' => "UNICODE",
        b'p' => "PUT",
        b'g' => "GET",
        0x81 => "NEWOBJ",
        0x82 => "EXT1",
        0x83 => "EXT2",
        0x84 => "EXT4",
        0x8f => "EMPTY_SET",
        0x90 => "ADDITEMS",
        0x91 => "FROZENSET",
        0x92 => "NEWOBJ_EX",
        0x93 => "STACK_GLOBAL",
        0x96 => "BYTEARRAY8",
        0x97 => "NEXT_BUFFER",
        0x98 => "READONLY_BUFFER",
        _ => return None,
    })
}
