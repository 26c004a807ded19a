//! Where readers put what they find.

use std::borrow::Cow;

use ringleader_model::{
    Cite, Fact, Note, NoteKind, Observation, Source, SourceId, SourceKind, WallTime, Who,
};

/// What was read from one file: one source, or several if it is an archive.
#[derive(Debug, Default)]
pub struct Extract {
    /// Sources; ids of observations and notes count from 0 within this extract until [`merge`](crate::merge).
    pub sources: Vec<Source>,
    /// Observations.
    pub observations: Vec<Observation>,
    /// Notes.
    pub notes: Vec<Note>,
}

/// Bounds on what is read. Each limit that is hit becomes a note.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes that one file may expand to.
    pub max_expanded_bytes: u64,
    /// Archives within archives.
    pub max_depth: u32,
    /// Members of one archive.
    pub max_members: u32,
    /// Longest line that is read as one; the rest of a longer one is passed over.
    pub max_line_bytes: usize,
    /// Largest binary dump.
    pub max_dump_bytes: u64,
    /// Largest JSON file that is read as JSON; parsed it takes up to sixteen times as much memory.
    pub max_json_bytes: u64,
    /// Characters of a line kept as text of an observation.
    pub max_text_chars: usize,
    /// Observations of one source.
    pub max_observations: usize,
    /// Notes of one source.
    pub max_notes: usize,
    /// NCCL calls (COLL lines) of one source; past that the oldest are dropped and counted.
    pub max_calls: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_expanded_bytes: 64 << 30,
            max_depth: 4,
            max_members: 200_000,
            max_line_bytes: 1 << 20,
            max_dump_bytes: 4 << 30,
            max_json_bytes: 64 << 20,
            max_text_chars: 2_000,
            max_observations: 200_000,
            max_notes: 200,
            max_calls: 4_000_000,
        }
    }
}

/// Collects what readers find in one source.
pub(crate) struct Sink<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) source: SourceId,
    extract: &'a mut Extract,
    kinds: Vec<SourceKind>,
    n_observations: usize,
    n_notes: usize,
}

impl<'a> Sink<'a> {
    /// Opens a source within `extract`.
    pub(crate) fn open(path: &str, limits: &'a Limits, extract: &'a mut Extract) -> Self {
        let source = SourceId(extract.sources.len() as u32);
        extract.sources.push(Source { path: path.to_owned(), kinds: Vec::new(), size_bytes: 0 });
        Self { limits, source, extract, kinds: Vec::new(), n_observations: 0, n_notes: 0 }
    }

    /// Closes the source: `size_bytes` after decompression.
    pub(crate) fn close(mut self, size_bytes: u64) {
        self.kinds.sort_unstable();
        self.kinds.dedup();
        if let Some(source) = self.extract.sources.get_mut(self.source.0 as usize) {
            source.size_bytes = size_bytes;
            source.kinds = self.kinds;
        }
    }

    /// Says that content of this kind is here.
    pub(crate) fn saw(&mut self, kind: SourceKind) {
        if self.kinds.last() != Some(&kind) && !self.kinds.contains(&kind) {
            self.kinds.push(kind);
        }
    }

    /// Takes back that content of this kind is here.
    pub(crate) fn unsay(&mut self, kind: SourceKind) {
        self.kinds.retain(|k| *k != kind);
    }

    /// Whether any kind was seen.
    pub(crate) fn saw_nothing(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Cites a place of this source.
    pub(crate) fn cite(&self, line: u32, start: u64, end: u64) -> Cite {
        Cite { source: self.source, line, start, end }
    }

    /// Adds an observation. `text` is bounded by `max_text_chars`; bytes that are no UTF-8 are replaced.
    pub(crate) fn push(&mut self, cite: Cite, who: Who, at: Option<WallTime>, fact: Fact, text: &[u8]) {
        if self.n_observations == self.limits.max_observations {
            self.n_observations += 1;
            self.note(
                cite,
                NoteKind::LimitReached,
                "more statements than are kept; the rest of this file was left out".into(),
            );
        }
        if self.n_observations > self.limits.max_observations {
            return;
        }
        self.n_observations += 1;
        let text = bounded_text(text, self.limits.max_text_chars).into();
        self.extract.observations.push(Observation { cite, who, at, fact, text });
    }

    /// Adds a note; past `max_notes` of one source they are dropped and the last one says so.
    pub(crate) fn note(&mut self, cite: Cite, kind: NoteKind, text: String) {
        self.n_notes += 1;
        match self.n_notes.cmp(&self.limits.max_notes) {
            std::cmp::Ordering::Less => self.extract.notes.push(Note { cite, kind, text }),
            std::cmp::Ordering::Equal => self.extract.notes.push(Note {
                cite,
                kind: NoteKind::LimitReached,
                text: "more notes of this file were left out".into(),
            }),
            std::cmp::Ordering::Greater => {}
        }
    }
}

/// At most `max_chars` of `text`, invalid UTF-8 replaced, with an ellipsis where it was cut.
pub(crate) fn bounded_text(text: &[u8], max_chars: usize) -> String {
    // A char is at most 4 bytes, so a longer slice cannot matter.
    let text_len = text.len();
    let slice = text.get(..max_chars.saturating_mul(4)).unwrap_or(text);
    let text = lossy(slice);
    // A char is at least a byte.
    let cut = if text.len() <= max_chars { None } else { text.char_indices().nth(max_chars) };
    match cut {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None if slice.len() < text_len => format!("{text}…"),
        None => text.into_owned(),
    }
}

/// The text, invalid UTF-8 replaced. What is valid, as nearly all is, passes several times as fast as in the standard
/// library's function of that name.
pub(crate) fn lossy(text: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(text) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(text),
    }
}

/// What a note about a reading error is: a bound of ours that was reached, or a cut.
pub(crate) fn stop_kind(error: &std::io::Error) -> NoteKind {
    let is_cap = error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<CapReached>);
    if is_cap { NoteKind::LimitReached } else { NoteKind::Truncated }
}

/// The cap on bytes out was reached.
#[derive(Debug)]
pub(crate) struct CapReached(pub(crate) u64);

impl std::fmt::Display for CapReached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "it unpacks to more than {} bytes", self.0)
    }
}

impl std::error::Error for CapReached {}
