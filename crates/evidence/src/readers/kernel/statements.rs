//! What families of messages take and make: a line, and the statements so far, which a later line may add to.

use ringleader_model::{Host, KernelEvent, KernelEventKind, PciAddress, WallTime};

use super::clock::Clock;

/// Bytes of a message that are looked at.
pub(super) const MAX_TEXT: usize = 4 << 10;
/// Lines after which a statement of several lines is over.
pub(super) const MAX_GAP: u32 = 64;

/// One line, its prefix read.
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    pub(super) line: u32,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) uptime_us: Option<u64>,
    pub(super) at: Option<WallTime>,
    pub(super) host: Option<&'a Host>,
    pub(super) raw: &'a [u8],
    pub(super) text: &'a [u8],
    pub(super) is_kernel: bool,
    pub(super) is_cut: bool,
}

/// What a message says.
pub(super) struct KernelMessage {
    pub(super) device: Option<PciAddress>,
    pub(super) kind: KernelEventKind,
}

/// What a family says of a line.
pub(super) enum FamilyAnswer {
    /// A statement.
    Event(Box<KernelMessage>),
    /// It belongs to a statement made before or to come, or means nothing.
    Part,
    /// Not its line.
    Nothing,
}

impl FamilyAnswer {
    pub(super) fn event(device: Option<PciAddress>, kind: KernelEventKind) -> Self {
        Self::Event(Box::new(KernelMessage { device, kind }))
    }
}

/// Something found, kept to the end: what comes later may add to it.
#[derive(Debug)]
pub(super) struct HeldEvent {
    pub(super) line: u32,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) at: Option<WallTime>,
    pub(super) host: Option<Host>,
    pub(super) event: KernelEvent,
    pub(super) text: Vec<u8>,
}

/// The statements of one log.
#[derive(Default)]
pub(super) struct Statements {
    pub(super) held: Vec<HeldEvent>,
    pub(super) clock: Clock,
    pub(super) n_lines: u64,
}

impl Statements {
    /// Whether there were lines before this one.
    pub(super) fn has_begun(&self) -> bool {
        self.n_lines > 1
    }

    /// Number of the statement that comes next.
    pub(super) fn next_index(&self) -> usize {
        self.held.len()
    }

    /// Adds a line to a statement that was made before.
    pub(super) fn amend(&mut self, index: usize, record: &Record<'_>) -> Option<&mut KernelEvent> {
        let held = self.held.get_mut(index)?;
        if held.text.len() < MAX_TEXT {
            held.text.push(b'\n');
            held.text.extend_from_slice(record.raw.get(..MAX_TEXT).unwrap_or(record.raw));
        }
        held.end = record.end;
        Some(&mut held.event)
    }

    /// A statement that was made before.
    pub(super) fn event(&self, index: usize) -> Option<&KernelEvent> {
        self.held.get(index).map(|h| &h.event)
    }
}
