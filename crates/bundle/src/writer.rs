//! Writes a bundle as a stream.

use std::io::{self, Read, Write};

use crate::manifest::{Cut, Item, ItemOutcome, MANIFEST, Manifest};

/// Bytes kept from the beginning of an item that is cut: versions, settings and the start of a job are there.
const HEAD_BYTES: u64 = 64 << 10;
/// Smallest size of a text that is cut: below it, little of the end would remain.
pub const LEAST_SHARE: u64 = 2 * HEAD_BYTES;
/// Speed of writing matters more than size: the job may be killed while this runs.
const LEVEL: i32 = 3;

/// Limits on the size of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Largest size of one item, bytes.
    pub item_bytes: u64,
    /// Largest size of all items together before compression, bytes.
    pub all_bytes: u64,
}

impl Default for Caps {
    fn default() -> Self {
        Self { item_bytes: 64 << 20, all_bytes: 2 << 30 }
    }
}

/// Why a bundle could not be written.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// Writing to the stream failed.
    #[error("write the bundle")]
    Write(#[source] io::Error),
    /// The manifest could not be serialised.
    #[error("print the manifest")]
    Manifest(#[source] serde_json::Error),
}

impl From<io::Error> for BundleError {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

/// The kind of content of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Lines: if it is too large, its head and tail are kept.
    Text,
    /// Bytes that mean nothing in part: if it is too large, nothing is kept.
    Binary,
}

/// An input that an item is read from.
pub trait ItemSource: Read {
    /// Skips `n_bytes`, by reading them unless the implementation can do better.
    ///
    /// # Errors
    /// If reading fails.
    fn pass_over(&mut self, n_bytes: u64) -> io::Result<()> {
        io::copy(&mut (&mut *self).take(n_bytes), &mut io::sink()).map(|_| ())
    }
}

/// Any stream.
struct Stream<'i>(&'i mut dyn Read);

impl Read for Stream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl ItemSource for Stream<'_> {}

/// Writes a bundle.
pub struct BundleWriter<W: Write> {
    tar: tar::Builder<zstd::stream::write::Encoder<'static, W>>,
    caps: Caps,
    n_bytes: u64,
    items: Vec<Item>,
}

impl<W: Write> BundleWriter<W> {
    /// Starts a bundle.
    ///
    /// # Errors
    /// If the stream fails.
    pub fn new(out: W, caps: Caps) -> Result<Self, BundleError> {
        let mut encoder = zstd::stream::write::Encoder::new(out, LEVEL)?;
        encoder.include_checksum(true)?;
        Ok(Self { tar: tar::Builder::new(encoder), caps, n_bytes: 0, items: Vec::new() })
    }

    /// Largest size of the next item, bytes.
    pub fn room(&self) -> u64 {
        self.caps.item_bytes.min(self.left())
    }

    /// Bytes left for all further items.
    pub fn left(&self) -> u64 {
        self.caps.all_bytes.saturating_sub(self.n_bytes)
    }

    /// Records an item without content, because it was skipped or failed.
    pub fn missing(&mut self, item: Item) {
        self.items.push(Item { name: String::new(), bytes: 0, cut: None, ..item });
    }

    /// Adds an item of `size` bytes and returns the number of bytes added. Of an item that is too large it adds as
    /// much as its kind and the caps allow. If `input` ends early or fails, the item is partial.
    ///
    /// # Errors
    /// If the bundle's own stream fails.
    pub fn add(
        &mut self,
        item: Item,
        content: Content,
        size: u64,
        input: &mut dyn Read,
    ) -> Result<u64, BundleError> {
        self.add_from(item, content, size, &mut Stream(input))
    }

    /// Like [`BundleWriter::add`], from a source that can skip what is left out.
    ///
    /// # Errors
    /// If the bundle's own stream fails.
    pub fn add_from(
        &mut self,
        item: Item,
        content: Content,
        size: u64,
        input: &mut dyn ItemSource,
    ) -> Result<u64, BundleError> {
        self.add_share(item, content, size, input, u64::MAX)
    }

    /// Like [`BundleWriter::add_from`], but takes at most `share` bytes of a text (never less than [`LEAST_SHARE`]), so
    /// that room is left for other items.
    ///
    /// # Errors
    /// If the bundle's own stream fails.
    pub fn add_share(
        &mut self,
        mut item: Item,
        content: Content,
        size: u64,
        input: &mut dyn ItemSource,
        share: u64,
    ) -> Result<u64, BundleError> {
        let room = match content {
            Content::Text => self.room().min(share.max(LEAST_SHARE)),
            Content::Binary => self.room(),
        };
        if size > room && (content == Content::Binary || room < LEAST_SHARE) {
            let why = if self.room() < self.caps.item_bytes {
                format!("{size} bytes, more than what is left of the cap for all items (--max-mib)")
            } else {
                format!("{size} bytes, more than the cap for an item (--max-item-mib)")
            };
            item.outcome = ItemOutcome::Skipped(why);
            self.missing(item);
            return Ok(0);
        }
        item.name = self.free_name(&item.name);
        let written = if size > room {
            let marker_room = 256;
            let tail_bytes = room - HEAD_BYTES - marker_room;
            let left_out_bytes = size - HEAD_BYTES - tail_bytes;
            let marker = format!("\n[ringleader: {left_out_bytes} bytes left out here]\n");
            item.cut = Some(Cut { head_bytes: HEAD_BYTES, tail_bytes, left_out_bytes });
            let total = HEAD_BYTES + marker.len() as u64 + tail_bytes;
            let mut cut = Headed::new(input, HEAD_BYTES, left_out_bytes, &marker);
            self.append(&mut item, total, &mut cut)?
        } else {
            self.append(&mut item, size, &mut &mut *input)?
        };
        item.bytes = written;
        self.n_bytes += written;
        self.items.push(item);
        Ok(written)
    }

