//! Events and top-level values of a trace, one by one, out of a window over the stream.

use std::io::{self, Read};

use memchr::memmem;

use super::scan::{self, Stop};

/// What comes next.
pub(super) enum FeedPiece<'w> {
    /// An event.
    Event(TraceEvent<'w>),
    /// A key of the document beside the events, with its value.
    Value(&'w [u8], &'w [u8]),
    /// The document has ended.
    End,
}

/// One event, as bytes of the file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TraceEvent<'w> {
    pub(super) phase: u8,
    pub(super) category: &'w [u8],
    pub(super) name: &'w [u8],
    pub(super) pid: &'w [u8],
    pub(super) tid: &'w [u8],
    pub(super) id: &'w [u8],
    /// Start, microseconds.
    pub(super) start: &'w [u8],
    /// Duration, microseconds.
    pub(super) duration: &'w [u8],
    /// The object of its arguments; empty if there is none.
    pub(super) args: &'w [u8],
    /// Strings hold quotes that nobody escaped.
    pub(super) is_mended: bool,
    /// Its bytes in the file.
    pub(super) bytes: (u64, u64),
}

/// What was wrong with a file.
#[derive(Debug, Default)]
pub(super) struct Damage {
    /// Where bytes were passed over first, and how many in all.
    pub(super) skipped: Option<(u64, u64)>,
    /// Why reading ended early.
    pub(super) failure: Option<io::Error>,
    /// It ends within an event.
    pub(super) is_cut: bool,
}

impl Damage {
    pub(super) fn is_any(&self) -> bool {
        self.skipped.is_some() || self.failure.is_some() || self.is_cut
    }
}

/// Where in the document the window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FeedState {
    /// Before the first bracket.
    Start,
    /// Among the keys of the document.
    Keys,
    /// In the array of events.
    Events,
    /// Behind the end.
    Over,
}

/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;
/// Longest event or top-level value.
const MAX_VALUE_BYTES: usize = 32 << 20;

/// The window.
pub(super) struct Feed<'i> {
    input: &'i mut dyn Read,
    window: Vec<u8>,
    /// Bytes of the window that were used.
    used: usize,
    /// Bytes of the window that were read.
    filled: usize,
    /// Offset of the window in the file.
    offset: u64,
    place: FeedState,
    /// The events are the document.
    is_bare: bool,
    is_over: bool,
    damage: Damage,
}

/// What a look at the window found: positions in it.
enum FeedLook {
    Event(usize, usize, bool),
    Value { key: (usize, usize), value: (usize, usize) },
    Moved(usize, FeedState),
    Short,
    Bad,
}

impl<'i> Feed<'i> {
    pub(super) fn new(head: &[u8], input: &'i mut dyn Read) -> Self {
        let mut window = Vec::with_capacity(2 * READ_BYTES);
        window.extend_from_slice(head);
        Self {
            input,
            filled: window.len(),
            window,
            used: 0,
            offset: 0,
            place: FeedState::Start,
            is_bare: false,
            is_over: false,
            damage: Damage::default(),
        }
    }

    /// Bytes that were read so far.
    pub(super) fn offset(&self) -> u64 {
        self.offset + self.filled as u64
    }

    /// What was wrong.
    pub(super) fn damage(self) -> Damage {
        self.damage
    }

