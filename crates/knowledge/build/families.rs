//! Families of codes: every code of a library in each of its spellings, as rows.
//!
//! A family has `codes` and `spellings`: patterns and examples that contain `<number>`, `<name>`, `<driver>` and
//! `<text>`. A spelling that needs a field is left out for codes without it. `after` applies to all spellings unless
//! a code's text is unique to it (`loose`); a name in capitals needs no frame.

use toml::{Table, Value};

use super::super::{optional, text};
use super::Line;

/// Fields that a spelling may need; `big` is a number too long to occur by chance.
const KEYS: &[&str] = &["number", "big", "name", "driver", "text"];
/// Fields that a code inherits from its family.
const SHARED: &[&str] =
    &["by", "source", "about", "role", "candidates", "since", "category", "action", "impact"];

pub(super) fn spell(table: &Table, lines: &mut Vec<Line>) {
    for family in table.get("family").and_then(Value::as_array).into_iter().flatten() {
        let family = family.as_table().expect("a family is a table");
        for code in super::super::array(family, "codes") {
            for spelling in super::super::array(family, "spellings") {
                lines.extend(line(family, spelling, code));
            }
        }
    }
}

fn line(family: &Table, spelling: &Table, code: &Table) -> Option<Line> {
    let fill = |template: &str| -> Option<String> {
        let mut filled = template.to_owned();
        for key in KEYS {
            let mark = format!("<{key}>");
            if !filled.contains(&mark) {
                continue;
            }
            let value = match code.get(*key)? {
                Value::Integer(number) => number.to_string(),
                other => other.as_str()?.to_owned(),
            };
            filled = filled.replace(&mark, &value);
        }
        Some(filled)
    };
    let mut row = code.clone();
    for key in SHARED {
        // The impact is that of the action.
        let is_own = *key == "impact" && code.contains_key("action");
        if let (false, None, Some(value)) = (is_own, row.get(*key), family.get(*key)) {
            row.insert((*key).to_owned(), value.clone());
        }
    }
    if optional(&row, "role") == "harmless" {
        row.remove("candidates");
    }
    let loose = code.get("loose").is_some_and(|v| v.as_bool() == Some(true));
    if let Some(after) = spelling.get("after").filter(|_| !loose) {
        row.insert("after".to_owned(), after.clone());
    }
    row.insert("example".to_owned(), Value::String(fill(text(spelling, "example"))?));
    if !row.contains_key("says") {
        row.insert("says".to_owned(), Value::String(fill(text(family, "says"))?));
    }
    let what = code.get("number").map_or_else(
        || text(code, "name").to_ascii_lowercase().replace('_', "-"),
        |number| number.as_integer().expect("a code's number").to_string(),
    );
    let id = format!("{}-{what}-{}", text(family, "id"), text(spelling, "id"));
    Some(Line { id, pattern: fill(text(spelling, "match"))?, row })
}
