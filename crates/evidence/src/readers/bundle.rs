//! The manifest of a bundle that `ringleader collect` wrote: `{"schema": "ringleader.bundle.v1", "items": […]}`.
//!
//! The items beside it are read as any file is. The manifest adds what only it knows: what was wanted and could not be
//! had, and what was cut. Not collected is not health, so each of these is a note.

use ringleader_model::{
    Cite, Fact, KernelCoverage, KernelEvent, KernelEventKind, NoteKind, Owner, Pid, SourceKind, WallTime, Who,
};
use serde_json::Value;

use crate::ground::{Document, Sink};

/// The major version that is read.
const MAJOR: u64 = 1;

/// Reads a manifest; false if the document is none.
pub(crate) fn read_json(document: &Document<'_>, sink: &mut Sink<'_>) -> bool {
    let word = |key: &str| document.value.get(key).and_then(Value::as_str);
    if !word("schema").is_some_and(|schema| schema.starts_with("ringleader.bundle.v")) {
        return false;
    }
    sink.saw(SourceKind::Bundle);
    let cite = document.cite(sink);
    let major = document.value.pointer("/format/major").and_then(Value::as_u64).unwrap_or(MAJOR);
    if major != MAJOR {
        let version = word("tool_version").unwrap_or("a newer version");
        let text = format!(
            "a bundle of format {major}, this program reads {MAJOR}; its items were read, its manifest was not: use \
             ringleader {version}"
        );
        sink.note(cite, NoteKind::UnknownVersion, text);
        return true;
    }
    for item in document.value.get("items").and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default();
        let name = if text("name").is_empty() { origin(item) } else { text("name").to_owned() };
        let what = format!("{} {name}", text("kind"));
        let owner = item.get("owner").and_then(Value::as_u64).and_then(|pid| u32::try_from(pid).ok());
        if let (Some(pid), false) = (owner, text("name").is_empty()) {
            let owner = Owner { name: text("name").into(), pid: Pid(pid) };
            let said = format!("{name} is the output of pid {pid}");
            sink.push(cite, Who::default(), None, Fact::Owner(Box::new(owner)), said.as_bytes());
        }
        let is_done = item.get("outcome").and_then(Value::as_str) == Some("done");
        if let (true, "kernel-log", Some(at_ns)) =
            (is_done, text("kind"), item.get("at_ns").and_then(Value::as_i64))
        {
            read_until(text("host"), at_ns, cite, sink);
        }
        if let Some(cut) = item.get("cut").and_then(|cut| cut.get("left_out_bytes")).and_then(Value::as_u64) {
            let text = format!("{what}: {cut} bytes of its middle were left out at collection");
            sink.note(cite, NoteKind::LimitReached, text);
        }
        let Some(outcome) = item.get("outcome").and_then(Value::as_object) else { continue };
        for (word, why) in outcome {
            let why = match why {
                Value::String(why) => why.clone(),
                Value::Array(chain) => chain.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(": "),
                _ => continue,
            };
            match word.as_str() {
                "failed" => {
                    sink.note(cite, NoteKind::Unreadable, format!("{what} could not be collected: {why}"));
                }
                "skipped" => sink.note(cite, NoteKind::Remark, format!("{what} was not collected: {why}")),
                "partial" => {
                    sink.note(cite, NoteKind::Truncated, format!("{what} was collected in part: {why}"));
                }
                _ => {}
            }
        }
    }
    true
}

/// Where an item comes from, in words.
fn origin(item: &Value) -> String {
    let Some(origin) = item.get("origin").and_then(Value::as_object) else { return String::new() };
    let words = origin.values().map(|value| match value {
        Value::String(text) => text.clone(),
        Value::Array(words) => words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        _ => String::new(),
    });
    words.collect()
}

/// A kernel that says nothing adds no line: its log goes as far as the moment at which it was read.
fn read_until(host: &str, at_ns: i64, cite: Cite, sink: &mut Sink<'_>) {
    let at = WallTime { ns: at_ns, error_ns: 0, has_year: true };
    let coverage = KernelCoverage { last_at: Some(at), ..KernelCoverage::default() };
    let kind = KernelEventKind::Covers(coverage.into());
    let event = KernelEvent { uptime_us: None, boot: 0, device: None, kind };
    let who = Who { host: (!host.is_empty()).then(|| host.into()), ..Who::default() };
    sink.push(cite, who, Some(at), Fact::Kernel(event.into()), b"");
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Fact, KernelEventKind, NoteKind, SourceKind};

    use crate::{Extract, Limits, Scratch};

    fn read(text: &str) -> Extract {
        crate::read("manifest.json", &mut text.as_bytes(), &mut Scratch::default(), &Limits::default())
    }

    #[test]
    fn what_is_missing_is_a_note() {
        let extract = read(
            r#"{"schema": "ringleader.bundle.v1", "format": {"major": 1, "minor": 7}, "items": [
                {"name": "n/a.log", "kind": "log", "outcome": "done",
                 "cut": {"head_bytes": 1, "tail_bytes": 2, "left_out_bytes": 3}},
                {"name": "", "kind": "stacks", "origin": {"reading": "stacks of pid 7"},
                 "outcome": {"failed": ["open process 7", "not permitted"]}},
                {"name": "", "kind": "ras", "origin": {"address": "localhost:28028"}, "outcome": {"skipped": "no"}}
            ]}"#,
        );
        assert_eq!(extract.sources[0].kinds, [SourceKind::Bundle]);
        assert!(extract.observations.is_empty());
        let notes: Vec<(NoteKind, &str)> = extract.notes.iter().map(|n| (n.kind, n.text.as_str())).collect();
        assert_eq!(
            notes,
            [
                (NoteKind::LimitReached, "log n/a.log: 3 bytes of its middle were left out at collection"),
                (
                    NoteKind::Unreadable,
                    "stacks stacks of pid 7 could not be collected: open process 7: not permitted"
                ),
                (NoteKind::Remark, "ras localhost:28028 was not collected: no"),
            ]
        );
    }

    #[test]
    fn a_kernel_log_goes_as_far_as_the_moment_of_its_reading() {
        let extract = read(
            r#"{"schema": "ringleader.bundle.v1", "format": {"major": 1, "minor": 7}, "items": [
                {"name": "n/kernel.log", "kind": "kernel-log", "host": "n", "at_ns": 1796010716686135878, "outcome": "done"},
                {"name": "", "kind": "kernel-log", "host": "m", "at_ns": 1796010716686135878, "outcome": {"failed": ["no"]}}
            ]}"#,
        );
        let covers = extract.observations.iter().filter_map(|o| match &o.fact {
            Fact::Kernel(event) => match &event.kind {
                KernelEventKind::Covers(covers) => Some((o.who.host.clone()?, covers.last_at?.ns)),
                _ => None,
            },
            _ => None,
        });
        assert_eq!(covers.collect::<Vec<_>>(), [("n".into(), 1_796_010_716_686_135_878)]);
    }

    #[test]
    fn another_major_version_names_who_reads_it() {
        let extract = read(
            r#"{"schema": "ringleader.bundle.v2", "format": {"major": 2, "minor": 0}, "tool_version": "9.1.0"}"#,
        );
        assert!(extract.notes[0].text.ends_with("use ringleader 9.1.0"), "{:?}", extract.notes);
    }
}
