//! What a job overcame: text states a failure, and the same program says later in the same source that it is done.

use ringleader_correlate::Scene;
use ringleader_model::{Category, Finding, Severity, SourceKind};

/// Findings that rest on such text alone decide nothing: they stay as remarks. Wrong results and slowness do not keep a
/// program from its end, so an end proves nothing there.
pub(crate) fn overcome(scene: &Scene<'_>, findings: &mut [Finding]) {
    for finding in findings.iter_mut().filter(|f| f.severity > Severity::Info) {
        let can_be = !matches!(finding.category, Category::Corruption | Category::Performance);
        let is_past = |kind: SourceKind| {
            matches!(kind, SourceKind::PlainText | SourceKind::TorchLog | SourceKind::NcclLog)
        };
        if can_be && finding.evidence.iter().all(|e| is_past(e.kind) && scene.was_done_after(e.cite)) {
            finding.severity = Severity::Info;
        }
    }
}
