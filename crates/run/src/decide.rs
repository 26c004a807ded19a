//! Decides what happens after a judged failure. Pure: time and chance are arguments.

use std::time::Duration;

use ringleader_model::address::same_host;
use ringleader_model::{Cause, Class, Confidence};
use serde::{Deserialize, Serialize};

use crate::judgement::Judgement;
use crate::policy::{self, Backoff, Policy};
use crate::words::{self, confidence_name};

/// An attempt that has failed, as later decisions see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failed {
    /// Its number, from 1.
    pub attempt: u32,
    /// When it ended, seconds since 1970.
    pub at: f64,
    /// Its diagnosis.
    pub judgement: Judgement,
    /// The class whose budget it was charged to.
    #[serde(with = "words::class")]
    pub charged: Class,
    /// The last training step that the program printed.
    pub step: Option<u64>,
    /// Step of the checkpoint that it was started from.
    pub resumed_from: Option<u64>,
}

/// Most failures that are remembered.
pub const MAX_PAST: usize = 200;
/// Longest summary of a remembered failure, bytes.
const MAX_SUMMARY: usize = 400;

/// The earlier failures and a new one, the newest [`MAX_PAST`], without evidence.
pub fn remembered(past: &[Failed], failed: Failed) -> Vec<Failed> {
    let mut failed = failed;
    let judgement = &mut failed.judgement;
    (judgement.evidence, judgement.bundle) = (Vec::new(), None);
    // The place identifies a program error.
    judgement.culprits.retain(|culprit| culprit.place.is_some());
    judgement.culprits.truncate(1);
    let end = (0..=MAX_SUMMARY.min(judgement.summary.len()))
        .rev()
        .find(|end| judgement.summary.is_char_boundary(*end))
        .unwrap_or(0);
    judgement.summary.truncate(end);
    let n_old = (past.len() + 1).saturating_sub(MAX_PAST);
    past.iter().skip(n_old).cloned().chain([failed]).collect()
}

/// The failure to decide on.
#[derive(Clone, Debug)]
pub struct AttemptFailure<'a> {
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Now, seconds since 1970.
    pub at: f64,
    /// Its diagnosis.
    pub judgement: &'a Judgement,
    /// Why it was ended from outside, if known: a signal, a time limit.
    pub told: Option<&'a str>,
    /// The last training step that the program printed.
    pub step: Option<u64>,
    /// Step of the checkpoint that it was started from.
    pub resumed_from: Option<u64>,
}

/// The nodes of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Nodes of the failed attempt.
    pub nodes: Vec<String>,
    /// Nodes that may replace an excluded one.
    pub spares: Vec<String>,
    /// Nodes that earlier decisions excluded.
    pub excluded: Vec<String>,
    /// Smallest number of nodes that the job can run on.
    pub min_nodes: usize,
    /// Number of nodes allocated to the job, including spares and excluded ones.
    pub n_given: usize,
    /// How often the scheduler has requeued the job; None if it cannot be asked to.
    pub requeued: Option<u32>,
}

/// The decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Restart or stop.
    pub action: Action,
    /// The class whose budget is charged.
    #[serde(with = "words::class")]
    pub charged: Class,
    /// Why, sentence by sentence.
    pub why: Vec<Why>,
}

/// One sentence of the reasons. In files it is its text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Why {
    /// It holds whatever becomes of the decision.
    Said(String),
    /// Which restart of its budget this one is. Void if the restart turns out to be impossible.
    Budget(String),
}

impl std::ops::Deref for Why {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Said(text) | Self::Budget(text) => text,
        }
    }
}

impl From<String> for Why {
    fn from(text: String) -> Self {
        Self::Said(text)
    }
}

impl From<Why> for String {
    fn from(why: Why) -> Self {
        match why {
            Why::Said(text) | Why::Budget(text) => text,
        }
    }
}

impl Decision {
    /// The restart that was decided on is not possible.
    pub fn stop(&mut self) {
        self.why.retain(|why| !matches!(why, Why::Budget(_)));
        self.action = Action::Stop;
    }