    /// The next event or value.
    pub(super) fn next(&mut self) -> FeedPiece<'_> {
        loop {
            let bytes = self.window.get(self.used..self.filled).unwrap_or_default();
            if self.place == FeedState::Events
                && let Some(quick) = quick(bytes)
            {
                let bytes = self.window.get(self.used..self.filled).unwrap_or_default();
                let at = self.offset + self.used as u64;
                self.used += quick.whole.1;
                return FeedPiece::Event(quick.event(bytes, at));
            }
            let look = look(bytes, self.place, self.is_over);
            match look {
                FeedLook::Event(start, end, is_mended) => {
                    let base = self.used;
                    self.used += end;
                    let bytes = self.window.get(base + start..base + end).unwrap_or_default();
                    let at = self.offset + (base + start) as u64;
                    return FeedPiece::Event(fields(bytes, at, is_mended));
                }
                FeedLook::Value { key, value } => {
                    let base = self.used;
                    self.used += value.1;
                    let part = |(from, to): (usize, usize)| {
                        self.window.get(base + from..base + to).unwrap_or_default()
                    };
                    return FeedPiece::Value(part(key), part(value));
                }
                FeedLook::Moved(n, place) => {
                    if self.place == FeedState::Start && place == FeedState::Events {
                        self.is_bare = true;
                    }
                    self.used += n;
                    self.place = match place {
                        FeedState::Keys if self.is_bare => FeedState::Over,
                        place => place,
                    };
                    if self.place == FeedState::Over {
                        return FeedPiece::End;
                    }
                }
                FeedLook::Short if self.is_over => {
                    self.damage.is_cut = self.damage.failure.is_none();
                    self.place = FeedState::Over;
                    return FeedPiece::End;
                }
                FeedLook::Short if self.filled - self.used < MAX_VALUE_BYTES => self.fill(),
                FeedLook::Short | FeedLook::Bad => self.skip(),
            }
        }
    }

    /// Reads more behind what is not used yet.
    fn fill(&mut self) {
        self.window.copy_within(self.used..self.filled, 0);
        self.offset += self.used as u64;
        self.filled -= self.used;
        self.used = 0;
        if self.window.len() < self.filled + READ_BYTES {
            self.window.resize(self.filled + READ_BYTES, 0);
        }
        let room = self.window.get_mut(self.filled..).unwrap_or_default();
        match self.input.read(room) {
            Ok(0) => self.is_over = true,
            Ok(n) => self.filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                self.damage.failure = Some(error);
                self.is_over = true;
            }
        }
    }

    /// Passes over what is not JSON, to the next event.
    fn skip(&mut self) {
        let bytes = self.window.get(self.used..self.filled).unwrap_or_default();
        let next = next_event(bytes);
        let n = next.unwrap_or_else(|| bytes.len().saturating_sub(LOOK_BACK_BYTES)).max(1).min(bytes.len());
        let at = self.offset + self.used as u64;
        let (_, n_skipped) = self.damage.skipped.get_or_insert((at, 0));
        *n_skipped += n as u64;
        self.used += n;
        self.place = FeedState::Events;
        if next.is_none() {
            if self.is_over {
                self.used = self.filled;
            } else {
                self.fill();
            }
        }
    }
}

/// What is kept of a window without an event: the start of one may be in it.
const LOOK_BACK_BYTES: usize = 4 << 10;

/// Where the next event begins, behind the first byte.
fn next_event(bytes: &[u8]) -> Option<usize> {
    let mut from = 1;
    loop {
        let phase = from + memmem::find(bytes.get(from..)?, b"\"ph\":")?;
        let before = bytes.get(1..phase).unwrap_or_default();
        // Nothing but short keys precedes it.
        let open = memchr::memrchr(b'{', before).map(|n| n + 1);
        match open {
            Some(open) if phase - open < LOOK_BACK_BYTES && open >= from => return Some(open),
            _ => from = phase + 1,
        }
    }
}

