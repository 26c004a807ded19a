//! The report on many nodes, `ringleader.fleet.v1`: counts, a line for each failing check, differences, silent
//! nodes.

use std::collections::BTreeMap;

use ringleader_model::hostlist;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clock::{self, Clocks};
use super::compare::{self, Difference, show};
use super::words::TextId;
use super::{Fleet, SilenceKind};
use crate::answer::{CheckState, Fix};
use crate::checks;
use crate::report::ChangeKind;

/// Name and version of the format.
pub const SCHEMA: &str = "ringleader.fleet.v1";

/// Largest number of ways of failing, values and the like that are listed.
const MAX_LISTED: usize = 24;
/// Largest number of silent nodes listed with a reason of their own.
const MAX_REASONS: usize = 64;

/// Many nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FleetReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// Nodes that were to answer.
    pub n_asked: usize,
    /// Nodes that did.
    pub n_answered: usize,
    /// Nodes by their worst verdict.
    pub n_fail: usize,
    /// The same.
    pub n_warn: usize,
    /// The same.
    pub n_ok: usize,
    /// Nodes on which the answer is unknown.
    pub n_skipped: usize,
    /// Nodes on which a check failed that justifies draining: `node[001-004]`.
    pub drain: String,
    /// Failing and warning checks, worst first.
    pub failing: Vec<Failing>,
    /// Values in which nodes differ.
    pub differences: Vec<Difference>,
    /// What is different from the baseline.
    pub changes: Vec<Changed>,
    /// Nodes that the baseline does not know: `node[001-004]`.
    pub without_baseline: String,
    /// Checks that were judged on some nodes and could not be on others.
    pub not_judged: Vec<NotJudged>,
    /// Nodes that did not answer.
    pub silent: Vec<Silent>,
    /// Clocks against each other.
    pub clocks: Option<Clocks>,
    /// What else has to be known.
    pub notes: Vec<String>,
}

/// A check that is not well on some nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Failing {
    /// Id of the check.
    pub check: String,
    /// Heading.
    pub area: String,
    /// Fail or warn.
    pub verdict: CheckState,
    /// It justifies draining.
    pub drains: bool,
    /// Who.
    pub hosts: String,
    /// How many.
    pub n_hosts: usize,
    /// What was said, most frequent first.
    pub ways: Vec<Way>,
    /// Ways that are not listed.
    pub n_more: usize,
    /// What to do, as the first of the nodes has it.
    pub fixes: Vec<Fix>,
}

/// One of the things said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Way {
    /// Summary of the check.
    pub summary: String,
    /// Who.
    pub hosts: String,
    /// How many.
    pub n_hosts: usize,
}

/// A change that some nodes share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Changed {
    /// Key of the value, or id of the check.
    pub key: String,
    /// What happened.
    pub kind: ChangeKind,
    /// One sentence.
    pub text: String,
    /// Who.
    pub hosts: String,
    /// How many.
    pub n_hosts: usize,
}

/// A check without an answer on some nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NotJudged {
    /// Id of the check.
    pub check: String,
    /// Why.
    pub why: String,
    /// Who.
    pub hosts: String,
    /// How many.
    pub n_hosts: usize,
    /// Nodes on which it was judged.
    pub n_judged: usize,
}

/// Nodes that did not answer, for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Silent {
    /// What kind.
    pub kind: SilenceKind,
    /// What was said.
    pub why: String,
    /// What to do about it.
    pub next: String,
    /// Who.
    pub hosts: String,
    /// How many.
    pub n_hosts: usize,
}

/// A silent node as a line of its own in a stream of reports (`ringleader.silent.v1`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SilentNode {
    /// Name and version of the format.
    pub schema: SilentSchema,
    /// Name it was asked by.
    pub target: String,
    /// What kind.
    pub kind: SilenceKind,
    /// What was said.
    pub why: String,
    /// What to do about it.
    pub next: String,
}

/// Name and version of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SilentSchema {
    /// This version.
    #[serde(rename = "ringleader.silent.v1")]
    V1,
}

impl FleetReport {
    /// The worst verdict of any node; skipped if none answered.
    pub fn verdict(&self) -> CheckState {
        let is_off = self.differences.iter().any(|difference| difference.is_blamed)
            || self.changes.iter().any(|change| change.kind.is_trouble())
            || self.clocks.as_ref().is_some_and(|clocks| !clocks.outliers.is_empty());
        match (self.n_fail, self.n_warn, self.n_ok) {
            (1.., ..) => CheckState::Fail,
            (0, 1.., _) => CheckState::Warn,
            _ if is_off => CheckState::Warn,
            (0, 0, 1..) => CheckState::Ok,
            (0, 0, 0) => CheckState::Skipped,
        }
    }

