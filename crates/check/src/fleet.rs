//! Many nodes as one table: what most of them report, and which ones differ.
//!
//! Reports are added one by one in any order, and only a few KB of each are kept: verdicts, reasons, and the values
//! that are compared. The result does not depend on the order.
//!
//! Nodes are compared with peers rather than thresholds, and nobody is blamed without a majority: with fewer than
//! three nodes, differing values are only shown, and if no value is that of more than half of the nodes, the report
//! says so.

mod clock;
mod compare;
mod report;
mod words;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::clock::{ClockOutlier, Clocks};
pub use self::compare::{Difference, Holder};
pub use self::report::{
    Changed, Failing, FleetReport, NotJudged, SCHEMA, Silent, SilentNode, SilentSchema, Way,
};
use self::words::{TextId, Words};
use crate::answer::{CheckState, Fix, ValueKind};
use crate::baseline::Baseline;
use crate::report::{ChangeKind, NodeReport};

/// Largest number of values kept of a node.
const MAX_VALUES: usize = 2048;
/// Largest number of checks kept of a node.
const MAX_CHECKS: usize = 512;
/// Largest number of changes kept of a node.
const MAX_CHANGES: usize = 256;
/// Bytes kept of a summary, a value or a reason.
const MAX_TEXT: usize = 400;

/// When a node was asked and when its answer came, nanoseconds since 1970 by the asking host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Before the connection was opened.
    pub sent_ns: i64,
    /// After the complete answer was received.
    pub arrived_ns: i64,
}

/// Why a node did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SilenceKind {
    /// No connection: the host is off, not known, or its daemon does not run.
    Unreachable,
    /// It answers and lets us not in.
    Refused,
    /// No answer by the deadline.
    TimedOut,
    /// The program is not there.
    NoProgram,
    /// The program ran, or something else did, and what came back is no report.
    NoReport,
    /// It was never asked: the work was broken off before its turn.
    NotAsked,
}

impl SilenceKind {
    /// Its name as printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Refused => "refused",
            Self::TimedOut => "timed out",
            Self::NoProgram => "no ringleader there",
            Self::NoReport => "no report",
            Self::NotAsked => "not asked",
        }
    }
}

/// A node that did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    /// The kind of failure.
    pub kind: SilenceKind,
    /// The reason, without the host's name, so that equal reasons are grouped.
    pub why: String,
    /// What to do next.
    pub next: String,
}

/// The part of a node's report that is kept.
#[derive(Debug)]
struct Kept {
    host: TextId,
    tool_version: TextId,
    offset: Option<(i64, i64)>,
    checks: Vec<(TextId, CheckState, TextId)>,
    values: Vec<(TextId, ValueKind, TextId)>,
    changes: Vec<(TextId, ChangeKind, TextId, TextId)>,
    has_baseline: bool,
    is_cut: bool,
}

/// What the answers of a check have in common.
#[derive(Debug)]
struct Facts {
    area: String,
    drains: bool,
    /// Those of the first failing node by name, so that the result does not depend on the order of arrival.
    fixes: Option<(String, Vec<Fix>)>,
}

/// Reports of many nodes, in bounded memory.
#[derive(Debug, Default)]
pub struct Fleet {
    words: Words,
    nodes: BTreeMap<String, Kept>,
    silent: BTreeMap<String, Silence>,
    checks: BTreeMap<TextId, Facts>,
    baseline: Option<Baseline>,
}

impl Fleet {
    /// An empty fleet; reports are compared with `baseline`, if given.
    pub fn new(baseline: Option<Baseline>) -> Self {
        Self { baseline, ..Self::default() }
    }

    /// Adds the report of a node. The first report under a name counts.
    pub fn answered(&mut self, report: &NodeReport, timing: Option<Timing>) {
        let name = report.name().to_owned();
        if self.nodes.contains_key(&name) {
            return;
        }
        let mut kept = Kept {
            host: self.words.add(&report.host, MAX_TEXT),
            tool_version: self.words.add(&report.tool_version, MAX_TEXT),
            offset: timing.and_then(|timing| clock::offset(report, timing)),
            checks: Vec::new(),
            values: Vec::new(),
            changes: Vec::new(),
            has_baseline: false,
            is_cut: report.values.len() > MAX_VALUES || report.checks.len() > MAX_CHECKS,
        };
        for check in report.checks.iter().take(MAX_CHECKS) {
            let id = self.words.add(&check.id, MAX_TEXT);
            let facts = self.checks.entry(id).or_insert_with(|| Facts {
                area: check.area.clone(),
                drains: check.drains,
                fixes: None,
            });
            if check.verdict > CheckState::Ok
                && !check.fixes.is_empty()
                && facts.fixes.as_ref().is_none_or(|(of, _)| name < *of)
            {
                facts.fixes = Some((name.clone(), check.fixes.iter().take(4).cloned().collect()));
            }
            // A check that is well needs no text.
            let summary = if check.verdict == CheckState::Ok { "" } else { &*check.summary };
            kept.checks.push((id, check.verdict, self.words.add(summary, MAX_TEXT)));
        }
        for value in report.values.iter().take(MAX_VALUES) {
            let key = self.words.add(&value.key, MAX_TEXT);
            kept.values.push((key, value.kind, self.words.add(&value.value, MAX_TEXT)));
        }
        if let Some(moment) = self.baseline.as_ref().and_then(|baseline| baseline.of(report)) {
            kept.has_baseline = true;
            let changes = moment.changes(report);
            kept.is_cut |= changes.len() > MAX_CHANGES;
            for change in changes.iter().take(MAX_CHANGES) {
                let mut word = |text| self.words.add(text, MAX_TEXT);
                kept.changes.push((word(&change.key), change.kind, word(&change.before), word(&change.now)));
            }
        }
        kept.checks.shrink_to_fit();
        kept.values.shrink_to_fit();
        kept.changes.shrink_to_fit();
        self.silent.remove(&name);
        self.nodes.insert(name, kept);
    }

    /// Records that a node did not answer.
    pub fn silent(&mut self, name: &str, silence: Silence) {
        if !self.nodes.contains_key(name) {
            self.silent.insert(name.to_owned(), silence);
        }
    }

    /// Number of nodes that answered.
    pub fn n_answered(&self) -> usize {
        self.nodes.len()
    }

    /// Number of nodes that did not answer.
    pub fn n_silent(&self) -> usize {
        self.silent.len()
    }

    /// The verdict of each check on each node; ordered by node, checks in no defined order.
    pub fn verdicts(&self) -> impl Iterator<Item = (&str, &str, CheckState)> {
        self.nodes.iter().flat_map(|(name, kept)| {
            kept.checks.iter().map(|(id, verdict, _)| (name.as_str(), self.words.get(*id), *verdict))
        })
    }

    /// Values of each node: node, key, value.
    pub fn values(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.nodes.iter().flat_map(|(name, kept)| {
            kept.values
                .iter()
                .map(|(key, _, value)| (name.as_str(), self.words.get(*key), self.words.get(*value)))
        })
    }

    /// Names of the nodes that did not answer.
    pub fn silent_names(&self) -> impl Iterator<Item = &str> {
        self.silent.keys().map(String::as_str)
    }

    /// Names of the nodes that answered.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// Offset of each node's clock from the asking host's: node, nanoseconds ahead, half the width of its interval.
    pub fn offsets(&self) -> impl Iterator<Item = (&str, i64, i64)> {
        self.nodes
            .iter()
            .filter_map(|(name, kept)| kept.offset.map(|(offset, error)| (name.as_str(), offset, error)))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests;
