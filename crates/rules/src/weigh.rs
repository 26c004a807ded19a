//! Weighs the causes that come into question, and health, by all that is known of each: what rules found, what the words
//! resemble, what unexplained statements suggest, and what shows health. `knowledge::weighing` has the weights.

use std::collections::BTreeMap;

use ringleader_correlate::Scene;
use ringleader_correlate::said::statements::Stated;
use ringleader_correlate::when::failure::Way;
use ringleader_knowledge::cause;
use ringleader_knowledge::weighing::{self, Feature};
use ringleader_model::{
    Category, Cause, Confidence, Finding, FormWeight, Severity, SourceKind, Verdict, Weight,
};

use crate::good_signs::{GoodSign, good_signs};
use crate::likeness::{self, Because, ENDS, FORMED};
use crate::{health, rules, unexplained};

// Features, and the weights learnt for them, depend on N_ALIKE, FEW_WORDS, MANY and UNLIKE: who changes one learns the weights
// again.
/// Causes that are weighed because the words resemble them most. Chosen: the right one is among the first three in 83 %
/// (docs/unseen.md, Likeness).
const N_ALIKE: usize = 6;
/// Fewer words tell little: a few lines of one error. Chosen.
pub(crate) const FEW_WORDS: usize = 30;
/// Features that are shown. Chosen: they fit on one line.
const SHOWN: usize = 2;
/// More statements or findings than this add nothing: one error is said in many forms. Chosen.
const MANY: usize = 3;
/// From this share on the words of a cause are those of tools, though a program's own line may add a few. Chosen.
const JUDGED: f32 = 0.8;
/// From this score on, and this far above health, the words of a fault are plain. Chosen: at such scores three of four likeliest
/// causes are right (docs/unseen.md, Likeness).
const PLAIN: f32 = -0.1;
const PLAIN_LEAD: f32 = 0.4;
/// Score of a cause that no learnt case has. Chosen: below -1, where a support vector machine puts what is not of its class.
const UNLIKE: f32 = -1.1;

/// A verdict, and what was weighed for it.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// The causes that came into question, and health, the likeliest first; empty if the rules decided alone.
    pub weighed: Vec<Weighed>,
}

/// A cause that comes into question, or health ([`Cause::None`]).
#[derive(Clone, Debug)]
pub struct Weighed {
    /// It.
    pub cause: Cause,
    /// What is known of it, each with its size.
    pub features: Vec<(Feature, f32)>,
}

impl Weighed {
    /// How likely it is right, 0 to 1: the share of right ones among such candidates of the learnt cases.
    pub fn probability(&self) -> f32 {
        let odds: f32 = self.features.iter().map(|(feature, size)| weighing::weight(*feature) * size).sum();
        1.0 / (1.0 + (-odds).exp())
    }

    /// What speaks for it most, in words.
    pub fn because(&self) -> Vec<&'static str> {
        let part = |(feature, size): &(Feature, f32)| weighing::weight(*feature) * size;
        let mut parts: Vec<&(Feature, f32)> = self.features.iter().filter(|of| part(of) > 0.0).collect();
        parts.sort_by(|a, b| part(b).total_cmp(&part(a)));
        parts.into_iter().take(SHOWN).map(|(feature, _)| feature.says()).collect()
    }

    fn set(&mut self, feature: Feature, size: f32) {
        if size != 0.0 {
            self.features.push((feature, size));
        }
    }

    fn mark(&mut self, feature: Feature, holds: bool) {
        self.set(feature, f32::from(u8::from(holds)));
    }
}

