//! One command for each of several jobs, where each has a folder of its own.

use std::collections::BTreeSet;
use std::path::PathBuf;

use ringleader_report::SEVERAL_JOBS;
use ringleader_report::json::Report;

/// Commands that are shown.
const MAX_COMMANDS: usize = 12;

/// Puts the commands into the question that says that there are several jobs. Jobs that share a folder, such as attempts
/// in one log, keep the general one.
pub(crate) fn name(report: &mut Report, paths: &[PathBuf]) {
    let [root] = paths else { return };
    let Some(commands) = commands(report, &root.display().to_string()) else { return };
    let mut asked = report.undecided.iter_mut().filter(|open| open.question.starts_with(SEVERAL_JOBS));
    if let Some(first) = asked.next() {
        first.command = commands;
    }
    asked.for_each(|open| open.command.clear());
}

fn commands(report: &Report, root: &str) -> Option<String> {
    let folder = |path: &str| Some(path.split_once('/')?.0.to_owned());
    // A job is labelled by its first file.
    let of_jobs: BTreeSet<String> = report.jobs.iter().filter_map(|job| folder(&job.id)).collect();
    let all: Option<BTreeSet<String>> = report.looked_at.iter().map(|entry| folder(&entry.source)).collect();
    let all = all?;
    // Every job in one folder, and no folder with two.
    if of_jobs.len() < 2 || of_jobs.len() != report.jobs.len() || all.len() > MAX_COMMANDS {
        return None;
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./,:=+%@".contains(c);
    let of = |folder: &String| {
        let path = format!("{}/{folder}", root.trim_end_matches('/'));
        let is_word = path.chars().all(is_plain) && !path.starts_with('-');
        is_word.then(|| format!("ringleader diagnose {path}"))
    };
    let lines: Option<Vec<String>> = all.iter().map(of).collect();
    lines.map(|lines| lines.join("\n"))
}