    /// Nodes that did not answer.
    pub fn n_silent(&self) -> usize {
        self.n_asked - self.n_answered
    }
}

impl Fleet {
    /// The report on all nodes.
    pub fn report(&self) -> FleetReport {
        let mut report = FleetReport {
            schema: SCHEMA.to_owned(),
            n_asked: self.nodes.len() + self.silent.len(),
            n_answered: self.nodes.len(),
            failing: self.failing(),
            differences: compare::differences(self),
            changes: self.changed(),
            not_judged: self.not_judged(),
            silent: self.silences(),
            clocks: clock::clocks(self),
            notes: self.notes(),
            ..FleetReport::default()
        };
        let mut drained = Vec::new();
        for (name, kept) in &self.nodes {
            match kept.checks.iter().map(|(_, verdict, _)| *verdict).max().unwrap_or_default() {
                CheckState::Fail => report.n_fail += 1,
                CheckState::Warn => report.n_warn += 1,
                CheckState::Ok => report.n_ok += 1,
                CheckState::Skipped => report.n_skipped += 1,
            }
            let drains = |id: &TextId| self.checks.get(id).is_some_and(|facts| facts.drains);
            if kept.checks.iter().any(|(id, verdict, _)| *verdict == CheckState::Fail && drains(id)) {
                drained.push(name);
            }
        }
        report.drain = hostlist::print(&drained);
        if self.baseline.is_some() {
            let unknown = self.nodes.iter().filter(|(_, kept)| !kept.has_baseline).map(|(name, _)| name);
            report.without_baseline = hostlist::print(&unknown.collect::<Vec<_>>());
        }
        report
    }

    fn failing(&self) -> Vec<Failing> {
        let mut by_check: BTreeMap<(TextId, CheckState), BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
        for (name, kept) in &self.nodes {
            for (id, verdict, summary) in &kept.checks {
                if *verdict > CheckState::Ok {
                    let ways = by_check.entry((*id, *verdict)).or_default();
                    ways.entry(self.words.get(*summary)).or_default().push(name);
                }
            }
        }
        let mut failing: Vec<Failing> = by_check
            .into_iter()
            .map(|((id, verdict), ways)| {
                let facts = self.checks.get(&id);
                let hosts: Vec<&str> = ways.values().flatten().copied().collect();
                let mut ways: Vec<(&str, Vec<&str>)> = ways.into_iter().collect();
                ways.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
                Failing {
                    check: self.words.get(id).to_owned(),
                    area: facts.map(|facts| facts.area.clone()).unwrap_or_default(),
                    verdict,
                    drains: facts.is_some_and(|facts| facts.drains),
                    hosts: hostlist::print(&hosts),
                    n_hosts: hosts.len(),
                    n_more: ways.len().saturating_sub(MAX_LISTED),
                    ways: ways
                        .into_iter()
                        .take(MAX_LISTED)
                        .map(|(summary, names)| Way {
                            summary: summary.to_owned(),
                            hosts: hostlist::print(&names),
                            n_hosts: names.len(),
                        })
                        .collect(),
                    fixes: facts
                        .and_then(|facts| facts.fixes.as_ref())
                        .map(|(_, fixes)| fixes.clone())
                        .unwrap_or_default(),
                }
            })
            .collect();
        // In the order of the list of checks, as on one node; checks unknown to this version come last.
        failing.sort_by_key(|failing| {
            (std::cmp::Reverse(failing.verdict), place(&failing.check), failing.check.clone())
        });
        failing
    }

    fn changed(&self) -> Vec<Changed> {
        let mut by_key: BTreeMap<(ChangeKind, &str), Vec<Step<'_>>> = BTreeMap::new();
        for (name, kept) in &self.nodes {
            for (key, kind, before, now) in &kept.changes {
                let of = by_key.entry((*kind, self.words.get(*key))).or_default();
                of.push((name, self.words.get(*before), self.words.get(*now)));
            }
        }
        by_key
            .into_iter()
            .map(|((kind, key), nodes)| {
                let hosts: Vec<&str> = nodes.iter().map(|(name, ..)| *name).collect();
                Changed {
                    key: key.to_owned(),
                    kind,
                    text: change_text(kind, &nodes),
                    hosts: hostlist::print(&hosts),
                    n_hosts: hosts.len(),
                }
            })
            .collect()
    }

