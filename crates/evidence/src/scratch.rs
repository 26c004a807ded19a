//! What is kept from file to file.

use std::io::Read;

use ringleader_model::NoteKind;

use crate::ground::{Sink, stop_kind};
use crate::readers::Kept;
use crate::text::Room;

/// What is kept from file to file: buffers, and what files of one job share.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Room for lines.
    pub(crate) text: Room,
    /// Room for a file that is read as a whole.
    pub(crate) whole: Whole,
    /// What readers keep.
    pub(crate) kept: Kept,
}

/// The whole of a file, in a buffer that is kept from file to file: it never shrinks, so that only what a file is longer
/// than all before it must be cleared first.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    buffer: Vec<u8>,
    n_filled: usize,
}

impl Whole {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.get(..self.n_filled).unwrap_or_default()
    }

    /// Room for another read.
    fn room(&mut self, n_bytes: usize) -> &mut [u8] {
        let end = self.n_filled.saturating_add(n_bytes);
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        self.buffer.get_mut(self.n_filled..end).unwrap_or_default()
    }

    /// Reads to the end in large pieces.
    fn fill(&mut self, input: &mut dyn Read) -> std::io::Result<()> {
        loop {
            match input.read(self.room(READ_BYTES)) {
                Ok(0) => return Ok(()),
                Ok(n) => self.n_filled += n.min(READ_BYTES),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Size of one read of a dump: most are taken whole in one or two.
const READ_BYTES: usize = 512 << 10;

/// Reads the rest of `input` after `head` into `whole`, up to a bound; says so if reading failed or the bound was hit.
pub(crate) fn hold(
    head: &[u8],
    input: &mut dyn Read,
    max_bytes: u64,
    whole: &mut Whole,
    sink: &mut Sink<'_>,
) {
    whole.n_filled = 0;
    whole.room(head.len()).copy_from_slice(head);
    whole.n_filled = head.len();
    let room = max_bytes.saturating_sub(head.len() as u64);
    let result = whole.fill(&mut input.take(room));
    let end = whole.n_filled as u64;
    if let Err(error) = result {
        let text = format!("reading stopped here ({error}); what came before was read");
        sink.note(sink.cite(0, end, end), stop_kind(&error), text);
    } else if end >= max_bytes && matches!(input.read(&mut [0]), Ok(1)) {
        let text = format!("larger than {max_bytes} bytes; the rest was left out");
        sink.note(sink.cite(0, end, end), NoteKind::LimitReached, text);
    }
}
