//! From a scene to a verdict: `ringleader_correlate` joins the evidence, `rules` state findings, `verdict` orders
//! them.
//!
//! Everything here is a pure function of the case: the same case gives the same verdict. A rule neither runs another
//! nor reads its findings; shared facts are in [`ringleader_correlate`], shared forms of findings in `drafting`.
//! [`verdict`] collects all findings; `overcome`, `unexplained`, `weigh`, `settle`, `blame` and `picture` get them from
//! it.
//!
//! How a program words a message belongs in `ringleader_knowledge::wording`, not in a rule.

mod blame;
mod drafting;
mod good_signs;
mod health;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod laws;
mod likeness;
mod overcome;
mod picture;
#[cfg(test)]
mod ring_laws;
mod rule;
pub mod rules;
mod settle;
#[cfg(test)]
mod trial;
mod unexplained;
pub mod verdict;
mod weigh;

use std::cell::RefCell;

use ringleader_correlate::Scene;
use ringleader_correlate::prepare::{copies, jobs, owners, rings, sizes};
use ringleader_model::{Asks, Case, Cause, Need, Picture, Verdict};

pub use crate::good_signs::{GoodSign, good_signs};
pub use crate::health::is_known;
pub use crate::rule::{Draft, Outcome, Rule};
pub use crate::weigh::{Decision, Weighed};

/// Diagnoses a case. Evidence of several jobs is separated; the verdict is the newest job's, and names those of the
/// others.
pub fn diagnose(case: &Case) -> Verdict {
    examine_by(case, &|_, _| Picture::default()).0
}

/// Diagnoses a case, and draws the picture of the job that the verdict is of.
pub fn examine(case: &Case) -> (Verdict, Picture) {
    examine_by(case, &picture::picture)
}

/// Causes by what the words of a case resemble, and `none` by their likeness to health, the likeliest first.
pub fn resembles(case: &Case) -> Vec<(Cause, f32)> {
    ringleader_correlate::said::likeness::Likeness::new(case).ranked()
}

/// The causes that come into question in a case, and health, as they are weighed; empty if the rules decide alone. Of several
/// jobs those of the last.
pub fn weighed(case: &Case) -> Vec<Weighed> {
    let last = RefCell::new(Vec::new());
    examine_by(case, &|_, decision| {
        last.borrow_mut().clone_from(&decision.weighed);
        Picture::default()
    });
    last.into_inner()
}

/// What draws the picture beside a verdict.
type Draw<'d> = &'d dyn Fn(&Scene<'_>, &Decision) -> Picture;

fn examine_by(case: &Case, draw: Draw<'_>) -> (Verdict, Picture) {
    let copies = copies::copies(case);
    let single = (!copies.is_empty()).then(|| Case {
        sources: case.sources.clone(),
        observations: case
            .observations
            .iter()
            .filter(|o| !copies.contains(&o.cite.source))
            .cloned()
            .collect(),
        notes: case.notes.clone(),
    });
    let case = single.as_ref().unwrap_or(case);
    let owned = owners::owned(case);
    let case = owned.as_ref().unwrap_or(case);
    let completed = sizes::completed(case);
    examine_jobs(completed.as_ref().unwrap_or(case), draw)
}

fn examine_jobs(case: &Case, draw: Draw<'_>) -> (Verdict, Picture) {
    let Some(jobs) = jobs::split(case) else { return examine_job(case, draw) };
    let mut verdicts: Vec<(String, (Verdict, Picture))> =
        jobs.iter().map(|job| (job.label.clone(), examine_job(&job.case, draw))).collect();
    // A job that failed comes before one that is slow or fares well; then the newest.
    let gravity =
        |v: &Verdict| v.findings.first().map(|f| f.severity).filter(|_| v.cause != Cause::Undecided);
    let newest = verdicts
        .iter()
        .enumerate()
        .max_by_key(|(at, (_, (v, _)))| (gravity(v), v.cause != Cause::None, *at))
        .map_or(0, |(at, _)| at);
    // What nothing ties to one job is in all of them: the same fault twice is one, and the surer account wins.
    let same = |a: &Verdict, b: &Verdict| a.cause == b.cause && a.summary == b.summary;
    let at = verdicts
        .iter()
        .enumerate()
        .filter(|(_, (_, (v, _)))| verdicts.get(newest).is_some_and(|(_, (n, _))| same(v, n)))
        .max_by_key(|(at, (_, (v, _)))| (v.confidence, *at))
        .map_or(newest, |(at, _)| at);
    let name = |label: &str| {
        if label.is_empty() { "files that fit any of them".to_owned() } else { label.to_owned() }
    };
    let bare =
        |v: &Verdict| Verdict { findings: Vec::new(), needs: Vec::new(), ranks: Vec::new(), ..v.clone() };
    let of_each = verdicts.iter().map(|(label, (v, _))| (name(label), bare(v))).collect();
    let (label, (mut verdict, mut picture)) = verdicts.swap_remove(at);
    picture.jobs = of_each;
    // What another job failed of is a finding too, behind those of this one.
    let others = verdicts.iter().filter(|(_, (v, _))| v.cause != Cause::Undecided && !same(v, &verdict));
    let of_others: Vec<_> = others.filter_map(|(_, (v, _))| v.findings.first().cloned()).collect();
    for (other, (said, _)) in &verdicts {
        let gives = if same(said, &verdict) {
            "gives the same".to_owned()
        } else {
            format!("gives {} ({})", said.cause, said.summary)
        };
        verdict.needs.push(Need {
            question: format!(
                "the evidence holds records of {} jobs or attempts: this verdict is about {}; {} {gives}",
                jobs.len(),
                name(&label),
                name(other),
            ),
            command: "ringleader diagnose <the files of one attempt>".to_owned(),
            asks: Asks::Job,
        });
    }
    verdict.findings.extend(of_others);
    (verdict, picture)
}

fn examine_job(case: &Case, draw: Draw<'_>) -> (Verdict, Picture) {
    let scene = Scene::new(case);
    let mut decision = verdict::decide(&scene, rules::ALL);
    let n_set_aside = rings::n_set_aside(case);
    if n_set_aside > 0 {
        decision.verdict.needs.push(Need {
            question: format!(
                "{n_set_aside} rings are of earlier jobs with the same ranks and were set aside: did you mean one of those jobs?"
            ),
            command: "ringleader diagnose <the rings of one job>".to_owned(),
            ..Need::default()
        });
    }
    let picture = draw(&scene, &decision);
    (decision.verdict, picture)
}
