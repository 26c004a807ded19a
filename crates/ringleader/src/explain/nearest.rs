//! Names that are spelled like one that is not known, and symptoms whose words are like those of a question.

use ringleader_knowledge::symptom;

/// Longer than any name.
const MAX_CHARS: usize = 80;
/// Names offered.
const MAX_NAMES: usize = 5;

/// The names closest to `query`, closest first; empty if none is close.
pub(super) fn nearest<'a>(query: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let wanted: String = query.to_lowercase().chars().take(MAX_CHARS + 1).collect();
    let n_wanted = wanted.chars().count();
    if n_wanted == 0 || n_wanted > MAX_CHARS {
        return Vec::new();
    }
    // A mistake in four letters: one left out, put in, changed, or swapped with its neighbour.
    let allowed = (n_wanted / 4).max(2).min(n_wanted - 1);
    let mut found: Vec<(usize, &str)> = names
        .filter_map(|name| {
            let own = name.to_lowercase();
            let is_alike = own.chars().count().abs_diff(n_wanted) <= allowed;
            is_alike.then(|| (strsim::osa_distance(&wanted, &own), name))
        })
        .filter(|(distance, _)| *distance <= allowed)
        .collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().take(MAX_NAMES).map(|(_, name)| name.to_owned()).collect()
}

/// The names that have a word in common with `query`, a letter may differ, those that have most in common first.
pub(super) fn with_word<'a>(query: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    /// A shorter word is in too many names.
    const LEAST: usize = 5;
    let words = |text: &str| -> Vec<String> {
        let split = text.split(|c: char| !c.is_alphanumeric());
        split.filter(|word| word.len() >= LEAST).take(MAX_NAMES).map(str::to_lowercase).collect()
    };
    let asked = words(query);
    let is_alike = |word: &str, other: &str| {
        let begins = |text: &str| text.bytes().next().map(|b| b.to_ascii_lowercase());
        word.len().abs_diff(other.len()) <= 1
            && begins(word) == begins(other)
            && strsim::osa_distance(word, &other.to_lowercase()) <= 1
    };
    let mut found: Vec<(usize, usize, &str)> = names
        .filter_map(|name| {
            let own = || name.split(|c: char| !c.is_alphanumeric());
            let n = asked.iter().filter(|word| own().any(|other| is_alike(word, other))).count();
            (n > 0).then_some((n, name.len(), name))
        })
        .collect();
    found.sort_unstable_by_key(|(n, length, name)| (std::cmp::Reverse(*n), *length, *name));
    found.dedup();
    found.into_iter().take(MAX_NAMES).map(|(_, _, name)| name.to_owned()).collect()
}

/// The symptom whose words are asked for, but for a letter or two.
pub(super) fn misspelt_symptom(query: &str) -> Option<String> {
    /// Shorter questions are near too much.
    const LEAST: usize = 8;
    let lower: String = query.to_lowercase().chars().take(MAX_CHARS + 1).collect();
    let is_near = |asked: &&str| strsim::osa_distance(&lower, asked) <= 2;
    let found = symptom::all().iter().find(|row| row.asked.iter().map(|a| &**a).any(|a| is_near(&a)));
    found
        .filter(|_| (LEAST..=MAX_CHARS).contains(&lower.chars().count()))
        .map(|row| format!("symptom {}", row.id))
}

/// Symptoms offered.
const MAX_SYMPTOMS: usize = 3;
/// Letters of a word that says something: fewer are in every text, more are no word.
const MIN_LETTERS: usize = 3;
const MAX_LETTERS: usize = 32;

/// The names of the symptoms that share most words with a question, spelling mistakes allowed; at most three.
pub(super) fn symptoms(query: &str) -> Vec<String> {
    let words = |text: &str| -> Vec<String> {
        let lower = text.to_lowercase();
        let split = lower.split(|c: char| !c.is_alphanumeric());
        split
            .filter(|word| (MIN_LETTERS..=MAX_LETTERS).contains(&word.chars().count()))
            .map(str::to_owned)
            .collect()
    };
    let asked: Vec<String> = words(query).into_iter().take(MAX_CHARS).collect();
    let mut found: Vec<(usize, usize, &str)> = symptom::all()
        .iter()
        .enumerate()
        .map(|(at, symptom)| {
            let own = words(&format!("{} {}", symptom.title, symptom.asked.join(" ")));
            let score = |word: &String| own.iter().map(|other| alike(word, other)).max().unwrap_or(0);
            (asked.iter().map(score).sum::<usize>(), at, symptom.id)
        })
        .filter(|(score, ..)| *score > 0)
        .collect();
    // The frequent ones are first in the table.
    found.sort_by_key(|(score, at, _)| (std::cmp::Reverse(*score), *at));
    found.into_iter().take(MAX_SYMPTOMS).map(|(_, _, id)| format!("symptom {id}")).collect()
}

/// How alike two words are: the same, one begins with the other, or a letter or two differ.
fn alike(word: &str, other: &str) -> usize {
    // Few mistakes are in the first letter, and most pairs end here.
    if word.bytes().next() != other.bytes().next() {
        return 0;
    }
    let (short, long) = if word.len() < other.len() { (word, other) } else { (other, word) };
    if word == other {
        3
    } else if short.chars().count() > MIN_LETTERS && long.starts_with(short) {
        2
    } else {
        let is_close = short.chars().count() > MIN_LETTERS
            && long.len() - short.len() <= short.len() / 4
            && strsim::osa_distance(word, other) <= short.len() / 4;
        usize::from(is_close)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, expected: &[&str]) {
        let names = ["NCCL_IB_TIMEOUT", "NCCL_IB_HCA", "NCCL_IB_TC", "skipped-collective", "ncclSystemError"];
        assert_eq!(nearest(query, names.into_iter()), expected);
    }

    #[test]
    fn a_question_is_near_the_symptoms_that_share_its_words() {
        let first = |query: &str| symptoms(query).into_iter().next();
        assert_eq!(first("my infinibnd card is odd").as_deref(), Some("symptom network"));
        assert!(symptoms("odd chekpoint things").contains(&"symptom checkpoint".to_owned()));
        assert!(symptoms("slow gpu checkpoint data timeout").len() == 3);
        assert_eq!(first("xyzzy plugh"), None);
    }

    #[test]
    fn a_word_in_common_and_a_misspelt_symptom() {
        let names = ["memlock-limit", "NCCL_IB_HCA", "rank-exited-early"];
        assert_eq!(with_word("ulimit memlok", names.into_iter()), ["memlock-limit"]);
        assert_eq!(with_word("an hca", names.into_iter()), [""; 0]);
        assert_eq!(misspelt_symptom("out of memmory").as_deref(), Some("symptom oom-gpu"));
        assert_eq!(misspelt_symptom("out"), None);
    }

    #[test]
    fn close_names_are_offered_closest_first() {
        check("NCCL_IB_TIMOUT", &["NCCL_IB_TIMEOUT"]);
        check("nccl_ib_timeuot", &["NCCL_IB_TIMEOUT"]);
        check("NCCL_IB_HC", &["NCCL_IB_HCA", "NCCL_IB_TC"]);
        check("skiped-colective", &["skipped-collective"]);
        check("ncclSysError", &["ncclSystemError"]);
        check("", &[]);
        check("a", &[]);
        check("something else", &[]);
        check(&"x".repeat(1 << 20), &[]);
    }
}
