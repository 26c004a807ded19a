//! Environment variables of a process or a shell.

use crate::Cite;

/// One listing of variables. Only those that matter to a job are kept; other values are never stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Format of the listing.
    pub form: EnvironmentForm,
    /// Variables in their order, each name once.
    pub settings: Vec<Setting>,
    /// Number of variables that do not matter to a job; their values were not read.
    pub n_left_out: u32,
    /// Whether the variables of every process are present as well, so that a missing variable was unset.
    pub is_whole: bool,
}

/// Format of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EnvironmentForm {
    /// `NAME=value`, as env and printenv print it; values are literal.
    Listed,
    /// `export NAME=value`, `declare -x NAME="value"`: from a shell, with quotes removed.
    Shell,
    /// A configuration file of NCCL (`/etc/nccl.conf`, `~/.nccl.conf`): the environment takes precedence.
    ConfFile,
    /// `/proc/PID/environ`: the environment at the start of the process, without its later changes.
    Process,
}

/// One variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Where it was read.
    pub cite: Cite,
    /// Name.
    pub name: Box<str>,
    /// Value, without a shell's quotes.
    pub value: Box<str>,
}

impl Environment {
    /// The value of a variable, if it was set.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|s| &*s.name == name).map(|s| &*s.value)
    }
}
