//! What the pickle memo holds: a value, and what the value means if it is a string that dumps use as a key.

/// A value on the pickle machine's stack, in its memo or in a container.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum StackValue<'a> {
    None,
    Bool(bool),
    Int(i64),
    /// An integer beyond 64 bits; no dump has one.
    BigInt,
    Float(f64),
    /// Text or bytes, borrowed from the file.
    Str(&'a [u8]),
    /// A frame dict that was interned as it was read.
    Frame(u32),
    /// Index of a list, tuple or dict.
    Node(u32),
}

impl StackValue<'_> {
    /// Equal without a look at the text: two strings are identical if they are the same bytes of the file.
    fn is_identical(self, other: Self) -> bool {
        match (self, other) {
            (Self::Str(a), Self::Str(b)) => std::ptr::eq(a, b),
            (Self::Str(_), _) | (_, Self::Str(_)) => false,
            _ => self == other,
        }
    }
}

/// What a string means as a key or a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Keyword {
    Other,
    Frames,
    RecordId,
    PgId,
    ProcessGroup,
    ThreadName,
    ThreadId,
    Seq,
    P2pSeq,
    OpId,
    ProfilingName,
    Created,
    Duration,
    InputSizes,
    InputDtypes,
    OutputSizes,
    OutputDtypes,
    State,
    Started,
    Completed,
    Retired,
    Timeout,
    IsP2p,
    FrameName,
    FrameFile,
    FrameLine,
    IsScheduled,
    IsStarted,
    IsCompleted,
}

impl Keyword {
    pub(super) fn of(text: &[u8]) -> Self {
        match text {
            b"frames" => Self::Frames,
            b"record_id" => Self::RecordId,
            b"pg_id" => Self::PgId,
            b"process_group" => Self::ProcessGroup,
            b"thread_name" => Self::ThreadName,
            b"thread_id" => Self::ThreadId,
            // `seq_id` is what dumps before 2.0 call it.
            b"collective_seq_id" | b"seq_id" => Self::Seq,
            b"p2p_seq_id" => Self::P2pSeq,
            b"op_id" => Self::OpId,
            b"profiling_name" => Self::ProfilingName,
            b"time_created_ns" => Self::Created,
            b"duration_ms" => Self::Duration,
            b"input_sizes" => Self::InputSizes,
            b"input_dtypes" => Self::InputDtypes,
            b"output_sizes" => Self::OutputSizes,
            b"output_dtypes" => Self::OutputDtypes,
            b"state" => Self::State,
            b"time_discovered_started_ns" => Self::Started,
            b"time_discovered_completed_ns" => Self::Completed,
            b"retired" => Self::Retired,
            b"timeout_ms" => Self::Timeout,
            b"is_p2p" => Self::IsP2p,
            b"name" => Self::FrameName,
            b"filename" => Self::FrameFile,
            b"line" => Self::FrameLine,
            b"scheduled" => Self::IsScheduled,
            b"started" => Self::IsStarted,
            b"completed" => Self::IsCompleted,
            _ => Self::Other,
        }
    }
}

/// One place of the memo.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot<'a> {
    pub(super) value: StackValue<'a>,
    pub(super) word: Keyword,
    /// A thread id that was counted.
    pub(super) is_counted: bool,
}

/// The memo: writers number it from 0 without gaps.
#[derive(Default)]
pub(super) struct Memo<'a> {
    slots: Vec<Option<Slot<'a>>>,
    /// Rises when a place that was taken is given another value: what was learned from bytes that name places is void.
    pub(super) generation: u32,
}

impl<'a> Memo<'a> {
    /// Places that may be left out; no writer leaves out any.
    const MAX_GAP: usize = 4096;
    /// Places in all.
    const MAX_SLOTS: usize = 4 << 20;

    /// Puts a value; false if the place is out of bounds.
    #[must_use]
    pub(super) fn put(&mut self, at: usize, value: StackValue<'a>) -> bool {
        let word = if let StackValue::Str(text) = value { Keyword::of(text) } else { Keyword::Other };
        if at >= self.slots.len() {
            if at > self.slots.len() + Self::MAX_GAP || at >= Self::MAX_SLOTS {
                return false;
            }
            self.slots.resize(at + 1, None);
        }
        let Some(slot) = self.slots.get_mut(at) else { return false };
        if let Some(old) = slot
            && !old.value.is_identical(value)
        {
            self.generation += 1;
        }
        *slot = Some(Slot { value, word, is_counted: false });
        true
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> Option<&Slot<'a>> {
        self.slots.get(at as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut Slot<'a>> {
        self.slots.get_mut(at as usize)?.as_mut()
    }

    /// Place that MEMOIZE takes.
    pub(super) fn next(&self) -> usize {
        self.slots.len()
    }
}
