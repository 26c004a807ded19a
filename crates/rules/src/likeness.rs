//! What the wording of the evidence resembles: whose words it is, whether they may count, and a guess as a finding.

use std::net::IpAddr;

use ringleader_correlate::Scene;
use ringleader_correlate::when::failure::Way;
use ringleader_knowledge::cause;
use ringleader_knowledge::likeness::WordId;
use ringleader_model::address;
use ringleader_model::{
    Case, Category, Cause, Cite, Confidence, Fact, Finding, Impact, Severity, Source, SourceKind, StoreEvent,
    TorchEvent, Weight,
};

use crate::rule::Draft;

/// A word that speaks for a cause, what it adds, and its place.
pub(crate) type Because = (WordId, f32, Cite);

/// Name of the finding's rule.
pub(crate) const RULE: &str = "likeness";
/// Causes that show how something ended, and not why.
pub(crate) const ENDS: [Cause; 6] = [
    Cause::ApplicationException,
    Cause::ProcessCrashed,
    Cause::ProcessKilled,
    Cause::PeerProcessDied,
    Cause::LauncherFailure,
    Cause::MissingRank,
];

/// Sources that a reader knows line by line.
pub(crate) const FORMED: [SourceKind; 12] = [
    SourceKind::KernelLog,
    SourceKind::NvidiaSmi,
    SourceKind::Dcgmi,
    SourceKind::GpuServices,
    SourceKind::BugReport,
    SourceKind::Ras,
    SourceKind::CopyTest,
    SourceKind::Network,
    SourceKind::System,
    SourceKind::Limits,
    SourceKind::Environment,
    SourceKind::Processes,
];

/// A folder that a collector filled: few of its files are anybody's words, or ranks have logs of their own.
pub(crate) fn is_collected(case: &Case) -> bool {
    let given = || case.sources.iter().filter(|source| source.kinds != [SourceKind::Bundle]);
    let n_formed = given().filter(|source| is_formed(source)).count();
    let n_logs = case.sources.iter().filter(|source| source.kinds.contains(&SourceKind::NcclLog)).count();
    let has_timeline = case.sources.iter().any(|source| source.kinds.contains(&SourceKind::Timeline));
    n_formed * 2 > given().count() || n_logs > 1 || has_timeline
}

/// A source that a reader knows line by line; a bundle's own manifest is one, too.
pub(crate) fn is_formed(source: &Source) -> bool {
    let is_known = |kind: &SourceKind| FORMED.contains(kind) || *kind == SourceKind::Bundle;
    !source.kinds.is_empty() && source.kinds.iter().all(is_known)
}

/// Whether facts speak against the cause: what is stopped from outside has not failed by itself before, and an address in
/// numbers needs no name.
pub(crate) fn is_contradicted(scene: &Scene<'_>, cause: Cause) -> bool {
    match cause {
        Cause::StoppedFromOutside => scene.failure().has(Way::TimedOut),
        Cause::HostnameResolution => scene.statements().any(|s| match s.event {
            TorchEvent::Store(StoreEvent::ConnectTimeout { address, .. }) => is_numeric(address),
            _ => false,
        }),
        _ => false,
    }
}

/// An address of a store, `10.0.0.1:29500`, whose host is no name and not loopback.
fn is_numeric(store: &str) -> bool {
    let host = address::host_and_port(store).and_then(|(host, _)| host.parse::<IpAddr>().ok());
    host.is_some_and(|host| !host.is_loopback())
}

/// Whether readers know every line of this source: what rules pass over there is harmless, and NCCL's log of a start
/// resembles that of many faults.
pub(crate) fn is_read(scene: &Scene<'_>, cite: Cite) -> bool {
    scene.case().sources.get(cite.source.0 as usize).is_some_and(|source| {
        let is_known = |kind| FORMED.contains(kind) || *kind == SourceKind::NcclLog;
        !source.kinds.is_empty() && source.kinds.iter().all(is_known)
    })
}

/// How much of the words that count most for the cause is from sources of a fixed form, 0 to 1.
pub(crate) fn share_of_tools(scene: &Scene<'_>, because: &[Because]) -> f32 {
    let is_formed = |cite: &Cite| scene.case().sources.get(cite.source.0 as usize).is_some_and(is_formed);
    let all: f32 = because.iter().map(|(_, part, _)| part).sum();
    let formed: f32 = because.iter().filter(|(_, _, cite)| is_formed(cite)).map(|(_, part, _)| part).sum();
    formed / all.max(f32::MIN_POSITIVE)
}

/// Whether all words that count for the cause are events that a reader knows.
pub(crate) fn are_events(scene: &Scene<'_>, because: &[Because]) -> bool {
    let is_event = |cite: &Cite| {
        scene.case().observations.iter().any(|o| {
            o.cite.source == cite.source
                && o.cite.line == cite.line
                && !matches!(o.fact, Fact::Words(_) | Fact::Said(_) | Fact::Hosts(_))
        })
    };
    because.iter().all(|(_, _, cite)| is_event(cite))
}

/// A guess as a finding: the words that speak for `cause` are its evidence; `next` are the causes that come after it.
pub(crate) fn guess(
    scene: &Scene<'_>,
    cause: Cause,
    next: &[Cause],
    confidence: Confidence,
) -> Option<Finding> {
    let title = format!("a guess: no statement proves it, but the wording resembles that of {}", cause.id());
    let slow = cause::category(cause) == Category::Performance;
    let next: Vec<&str> = next.iter().map(|cause| cause.id()).collect();
    let mut draft = Draft::new(RULE, cause, title)
        .severity(if slow { Severity::Warning } else { Severity::Error })
        .weight(Weight::Symptom)
        .confidence(confidence)
        .at_most(confidence);
    for (word, part, cite) in scene.likeness().because(cause) {
        draft = draft.cite(cite, SourceKind::PlainText, format!("\"{}\" +{part:.2}", word.text()));
    }
    draft
        .advise_made(
            Impact::Harmless,
            format!("read what would confirm it; the next likely causes: {}", next.join(", ")),
            Some(format!("ringleader explain {}", cause.id())),
        )
        .build()
}

#[cfg(test)]
mod tests {
    use super::is_numeric;

    #[test]
    fn an_address_in_numbers_needs_no_name() {
        assert!(is_numeric("(10.0.0.1, 29500)"));
        assert!(is_numeric("[fd00::1]:29500"));
        assert!(!is_numeric("(node0, 29500)"));
        // A name that resolves to loopback is the fault itself.
        assert!(!is_numeric("127.0.0.1:29500"));
        assert!(!is_numeric("10.0.0.1"));
    }
}
