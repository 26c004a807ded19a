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
/// What `jax.distributed` waits for a heartbeat by default, seconds.
const HEARTBEAT_S: f64 = 100.0;
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
        if compiles_for_minutes(&text) {
            self.room.extend(sign::get(sign::ids::COMPILES_FOR_MINUTES));
        }
        if is_led_elsewhere(&text) {
            self.room.extend(sign::get(sign::ids::MASTER_IS_ANOTHER_NODE));
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

/// Whether a node that is not the first one was told to go to itself: `[NODE-2(node14)] torchrun … --node_rank 2 --master_addr node14 …`.
/// The store is in the first node's launcher.
fn is_led_elsewhere(text: &str) -> bool {
    let value = |names: [&str; 2]| {
        let (_, behind) = names.iter().find_map(|name| text.split_once(name))?;
        behind.trim_start_matches(['=', ' ']).split_ascii_whitespace().next()
    };
    let rank = || value(["--node_rank", "--node-rank"])?.parse::<u32>().ok();
    let own = || {
        let master = value(["--master_addr", "--master-addr"])?;
        let head = text.split("--").next()?;
        let mut words = head.split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '.' | '_'));
        Some(master.len() > 2 && words.any(|word| word == master))
    };
    rank().is_some_and(|rank| rank > 0) && !text.contains("rdzv") && own() == Some(true)
}

/// Whether a line says that XLA compiled for longer than JAX's coordinator waits for a heartbeat by default:
/// `Finished XLA compilation of jit(train_step) in 327.116 sec`.
fn compiles_for_minutes(text: &str) -> bool {
    let seconds = || {
        let (_, behind) = text.split_once("XLA compilation of ")?;
        let (_, time) = behind.rsplit_once(" in ")?;
        time.trim_end().strip_suffix(" sec")?.parse::<f64>().ok()
    };
    seconds().is_some_and(|seconds| seconds >= HEARTBEAT_S)
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
    use super::{compiles_for_minutes, is_led_elsewhere, mixes_alphabets};

    #[test]
    fn a_node_that_is_told_to_go_to_itself() {
        let line = |host: &str, rank: u32| {
            format!(
                "[NODE-{rank}({host})] torchrun --nnodes 4 --node_rank {rank} --master_addr node14 --master_port 29511 main.py"
            )
        };
        assert!(is_led_elsewhere(&line("node14", 2)));
        // The first node is where the others go; another one is told to go there.
        assert!(!is_led_elsewhere(&line("node14", 0)));
        assert!(!is_led_elsewhere(&line("node16", 3)));
    }

    #[test]
    fn a_compilation_that_outlasts_heartbeats() {
        let line =
            |time| format!("dispatch.py:182] Finished XLA compilation of jit(train_step) in {time} sec");
        assert!(compiles_for_minutes(&line("327.116")));
        assert!(!compiles_for_minutes(&line("31.402")));
        assert!(!compiles_for_minutes("Finished tracing + transforming train_step in 327.116 sec"));
    }

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
