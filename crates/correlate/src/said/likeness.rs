//! Which causes the words of a case resemble.

use std::collections::BTreeMap;

use ringleader_knowledge::likeness::{self, WordId};
use ringleader_model::{Case, Cause, Cite, Fact, SourceId};

/// The words of a case, each with its first place.
#[derive(Clone, Debug, Default)]
pub struct Likeness {
    words: BTreeMap<WordId, Cite>,
}

/// The likeliest cause of a failure.
#[derive(Clone, Debug)]
pub struct Likely {
    /// It, never `none`.
    pub cause: Cause,
    /// Its score: above 0 where the learnt cases of this cause are, about -1 where none of them is near.
    pub score: f32,
    /// How much higher it is than that of the cause that follows.
    pub margin: f32,
    /// Score of health.
    pub health: f32,
    /// Whether the words resemble those of health more.
    pub is_health: bool,
    /// Causes that follow, in order.
    pub next: Vec<Cause>,
    /// The words that speak for it, with what each adds and its place.
    pub because: Vec<(WordId, f32, Cite)>,
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
                if let Some(word) = WordId::at(one.word) {
                    words.entry(word).or_insert(one.cite);
                }
            }
        }
        Self { words }
    }

    /// How many different words of the table there are.
    pub fn n_words(&self) -> usize {
        self.words.len()
    }

    /// All causes with their scores, and `none` with that of health, the likeliest first; nothing if the words tell
    /// nothing.
    pub fn ranked(&self) -> Vec<(Cause, f32)> {
        let words: Vec<WordId> = self.words.keys().copied().collect();
        if words.len() < MIN_WORDS { Vec::new() } else { likeness::rank(&words) }
    }

    /// How much the words of the sources that `counts` resemble those of healthy jobs; None if they tell nothing.
    pub fn health(&self, counts: impl Fn(SourceId) -> bool) -> Option<f32> {
        let words: Vec<WordId> =
            self.words.iter().filter(|(_, cite)| counts(cite.source)).map(|(word, _)| *word).collect();
        if words.len() < MIN_WORDS {
            return None;
        }
        likeness::rank(&words).into_iter().find(|(cause, _)| *cause == Cause::None).map(|(_, score)| score)
    }

    /// The words that speak most for `cause`, against the likeliest other one, with what each adds and its place.
    pub fn because(&self, cause: Cause) -> Vec<(WordId, f32, Cite)> {
        let is_other = |other: &Cause| *other != cause && !matches!(other, Cause::None | Cause::Undecided);
        let other = self.ranked().into_iter().map(|(other, _)| other).find(is_other);
        let words: Vec<WordId> = self.words.keys().copied().collect();
        let parts = other.map(|other| likeness::because(&words, cause, other)).unwrap_or_default();
        let shown = parts.into_iter().take(SHOWN);
        shown.filter_map(|(word, part)| Some((word, part, *self.words.get(&word)?))).collect()
    }

    /// The likeliest cause; None if the words tell nothing.
    pub fn likeliest(&self) -> Option<Likely> {
        let words: Vec<WordId> = self.words.keys().copied().collect();
        let ranked = self.ranked();
        let is_health = ranked.first().is_some_and(|(cause, _)| *cause == Cause::None);
        let of_health = ranked.iter().find(|(cause, _)| *cause == Cause::None);
        let health = of_health.map_or(f32::MIN, |(_, score)| *score);
        let mut faults =
            ranked.into_iter().filter(|(cause, _)| !matches!(cause, Cause::None | Cause::Undecided));
        let (cause, score) = faults.next()?;
        let next: Vec<(Cause, f32)> = faults.take(N_NEXT).collect();
        let margin = score - next.first()?.1;
        let next: Vec<Cause> = next.into_iter().map(|(cause, _)| cause).collect();
        let because = likeness::because(&words, cause, *next.first()?);
        let because = because
            .into_iter()
            .take(SHOWN)
            .filter_map(|(word, part)| Some((word, part, *self.words.get(&word)?)));
        Some(Likely { cause, score, margin, health, is_health, because: because.collect(), next })
    }
}
