//! An explanation, version 1. These types are the format: the schema in `docs/explain-v1.schema.json` is generated from
//! them. Within version 1 fields are only added.

use ringleader_report::json::{self, Action};
use schemars::JsonSchema;
use serde::Serialize;

/// The answer to one question.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Explanation {
    /// Name and version of this format.
    pub schema: Schema,
    /// What was asked, at most 400 characters of it, with control characters spelled out.
    pub query: String,
    /// What it may be, the likeliest first. Several if the question is ambiguous; none if nothing is known.
    pub topics: Vec<Topic>,
    /// Names that are spelled alike, if nothing is known by this one.
    pub nearest: Vec<String>,
}

/// Name and version of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Schema {
    /// This version.
    #[serde(rename = "ringleader.explain.v1")]
    V1,
}

/// One thing that can be explained.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Topic {
    /// What sort of thing it is.
    pub kind: Kind,
    /// What to ask for to get exactly this: `xid 79`.
    pub name: String,
    /// A few words.
    pub title: String,
    /// What was read in the text that was asked about; empty for a bare name.
    pub read: Vec<Detail>,
    /// What it means.
    pub meaning: String,
    /// How it shows in evidence.
    pub shows: Vec<String>,
    /// Why it happens.
    pub why: Vec<String>,
    /// What it looks like and is not.
    pub is_not: Vec<String>,
    /// What is worth knowing besides.
    pub notes: Vec<String>,
    /// More that is known of it: versions, defaults, ranges, who reads it.
    pub details: Vec<Detail>,
    /// What to do, in prose.
    pub advice: Vec<String>,
    /// What to do, first things first.
    pub actions: Vec<Action>,
    /// Names of other topics worth asking for.
    pub see_also: Vec<String>,
    /// Where this is known from.
    pub sources: Vec<String>,
}

/// A name and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Detail {
    /// Name of the value.
    pub name: String,
    /// The value, as text.
    pub value: String,
}

/// What sort of thing a topic is. The list may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A cause that a verdict may name.
    Cause,
    /// A rule that looks for one.
    Rule,
    /// A fault that the driver reports, by number.
    Xid,
    /// A fault that an NVSwitch reports, by number.
    Sxid,
    /// A result code of NCCL.
    NcclResult,
    /// A text that NCCL prints.
    NcclMessage,
    /// An error of CUDA.
    CudaError,
    /// A text of a program, a framework or a launcher.
    Message,
    /// An environment variable.
    Variable,
    /// A name that looks like a variable and that no program reads.
    UnreadVariable,
    /// A way in which a value is taken for another.
    ValueTrap,
    /// The rate of a link.
    Link,
    /// Bandwidth that nodes reach.
    Bandwidth,
    /// What people see before they have a name for it.
    Symptom,
    /// A status of a library, a launcher or a scheduler.
    Status,
    /// A check of a node.
    Check,
    /// A word of a report.
    Term,
}

impl Kind {
    /// In words, for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Cause => "cause",
            Self::Rule => "rule",
            Self::Xid => "Xid",
            Self::Sxid => "SXid",
            Self::NcclResult => "NCCL result",
            Self::NcclMessage => "NCCL message",
            Self::CudaError => "CUDA error",
            Self::Message => "message",
            Self::Variable => "variable",
            Self::UnreadVariable => "not a variable",
            Self::ValueTrap => "trap",
            Self::Link => "link",
            Self::Bandwidth => "bandwidth",
            Self::Symptom => "symptom",
            Self::Status => "status",
            Self::Check => "check",
            Self::Term => "word of a report",
        }
    }
}

impl Topic {
    /// A topic that says nothing yet.
    pub(crate) fn new(kind: Kind, name: impl Into<String>, title: impl Into<String>) -> Self {
        Self {
            kind,
            name: name.into(),
            title: title.into(),
            read: Vec::new(),
            meaning: String::new(),
            shows: Vec::new(),
            why: Vec::new(),
            is_not: Vec::new(),
            notes: Vec::new(),
            details: Vec::new(),
            advice: Vec::new(),
            actions: Vec::new(),
            see_also: Vec::new(),
            sources: Vec::new(),
        }
    }

    /// Adds a detail unless there is nothing to say.
    pub(crate) fn detail(&mut self, name: &str, value: impl Into<String>) {
        push(&mut self.details, name, value.into());
    }

    /// Adds something that was read unless there is nothing to say.
    pub(crate) fn read(&mut self, name: &str, value: impl Into<String>) {
        push(&mut self.read, name, value.into());
    }

    /// Adds a name to look at, once.
    pub(crate) fn see(&mut self, name: impl Into<String>) {
        let name = name.into();
        if name != self.name && !self.see_also.contains(&name) {
            self.see_also.push(name);
        }
    }
}

impl Topic {
    /// Puts names before those that are there already.
    pub(crate) fn see_first(&mut self, names: Vec<String>) {
        let rest = std::mem::take(&mut self.see_also);
        for name in names.into_iter().chain(rest) {
            self.see(name);
        }
    }
}

fn push(list: &mut Vec<Detail>, name: &str, value: String) {
    if !value.is_empty() {
        list.push(Detail { name: name.to_owned(), value });
    }
}

impl Explanation {
    /// As printed: JSON with a newline at its end.
    ///
    /// # Errors
    /// None that is known of: all fields are strings and lists.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        json::print(self)
    }
}

/// The schema of this format, generated from its types.
pub fn schema() -> String {
    let schema = schemars::schema_for!(Explanation);
    format!("{schema:#}\n", schema = schema.as_value())
}
