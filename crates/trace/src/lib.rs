//! Where the time of a job goes: from the timelines of its ranks to steps, their parts, who is late, what communication
//! costs, and what to change.
//!
//! Pure: timelines go in, an [`Analysis`] comes out. Everything is computed on sorted arrays of intervals.

pub mod axes;
pub mod bandwidth;
pub mod compare;
pub mod contention;
pub mod expected;
pub mod intervals;
pub mod join;
pub mod judge;
pub mod late;
mod place;
pub mod replay;
pub mod rings;
mod sets;
pub mod split;
pub mod steps;
pub mod view;
mod whatif;

use std::collections::BTreeSet;

use ringleader_model::Timeline;

use crate::axes::Axis;
use crate::bandwidth::SizeClass;
use crate::contention::Contention;
use crate::expected::{Baseline, References};
use crate::join::Join;
use crate::judge::Advice;
use crate::late::Lateness;
use crate::sets::{Ranked, rank_of};
use crate::split::{Busy, Split};
use crate::steps::Steps;
use crate::view::RankTimeline;

/// Results of the analysis of one job's timelines.
#[derive(Debug)]
pub struct Analysis<'a> {
    /// Timelines of the ranks, in order of rank.
    pub views: Vec<RankTimeline<'a>>,
    /// Steps of each rank, in the order of `views`.
    pub steps: Vec<Steps>,
    /// Parts of each step of each rank.
    pub splits: Vec<Vec<Split>>,
    /// Mean of the usual steps of each rank.
    pub means: Vec<Split>,
    /// Operations over ranks, and their clocks.
    pub join: Join,
    /// Late ranks and the ranks that wait for them.
    pub lateness: Lateness,
    /// Imbalance by axis of parallelism, the one with most waiting first.
    pub axes: Vec<Axis>,
    /// Recordings of these ranks that were found; the newest is analysed.
    pub n_sets: usize,
    /// Ranks that are left out since their recording holds no whole step, while others' do.
    pub without_steps: Vec<u32>,
    /// Time a step that collectives take beyond the shortest of their kind and size, on the rank with most, where the
    /// other ranks are missing, so that waiting and cost cannot be separated, ns.
    pub unseen_wait_ns: i64,
    /// Bus bandwidth by kind and size.
    pub sizes: Vec<SizeClass>,
    /// References for the bandwidths.
    pub references: References<'a>,
    /// The measurement among them that the user gave.
    pub baseline: Option<&'a Baseline>,
    /// Slowdown of computation beside communication; None if the recording does not show it.
    pub contention: Option<Contention>,
    /// Length of a usual step on the slowest rank, ns.
    pub step_ns: i64,
    /// The same in the replay of what was recorded: how far the estimates can be trusted.
    pub replayed_ns: i64,
    /// The same in a replay without the recorder's own cost on the host, ns: the step that the advice is measured against.
    pub unrecorded_ns: i64,
    /// Changes that were tried.
    pub n_tried: usize,
    /// Those that gain anything, the largest gain first.
    pub advice: Vec<Advice>,
}

impl Analysis<'_> {
    /// Whether any GPU did anything.
    pub fn has_work(&self) -> bool {
        self.views.iter().any(|view| !view.work().is_empty())
    }

    /// Whether the recorders show what GPUs compute, and not their communication alone.
    pub fn shows_computation(&self) -> bool {
        self.views.iter().any(RankTimeline::computes)
    }

    /// Whether steps were found: else the whole recording counts as one, with the start of the program in it.
    pub fn has_steps(&self) -> bool {
        self.steps.iter().any(Steps::has_whole)
    }

    /// Whether only one rank is recorded and waits so long that the rank holding it up matters but is unknown.
    pub fn waits_unseen(&self) -> bool {
        self.pct(self.unseen_wait_ns) > judge::LEAST_PCT
    }

    /// Operations of a class in a usual step of one rank: there are several groups of ranks, and operations of each.
    pub fn n_per_step(&self, class: &SizeClass) -> f64 {
        let n_steps = self.steps.iter().map(|steps| steps.usual.len()).min().unwrap_or(0).max(1);
        let n_views = self.views.len().max(1);
        let n_members = if self.join.ops.is_empty() { 1 } else { (class.n_ranks as usize).clamp(1, n_views) };
        class.n as f64 * n_members as f64 / (n_views * n_steps) as f64
    }

    /// Share of a usual step, in percent.
    pub fn pct(&self, ns: i64) -> f64 {
        ns as f64 * 100.0 / self.step_ns.max(1) as f64
    }
}

