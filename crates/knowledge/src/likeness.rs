//! Which causes a text resembles: a linear score over its words, learnt from cases whose cause is known.
//!
//! ```text
//! rendezvous connection    missing-rank +0.41, hostname-resolution +0.33, shape-mismatch -0.12
//! ```
//! It orders candidates where no rule decides. `cargo xtask likeness` learns the weights, which are in
//! `data/likeness.txt`; nothing in it knows an order of events, a rank or a number.

use std::sync::OnceLock;

use ringleader_model::Cause;

use crate::tables::{LIKENESS_CAUSES, LIKENESS_STARTS, LIKENESS_WEIGHTS, LIKENESS_WORDS};

/// Units of a weight.
pub const UNIT: f32 = 1000.0;
/// Shortest word, bytes.
const MIN_BYTES: usize = 3;
/// Longest word, bytes.
const MAX_BYTES: usize = 40;

/// Words with their rarity, where the weights of each begin, and the weights by cause.
struct LikenessTable {
    causes: &'static [Cause],
    words: &'static [(&'static str, u16)],
    starts: &'static [u32],
    /// Of each weight the number of its cause, and the weight in two bytes, the lower first.
    weights: &'static [u8],
}

/// Bytes of a weight.
const WEIGHT_BYTES: usize = 3;

static COMPILED: LikenessTable = LikenessTable {
    causes: LIKENESS_CAUSES,
    words: LIKENESS_WORDS,
    starts: LIKENESS_STARTS,
    weights: LIKENESS_WEIGHTS,
};
static OTHER: OnceLock<LikenessTable> = OnceLock::new();

fn table() -> &'static LikenessTable {
    OTHER.get().unwrap_or(&COMPILED)
}

/// Takes these weights, in the form of `data/likeness.txt`, for the rest of this process: a measurement judges a case with
/// weights that have not seen it. They stay in memory.
///
/// # Errors
/// The line that cannot be read, or that other weights were taken already.
pub fn replace(text: &str) -> Result<(), String> {
    let (mut causes, mut words, mut weights) = (Vec::new(), Vec::new(), Vec::new());
    let mut starts = vec![0_u32];
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let row = || {
            let mut fields = line.split('\t');
            let (word, rarity, parts) = (fields.next()?, fields.next()?.parse().ok()?, fields.next()?);
            let parts = parts.split(' ').map(|part| {
                let (cause, weight) = part.split_once(':')?;
                Some((Cause::of_id(cause)?, weight.parse::<i16>().ok()?))
            });
            Some((word, rarity, parts.collect::<Option<Vec<_>>>()?))
        };
        let (word, rarity, parts) = row().ok_or_else(|| line.to_owned())?;
        words.push((&*word.to_owned().leak(), rarity));
        for (cause, weight) in parts {
            let number = causes.iter().position(|c| *c == cause).unwrap_or_else(|| {
                causes.push(cause);
                causes.len() - 1
            });
            weights.push(number as u8);
            weights.extend(weight.to_le_bytes());
        }
        starts.push((weights.len() / WEIGHT_BYTES) as u32);
    }
    let (causes, words, starts, weights) = (causes.leak(), words.leak(), starts.leak(), weights.leak());
    let other = LikenessTable { causes, words, starts, weights };
    OTHER.set(other).map_err(|_| "other weights were taken already".to_owned())
}

/// A word or pair of words of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WordId(u16);

impl WordId {
    /// The word with this spelling.
    pub fn of(text: &str) -> Option<Self> {
        let at = table().words.binary_search_by(|(word, _)| (*word).cmp(text)).ok()?;
        u16::try_from(at).ok().map(Self)
    }

    /// The word with this number.
    pub fn at(number: u16) -> Option<Self> {
        table().words.get(usize::from(number)).map(|_| Self(number))
    }

    /// Its number.
    pub fn number(self) -> u16 {
        self.0
    }

