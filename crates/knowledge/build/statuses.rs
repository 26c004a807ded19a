//! The tables of what people ask for without a line of a log: symptoms, and statuses by name or number.
//!
//! A status is in one of `data/statuses*.toml`, in a family of codes of `data/messages`, or in both: then it is one row, and
//! the family of messages has precedence, so that `explain` and `diagnose` say the same of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use toml::{Table, Value};

use super::{array, impact, list, optional, read, text, variants};

/// The tables of statuses, in the order of their lists.
const FILES: [&str; 3] = ["statuses.toml", "statuses_slurm.toml", "statuses_kubernetes.toml"];

pub(super) fn write(out: &mut String, causes: &BTreeSet<String>) {
    symptoms(out, causes);
    let families = families();
    let tables = FILES.map(read);
    let (mut kinds, mut rows) = (String::new(), String::new());
    let mut ids = BTreeSet::new();
    for (number, family) in tables.iter().flat_map(|table| array(table, "family")).enumerate() {
        assert!(ids.insert(text(family, "id").to_owned()), "family {} twice", text(family, "id"));
        let _ = writeln!(
            kinds,
            "crate::status::StatusFamily {{ id: {:?}, list: {:?}, title: {:?}, asked: &{:?}, source: {:?} }},",
            text(family, "id"),
            text(family, "list"),
            text(family, "title"),
            list(family, "asked"),
            text(family, "source"),
        );
        let codes = optional(family, "codes");
        let codes = (!codes.is_empty())
            .then(|| families.get(codes).unwrap_or_else(|| panic!("no family of codes {codes}")));
        for status in statuses(family, codes, causes) {
            status.write(&mut rows, number);
        }
    }
    let _ =
        writeln!(out, "pub(crate) static STATUS_FAMILIES: &[crate::status::StatusFamily] = &[\n{kinds}];");
    let _ = writeln!(out, "pub(crate) static STATUSES: &[crate::status::Status] = &[\n{rows}];");
}

fn symptoms(out: &mut String, causes: &BTreeSet<String>) {
    out.push_str("pub(crate) static SYMPTOMS: &[crate::symptom::Symptom] = &[\n");
    let mut ids = BTreeSet::new();
    for row in array(&read("symptoms.toml"), "symptom") {
        let own = list(row, "causes");
        assert!(own.iter().all(|id| causes.contains(*id)), "unknown cause in {row:?}");
        assert!(ids.insert(text(row, "id").to_owned()), "symptom {} twice", text(row, "id"));
        let asked = list(row, "asked");
        assert!(asked.iter().all(|a| *a == a.to_lowercase()), "`asked` is lower case: {asked:?}");
        let _ = writeln!(
            out,
            "crate::symptom::Symptom {{ id: {:?}, title: {:?}, asked: &{asked:?}, means: {:?}, is_not: {:?}, \
             causes: {}, next: {:?} }},",
            text(row, "id"),
            text(row, "title"),
            text(row, "means"),
            text(row, "is_not"),
            variants(&own),
            text(row, "next"),
        );
    }
    out.push_str("];\n");
}

/// The families of codes of all tables of messages, by id.
fn families() -> BTreeMap<String, Table> {
    let mut families = BTreeMap::new();
    let mut paths: Vec<_> = fs::read_dir("data/messages")
        .expect("data/messages can be read")
        .map(|entry| entry.expect("an entry of data/messages").path())
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().and_then(|n| n.to_str()).expect("a name");
        for family in
            read(&format!("messages/{name}")).get("family").and_then(Value::as_array).into_iter().flatten()
        {
            let family = family.as_table().expect("a family is a table");
            families.insert(text(family, "id").to_owned(), family.clone());
        }
    }
    families
}

/// A status in the making.
struct Status {
    number: Option<i64>,
    names: Vec<String>,
    means: String,
    action: String,
    /// An index of [`impact::VARIANTS`].
    impact: usize,
    is_not: String,
    causes: Vec<String>,
}

