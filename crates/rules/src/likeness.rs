//! Which cause the wording of the evidence resembles: a guess where no rule decides, and a second opinion where one
//! does.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ringleader_correlate::Scene;
use ringleader_correlate::said::likeness::Likely;
use ringleader_correlate::when::failure::Way;
use ringleader_knowledge::cause;
use ringleader_model::address;
use ringleader_model::{
    Case, Category, Cause, Cite, Confidence, Culprit, Fact, Finding, Impact, Rank, RankSet, Severity, Source,
    SourceKind, StoreEvent, TorchEvent, Weight,
};

use crate::rule::Draft;

/// Name of the finding's rule.
pub(crate) const RULE: &str = "likeness";
// The thresholds were chosen on the blind rounds 15 to 20, with weights that had not seen them; docs/unseen.md has the
// table of scores.
/// Least score if something indicates a failure and no rule decides: of the open cases of rounds 22 to 28 above it, twelve
/// of twenty were right.
const LEAST: f32 = -0.85;
/// The same if steps advance or tools show a machine at rest, and nothing indicates a failure.
const LEAST_OF_NONE: f32 = -0.5;
/// The same if somebody took stacks of a job, and nothing shows that it works.
const LEAST_OF_STACKS: f32 = -0.7;
/// The same if nothing was understood: a few lines resemble much.
const LEAST_OF_NOTHING: f32 = -0.2;
/// From this score on, and this far above health, the words of a fault are plain, wherever they stand. Of such clean bills
/// on rounds 1 to 28 five were faults, all of them the likeliest cause, and two were right.
const PLAIN: f32 = -0.1;
const PLAIN_LEAD: f32 = 0.4;
/// Least distance to the next cause, but where lines report a failure.
const LEAST_MARGIN: f32 = 0.05;
/// Least score, lead before the next cause, and number of words of a guess that nothing else supports: a single harmless
/// message has fewer words.
const LEAST_OF_LEAD: f32 = -0.6;
const LEAD: f32 = 0.05;
const WORDS_OF_LEAD: usize = 40;
/// Lead before the next cause, and before health, of a score from `SURE` on that needs no other support: of nine open cases of
/// the public rounds nine were right.
const LEAD_OF_SURE: f32 = 0.4;
/// Part of such words that may come from tools where the job failed.
const SHARE_OF_TOOLS: f32 = 0.3;
/// Least score that overrules a rule.
const LEAST_OVER_RULE: f32 = -0.3;
/// The same over a cause that shows how a process ended and not why.
const LEAST_OVER_END: f32 = -0.45;
/// The same over a weak finding that names no rank: of 25 such findings of the public rounds 7 named a right cause, and
/// the words named one in 23 (two causes can be right).
const LEAST_OVER_WEAK: f32 = -0.45;
/// From this score on more than nine of ten are right.
const SURE: f32 = 0.0;

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

/// What the wording says about a cause that a rule has found.
pub(crate) enum Opinion {
    /// It is among the most likely ones, or the wording shows nothing.
    Agrees,
    /// It is not among the most likely ones.
    Doubts,
    /// Another is so likely that it takes precedence.
    Overrules(Box<Finding>),
}

/// A second opinion on what a rule has `found`. What it takes from stacks or from a source of fixed form may be
/// doubted, but the wording does not overrule it, unless the finding is weak.
pub(crate) fn opinion(scene: &Scene<'_>, found: &Finding) -> Opinion {
    let found_cause = found.cause;
    let Some(likely) = scene.likeness().likeliest() else { return Opinion::Agrees };
    if likely.cause != found_cause && is_weak(found, &likely) && !is_contradicted(scene, likely.cause) {
        let finding = draft(&likely).confidence(Confidence::Low).build();
        return finding.map_or(Opinion::Doubts, |finding| Opinion::Overrules(Box::new(finding)));
    }
    if likely.cause == found_cause || likely.next.contains(&found_cause) && likely.score < SURE {
        return Opinion::Agrees;
    }
    // What a line says of a rank that it names is no resemblance either. Why a rank ended an unsure finding seldom says: of nine such
    // findings against words this plain the words were right in all.
    let names_rank = found.weight >= Weight::Stated && found.culprits.iter().any(|c| c.rank.is_some());
    let is_unsure = found.confidence < Confidence::High && ENDS.contains(&found_cause);
    let says_why = likely.score >= SURE && likely.cause != Cause::StoppedFromOutside;
    let is_stated = names_rank && !(is_unsure && says_why);
    let is_by_text = !is_stated
        && !found.evidence.iter().any(|e| e.kind == SourceKind::Stacks || FORMED.contains(&e.kind));
    let least = if ENDS.contains(&found_cause) { LEAST_OVER_END } else { LEAST_OVER_RULE };
    // Of findings that are stated and certain the wording was wrong more often than they.
    let is_certain = found.weight >= Weight::Stated
        && found.confidence == Confidence::High
        && !ENDS.contains(&found_cause);
    // The rule has read that line, too.
    let is_read =
        |cite: &Cite| found.evidence.iter().any(|e| e.cite.source == cite.source && e.cite.line == cite.line);
    if likely.score >= least
        && is_by_text
        && !is_certain
        && !likely.because.iter().all(|(_, _, cite)| is_read(cite))
        && !is_contradicted(scene, likely.cause)
        && !likely.is_health
        && !ENDS.contains(&likely.cause)
        && !is_judged(scene, &likely)
    {
        let finding = draft(&likely).build();
        return finding.map_or(Opinion::Doubts, |finding| Opinion::Overrules(Box::new(finding)));
    }
    if likely.next.contains(&found_cause) { Opinion::Agrees } else { Opinion::Doubts }
}