/// Analyses the timelines of one job, each with the rank that a source other than the file gives it. Timelines without
/// GPU work beside others with some are left out.
pub fn analyse<'a>(timelines: impl IntoIterator<Item = (&'a Timeline, Option<u32>)>) -> Analysis<'a> {
    analyse_against(timelines, None)
}

/// The same; bandwidths are compared with a baseline, where it is of such groups.
pub fn analyse_against<'a>(
    timelines: impl IntoIterator<Item = (&'a Timeline, Option<u32>)>,
    baseline: Option<&'a Baseline>,
) -> Analysis<'a> {
    let (newest, n_sets) = sets::newest(timelines.into_iter().collect());
    let (ranks, without_steps) = with_steps(views(newest));
    let (views, steps): (Vec<RankTimeline<'_>>, Vec<Steps>) = ranks.into_iter().unzip();
    let splits: Vec<Vec<Split>> =
        views.iter().zip(&steps).map(|(view, steps)| split::split(view, steps, &Busy::new(view))).collect();
    let means: Vec<Split> = steps
        .iter()
        .zip(&splits)
        .map(|(steps, splits)| {
            let usual: Vec<Split> =
                steps.usual.iter().filter_map(|at| splits.get(*at as usize)).copied().collect();
            Split::mean(&usual)
        })
        .collect();
    let join = join::join(&views, &steps);
    let lateness = late::lateness(&views, &steps, &splits, &join);
    let axes = axes::axes(&views, &steps, &splits, &join);
    let alone = bandwidth::Alone::new(&views, &join);
    let references = References::new(&views, baseline);
    let sizes = bandwidth::sizes(&views, &steps, &join, &alone, &references, &axes::on_path(&axes));
    let unseen_wait_ns = alone.wait_ns(&views, &steps, &join);
    let contention = contention::measure(&views, &steps);
    let step_ns = means.iter().map(|m| m.length_ns).max().unwrap_or(0);
    let mut analysis = Analysis {
        views,
        steps,
        splits,
        means,
        join,
        lateness,
        axes,
        n_sets,
        without_steps,
        unseen_wait_ns,
        sizes,
        references,
        baseline,
        contention,
        step_ns,
        replayed_ns: 0,
        unrecorded_ns: 0,
        n_tried: 0,
        advice: Vec::new(),
    };
    judge::judge(&mut analysis);
    analysis
}

/// The ranks with their steps; without those that have no whole step beside others that have some.
fn with_steps(views: Vec<RankTimeline<'_>>) -> (Vec<(RankTimeline<'_>, Steps)>, Vec<u32>) {
    let ranks = views.into_iter().map(|view| {
        let steps = steps::find(&view);
        (view, steps)
    });
    let (with, without): (Vec<_>, Vec<_>) = ranks.partition(|(_, steps)| steps.has_whole());
    if with.is_empty() {
        return (without, Vec::new());
    }
    (with, without.iter().map(|(view, _)| view.rank).collect())
}

/// One view for each rank: where two files claim one rank, the one with more work.
fn views(mut timelines: Vec<Ranked<'_>>) -> Vec<RankTimeline<'_>> {
    if timelines.iter().any(|(t, _)| !t.work.is_empty()) {
        timelines.retain(|(t, _)| !t.work.is_empty());
    }
    let mut taken: BTreeSet<u32> = BTreeSet::new();
    let mut views: Vec<RankTimeline<'_>> = Vec::new();
    timelines.sort_by_key(|one| (rank_of(one).is_none(), rank_of(one), std::cmp::Reverse(one.0.work.len())));
    let mut next = 0;
    for one in timelines {
        let rank = match rank_of(&one) {
            Some(rank) if taken.contains(&rank) => continue,
            Some(rank) => rank,
            None => {
                while taken.contains(&next) {
                    next += 1;
                }
                next
            }
        };
        taken.insert(rank);
        views.push(RankTimeline::new(rank, one.0));
    }
    views.sort_by_key(|view| view.rank);
    views
}
