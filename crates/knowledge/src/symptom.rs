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

/// The symptom whose words a question contains as whole words: the longest of its phrases decides, then the order of
/// the table. A phrase whose words are apart counts less than one in a piece.
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

/// Words in lower case, without the signs around them.
fn words(text: &str) -> Vec<String> {
    text.to_lowercase()
        .split_whitespace()
        .map(|w| w.trim_matches(|c: char| !c.is_alphanumeric() && c != '/').to_owned())
        .filter(|w| !w.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{asked, exactly};

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
}