fn look(bytes: &[u8], place: FeedState, is_over: bool) -> FeedLook {
    let mut at = scan::space(bytes, 0);
    while bytes.get(at) == Some(&b',') {
        at = scan::space(bytes, at + 1);
    }
    let Some(first) = bytes.get(at) else {
        // A bare array may lack its end: some writers leave it out.
        return if is_over && place == FeedState::Over {
            FeedLook::Moved(at, FeedState::Over)
        } else {
            FeedLook::Short
        };
    };
    match (place, first) {
        (FeedState::Start, b'{') => FeedLook::Moved(at + 1, FeedState::Keys),
        (FeedState::Start, b'[') => FeedLook::Moved(at + 1, FeedState::Events),
        (FeedState::Keys, b'}') | (FeedState::Over, _) => FeedLook::Moved(at + 1, FeedState::Over),
        (FeedState::Keys, b'"') => look_at_key(bytes, at),
        (FeedState::Events, b']') => FeedLook::Moved(at + 1, FeedState::Keys),
        (FeedState::Events, b'{') => {
            match scan::value_end(bytes, at, false) {
                Ok(end) if is_sound(bytes.get(at..end).unwrap_or_default()) => {
                    FeedLook::Event(at, end, false)
                }
                Err(Stop::Short) if !is_over && !looks_damaged(bytes) => FeedLook::Short,
                // A quote too many may have swallowed the end.
                _ => match scan::value_end(bytes, at, true) {
                    Ok(end) if next_event(bytes).is_none_or(|next| next <= at || next >= end) => {
                        FeedLook::Event(at, end, true)
                    }
                    Ok(_) | Err(Stop::Bad) => FeedLook::Bad,
                    Err(Stop::Short) if next_event(bytes.get(at..).unwrap_or_default()).is_some() => {
                        FeedLook::Bad
                    }
                    Err(Stop::Short) => FeedLook::Short,
                },
            }
        }
        _ => FeedLook::Bad,
    }
}

/// Whether bytes that hold no end of an event are so many that one of its strings has none.
fn looks_damaged(bytes: &[u8]) -> bool {
    bytes.len() > 4 * READ_BYTES
}

/// Whether an event that ends where brackets say holds no other one: then a quote is missing or too many.
#[inline]
fn is_sound(event: &[u8]) -> bool {
    // Long ones alone can hold two; arguments of torch's own events stay far below.
    event.len() < 2_000 || next_event(event).is_none()
}

fn look_at_key(bytes: &[u8], at: usize) -> FeedLook {
    let Ok(end) = scan::string_end(bytes, at + 1, false) else { return FeedLook::Short };
    let colon = scan::space(bytes, end + 1);
    match bytes.get(colon) {
        None => return FeedLook::Short,
        Some(b':') => {}
        Some(_) => return FeedLook::Bad,
    }
    let value = scan::space(bytes, colon + 1);
    if bytes.get(at + 1..end) == Some(b"traceEvents") {
        return match bytes.get(value) {
            None => FeedLook::Short,
            Some(b'[') => FeedLook::Moved(value + 1, FeedState::Events),
            Some(_) => FeedLook::Bad,
        };
    }
    match scan::value_end(bytes, value, false) {
        Ok(value_end) => FeedLook::Value { key: (at + 1, end), value: (value, value_end) },
        Err(Stop::Short) => FeedLook::Short,
        Err(Stop::Bad) => FeedLook::Bad,
    }
}

/// Fields of an event, as places in the window; `(0, 0)` for what it lacks.
#[derive(Clone, Copy, Default)]
struct EventFields {
    whole: (usize, usize),
    phase: (usize, usize),
    category: (usize, usize),
    name: (usize, usize),
    pid: (usize, usize),
    tid: (usize, usize),
    id: (usize, usize),
    start: (usize, usize),
    duration: (usize, usize),
    args: (usize, usize),
}

impl EventFields {
    /// The place of a key.
    #[inline]
    fn field(&mut self, key: &[u8]) -> Option<&mut (usize, usize)> {
        match key {
            b"ph" => Some(&mut self.phase),
            b"cat" => Some(&mut self.category),
            b"name" => Some(&mut self.name),
            b"pid" => Some(&mut self.pid),
            b"tid" => Some(&mut self.tid),
            b"id" => Some(&mut self.id),
            b"ts" => Some(&mut self.start),
            b"dur" => Some(&mut self.duration),
            b"args" => Some(&mut self.args),
            _ => None,
        }
    }

    fn event<'w>(&self, bytes: &'w [u8], at: u64) -> TraceEvent<'w> {
        let part = |(from, to): (usize, usize)| scan::unquoted(bytes.get(from..to).unwrap_or_default());
        TraceEvent {
            phase: part(self.phase).first().copied().unwrap_or_default(),
            category: part(self.category),
            name: part(self.name),
            pid: part(self.pid),
            tid: part(self.tid),
            id: part(self.id),
            start: part(self.start),
            duration: part(self.duration),
            args: part(self.args),
            is_mended: false,
            bytes: (at + self.whole.0 as u64, at + self.whole.1 as u64),
        }
    }
}

