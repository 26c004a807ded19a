//! JUnit XML, for CI of clusters: a suite for each node, a case for each check.
//!
//! Each suite is written as its node answers, so that memory does not grow with the nodes. A warning is a case that
//! passes and says so in its output; an unknown answer is skipped, a silent node is an error.

use quick_xml::Writer;
use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};
use ringleader_check::fleet::Silence;
use ringleader_check::{CheckResult, CheckState, NodeReport};

use super::output::Out;
use crate::failure::Failure;

/// The opening of the document.
pub(crate) fn start(out: &mut Out) -> Result<(), Failure> {
    out.write("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"ringleader check\">\n")
}

/// Its end.
pub(crate) fn end(out: &mut Out) -> Result<(), Failure> {
    out.write("</testsuites>\n")
}

/// A node that answered.
pub(crate) fn node(out: &mut Out, report: &NodeReport) -> Result<(), Failure> {
    let n_of = |verdict| report.checks.iter().filter(|check| check.verdict == verdict).count().to_string();
    let mut suite = BytesStart::new("testsuite");
    suite.push_attribute(("name", &*allowed(report.name())));
    suite.push_attribute(("tests", &*report.checks.len().to_string()));
    suite.push_attribute(("failures", &*n_of(CheckState::Fail)));
    suite.push_attribute(("errors", "0"));
    suite.push_attribute(("skipped", &*n_of(CheckState::Skipped)));
    suite.push_attribute(("time", &*format!("{:.3}", report.took_ms as f64 / 1e3)));
    suite.push_attribute(("hostname", &*allowed(&report.host)));
    element(out, suite, |xml| report.checks.iter().try_for_each(|check| case(xml, report.name(), check)))
}

/// A node that did not.
pub(crate) fn silent(out: &mut Out, host: &str, silence: &Silence) -> Result<(), Failure> {
    let mut suite = BytesStart::new("testsuite");
    suite.push_attribute(("name", &*allowed(host)));
    for (name, value) in [("tests", "1"), ("failures", "0"), ("errors", "1"), ("skipped", "0")] {
        suite.push_attribute((name, value));
    }
    element(out, suite, |xml| {
        let mut case = BytesStart::new("testcase");
        case.push_attribute(("name", "answers"));
        case.push_attribute(("classname", &*allowed(host)));
        xml.write_event(Event::Start(case))?;
        let mut error = BytesStart::new("error");
        error.push_attribute(("message", &*allowed(&format!("{}: {}", silence.kind.name(), silence.why))));
        error.push_attribute(("type", silence.kind.name()));
        block(xml, error, &silence.next)?;
        xml.write_event(Event::End(BytesEnd::new("testcase")))
    })
}

type Xml = Writer<Vec<u8>>;

fn element(
    out: &mut Out,
    start: BytesStart<'_>,
    inside: impl FnOnce(&mut Xml) -> std::io::Result<()>,
) -> Result<(), Failure> {
    let mut xml = Writer::new_with_indent(Vec::new(), b' ', 2);
    let end = start.to_end().into_owned();
    xml.write_event(Event::Start(start))
        .and_then(|()| inside(&mut xml))
        .and_then(|()| xml.write_event(Event::End(end)))
        .map_err(Failure::Write)?;
    out.write(&String::from_utf8_lossy(&xml.into_inner()))?;
    out.write("\n")?;
    out.flush()
}

fn case(xml: &mut Xml, node: &str, check: &CheckResult) -> std::io::Result<()> {
    let mut case = BytesStart::new("testcase");
    case.push_attribute(("name", &*allowed(&check.id)));
    case.push_attribute(("classname", &*allowed(&format!("{node}.{}", check.area))));
    if check.verdict == CheckState::Ok {
        return xml.write_event(Event::Empty(case));
    }
    xml.write_event(Event::Start(case))?;
    let (name, text) = match check.verdict {
        CheckState::Fail => ("failure", details(check)),
        CheckState::Skipped => ("skipped", String::new()),
        CheckState::Warn | CheckState::Ok => {
            ("system-out", format!("warning: {}\n{}", check.summary, details(check)))
        }
    };
    let mut start = BytesStart::new(name);
    if check.verdict != CheckState::Warn {
        start.push_attribute(("message", &*allowed(&check.summary)));
    }
    if check.verdict == CheckState::Fail {
        start.push_attribute(("type", if check.drains { "drain" } else { "fail" }));
    }
    block(xml, start, &text)?;
    xml.write_event(Event::End(BytesEnd::new("testcase")))
}

fn block(xml: &mut Xml, start: BytesStart<'_>, text: &str) -> std::io::Result<()> {
    if text.is_empty() {
        return xml.write_event(Event::Empty(start));
    }
    let end = start.to_end().into_owned();
    xml.write_event(Event::Start(start))?;
    xml.write_event(Event::Text(BytesText::new(&allowed(text))))?;
    xml.write_event(Event::End(end))
}

fn details(check: &CheckResult) -> String {
    let mut lines: Vec<String> = Vec::new();
    for item in &check.items {
        lines.push(format!("{}: {} ({})", item.subject, item.text, item.evidence));
    }
    for fix in &check.fixes {
        let command = fix.command.as_ref().map(|command| format!(": {command}")).unwrap_or_default();
        lines.push(format!("-> {}{command}", fix.text));
    }
    lines.join("\n")
}

/// XML 1.0 has no way to write most control characters, not even escaped.
fn allowed(text: &str) -> String {
    let is_allowed =
        |c: &char| matches!(c, '\t' | '\n' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    text.chars().map(|c| if is_allowed(&c) { c } else { '\u{fffd}' }).collect()
}
