//! Kinds of evidence that were not there, and what collects each.

use ringleader_knowledge::collecting;
use ringleader_model::{Case, Fact, SourceKind, TorchEvent};

/// The usual reason.
pub(crate) const NOT_GIVEN: &str = "not in the evidence";

/// The reason for what only a living process can give, once the job has ended.
const ENDED: &str = "the job has ended: it can only be taken while the next job hangs";

/// Kinds whose absence is reported, with the kinds that can replace them. In the order in which an operator would fetch
/// them: what is lost first comes first.
const WANTED: &[(SourceKind, &[SourceKind])] = &[
    (SourceKind::Stacks, &[]),
    (SourceKind::Ras, &[]),
    (SourceKind::Processes, &[]),
    (SourceKind::NvidiaSmi, &[]),
    (SourceKind::KernelLog, &[]),
    (SourceKind::FlightRecorder, &[]),
    (SourceKind::NcclLog, &[]),
    (SourceKind::TorchLog, &[SourceKind::ElasticError]),
];

/// Each kind that no source of the case holds, with why and the command that collects it.
pub(crate) fn not_looked_at(case: &Case) -> Vec<(SourceKind, &'static str, &'static str)> {
    let seen = |kind: &SourceKind| case.sources.iter().any(|source| source.kinds.contains(kind));
    WANTED
        .iter()
        .filter(|(kind, also)| !seen(kind) && !also.iter().any(seen))
        .map(|(kind, _)| (*kind, why(case, *kind), collecting::command(*kind).unwrap_or_default()))
        .collect()
}

fn why(case: &Case, kind: SourceKind) -> &'static str {
    let ended = || {
        case.observations.iter().any(|o| {
            matches!(o.fact, Fact::Torch(TorchEvent::ChildFailure { .. } | TorchEvent::LauncherFailed { .. }))
        })
    };
    match kind {
        SourceKind::Stacks | SourceKind::Ras | SourceKind::Processes if ended() => ENDED,
        _ => NOT_GIVEN,
    }
}
