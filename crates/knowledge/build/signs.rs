//! The table of signs, and of what follows from several of them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use toml::Table;

use super::{advice, array, constants, list, optional, read, text, variant};

/// Signs that no line gives: `correlate` derives them from what readers have understood.
const DERIVED: &str = "derived";
/// Shortest first stretch of a pattern, which finds it.
const MIN_BYTES: usize = 3; // With the `$`.

pub(super) fn write(out: &mut String, causes: &BTreeSet<String>) {
    let table = read("signs.toml");
    let mut ids = BTreeSet::new();
    out.push_str("pub(crate) static SIGNS: &[crate::sign::SignRow] = &[\n");
    for row in array(&table, "sign") {
        let id = text(row, "id");
        assert!(ids.insert(id.to_owned()), "the sign {id} is there twice");
        let (patterns, examples) = (list(row, "match"), list(row, "examples"));
        assert!(!text(row, "says").is_empty(), "{id} says nothing");
        if optional(row, "from") == DERIVED {
            assert!(patterns.is_empty() && examples.is_empty(), "{id} is derived and no line");
        } else {
            assert!(!patterns.is_empty() && !examples.is_empty(), "{id} needs patterns and examples");
        }
        for pattern in &patterns {
            let first = pattern.split('*').next().unwrap_or_default();
            assert!(first.len() >= MIN_BYTES, "{id}: `{pattern}` begins with too little");
        }
        let _ = writeln!(
            out,
            "crate::sign::SignRow {{ id: {id:?}, says: {:?}, patterns: &{patterns:?}, without: &{:?}, under: {:?}, \
             outcome: {:?}, examples: &{examples:?} }},",
            text(row, "says"),
            list(row, "without"),
            optional(row, "under"),
            optional(row, "outcome"),
        );
    }
    out.push_str("];\n");
    constants(out, "signs", ids.iter().map(String::as_str));
    out.push_str("pub(crate) static CONCLUSIONS: &[crate::sign::Conclusion] = &[\n");
    let mut known = BTreeSet::new();
    for row in array(&table, "conclusion") {
        conclusion(out, row, &ids, causes, &mut known);
    }
    out.push_str("];\n");
}

fn conclusion(
    out: &mut String,
    row: &Table,
    ids: &BTreeSet<String>,
    causes: &BTreeSet<String>,
    known: &mut BTreeSet<String>,
) {
    let id = text(row, "id");
    assert!(known.insert(id.to_owned()), "the conclusion {id} is there twice");
    let cause = text(row, "cause");
    assert!(causes.contains(cause), "{id}: unknown cause {cause}");
    let all = list(row, "all");
    assert!(!all.is_empty(), "{id} follows from nothing");
    let is_known = |sign: &str| {
        let plain = sign.rsplit_once(" x").map_or(sign, |(plain, _)| plain);
        assert!(ids.contains(plain) || sign.starts_with("row:"), "{id}: no sign {sign}");
    };
    let choices: Vec<Vec<&str>> =
        all.iter().map(|item| item.split('|').map(str::trim).inspect(|s| is_known(s)).collect()).collect();
    let none = list(row, "none");
    for s in &none {
        is_known(s);
    }
    let culprit = optional(row, "culprit");
    let outright = row.get("outright").and_then(toml::Value::as_bool).unwrap_or_default();
    if !culprit.is_empty() {
        is_known(culprit);
    }
    let over = list(row, "over");
    for other in &over {
        assert!(causes.contains(*other), "{id}: unknown cause {other}");
    }
    let confidence = match text(row, "confidence") {
        "medium" => "Medium",
        "low" => "Low",
        other => panic!("{id}: {other} is no confidence of a conclusion"),
    };
    let choices: Vec<String> = choices.iter().map(|c| format!("&{c:?}")).collect();
    let over: Vec<String> = over.iter().map(|c| variant(c)).collect();
    let _ = writeln!(
        out,
        "crate::sign::Conclusion {{ id: {id:?}, cause: {}, confidence: ringleader_model::Confidence::{confidence}, \
         all: &[{}], none: &{none:?}, over: &[{}], outright: {outright}, title: {:?}, why: {:?}, culprit: {:?}, advice: &[{}] }},",
        variant(cause),
        choices.join(", "),
        over.join(", "),
        text(row, "title"),
        text(row, "why"),
        culprit,
        advice(row),
    );
}
