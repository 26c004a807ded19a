//! The table of rules that need only a message.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::{advice, read, text, variant};

/// Headings of a rule's documentation in order, each with the field that has its text.
const HEADINGS: [(&str, &str); 6] = [
    ("What it shows", "shows"),
    ("Why it happens", "why"),
    ("Evidence", "evidence"),
    ("What looks like it but is not", "is_not"),
    ("What to do", "then"),
    ("References", "source"),
];

pub(super) fn write(out: &mut String, causes: &BTreeSet<String>) {
    out.push_str("pub(crate) static CLAIMS: &[crate::claim::ClaimRow] = &[\n");
    for (id, row) in &read("claims.toml") {
        let row = row.as_table().expect("a rule is a table");
        assert!(causes.contains(id), "the rule of a message has the id of its cause: {id}");
        let title = text(row, "title");
        assert!(title.matches("{who}").count() == 1, "{id}: the title names who said it, once");
        let doc: Vec<String> = HEADINGS
            .iter()
            .map(|(heading, field)| {
                let body = text(row, field);
                assert!(!body.is_empty(), "{id}: nothing in `{field}`");
                format!("# {heading}\n\n{body}\n")
            })
            .collect();
        let _ = writeln!(
            out,
            "crate::claim::ClaimRow {{ cause: {}, id: {id:?}, rule: {:?}, since: {:?}, title: {title:?}, \
             advice: &[{}], doc: {:?} }},",
            variant(id),
            text(row, "rule"),
            text(row, "since"),
            advice(row),
            doc.join("\n"),
        );
    }
    out.push_str("];\n");
}
