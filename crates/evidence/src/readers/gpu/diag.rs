//! `dcgmi diag`, of DCGM 2 to 4: its table and its JSON (`-j`).
//!
//! ```text
//! +---------------------------+------------------------------------------------+
//! | Diagnostic                | Result                                         |
//! | DCGM Version              | 4.2.3                                          |
//! | memory                    | Fail                                           |
//! |                           | GPU0: Pass                                     |
//! |                           | GPU1: Fail                                     |
//! | Warning: GPU1             | Detected uncorrectable ECC errors …            |
//! | PCIe                      | Fail - GPU: 1                                  |
//! ```
//! Until DCGM 3 a failing test names its GPUs on its own line and the JSON is called `DCGM GPU Diagnostic`, with
//! `gpu_id`; since 4 each GPU has a line, and it is `DCGM Diagnostic`, with `entity_id`.

use ringleader_model::{Fact, GpuTest, GpuTestStatus, GpuTests, SourceKind, Who};
use serde_json::Value;

use super::GpuReader;
use crate::ground::{Document, Line, Sink, TableSpan, bounded_text};

/// A table that is being read.
pub(super) struct DiagTable {
    fact: GpuTests,
    span: TableSpan,
    /// Test whose lines come.
    test: Box<str>,
}

const MAX_RESULTS: usize = 20_000;
const MAX_WARNINGS: usize = 16;
const TEXT_CHARS: usize = 400;
/// Lines after its last one within which a table goes on.
const MAX_GAP_LINES: u32 = 4;

fn status(word: &str) -> Option<GpuTestStatus> {
    let word = word.trim();
    let word = word.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    Some(match word.to_ascii_lowercase().as_str() {
        "pass" => GpuTestStatus::Pass,
        "fail" => GpuTestStatus::Fail,
        "warn" => GpuTestStatus::Warn,
        "skip" => GpuTestStatus::Skip,
        _ => return None,
    })
}

/// GPUs of `GPU0`, `GPU 0`, `GPUs: 1, 2`, `GPU: 3`.
fn gpus(text: &str) -> Vec<u32> {
    let Some((_, rest)) = text.split_once("GPU") else { return Vec::new() };
    let rest = rest.trim_start_matches(['s', ':', ' ']);
    rest.split(',')
        .map_while(|n| n.trim().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok())
        .take(64)
        .collect()
}

impl GpuReader {
    pub(super) fn diag_line(&mut self, line: &Line<'_>, text: &str, sink: &mut Sink<'_>) -> bool {
        if self.diag.as_ref().is_some_and(|d| line.number > d.span.last_line.saturating_add(MAX_GAP_LINES)) {
            self.close_diag(sink);
        }
        let body = text.trim_ascii();
        let cells = body.strip_prefix('|').and_then(|b| b.strip_suffix('|')).and_then(|b| b.split_once('|'));
        let cells = cells.map(|(left, right)| (left.trim(), right.trim()));
        if let Some(("Diagnostic", "Result")) = cells {
            self.close_diag(sink);
            self.diag = Some(DiagTable {
                fact: GpuTests::default(),
                span: TableSpan::begin(line, sink),
                test: "".into(),
            });
            return true;
        }
        let Some(table) = &mut self.diag else { return false };
        table.span.add(line, sink);
        if let Some((left, right)) = cells {
            table.row(left, right, line.number);
        }
        true
    }

    pub(super) fn close_diag(&mut self, sink: &mut Sink<'_>) {
        if let Some(DiagTable { fact, span, .. }) = self.diag.take() {
            span.push(SourceKind::Dcgmi, Fact::GpuTests(fact.into()), sink);
        }
    }
}

impl DiagTable {
    fn row(&mut self, left: &str, right: &str, line: u32) {
        match left {
            "DCGM Version" => self.fact.dcgm_version = Some(right.into()),
            "Driver Version Detected" => self.fact.driver_version = Some(right.into()),
            "" => {
                // `GPU1: Fail` under the test, or the rest of a warning.
                if let (Some((gpu, word)), [gpu_id]) = (right.split_once(':'), gpus(right).as_slice())
                    && gpu.starts_with("GPU")
                    && let Some(status) = status(word)
                {
                    let test = self.test.clone();
                    self.push(line, test, Some(*gpu_id), status);
                } else if let Some(last) = self.fact.results.last_mut()
                    && let Some(warning) = last.warnings.last_mut()
                {
                    *warning = bounded_text(format!("{warning} {right}").as_bytes(), TEXT_CHARS).into();
                }
            }
            _ if left.starts_with("Warning") || left.starts_with("Info") && right.contains("Error") => {
                self.warn(&gpus(left), right);
            }
            _ => {
                let Some(status) = status(right) else { return };
                self.test = left.into();
                let named = gpus(right);
                if named.is_empty() {
                    self.push(line, left.into(), None, status);
                }
                for gpu in named {
                    self.push(line, left.into(), Some(gpu), status);
                }
            }
        }
    }

