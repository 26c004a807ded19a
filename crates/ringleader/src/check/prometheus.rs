//! Metrics for the textfile collector of Prometheus' node exporter.
//!
//! Source: the text exposition format 0.0.4, <https://prometheus.io/docs/instrumenting/exposition_formats/>. All lines
//! of a metric are together, so this is written at the end and not as answers arrive.
//!
//! By hand, and not by `prometheus-client` as in `watch`: that keeps series in hash maps, so that two runs would differ in their order,
//! and it would print a value anew that stands here in the digits of the check.

use std::fmt::Write as _;

use ringleader_check::CheckState;
use ringleader_check::fleet::Fleet;
use ringleader_report::quote;

/// The metrics of all nodes.
pub(crate) fn render(fleet: &Fleet) -> String {
    let mut out = String::new();
    head(&mut out, "ringleader_check", "State of a check: 0 ok, 1 warn, 2 fail, 3 unknown.");
    for (node, check, verdict) in fleet.verdicts() {
        sample(&mut out, "ringleader_check", &[("node", node), ("check", check)], number(verdict));
    }
    head(&mut out, "ringleader_value", "A value that a check exposes, if it is a number.");
    for (node, key, value) in fleet.values() {
        if let Some(number) = finite(value) {
            sample(&mut out, "ringleader_value", &[("node", node), ("key", key)], number);
        }
    }
    head(&mut out, "ringleader_value_info", "A value that a check exposes, if it is a word; always 1.");
    for (node, key, value) in fleet.values() {
        if finite(value).is_none() {
            sample(&mut out, "ringleader_value_info", &[("node", node), ("key", key), ("value", value)], "1");
        }
    }
    head(&mut out, "ringleader_node_answered", "Whether the node answered.");
    for node in fleet.names() {
        sample(&mut out, "ringleader_node_answered", &[("node", node)], "1");
    }
    for node in fleet.silent_names() {
        sample(&mut out, "ringleader_node_answered", &[("node", node)], "0");
    }
    if fleet.offsets().next().is_some() {
        let name = "ringleader_node_clock_offset_seconds";
        head(&mut out, name, "The node's clock ahead of the clock of the node that asked.");
        for (node, offset, _) in fleet.offsets() {
            sample(&mut out, name, &[("node", node)], &format!("{:.3}", offset as f64 / 1e9));
        }
        let name = "ringleader_node_clock_error_seconds";
        head(&mut out, name, "Largest error of ringleader_node_clock_offset_seconds.");
        for (node, _, error) in fleet.offsets() {
            sample(&mut out, name, &[("node", node)], &format!("{:.3}", error as f64 / 1e9));
        }
    }
    out
}

fn number(verdict: CheckState) -> &'static str {
    match verdict {
        CheckState::Ok => "0",
        CheckState::Warn => "1",
        CheckState::Fail => "2",
        CheckState::Skipped => "3",
    }
}

/// The value if Prometheus can read it as a number.
fn finite(value: &str) -> Option<&str> {
    let is_plain = value.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    (is_plain && value.parse::<f64>().is_ok_and(f64::is_finite)).then_some(value)
}

fn head(out: &mut String, name: &str, help: &str) {
    // Writing to a String does not fail.
    let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n");
}

fn sample(out: &mut String, name: &str, labels: &[(&str, &str)], value: &str) {
    let labels: Vec<String> =
        labels.iter().map(|(label, text)| format!("{label}=\"{}\"", escape(text))).collect();
    let _ = writeln!(out, "{name}{{{}}} {value}", labels.join(","));
}

fn escape(text: &str) -> String {
    // A label may hold anything, and who looks at the file has a terminal. A line's end has a mark of the format's own.
    let line = |line: &str| quote::plain(line).replace('\\', r"\\").replace('"', "\\\"");
    text.split('\n').map(line).collect::<Vec<_>>().join(r"\n")
}