    /// Its spelling.
    pub fn text(self) -> &'static str {
        table().words.get(usize::from(self.0)).map_or("", |(word, _)| word)
    }

    fn rarity(self) -> f32 {
        table().words.get(usize::from(self.0)).map_or(0.0, |(_, rarity)| f32::from(*rarity) / UNIT)
    }

    fn weights(self) -> impl Iterator<Item = (usize, f32)> {
        let at = usize::from(self.0);
        let bounds = table().starts.get(at).zip(table().starts.get(at + 1));
        let range =
            bounds.map_or(0..0, |(start, end)| WEIGHT_BYTES * *start as usize..WEIGHT_BYTES * *end as usize);
        let weights = table().weights.get(range).unwrap_or_default().as_chunks::<WEIGHT_BYTES>().0;
        weights.iter().map(|[cause, low, high]| {
            (usize::from(*cause), f32::from(i16::from_le_bytes([*low, *high])) / UNIT)
        })
    }
}

/// Number of words of the table.
pub fn n_words() -> usize {
    table().words.len()
}

/// Calls `each` with the words of a line and with each two that follow one another, in small letters.
pub fn each_word(line: &str, each: &mut impl FnMut(&str)) {
    let mut pair = String::new();
    let mut last_bytes = 0;
    let lower = line.to_ascii_lowercase();
    for word in lower.split(|c: char| !c.is_ascii_lowercase() && c != '_') {
        if !(MIN_BYTES..=MAX_BYTES).contains(&word.len()) {
            continue;
        }
        each(word);
        if last_bytes > 0 {
            let keep = pair.len() - last_bytes;
            pair.drain(..keep);
            pair.push(' ');
            pair.push_str(word);
            each(&pair);
        } else {
            pair.push_str(word);
        }
        last_bytes = word.len();
    }
}

/// Causes by their score, the likeliest first; `words` each once.
pub fn rank(words: &[WordId]) -> Vec<(Cause, f32)> {
    let mut scores = vec![0.0_f32; table().causes.len()];
    for (cause, bias) in WordId::of("").into_iter().flat_map(WordId::weights) {
        if let Some(score) = scores.get_mut(cause) {
            *score = bias;
        }
    }
    let length = length(words);
    for word in words {
        for (cause, weight) in word.weights() {
            if let Some(score) = scores.get_mut(cause) {
                *score += word.rarity() * weight / length;
            }
        }
    }
    let mut all: Vec<(Cause, f32)> = table().causes.iter().copied().zip(scores).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all
}

/// The words that count most for `cause` and against `other`, with what each adds.
pub fn because(words: &[WordId], cause: Cause, other: Cause) -> Vec<(WordId, f32)> {
    let number = |of: Cause| table().causes.iter().position(|c| *c == of);
    let (own, others) = (number(cause), number(other));
    let length = length(words);
    let mut all: Vec<(WordId, f32)> = words
        .iter()
        .map(|word| {
            let of = |n: Option<usize>| word.weights().find(|(c, _)| Some(*c) == n).map_or(0.0, |(_, w)| w);
            (*word, (of(own) - of(others)) * word.rarity() / length)
        })
        .filter(|(_, part)| *part > 0.0)
        .collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all
}

fn length(words: &[WordId]) -> f32 {
    let square: f32 = words.iter().map(|w| w.rarity() * w.rarity()).sum();
    if square > 0.0 { square.sqrt() } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::{WordId, each_word, n_words, rank};

    #[test]
    fn words_and_pairs() {
        let mut found = Vec::new();
        each_word("[rank3]: RendezvousTimeoutError after 60s, to 10.0.0.1 (c10d)", &mut |w| {
            found.push(w.to_owned());
        });
        assert_eq!(
            found,
            [
                "rank",
                "rendezvoustimeouterror",
                "rank rendezvoustimeouterror",
                "after",
                "rendezvoustimeouterror after"
            ]
        );
    }

    #[test]
    fn words_are_found_by_their_spelling() {
        assert!(n_words() > 1000);
        for number in [0, 100, 1000] {
            let word = WordId::at(number).expect("there are more");
            assert_eq!(WordId::of(word.text()), Some(word));
        }
    }

    #[test]
    fn nothing_resembles_nothing() {
        // What is left are the odds of each cause before a word is read.
        assert!(rank(&[]).iter().all(|(_, score)| *score < 0.0));
    }
}
