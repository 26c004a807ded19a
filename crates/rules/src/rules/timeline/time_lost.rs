//! # What it shows
//!
//! The timelines of the ranks show one thing that makes each step longer than it need be: input, waiting for the GPU,
//! the allocator, copies, the host, small or exposed collectives, a slow transport, one late rank, unequal work, idle
//! pipeline stages.
//!
//! # Why it happens
//!
//! A GPU idles if its host is late, and waits inside collectives for the rank that comes last. The recording holds what
//! each piece of work waited for, so the step can be replayed without each of these.
//!
//! # Evidence
//!
//! Timelines of PyTorch's profiler and others. Each possible change is replayed on the recorded dependencies; the one
//! with the largest gain is the cause, from 5 % of a step on (45 % for the host's own work, which recording inflates;
//! 15 % for partly hidden communication). Fully exposed communication counts from 2 % on, and a single late rank from 5
//! % on.
//!
//! # What looks like it but is not
//!
//! Warm-up steps are longer and are left out. The recorder costs the host up to half of a short step. A long collective
//! on one rank is waiting, not cost. A long launch on a full queue means that the GPU is busy. The first and the last
//! bucket of a step are never hidden.
//!
//! # What to do
//!
//! `ringleader trace` on the same files shows what a step is made of, and the gain of each change.
//!
//! # References
//!
//! PyTorch Kineto output format; `docs/trace.md` for definitions and measured accuracy.

use ringleader_knowledge::cause;
use ringleader_model::{Confidence, Impact, Need, Observation, Rank, Severity, SourceKind, Weight};
use ringleader_trace::judge::Advice;
use ringleader_trace::{Analysis, analyse};

use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;

pub(crate) static RULE: Rule = Rule {
    id: "time-lost",
    title: "a change would make each step shorter",
    since: "0.2",
    doc: include_str!("time_lost.rs"),
    check,
};

/// Changes that are reported beside the first.
const MAX_OTHERS: usize = 3;

fn check(scene: &Scene<'_>) -> Outcome {
    let timelines: Vec<_> = scene.timelines().collect();
    if timelines.is_empty() {
        return Outcome::Clear;
    }
    let ranked = timelines.iter().map(|(o, timeline)| (*timeline, o.who.rank.map(|rank| rank.0)));
    let analysis = analyse(ranked);
    if !analysis.has_work() {
        return Outcome::Undecided(vec![Need {
            question: "the timelines hold no work of a GPU: what did the GPUs do?".to_owned(),
            command: "ringleader trace record --steps 5 -o timelines".to_owned(),
            ..Need::default()
        }]);
    }
    if analysis.waits_unseen() && !analysis.advice.iter().any(|advice| advice.is_worth) {
        return Outcome::Undecided(vec![Need {
            question: "collectives wait for ranks whose timelines are missing: which rank is late?"
                .to_owned(),
            command: "ringleader trace record --steps 5 -o timelines".to_owned(),
            ..Need::default()
        }]);
    }
    let is_explained = ringleader_trace::judge::is_explained(analysis.step_ns, analysis.replayed_ns);
    if !is_explained && !analysis.advice.iter().any(|advice| advice.is_worth) {
        return Outcome::Undecided(vec![Need {
            question:
                "the timelines do not show what delayed the GPU's work: what does a longer recording show?"
                    .to_owned(),
            command: "ringleader trace record --steps 20 -o timelines".to_owned(),
            ..Need::default()
        }]);
    }
    let worth = analysis.advice.iter().filter(|advice| advice.is_worth).take(1 + MAX_OTHERS);
    let drafts = worth.enumerate().map(|(at, advice)| draft(scene, &analysis, &timelines, advice, at == 0));
    Outcome::from_drafts(drafts)
}

type Rows<'a> = [(&'a Observation, &'a ringleader_model::Timeline)];

fn draft(
    scene: &Scene<'_>,
    analysis: &Analysis<'_>,
    timelines: &Rows<'_>,
    advice: &Advice,
    is_first: bool,
) -> Draft {
    let step = ringleader_trace::judge::ms(analysis.unrecorded_ns);
    let title = format!("{} ({:.0} % of a step of {step})", advice.seen, advice.gain_pct);
    let is_stated = analysis.views.iter().all(|view| view.is_rank_stated);
    let mut draft = Draft::new(RULE.id, advice.cause, title)
        .severity(Severity::Warning)
        .weight(if is_first { Weight::Derived } else { Weight::Aside })
        .confidence(Confidence::Medium)
        .advise(
            Impact::Harmless,
            format!("{}: a step of about {}", advice.todo, ringleader_trace::judge::ms(advice.after_ns)),
        )
        .advise_all(cause::of(advice.cause).advice)
        .culprits(advice.culprits.iter().map(|rank| scene.roster().culprit_rank(Rank(*rank))));
    if !is_stated && !advice.culprits.is_empty() {
        draft = draft.at_most(Confidence::Medium);
    }
    for (view, steps) in analysis.views.iter().zip(&analysis.steps).take(8) {
        let Some((observation, _)) = timelines.iter().find(|(_, t)| std::ptr::eq(*t, view.timeline)) else {
            continue;
        };
        let mut cite = observation.cite;
        // The bytes of a usual step's annotation, where there is one.
        let last = steps.usual.last().and_then(|at| steps.all.get(*at as usize));
        if let Some((from, to)) = last.and_then(|step| step.bytes) {
            (cite.start, cite.end) = (from, to);
        }
        let place = analysis.views.iter().position(|v| std::ptr::eq(v, view)).unwrap_or(0);
        let text = analysis.means.get(place).map_or_else(String::new, |mean| in_words(view.rank, mean));
        draft = draft.cite(cite, SourceKind::Timeline, text);
    }
    draft
}

/// What a step of a rank is made of.
fn in_words(rank: u32, mean: &ringleader_trace::split::Split) -> String {
    use ringleader_trace::judge::ms;
    format!(
        "rank {rank}: a step of {} is {} computation, {} exposed communication, {} exposed copies, {} idle",
        ms(mean.length_ns),
        ms(mean.compute_ns),
        ms(mean.exposed_comm_ns),
        ms(mean.exposed_copy_ns),
        ms(mean.all_idle_ns())
    )
}