/// An event that is plain JSON, in one pass. None for everything else, which takes a second look.
#[inline]
fn quick(bytes: &[u8]) -> Option<EventFields> {
    let mut from = scan::space(bytes, 0);
    while bytes.get(from) == Some(&b',') {
        from = scan::space(bytes, from + 1);
    }
    if bytes.get(from) != Some(&b'{') {
        return None;
    }
    let mut found = EventFields::default();
    let mut at = scan::space(bytes, from + 1);
    loop {
        if bytes.get(at) != Some(&b'"') {
            return None;
        }
        let key_end = scan::string_end(bytes, at + 1, false).ok()?;
        let colon = scan::space(bytes, key_end + 1);
        if bytes.get(colon) != Some(&b':') {
            return None;
        }
        let value = scan::space(bytes, colon + 1);
        let key = bytes.get(at + 1..key_end)?;
        let end = scan::value_end(bytes, value, false).ok()?;
        let field = found.field(key);
        if let Some(field) = field {
            *field = (value, end);
        }
        let next = scan::space(bytes, end);
        match bytes.get(next)? {
            b',' => at = scan::space(bytes, next + 1),
            b'}' => {
                found.whole = (from, next + 1);
                let is_whole = is_sound(bytes.get(from..next + 1)?);
                return is_whole.then_some(found);
            }
            _ => return None,
        }
    }
}

/// The fields of an event.
#[inline]
fn fields(bytes: &[u8], at: u64, is_mended: bool) -> TraceEvent<'_> {
    let mut event = TraceEvent { is_mended, bytes: (at, at + bytes.len() as u64), ..TraceEvent::default() };
    let mut entries = scan::entries(bytes, is_mended);
    for (key, value) in entries.by_ref() {
        match key {
            b"ph" => event.phase = value.first().copied().unwrap_or_default(),
            b"cat" => event.category = value,
            b"name" => event.name = value,
            b"pid" => event.pid = value,
            b"tid" => event.tid = value,
            b"id" => event.id = value,
            b"ts" => event.start = value,
            b"dur" => event.duration = value,
            b"args" => event.args = value,
            _ => {}
        }
    }
    if entries.is_odd && !is_mended {
        // A quote within a name ended it.
        return fields(bytes, at, true);
    }
    event
}

#[cfg(test)]
mod tests {
    use super::{FeedLook, FeedState, fields, look, quick};
    use proptest::prelude::*;

    /// Pieces of events, whole and broken.
    const PIECES: [&str; 19] = [
        "{",
        "}",
        "[",
        "]",
        "\"",
        ":",
        ",",
        " ",
        "a",
        "1.5",
        "\"name\":",
        "\"ph\":\"X\",",
        "\"ts\":12,",
        "\"x\"",
        "\"args\":{\"a\":[1,2]}",
        "{}",
        "\n",
        "\\",
        "\u{e9}",
    ];

    proptest! {
        // Few of them are whole events.
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// What one pass takes is what the two passes with all their care take.
        #[test]
        fn one_pass_sees_what_two_see(picked in prop::collection::vec(0..PIECES.len(), 1..24)) {
            let text: String = picked.iter().map(|at| PIECES[*at]).collect();
            let text = format!("{{\"ph\":\"X\",{text}");
            let bytes = text.as_bytes();
            if let Some(quick) = quick(bytes) {
                let FeedLook::Event(start, end, false) = look(bytes, FeedState::Events, false) else {
                    return Err(TestCaseError::fail(text));
                };
                prop_assert_eq!((start, end), quick.whole, "{}", text);
                let two = fields(&bytes[start..end], start as u64, false);
                prop_assert_eq!(format!("{:?}", quick.event(bytes, 0)), format!("{two:?}"), "{}", text);
            }
        }
    }
}