/// The candidates, the likeliest first; empty if the words tell nothing. `by_rules` is what the rules alone say.
pub(crate) fn weigh(scene: &Scene<'_>, by_rules: &Verdict) -> Vec<Weighed> {
    let ranked = scene.likeness().ranked();
    if ranked.is_empty() {
        return Vec::new();
    }
    let open = unexplained::unexplained(scene, &by_rules.findings);
    let known = WeighContext {
        scene,
        by_rules,
        first: by_rules.findings.first().filter(|f| is_decisive(f)),
        health: ranked.iter().find(|(cause, _)| *cause == Cause::None).map_or(UNLIKE, |(_, score)| *score),
        alike: ranked
            .into_iter()
            .filter(|(cause, _)| !matches!(cause, Cause::None | Cause::Undecided))
            .collect(),
        suggested: unexplained::candidates(&open),
        is_running: scene.failure().first().is_none() && scene.course().text().goes_on(),
    };
    let found = by_rules.findings.iter().map(|f| f.cause);
    let alike = known.alike.iter().take(N_ALIKE).map(|(cause, _)| *cause);
    let suggested = known.suggested.iter().map(|(cause, _)| *cause);
    let mut causes: Vec<Cause> = Vec::new();
    for cause in found.chain(alike).chain(suggested) {
        if !matches!(cause, Cause::None | Cause::Undecided) && !causes.contains(&cause) {
            causes.push(cause);
        }
    }
    let mut all: Vec<Weighed> =
        causes.into_iter().filter(|cause| known.is_open(*cause)).map(|cause| known.fault(cause)).collect();
    all.push(known.health(&open));
    all.sort_by(|a, b| b.probability().total_cmp(&a.probability()).then(a.cause.cmp(&b.cause)));
    all
}

/// A finding that decides: no remark and no aside.
pub(crate) fn is_decisive(finding: &Finding) -> bool {
    finding.severity > Severity::Info && finding.weight > Weight::Aside
}

/// What all candidates share.
struct WeighContext<'s, 'a> {
    scene: &'s Scene<'a>,
    by_rules: &'s Verdict,
    /// The finding on which the verdict of the rules rests.
    first: Option<&'s Finding>,
    /// Score of health.
    health: f32,
    /// Faults by what the words resemble.
    alike: Vec<(Cause, f32)>,
    /// Causes that unexplained statements suggest, with their weight.
    suggested: Vec<(Cause, u32)>,
    is_running: bool,
}

impl WeighContext<'_, '_> {
    fn top(&self) -> f32 {
        self.alike.first().map_or(UNLIKE, |(_, score)| *score)
    }

    /// Whether the cause may be the answer. What tools and kernels print rules have read line by line: what they passed over or
    /// held to be an aside there, its words alone do not restore.
    fn is_open(&self, cause: Cause) -> bool {
        if self.first.is_some_and(|first| first.cause == cause) {
            return true;
        }
        if let Some(found) = self.by_rules.findings.iter().find(|f| f.cause == cause) {
            return is_decisive(found) && !found.evidence.iter().all(|e| is_formed(e.kind));
        }
        let because = self.scene.likeness().because(cause);
        let are_judged = likeness::share_of_tools(self.scene, &because) > JUDGED
            && (self.scene.has_job() || likeness::are_events(self.scene, &because));
        // In a job's own log NCCL says more than a start where it failed, a tool does not; else only plain words count there.
        let of_tools = || because.iter().any(|(_, _, cite)| is_formed(self.scene.kind_of(*cite)));
        let is_passed_over = || match self.scene.failure().first() {
            Some(_) => self.scene.has_job() && of_tools(),
            None => !self.is_plain(cause, &because),
        };
        let is_whole = self.by_rules.cause == Cause::None || likeness::is_collected(self.scene.case());
        let are_read = is_whole
            && because.iter().all(|(_, _, cite)| likeness::is_read(self.scene, *cite))
            && is_passed_over();
        // What rules found in tables and did not hold against the job is of no other cause either.
        let is_of_tables =
            |f: &Finding| f.weight > Weight::Aside && f.evidence.iter().any(|e| is_formed(e.kind));
        let is_left =
            self.by_rules.cause == Cause::Undecided && self.by_rules.findings.iter().any(is_of_tables);
        !are_judged && !are_read && !is_left && !likeness::is_contradicted(self.scene, cause)
    }

