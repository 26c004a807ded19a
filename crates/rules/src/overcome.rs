//! What a job overcame: text states that something failed at its start, and the same program says later in the same
//! source that it is done.

use ringleader_correlate::Scene;
use ringleader_model::{Category, Finding, Severity, SourceKind};

/// Findings of a start that rest on such text alone decide nothing: they stay as remarks. A job that ended well got past
/// its start. Of an exception or a crash the same cannot be said: another rank, or a handler, may print the last words.
pub(crate) fn overcome(scene: &Scene<'_>, findings: &mut [Finding]) {
    let of_start = |f: &&mut Finding| f.category == Category::Init && f.severity > Severity::Info;
    for finding in findings.iter_mut().filter(of_start) {
        let is_text = |kind: SourceKind| {
            matches!(kind, SourceKind::PlainText | SourceKind::TorchLog | SourceKind::NcclLog)
        };
        if finding.evidence.iter().all(|e| is_text(e.kind) && scene.course().was_done_after(e.cite)) {
            finding.severity = Severity::Info;
        }
    }
}
