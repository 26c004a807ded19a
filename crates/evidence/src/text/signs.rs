//! Signs of the table of signs: what a line says beside what it is read for, in any output, and in whose command's
//! output it is.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use ringleader_knowledge::sign;
use ringleader_model::{Cite, Fact, Sign, WallTime, Who};

use super::N_SURE_LINES;
use crate::ground::{Line, Sink, lossy};
use crate::readers::Name;

/// Words of those lines of NCCL that are looked at.
static TELLING: LazyLock<[Finder<'static>; 6]> = LazyLock::new(|| {
    ["WARN", "dlerror", "NET : ", "maxSharedMem", ":172.17.0.", "libibverbs"]
        .map(|word| Finder::new(word.as_bytes()))
});
/// Longest line that is looked at, bytes.
const MAX_BYTES: usize = 4 << 10;

/// The signs of one source, each once.
#[derive(Default)]
pub(super) struct SignReader {
    /// The last command after a prompt.
    command: String,
    found: Vec<Found>,
    room: Vec<&'static sign::Row>,
}

struct Found {
    first: Cite,
    who: Who,
    at: Option<WallTime>,
    text: Vec<u8>,
    sign: Sign,
}

impl SignReader {
    /// Looks at a line that `taken` has read, or nobody. Most of NCCL's lines are facts already, and there are very many.
    pub(super) fn line(&mut self, line: &Line<'_>, taken: Option<Name>, sink: &Sink<'_>) {
        if taken == Some(Name::nccl) && !TELLING.iter().any(|finder| finder.find(line.body).is_some()) {
            return;
        }
        let is_early = line.number <= N_SURE_LINES;
        if taken == Some(Name::kernel) && !is_early {
            return;
        }
        let text = lossy(line.body.get(..MAX_BYTES).unwrap_or(line.body));
        if let Some(command) = sign::command(&text) {
            command.clone_into(&mut self.command);
        }
        self.room.clear();
        sign::of(&text, is_early.then_some(self.command.as_str()), &mut self.room);
        for row in &self.room {
            if let Some(known) = self.found.iter_mut().find(|f| f.sign.id == row.id) {
                known.sign.count = known.sign.count.saturating_add(1);
                continue;
            }
            self.found.push(Found {
                first: sink.cite(line.number, line.offset, line.end()),
                who: line.tag.who.clone(),
                at: line.tag.at,
                text: line.body.to_vec(),
                sign: Sign { id: row.id, count: 1 },
            });
        }
    }

    /// End of the source.
    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        for found in std::mem::take(&mut self.found) {
            sink.push(found.first, found.who, found.at, Fact::Sign(found.sign), &found.text);
        }
    }
}