    /// Whether the words are those of the cause and not of health, wherever they stand, and no rule knows their lines.
    fn is_plain(&self, cause: Cause, because: &[Because]) -> bool {
        let score = self.alike.iter().find(|(c, _)| *c == cause).map_or(UNLIKE, |(_, score)| *score);
        score >= PLAIN
            && score - self.health >= PLAIN_LEAD
            && !likeness::are_events(self.scene, because)
            && because.iter().any(|(_, _, cite)| self.scene.kind_of(*cite) != SourceKind::KernelLog)
    }

    fn fault(&self, cause: Cause) -> Weighed {
        let mut of = Weighed { cause, features: Vec::new() };
        of.mark(Feature::Fault, true);
        of.mark(Feature::End, ENDS.contains(&cause));
        self.words(&mut of);
        self.findings(&mut of);
        let at = self.suggested.iter().position(|(c, _)| *c == cause);
        of.mark(Feature::Suggested, at.is_some());
        of.mark(Feature::SuggestedFirst, at == Some(0));
        let (failure, category) = (self.scene.failure(), cause::category(cause));
        let is_slow = category == Category::Performance;
        of.mark(Feature::HangTimedOut, category == Category::Hang && failure.has(Way::TimedOut));
        of.mark(Feature::HangRunning, category == Category::Hang && self.is_running);
        let is_crash = matches!(category, Category::Crash | Category::Init);
        of.mark(Feature::CrashRunning, is_crash && self.is_running);
        of.mark(Feature::SlowFailed, is_slow && failure.first().is_some());
        let is_measured = || good_signs(self.scene.case()).contains(&GoodSign::Measured);
        of.mark(Feature::SlowMeasured, is_slow && is_measured());
        of
    }

    fn words(&self, of: &mut Weighed) {
        let place = self.alike.iter().position(|(cause, _)| *cause == of.cause);
        let score = place.and_then(|at| self.alike.get(at)).map_or(UNLIKE, |(_, score)| *score);
        of.set(Feature::Words, score);
        of.set(Feature::WordsGap, score - self.top());
        of.set(Feature::WordsOverHealth, score - self.health);
        of.mark(Feature::WordsFirst, place == Some(0));
        of.mark(Feature::WordsSecond, place == Some(1));
        let next = self.alike.get(1).map_or(score, |(_, next)| *next);
        of.set(Feature::WordsMargin, if place == Some(0) { score - next } else { 0.0 });
        of.mark(Feature::WordsFew, place == Some(0) && self.scene.likeness().n_words() < FEW_WORDS);
        if place.is_some_and(|at| at < N_ALIKE) && !self.by_rules.findings.iter().any(|f| f.cause == of.cause)
        {
            let because = self.scene.likeness().because(of.cause);
            of.set(Feature::WordsOfTools, likeness::share_of_tools(self.scene, &because));
            of.mark(
                Feature::WordsRead,
                because.iter().all(|(_, _, cite)| likeness::is_read(self.scene, *cite)),
            );
            of.mark(Feature::WordsOfEvents, likeness::are_events(self.scene, &because));
        }
    }

