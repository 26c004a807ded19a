//! Where in the document a value is, so that it can be cited.
//!
//! Parsed JSON has no places. The parts, and where strings begin, are found by a walk over the text that minds strings
//! and depth; within a part, values are met in their order, so each is searched for after the one before. What is found
//! begins where a string begins and ends where its value ends: 471 is not found in 4711, nor a name within a text.

use std::collections::BTreeMap;

use ringleader_model::Cite;

use crate::ground::{Document, Sink};

/// Longest citation, bytes.
const MAX_CITED: usize = 400;

pub(super) struct Places<'d> {
    document: Document<'d>,
    /// Start and end of each part's text.
    parts: BTreeMap<String, (usize, usize)>,
    /// Where strings begin, in order.
    strings: Vec<usize>,
    /// Where the part that is being read ends.
    end: usize,
    at: usize,
    /// Line of `at`.
    line: u32,
}

impl<'d> Places<'d> {
    pub(super) fn new(document: &Document<'d>) -> Self {
        let (parts, strings) = parts(document.bytes);
        Self { document: *document, parts, strings, end: document.bytes.len(), at: 0, line: document.line }
    }

    /// Goes to the beginning of a part.
    pub(super) fn enter(&mut self, part: &str) {
        let (start, end) = self.parts.get(part).copied().unwrap_or((0, self.document.bytes.len()));
        let before = self.document.bytes.get(..start).unwrap_or_default();
        self.line = self.document.line.saturating_add(memchr::memchr_iter(b'\n', before).count() as u32);
        (self.at, self.end) = (start, end);
    }

    /// Where a part begins.
    pub(super) fn of_part(&mut self, part: &str, sink: &Sink<'_>) -> Cite {
        if !self.parts.contains_key(part) {
            return self.document.cite(sink);
        }
        self.enter(part);
        self.here(self.at, sink)
    }

    /// The next place where `name` has this value; the last place found if it is nowhere.
    pub(super) fn next(&mut self, name: &str, value: &str, sink: &Sink<'_>) -> Cite {
        let value = serde_json::to_string(value).unwrap_or_default();
        self.next_raw(&[&format!("\"{name}\": {value}"), &format!("\"{name}\":{value}")], sink)
    }

    /// The next place where `name` has this number.
    pub(super) fn next_number(&mut self, name: &str, value: u64, sink: &Sink<'_>) -> Cite {
        self.next_raw(&[&format!("\"{name}\": {value}"), &format!("\"{name}\":{value}")], sink)
    }

    /// The next place of a text that is a value by itself.
    pub(super) fn next_text(&mut self, text: &str, sink: &Sink<'_>) -> Cite {
        self.next_raw(&[&serde_json::to_string(text).unwrap_or_default()], sink)
    }

    fn next_raw(&mut self, forms: &[&str], sink: &Sink<'_>) -> Cite {
        let rest = self.document.bytes.get(self.at..self.end).unwrap_or_default();
        let is_whole = |found: &usize, form: &str| {
            let next = rest.get(found + form.len());
            self.strings.binary_search(&(self.at + found)).is_ok()
                && next.is_none_or(|b| matches!(b, b',' | b'}' | b']' | b':') || b.is_ascii_whitespace())
        };
        let first = |form: &&str| {
            memchr::memmem::find_iter(rest, form.as_bytes()).find(|found| is_whole(found, form))
        };
        let found = forms.iter().filter_map(first).min();
        if let Some(found) = found {
            let passed = rest.get(..found).unwrap_or_default();
            self.line = self.line.saturating_add(memchr::memchr_iter(b'\n', passed).count() as u32);
            self.at += found;
        }
        let cite = self.here(self.at, sink);
        if found.is_some() {
            self.at += 1;
        }
        cite
    }

    fn here(&self, start: usize, sink: &Sink<'_>) -> Cite {
        let rest = self.document.bytes.get(start..).unwrap_or_default();
        let rest = rest.get(..MAX_CITED).unwrap_or(rest);
        let length = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let start = self.document.offset + start as u64;
        sink.cite(self.line, start, start + length as u64)
    }
}

/// Start (of the name) and end of each member of the outermost object; and where strings begin.
fn parts(bytes: &[u8]) -> (BTreeMap<String, (usize, usize)>, Vec<usize>) {
    let (mut parts, mut strings) = (BTreeMap::new(), Vec::new());
    let (mut depth, mut at) = (0_u32, 0);
    let mut open: Option<(String, usize)> = None;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                strings.push(at);
                let end = end_of_string(bytes, at);
                let is_name = depth == 1 && open.is_none();
                if is_name && let Ok(name) = std::str::from_utf8(bytes.get(at + 1..end).unwrap_or_default()) {
                    open = Some((name.to_owned(), at));
                }
                at = end;
            }
            b'{' | b'[' => depth = depth.saturating_add(1),
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if (*byte == b',' && depth == 1 || depth == 0)
            && let Some((name, start)) = open.take()
        {
            parts.entry(name).or_insert((start, at));
        }
        at += 1;
    }
    if let Some((name, start)) = open {
        parts.entry(name).or_insert((start, bytes.len()));
    }
    (parts, strings)
}

/// The place of the quotation mark that ends the string that begins at `at`.
fn end_of_string(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn parts_are_told_from_their_namesakes_within() {
        let text = r#"{"a": {"b": [1, 2], "a": "}\"{"}, "b": "x,y", "c":[{"b":0}] , "d":null}"#;
        let told: Vec<(String, &str)> =
            parts(text.as_bytes()).0.into_iter().map(|(name, (s, e))| (name, &text[s..e])).collect();
        let expected = [
            ("a", r#""a": {"b": [1, 2], "a": "}\"{"}"#),
            ("b", r#""b": "x,y""#),
            ("c", r#""c":[{"b":0}] "#),
            ("d", r#""d":null"#),
        ];
        assert_eq!(told, expected.map(|(name, text)| (name.to_owned(), text)));
    }
}
