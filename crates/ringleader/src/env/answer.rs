//! What `env --format json` prints: `ringleader.env.v1`.

use schemars::JsonSchema;
use serde::Serialize;

/// The settings for the next start, and with `--check` what a running job lacks.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(title = "ringleader.env.v1")]
pub struct Answer {
    /// `ringleader.env.v1`.
    pub schema: String,
    /// What they were chosen for.
    pub installed: Installed,
    /// Folder for logs and dumps.
    pub directory: String,
    /// The settings, in the order of printing.
    pub variables: Vec<Variable>,
    /// What could not be found out.
    pub notes: Vec<String>,
    /// The running job that was compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
}

/// Versions and places.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Installed {
    /// The interpreter whose packages were looked at.
    pub python: Option<String>,
    /// Version of PyTorch.
    pub torch: Option<String>,
    /// Version of NCCL.
    pub nccl: Option<String>,
    /// The NCCL plugin.
    pub plugin: Option<String>,
}

/// One setting.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// The value for it.
    pub value: String,
    /// Who reads it: `PyTorch`, `NCCL`, `Python`.
    pub reader: String,
    /// What becomes of it.
    pub state: State,
    /// The value that it has now, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub was: Option<String>,
    /// What it gives.
    pub gives: String,
    /// What it costs the job.
    pub costs: String,
    /// What a diagnosis lacks without it.
    pub without: String,
}

/// What becomes of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is to be set to `value`.
    Export,
    /// It has a value that does.
    Kept,
    /// It has a value that does not do, and is left to its user.
    Left,
}

/// A running job compared with the settings.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Check {
    /// The process that was named.
    pub pid: u32,
    /// Processes of the job that were compared.
    pub pids: Vec<u32>,
    /// What was compared, what lacks first.
    pub settings: Vec<Compared>,
}

/// A setting of the running job.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Compared {
    /// Its name.
    pub name: String,
    /// Its state.
    pub standing: Standing,
    /// Its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is: Option<String>,
    /// What it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub should: Option<String>,
    /// What that costs, or means.
    pub why: String,
    /// Processes for which this is true.
    pub pids: Vec<u32>,
}

/// The state of a setting of a running job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// It is not set.
    Missing,
    /// It has a value that does not do.
    Differs,
    /// It is set, and this release does not read it, or no program does.
    Unread,
    /// Its value is not read as it is meant.
    Misread,
    /// It does.
    Good,
}

impl Standing {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Differs => "differs",
            Self::Unread => "unread",
            Self::Misread => "misread",
            Self::Good => "good",
        }
    }
}

/// The JSON Schema of what is printed, as committed in `docs/`.
pub fn schema() -> String {
    let mut value = schemars::schema_for!(Answer).to_value();
    if let Some(property) =
        value.pointer_mut("/properties/schema").and_then(|property| property.as_object_mut())
    {
        property.insert("const".to_owned(), super::SCHEMA.into());
    }
    format!("{value:#}\n")
}
