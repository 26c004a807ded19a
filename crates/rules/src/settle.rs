//! What follows from the weighing: the verdict of the rules stays, another finding comes first, the words decide as a guess,
//! a clean bill is earned or refused.
//!
//! Records of a job's operations and what was collected of it while it ran show more than words: there the rules decide
//! alone.

use ringleader_correlate::Scene;
use ringleader_knowledge::{cause, collecting};
use ringleader_model::{
    Category, Cause, Confidence, Finding, RankSet, Severity, Source, SourceId, SourceKind, Verdict, Weight,
};

use crate::good_signs::{GoodSign, good_signs};
use crate::likeness::{self, ENDS};
use crate::rule::Outcome;
use crate::weigh::{self, Decision, Weighed};
use crate::{blame, health, rules, unexplained};

// The shares of right verdicts at these probabilities, on public rounds with weights of words that had not seen them, are in
// docs/unseen.md.
/// Least probability of a clean bill.
const CLEAN: f32 = 0.65;
/// Least probability of a guess.
const LEAST: f32 = 0.2;
/// The same of a hang: the complaints of those who wait resemble much.
const LEAST_OF_HANG: f32 = 0.3;
/// From here on a verdict that a rule is sure of stays sure: 88 to 98 % of such were right.
const HIGH: f32 = 0.9;
/// The same for medium: 80 %.
const MEDIUM: f32 = 0.7;
/// From here on a guess is of medium confidence: later than a rule's verdict, since nothing but words supports it.
const PLAIN: f32 = 0.85;
/// Score of health below which words speak against a clean bill. Chosen: below 0, where neither side is likelier.
const UNHEALTHY: f32 = -0.3;
/// The same of all words where most are of tools. Of 46 cases with such words the 16 faulty ones score -0.48 or less, the 30 healthy ones
/// -0.43 or more.
const UNHEALTHY_OF_TOOLS: f32 = -0.45;
/// From this score on the words are plain: 92 % of the likeliest causes were right (docs/unseen.md, Likeness).
const SURE: f32 = 0.0;
/// Causes of which a rank that is not where the others wait is a part.
const ABSENT: [Cause; 6] = [
    Cause::StuckOutsideCollective,
    Cause::SlowRankStall,
    Cause::SkippedCollective,
    Cause::MissingRank,
    Cause::RankExitedEarly,
    Cause::UnevenInputs,
];
/// Causes that a guess names after its own.
const N_NEXT: usize = 2;

/// The verdict, with what all evidence together says.
pub(crate) fn settle(scene: &Scene<'_>, by_rules: Verdict) -> Decision {
    let alone = |verdict| Decision { verdict, weighed: Vec::new() };
    if was_recorded(scene) && is_clear_of_nothing(scene, &by_rules) {
        return alone(refused(scene, by_rules));
    }
    if is_read_whole(scene, &by_rules) && !is_silent_on_failure(scene, &by_rules) {
        return alone(by_rules);
    }
    if outweighs_words(scene, &by_rules) {
        return alone(doubted(scene, by_rules));
    }
    let weighed = weigh::weigh(scene, &by_rules);
    let Some(best) = weighed.first() else { return alone(by_rules) };
    let verdict = by_weight(scene, by_rules, best, &weighed);
    Decision { verdict, weighed }
}

/// Whether rules have read all that was given, or there is nothing to read: nobody's words stand against what they say of a
/// job's records, or of what a collector or tools gave.
fn is_read_whole(scene: &Scene<'_>, by_rules: &Verdict) -> bool {
    let is_collected = || match by_rules.cause {
        Cause::Undecided => false,
        Cause::None => likeness::is_collected(scene.case()) && !speaks_against_health(scene),
        _ => likeness::is_collected(scene.case()),
    };
    health::is_without_evidence(scene.case()) || was_recorded(scene) || is_collected()
}

/// Whether the rules know no cause of a failure that words report, and no operation of the job was recorded: what was collected at
/// its end is what it printed.
fn is_silent_on_failure(scene: &Scene<'_>, by_rules: &Verdict) -> bool {
    by_rules.cause == Cause::Undecided
        && was_recorded(scene)
        && !keeps_operations(scene)
        && scene.failure().first().is_some()
}

/// Whether what a rule read is more than what words resemble: in a line or two, or of a rank that a line names, or by signs that
/// are rare or measured.
fn outweighs_words(scene: &Scene<'_>, by_rules: &Verdict) -> bool {
    let is_strong = |first: &Finding| weigh::is_decisive(first) && first.weight > Weight::Symptom;
    let has_few = scene.likeness().n_words() < weigh::FEW_WORDS;
    let is_outright = |first: &Finding| weigh::is_decisive(first) && first.is_outright;
    let first = by_rules.findings.first();
    has_few && first.is_some_and(is_strong) || first.is_some_and(is_outright) || names_rank(scene, by_rules)
}

