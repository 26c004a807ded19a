//! Words of the table of likeness: which of them a source has, each with its first place.

use ringleader_knowledge::likeness::{self, WordId};
use ringleader_knowledge::{form, message, sign};
use ringleader_model::{Fact, Who, WordAt};

use super::N_SURE_LINES;
use crate::ground::{Line, Sink, lossy};
use crate::readers::Name;

/// Longest line that is looked at, bytes.
const MAX_BYTES: usize = 1 << 10;

/// The words of one source.
#[derive(Default)]
pub(super) struct WordsReader {
    /// One bit for each word of the table.
    seen: Vec<u64>,
    found: Vec<WordAt>,
}

impl WordsReader {
    /// Looks at a line, if it is of the beginning or may state a failure.
    pub(super) fn line(&mut self, line: &Line<'_>, taken: Option<Name>, sink: &Sink<'_>) {
        let body = line.body.get(..MAX_BYTES).unwrap_or(line.body);
        let is_wanted = || form::wanted_in_line(body) || message::wanted(body, 0).is_some();
        if line.number > N_SURE_LINES && (taken == Some(Name::kernel) || !is_wanted()) {
            return;
        }
        // What a command looks for is no sign that it is there.
        let text = lossy(body);
        if sign::is_command(&text) {
            return;
        }
        if self.seen.is_empty() {
            self.seen.resize(likeness::n_words().div_ceil(64), 0);
        }
        let cite = sink.cite(line.number, line.offset, line.end());
        likeness::each_word(&text, &mut |text| {
            let Some(word) = WordId::of(text) else { return };
            let number = word.number();
            let (place, bit) = (usize::from(number / 64), 1_u64 << (number % 64));
            if let Some(seen) = self.seen.get_mut(place).filter(|seen| **seen & bit == 0) {
                *seen |= bit;
                self.found.push(WordAt { word: number, cite });
            }
        });
    }

    /// End of the source.
    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        self.seen.clear();
        let found = std::mem::take(&mut self.found);
        if let Some(first) = found.first() {
            sink.push(first.cite, Who::default(), None, Fact::Words(found.into()), b"");
        }
    }
}
