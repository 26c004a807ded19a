//! Logs, dumps and error files of the job: those its processes have open, those their environment names, and the paths
//! that the user names.
//!
//! A path that only an environment names is read if it belongs to the process's user or everybody may read it: who runs
//! this may be root, and the environment is the job's. A dump from before its process began is of another run.
//!
//! Nothing here touches the files themselves: processes of their own do, and where one hangs, the others on the same
//! file system are left out.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringleader_bundle::{Content, Item, Origin, Outcome};
use ringleader_node::Process;

use super::poured::Poured;
use super::{Context, label, outcome_of, tame};
use crate::request::{FileAsk, Request, Target};
use crate::sysfs::names;
use crate::tasks::FileFacts;

/// Files that are taken, of all processes together.
const MAX_FILES: usize = 4_096;
/// Longest that one file is read.
const LONGEST: Duration = Duration::from_mins(1);

/// Files of one file system that are waited for in vain before the others are left out: one may be slow by chance.
const MAX_IN_VAIN: usize = 2;

/// Namespace and mount point of a file system that does not answer, and the file that told.
type Hung = (PathBuf, String, String);

/// A file that is wanted.
struct Wanted {
    kind: &'static str,
    name: String,
    /// Path as its owner knows it.
    path: String,
    ask: FileAsk,
    /// Its process: pid, user, start.
    of: Option<(u32, u32, i64)>,
    /// Only an environment names it.
    is_claimed: bool,
    /// Something says that it should be there.
    is_expected: bool,
}

pub(super) fn collect(context: &mut Context<'_, '_>) -> Result<(), ringleader_bundle::Trouble> {
    let mut wanted = Vec::new();
    if context.ask.with_logs {
        let processes: Vec<Process> = context.jobs().map(|jobs| jobs.processes.clone()).unwrap_or_default();
        let mut met = BTreeSet::new();
        for process in processes.iter().filter(|p| p.state != "Z" && p.pid != std::process::id()) {
            for file in of_process(context, process) {
                let container = file.ask.root.clone().map(|_| mounts_of(process.pid));
                if met.insert((container, file.path.clone())) {
                    wanted.push(file);
                }
            }
        }
    }
    for path in &context.ask.paths {
        named(context, path, &mut wanted);
    }
    let n_more = wanted.len().saturating_sub(MAX_FILES);
    wanted.truncate(MAX_FILES);
    let mut hung: Vec<Hung> = Vec::new();
    for file in wanted {
        let place = place_of(&file);
        let item = context.item(file.kind, &file.name, Origin::Path(file.path.clone()));
        let mut in_vain = hung.iter().filter(|(names, at, _)| (names, at) == (&place.0, &place.1));
        if let Some((_, at, by)) = in_vain.nth(MAX_IN_VAIN - 1) {
            let why = format!("its file system ({at}) does not answer: {by} was waited for in vain");
            let pid = file.of.map(|(pid, ..)| pid);
            context.bundle.missing(Item { outcome: Outcome::Failed(vec![why]), pid, ..item });
        } else if take(context, &file, item)? {
            hung.push((place.0, place.1, file.path.clone()));
        }
    }
    if n_more > 0 {
        let why = format!("{n_more} files more than the {MAX_FILES} that are taken; name them as paths");
        let item = context.item("log", "", Origin::Unknown);
        context.bundle.missing(Item { outcome: Outcome::Skipped(why), ..item });
    }
    Ok(())
}

