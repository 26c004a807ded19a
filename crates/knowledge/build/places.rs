//! The table of what ranks do outside of collectives.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::{array, constants, list, read, text};

pub(super) fn write(out: &mut String) {
    let table = read("places.toml");
    let mut ids = BTreeSet::new();
    let mut patterns = BTreeSet::new();
    out.push_str("pub(crate) static PLACES: &[crate::place::Activity] = &[\n");
    for row in array(&table, "place") {
        let id = text(row, "id");
        assert!(ids.insert(id.to_owned()), "place {id} stands twice");
        let (frames, waits) = (list(row, "frames"), list(row, "waits"));
        assert!(!frames.is_empty() || !waits.is_empty(), "nothing shows place {id}");
        let _ =
            write!(out, "crate::place::Activity {{ id: {id:?}, text: {:?}, frames: &[", text(row, "text"));
        for frame in frames {
            assert!(patterns.insert(frame.to_owned()), "{frame} shows two places");
            let _ = write!(out, "{:?}, ", pattern(id, frame));
        }
        out.push_str("], waits: &[");
        for wait in waits {
            assert!(wait.len() > 2 && patterns.insert(format!("kernel {wait}")), "{wait} shows two places");
            let _ = write!(out, "{wait:?}, ");
        }
        let file_work = list(row, "file_work");
        let flag = |key: &str| row.get(key).is_some_and(|v| v.as_bool() == Some(true));
        let _ = writeln!(
            out,
            "], file_work: &{file_work:?}, waits_for_ranks: {}, is_endless: {}, source: {:?} }},",
            flag("waits_for_ranks"),
            flag("is_endless"),
            text(row, "source")
        );
    }
    out.push_str("];\n");
    constants(out, "places", ids.iter().map(String::as_str));
    marks(&array(&table, "mark"), out);
    let aside = list(&table, "aside");
    assert!(
        aside.iter().all(|part| part.len() > 4 && *part == part.to_lowercase()),
        "aside: too short, or not in lower case"
    );
    let _ = writeln!(out, "pub(crate) static ASIDE: &[&str] = &{aside:?};");
}

/// Function and file of a frame.
fn pattern<'t>(id: &str, frame: &'t str) -> (&'t str, &'t str) {
    let (function, file) = frame.split_once('@').unwrap_or_else(|| panic!("{frame}: no @"));
    assert!(!function.is_empty() || !file.is_empty(), "{id}: a frame that matches all");
    (function, file)
}

fn marks(rows: &[&toml::Table], out: &mut String) {
    let mut ids = BTreeSet::new();
    out.push_str("pub(crate) static MARKS: &[crate::place::FrameMark] = &[\n");
    for row in rows {
        let id = text(row, "id");
        assert!(ids.insert(id), "mark {id} stands twice");
        let frames: Vec<_> = list(row, "frames").into_iter().map(|frame| pattern(id, frame)).collect();
        assert!(!frames.is_empty(), "nothing shows mark {id}");
        let source = text(row, "source");
        let _ = writeln!(
            out,
            "crate::place::FrameMark {{ id: {id:?}, frames: &{frames:?}, source: {source:?} }},"
        );
    }
    out.push_str("];\n");
    constants(out, "marks", ids);
}
