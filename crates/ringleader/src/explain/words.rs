//! Questions in a few words: what holds them, whole words before parts of words, frequent things first.

use ringleader_knowledge::message::{self, Role};
use ringleader_knowledge::symptom;

use crate::explain::answer::{Kind, Topic};
use crate::explain::{MIN_WORD, catalog, topics};

/// More words are prose.
const MAX_WORDS: usize = 8;
/// Words that say nothing of the subject.
const EMPTY: &[&str] = &[
    "the", "and", "for", "with", "that", "this", "does", "what", "why", "how", "when", "are", "was", "has",
    "not", "job",
];

/// Topics that hold all words of the question, those with a word in their name first. Where nothing does, other forms of
/// the words count: `throttling` asks for what was throttled.
pub(super) fn find(query: &str) -> Vec<Topic> {
    let lower = query.to_lowercase();
    let words: Vec<&str> = lower.split(' ').filter(|w| w.len() >= MIN_WORD && !EMPTY.contains(w)).collect();
    if words.is_empty() || words.len() > MAX_WORDS {
        return Vec::new();
    }
    let found = holding(&words);
    let stems: Vec<&str> = words.iter().map(|word| symptom::stem(word)).collect();
    if found.is_empty() && stems != words { holding(&stems) } else { found }
}

/// Topics that hold all of these; messages where no topic does.
fn holding(words: &[&str]) -> Vec<Topic> {
    let mut found: Vec<(usize, u8, Topic)> = catalog::topics()
        .filter_map(|topic| rank(&topic, words).map(|r| (r, often(topic.kind), topic)))
        .collect();
    found.sort_by_key(|(rank, often, _)| (*rank, *often));
    let found: Vec<Topic> = found.into_iter().map(|(_, _, topic)| topic).collect();
    if found.is_empty() { messages(words) } else { found }
}

/// How far a topic is from the question; nothing if it lacks a word of it.
fn rank(topic: &Topic, words: &[&str]) -> Option<usize> {
    let texts = [&topic.name, &topic.title, &topic.meaning].map(|text| text.to_lowercase());
    if words.iter().any(|word| texts.iter().all(|text| !text.contains(word))) {
        return None;
    }
    let mut rank = 0;
    for word in words {
        // In the name, the title, the meaning: as a word, as a part of one.
        let place = |whole: bool| {
            texts.iter().position(|text| if whole { holds_word(text, word) } else { text.contains(word) })
        };
        rank += match (place(true), place(false)) {
            (Some(at), _) => at,
            (None, Some(at)) => 3 + at,
            (None, None) => return None,
        };
    }
    Some(rank)
}

/// Whether `text` holds `word` with no letter or digit beside it; `_` and `-` part words, too.
fn holds_word(text: &str, word: &str) -> bool {
    let is_word = char::is_alphanumeric;
    text.match_indices(word).any(|(at, _)| {
        let before = text.get(..at).and_then(|t| t.chars().next_back());
        let after = text.get(at + word.len()..).and_then(|t| t.chars().next());
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// What is met often comes first: 0 most often.
fn often(kind: Kind) -> u8 {
    match kind {
        Kind::Symptom | Kind::Term => 0,
        Kind::Cause => 1,
        Kind::Rule | Kind::Message | Kind::NcclResult | Kind::NcclMessage => 2,
        Kind::CudaError | Kind::Variable => 3,
        Kind::Xid | Kind::Status | Kind::Check => 4,
        Kind::UnreadVariable | Kind::ValueTrap | Kind::Link | Kind::Bandwidth => 5,
        Kind::Sxid => 6,
    }
}

/// Rows of the field's messages whose text or meaning holds all words, those that tell of a failure first. A single name
/// is no text.
fn messages(words: &[&str]) -> Vec<Topic> {
    if words.len() < 2 {
        return Vec::new();
    }
    let mut rows: Vec<message::Row> = message::holding(words).collect();
    rows.sort_by_key(|row| row.role() == Role::Harmless);
    rows.into_iter().take(super::MAX_TOPICS).map(topics::message).collect()
}
