//! Variables of a script whose value the text says: `NNODES=2` on the one line that sets it.

use std::collections::BTreeMap;

use tree_sitter::Node;

/// References that are followed through each other.
const MAX_DEPTH: usize = 4;
/// Longest word.
const MAX_BYTES: usize = 8 << 10;

/// Values by name; None: set more than once, or only sometimes.
#[derive(Debug, Default)]
pub(super) struct Variables {
    values: BTreeMap<String, Option<String>>,
}

impl Variables {
    /// Takes in `NAME=value`, `NAME=(a b)` and the name of a loop.
    pub(super) fn add(&mut self, text: &str, node: Node<'_>) {
        let of = |node: Node<'_>| text.get(node.byte_range()).unwrap_or_default();
        match node.kind() {
            "variable_assignment" => {
                let Some(name) = node.child_by_field_name("name") else { return };
                let is_sum = of(node).contains("+=");
                let value = node.child_by_field_name("value").and_then(|value| said(text, value));
                let value = value.filter(|_| !is_sum && !is_conditional(node));
                let entry = self.values.entry(of(name).to_owned());
                entry
                    .and_modify(|known| {
                        if *known != value {
                            *known = None;
                        }
                    })
                    .or_insert(value);
            }
            "for_statement" => {
                if let Some(name) = node.child_by_field_name("variable") {
                    self.values.insert(of(name).to_owned(), None);
                }
            }
            _ => {}
        }
    }

    /// A word with the variables put in that are known. What is not known stays.
    pub(super) fn expand(&self, word: &str) -> String {
        let mut out = word.to_owned();
        for _ in 0..MAX_DEPTH {
            let next = self.once(&out);
            if next == out || next.len() > MAX_BYTES {
                break;
            }
            out = next;
        }
        out
    }

    fn once(&self, word: &str) -> String {
        let mut out = String::with_capacity(word.len());
        let mut rest = word;
        while let Some((before, after)) = rest.split_once('$') {
            out.push_str(before);
            let (name, tail) = if let Some(braced) = after.strip_prefix('{') {
                let Some((inside, tail)) = braced.split_once('}') else {
                    out.push('$');
                    rest = after;
                    continue;
                };
                (inside.trim_end_matches("[@]").trim_end_matches("[*]"), tail)
            } else {
                let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
                after.split_at(end)
            };
            match self.values.get(name) {
                Some(Some(value)) if !before.ends_with('\\') => out.push_str(value),
                _ => {
                    out.push('$');
                    out.push_str(after.get(..after.len() - tail.len()).unwrap_or_default());
                }
            }
            rest = tail;
        }
        out.push_str(rest);
        out
    }
}

/// Text of a value: the shell computes nothing in it but other variables.
fn said(text: &str, value: Node<'_>) -> Option<String> {
    let raw = text.get(value.byte_range())?;
    if value.kind() == "array" {
        let inside = raw.strip_prefix('(')?.strip_suffix(')')?;
        let lines = inside.lines().map(|line| line.split(" #").next().unwrap_or_default().trim());
        let words: Vec<&str> = lines.filter(|line| !line.starts_with('#')).collect();
        return plain(&words.join(" ").replace(['"', '\''], ""));
    }
    match raw.strip_prefix('\'') {
        Some(bare) => Some(bare.trim_end_matches('\'').to_owned()).filter(|bare| !bare.contains('$')),
        None => plain(raw.trim_matches('"')),
    }
}

fn plain(raw: &str) -> Option<String> {
    let is_computed = ["$(", "`", "$((", "$1", "$2", "$@", ":-", ":=", "<", "%", "$#", "${!", "/}"];
    let bare = raw.replace("\\\n", " ");
    (bare.len() <= MAX_BYTES && !is_computed.iter().any(|mark| bare.contains(mark))).then_some(bare)
}

/// Whether a statement runs only sometimes.
fn is_conditional(node: Node<'_>) -> bool {
    let mut at = node.parent();
    while let Some(outer) = at {
        if matches!(
            outer.kind(),
            "if_statement"
                | "elif_clause"
                | "else_clause"
                | "case_item"
                | "while_statement"
                | "for_statement"
                | "list"
                | "function_definition"
        ) {
            return true;
        }
        at = outer.parent();
    }
    false
}

/// Whether a command runs in a loop.
pub(super) fn is_repeated(node: Node<'_>) -> bool {
    let mut at = node.parent();
    while let Some(outer) = at {
        if matches!(outer.kind(), "for_statement" | "while_statement") {
            return true;
        }
        at = outer.parent();
    }
    false
}
