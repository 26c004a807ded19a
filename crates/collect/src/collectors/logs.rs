//! Logs, dumps and error files of the job: those its processes have open, those their environment names, and the paths
//! that the user names.
//!
//! A path that only an environment names is read if it belongs to the process's user or everybody may read it: who runs
//! this may be root, and the environment is the job's. A dump from before its process began is of another run.
//!
//! A path that may hold a secret is not written down; what it leads to is read through the process that has it open, under
//! the number it is open by.
//!
//! Nothing here touches the files themselves: processes of their own do, and where one hangs, the others on the same
//! file system are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringleader_bundle::{Content, Item, ItemOutcome, Origin};
use ringleader_node::Process;

use super::poured::Poured;
use super::{Context, label, outcome_of, tame};
use crate::allowed;
use crate::request::{FileAsk, Request, Target};
use crate::sysfs::names;
use crate::tasks::FileFacts;

/// Files that are taken, of all processes together.
const MAX_FILES: usize = 4_096;
/// Longest that one file is read.
const LONGEST: Duration = Duration::from_mins(1);

/// Files of one file system that may time out before the others are left out: one may be slow by chance.
const MAX_IN_VAIN: usize = 2;

/// Variables that name where dumps go, the new name first.
const DUMP_VARIABLES: [&str; 2] = ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"];

/// Namespace and mount point of a file system that does not answer, and the file that showed it.
type Hung = (PathBuf, String, String);

/// A file that is wanted.
struct Wanted {
    kind: &'static str,
    name: String,
    /// Path as its owner knows it, or words in its place.
    path: String,
    /// The path itself: never written down.
    real: String,
    ask: FileAsk,
    /// Its process: pid, user, start.
    of: Option<(u32, u32, i64)>,
    /// The process whose output it is, as it counts itself, where it is one rank's alone.
    owner: Option<u32>,
    /// Only an environment names it.
    is_claimed: bool,
    /// Something says that it should be there.
    is_expected: bool,
}

impl Wanted {
    fn pid(&self) -> Option<u32> {
        self.of.map(|(pid, ..)| pid)
    }

    /// Of a dump or an error file there is one for a process, and a part of it says nothing.
    fn is_whole_or_nothing(&self) -> bool {
        matches!(self.kind, "dump" | "error-file")
    }
}

pub(super) fn collect(context: &mut Context<'_, '_>) -> Result<(), ringleader_bundle::BundleError> {
    let mut wanted = Vec::new();
    if context.ask.with_logs {
        let processes: Vec<Process> = context.jobs().map(|jobs| jobs.processes.clone()).unwrap_or_default();
        let mut met = BTreeSet::new();
        let owners = owners(&processes);
        let is_own = |p: &&Process| p.state != "Z" && !p.is_above && p.pid != std::process::id();
        for process in processes.iter().filter(is_own) {
            // Two containers may call two files alike, also where they have them open.
            let container = root_of(process.pid).map(|_| mounts_of(process.pid));
            for mut file in of_process(context, process) {
                let key = (container.clone(), file.real.clone());
                file.owner = owners.get(&key).copied().flatten();
                if met.insert(key) {
                    wanted.push(file);
                }
            }
            withheld(context, process);
        }
    }
    for path in &context.ask.paths {
        named(context, path, &mut wanted);
    }
    let n_more = wanted.len().saturating_sub(MAX_FILES);
    wanted.truncate(MAX_FILES);
    let mut hung: Vec<Hung> = Vec::new();
    let mut found = Vec::new();
    for file in wanted {
        let place = place_of(&file);
        let item = context.item(file.kind, &file.name, Origin::Path(file.path.clone()));
        if let Some(why) = in_vain(&hung, &place) {
            context.bundle.missing(Item { outcome: ItemOutcome::Failed(vec![why]), pid: file.pid(), ..item });
            continue;
        }
        match look(context, &file, item) {
            LogLook::Found(facts) => found.push((file, facts)),
            LogLook::Nothing => {}
            LogLook::InVain => hung.push((place.0, place.1, file.path)),
        }
    }
    // What nothing can replace first, and what is small: a job is no more known for a hundred MiB of one rank's log.
    found.sort_by_key(|(file, facts)| (!file.is_whole_or_nothing(), facts.size_of_text()));
    let mut shares =
        Shares::of(found.iter().map(|(file, _)| file).filter(|file| !file.is_whole_or_nothing()));
    for (file, facts) in found {
        let place = place_of(&file);
        let item = context.item(file.kind, &file.name, Origin::Path(file.path.clone()));
        let item = Item { pid: file.pid(), owner: file.owner, ..item };
        let share = if file.is_whole_or_nothing() {
            u64::MAX
        } else {
            shares.take(file.pid(), context.bundle.left())
        };
        if let Some(why) = in_vain(&hung, &place) {
            context.bundle.missing(Item { outcome: ItemOutcome::Failed(vec![why]), ..item });
        } else if take(context, &file, &facts, item, share)? {
            hung.push((place.0, place.1, file.path));
        }
    }
    if n_more > 0 {
        let why = format!("{n_more} files beyond the limit of {MAX_FILES} were left out; name them as paths");
        let item = context.item("log", "", Origin::Unknown);
        context.bundle.missing(Item { outcome: ItemOutcome::Skipped(why), ..item });
    }
    Ok(())
}

