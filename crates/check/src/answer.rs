//! The answer of a check.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Its state. Ordered by how bad it is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Verdict")]
pub enum CheckState {
    /// /// Unknown, or not applicable: the summary says why.
    #[default]
    Skipped,
    /// Well.
    Ok,
    /// Worth a look; does not stop a job.
    Warn,
    /// Stops or spoils a job.
    Fail,
}

impl CheckState {
    /// Its name as printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// What an action costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Impact {
    /// Reads only, or changes the next run only.
    Harmless,
    /// Stops or restarts a job or a service.
    Disruptive,
    /// Loses state that cannot be had again.
    Destructive,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fix {
    /// One sentence.
    pub text: String,
    /// Command, ready to run.
    pub command: Option<String>,
    /// What it costs.
    pub impact: Impact,
    /// `check --fix` may run it after asking.
    pub is_automatic: bool,
}

/// One thing that was looked at and is not well, or is worth showing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Item {
    /// What it is about: `GPU 3 (0000:5d:00.0)`, `eth0`, `pid 4711 (rank 2)`.
    pub subject: String,
    /// Its state.
    pub verdict: CheckState,
    /// One sentence.
    pub text: String,
    /// Where it was read, and the text there.
    pub evidence: String,
}

/// A value that is compared with other nodes and with a baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Value {
    /// `driver-version`, `gpu.3.links-up`.
    pub key: String,
    /// As text; numbers in plain decimal form.
    pub value: String,
    /// How it is compared.
    pub kind: ValueKind,
}

/// How a value is compared with that of peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ValueKind {
    /// Has to be the same everywhere: versions, counts, settings.
    Same,
    /// A number that is near that of the peers: temperature, power, clock offset.
    Near,
    /// A counter that must not grow between a baseline and now.
    Counter,
}

/// The answer of a check.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckAnswer {
    /// The verdict.
    pub verdict: CheckState,
    /// One line.
    pub summary: String,
    /// What is not well, worst first.
    pub items: Vec<Item>,
    /// Recommended actions.
    pub fixes: Vec<Fix>,
    /// Values to compare with other nodes and with a baseline.
    pub values: Vec<Value>,
}

impl CheckAnswer {
    /// Everything is well.
    pub fn ok(summary: impl Into<String>) -> Self {
        Self { verdict: CheckState::Ok, summary: summary.into(), ..Self::default() }
    }

    /// The check could not be decided or does not apply; `why` is the summary.
    pub fn skipped(why: impl Into<String>) -> Self {
        Self { verdict: CheckState::Skipped, summary: why.into(), ..Self::default() }
    }

    /// The worst item decides the verdict; `ok` is the summary if none is bad. Otherwise the summary is the first
    /// item and the number of further ones.
    pub fn from_items(ok: impl Into<String>, mut items: Vec<Item>) -> Self {
        items.sort_by_key(|item| std::cmp::Reverse(item.verdict));
        let verdict = items.first().map_or(CheckState::Ok, |item| item.verdict).max(CheckState::Ok);
        let summary = match items.first() {
            Some(first) if verdict > CheckState::Ok => {
                let n_more = items.iter().filter(|item| item.verdict > CheckState::Ok).count() - 1;
                let more = if n_more == 0 { String::new() } else { format!(" (and {n_more} more)") };
                format!("{}: {}{more}", first.subject, first.text)
            }
            _ => ok.into(),
        };
        Self { verdict, summary, items, ..Self::default() }
    }

    /// Adds a recommended action if the answer is bad.
    #[must_use]
    pub fn advise(mut self, impact: Impact, text: impl Into<String>, command: Option<String>) -> Self {
        if self.verdict > CheckState::Ok {
            self.fixes.push(Fix { text: text.into(), command, impact, is_automatic: false });
        }
        self
    }

    /// Adds an action that `--fix` may run after asking, if the answer is bad. Only for actions that cannot do harm.
    #[must_use]
    pub fn advise_automatic(mut self, text: impl Into<String>, command: impl Into<String>) -> Self {
        if self.verdict > CheckState::Ok {
            self.fixes.push(Fix {
                text: text.into(),
                command: Some(command.into()),
                impact: Impact::Harmless,
                is_automatic: true,
            });
        }
        self
    }

    /// Publishes a value for comparison.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "callers hand over numbers and texts as they come")]
    pub fn value(mut self, key: impl Into<String>, value: impl ToString, kind: ValueKind) -> Self {
        self.values.push(Value { key: key.into(), value: value.to_string(), kind });
        self
    }
}
