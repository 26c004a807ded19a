//! Environment variables as a process or a shell had them.

use crate::Cite;

/// One listing of variables. Only those that matter to a job are kept; no other value ever is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// How it was written.
    pub form: EnvironmentForm,
    /// Variables in their order; a name stands once.
    pub settings: Vec<Setting>,
    /// Variables that were there and are none of this program's business, values unread.
    pub n_left_out: u32,
    /// Variables that every process has are there too: what is not listed was not set.
    pub is_whole: bool,
}

/// How a listing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EnvironmentForm {
    /// `NAME=value`, as env and printenv print it; values stand as they are.
    Listed,
    /// `export NAME=value`, `declare -x NAME="value"`: a shell's, quotes taken away.
    Shell,
    /// A configuration file of NCCL (`/etc/nccl.conf`, `~/.nccl.conf`): the environment goes before it.
    ConfFile,
    /// `/proc/PID/environ`: what the process was started with. What it set itself later is missing.
    Process,
}

/// One variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Where it stands.
    pub cite: Cite,
    /// Name.
    pub name: Box<str>,
    /// Value, without the quotes of a shell.
    pub value: Box<str>,
}

impl Environment {
    /// The value of a variable, if it was set.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|s| &*s.name == name).map(|s| &*s.value)
    }
}