    /// Adds an item whose bytes are in memory and returns the number of bytes added.
    ///
    /// # Errors
    /// If the bundle's own stream fails.
    pub fn add_bytes(&mut self, item: Item, content: Content, bytes: &[u8]) -> Result<u64, BundleError> {
        self.add(item, content, bytes.len() as u64, &mut &*bytes)
    }

    /// Finishes the bundle with its manifest, whose items are replaced by those that were added. Returns the stream
    /// and the manifest as written.
    ///
    /// # Errors
    /// If the stream fails or the manifest cannot be serialised.
    pub fn finish(mut self, manifest: Manifest) -> Result<(W, Manifest), BundleError> {
        let manifest = Manifest { items: std::mem::take(&mut self.items), ..manifest };
        let mut text = serde_json::to_vec_pretty(&manifest).map_err(BundleError::Manifest)?;
        text.push(b'\n');
        let mut header = header(text.len() as u64, manifest.began_ns);
        self.tar.append_data(&mut header, MANIFEST, text.as_slice())?;
        let encoder = self.tar.into_inner()?;
        let mut out = encoder.finish()?;
        out.flush()?;
        Ok((out, manifest))
    }

    fn append(&mut self, item: &mut Item, size: u64, input: &mut dyn Read) -> Result<u64, BundleError> {
        let mut padded = Padded { input, n_read: 0, failure: None, left: size };
        self.tar.append_data(&mut header(size, item.at_ns), &item.name, &mut padded)?;
        if padded.n_read < size {
            let n_read = padded.n_read;
            let why =
                padded.failure.map_or_else(|| "it became shorter".to_owned(), |error| error.to_string());
            item.outcome = ItemOutcome::Partial(format!(
                "{n_read} of {size} bytes while it was read ({why}); the rest is filled with line ends"
            ));
        }
        Ok(size)
    }

    /// Returns `name`, or a variant of it that no item has: two processes may use the same name for two files.
    fn free_name(&self, name: &str) -> String {
        let is_taken = |name: &str| name == MANIFEST || self.items.iter().any(|item| item.name == name);
        if !is_taken(name) {
            return name.to_owned();
        }
        // The number goes into the folder: the end of a dump's name is its rank.
        let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
        // There are more candidates than items, so one is free.
        (2..self.items.len() + 4)
            .map(|n| if folder.is_empty() { format!("{n}/{file}") } else { format!("{folder}-{n}/{file}") })
            .find(|name| !is_taken(name))
            .unwrap_or_default()
    }
}

fn header(size: u64, at_ns: i64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(0o600);
    header.set_mtime(u64::try_from(at_ns / 1_000_000_000).unwrap_or(0));
    header
}

/// Yields exactly the announced number of bytes: a file may shrink while it is read, but the archive may not.
struct Padded<'i> {
    input: &'i mut dyn Read,
    n_read: u64,
    failure: Option<io::Error>,
    left: u64,
}

impl Read for Padded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let Some(buffer) = buffer.get_mut(..room).filter(|b| !b.is_empty()) else { return Ok(0) };
        let mut n = 0;
        if self.failure.is_none() {
            match self.input.read(buffer) {
                Ok(read) => n = read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
                Err(error) => self.failure = Some(error),
            }
        }
        if n == 0 {
            buffer.fill(b'\n');
            n = buffer.len();
        } else {
            self.n_read += n as u64;
        }
        self.left = self.left.saturating_sub(n as u64);
        Ok(n)
    }
}

/// A stream with its middle skipped and a marker line in its place. The two lines that the cut splits become blanks:
/// half a line may state something else than the whole line.
struct Headed<'i> {
    input: &'i mut dyn ItemSource,
    head: io::Cursor<Vec<u8>>,
    /// Why the head is incomplete; returned after the head has been read.
    failure: Option<io::Error>,
    to_skip: u64,
    is_in_half_line: bool,
}

impl<'i> Headed<'i> {
    fn new(input: &'i mut dyn ItemSource, head_bytes: u64, to_skip: u64, marker: &str) -> Self {
        let mut head = Vec::new();
        let failure = (&mut *input).take(head_bytes).read_to_end(&mut head).err();
        let last_line = head.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        if let Some(half) = head.get_mut(last_line..) {
            half.fill(b' ');
        }
        // If the head ended early, the caller pads the missing bytes.
        if failure.is_none() {
            head.extend_from_slice(marker.as_bytes());
        }
        Self { input, head: io::Cursor::new(head), failure, to_skip, is_in_half_line: true }
    }
}

impl Read for Headed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.head.read(buffer)?;
        if n > 0 || buffer.is_empty() {
            return Ok(n);
        }
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if self.to_skip > 0 {
            let n = std::mem::take(&mut self.to_skip);
            self.input.pass_over(n)?;
        }
        let n = self.input.read(buffer)?;
        if self.is_in_half_line {
            let read = buffer.get_mut(..n).unwrap_or_default();
            let end = read.iter().position(|b| *b == b'\n');
            self.is_in_half_line = end.is_none();
            let end = end.unwrap_or(read.len());
            read.get_mut(..end).unwrap_or_default().fill(b' ');
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests;
