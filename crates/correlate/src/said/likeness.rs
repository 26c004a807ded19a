//! Which causes the words of a case resemble.

use std::collections::BTreeMap;

use ringleader_knowledge::likeness::{self, Word};
use ringleader_model::{Case, Cause, Cite, Fact};

/// The words of a case, each with its first place.
#[derive(Clone, Debug, Default)]
pub struct Likeness {
    words: BTreeMap<Word, Cite>,
}

/// The likeliest cause.
#[derive(Clone, Debug)]
pub struct Likely {
    /// It.
    pub cause: Cause,
    /// Its score.
    pub score: f32,
    /// How much further it is from the next one.
    pub ahead: f32,
    /// Causes that follow, in order.
    pub next: Vec<Cause>,
    /// The words that speak for it, with what each adds and its place.
    pub because: Vec<(Word, f32, Cite)>,
}

/// Words that are shown.
const SHOWN: usize = 4;

impl Likeness {
    /// Collects the words of a case.
    pub fn new(case: &Case) -> Self {
        let mut words = BTreeMap::new();
        for observation in &case.observations {
            let Fact::Words(found) = &observation.fact else { continue };
            for one in found {
                if let Some(word) = Word::at(one.word) {
                    words.entry(word).or_insert(one.cite);
                }
            }
        }
        Self { words }
    }

    /// The likeliest cause of a failure; None if the words tell nothing.
    pub fn likeliest(&self) -> Option<Likely> {
        let words: Vec<Word> = self.words.keys().copied().collect();
        let ranked = likeness::rank(&words);
        let (cause, score) = *ranked.first()?;
        let second = ranked.get(1).copied()?;
        if score <= 0.0 {
            return None;
        }
        let because = likeness::because(&words, cause, second.0);
        let because = because
            .into_iter()
            .take(SHOWN)
            .filter_map(|(word, part)| Some((word, part, *self.words.get(&word)?)));
        Some(Likely {
            cause,
            score,
            ahead: score - second.1,
            next: ranked.iter().skip(1).take(2).map(|(cause, _)| *cause).collect(),
            because: because.collect(),
        })
    }
}
