//! # What it shows
//! One rank arrives last at nearly every collective; its peers spend that time waiting inside it. Or no rank is late,
//! and all collectives are slow because one link is.
//!
//! # Why it happens
//! A slow GPU or host, a longer data path, more work on that rank, a noisy neighbour.
//!
//! # Evidence
//! The rings: how long the kernels of one collective ran on each rank, by each GPU's own timer. Or the Flight Recorder:
//! the time from enqueue to completion of the same collective, each on its rank's own clock: the straggler has the
//! least, since it never waits. Where that rank is alone on its host, a cgroup of the host that was throttled in many
//! periods (cpu.stat) while those of its peers were not. Or a watcher, which saw more of the job than its rings hold; samples of
//! the main threads then show where that rank is while its peers wait. For a link: the watcher's event, which compares how long data
//! waits between hosts and how much of it passes.
//!
//! # What looks like it but is not
//! Occasional lateness (a checkpoint, an evaluation). Warm-up steps, which are left out.
//!
//! # What to do
//! Compare that rank's clocks, power, data path and amount of work with its peers'.
//!
//! # References
//! PyTorch docs, Flight Recorder for Debugging Stuck Jobs; NCCL user guide.

mod link;
mod rings;
mod sampled;
mod watched;

use rayon::prelude::*;
use ringleader_knowledge::remedy;
use ringleader_model::{
    Cause, Confidence, Evidence, Finding, FlightDump, FlightOp, Impact, Rank, Severity, SourceKind,
    SystemFact, Weight, median,
};

use crate::drafting;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::track::RankOrSource;
use ringleader_correlate::track::{Group, GroupRecorder, Origin, Track};
use ringleader_correlate::who::tools::shown;

/// The rule.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "straggler",
    title: "one rank is persistently slower than its peers",
    since: "0.1",
    doc: include_str!("straggler.rs"),
    check,
};

// Chosen, not derived: with them the recorded stragglers (cases/slow-rank, cases/ring-slow-gpu) are found and no healthy
// recording is blamed. The bounds for rings (`straggler/rings`) are the same.

/// First part of a record that is left out: warm-up steps take many times longer.
const WARM_UP_SHARE: f64 = 0.15;
/// Fewer collectives than this show no habit.
const MIN_COLLECTIVES: usize = 16;
/// Fewer bursts of collectives than this are chance.
const MIN_BURSTS: usize = 8;
/// Share of the time between its collectives that peers lose to one rank before it is worth a verdict.
pub(super) const MIN_LOST_SHARE: f64 = 0.15;
/// How much longer the peers wait than the suspect itself.
const MIN_RATIO: f64 = 2.5;
/// In how many of the waits one rank is the one that waited least.
pub(super) const MIN_HABIT: f64 = 0.7;
/// Beyond both of these a verdict is sure: the peers lose this share of their time,
pub(super) const CLEAR_LOST_SHARE: f64 = 0.4;
/// and the rank is the last this often.
pub(super) const CLEAR_HABIT: f64 = 0.9;

fn check(scene: &Scene<'_>) -> Outcome {
    let groups =
        scene.ledger().groups().par_iter().filter(|g| g.view == GroupRecorder::Flight && g.tracks.len() > 2);
    let mut findings: Vec<Finding> = groups.filter_map(|group| slowest(scene, group)).collect();
    findings.extend(rings::findings(scene));
    findings.extend(link::findings(scene));
    findings.extend(watched::findings(scene));
    // What shows where the rank is says more than that it is late.
    for better in sampled::findings(scene) {
        let is_same =
            |f: &Finding| f.culprits.iter().map(|c| c.rank).eq(better.culprits.iter().map(|c| c.rank));
        findings.retain(|f| !is_same(f));
        findings.push(better);
    }
    Outcome::from_findings(findings)
}

/// Time a rank spent in one collective, on its own clock, ns.
fn spent(dump: &FlightDump, op: u32) -> Option<i64> {
    dump.ops.get(op as usize).and_then(spent_in)
}

fn spent_in(op: &FlightOp) -> Option<i64> {
    (op.completed_ns > 0 && op.created_ns > 0).then(|| op.completed_ns - op.created_ns).filter(|n| *n >= 0)
}

