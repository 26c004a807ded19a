//! Which causes the words of a case resemble.

use std::collections::BTreeMap;

use ringleader_knowledge::likeness::{self, Word};
use ringleader_model::{Case, Cause, Cite, Fact};

/// The words of a case, each with its first place.
#[derive(Clone, Debug, Default)]
pub struct Likeness {
    words: BTreeMap<Word, Cite>,
}

/// The likeliest cause of a failure.
#[derive(Clone, Debug)]
pub struct Likely {
    /// It, never `none`.
    pub cause: Cause,
    /// Its score: above 0 where the learnt cases of this cause are, about -1 where none of them is near.
    pub score: f32,
    /// Whether the words resemble those of health more.
    pub is_health: bool,
    /// Causes that follow, in order.
    pub next: Vec<Cause>,
    /// The words that speak for it, with what each adds and its place.
    pub because: Vec<(Word, f32, Cite)>,
}

/// Fewer words of the table tell nothing.
const MIN_WORDS: usize = 3;
/// Causes that are given after the likeliest.
const N_NEXT: usize = 2;
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

    /// The likeliest cause; None if the words tell nothing.
    pub fn likeliest(&self) -> Option<Likely> {
        let words: Vec<Word> = self.words.keys().copied().collect();
        if words.len() < MIN_WORDS {
            return None;
        }
        let ranked = likeness::rank(&words);
        let is_health = ranked.first().is_some_and(|(cause, _)| *cause == Cause::None);
        let mut faults =
            ranked.into_iter().filter(|(cause, _)| !matches!(cause, Cause::None | Cause::Undecided));
        let (cause, score) = faults.next()?;
        let next: Vec<Cause> = faults.take(N_NEXT).map(|(cause, _)| cause).collect();
        let because = likeness::because(&words, cause, *next.first()?);
        let because = because
            .into_iter()
            .take(SHOWN)
            .filter_map(|(word, part)| Some((word, part, *self.words.get(&word)?)));
        Some(Likely { cause, score, is_health, because: because.collect(), next })
    }
}
