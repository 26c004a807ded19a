//! The tables of result codes, CUDA errors, events, link rates and bandwidths.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use toml::{Table, Value};

use super::{advice, array, list, optional, read, text, variants};

pub(super) fn write(out: &mut String, causes: &BTreeSet<String>) {
    results(out, causes);
    cuda_errors(out, causes);
    events(out, causes);
    let table = read("rates.toml");
    links(out, &table);
    bandwidths(out, &table);
    reaches(out, &table);
    factors(out, &table);
}

fn code(row: &Table) -> i64 {
    row.get("code").and_then(Value::as_integer).unwrap_or_else(|| panic!("no code in {row:?}"))
}

fn known(row: &Table, causes: &BTreeSet<String>) -> String {
    let ids = list(row, "causes");
    for id in &ids {
        assert!(causes.contains(*id), "unknown cause {id} in {row:?}");
    }
    variants(&ids)
}

fn results(out: &mut String, causes: &BTreeSet<String>) {
    out.push_str("pub(crate) static RESULTS: &[crate::nccl_result::NcclResult] = &[\n");
    for (n, row) in array(&read("nccl_results.toml"), "result").into_iter().enumerate() {
        assert_eq!(code(row), n as i64, "result codes have no holes");
        let _ = writeln!(
            out,
            "crate::nccl_result::NcclResult {{ code: {n}, name: {:?}, text: {:?}, since: {:?}, meaning: {:?}, \
             causes: {}, is_not: {:?}, advice: &[{}], source: {:?} }},",
            text(row, "name"),
            text(row, "text"),
            text(row, "since"),
            text(row, "meaning"),
            known(row, causes),
            text(row, "is_not"),
            advice(row),
            text(row, "source"),
        );
    }
    out.push_str("];\n");
}

fn cuda_errors(out: &mut String, causes: &BTreeSet<String>) {
    let table = read("cuda_errors.toml");
    let mut rows = array(&table, "error");
    rows.sort_by_key(|row| code(row));
    let mut seen = BTreeSet::new();
    out.push_str("pub(crate) static CUDA_ERRORS: &[crate::cuda_error::CudaError] = &[\n");
    for row in rows {
        assert!(seen.insert(code(row)), "CUDA error {} twice", code(row));
        let _ = writeln!(
            out,
            "crate::cuda_error::CudaError {{ code: {}, name: {:?}, text: {:?}, sticky: {}, meaning: {:?}, \
             causes: {}, is_not: {:?}, source: {:?} }},",
            code(row),
            text(row, "name"),
            text(row, "text"),
            row.get("sticky").and_then(Value::as_bool).unwrap_or_else(|| panic!("no `sticky` in {row:?}")),
            text(row, "meaning"),
            known(row, causes),
            text(row, "is_not"),
            text(&table, "source"),
        );
    }
    out.push_str("];\n");
}

fn events(out: &mut String, causes: &BTreeSet<String>) {
    out.push_str("pub(crate) static EVENTS: &[crate::event::EventForm] = &[\n");
    for (id, row) in &read("events.toml") {
        let row = row.as_table().expect("an event is a table");
        let _ = writeln!(
            out,
            "crate::event::EventForm {{ id: {id:?}, title: {:?}, means: {:?}, is_not: {:?}, causes: {}, \
             asked: &{:?}, advice: &[{}], source: {:?} }},",
            text(row, "title"),
            text(row, "means"),
            text(row, "is_not"),
            known(row, causes),
            list(row, "asked"),
            if row.contains_key("do") { advice(row) } else { String::new() },
            text(row, "source"),
        );
    }
    out.push_str("];\n");
}

fn number(row: &Table, key: &str) -> Option<f64> {
    row.get(key).map(|v| {
        v.as_float()
            .or_else(|| v.as_integer().map(|n| n as f64))
            .unwrap_or_else(|| panic!("`{key}` is no number in {row:?}"))
    })
}

