//! The report of a node (`ringleader.check.v1`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::answer::{CheckAnswer, CheckState, Fix, Item, Value};
use crate::rule::Check;

/// Name and version of the format.
pub const SCHEMA: &str = "ringleader.check.v1";

/// A check's answer in a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckResult {
    /// Id of the check.
    pub id: String,
    /// Heading.
    pub area: String,
    /// Its state.
    pub verdict: CheckState,
    /// One line.
    pub summary: String,
    /// A failure of it justifies draining the node.
    pub drains: bool,
    /// What is not well.
    pub items: Vec<Item>,
    /// What to do.
    pub fixes: Vec<Fix>,
}

impl CheckResult {
    /// The result of `check`.
    pub fn new(check: &Check, answer: CheckAnswer) -> Self {
        Self {
            id: check.id.to_owned(),
            area: check.area.name().to_owned(),
            verdict: answer.verdict,
            summary: answer.summary,
            drains: check.drains,
            items: answer.items,
            fixes: answer.fixes,
        }
    }
}

/// The answers of one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the program.
    pub tool_version: String,
    /// Host, as it calls itself.
    pub host: String,
    /// Name it was asked by, if that is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// When, nanoseconds since 1970 by the node's clock.
    pub at_ns: i64,
    /// How long the reading took, milliseconds.
    pub took_ms: u64,
    /// Answers, in the order of the list of checks.
    pub checks: Vec<CheckResult>,
    /// Values for comparison.
    pub values: Vec<Value>,
    /// What is different from a baseline, if one was given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
}

impl NodeReport {
    /// Name of the node: the one by which it was asked, else its own.
    pub fn name(&self) -> &str {
        self.target.as_deref().unwrap_or(&self.host)
    }

    /// The worst verdict; skipped if nothing could be decided.
    pub fn verdict(&self) -> CheckState {
        self.checks.iter().map(|check| check.verdict).max().unwrap_or_default()
    }

    /// Whether a check whose failure justifies draining has failed.
    pub fn drains(&self) -> bool {
        self.checks.iter().any(|check| check.drains && check.verdict == CheckState::Fail)
    }
}

/// What is different now.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Key of the value, or id of the check.
    pub key: String,
    /// What happened.
    pub kind: ChangeKind,
    /// Then.
    pub before: String,
    /// Now; empty if it is gone.
    pub now: String,
}

/// What happened to a value or a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// A check's verdict is worse than it was.
    Worse,
    /// A counter has grown.
    Grew,
    /// A value is another one.
    Changed,
    /// It was read then, and was not read now.
    Gone,
    /// A counter is lower than it was: the node or driver was restarted since. No fault.
    Restarted,
}

impl ChangeKind {
    /// Whether the change needs attention.
    pub fn is_trouble(self) -> bool {
        self != Self::Restarted
    }
}