    fn findings(&self, of: &mut Weighed) {
        let Some(found) = self.by_rules.findings.iter().find(|f| f.cause == of.cause) else { return };
        let is_end = ENDS.contains(&of.cause);
        let is_decisive = is_decisive(found);
        let is = |confidence| found.confidence == confidence;
        of.mark(Feature::Found, true);
        of.mark(Feature::FoundDecisive, is_decisive);
        of.mark(Feature::FoundHigh, is(Confidence::High));
        of.mark(Feature::FoundMedium, is(Confidence::Medium));
        of.mark(Feature::FoundLow, is(Confidence::Low));
        of.mark(Feature::FoundEcho, found.weight == Weight::Echo);
        of.mark(Feature::FoundSymptom, found.weight == Weight::Symptom);
        of.mark(Feature::FoundDerived, found.weight == Weight::Derived);
        of.mark(Feature::FoundStated, found.weight == Weight::Stated);
        of.mark(Feature::FoundWarning, found.severity == Severity::Warning);
        of.mark(Feature::FoundRank, found.culprits.iter().any(|c| c.rank.is_some()));
        of.mark(Feature::FoundFormed, found.evidence.iter().any(|e| is_formed(e.kind)));
        of.mark(Feature::FoundByTable, found.rule == rules::program::message_names_cause::RULE.id);
        of.mark(Feature::FoundEnd, is_end);
        of.mark(Feature::FoundEndHigh, is_end && is(Confidence::High));
        of.mark(Feature::FoundEndMedium, is_end && is(Confidence::Medium));
        if self.first.is_some_and(|first| first.cause == of.cause) {
            of.mark(Feature::First, true);
            of.mark(Feature::FirstHigh, is(Confidence::High));
            of.mark(Feature::FirstMedium, is(Confidence::Medium));
            of.mark(Feature::FirstLow, is(Confidence::Low));
            of.mark(Feature::FirstSymptom, found.weight == Weight::Symptom);
            of.mark(Feature::FirstDerived, found.weight == Weight::Derived);
            of.mark(Feature::FirstStated, found.weight == Weight::Stated);
        }
    }

    fn health(&self, open: &[&Stated<'_>]) -> Weighed {
        let case = self.scene.case();
        let mut of = Weighed { cause: Cause::None, features: Vec::new() };
        of.mark(Feature::Healthy, true);
        of.set(Feature::Health, self.health);
        of.set(Feature::HealthLead, self.health - self.top());
        of.mark(Feature::HealthFew, self.scene.likeness().n_words() < FEW_WORDS);
        let signs = good_signs(case);
        for sign in &signs {
            of.mark(feature(*sign), true);
        }
        of.mark(Feature::SignNone, signs.is_empty());
        of.mark(Feature::ClearRules, self.by_rules.cause == Cause::None);
        if let Some(first) = self.first {
            of.mark(Feature::AgainstHigh, first.confidence == Confidence::High);
            of.mark(Feature::AgainstMedium, first.confidence == Confidence::Medium);
            of.mark(Feature::AgainstLow, first.confidence == Confidence::Low);
            of.mark(Feature::AgainstError, first.severity == Severity::Error);
        }
        let n = |n: usize| n.min(MANY) as f32;
        of.set(Feature::AgainstFindings, n(self.by_rules.findings.len()));
        let mut kinds: BTreeMap<Feature, usize> = BTreeMap::new();
        for stated in open {
            let kind = match () {
                () if stated.row().is_some() => Feature::AgainstKnown,
                () if stated.weight() >= FormWeight::Strong => Feature::AgainstStrong,
                () => Feature::AgainstWeak,
            };
            *kinds.entry(kind).or_default() += 1;
        }
        for (kind, count) in kinds {
            of.set(kind, n(count));
        }
        of.mark(Feature::AgainstTrouble, health::trouble(self.scene).is_some());
        of.mark(Feature::AgainstFailed, self.scene.failure().first().is_some());
        of.mark(Feature::AgainstStacks, self.scene.stacks().next().is_some());
        of.mark(Feature::AgainstUnseen, health::unseen(self.scene).is_some());
        of.mark(Feature::HealthOfTools, case.sources.iter().all(likeness::is_formed));
        of
    }
}

/// A kind of evidence that rules read line by line.
fn is_formed(kind: SourceKind) -> bool {
    kind == SourceKind::Stacks || FORMED.contains(&kind)
}

fn feature(sign: GoodSign) -> Feature {
    match sign {
        GoodSign::Machine => Feature::SignMachine,
        GoodSign::Communicator => Feature::SignCommunicator,
        GoodSign::Measured => Feature::SignMeasured,
        GoodSign::Calls => Feature::SignCalls,
        GoodSign::Steps => Feature::SignSteps,
        GoodSign::Ended => Feature::SignEnded,
        GoodSign::Watched => Feature::SignWatched,
        GoodSign::Recorded => Feature::SignRecorded,
    }
}
