//! Many nodes as one table: what most of them say, and who differs.
//!
//! Reports are taken in one by one, in whatever order they arrive, and only a few KB of each are kept: verdicts,
//! reasons, and the values that are compared. What comes out does not depend on the order.
//!
//! Peers before thresholds, and no blame without a majority: of fewer than three nodes differing values are shown and
//! nobody is blamed, and where no value holds more than half of the nodes that is what is said.

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
use self::words::{Word, Words};
use crate::answer::{Fix, ValueKind, Verdict};
use crate::baseline::Baseline;
use crate::report::{ChangeKind, NodeReport};

/// Values of one node that are kept.
const MAX_VALUES: usize = 2048;
/// Checks of one node that are kept.
const MAX_CHECKS: usize = 512;
/// Changes of one node that are kept.
const MAX_CHANGES: usize = 256;
/// Bytes of a summary, a value or a reason that are kept.
const MAX_TEXT: usize = 400;

/// When a node was asked and when its answer came, nanoseconds since 1970 by the asker's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Before the connection was made.
    pub sent_ns: i64,
    /// After the whole answer was there.
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
    /// As printed.
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
    /// What kind.
    pub kind: SilenceKind,
    /// What was said, without the host's name, so that equal reasons come together.
    pub why: String,
    /// What to do about it.
    pub next: String,
}

/// What is kept of a node's report.
#[derive(Debug)]
struct Kept {
    host: Word,
    tool_version: Word,
    offset: Option<(i64, i64)>,
    checks: Vec<(Word, Verdict, Word)>,
    values: Vec<(Word, ValueKind, Word)>,
    changes: Vec<(Word, ChangeKind, Word, Word)>,
    has_baseline: bool,
    is_cut: bool,
}

/// What a check's answers have in common.
#[derive(Debug)]
struct Facts {
    area: String,
    drains: bool,
    /// Of the first of the failing nodes by name, so that the order of arrival does not show.
    fixes: Option<(String, Vec<Fix>)>,
}

/// Reports of many nodes, in bounded memory.
#[derive(Debug, Default)]
pub struct Fleet {
    words: Words,
    nodes: BTreeMap<String, Kept>,
    silent: BTreeMap<String, Silence>,
    checks: BTreeMap<Word, Facts>,
    baseline: Option<Baseline>,
}

impl Fleet {
    /// An empty one; answers are held against `baseline`, if there is one.
    pub fn new(baseline: Option<Baseline>) -> Self {
        Self { baseline, ..Self::default() }
    }

    /// Takes in the report of a node. The first report of a name counts.
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
            if check.verdict > Verdict::Ok
                && !check.fixes.is_empty()
                && facts.fixes.as_ref().is_none_or(|(of, _)| name < *of)
            {
                facts.fixes = Some((name.clone(), check.fixes.iter().take(4).cloned().collect()));
            }
            // What is well needs no words.
            let summary = if check.verdict == Verdict::Ok { "" } else { &*check.summary };
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

    /// Takes in that a node did not answer.
    pub fn silent(&mut self, name: &str, silence: Silence) {
        if !self.nodes.contains_key(name) {
            self.silent.insert(name.to_owned(), silence);
        }
    }

    /// Nodes that answered.
    pub fn n_answered(&self) -> usize {
        self.nodes.len()
    }

    /// Nodes that did not.
    pub fn n_silent(&self) -> usize {
        self.silent.len()
    }

    /// The verdict of each check on each node, by node, then in no order that means anything.
    pub fn verdicts(&self) -> impl Iterator<Item = (&str, &str, Verdict)> {
        self.nodes.iter().flat_map(|(name, kept)| {
            kept.checks.iter().map(|(id, verdict, _)| (name.as_str(), self.words.get(*id), *verdict))
        })
    }

    /// Values of each node that are numbers or words: node, key, value.
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

    /// Difference of each node's clock to the asker's: node, nanoseconds ahead, half the width of the interval it lies in.
    pub fn offsets(&self) -> impl Iterator<Item = (&str, i64, i64)> {
        self.nodes
            .iter()
            .filter_map(|(name, kept)| kept.offset.map(|(offset, error)| (name.as_str(), offset, error)))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests;