/// The sources of a row, spelled out.
fn cites(row: &Table, table: &Table) -> Vec<String> {
    let sources = table.get("source").and_then(Value::as_table).expect("a table of sources");
    let names = list(row, "cite");
    assert!(!names.is_empty(), "no source: {row:?}");
    names.into_iter().map(|name| text(sources, name).to_owned()).collect()
}

fn links(out: &mut String, table: &Table) {
    out.push_str("pub(crate) static LINKS: &[crate::rate::LinkRate] = &[\n");
    for row in array(table, "link") {
        let _ = writeln!(
            out,
            "crate::rate::LinkRate {{ family: {:?}, name: {:?}, aliases: &{:?}, of: {:?}, one_way_gb_s: {:?}, \
             reached_gb_s: {:?}, cite: &{:?} }},",
            text(row, "family"),
            text(row, "name"),
            list(row, "aliases"),
            text(row, "of"),
            number(row, "one_way").unwrap_or_else(|| panic!("no rate in {row:?}")),
            number(row, "reached"),
            cites(row, table),
        );
    }
    out.push_str("];\n");
}

fn bandwidths(out: &mut String, table: &Table) {
    out.push_str("pub(crate) static BANDWIDTHS: &[crate::rate::Bandwidth] = &[\n");
    for row in array(table, "busbw") {
        let (low, high) = (number(row, "low").unwrap_or(0.0), number(row, "high").unwrap_or(0.0));
        assert!(low > 0.0 && low <= high, "bounds in {row:?}");
        let _ = writeln!(
            out,
            "crate::rate::Bandwidth {{ node: {:?}, operation: {:?}, way: {:?}, low_gb_s: {low:?}, \
             high_gb_s: {high:?}, at: {:?}, cite: &{:?} }},",
            text(row, "node"),
            text(row, "operation"),
            text(row, "way"),
            optional(row, "at"),
            cites(row, table),
        );
    }
    out.push_str("];\n");
}

/// Bandwidth over size. Sizes and bandwidths rise.
fn reaches(out: &mut String, table: &Table) {
    out.push_str("pub(crate) static REACHES: &[crate::rate::Reach] = &[\n");
    for row in array(table, "reach") {
        let whole = |key: &str| row.get(key).and_then(Value::as_integer).filter(|n| *n > 0);
        let points: Vec<(u64, f64)> = row
            .get("points")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|point| {
                let pair: Vec<i64> =
                    point.as_array().into_iter().flatten().filter_map(Value::as_integer).collect();
                let [bytes, gbs] = pair.as_slice() else {
                    panic!("a point of {row:?} is no pair of numbers")
                };
                (u64::try_from(*bytes).unwrap_or(0), *gbs as f64)
            })
            .collect();
        assert!(
            !points.is_empty() && points.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1),
            "points of {row:?}"
        );
        let _ = writeln!(
            out,
            "crate::rate::Reach {{ node: {:?}, gpu: &{:?}, n_gpus: {}, n_nodes: {}, operation: {:?}, points: &{points:?}, \
             latency_us: {:?}, cite: &{:?} }},",
            text(row, "node"),
            list(row, "gpu"),
            whole("n_gpus").unwrap_or_else(|| panic!("no n_gpus in {row:?}")),
            whole("n_nodes").unwrap_or_else(|| panic!("no n_nodes in {row:?}")),
            text(row, "operation"),
            number(row, "latency_us").unwrap_or_else(|| panic!("no latency in {row:?}")),
            cites(row, table),
        );
    }
    out.push_str("];\n");
}

fn factors(out: &mut String, table: &Table) {
    out.push_str("pub(crate) static FACTORS: &[crate::rate::Factor] = &[\n");
    for row in array(table, "factor") {
        let _ = writeln!(
            out,
            "crate::rate::Factor {{ operation: {:?}, counted: {:?}, formula: {:?}, cite: &{:?} }},",
            text(row, "operation"),
            text(row, "counted"),
            text(row, "formula"),
            cites(row, table),
        );
    }
    out.push_str("];\n");
}