/// Whether a finding that names no rank is of low confidence, or of medium and not among the likely causes, and the words are
/// those of another cause.
fn is_weak(found: &Finding, likely: &Likely) -> bool {
    let is_low = match found.confidence {
        Confidence::High => false,
        Confidence::Medium => !likely.next.contains(&found.cause),
        Confidence::Low => true,
    };
    is_low
        && found.culprits.iter().all(|culprit| culprit.rank.is_none())
        && likely.score >= LEAST_OVER_WEAK
        && !likely.is_health
        && !ENDS.contains(&likely.cause)
}

/// Whether facts speak against the cause: what is stopped from outside has not failed by itself before, and an address in
/// numbers needs no name.
fn is_contradicted(scene: &Scene<'_>, cause: Cause) -> bool {
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

/// What stands against a clean bill where no rule decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// Lines report a failure.
    Failure,
    /// Nothing reports a failure, and stacks were taken of a job that nothing else shows to work.
    Stacks,
    /// Nothing reports a failure, and nothing shows a job that works.
    Nothing,
    /// Nothing reports a failure; steps advance, or tools show nothing wrong.
    Likeness,
}

/// The most likely cause as a finding; `is_running`: steps continue.
pub(crate) fn finding(scene: &Scene<'_>, doubt: Doubt, is_running: bool) -> Option<Finding> {
    let likely = scene.likeness().likeliest()?;
    if is_contradicted(scene, likely.cause) {
        return None;
    }
    if doubt != Doubt::Failure
        && likely.score >= PLAIN
        && likely.score - likely.health >= PLAIN_LEAD
        && !are_events(scene, &likely)
        && !is_collected(scene.case())
        && likely.because.iter().any(|(_, _, cite)| scene.kind_of(*cite) != SourceKind::KernelLog)
    {
        return draft(&likely).confidence(Confidence::Low).build();
    }
    let are_read = likely.because.iter().all(|(_, _, cite)| is_read(scene, *cite));
    // In a job's own log NCCL says more than a start where it failed; a kernel and tools do not.
    let of_tools = || likely.because.iter().any(|(_, _, cite)| FORMED.contains(&scene.kind_of(*cite)));
    if are_read && (doubt != Doubt::Failure || scene.has_job() && of_tools()) {
        return None;
    }
    let is_judged = is_judged(scene, &likely);
    // A few lines of a kernel or a tool and nothing of a job: no rule may know them.
    let least = match doubt {
        _ if is_judged => SURE,
        Doubt::Failure => LEAST,
        Doubt::Stacks => LEAST_OF_STACKS,
        Doubt::Nothing => LEAST_OF_NOTHING,
        Doubt::Likeness => LEAST_OF_NONE,
    };
    if likely.score < least
        || doubt != Doubt::Failure && likely.margin < LEAST_MARGIN
        || likely.is_health && doubt != Doubt::Stacks
        || is_judged && (scene.has_job() || are_events(scene, &likely))
    {
        return None;
    }
    // The calls of a job that runs resemble those of one that hangs.
    let category = cause::category(likely.cause);
    if matches!(doubt, Doubt::Likeness | Doubt::Nothing) && category == Category::Hang
        || is_running && matches!(category, Category::Crash | Category::Init)
    {
        return None;
    }
    draft(&likely).build()
}

/// The most likely cause where nothing else decides and the words are those of one cause: it leads the next one, and health.
/// Of the open cases of rounds 1 to 42, with weights that had not seen them, 33 of 54 such guesses were right, and three of the
/// others were healthy.
pub(crate) fn lead(scene: &Scene<'_>) -> Option<Finding> {
    let words = scene.likeness();
    let likely = words.likeliest().filter(|_| words.n_words() >= WORDS_OF_LEAD)?;
    let is_plain = likely.score >= LEAST_OF_LEAD && likely.margin >= LEAD && likely.score >= likely.health;
    let is_judged = || is_judged(scene, &likely) && (scene.has_job() || are_events(scene, &likely));
    if !is_plain || is_contradicted(scene, likely.cause) || is_judged() || is_held(scene, &likely) {
        return None;
    }
    draft(&likely).confidence(Confidence::Low).build()
}

/// Whether the words are much of tools in a job that failed: rules have held those against that job, and passed them over.
fn is_held(scene: &Scene<'_>, likely: &Likely) -> bool {
    scene.failure().first().is_some() && share_of_tools(scene, likely) > SHARE_OF_TOOLS
}