    /// Adds a reason.
    pub fn say(&mut self, why: String) {
        self.why.push(Why::Said(why));
    }
}

/// Restart or stop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Another attempt.
    Restart {
        /// Nodes to exclude from now on.
        without: Vec<String>,
        /// Pause before it, seconds.
        pause_s: f64,
    },
    /// No further attempt here: the scheduler requeues the whole job.
    Requeue {
        /// Nodes that the job must not get again.
        without: Vec<String>,
    },
    /// No further attempt.
    Stop,
}

impl Action {
    /// Excluded nodes.
    pub fn without(&self) -> &[String] {
        match self {
            Self::Restart { without, .. } | Self::Requeue { without } => without,
            Self::Stop => &[],
        }
    }
}

/// Decides. `past` are the earlier failures, oldest first; `chance` is a random number from 0 to 1.
pub fn decide(
    policy: &Policy,
    past: &[Failed],
    failure: &AttemptFailure<'_>,
    site: &Site,
    chance: f64,
) -> Decision {
    if let Some(told) = failure.told {
        let why = format!("the job was ended from outside ({told}): the supervisor does not restart it");
        let why = vec![Why::Said(why)];
        return Decision { action: Action::Stop, charged: Class::External, why };
    }
    let mut why = Vec::new();
    let class = effective_class(past, failure, &mut why);
    let decision = |action, charged, why| Decision { action, charged, why };
    let pause_s = pause(policy.backoff, past, failure, chance).as_secs_f64();
    match class {
        Class::External if failure.judgement.confidence >= policy.stop_confidence => {
            why.push(Why::Said(format!("{}: the job was ended from outside", failure.judgement.cause)));
            decision(Action::Stop, Class::External, why)
        }
        Class::External => {
            why.push(Why::Said(unsure(
                policy,
                failure.judgement,
                "means that the job was ended from outside",
            )));
            budgeted(policy, past, failure, Class::Unknown, Vec::new(), pause_s, why)
        }
        Class::Program => program(policy, past, failure, pause_s, why),
        Class::Node => {
            let (without, charged) = node(policy, failure, site, &mut why);
            let is_enough = n_left(site, &without) >= site.min_nodes.max(1);
            let mut decision = budgeted(policy, past, failure, charged, without, pause_s, why);
            if let Action::Restart { without, .. } = &mut decision.action
                && !is_enough
                && !without.is_empty()
            {
                decision.action = Action::Requeue { without: std::mem::take(without) };
            }
            decision
        }
        Class::Transient | Class::Unknown => budgeted(policy, past, failure, class, Vec::new(), pause_s, why),
    }
}

/// The class of the verdict, unless the circumstances change it.
fn effective_class(past: &[Failed], failure: &AttemptFailure<'_>, why: &mut Vec<Why>) -> Class {
    let judgement = failure.judgement;
    let is_first_step = failure.step.is_none_or(|step| failure.resumed_from.is_some_and(|from| step <= from));
    let had_memory = past.iter().any(|failed| failed.judgement.cause == judgement.cause);
    // The driver may hold the memory of a killed process for seconds to minutes.
    if judgement.cause == Cause::CudaOom && failure.attempt > 1 && is_first_step && !had_memory {
        why.push(Why::Said("GPU memory ran out before the first step after a restart: the previous attempt may still have held it"
                .to_owned()));
        return Class::Transient;
    }
    judgement.class
}

/// Why a verdict that would stop the job does not.
fn unsure(policy: &Policy, judgement: &Judgement, means: &str) -> String {
    format!(
        "{} {means}, but the confidence of the verdict is {}; stopping needs {}, so it is restarted within the budget \
         for unknown failures",
        judgement.cause,
        confidence_name(judgement.confidence),
        confidence_name(policy.stop_confidence)
    )
}