/// The verdict by the likeliest candidate.
fn by_weight(scene: &Scene<'_>, by_rules: Verdict, best: &Weighed, all: &[Weighed]) -> Verdict {
    let probability = best.probability();
    let is_open = !by_rules.findings.first().is_some_and(weigh::is_decisive);
    if best.cause == by_rules.cause && !is_open {
        return if is_measured(&by_rules) { by_rules } else { at_most(by_rules, level(probability)) };
    }
    let is_unlikely = match best.cause {
        Cause::None => !is_open,
        cause if ABSENT.contains(&cause) && all_are_in(scene) => true,
        cause if cause::category(cause) == Category::Hang => probability < LEAST_OF_HANG,
        _ => probability < LEAST,
    };
    if is_unlikely {
        return if is_open { refused(scene, by_rules) } else { at_most(by_rules, Confidence::Low) };
    }
    if best.cause == Cause::None {
        return clean(scene, by_rules, probability);
    }
    // One message of a few words resembles much.
    if is_open && scene.likeness().n_words() < weigh::FEW_WORDS && reports_nothing(scene, &by_rules) {
        return by_rules;
    }
    match by_rules.findings.iter().position(|f| f.cause == best.cause && f.severity > Severity::Info) {
        Some(at) => promoted(by_rules, at, level(probability)),
        None => guessed(scene, by_rules, all, probability),
    }
}

/// Whether all ranks are in the operation that does not end: none of them is elsewhere.
fn all_are_in(scene: &Scene<'_>) -> bool {
    matches!((rules::gpu::gpu_kernel_stuck::RULE.check)(scene), Outcome::Undecided(_))
}

/// Whether the verdict rests on measurements alone: they are as sure as the rule says, in whatever words they come.
fn is_measured(by_rules: &Verdict) -> bool {
    let first = by_rules.findings.first();
    first.is_some_and(|first| first.evidence.iter().all(|e| e.kind == SourceKind::NcclTests))
}

/// Whether no line reports a failure that nothing explains.
fn reports_nothing(scene: &Scene<'_>, by_rules: &Verdict) -> bool {
    scene.failure().first().is_none() && unexplained::unexplained(scene, &by_rules.findings).is_empty()
}

/// A clean bill by the rules that rests on records without operations, and words unlike those of healthy jobs.
fn is_clear_of_nothing(scene: &Scene<'_>, by_rules: &Verdict) -> bool {
    by_rules.cause == Cause::None && !keeps_operations(scene) && is_unlike_health(scene)
}

/// Whether records of a job's operations, or of a look at it, are more than empty or cut off.
fn keeps_operations(scene: &Scene<'_>) -> bool {
    let signs = good_signs(scene.case());
    signs.contains(&GoodSign::Recorded) || signs.contains(&GoodSign::Watched)
}

/// Whether what programs and people say is unlike what they say of healthy jobs.
fn is_unlike_health(scene: &Scene<'_>) -> bool {
    let sources = &scene.case().sources;
    let counts = |id: SourceId| sources.get(id.0 as usize).is_some_and(|source| !likeness::is_formed(source));
    scene.likeness().health(counts).is_some_and(|health| health < UNHEALTHY)
}

/// Whether somebody's words are beside what tools say, and all words together are unlike those of healthy jobs.
fn speaks_against_health(scene: &Scene<'_>) -> bool {
    let case = scene.case();
    // One log of NCCL is what somebody pasted; several are what was collected.
    let is_nccl = |source: &Source| source.kinds == [SourceKind::NcclLog];
    let has_one = case.sources.iter().filter(|source| is_nccl(source)).count() == 1;
    let is_told = |source: &Source| !likeness::is_formed(source) && (has_one || !is_nccl(source));
    let tells = |id: SourceId| case.sources.get(id.0 as usize).is_some_and(is_told);
    scene.likeness().health(tells).is_some()
        && scene.likeness().health(|_| true).is_some_and(|h| h < UNHEALTHY_OF_TOOLS)
}

/// Whether the rules state a rank's fault. Why a rank ended an unsure finding seldom says: of nine such findings against plain
/// words the words were right in all.
fn names_rank(scene: &Scene<'_>, by_rules: &Verdict) -> bool {
    let Some(first) = by_rules.findings.first().filter(|f| weigh::is_decisive(f)) else { return false };
    let is_unsure = first.confidence < Confidence::High && ENDS.contains(&first.cause);
    let says_why = || {
        let likely = scene.likeness().likeliest();
        likely.is_some_and(|likely| likely.score >= SURE && likely.cause != Cause::StoppedFromOutside)
    };
    first.weight >= Weight::Stated
        && first.culprits.iter().any(|c| c.rank.is_some())
        && !(is_unsure && says_why())
}