/// The most likely cause where the words leave no other.
pub(crate) fn sure(scene: &Scene<'_>) -> Option<Finding> {
    let likely = scene.likeness().likeliest()?;
    let is_sure = !is_held(scene, &likely)
        && likely.score >= SURE
        && likely.margin >= LEAD_OF_SURE
        && likely.score - likely.health >= LEAD_OF_SURE
        && !is_contradicted(scene, likely.cause);
    is_sure.then(|| draft(&likely).confidence(Confidence::Low).build()).flatten()
}

/// Who is at fault where a hang is only guessed: the one rank that does not wait; or rank 0, if it is not seen to wait and the
/// guess is what rank 0 does for the others. On the public rounds and the recordings, rank 0 made the extra call in 34 of
/// 35 cases and was the one that kept the others waiting in 22 of 25.
pub(crate) fn culprits(scene: &Scene<'_>, cause: Cause, waiting: &RankSet) -> Vec<Culprit> {
    if cause::category(cause) != Category::Hang {
        return Vec::new();
    }
    let roster = scene.roster();
    let seen = roster.members.iter().filter_map(|m| m.rank).chain(roster.unseen_ranks());
    let all: BTreeSet<Rank> = seen.chain(waiting.ranks().iter().copied()).chain([Rank(0)]).collect();
    let absent: Vec<Rank> = all.iter().copied().filter(|rank| !waiting.contains(*rank)).collect();
    let is_of_first = matches!(cause, Cause::ExtraCollective | Cause::SlowRankStall);
    let named = match absent.as_slice() {
        [one] if !waiting.is_empty() => Some(*one),
        _ if is_of_first && all.len() > 1 && absent.contains(&Rank(0)) => Some(Rank(0)),
        _ => None,
    };
    named.map(|rank| roster.culprit_rank(rank)).into_iter().collect()
}

/// Whether readers know every line of this source: what rules pass over there is harmless, and NCCL's log of a start
/// resembles that of many faults.
fn is_read(scene: &Scene<'_>, cite: Cite) -> bool {
    scene.case().sources.get(cite.source.0 as usize).is_some_and(|source| {
        let is_known = |kind| FORMED.contains(kind) || *kind == SourceKind::NcclLog;
        !source.kinds.is_empty() && source.kinds.iter().all(is_known)
    })
}

/// Whether all words that count most for the cause are from sources of a fixed form. Rules have read those: what they
/// did not find there, or attributed to another cause, the wording alone does not restore.
fn is_judged(scene: &Scene<'_>, likely: &Likely) -> bool {
    share_of_tools(scene, likely) > 0.8
}

/// How much of the words that count most for the cause is from sources of a fixed form, 0 to 1.
fn share_of_tools(scene: &Scene<'_>, likely: &Likely) -> f32 {
    let is_formed = |cite: &Cite| scene.case().sources.get(cite.source.0 as usize).is_some_and(is_formed);
    let all: f32 = likely.because.iter().map(|(_, part, _)| part).sum();
    let formed: f32 =
        likely.because.iter().filter(|(_, _, cite)| is_formed(cite)).map(|(_, part, _)| part).sum();
    formed / all.max(f32::MIN_POSITIVE)
}

/// Whether all words that count for the cause are events that a reader knows.
fn are_events(scene: &Scene<'_>, likely: &Likely) -> bool {
    let is_event = |cite: &Cite| {
        scene.case().observations.iter().any(|o| {
            o.cite.source == cite.source
                && o.cite.line == cite.line
                && !matches!(o.fact, Fact::Words(_) | Fact::Said(_) | Fact::Hosts(_))
        })
    };
    likely.because.iter().all(|(_, _, cite)| is_event(cite))
}

fn draft(likely: &Likely) -> Draft {
    let named = |cause: Cause| cause.id();
    let title =
        format!("a guess: no statement proves it, but the wording resembles that of {}", named(likely.cause));
    let slow = cause::category(likely.cause) == Category::Performance;
    let next: Vec<&str> = likely.next.iter().copied().map(named).collect();
    // Why a collective hangs, the complaints of those who wait do not say.
    let is_hang = cause::category(likely.cause) == Category::Hang;
    let confidence = if likely.score >= SURE && !is_hang { Confidence::Medium } else { Confidence::Low };
    let mut draft = Draft::new(RULE, likely.cause, title)
        .severity(if slow { Severity::Warning } else { Severity::Error })
        .weight(Weight::Symptom)
        .confidence(confidence)
        .at_most(confidence);
    for (word, part, cite) in &likely.because {
        draft = draft.cite(*cite, SourceKind::PlainText, format!("\"{}\" +{part:.2}", word.text()));
    }
    draft.advise_made(
        Impact::Harmless,
        format!("read what would confirm it; the next most similar causes: {}", next.join(", ")),
        Some(format!("ringleader explain {}", likely.cause.id())),
    )
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
