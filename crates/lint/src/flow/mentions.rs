//! Words of a file: one pass over its text for all words that show how its job runs.

use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::AhoCorasick;

/// Facts on the job from the words of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mentions {
    /// That parameters are sharded. A question for a mode that may be on says nothing, and neither does a comment.
    pub(crate) sharding: bool,
    /// The same outside of the documentation of functions, which may be about what callers give.
    pub(crate) sharding_code: bool,
    /// That a model holds buffers.
    pub(crate) buffers: bool,
    /// That DDP leaves buffers alone.
    pub(crate) no_buffers: bool,
    /// That gradients are reduced by hand.
    pub(crate) by_hand: bool,
    /// Whether the text wraps a model.
    pub(crate) wrapping: bool,
    /// That several processes run.
    pub(crate) processes: bool,
}

#[derive(Clone, Copy)]
enum Says {
    Sharding,
    Buffers,
    NoBuffers,
    ByHand,
    Wrapping,
    Processes,
}

/// Words; those about sharding in any case.
const WORDS: &[(&str, Says)] = &[
    ("fullyshardeddataparallel", Says::Sharding),
    ("fully_shard", Says::Sharding),
    ("fsdp", Says::Sharding),
    ("deepspeed", Says::Sharding),
    ("zero3", Says::Sharding),
    ("zero-3", Says::Sharding),
    ("zero 3", Says::Sharding),
    ("zero_stage", Says::Sharding),
    ("BatchNorm", Says::Buffers),
    ("register_buffer", Says::Buffers),
    ("buffers", Says::Buffers),
    ("resnet", Says::Buffers),
    ("ResNet", Says::Buffers),
    ("barrier(", Says::Buffers),
    ("broadcast_buffers=False", Says::NoBuffers),
    ("all_reduce(p.grad", Says::ByHand),
    ("all_reduce(param.grad", Says::ByHand),
    ("all_reduce(parameter.grad", Says::ByHand),
    ("DistributedDataParallel", Says::Wrapping),
    ("DistributedOptimizer", Says::Wrapping),
    ("Accelerator(", Says::Wrapping),
    ("torch.distributed", Says::Processes),
    ("horovod", Says::Processes),
];

/// Beside a word about sharding: a line that asks for a mode.
const QUESTIONS: &[&str] = &[
    "deepspeed_plugin",
    "deepspeed_zero_init",
    "distributedtype",
    "distributed_type",
    "is_deepspeed",
    "is_fsdp",
];

fn finder() -> Option<&'static AhoCorasick> {
    static FINDER: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    let words = || WORDS.iter().map(|(word, _)| *word);
    let build = || AhoCorasick::builder().ascii_case_insensitive(true).build(words()).ok();
    FINDER.get_or_init(build).as_ref()
}

/// Reads a file's text.
pub(crate) fn mentions(text: &str) -> Mentions {
    let mut said = Mentions::default();
    let prose = std::cell::OnceCell::new();
    let is_prose =
        |at: usize| prose.get_or_init(|| documentation(text)).iter().any(|part| part.contains(&at));
    for found in finder().into_iter().flat_map(|finder| finder.find_overlapping_iter(text)) {
        let Some((word, says)) = WORDS.get(found.pattern().as_usize()) else { continue };
        let is_exact = text.get(found.range()) == Some(*word);
        match says {
            Says::Sharding if said.sharding_code => {}
            Says::Sharding => {
                let shards = shards(text, found.start());
                said.sharding |= shards;
                said.sharding_code = shards && !is_prose(found.start());
            }
            Says::Buffers => said.buffers |= is_exact,
            Says::NoBuffers => said.no_buffers |= is_exact,
            Says::ByHand => said.by_hand |= is_exact,
            Says::Wrapping => said.wrapping |= is_exact,
            Says::Processes => said.processes |= is_exact,
        }
    }
    said
}

/// Whether the line of a word about sharding says that something is sharded.
fn shards(text: &str, at: usize) -> bool {
    let start = text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1);
    let line = text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
    // A comment says nothing about this run.
    let code = line.split(" #").next().unwrap_or_default();
    if code.trim_start().starts_with('#') || start + code.len() <= at {
        return false;
    }
    let lower = code.to_ascii_lowercase();
    !QUESTIONS.iter().any(|word| lower.contains(word))
}

/// Bytes of the texts in three quotes that are statements of their own.
fn documentation(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    // The quotes of the text that is open, and where it began if it is a statement.
    let mut open: Option<(&str, Option<usize>)> = None;
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let mut at = 0;
        let begins = line.trim_start().trim_start_matches(['r', 'R', 'u', 'U']);
        while let Some(rest) = line.get(at..) {
            if let Some((quotes, since)) = open {
                let Some(end) = rest.find(quotes) else { break };
                at += end + 3;
                found.extend(since.map(|since| since..start + at));
                open = None;
            } else {
                let next =
                    ["\"\"\"", "'''"].into_iter().filter_map(|quotes| Some((rest.find(quotes)?, quotes)));
                let Some((begin, quotes)) = next.min() else { break };
                if rest.get(..begin).unwrap_or_default().contains('#') {
                    break;
                }
                let is_statement = at == 0 && begins.starts_with(quotes);
                open = Some((quotes, is_statement.then_some(start + begin)));
                at += begin + 3;
            }
        }
        start += line.len();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sharding_is_said_in_code_and_not_asked_for() {
        assert!(mentions("model = FSDP(model)").sharding);
        assert!(mentions("x = 1\nimport DeepSpeed").sharding);
        assert!(!mentions("# FSDP would help").sharding);
        assert!(!mentions("x = 1 # with fsdp\n").sharding);
        assert!(!mentions("if accelerator.distributed_type == DistributedType.DEEPSPEED:").sharding);
    }

    #[test]
    fn documentation_says_nothing_of_the_run() {
        let said = mentions("def load(model):\n    \"\"\"Loads.\n\n    Also FSDP models.\n    \"\"\"\n");
        assert!(said.sharding && !said.sharding_code);
        assert!(!mentions("r'''FSDP, too'''\n").sharding_code);
        assert!(mentions("\"\"\"Loads.\"\"\"\nmodel = FSDP(model)").sharding_code);
        // A configuration is no documentation.
        assert!(mentions("config = \"\"\"\n{\"zero_stage\": 3}\n\"\"\"").sharding_code);
        assert!(mentions("x = '''a'''  # \"\"\"\nmodel = FSDP(model)").sharding_code);
    }

    #[test]
    fn words_inside_others_count() {
        let said = mentions("DDP(model, broadcast_buffers=False)");
        assert!(said.no_buffers && said.buffers && !said.wrapping);
        assert!(!mentions("batchnorm").buffers);
    }
}