    fn push(&mut self, line: u32, name: Box<str>, gpu: Option<u32>, status: GpuTestStatus) {
        if self.fact.results.len() < MAX_RESULTS {
            self.fact.results.push(GpuTest { line, name, gpu, status, warnings: Vec::new() });
        }
    }

    fn warn(&mut self, gpus: &[u32], text: &str) {
        let test = self.test.clone();
        let of_gpu = |r: &&mut GpuTest| r.name == test && r.gpu.is_some_and(|g| gpus.contains(&g));
        let at = match self.fact.results.iter_mut().rev().find(of_gpu) {
            Some(result) => Some(result),
            None => self.fact.results.last_mut(),
        };
        if let Some(result) = at
            && result.warnings.len() < MAX_WARNINGS
        {
            result.warnings.push(bounded_text(text.as_bytes(), TEXT_CHARS).into());
        }
    }
}

/// Reads a JSON document of `dcgmi diag -j`. False if it is none.
pub(crate) fn read_json(document: &Document<'_>, sink: &mut Sink<'_>) -> bool {
    let Some(top) = document.value.as_object() else { return false };
    let Some(diagnostic) = ["DCGM Diagnostic", "DCGM GPU Diagnostic"].iter().find_map(|k| top.get(*k)) else {
        return false;
    };
    let metadata = top.get("metadata").or_else(|| diagnostic.get("metadata"));
    let named = |keys: &[&str]| {
        let value = keys.iter().find_map(|k| metadata?.get(*k))?;
        Some(bounded_text(value.as_str()?.as_bytes(), 60).into_boxed_str())
    };
    let mut fact = GpuTests {
        dcgm_version: named(&["version", "DCGM Version"]),
        driver_version: named(&["Driver Version Detected", "driver_version"]),
        results: Vec::new(),
    };
    for category in list(diagnostic, "test_categories") {
        for test in list(category, "tests") {
            let name = test.get("name").and_then(Value::as_str).unwrap_or_default();
            let name: Box<str> = bounded_text(name.as_bytes(), 80).into();
            let n_before = fact.results.len();
            for result in list(test, "results") {
                push_json(&mut fact, &name, result);
            }
            if let (true, Some(summary)) = (fact.results.len() == n_before, test.get("test_summary")) {
                push_json(&mut fact, &name, summary);
            }
        }
    }
    sink.saw(SourceKind::Dcgmi);
    let text = format!("dcgmi diag: {} results", fact.results.len());
    sink.push(document.cite(sink), Who::default(), None, Fact::GpuTests(fact.into()), text.as_bytes());
    true
}

fn list<'v>(value: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn push_json(fact: &mut GpuTests, name: &str, result: &Value) {
    let number = |key: &str| {
        let value = result.get(key)?;
        value.as_u64().or_else(|| value.as_str()?.parse().ok()).and_then(|n| u32::try_from(n).ok())
    };
    let is_gpu = result.get("entity_group").is_none_or(|g| g.as_str() == Some("GPU"));
    let gpu =
        number("gpu_id").or_else(|| number("gpu_ids")).or_else(|| number("entity_id")).filter(|_| is_gpu);
    let Some(status) = result.get("status").and_then(Value::as_str).and_then(status) else { return };
    let warning = |v: &Value| {
        let text = v.as_str().or_else(|| v.get("warning")?.as_str())?;
        Some(bounded_text(text.as_bytes(), TEXT_CHARS).into_boxed_str())
    };
    let warnings = match result.get("warnings") {
        Some(Value::Array(all)) => all.iter().filter_map(warning).take(MAX_WARNINGS).collect(),
        Some(one) => warning(one).into_iter().collect(),
        None => Vec::new(),
    };
    if fact.results.len() < MAX_RESULTS {
        fact.results.push(GpuTest { line: 0, name: name.into(), gpu, status, warnings });
    }
}
