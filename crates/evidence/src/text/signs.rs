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
    found: Vec<FoundSign>,
    room: Vec<&'static sign::SignRow>,
}

struct FoundSign {
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
        if is_early && taken.is_none() && mixes_alphabets(line.body) {
            self.room.extend(sign::get(sign::ids::MIXED_ALPHABETS));
        }
        for row in &self.room {
            if let Some(known) = self.found.iter_mut().find(|f| f.sign.id == row.id) {
                known.sign.count = known.sign.count.saturating_add(1);
                continue;
            }
            self.found.push(FoundSign {
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

/// Whether a Latin and a Cyrillic letter, both small, stand side by side: so does nobody write, and models do whose numbers are
/// wrong.
fn mixes_alphabets(line: &[u8]) -> bool {
    memchr::memchr2_iter(0xd0, 0xd1, line).any(|at| {
        // а to п are d0 b0 to d0 bf, р to я d1 80 to d1 8f.
        let is_small = match (line.get(at), line.get(at + 1)) {
            (Some(0xd0), Some(next)) => (0xb0..=0xbf).contains(next),
            (Some(0xd1), Some(next)) => (0x80..=0x8f).contains(next),
            _ => false,
        };
        let before = at.checked_sub(1).and_then(|before| line.get(before));
        is_small && before.into_iter().chain(line.get(at + 2)).any(u8::is_ascii_lowercase)
    })
}

#[cfg(test)]
mod tests {
    use super::mixes_alphabets;

    #[test]
    fn words_of_two_alphabets() {
        assert!(mixes_alphabets("eli \u{43e}visionsulpt hat".as_bytes()));
        assert!(mixes_alphabets("сtep".as_bytes()));
        // Each word in its own, a hyphen between them, other letters.
        for line in ["loss ошибка 3", "cuda-устройство", "Ünïcode µs", "шаг 3: loss", "GPUшка"]
        {
            assert!(!mixes_alphabets(line.as_bytes()), "{line}");
        }
    }
}
