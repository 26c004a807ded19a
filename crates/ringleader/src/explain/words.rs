//! Questions in a few words: what holds them, whole words before beginnings of words, frequent things first.

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
    let mut found: Vec<((usize, usize), u8, Topic)> = catalog::topics()
        .filter_map(|topic| rank(&topic, words).map(|r| (r, often(topic.kind), topic)))
        .collect();
    found.sort_by_key(|(rank, often, _)| (*rank, *often));
    let found: Vec<Topic> = found.into_iter().map(|(_, _, topic)| topic).collect();
    if found.is_empty() { messages(words) } else { found }
}

/// How far a topic is from the question: how many words it has as the beginning of another word alone, then the places
/// of all. Nothing if it lacks a word.
fn rank(topic: &Topic, words: &[&str]) -> Option<(usize, usize)> {
    let texts = [&topic.name, &topic.title, &topic.meaning];
    let lower = texts.map(|text| text.to_ascii_lowercase());
    if words.iter().any(|word| lower.iter().all(|text| !text.contains(word))) {
        return None;
    }
    let (mut parts, mut rank) = (0, 0);
    for word in words {
        // In the name, the title, the meaning.
        let place = |holds: fn(&str, &str, &str) -> bool| {
            texts.iter().zip(&lower).position(|(text, lower)| holds(text, lower, word))
        };
        if let Some(at) = place(|_, lower, word| holds_word(lower, word)) {
            rank += at;
        } else {
            rank += place(begins_word)?;
            parts += 1;
        }
    }
    Some((parts, rank))
}

/// Whether `lower` holds `word` with no letter or digit beside it; `_` and `-` part words, too.
fn holds_word(lower: &str, word: &str) -> bool {
    let is_word = char::is_alphanumeric;
    lower.match_indices(word).any(|(at, _)| {
        let before = lower.get(..at).and_then(|t| t.chars().next_back());
        let after = lower.get(at + word.len()..).and_then(|t| t.chars().next());
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// Whether a word of `text` begins with `word`: `deallocated` is not about what is allocated. A capital within a name
/// begins a word, too.
fn begins_word(text: &str, lower: &str, word: &str) -> bool {
    lower.match_indices(word).any(|(at, _)| {
        let before = text.get(..at).and_then(|t| t.chars().next_back());
        let mut rest = text.get(at..).into_iter().flat_map(str::chars);
        let (first, second) = (rest.next(), rest.next());
        let after_a_capital = || second.is_some_and(char::is_lowercase);
        before.is_none_or(|before| {
            !before.is_alphanumeric()
                || first.is_some_and(char::is_uppercase) && (!before.is_uppercase() || after_a_capital())
        })
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
    let mut rows: Vec<message::MessageRow> = message::holding(words).collect();
    rows.sort_by_key(|row| row.role() == Role::Harmless);
    rows.into_iter().take(super::MAX_TOPICS).map(topics::message).collect()
}
