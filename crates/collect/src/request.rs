//! What a probe is asked, handed to its process on standard input, and why it may have no answer.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Where the kernel's file systems are; a captured tree in tests.
    pub roots: Roots,
    /// Whose processes.
    pub target: Target,
    /// Time between two looks at a counter, milliseconds; 0 takes one look.
    pub window_ms: u64,
    /// NVML's library, where it is not the system's.
    pub nvml: Option<PathBuf>,
    /// Addresses that should answer.
    pub peers: Vec<Peer>,
    /// Patience with one connection, milliseconds; 0 takes [`Request::CONNECT_MS`].
    pub connect_ms: u64,
    /// Deadline of the whole probe, milliseconds.
    pub deadline_ms: u64,
    /// Longest that it is waited for while it merely lacks a processor, milliseconds. None: some seconds more.
    pub longest_ms: Option<u64>,
    /// The number that the process is called by in what is printed, if it is not its own.
    pub known_pid: Option<u32>,
    /// The file that is meant.
    pub file: Option<FileAsk>,
    /// Files of the process, by its own paths; any of them may be waited for.
    pub awaited: Vec<String>,
    /// They are written after this, nanoseconds since 1970.
    pub since_ns: i64,
    /// Native frames too, with Python's.
    pub native_frames: bool,
    /// How many samples are taken of a process.
    pub n_samples: u32,
    /// The time from one sample to the next, milliseconds.
    pub every_ms: u64,
}

impl Request {
    /// Usual time between two looks at a counter, milliseconds: long enough for an error rate to show, short enough for a report
    /// within two seconds.
    pub const WINDOW_MS: u64 = 400;
    /// Usual patience with one connection, milliseconds: two of them fit into those two seconds. Chosen.
    pub const CONNECT_MS: u64 = 800;
}

impl Request {
    /// The one process that is meant.
    pub(crate) fn pid(&self) -> Result<u32, ReadingError> {
        let first = self.target.pids.first().copied();
        first.ok_or_else(|| ReadingError::Failed("no process was named".to_owned()))
    }
}

/// Why there is no reading.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadingError {
    /// The node has no such thing.
    #[error("{0}")]
    Absent(String),
    /// It is there; reading it failed.
    #[error("{0}")]
    Failed(String),
}

/// A file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileAsk {
    /// Root it is looked for under, where a process has mounts of its own.
    pub root: Option<PathBuf>,
    /// Path, absolute under that root.
    pub path: PathBuf,
    /// Device and number of the file that was looked at before; another under its path is refused.
    pub is: Option<(u64, u64)>,
    /// Byte to begin at.
    pub from: u64,
}

/// Roots of the kernel's file systems.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Roots {
    /// /proc.
    pub proc: PathBuf,
    /// /sys.
    pub sys: PathBuf,
    /// /dev.
    pub dev: PathBuf,
    /// /etc.
    pub etc: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self::under(Path::new("/"))
    }
}

impl Roots {
    /// The four under another root.
    pub fn under(root: &Path) -> Self {
        Self { proc: root.join("proc"), sys: root.join("sys"), dev: root.join("dev"), etc: root.join("etc") }
    }
}

/// Whose processes are meant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Target {
    /// These and their children. Empty: all processes that carry a rank or use a GPU.
    pub pids: Vec<u32>,
    /// Those of this Slurm job.
    pub slurm_job: Option<String>,
    /// Some of `pids`, or all, may have ended: those that are left are meant, and none is no failure.
    pub may_be_gone: bool,
}

/// An address that should answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Peer {
    /// Name or address.
    pub host: String,
    /// Port; None: whether the host is there at all.
    pub port: Option<u16>,
    /// `master-address`, `peer`.
    pub purpose: String,
    /// Interface whose address to send from; None: as the kernel routes, and as NCCL would choose.
    pub interface: Option<String>,
}

impl Peer {
    /// Reads `host`, `host:port`, `address`, `[address]:port`.
    pub fn named(text: &str) -> Self {
        let (host, port) = match (text.rsplit_once(':'), text.strip_prefix('[')) {
            (_, Some(rest)) => match rest.split_once(']') {
                Some((host, port)) => (host, port.strip_prefix(':').and_then(|port| port.parse().ok())),
                None => (text, None),
            },
            // More colons: an address of IPv6 by itself.
            (Some((host, port)), None) if !host.contains(':') => match port.parse() {
                Ok(port) => (host, Some(port)),
                Err(_) => (text, None),
            },
            _ => (text, None),
        };
        Self { host: host.to_owned(), port, purpose: "peer".to_owned(), interface: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_a_port_or_none() {
        for (text, host, port) in [
            ("node7", "node7", None),
            ("node7:29500", "node7", Some(29_500)),
            ("10.0.0.7:22", "10.0.0.7", Some(22)),
            ("fd00::7", "fd00::7", None),
            ("[fd00::7]:22", "fd00::7", Some(22)),
            ("[fd00::7]", "fd00::7", None),
            ("node7:ssh", "node7:ssh", None),
        ] {
            let peer = Peer::named(text);
            assert_eq!((peer.host.as_str(), peer.port), (host, port), "{text}");
        }
    }
}
