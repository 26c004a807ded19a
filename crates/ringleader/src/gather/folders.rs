//! One command for each of several jobs, where each has a folder of its own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ringleader_model::Asks;
use ringleader_report::json::Report;

/// How the names of bundles end.
const BUNDLE: &str = ".tar.zst";
/// Commands that are shown.
const MAX_COMMANDS: usize = 12;

/// Puts the commands into the question that says that there are several jobs. Jobs that share a folder, such as attempts
/// in one log, keep the general one. Of two folders the first may be meant as the good run.
pub(crate) fn name(report: &mut Report, paths: &[PathBuf]) {
    let commands = match paths {
        [root] => commands(report, &root.display().to_string()),
        [good, bad] if report.jobs.len() > 1 && good.is_dir() && bad.is_dir() => compared(good, bad),
        _ => None,
    };
    let Some(commands) = commands else { return };
    let mut asked = report.undecided.iter_mut().filter(|open| open.asks == Asks::Job);
    if let Some(first) = asked.next() {
        first.command = commands;
    }
    asked.for_each(|open| open.command.clear());
}

fn commands(report: &Report, root: &str) -> Option<String> {
    // A bundle is one, too.
    let folder = |path: &str| {
        let name = path.split(['/', '!']).next().filter(|name| *name != path || path.ends_with(BUNDLE))?;
        Some(name.to_owned())
    };
    // A job is labelled by its first file.
    let of_jobs: BTreeSet<String> = report.jobs.iter().filter_map(|job| folder(&job.id)).collect();
    let all: Option<BTreeSet<String>> = report.looked_at.iter().map(|entry| folder(&entry.source)).collect();
    let all = all?;
    // Every job in one folder, and no folder with two.
    if of_jobs.len() < 2 || of_jobs.len() != report.jobs.len() || all.len() > MAX_COMMANDS {
        return None;
    }
    let of = |folder: &String| {
        let path = format!("{}/{folder}", root.trim_end_matches('/'));
        is_word(&path).then(|| format!("ringleader diagnose {path}"))
    };
    let lines: Option<Vec<String>> = all.iter().map(of).collect();
    lines.map(|lines| lines.join("\n"))
}

/// Each folder by itself, and the second against the first.
fn compared(good: &Path, bad: &Path) -> Option<String> {
    let [good, bad] = [good, bad].map(|path| path.display().to_string());
    (is_word(&good) && is_word(&bad)).then(|| {
        format!("ringleader diagnose {bad}\nringleader diagnose {good}\nringleader diagnose --against {good} {bad}")
    })
}

/// Whether a shell takes a path as one word without quotes.
fn is_word(path: &str) -> bool {
    !path.starts_with('-') && path.chars().all(|c| c.is_ascii_alphanumeric() || "_-./,:=+%@".contains(c))
}
