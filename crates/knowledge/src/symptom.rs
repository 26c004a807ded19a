//! What people type who have a symptom and no name for it: what is behind it, and what to run next.

use ringleader_model::Cause;

use crate::tables::SYMPTOMS;

/// One symptom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symptom {
    /// Kebab-case.
    pub id: &'static str,
    /// A few words.
    pub title: &'static str,
    /// Words by which it is asked for, in lower case.
    pub asked: &'static [&'static str],
    /// What is behind it.
    pub means: &'static str,
    /// What it is taken for and is not.
    pub is_not: &'static str,
    /// Causes, most likely first.
    pub causes: &'static [Cause],
    /// The command to run next.
    pub next: &'static str,
}

/// All symptoms, the frequent ones first.
pub fn all() -> &'static [Symptom] {
    SYMPTOMS
}

/// The row with this id.
pub fn get(id: &str) -> Option<&'static Symptom> {
    SYMPTOMS.iter().find(|s| s.id == id)
}

/// The symptom that is asked for in exactly these words.
pub fn exactly(question: &str) -> Option<&'static Symptom> {
    let question = question.to_lowercase();
    SYMPTOMS.iter().find(|s| s.asked.contains(&&*question))
}

/// The symptom whose words a question contains as whole words, in any of their forms (`hangs`, `hanging`): the longest of
/// its phrases decides, then the order of the table. A phrase whose words are apart counts less than one in a piece.
pub fn asked(question: &str) -> Option<&'static Symptom> {
    let words = words(question);
    let mut best: Option<((bool, usize), &'static Symptom)> = None;
    for symptom in SYMPTOMS {
        for phrase in symptom.asked {
            let phrase = self::words(phrase);
            let together = words.windows(phrase.len().max(1)).any(|w| w == phrase);
            if !phrase.is_empty() && (together || phrase.iter().all(|word| words.contains(word))) {
                let rank = (together, phrase.iter().map(String::len).sum());
                if best.as_ref().is_none_or(|(other, _)| rank > *other) {
                    best = Some((rank, symptom));
                }
            }
        }
    }
    best.map(|(_, symptom)| symptom)
}

/// Stems of the words, in lower case and without the signs around them.
fn words(text: &str) -> Vec<String> {
    text.to_lowercase()
        .split_whitespace()
        .map(|w| stem(w.trim_matches(|c: char| !c.is_alphanumeric() && c != '/')).to_owned())
        .filter(|w| !w.is_empty())
        .collect()
}

/// Fewest letters that remain where `-ing`, `-ed` or `-e` is taken off, and where `-s` is.
const MIN_STEM: usize = 4;
const MIN_SINGULAR: usize = 3;

/// What the forms of an English word in lower case have in common: `throttl` of `throttle`, `throttles`, `throttled` and
/// `throttling`. A short word, or one that only looks like such a form (`loss`, `bus`, `this`), stays as it is.
pub fn stem(word: &str) -> &str {
    let without = |ending: &str, least: usize| word.strip_suffix(ending).filter(|rest| rest.len() >= least);
    let is_plural = |rest: &&str| !rest.ends_with(['s', 'u', 'i']);
    let rest = without("ing", MIN_STEM)
        .or_else(|| without("ed", MIN_STEM))
        .or_else(|| without("s", MIN_SINGULAR).filter(is_plural))
        .unwrap_or(word);
    rest.strip_suffix('e').filter(|rest| rest.len() >= MIN_STEM).unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{all, asked, exactly, stem, words};

    #[test]
    fn whole_words_find_a_symptom_and_parts_of_words_do_not() {
        let id = |question: &str| asked(question).map(|s| s.id);
        assert_eq!(id("my job hangs"), Some("hang"));
        assert_eq!(id("why is my loss NaN?"), Some("nan"));
        assert_eq!(id("all_reduce is slow"), Some("slow"));
        assert_eq!(id("it hangs at init"), Some("init-hang"), "the longer phrase decides");
        assert_eq!(id("banana changed"), None);
        assert_eq!(id(""), None);
        assert_eq!(exactly("Timeout").map(|s| s.id), Some("timeout"));
        assert!(exactly("timeouts of xid").is_none());
    }

    #[test]
    fn any_form_of_a_word_finds_its_symptom() {
        let id = |question: &str| asked(question).map(|s| s.id);
        assert_eq!(id("loss spikes"), id("loss spike"));
        assert_eq!(id("loss spikes"), Some("nan"));
        for question in ["hangs at init_process_group", "hang in init_process_group", "init_process_group"] {
            assert_eq!(id(question), Some("init-hang"), "{question}");
        }
        for question in ["port already in use", "port 29500 is already in use"] {
            assert_eq!(id(question), Some("port-taken"), "{question}");
        }
        assert_eq!(id("torch: CUDA is not available"), Some("cuda-unavailable"));
        for form in ["throttle", "throttles", "throttled", "throttling"] {
            assert_eq!(stem(form), "throttl");
        }
        for word in ["loss", "bus", "this", "is", "string", "node", "nccl_ib_timeout", "ß", ""] {
            assert_eq!(stem(word), word);
        }
    }

    /// One phrase in two rows would find the first of them alone.
    #[test]
    fn no_two_symptoms_are_asked_for_alike() {
        let mut seen: BTreeMap<Vec<String>, &str> = BTreeMap::new();
        for symptom in all() {
            for phrase in symptom.asked {
                let before = seen.insert(words(phrase), symptom.id);
                assert!(before.is_none_or(|id| id == symptom.id), "{phrase}: {before:?} and {}", symptom.id);
            }
        }
    }
}
