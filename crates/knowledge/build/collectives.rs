//! `collectives.toml`: collectives of the frameworks, and what tells processes apart.

use std::fmt::Write as _;

use toml::{Table, Value};

use crate::{array, list, optional, read, text};

const AXES: [&str; 9] =
    ["global", "local", "node", "data", "tensor", "pipeline", "context", "expert", "group"];

pub(crate) fn write(out: &mut String) {
    let table = read("collectives.toml");
    collectives(out, &table);
    out.push_str("/// Usual names of objects.\npub static RECEIVERS: &[crate::collective::Receiver] = &[\n");
    for row in array(&table, "receiver") {
        let _ = writeln!(
            out,
            "crate::collective::Receiver {{ names: &{:?}, kind: {:?}, imports: &{:?} }},",
            list(row, "names"),
            text(row, "kind"),
            list(row, "imports"),
        );
    }
    out.push_str(
        "];\n/// Calls that return an object of a class.\npub static MAKERS: &[(&[&str], &str)] = &[\n",
    );
    for row in array(&table, "maker") {
        let _ = writeln!(out, "(&{:?}, {:?}),", list(row, "calls"), text(row, "kind"));
    }
    out.push_str("];\n/// Spellings of a process's own place.\npub static RANKS: &[crate::collective::RankSource] = &[\n");
    for row in array(&table, "rank") {
        let _ = writeln!(
            out,
            "crate::collective::RankSource {{ axis: {}, value: {}, calls: &{:?}, attributes: &{:?}, names: &{:?}, variables: &{:?} }},",
            axis(text(row, "axis")),
            value(text(row, "value")),
            list(row, "calls"),
            list(row, "attributes"),
            list(row, "names"),
            list(row, "variables"),
        );
    }
    out.push_str("];\npub(crate) static GROUP_WORDS: &[(&[&str], &[crate::collective::Axis])] = &[\n");
    for row in array(&table, "group") {
        let axes: Vec<String> = list(row, "axes").into_iter().map(axis).collect();
        let _ = writeln!(out, "(&{:?}, &[{}]),", list(row, "words"), axes.join(", "));
    }
    out.push_str("];\n/// Decorators that restrict a function to some processes.\npub static GUARDS: &[crate::collective::Guard] = &[\n");
    for row in array(&table, "guard") {
        let _ = writeln!(
            out,
            "crate::collective::Guard {{ names: &{:?}, axis: {}, value: {} }},",
            list(row, "names"),
            axis(text(row, "axis")),
            value(text(row, "value")),
        );
    }
    let names: Vec<&str> = array(&table, "first").into_iter().flat_map(|row| list(row, "names")).collect();
    let _ = writeln!(
        out,
        "];\n/// Context managers that let some processes through first.\npub static FIRSTS: &[&str] = &{names:?};"
    );
    out.push_str("/// Calls that say of the job: true, or how many processes it has.\npub static JOB_FACTS: &[(&[&str], bool)] = &[\n");
    for row in array(&table, "fact") {
        let _ = writeln!(out, "(&{:?}, {}),", list(row, "names"), text(row, "value") == "true");
    }
    out.push_str(
        "];\n/// What each process finds for itself.\npub static LOCALS: &[crate::collective::Local] = &[\n",
    );
    for row in array(&table, "local") {
        let kind = match text(row, "kind") {
            "file" => "File",
            "time" => "Time",
            "random" => "Random",
            "data" => "Data",
            other => panic!("collectives.toml: unknown kind {other}"),
        };
        let _ = writeln!(
            out,
            "crate::collective::Local {{ kind: crate::collective::LocalKind::{kind}, calls: &{:?}, methods: &{:?} }},",
            list(row, "calls"),
            list(row, "methods"),
        );
    }
    out.push_str("];\n");
}

fn collectives(out: &mut String, table: &Table) {
    out.push_str(
        "/// Collectives of the frameworks.\npub static COLLECTIVES: &[crate::collective::Collective] = &[\n",
    );
    for row in array(table, "collective") {
        let who = match text(row, "who") {
            "group" => "Group",
            "world" => "World",
            "model" => "Model",
            other => panic!("collectives.toml: unknown who {other}"),
        };
        let when = match text(row, "when") {
            "" => "Always",
            "sharded" => "Sharded",
            "sync" => "Sync",
            other => panic!("collectives.toml: unknown when {other}"),
        };
        let calls: Vec<String> = list(row, "names").into_iter().map(call).collect();
        let agrees = row.get("agrees").and_then(Value::as_bool).expect("`agrees` is a truth value");
        let _ = writeln!(
            out,
            "crate::collective::Collective {{ framework: {:?}, paths: &{:?}, calls: &[{}], who: crate::collective::Callers::{who}, when: crate::collective::When::{when}, agrees: {agrees}, distinctive: &{:?}, same: {:?}, page: {:?} }},",
            text(row, "framework"),
            list(row, "paths"),
            calls.join(", "),
            list(row, "distinctive"),
            optional(row, "same"),
            text(row, "page"),
        );
    }
    out.push_str("];\n");
}

fn call(spelling: &str) -> String {
    let (rest, agreed) = spelling.split_once('=').map_or((spelling, None), |(rest, n)| (rest, Some(n)));
    let (name, group) = rest.split_once('@').map_or((rest, None), |(name, n)| (name, Some(n)));
    let number = |n: Option<&str>| {
        n.map_or("None".to_owned(), |n| format!("Some({})", n.parse::<u8>().expect("a position")))
    };
    format!(
        "crate::collective::CollectiveName {{ name: {name:?}, group: {}, agreed: {} }}",
        number(group),
        number(agreed)
    )
}

fn axis(name: &str) -> String {
    assert!(AXES.contains(&name), "collectives.toml: unknown axis {name}");
    let (first, rest) = name.split_at(1);
    format!("crate::collective::Axis::{}{rest}", first.to_uppercase())
}

fn value(name: &str) -> String {
    let variant = match name {
        "rank" => "Rank",
        "first" => "First",
        "last" => "Last",
        other => panic!("collectives.toml: unknown value {other}"),
    };
    format!("crate::collective::RankValue::{variant}")
}