/// A file as a container has it.
type LogKey = (Option<PathBuf>, String);

/// Output files of processes that belong to one rank each, with that rank: the workers of a rank write into the same.
fn owners(processes: &[Process]) -> BTreeMap<LogKey, Option<u32>> {
    let mut writers: BTreeMap<LogKey, Vec<&Process>> = BTreeMap::new();
    for process in processes.iter().filter(|p| p.state != "Z" && !p.is_above) {
        let container = root_of(process.pid).map(|_| mounts_of(process.pid));
        for path in [&process.stdout, &process.stderr].into_iter().flatten() {
            writers.entry((container.clone(), path.clone())).or_default().push(process);
        }
    }
    let jobs = ringleader_node::Jobs { processes: processes.to_vec(), ..ringleader_node::Jobs::default() };
    let shared = jobs.shared_pids();
    let owner = |all: Vec<&Process>| -> Option<u32> {
        let first = all.iter().find(|process| process.rank().is_some())?;
        let is_alone = all.iter().all(|process| process.rank() == first.rank());
        // The rank is the one that started the others.
        let pids: Vec<u32> = all.iter().map(|process| process.pid).collect();
        let top = all.iter().find(|process| !pids.contains(&process.ppid))?;
        is_alone.then(|| top.known_pid(&shared))
    };
    writers.into_iter().map(|(key, all)| (key, owner(all))).collect()
}

/// Why a file is not waited for; None if it is.
fn in_vain(hung: &[Hung], place: &(PathBuf, String)) -> Option<String> {
    let mut those = hung.iter().filter(|(names, at, _)| (names, at) == (&place.0, &place.1));
    let (_, at, by) = those.nth(MAX_IN_VAIN - 1)?;
    let at = if allowed::path_looks_secret(at) { allowed::CUT } else { at };
    Some(format!("its file system ({at}) does not answer: {by} timed out"))
}

/// How the room that is left is shared: alike among processes, and among the files of each.
struct Shares(BTreeMap<Option<u32>, u64>);

impl Shares {
    fn of<'f>(files: impl Iterator<Item = &'f Wanted>) -> Self {
        let mut counts = BTreeMap::new();
        for file in files {
            *counts.entry(file.pid()).or_default() += 1;
        }
        Self(counts)
    }

    /// The share of the next file of this process, of `left` bytes. Whoever comes first and needs less leaves the rest to
    /// the others.
    fn take(&mut self, pid: Option<u32>, left: u64) -> u64 {
        let n_processes = self.0.len().max(1) as u64;
        let n_files = self.0.get(&pid).copied().unwrap_or(1).max(1);
        if n_files == 1 {
            self.0.remove(&pid);
        } else {
            self.0.insert(pid, n_files - 1);
        }
        left / n_processes / n_files
    }
}

/// What came of a look at a file.
enum LogLook {
    Found(FileFacts),
    /// It is not taken, and the manifest says why where there is something to say.
    Nothing,
    /// The same: it timed out.
    InVain,
}

/// Looks at a file.
fn look(context: &mut Context<'_, '_>, file: &Wanted, mut item: Item) -> LogLook {
    let request = Request { file: Some(file.ask.clone()), deadline_ms: 0, ..context.ask.request.clone() };
    let part = context.run("file-of", &request);
    item.pid = file.pid();
    let facts: Option<FileFacts> = part.get().and_then(|value| serde_json::from_value(value.clone()).ok());
    let Some(facts) = facts else {
        let is_absent = matches!(part.outcome, ringleader_node::Outcome::Absent(_));
        if !is_absent || file.is_expected {
            let outcome = outcome_of(&part)
                .unwrap_or_else(|| ItemOutcome::Failed(vec!["its answer could not be parsed".to_owned()]));
            context.bundle.missing(Item { outcome, ..item });
        }
        let is_in_vain = matches!(part.outcome, ringleader_node::Outcome::TimedOut { .. });
        return if is_in_vain { LogLook::InVain } else { LogLook::Nothing };
    };
    let refusal = match file.of {
        Some((_, uid, _)) if file.is_claimed && facts.uid != uid && !facts.is_open_to_all => Some(format!(
            "it belongs to user {}, the process to user {uid}, and is not open to all",
            facts.uid
        )),
        Some((.., started_ns)) if file.is_claimed && facts.modified_ns < started_ns => {
            Some("it was last written before its process started: it belongs to an earlier run".to_owned())
        }
        _ => None,
    };
    match refusal {
        Some(why) => {
            context.bundle.missing(Item { outcome: ItemOutcome::Skipped(why), ..item });
            LogLook::Nothing
        }
        None => LogLook::Found(facts),
    }
}

