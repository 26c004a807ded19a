//! Stores each text once: a thousand nodes report mostly the same.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A stored text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TextId(u32);

/// The stored texts.
#[derive(Debug, Default)]
pub(super) struct Words {
    by_text: BTreeMap<Arc<str>, TextId>,
    texts: Vec<Arc<str>>,
}

impl Words {
    /// Stores a text, cut to about `max` bytes.
    pub(super) fn add(&mut self, text: &str, max: usize) -> TextId {
        let cut;
        let text = if text.len() <= max {
            text
        } else {
            let end = (0..=max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            cut = format!("{}…", &text[..end]);
            &cut
        };
        if let Some(word) = self.by_text.get(text) {
            return *word;
        }
        let word = TextId(self.texts.len() as u32);
        let text: Arc<str> = text.into();
        self.texts.push(text.clone());
        self.by_text.insert(text, word);
        word
    }

    /// The text.
    pub(super) fn get(&self, word: TextId) -> &str {
        self.texts.get(word.0 as usize).map_or("", |text| text)
    }
}