/// The verdict of the rules, one step less sure if the words resemble other causes.
fn doubted(scene: &Scene<'_>, by_rules: Verdict) -> Verdict {
    let Some(likely) = scene.likeness().likeliest() else { return by_rules };
    let cause = by_rules.cause;
    if matches!(cause, Cause::None | Cause::Undecided)
        || likely.cause == cause
        || likely.next.contains(&cause)
    {
        return by_rules;
    }
    let lower = if by_rules.confidence == Confidence::High { Confidence::Medium } else { Confidence::Low };
    at_most(by_rules, lower)
}

/// How sure a verdict of this probability can be.
fn level(probability: f32) -> Confidence {
    match probability {
        p if p >= HIGH => Confidence::High,
        p if p >= MEDIUM => Confidence::Medium,
        _ => Confidence::Low,
    }
}

/// Whether the job's own records are there, or what was collected of it while it ran.
fn was_recorded(scene: &Scene<'_>) -> bool {
    scene.case().sources.iter().flat_map(|s| &s.kinds).any(|kind| collecting::of(*kind).is_record)
}

/// The same verdict, no surer than this.
fn at_most(mut verdict: Verdict, most: Confidence) -> Verdict {
    verdict.confidence = verdict.confidence.min(most);
    if let Some(first) = verdict.findings.first_mut() {
        first.confidence = first.confidence.min(most);
    }
    verdict
}

/// A clean bill where health is likely and nothing stands against it: no statement of failure, no sign of trouble, no question of
/// a rule.
fn clean(scene: &Scene<'_>, by_rules: Verdict, probability: f32) -> Verdict {
    if probability < CLEAN || is_unlike_health(scene) {
        return refused(scene, by_rules);
    }
    let is_earned = by_rules.needs.is_empty()
        && reports_nothing(scene, &by_rules)
        && health::trouble(scene).is_none()
        && health::unseen(scene).is_none()
        && by_rules.findings.iter().all(|f| f.weight == Weight::Aside)
        && scene.stacks().next().is_none();
    if by_rules.cause == Cause::None || !is_earned {
        return by_rules;
    }
    Verdict {
        cause: Cause::None,
        category: cause::category(Cause::None),
        confidence: Confidence::Low,
        summary: "no line reports a failure, and the wording is that of healthy jobs".to_owned(),
        ..by_rules
    }
}

/// No clean bill: the evidence resembles that of faulty jobs.
fn refused(scene: &Scene<'_>, by_rules: Verdict) -> Verdict {
    if by_rules.cause != Cause::None {
        return by_rules;
    }
    Verdict {
        cause: Cause::Undecided,
        category: Category::Error,
        confidence: Confidence::Low,
        summary: unexplained::doubtful(scene),
        ..by_rules
    }
}

/// Another finding of the rules comes first.
fn promoted(mut by_rules: Verdict, at: usize, most: Confidence) -> Verdict {
    let mut finding = by_rules.findings.remove(at);
    finding.confidence = finding.confidence.min(most);
    decided(by_rules, finding)
}

/// The cause that the words resemble.
fn guessed(scene: &Scene<'_>, by_rules: Verdict, all: &[Weighed], probability: f32) -> Verdict {
    let Some(best) = all.first() else { return by_rules };
    let faults = all.iter().skip(1).map(|of| of.cause).filter(|cause| *cause != Cause::None);
    let next: Vec<Cause> = faults.take(N_NEXT).collect();
    let is_hang = cause::category(best.cause) == Category::Hang;
    // Why a collective hangs, the complaints of those who wait do not say.
    let confidence = if probability >= PLAIN && !is_hang { Confidence::Medium } else { Confidence::Low };
    let Some(mut finding) = likeness::guess(scene, best.cause, &next, confidence) else { return by_rules };
    let ranks = blame::apart::of_hang(scene, finding.cause, &by_rules.victims).unwrap_or_default();
    finding.culprits = ranks.into_iter().map(|rank| scene.roster().culprit_rank(rank)).collect();
    decided(by_rules, finding)
}

/// The verdict with this finding before the others.
fn decided(mut verdict: Verdict, finding: Finding) -> Verdict {
    // Who ended is still the one to look at; whom another cause accused is not.
    if !ENDS.contains(&verdict.cause) {
        verdict.culprits.clear();
        verdict.victims = RankSet::default();
    }
    if !finding.culprits.is_empty() {
        verdict.culprits.clone_from(&finding.culprits);
    }
    verdict.cause = finding.cause;
    verdict.category = finding.category;
    verdict.confidence = finding.confidence;
    verdict.summary.clone_from(&finding.title);
    verdict.actions.clone_from(&finding.actions);
    verdict.findings.insert(0, finding);
    verdict
}