/// Takes a file; true if it timed out.
fn take(
    context: &mut Context<'_, '_>,
    file: &Wanted,
    facts: &FileFacts,
    mut item: Item,
    share: u64,
) -> Result<bool, ringleader_bundle::BundleError> {
    let ask = FileAsk { is: Some(facts.is), from: facts.n_hole, ..file.ask.clone() };
    let mut input = Poured::new(context.program, ask, LONGEST);
    if let Err(error) = input.start() {
        context.bundle.missing(Item { outcome: ItemOutcome::Failed(vec![error.to_string()]), ..item });
        return Ok(input.is_hung());
    }
    let content = if facts.is_binary { Content::Binary } else { Content::Text };
    item.hole_bytes = facts.n_hole;
    // It may have grown since: as much as was there is taken.
    context.bundle.add_share(item, content, facts.size_of_text(), &mut input, share)?;
    Ok(input.is_hung())
}

/// Namespace and mount point of a file, by the names alone.
fn place_of(file: &Wanted) -> (PathBuf, String) {
    let eyes = match file.of {
        Some((pid, ..)) => Path::new("/proc").join(pid.to_string()),
        None => PathBuf::from("/proc/self"),
    };
    let listing = fs::read_to_string(eyes.join("mountinfo")).unwrap_or_default();
    let path = std::path::absolute(&file.real).unwrap_or_else(|_| PathBuf::from(&file.real));
    // proc_pid_mountinfo(5): the fifth word, blanks as \040.
    let points = listing.lines().filter_map(|line| line.split(' ').nth(4)).map(|at| at.replace("\\040", " "));
    let at = points.filter(|at| path.starts_with(at)).max_by_key(String::len).unwrap_or_default();
    (fs::read_link(eyes.join("ns/mnt")).unwrap_or_default(), at)
}

/// Files that a process writes, or is configured to write.
fn of_process(context: &Context<'_, '_>, process: &Process) -> Vec<Wanted> {
    let own = (process.pid, process.uid, process.started_ns);
    let dumps = dump_paths(context, process);
    let error_file = process.variable("TORCHELASTIC_ERROR_FILE").map(str::to_owned);
    let mut files = Vec::new();
    let opened = open_files(process.pid);
    let mut add = |kind: &'static str, path: &str, is_expected: bool| {
        let Some(last) = path.rsplit('/').next().filter(|last| !last.is_empty()) else { return };
        let shown = path.to_owned();
        // An open file is read through the process that has it open: it may be deleted, or lie in a container.
        let through = opened.iter().find(|(_, target)| target == path || allowed::clean(target) == path);
        let is_claimed = through.is_none();
        let (ask, real) = if let Some((at, target)) = through {
            (FileAsk { path: at.clone(), ..FileAsk::default() }, target.clone())
        } else {
            let path = PathBuf::from(path);
            (FileAsk { root: root_of(process.pid), path, ..FileAsk::default() }, shown.clone())
        };
        let name = match kind {
            "dump" => format!("dumps/{}", tame(last)),
            "error-file" => format!("errors/{}/{}", label(process), tame(last)),
            _ => format!("logs/{}", tame(last)),
        };
        let of = Some(own);
        files.push(Wanted { kind, name, path: shown, real, ask, of, owner: None, is_claimed, is_expected });
    };
    for path in &process.logs {
        if !dumps.contains(path) && Some(path) != error_file.as_ref() {
            add("log", path, true);
        }
    }
    let is_told = DUMP_VARIABLES.iter().any(|name| process.variable(name).is_some());
    for path in dumps.iter().filter(|path| !process.contested.contains(path)) {
        add("dump", path, is_told);
    }
    if let Some(path) = &error_file {
        add("error-file", path, false);
    }
    for number in &process.withheld_files {
        let at = Path::new("/proc").join(process.pid.to_string()).join("fd").join(number.to_string());
        let Some((_, target)) = opened.iter().find(|(opened, _)| *opened == at) else { continue };
        files.push(Wanted {
            kind: "log",
            name: format!("logs/{}-fd-{number}", label(process)),
            path: format!("path withheld (fd {number} of pid {})", process.pid),
            real: target.clone(),
            ask: FileAsk { path: at, ..FileAsk::default() },
            of: Some(own),
            owner: None,
            is_claimed: false,
            is_expected: true,
        });
    }
    files
}