/// The same program error at the same place and step again: a restart would fail, too.
fn program(
    policy: &Policy,
    past: &[Failed],
    failure: &AttemptFailure<'_>,
    pause_s: f64,
    mut why: Vec<Why>,
) -> Decision {
    let judgement = failure.judgement;
    if judgement.confidence < policy.stop_confidence {
        if !policy.stop_repeated || !is_repeated(past, failure) {
            why.push(Why::Said(unsure(policy, judgement, "is a fault of the program")));
            return budgeted(policy, past, failure, Class::Unknown, Vec::new(), pause_s, why);
        }
        why.push(Why::Said(format!(
            "the confidence of the verdict is {}, but an earlier attempt failed at the same step with the same verdict \
             on the same line of code: that makes it certain enough",
            confidence_name(judgement.confidence)
        )));
    }
    let place = judgement.place();
    let is_same_step = |step: Option<u64>| step.is_none() || failure.step.is_none() || step == failure.step;
    let alike: Vec<&Failed> = past.iter().filter(|failed| failed.judgement.place() == place).collect();
    let times = alike.iter().filter(|failed| is_same_step(failed.step)).count() as u32 + 1;
    let at_step = failure.step.map_or_else(String::new, |step| format!(" at step {step}"));
    if times >= policy.same_place {
        why.push(Why::Said(format!("{place}{at_step} for the {}: a restart would fail again", nth(times))));
        return Decision { action: Action::Stop, charged: Class::Program, why };
    }
    // An error at changing steps may not return, and uses the budget for unknown failures.
    if alike.len() as u32 + 1 > times {
        why.push(Why::Said(format!(
            "{place} failed at a different step before, so it is restarted as an unknown failure"
        )));
        return budgeted(policy, past, failure, Class::Unknown, Vec::new(), pause_s, why);
    }
    why.push(Why::Said(format!(
        "{place}{at_step} for the {}; stopped at the {}",
        nth(times),
        nth(policy.same_place)
    )));
    Decision { action: Action::Restart { without: Vec::new(), pause_s }, charged: Class::Program, why }
}

/// Whether an earlier attempt got the same verdict, of medium confidence or above, on the same line of code at the same known
/// step. Two attempts that agree so far are stronger evidence than one verdict.
fn is_repeated(past: &[Failed], failure: &AttemptFailure<'_>) -> bool {
    let judgement = failure.judgement;
    let is_certain = |judgement: &Judgement| judgement.confidence >= Confidence::Medium;
    let has_line = judgement.culprits.iter().any(|culprit| culprit.place.is_some());
    let is_same = |failed: &Failed| {
        is_certain(&failed.judgement)
            && failed.judgement.place() == judgement.place()
            && failed.step.is_some()
            && failed.step == failure.step
    };
    is_certain(judgement) && has_line && past.iter().any(is_same)
}

/// Which nodes to exclude, and the budget to charge.
fn node(
    policy: &Policy,
    failure: &AttemptFailure<'_>,
    site: &Site,
    why: &mut Vec<Why>,
) -> (Vec<String>, Class) {
    let judgement = failure.judgement;
    let hosts = judgement.hosts();
    let bad: Vec<String> =
        site.nodes.iter().filter(|node| hosts.iter().any(|host| same_host(host, node))).cloned().collect();
    if bad.is_empty() {
        why.push(Why::Said(format!(
            "{} is a fault of a node, but the verdict names no node of this job",
            judgement.cause
        )));
        return (Vec::new(), Class::Node);
    }
    let names = bad.join(", ");
    if judgement.confidence < policy.exclude.confidence {
        why.push(Why::Said(format!(
            "{} on {names}, but the confidence of the verdict is {}; excluding a node needs {}, so it stays",
            judgement.cause,
            confidence_name(judgement.confidence),
            confidence_name(policy.exclude.confidence)
        )));
        return (Vec::new(), Class::Unknown);
    }
    let n_given = site.n_given.max(site.nodes.len());
    let n_may = allowed(policy.exclude.max_share, n_given);
    if site.excluded.len() + bad.len() > n_may {
        why.push(Why::Said(format!(
            "{} on {names}; it stays, since at most {n_may} of {n_given} nodes may be excluded \
             ([exclude] max_share = {}) and {} already are",
            judgement.cause,
            policy.exclude.max_share,
            site.excluded.len()
        )));
        return (Vec::new(), Class::Node);
    }
    let n_left = n_left(site, &bad);
    if n_left < site.min_nodes.max(1) {
        if site.requeued.is_some_and(|n| n < policy.exclude.requeue) {
            why.push(Why::Said(format!(
                "{} on {names}; {n_left} nodes would remain and the job needs {}: the scheduler is \
                 asked to requeue it on other nodes",
                judgement.cause,
                site.min_nodes.max(1)
            )));
            return (bad, Class::Node);
        }
        why.push(Why::Said(format!(
            "{} on {names}; it stays, since {n_left} nodes would remain and the job needs {}",
            judgement.cause,
            site.min_nodes.max(1)
        )));
        return (Vec::new(), Class::Node);
    }
    why.push(Why::Said(format!("{} on {names}: excluded from the next attempt", judgement.cause)));
    (bad, Class::Node)
}

