//! What `collect` has done in processes of their own beside the probes: each may hang, or crash on a process it looks
//! into, without costing the bundle.

mod dump;
mod file;
mod owners;
mod ras;
mod samples;
mod stacks;
mod threads;

use crate::probe::{Probe, json};
use crate::request::ReadingError;

pub(crate) use self::file::{FileFacts, open, pour};
pub(crate) use self::ras::RasAnswer;

/// All of them. Each looks at the first process of the request.
pub(crate) static ALL: &[Probe] = &[
    Probe {
        name: "stacks-of",
        deadline_ms: 6_000,
        privileges: "CAP_SYS_PTRACE, or the same user where kernel.yama.ptrace_scope is 0",
        take: |request| json(stacks::take(request)),
    },
    Probe {
        name: "samples-of",
        deadline_ms: 30_000,
        privileges: "as stacks-of",
        take: |request| json(samples::take(request)),
    },
    Probe {
        name: "threads-of",
        deadline_ms: 3_000,
        privileges: "root, for the kernel's stacks",
        take: |request| json(threads::take(request)),
    },
    Probe {
        name: "ras-of",
        deadline_ms: 6_500,
        privileges: "CAP_SYS_ADMIN, to enter the network namespace of a container",
        take: |request| json(ras::take(request)),
    },
    Probe {
        name: "ask-of",
        deadline_ms: 2_000,
        privileges: "to write to the job's pipe",
        take: |request| json(dump::ask(request)),
    },
    Probe {
        name: "written-of",
        // torch's thread looks at its pipe every 100 ms by default, and writes some MiB.
        deadline_ms: 10_500,
        privileges: "to look at the job's files",
        take: |request| json(dump::wait(request)),
    },
    Probe {
        name: "file-of",
        deadline_ms: 2_000,
        privileges: "to read the file",
        take: |request| json(file::take(request)),
    },
    Probe {
        name: "files-below",
        deadline_ms: 5_000,
        privileges: "to read the folders",
        take: |request| json(file::below(request)),
    },
    Probe {
        name: "cache-of",
        deadline_ms: 1_000,
        privileges: "root, to inspect other users' processes",
        take: |request| json(file::cache(request)),
    },
    Probe {
        name: BYTES_OF,
        // Of a file; silence ends it sooner.
        deadline_ms: 60_000,
        privileges: "to read the file",
        take: |_| Err(ReadingError::Failed("it answers with bytes".to_owned())),
    },
];

/// The task whose answer is no JSON but for its first line.
pub(crate) const BYTES_OF: &str = "bytes-of";