/// Variables that name files which are taken.
const FILE_VARIABLES: &[(&str, &str)] = &[
    ("log", "NCCL_DEBUG_FILE"),
    ("dump", "TORCH_FR_DUMP_TEMP_FILE"),
    ("dump", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
    ("error-file", "TORCHELASTIC_ERROR_FILE"),
];

/// Says which files are not looked for because the paths that the process's environment names were cut.
fn withheld(context: &mut Context<'_, '_>, process: &Process) {
    let pid = process.pid;
    for path in &process.contested {
        let why = "a rank of another job writes it too, so its owner is unknown; set a different TORCH_FR_DUMP_TEMP_FILE for each job";
        let item = context.item("dump", "", Origin::Path(path.clone()));
        let outcome = ItemOutcome::Skipped(why.to_owned());
        context.bundle.missing(Item { outcome, pid: Some(pid), ..item });
    }
    for (kind, name) in FILE_VARIABLES {
        let relative = process.variable(name).is_some_and(|path| !path.starts_with('/'));
        let (what, why) = if process.cut_variables.iter().any(|cut| cut == name) {
            (name.to_string(), "may hold a secret")
        } else if relative && process.directory.is_none() {
            (format!("working folder, for {name},"), "is not known, or may hold a secret")
        } else {
            continue;
        };
        let item = context.item(kind, "", Origin::Path(format!("path withheld ({what} of pid {pid})")));
        let why = format!("it {why}: only its open log files are taken; name other files as paths");
        context.bundle.missing(Item { outcome: ItemOutcome::Skipped(why), pid: Some(pid), ..item });
    }
}

/// Where the process's Flight Recorder writes: its prefix and the global rank. Without a setting, the defaults of
/// torch's releases.
pub(super) fn dump_paths(context: &Context<'_, '_>, process: &Process) -> Vec<String> {
    let Some(rank) = process.rank() else { return Vec::new() };
    let told: Vec<String> = DUMP_VARIABLES
        .iter()
        .filter_map(|name| process.variable(name))
        .map(|prefix| format!("{prefix}{rank}"))
        .map(|path| match &process.directory {
            Some(folder) if !path.starts_with('/') => format!("{}/{path}", folder.trim_end_matches('/')),
            _ => path,
        })
        .collect();
    let is_cut = process.cut_variables.iter().any(|name| DUMP_VARIABLES.contains(&name.as_str()));
    if !told.is_empty() || is_cut {
        return told.into_iter().filter(|path| path.starts_with('/')).collect();
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
            .unwrap_or_else(|| ItemOutcome::Failed(vec!["its answer could not be parsed".to_owned()]));
        context.bundle.missing(Item { outcome, ..item });
        return;
    };
    for (at, way) in found.into_iter().take(MAX_FILES + 1 - wanted.len().min(MAX_FILES)) {
        let way = way.iter().map(|part| format!("/{}", tame(&part.to_string_lossy())));
        let name = format!("files/{root}{}", way.collect::<String>());
        let path = at.display().to_string();
        let ask = FileAsk { path: at, ..FileAsk::default() };
        let (of, is_claimed, is_expected) = (None, false, true);
        let real = path.clone();
        wanted.push(Wanted { kind: "file", name, path, real, ask, of, owner: None, is_claimed, is_expected });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(pid: Option<u32>) -> Wanted {
        Wanted {
            kind: "log",
            name: String::new(),
            path: String::new(),
            real: String::new(),
            ask: FileAsk::default(),
            of: pid.map(|pid| (pid, 0, 0)),
            owner: None,
            is_claimed: false,
            is_expected: true,
        }
    }

    #[test]
    fn room_is_shared_alike_among_processes_and_their_files() {
        let files = [file(Some(7)), file(Some(8)), file(Some(8)), file(None)];
        let mut shares = Shares::of(files.iter());
        // The small one of 8 takes 100 of its 150 and leaves the rest to all.
        assert_eq!(shares.take(Some(8), 900), 150);
        assert_eq!(shares.take(Some(7), 800), 266);
        assert_eq!(shares.take(Some(8), 534), 267);
        assert_eq!(shares.take(None, 267), 267);
    }
}