/// Number of nodes that remain without these.
fn n_left(site: &Site, without: &[String]) -> usize {
    site.nodes.iter().filter(|node| !without.contains(node)).count() + site.spares.len()
}

/// Number of nodes that may be excluded: never more than the share.
pub fn allowed(max_share: f64, n_given: usize) -> usize {
    // Slightly more than the product, so that 0.25 of 4 is 1 despite rounding.
    (max_share * n_given as f64 + 1e-9).floor() as usize
}

fn budgeted(
    policy: &Policy,
    past: &[Failed],
    failure: &AttemptFailure<'_>,
    class: Class,
    without: Vec<String>,
    pause_s: f64,
    mut why: Vec<Why>,
) -> Decision {
    let stop = |why| Decision { action: Action::Stop, charged: class, why };
    let Some(budget) = policy.budget(class) else {
        why.push(Why::Said(format!("no budget for {class} failures")));
        return stop(why);
    };
    let since = failure.at - budget.per.as_secs_f64();
    let used = past.iter().filter(|failed| failed.charged == class && failed.at > since).count() as u32;
    let per = policy::words(budget.per);
    if used >= budget.max {
        why.push(Why::Said(format!("the budget of {} {class} restarts in {per} is exhausted", budget.max)));
        return stop(why);
    }
    why.push(Why::Budget(format!("{class} restart {} of {} in {per}", used + 1, budget.max)));
    Decision { action: Action::Restart { without, pause_s }, charged: class, why }
}

/// The pause before the next attempt. It grows with each consecutive failure without a new step.
fn pause(backoff: Backoff, past: &[Failed], failure: &AttemptFailure<'_>, chance: f64) -> Duration {
    let mut in_a_row = 0;
    let mut step = failure.step;
    for failed in past.iter().rev() {
        // The later attempt went further than this one: the job made progress in between.
        if step.is_some_and(|step| failed.step.is_none_or(|before| step > before)) {
            break;
        }
        in_a_row += 1;
        step = failed.step.or(step);
    }
    let full = backoff.first.as_secs_f64() * backoff.factor.powi(in_a_row.min(64));
    let varied =
        full.min(backoff.cap.as_secs_f64()) * (1.0 + backoff.jitter * (2.0 * chance.clamp(0.0, 1.0) - 1.0));
    Duration::from_secs_f64(varied.clamp(0.0, backoff.cap.as_secs_f64()))
}

fn nth(n: u32) -> String {
    match n {
        1 => "first time".to_owned(),
        2 => "second time".to_owned(),
        3 => "third time".to_owned(),
        n => format!("{n}th time"),
    }
}

/// Whether a verdict is certain enough to exclude a node.
pub fn is_sure(policy: &Policy, confidence: Confidence) -> bool {
    confidence >= policy.exclude.confidence
}

#[cfg(test)]
mod tests;