/// Takes a file; true if it was waited for in vain.
fn take(
    context: &mut Context<'_, '_>,
    file: &Wanted,
    mut item: Item,
) -> Result<bool, ringleader_bundle::Trouble> {
    let request = Request { file: Some(file.ask.clone()), deadline_ms: 0, ..context.ask.request.clone() };
    let part = context.run("file-of", &request);
    item.pid = file.of.map(|(pid, ..)| pid);
    let facts: Option<FileFacts> = part.get().and_then(|value| serde_json::from_value(value.clone()).ok());
    let Some(facts) = facts else {
        let is_absent = matches!(part.outcome, ringleader_node::Outcome::Absent(_));
        if !is_absent || file.is_expected {
            let outcome = outcome_of(&part)
                .unwrap_or_else(|| Outcome::Failed(vec!["its answer is not understood".to_owned()]));
            context.bundle.missing(Item { outcome, ..item });
        }
        return Ok(matches!(part.outcome, ringleader_node::Outcome::TimedOut { .. }));
    };
    let refusal = match file.of {
        Some((_, uid, _)) if file.is_claimed && facts.uid != uid && !facts.is_open_to_all => Some(format!(
            "it belongs to user {}, the process to user {uid}, and is not open to all",
            facts.uid
        )),
        Some((.., started_ns)) if file.is_claimed && facts.modified_ns < started_ns => {
            Some("it was last written before its process began: it is of an earlier run".to_owned())
        }
        _ => None,
    };
    if let Some(why) = refusal {
        context.bundle.missing(Item { outcome: Outcome::Skipped(why), ..item });
        return Ok(false);
    }
    let ask = FileAsk { is: Some(facts.is), ..file.ask.clone() };
    let mut input = Poured::new(context.program, ask, LONGEST);
    if let Err(error) = input.start() {
        context.bundle.missing(Item { outcome: Outcome::Failed(vec![error.to_string()]), ..item });
        return Ok(input.is_hung());
    }
    let content = if facts.is_binary { Content::Binary } else { Content::Text };
    // It may have grown since: as much as was there is taken.
    context.bundle.add_from(item, content, facts.size, &mut input)?;
    Ok(input.is_hung())
}

/// Namespace and mount point of a file, by the names alone.
fn place_of(file: &Wanted) -> (PathBuf, String) {
    let eyes = match file.of {
        Some((pid, ..)) => Path::new("/proc").join(pid.to_string()),
        None => PathBuf::from("/proc/self"),
    };
    let listing = fs::read_to_string(eyes.join("mountinfo")).unwrap_or_default();
    let path = std::path::absolute(&file.path).unwrap_or_else(|_| PathBuf::from(&file.path));
    // proc_pid_mountinfo(5): the fifth word, blanks as \040.
    let points = listing.lines().filter_map(|line| line.split(' ').nth(4)).map(|at| at.replace("\\040", " "));
    let at = points.filter(|at| path.starts_with(at)).max_by_key(String::len).unwrap_or_default();
    (fs::read_link(eyes.join("ns/mnt")).unwrap_or_default(), at)
}

/// What a process writes, or is told to write.
fn of_process(context: &Context<'_, '_>, process: &Process) -> Vec<Wanted> {
    let own = (process.pid, process.uid, process.started_ns);
    let dumps = dump_paths(context, process);
    let error_file = process.variable("TORCHELASTIC_ERROR_FILE").map(str::to_owned);
    let mut files = Vec::new();
    let opened = open_files(process.pid);
    let mut add = |kind: &'static str, path: &str, is_expected: bool| {
        let Some(last) = path.rsplit('/').next().filter(|last| !last.is_empty()) else { return };
        // An open file is read through the process that has it open: it may be deleted, or lie in a container.
        let through = opened.iter().find(|(_, target)| target == path).map(|(at, _)| at.clone());
        let is_claimed = through.is_none();
        let ask = match through {
            Some(at) => FileAsk { path: at, ..FileAsk::default() },
            None => FileAsk { root: root_of(process.pid), path: PathBuf::from(path), ..FileAsk::default() },
        };
        let name = match kind {
            "dump" => format!("dumps/{}", tame(last)),
            "error-file" => format!("errors/{}/{}", label(process), tame(last)),
            _ => format!("logs/{}", tame(last)),
        };
        let of = Some(own);
        files.push(Wanted { kind, name, path: path.to_owned(), ask, of, is_claimed, is_expected });
    };
    for path in &process.logs {
        if !dumps.contains(path) && Some(path) != error_file.as_ref() {
            add("log", path, true);
        }
    }
    let is_told = ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"]
        .iter()
        .any(|name| process.variable(name).is_some());
    for path in &dumps {
        add("dump", path, is_told);
    }
    if let Some(path) = &error_file {
        add("error-file", path, false);
    }
    files
}