impl Status {
    fn write(&self, out: &mut String, family: usize) {
        assert!(!self.means.is_empty(), "no meaning of {:?}", self.names);
        let ids: Vec<&str> = self.causes.iter().map(String::as_str).collect();
        let _ = writeln!(
            out,
            "crate::status::Status {{ family: {family}, number: {:?}, names: &{:?}, means: {:?}, action: {:?}, \
             impact: ringleader_model::Impact::{}, is_not: {:?}, causes: {} }},",
            self.number,
            self.names,
            self.means,
            self.action,
            impact::VARIANTS[self.impact],
            self.is_not,
            variants(&ids),
        );
    }
}

fn statuses(family: &Table, codes: Option<&Table>, causes: &BTreeSet<String>) -> Vec<Status> {
    let mut statuses: Vec<Status> = Vec::new();
    for line in text(family, "rows").lines().map(str::trim).filter(|line| !line.is_empty()) {
        let fields: Vec<&str> = line.split(" ;").map(str::trim).collect();
        let [number, names, means, own] = fields[..] else { panic!("four fields: {line}") };
        let number = (number != "-").then(|| number.parse().unwrap_or_else(|_| panic!("a number: {line}")));
        let mut names: Vec<String> = names.split(',').map(|n| n.trim().to_owned()).collect();
        names.retain(|name| !name.is_empty());
        let own: Vec<String> =
            own.split(',').map(|c| c.trim().to_owned()).filter(|c| !c.is_empty()).collect();
        assert!(own.iter().all(|id| causes.contains(id)), "unknown cause: {line}");
        // Two versions of a library may number the same status differently.
        if let Some(known) = statuses.iter_mut().find(|s| s.names.first() == names.first()) {
            assert!(means.is_empty(), "{} twice", names[0]);
            known.number = number;
            continue;
        }
        statuses.push(Status {
            number,
            names,
            means: means.to_owned(),
            action: String::new(),
            impact: 0,
            is_not: String::new(),
            causes: own,
        });
    }
    for code in codes.into_iter().flat_map(|codes| array(codes, "codes")) {
        merge(&mut statuses, codes.expect("it has codes"), code, causes);
    }
    statuses
}

/// Puts one code of a family of messages into the list.
fn merge(statuses: &mut Vec<Status>, family: &Table, code: &Table, causes: &BTreeSet<String>) {
    let names: Vec<String> = ["name", "driver", "text"]
        .iter()
        .map(|key| optional(code, key).to_owned())
        .filter(|name| !name.is_empty())
        .collect();
    let number = code.get("number").and_then(Value::as_integer);
    let is_same = |s: &Status| s.names.iter().any(|own| names.iter().any(|n| n.eq_ignore_ascii_case(own)));
    let at = statuses.iter().position(is_same).unwrap_or_else(|| {
        statuses.push(Status {
            number,
            names: Vec::new(),
            means: String::new(),
            action: String::new(),
            impact: 0,
            is_not: String::new(),
            causes: Vec::new(),
        });
        statuses.len() - 1
    });
    let status = &mut statuses[at];
    status.number = number.or(status.number);
    for name in names {
        if !status.names.iter().any(|own| own.eq_ignore_ascii_case(&name)) {
            status.names.push(name);
        }
    }
    let own = |key: &str| {
        let value = optional(code, key);
        if value.is_empty() { optional(family, key).to_owned() } else { value.to_owned() }
    };
    if !optional(code, "says").is_empty() || status.means.is_empty() {
        status.means = own("says");
    }
    status.action = own("action");
    status.impact = impact::of(if code.contains_key("action") { code } else { family });
    optional(code, "is_not").clone_into(&mut status.is_not);
    let harmless = optional(code, "role") == "harmless";
    if status.causes.is_empty() && !harmless || code.contains_key("candidates") {
        let from = if code.contains_key("candidates") { code } else { family };
        status.causes = list(from, "candidates")
            .into_iter()
            .filter(|id| causes.contains(*id))
            .map(str::to_owned)
            .collect();
    }
}
