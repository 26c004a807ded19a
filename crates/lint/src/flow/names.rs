//! Names that say that a value is a process's own, or a size of such a value.

use std::sync::OnceLock;

use crate::lookup::NameTable;

/// Names of tensors and loaders that hold a process's own data: their sizes are its own, too.
const SIZED: &[&str] = &[
    "batch",
    "buffer",
    "batches",
    "loader",
    "dataloader",
    "dataset",
    "loss",
    "losses",
    "iter",
    "iterator",
    "logits",
    "grad",
    "grads",
    "tokens",
    "mask",
    "images",
    "boxes",
    "labels",
];
/// Names of lists that hold it: whether they are empty is its own affair.
const LISTS: &[&str] = &[
    "chunks",
    "completions",
    "detections",
    "episodes",
    "examples",
    "features",
    "messages",
    "microbatches",
    "outputs",
    "predictions",
    "preds",
    "prompts",
    "queries",
    "records",
    "results",
    "rewards",
    "rollouts",
    "samples",
    "scores",
    "sentences",
    "sequences",
    "targets",
    "texts",
    "trajectories",
];

/// Ends of names of what the configuration says.
const SETTINGS: &[&str] = &[
    "_size",
    "_dim",
    "_type",
    "_fn",
    "_func",
    "_name",
    "_mode",
    "_config",
    "_cfg",
    "_kwargs",
    "_cls",
    "_class",
    "_coef",
    "_scale",
    "_reduction",
    "_key",
    "_path",
    "_dir",
    "_impl",
];
/// Starts of names of what it switches on.
const SWITCHES: &[&str] = &["use_", "with_", "enable_", "return_", "log_", "is_"];

/// Whether a name is that of a value that holds a process's own data.
pub(crate) fn is_local_name(name: &str) -> bool {
    local_word(name).is_some()
}

/// Whether the size of such a value is the process's own, too.
pub(crate) fn is_sized_name(name: &str) -> bool {
    local_word(name) == Some(true)
}

/// Whether a word in a name denotes a process's own data, and whether a tensor.
fn local_word(name: &str) -> Option<bool> {
    static WORDS: OnceLock<NameTable<bool>> = OnceLock::new();
    // A number that the configuration says.
    let name = name.trim_start_matches('_');
    let said = |list: &[&str], is_it: fn(&str, &str) -> bool| list.iter().any(|part| is_it(name, part));
    if said(SETTINGS, |name, end| name.ends_with(end))
        || said(SWITCHES, |name, start| name.starts_with(start))
    {
        return None;
    }
    let words = WORDS.get_or_init(|| {
        let lists = LISTS.iter().map(|word| (*word, false));
        NameTable::first_of(lists.chain(SIZED.iter().map(|word| (*word, true))))
    });
    let found = name.split('_').filter_map(|part| {
        if part.bytes().any(|byte| byte.is_ascii_uppercase()) {
            words.get(part.to_ascii_lowercase().as_str())
        } else {
            words.get(part)
        }
    });
    found.max()
}

/// Whether a value of this name comes with some samples alone: a batch may be of text.
pub(crate) fn is_of_some_samples(name: &str) -> bool {
    const WORDS: &[&str] =
        &["pixel", "image", "video", "audio", "speech", "visual", "vision", "media", "mel", "waveform"];
    WORDS.iter().any(|word| name.contains(word))
}