/// Where the process's Flight Recorder writes: its prefix and the global rank. Without a setting, the defaults of
/// torch's releases.
pub(super) fn dump_paths(context: &Context<'_, '_>, process: &Process) -> Vec<String> {
    let Some(rank) = process.rank() else { return Vec::new() };
    let told: Vec<String> = ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"]
        .iter()
        .filter_map(|name| process.variable(name))
        .map(|prefix| format!("{prefix}{rank}"))
        .collect();
    if !told.is_empty() {
        return told;
    }
    let mut paths = vec![format!("/tmp/nccl_trace_rank_{rank}")];
    let request = Request {
        target: Target { pids: vec![process.pid], ..Target::default() },
        deadline_ms: 0,
        ..context.ask.request.clone()
    };
    if let Some(cache) = context.run("cache-of", &request).get().and_then(|value| value.as_str()) {
        paths.push(format!("{cache}/torch/comm_lib_trace_rank_{rank}"));
    }
    paths
}

/// Open files of a process: where this process can open them, and what they are.
fn open_files(pid: u32) -> Vec<(PathBuf, String)> {
    let folder = Path::new("/proc").join(pid.to_string()).join("fd");
    let links = names(&folder).into_iter().filter_map(|number| {
        let at = folder.join(number);
        let target = fs::read_link(&at).ok()?.to_string_lossy().into_owned();
        target.starts_with('/').then_some((at, target))
    });
    links.collect()
}

/// The process's root, where it has mounts of its own.
fn root_of(pid: u32) -> Option<PathBuf> {
    let own = fs::read_link("/proc/self/ns/mnt").ok()?;
    let of = Path::new("/proc").join(pid.to_string());
    let theirs = fs::read_link(of.join("ns/mnt")).ok()?;
    (own != theirs).then(|| of.join("root"))
}

fn mounts_of(pid: u32) -> PathBuf {
    fs::read_link(Path::new("/proc").join(pid.to_string()).join("ns/mnt")).unwrap_or_default()
}

/// A path that the user named, and what is below it.
fn named(context: &mut Context<'_, '_>, path: &Path, wanted: &mut Vec<Wanted>) {
    let shown = path.display().to_string();
    let root = path.file_name().map_or_else(|| "path".to_owned(), |name| tame(&name.to_string_lossy()));
    let ask = FileAsk { path: path.to_owned(), ..FileAsk::default() };
    let request = Request { file: Some(ask), deadline_ms: 0, ..context.ask.request.clone() };
    let part = context.run("files-below", &request);
    let found: Option<Vec<(PathBuf, PathBuf)>> =
        part.get().and_then(|value| serde_json::from_value(value.clone()).ok());
    let Some(found) = found else {
        let item = context.item("file", "", Origin::Path(shown));
        let outcome = outcome_of(&part)
            .unwrap_or_else(|| Outcome::Failed(vec!["its answer is not understood".to_owned()]));
        context.bundle.missing(Item { outcome, ..item });
        return;
    };
    for (at, way) in found.into_iter().take(MAX_FILES + 1 - wanted.len().min(MAX_FILES)) {
        let way = way.iter().map(|part| format!("/{}", tame(&part.to_string_lossy())));
        let name = format!("files/{root}{}", way.collect::<String>());
        let path = at.display().to_string();
        let ask = FileAsk { path: at, ..FileAsk::default() };
        let (of, is_claimed, is_expected) = (None, false, true);
        wanted.push(Wanted { kind: "file", name, path, ask, of, is_claimed, is_expected });
    }
}
