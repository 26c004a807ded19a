//! The order of events: the first of each statement, rank and host, and what the machines' kernels say, on one clock.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_correlate::Scene;
use ringleader_correlate::when::year::in_year;
use ringleader_knowledge::message::Role;
use ringleader_knowledge::wording;
use ringleader_model::{
    Fact, FormWeight, Host, KernelEventKind, Observation, PicturedEvent, Rank, SourceId, Verdict,
};

use super::facts::span;

/// Events that are kept, and speakers of one template that each are an event.
const MAX_EVENTS: usize = 80;
const MAX_SPEAKERS: usize = 4;
/// A kernel's event may be this far from what the job printed, ns.
const KERNEL_BEFORE_NS: i64 = 3_600_000_000_000;
/// Characters of a line.
const MAX_TEXT: usize = 300;
/// Kernel statements that are kept: a flapping link fills a log.
const MAX_KERNEL: usize = 24;

/// Whose an event is: its kind of line, its rank, its host.
type EventKey<'a> = (&'a str, Option<Rank>, Option<&'a Host>);

/// The events in their order; those without a time last, by their place in the evidence.
pub(super) fn events(scene: &Scene<'_>, verdict: &Verdict) -> Vec<PicturedEvent> {
    let times = Times::new(scene);
    let time = |o: &Observation| times.of(o);
    let mut events: Vec<PicturedEvent> = Vec::new();
    for stated in scene.stated().all() {
        // Output of healthy programs says nothing about the order of a failure.
        let is_chatter =
            stated.rows.is_empty() && (stated.weight() < FormWeight::Strong || stated.is_warning());
        if is_chatter || stated.role() == Some(Role::Harmless) {
            continue;
        }
        let mut first: BTreeMap<EventKey<'_>, &Observation> = BTreeMap::new();
        for u in &stated.utterances {
            let host = u.observation.who.host.as_ref();
            let known = first.entry((&u.said.template, u.rank, host)).or_insert(u.observation);
            if time(u.observation) < time(known) {
                *known = u.observation;
            }
        }
        let mut speakers: Vec<(Option<Rank>, &Observation)> =
            first.into_iter().map(|((_, rank, _), observation)| (rank, observation)).collect();
        speakers.sort_by_key(|(_, o)| (time(o).is_none(), time(o), o.cite));
        let n_more = if speakers.len() > MAX_SPEAKERS { speakers.len() - 1 } else { 0 };
        let shown = if n_more > 0 { 1 } else { speakers.len() };
        for (rank, observation) in speakers.into_iter().take(shown) {
            events.push(event(observation, time(observation), rank, n_more));
        }
    }
    let cited: BTreeSet<_> = verdict.findings.iter().flat_map(|f| &f.evidence).map(|e| e.cite).collect();
    let within = |at: Option<i64>| {
        let (Some(at), Some((from, to))) = (at, span(scene)) else { return false };
        at >= from - KERNEL_BEFORE_NS && at <= to + KERNEL_BEFORE_NS
    };
    let mut seen = BTreeSet::new();
    // Links go up and down on every machine: what no finding cites has to fit the job's time.
    let kernel = scene.kernel().near().filter(|s| {
        let is_link = matches!(s.event.kind, KernelEventKind::Link { .. });
        cited.contains(&s.observation.cite) || within(time(s.observation)) || (!is_link && !scene.has_job())
    });
    for statement in kernel.take(MAX_KERNEL) {
        let observation = statement.observation;
        if seen.insert(observation.cite) {
            events.push(event(observation, time(observation), statement.culprit.rank, 0));
        }
    }
    events.extend(scene.case().observations.iter().filter_map(|o| match &o.fact {
        Fact::Watch(_) => Some(event(o, time(o), None, 0)),
        _ => None,
    }));
    events.sort_by_key(|e| (e.in_year_ns.is_none(), e.in_year_ns, e.cite));
    events.dedup_by(|a, b| a.cite == b.cite);
    events.truncate(MAX_EVENTS);
    events
}

/// When lines were printed: as their reader saw it, or another reader of the same line, or glog's own stamp.
struct Times {
    by_line: BTreeMap<(SourceId, u32), i64>,
}

impl Times {
    fn new(scene: &Scene<'_>) -> Self {
        let stamped = scene.case().observations.iter().filter(|o| o.cite.line > 0);
        let by_line = stamped.filter_map(|o| Some(((o.cite.source, o.cite.line), in_year(o.at?)))).collect();
        Self { by_line }
    }

    fn of(&self, observation: &Observation) -> Option<i64> {
        let by_line = || self.by_line.get(&(observation.cite.source, observation.cite.line)).copied();
        observation.at.map(in_year).or_else(by_line).or_else(|| wording::glog_time(&observation.text))
    }
}

fn event(
    observation: &Observation,
    in_year_ns: Option<i64>,
    rank: Option<Rank>,
    n_more: usize,
) -> PicturedEvent {
    PicturedEvent {
        in_year_ns,
        rank,
        host: observation.who.host.clone(),
        text: observation.text.lines().next().unwrap_or_default().trim().chars().take(MAX_TEXT).collect(),
        cite: observation.cite,
        n_more,
    }
}