/// A member of a group with its record.
type Recorded<'s, 'a> = (usize, &'s Track<'a>, &'a FlightDump);

/// How much later than its peers one member of a group comes.
struct Lag<'s, 'a> {
    tracks: Vec<Recorded<'s, 'a>>,
    /// Collectives that were compared.
    n_used: usize,
    /// The median wait of each member, ns.
    waits: Vec<f64>,
    /// Index of the latest, which waits least.
    at: usize,
    /// Share of the collectives in which it waited least.
    habit: f64,
    /// Share of the time of a step that its peers lose to it.
    lost: f64,
}

impl<'s, 'a> Lag<'s, 'a> {
    /// None if no member is late by habit.
    fn of(group: &'s Group<'a>) -> Option<Self> {
        let members = group.tracks.iter().enumerate().filter_map(|(m, t)| t.as_ref().map(|t| (m, t)));
        let recorded = |(m, t): (usize, &'s Track<'a>)| match t.origin {
            Origin::Dump(dump) => Some((m, t, dump)),
            _ => None,
        };
        let tracks: Vec<Recorded<'s, 'a>> = members.filter_map(recorded).collect();
        if tracks.len() < 3 || tracks.len() * 2 < group.tracks.len() {
            return None;
        }
        let from = tracks.iter().map(|(_, t, _)| t.first_seq).max()?;
        let to = tracks.iter().map(|(_, t, _)| t.finished.unwrap_or(0).min(t.last_seq())).min()?;
        if to < from || ((to - from) as usize) < MIN_COLLECTIVES {
            return None;
        }
        let from = from + (f64::from(to - from) * WARM_UP_SHARE) as u32;
        let from = from.max(1);
        let rows = Rows::new(&tracks, from, to)?;
        let n_used = rows.used.len();
        // Nobody waited least often enough: the waits themselves need not be weighed.
        if n_used < MIN_BURSTS || rows.least.iter().all(|n| *n as f64 / (n_used as f64) < MIN_HABIT) {
            return None;
        }
        let median_wait = |(_, track, dump): &Recorded<'_, '_>| {
            let waits = rows.used.iter().filter_map(|seq| spent(dump, track.op(*seq)?));
            median::upper(waits).unwrap_or(0) as f64
        };
        let waits: Vec<f64> = tracks.iter().map(median_wait).collect();
        let wait = |at: &usize| waits.get(*at).copied().unwrap_or(0.0);
        let at = (0..waits.len()).min_by(|a, b| wait(a).total_cmp(&wait(b)))?;
        let mine = wait(&at);
        let others = (0..waits.len()).filter(|m| *m != at).map(|m| wait(&m));
        let theirs = median::upper(others.clone())?;
        let lowest_other = others.min_by(f64::total_cmp)?;
        let (_, track, dump) = tracks.get(at)?;
        let created = |seq: u32| Some(dump.ops.get(track.op(seq)? as usize)?.created_ns);
        let span = created(to)?.saturating_sub(created(from)?) as f64;
        let step = span / n_used as f64;
        let lost = (theirs - mine) / step.max(1.0);
        let habit = *rows.least.get(at)? as f64 / n_used as f64;
        let is_late = lost >= MIN_LOST_SHARE
            && theirs >= mine * MIN_RATIO
            && lowest_other >= mine * MIN_RATIO / 2.0
            && habit >= MIN_HABIT;
        is_late.then_some(Self { tracks, n_used, waits, at, habit, lost })
    }

    /// It takes much of the peers' time, nearly every time.
    fn is_clear(&self) -> bool {
        self.lost > CLEAR_LOST_SHARE && self.habit > CLEAR_HABIT
    }

    /// The late member.
    fn late(&self) -> Option<Recorded<'s, 'a>> {
        self.tracks.get(self.at).copied()
    }

    /// How long the late member waits, then its first peers.
    fn evidence(&self, group: &Group<'_>) -> Vec<Evidence> {
        let text = |at: usize| {
            let ((_, track, _), ns) = self.tracks.get(at).zip(self.waits.get(at))?;
            let text = format!(
                "{} spends {:.1} ms (median of {}) inside the collectives of {}",
                track.rank.map_or_else(|| "this rank".into(), |r| format!("rank {}", r.0)),
                ns / 1e6,
                self.n_used,
                group.name
            );
            Some(Evidence { cite: track.cite, text, kind: SourceKind::FlightRecorder })
        };
        let peers = (0..self.tracks.len()).filter(|at| *at != self.at).take(PEERS_CITED);
        std::iter::once(self.at).chain(peers).filter_map(text).collect()
    }
}

/// Peers that are cited beside the late rank.
const PEERS_CITED: usize = 3;

/// The late member of a group.
fn slowest(scene: &Scene<'_>, group: &Group<'_>) -> Option<Finding> {
    let lag = Lag::of(group)?;
    let (member, track, _) = lag.late()?;
    let rank = group.rank(member);
    let node = rank.map_or(RankOrSource::Source(track.cite.source), RankOrSource::Rank);
    let draft = Draft::new(
        RULE.id,
        Cause::Straggler,
        format!(
            "{} is last in {:.0} % of the collectives of {}; its peers lose {:.0} % of their time to it",
            drafting::who(&[node]),
            lag.habit * 100.0,
            group.name,
            lag.lost * 100.0
        ),
    )
    .severity(Severity::Warning)
    .weight(Weight::Derived)
    .confidence(if lag.is_clear() { Confidence::High } else { Confidence::Medium })
    .culprits(drafting::culprits(scene, &[node], None))
    .victims(group.ranks.iter().copied().flatten().filter(|r| Some(*r) != rank).collect())
    .evidence(lag.evidence(group));
    let draft = match rank.and_then(|rank| held_back(scene, rank)) {
        Some(proof) => draft.evidence([proof]).advise(
            Impact::Disruptive,
            "its cgroup exhausts its CPU quota: raise the CPU limit of that container or job, or start fewer workers",
        ),
        None => draft,
    };
    draft
        .advise_command(
            Impact::Harmless,
            "compare its GPU with the others: clocks, power, throttle reasons",
            remedy::SHOW_CLOCKS,
        )
        .advise(Impact::Harmless, "compare its data path and amount of work per step with its peers'")
        .build()
}

/// Fewer periods than this are seconds of work.
const MIN_PERIODS: u64 = 100;
/// Share of its periods in which a cgroup is held back before that slows a rank: data loaders alone reach some.
const HELD_BACK_SHARE: f64 = 0.25;
/// How many times as often as its peers' cgroups: a limit that holds all back makes no rank slower than the others.
const HELD_BACK_TIMES: f64 = 2.0;

/// The cgroup on a rank's host that was held back, if that rank is alone there and its peers' were not.
fn held_back(scene: &Scene<'_>, rank: Rank) -> Option<Evidence> {
    let host = scene.roster().culprit_rank(rank).host?;
    let on_host =
        scene.roster().members.iter().filter(|m| m.rank.is_some() && m.host.as_ref() == Some(&host));
    if on_host.count() != 1 {
        return None;
    }
    let (mut mine, mut others): (Option<(f64, Evidence)>, f64) = (None, 0.0);
    for (observation, fact) in scene.system() {
        let SystemFact::CpuGroup(group) = fact else { continue };
        let Some(of) = scene.host_of(observation).filter(|_| group.periods >= MIN_PERIODS) else { continue };
        let share = group.throttled as f64 / group.periods as f64;
        if of != host {
            others = others.max(share);
        } else if mine.as_ref().is_none_or(|(known, _)| share > *known) {
            let path = group.path.as_deref().unwrap_or("its cgroup");
            let text = format!("{path} on {host} was throttled in {:.0} % of its periods", share * 100.0);
            mine = Some((share, shown(observation, Some(group.line), SourceKind::System, text)));
        }
    }
    let (share, proof) = mine?;
    (share >= HELD_BACK_SHARE && others * HELD_BACK_TIMES <= share).then_some(proof)
}

/// A pause before an enqueue that is long against the gaps inside a burst of enqueues.
const PAUSE_NS: i64 = 1_000_000;

/// The collectives of a group that show who came last.
struct Rows {
    /// Their numbers: all ranks show how long they were in it, and some rank made a pause before it. An operation that
    /// was enqueued together with its predecessor says nothing about arrival.
    used: Vec<u32>,
    /// In how many of them each track waited least.
    least: Vec<usize>,
}

/// One collective, from all tracks seen so far.
#[derive(Clone, Copy)]
struct CollectiveTimes {
    shortest: i64,
    by: usize,
    has_pause: bool,
}

/// Tracks that are gone through at a time.
const CHUNK: usize = 64;

impl Rows {
    fn new(tracks: &[(usize, &Track<'_>, &FlightDump)], from: u32, to: u32) -> Option<Self> {
        let n_rows = to.checked_sub(from)? as usize + 1;
        let rows = tracks
            .par_chunks(CHUNK)
            .enumerate()
            .map(|(at, chunk)| {
                let mut rows =
                    vec![Some(CollectiveTimes { shortest: i64::MAX, by: 0, has_pause: false }); n_rows];
                for (by, (_, track, dump)) in (at * CHUNK..).zip(chunk) {
                    add_track(&mut rows, by, track, dump, from);
                }
                rows
            })
            .reduce_with(|mut rows, later| {
                for (row, later) in rows.iter_mut().zip(later) {
                    *row = row.zip(later).map(|(a, b)| {
                        let shorter = if b.shortest < a.shortest { b } else { a };
                        CollectiveTimes { has_pause: a.has_pause || b.has_pause, ..shorter }
                    });
                }
                rows
            })?;
        let mut least = vec![0; tracks.len()];
        let mut used = Vec::new();
        for (seq, row) in (from..=to).zip(rows) {
            let Some(row) = row.filter(|row| row.has_pause) else { continue };
            used.push(seq);
            if let Some(n) = least.get_mut(row.by) {
                *n += 1;
            }
        }
        Some(Self { used, least })
    }
}

/// Adds one rank's collectives from number `from` on; where it does not show how long it was in one, that one is out.
fn add_track(
    rows: &mut [Option<CollectiveTimes>],
    by: usize,
    track: &Track<'_>,
    dump: &FlightDump,
    from: u32,
) {
    let op = |seq: u32| dump.ops.get(track.op(seq)? as usize);
    let mut before = from.checked_sub(1).and_then(op);
    // Numbers come from a file: they may reach the last one.
    for (seq, slot) in (from..=u32::MAX).zip(rows) {
        let op = op(seq);
        if let Some(row) = slot {
            match op.and_then(spent_in) {
                Some(ns) => {
                    if ns < row.shortest {
                        (row.shortest, row.by) = (ns, by);
                    }
                    row.has_pause |= before
                        .zip(op)
                        .is_some_and(|(a, b)| b.created_ns.saturating_sub(a.created_ns) > PAUSE_NS);
                }
                None => *slot = None,
            }
        }
        before = op;
    }
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    const MS: i64 = 1_000_000;

    /// Three ranks, 40 steps of 100 ms; the time rank 1 and its peers spend in the n-th collective, ms.
    fn steps(mine: fn(u32) -> i64, theirs: fn(u32) -> i64) -> StagedCase {
        let dump = |stage: StagedCase, rank: u32| {
            let spent = if rank == 1 { mine } else { theirs };
            stage.timed_dump(rank, "ar:100*40", |nth| (i64::from(nth) * 100 * MS, spent(nth) * MS))
        };
        (0..3).fold(StagedCase::job(3), dump)
    }

    #[test]
    fn last_at_every_call() {
        steps(|_| 5, |_| 60).concludes(&RULE, "straggler 1, high");
        steps(|_| 5, |_| 30).concludes(&RULE, "straggler 1, medium");
    }

    #[test]
    fn its_processors_are_held_back() {
        use ringleader_model::{CpuGroup, SystemFact};
        let group = |throttled| {
            SystemFact::CpuGroup(CpuGroup { line: 5, periods: 1_000, throttled, ..CpuGroup::default() })
        };
        let on = |hosts: [&str; 3]| {
            (0..3).zip(hosts).fold(steps(|_| 5, |_| 60), |stage, (rank, host)| stage.log(rank, host, ""))
        };
        let told = |stage: StagedCase| {
            stage.finding(&RULE).evidence.iter().any(|e| e.text.contains("throttled in 80 %"))
        };
        let apart = || on(["node0", "node1", "node2"]);
        assert!(told(apart().system("node1", group(800)).system("node0", group(10))));
        // Its peers are held back as much; another host is; two ranks share the host; too seldom.
        assert!(!told(apart().system("node1", group(800)).system("node0", group(700))));
        assert!(!told(apart().system("node2", group(800))));
        assert!(!told(on(["node1", "node1", "node2"]).system("node1", group(800))));
        assert!(!told(apart().system("node1", group(80))));
    }

    #[test]
    fn occasional_lateness() {
        steps(|n| if n % 5 == 0 { 5 } else { 60 }, |_| 60).silent(&RULE);
        steps(|_| 5, |_| 10).silent(&RULE);
    }

    #[test]
    fn warm_up() {
        steps(|_| 5, |n| if n < 5 { 60 } else { 5 }).silent(&RULE);
    }
}
