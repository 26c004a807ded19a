//! From a report to what decisions rest on, and the words of a failure that a person should see first.

use std::path::Path;

use ringleader_model::Confidence as Sure;
use ringleader_report::json::{Confidence, Culprit as Blamed, Report};
use ringleader_run::judgement::{Citation, Culprit, Judgement, class_of};

/// Citations that are kept.
const MAX_EVIDENCE: usize = 8;
/// Longest citation, bytes.
const MAX_TEXT: usize = 400;
/// Output that is searched for a traceback, bytes.
const MAX_OUTPUT: u64 = 16 << 20;
/// Lines of a traceback.
const MAX_LINES: usize = 40;
/// Errors that ranks print because another one has failed, and those of launchers.
const CONSEQUENCES: [&str; 9] = [
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "ChildFailedError",
    "SignalException",
    "DistBackendError",
    "DistNetworkError",
    "KeyboardInterrupt",
    "Gloo connectFullMesh failed",
];

/// What the report says, for the nodes of the job.
pub(crate) fn judged(report: &Report, bundle: &Path, nodes: &[String]) -> Judgement {
    let verdict = &report.verdict;
    let culprits: Vec<Culprit> = verdict.culprits.iter().map(culprit).collect();
    let mut judgement = Judgement {
        cause: verdict.cause.clone(),
        class: ringleader_model::Class::Unknown,
        confidence: match verdict.confidence {
            Confidence::Low => Sure::Low,
            Confidence::Medium => Sure::Medium,
            Confidence::High => Sure::High,
        },
        summary: verdict.summary.clone(),
        culprits,
        evidence: Vec::new(),
        bundle: Some(bundle.display().to_string()),
    };
    judgement.class = class_of(&judgement.cause, &judgement.hosts(), nodes);
    let deciding = report.findings.iter().filter(|finding| finding.cause == verdict.cause);
    let quoted = deciding.flat_map(|finding| &finding.evidence).take(MAX_EVIDENCE);
    judgement.evidence = quoted
        .map(|evidence| Citation {
            source: evidence.source.clone(),
            line: evidence.line,
            text: cut(&evidence.text),
        })
        .collect();
    judgement
}

fn culprit(blamed: &Blamed) -> Culprit {
    let place = blamed.place.as_ref().map(|place| {
        let line = place.line.map_or_else(String::new, |line| format!(":{line}"));
        let function = place.function.as_ref().map_or_else(String::new, |function| format!(" in {function}"));
        format!("{}{line}{function}", place.file)
    });
    Culprit { rank: blamed.rank, host: blamed.host.clone(), gpu: blamed.gpu.clone(), place }
}

fn cut(text: &str) -> String {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default().to_owned()
}

/// The traceback of the first rank that failed: the first in what was printed that is no consequence of another failure.
/// Empty if there is none.
pub(crate) fn first_traceback(files: &[std::path::PathBuf]) -> Vec<String> {
    for file in files.iter().rev().filter(|file| file.extension().is_some_and(|end| end == "log")) {
        let Ok(bytes) = read(file) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        let mut blocks = tracebacks(&text);
        let is_own = |block: &Vec<String>| {
            let last = block.last().map(String::as_str).unwrap_or_default();
            !CONSEQUENCES.iter().any(|words| last.contains(words))
        };
        if let Some(at) = blocks.iter().position(is_own) {
            return blocks.swap_remove(at);
        }
    }
    Vec::new()
}

fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(file)?.take(MAX_OUTPUT).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Tracebacks of a text, those of ranks that print at once kept apart by the prefix of their lines.
fn tracebacks(text: &str) -> Vec<Vec<String>> {
    const HEAD: &str = "Traceback (most recent call last)";
    let lines: Vec<&str> = text.lines().collect();
    let mut blocks = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(column) = line.find(HEAD) else { continue };
        let prefix = line.get(..column).unwrap_or_default();
        let mut block = vec![(*line).to_owned()];
        for next in lines.get(at + 1..).unwrap_or_default().iter().take(4 * MAX_LINES) {
            let Some(body) = next.strip_prefix(prefix) else { continue };
            if block.len() >= MAX_LINES || body.contains(HEAD) {
                break;
            }
            block.push((*next).to_owned());
            // The error itself ends it: the first line that is not indented.
            if !body.starts_with([' ', '\t']) && !body.is_empty() {
                break;
            }
        }
        blocks.push(block);
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_own_traceback_is_found() {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let file = folder.path().join("stderr-0001.log");
        let text = "[rank1]: Traceback (most recent call last):\n[rank0]: Traceback (most recent call last):\n\
                    [rank1]:   File \"t.py\", line 3, in f\n[rank0]:   File \"t.py\", line 9, in g\n\
                    [rank1]: RuntimeError: Connection closed by peer\n[rank0]:     x = 1/0\n\
                    [rank0]: ZeroDivisionError: division by zero\nmore\n";
        std::fs::write(&file, text).unwrap_or_else(|error| panic!("{error}"));
        let found = first_traceback(&[file]);
        assert_eq!(found.last().map(String::as_str), Some("[rank0]: ZeroDivisionError: division by zero"));
        assert_eq!(found.len(), 4);
        assert!(first_traceback(&[folder.path().join("absent")]).is_empty());
    }
}
