//! The jobs of this node, separated if no process was named.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use ringleader_collect::above::{self, Rankless};
use ringleader_collect::follow;
use ringleader_collect::kin::Kin;
use ringleader_report::quote::plain;

/// A job whose ranks run here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalJob {
    /// The process that started its ranks, or its first rank.
    pub(crate) root: u32,
    /// Its ranks, by pid, and the root.
    pub(crate) pids: Vec<u32>,
    /// `train.py, pid 4711`.
    pub(crate) label: String,
}

/// The jobs that run here now, by their first pid.
pub(crate) fn here() -> Vec<LocalJob> {
    let proc = Path::new("/proc");
    let all = follow::processes(proc);
    let found = Kin::new(proc, follow::ring_folders()).jobs(&all);
    found
        .into_iter()
        .map(|mut job| {
            let root = job.root;
            let label = label(root, job.pids.first().copied().unwrap_or(root));
            job.pids.insert(root);
            LocalJob { root, pids: job.pids.into_iter().collect(), label }
        })
        .collect()
}

/// Processes and jobs that are named.
const MAX_NAMED: usize = 8;

/// Why nothing of a job is below these processes; none if it may be. A diagnosis would be about a shell that waits.
pub(crate) fn without_ranks(pids: &[u32]) -> Option<String> {
    let Rankless { asked, started } = above::without_ranks(Path::new("/proc"), pids)?;
    let named = |(pid, command): &(u32, Box<str>)| format!("{pid} ({})", plain(command));
    let more = |n: usize| if n > MAX_NAMED { format!(" and {} more", n - MAX_NAMED) } else { String::new() };
    let asked: Vec<String> = asked.iter().map(named).collect();
    let n_started = started.len();
    let started: Vec<String> = started.iter().take(MAX_NAMED).map(named).collect();
    let started = if started.is_empty() {
        "it has started nothing that runs".to_owned()
    } else {
        format!("looked at what it has started: {}{}", started.join(", "), more(n_started))
    };
    let jobs = here();
    let labels: Vec<String> = jobs.iter().take(MAX_NAMED).map(|job| plain(&job.label)).collect();
    let jobs = if labels.is_empty() {
        "no job is seen on this node".to_owned()
    } else {
        format!("jobs of this node: {}{}", labels.join("; "), more(jobs.len()))
    };
    Some(format!(
        "process {} has no rank below it; {started}; give the pid of a rank or of what starts the ranks on this node (torchrun); {jobs}",
        asked.join(", ")
    ))
}

/// `job.tar.zst` of the job with root 4711: `job-pid4711.tar.zst`.
pub(crate) fn named_after(path: &Path, root: u32) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // A name may begin with a dot.
    let dot = name.char_indices().skip(1).find(|(_, c)| *c == '.').map_or(name.len(), |(at, _)| at);
    let (stem, rest) = name.split_at(dot);
    path.with_file_name(format!("{stem}-pid{root}{rest}"))
}

/// `train.py, pid 4711`.
pub(crate) fn label(root: u32, rank: u32) -> String {
    let words = std::fs::read(format!("/proc/{rank}/cmdline")).unwrap_or_default();
    let mut words = words.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let program = words.next().unwrap_or_default().into_owned();
    let script = words.find(|word| word.ends_with(".py")).map_or(program, Cow::into_owned);
    let name = PathBuf::from(script).file_name().map(|name| name.to_string_lossy().into_owned());
    match name {
        Some(name) => format!("{name}, pid {root}"),
        None => format!("pid {root}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_named_after_its_job() {
        for (path, named) in [
            ("out/job.tar.zst", "out/job-pid7.tar.zst"),
            ("job", "job-pid7"),
            (".job.tar.zst", ".job-pid7.tar.zst"),
        ] {
            assert_eq!(named_after(Path::new(path), 7), Path::new(named));
        }
    }
}