    fn not_judged(&self) -> Vec<NotJudged> {
        let mut by_check: BTreeMap<TextId, (usize, BTreeMap<&str, Vec<&str>>)> = BTreeMap::new();
        for (name, kept) in &self.nodes {
            for (id, verdict, summary) in &kept.checks {
                let (n_judged, reasons) = by_check.entry(*id).or_default();
                if *verdict == CheckState::Skipped {
                    reasons.entry(self.words.get(*summary)).or_default().push(name);
                } else {
                    *n_judged += 1;
                }
            }
        }
        let mut out: Vec<NotJudged> = by_check
            .into_iter()
            // A check skipped everywhere is no difference between nodes; each node's report gives the reason.
            .filter(|(_, (n_judged, _))| *n_judged > 0)
            .flat_map(|(id, (n_judged, reasons))| {
                reasons.into_iter().take(MAX_LISTED).map(move |(why, names)| NotJudged {
                    check: self.words.get(id).to_owned(),
                    why: why.to_owned(),
                    hosts: hostlist::print(&names),
                    n_hosts: names.len(),
                    n_judged,
                })
            })
            .collect();
        out.sort_by_key(|entry| (place(&entry.check), entry.check.clone(), std::cmp::Reverse(entry.n_hosts)));
        out
    }

    fn silences(&self) -> Vec<Silent> {
        let mut by_reason: BTreeMap<(SilenceKind, &str, &str), Vec<&str>> = BTreeMap::new();
        for (name, silence) in &self.silent {
            by_reason.entry((silence.kind, &silence.why, &silence.next)).or_default().push(name);
        }
        let mut silent: Vec<Silent> = Vec::new();
        // Reasons that each apply to only one node must not make a table of a thousand lines: beyond the bound they
        // are grouped by kind.
        let mut rest: BTreeMap<(SilenceKind, &str), Vec<&str>> = BTreeMap::new();
        for ((kind, why, next), names) in by_reason {
            if silent.len() < MAX_REASONS {
                silent.push(Silent {
                    kind,
                    why: why.to_owned(),
                    next: next.to_owned(),
                    hosts: hostlist::print(&names),
                    n_hosts: names.len(),
                });
            } else {
                rest.entry((kind, next)).or_default().extend(names);
            }
        }
        silent.extend(rest.into_iter().map(|((kind, next), names)| Silent {
            kind,
            why: "for further reasons".to_owned(),
            next: next.to_owned(),
            hosts: hostlist::print(&names),
            n_hosts: names.len(),
        }));
        silent
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut by_host: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, kept) in &self.nodes {
            by_host.entry(self.words.get(kept.host)).or_default().push(name);
        }
        for (host, names) in by_host.iter().filter(|(_, names)| names.len() > 1).take(4) {
            notes.push(format!(
                "{} call themselves '{host}': one node asked several times?",
                hostlist::print(names)
            ));
        }
        let cut: Vec<&str> =
            self.nodes.iter().filter(|(_, kept)| kept.is_cut).map(|(name, _)| name.as_str()).collect();
        if !cut.is_empty() {
            notes.push(format!(
                "too long to keep, so only the first part was compared: {}",
                hostlist::print(&cut)
            ));
        }
        notes
    }
}

/// Position of a check in the list.
fn place(id: &str) -> usize {
    checks::ALL.iter().position(|check| check.id == id).unwrap_or(usize::MAX)
}

/// A node, its value before, and its value now.
type Step<'a> = (&'a str, &'a str, &'a str);

fn change_text(kind: ChangeKind, nodes: &[Step<'_>]) -> String {
    // If all nodes have the same values, the text names them; otherwise the range.
    let all = |pick: fn(&Step<'_>) -> String| {
        let first = nodes.first().map(pick).unwrap_or_default();
        nodes.iter().all(|node| pick(node) == first).then_some(first)
    };
    let before = all(|(_, before, _)| (*before).to_owned()).unwrap_or_else(|| "several values".to_owned());
    let now = all(|(_, _, now)| (*now).to_owned()).unwrap_or_else(|| "several values".to_owned());
    match kind {
        ChangeKind::Worse => format!("was {before}, is {now}"),
        ChangeKind::Changed => format!("was {before}, is {now}"),
        ChangeKind::Restarted => format!("was reset (was {before}, is {now})"),
        ChangeKind::Gone => format!("was {before}, could not be read now"),
        ChangeKind::Grew => {
            let number = |text: &str| text.trim().parse::<f64>().unwrap_or(0.0);
            let mut by: Vec<(f64, &str)> =
                nodes.iter().map(|(name, before, now)| (number(now) - number(before), *name)).collect();
            by.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
            let (most, least) = (by.first(), by.last());
            match (most, least) {
                (Some((most, _)), Some((least, _))) if most.total_cmp(least).is_eq() => {
                    format!("has increased by {}", show(*most))
                }
                (Some((most, name)), Some((least, _))) => {
                    format!("has increased by {} to {}, most on {name}", show(*least), show(*most))
                }
                _ => String::new(),
            }
        }
    }
}
