//! The input of a check: the snapshot, the user's expectations, and the kernel log as events.

use ringleader_evidence::{Limits, Scratch};
use ringleader_model::{Fact, KernelEvent, KernelEventKind};
use ringleader_node::{Missing, Node, Process};

use crate::answer::CheckAnswer;

/// The user's expectations of a node; None if the check has to find out by itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expectations {
    /// Number of GPUs.
    pub n_gpus: Option<u32>,
    /// Kernel events before this time do not count, nanoseconds since 1970: the start of the job. None: the
    /// earliest start of a process of the job, if there is one, else the boot.
    pub since_ns: Option<i64>,
}

/// A statement of the kernel log with its time and text.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelLine<'a> {
    /// Nanoseconds since 1970, derived from the boot time.
    pub at_ns: i64,
    /// The line as the kernel wrote it, without its timestamp.
    pub text: &'a str,
    /// Its content.
    pub event: KernelEvent,
    /// Whether it is from after the start of the job.
    pub is_recent: bool,
}

/// A node, ready to be judged.
pub struct NodeView<'a> {
    /// The snapshot.
    pub node: &'a Node,
    /// The user's expectations.
    pub options: &'a Expectations,
    /// Kernel events, oldest first; Err if the log was not read.
    pub kernel: Result<Vec<KernelLine<'a>>, Missing>,
}

impl<'a> NodeView<'a> {
    /// Prepares `node` for the checks.
    pub fn new(node: &'a Node, options: &'a Expectations) -> Self {
        let began_ns = options.since_ns.or_else(|| {
            let jobs = node.jobs.get()?;
            jobs.processes.iter().filter(|p| p.rank().is_some()).map(|p| p.started_ns).min()
        });
        let kernel = node.kernel_log.seen().map(|log| kernel_lines(node, &log.lines, began_ns));
        Self { node, options, kernel }
    }

    /// The processes that are ranks, by rank, without their workers and shells, which carry the same variables.
    pub fn ranks(&self) -> impl Iterator<Item = &'a Process> {
        self.node.jobs.get().into_iter().flat_map(crate::jobs::ranks)
    }
}

/// A missing reading becomes a skipped answer; one that hung or failed says so.
impl From<Missing> for CheckAnswer {
    fn from(missing: Missing) -> Self {
        Self::skipped(missing.why)
    }
}

/// Reads the lines with the reader that `diagnose` uses, and gives each event its time.
fn kernel_lines<'a>(node: &Node, lines: &'a [String], began_ns: Option<i64>) -> Vec<KernelLine<'a>> {
    let text = lines.join("\n");
    let extract =
        ringleader_evidence::read("kmsg", &mut text.as_bytes(), &mut Scratch::default(), &Limits::default());
    let boot_ns = node.system.get().map(|system| node.at_ns - (system.uptime_s * 1e9) as i64);
    extract
        .observations
        .into_iter()
        .filter_map(|observation| {
            let Fact::Kernel(event) = observation.fact else { return None };
            if matches!(event.kind, KernelEventKind::Covers(_)) {
                return None;
            }
            let line = lines.get((observation.cite.line as usize).checked_sub(1)?)?;
            let text = line.split_once(';').map_or(line.as_str(), |(_, text)| text);
            let at_ns = boot_ns.unwrap_or(0) + event.uptime_us.unwrap_or(0) as i64 * 1000;
            let is_recent = began_ns.is_none_or(|began| boot_ns.is_none() || at_ns >= began);
            Some(KernelLine { at_ns, text, event: *event, is_recent })
        })
        .collect()
}
