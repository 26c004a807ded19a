//! The settings of a running job, compared with those that make its failure diagnosable. Its processes are looked at,
//! never asked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use ringleader_collect::{follow, libraries};
use ringleader_knowledge::variable::{self, misread};
use ringleader_knowledge::version::NcclVersion as Release;

use crate::env::answer::{Check, Compared, Standing};
use crate::env::installed::Package;
use crate::env::plan::{Setting, SettingFate, fate};

/// Bytes of a file of settings that are looked at.
const MAX_FILE: usize = 1 << 16;
/// Families of names whose readers are known.
const FAMILIES: [&str; 3] = ["NCCL_", "TORCH_NCCL_", "TORCH_FR_"];

/// The processes of a job.
pub(super) struct RunningJob {
    pid: u32,
    /// Settings of each process, those of NCCL's files included.
    ranks: BTreeMap<u32, BTreeMap<String, String>>,
    pub(super) torch: Option<Package>,
    pub(super) nccl: Option<Package>,
    /// The Python that a rank of it runs, by the path by which it was started.
    pub(super) python: Option<PathBuf>,
    /// What its processes are, and have loaded.
    pub(super) sort: Sort,
}

/// What a process that is asked about is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// Ranks, or a process that has loaded NCCL or PyTorch's part for GPUs.
    Job,
    /// PyTorch without its part for GPUs and without NCCL: another backend, such as gloo.
    WithoutNccl,
    /// Neither a rank nor a process that has loaded any of it.
    NoRank,
}

impl RunningJob {
    /// The ranks among the process and what it has started; none if it is not there.
    ///
    /// # Errors
    /// If its environment cannot be read: it belongs to another user, or is gone.
    pub(super) fn read(proc: &Path, pid: u32) -> std::io::Result<Self> {
        let all = follow::processes(proc);
        let mut family = BTreeSet::from([pid]);
        // Children come after their parents in no order of their own.
        loop {
            let more: Vec<u32> = all
                .iter()
                .filter(|(child, stat)| family.contains(&stat.ppid) && !family.contains(child))
                .map(|(child, _)| *child)
                .collect();
            if more.is_empty() {
                break;
            }
            family.extend(more);
        }
        let is_member = |pid: &&u32| is_rank(proc, **pid);
        let mut members: Vec<u32> = family.iter().filter(is_member).copied().collect();
        // A launcher inside of another, such as Slurm's step around torchrun, carries a rank and loads nothing.
        let computing: Vec<u32> =
            members.iter().filter(|pid| follow::has_gpu_code(proc, **pid) == Some(true)).copied().collect();
        if !computing.is_empty() {
            members = computing;
        }
        let has_rank = !members.is_empty();
        if members.is_empty() {
            members.push(pid);
        }
        let mut ranks = BTreeMap::new();
        for member in members {
            let bytes = match fs::read(proc.join(member.to_string()).join("environ")) {
                Ok(bytes) => bytes,
                Err(error) if member == pid => return Err(error),
                Err(_) => continue,
            };
            let own = settings(&bytes);
            let files = of_files(&proc.join(member.to_string()).join("root"), &own);
            ranks.insert(member, files.into_iter().chain(own).collect());
        }
        let mut versions = libraries::Versions::new();
        let loaded: Vec<BTreeMap<String, String>> =
            ranks.keys().filter_map(|pid| libraries::of_process(proc, *pid, &mut versions).ok()).collect();
        let of = |name: &str| {
            let version =
                loaded.iter().find_map(|all| all.get(name)).filter(|version| !version.is_empty())?;
            Some(Package { version: version.clone(), path: PathBuf::new() })
        };
        let sort = sort(ranks.keys().filter_map(|pid| maps(proc, *pid)), has_rank);
        let python = ranks.iter().find_map(|(pid, own)| python_of(&proc.join(pid.to_string()), own));
        Ok(Self { pid, torch: of("libtorch_cuda.so"), nccl: of("libnccl.so.2"), python, ranks, sort })
    }

    /// Processes of the job in which this name is not set.
    pub(super) fn without(&self, name: &str) -> Vec<u32> {
        self.ranks.iter().filter(|(_, own)| !own.contains_key(name)).map(|(pid, _)| *pid).collect()
    }

    /// Compares them.
    pub(super) fn check(&self, settings: &[Setting], torch: Option<Release>, nccl: Option<Release>) -> Check {
        let mut found: BTreeMap<(Standing, usize, String, Option<String>), Compared> = BTreeMap::new();
        for (pid, own) in &self.ranks {
            let wanted = settings.iter().enumerate().map(|(at, setting)| (at, wanted(setting, own)));
            let surplus = own.iter().filter_map(|(name, value)| unread(name, value, torch, nccl));
            for (at, compared) in wanted.chain(surplus.map(|compared| (settings.len(), compared))) {
                let key = (compared.standing, at, compared.name.clone(), compared.is.clone());
                found.entry(key).or_insert(compared).pids.push(*pid);
            }
        }
        Check {
            pid: self.pid,
            pids: self.ranks.keys().copied().collect(),
            settings: found.into_values().collect(),
        }
    }
}

fn is_rank(proc: &Path, pid: u32) -> bool {
    follow::rank_env(proc, pid).is_some_and(|env| env.rank.is_some())
}

/// The interpreter of a process, as its first word names it: behind a link of a virtual environment is the Python of all.
fn python_of(process: &Path, own: &BTreeMap<String, String>) -> Option<PathBuf> {
    let words = fs::read(process.join("cmdline")).ok()?;
    let word = String::from_utf8_lossy(words.split(|byte| *byte == 0).next()?).into_owned();
    let path = PathBuf::from(&word);
    if !path.file_name()?.to_string_lossy().starts_with("python") {
        return None;
    }
    let found = if path.is_absolute() {
        path
    } else if word.contains('/') {
        fs::read_link(process.join("cwd")).ok()?.join(path)
    } else {
        std::env::split_paths(own.get("PATH")?)
            .map(|folder| folder.join(&word))
            .find(|path| path.is_file())?
    };
    found.is_file().then_some(found)
}

/// The files that a process has mapped; none if it may not be looked at.
fn maps(proc: &Path, pid: u32) -> Option<String> {
    let bytes = fs::read(proc.join(pid.to_string()).join("maps")).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// By what the processes have mapped. PyTorch's part for GPUs may hold NCCL, so that its absence alone says nothing.
fn sort(maps: impl Iterator<Item = String>, has_rank: bool) -> Sort {
    let maps: Vec<String> = maps.collect();
    let holds = |name: &str| maps.iter().any(|maps| maps.contains(name));
    if holds("/libnccl") || holds("/libtorch_cuda") || holds("/libcudart") || holds("/libcuda.so") {
        Sort::Job
    } else if holds("/libtorch") {
        Sort::WithoutNccl
    } else if has_rank {
        Sort::Job
    } else {
        Sort::NoRank
    }
}

/// `NAME=value` with zeros between them, as the kernel shows an environment.
fn settings(bytes: &[u8]) -> BTreeMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let pairs = bytes.split(|byte| *byte == 0).filter_map(|entry| {
        let at = entry.iter().position(|byte| *byte == b'=')?;
        Some((text(entry.get(..at)?), text(entry.get(at + 1..)?)))
    });
    pairs.collect()
}

/// NCCL's own files, which set what the environment does not: the one that is named, else the user's, and the system's.
fn of_files(root: &Path, own: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let inside = |path: &str| root.join(path.trim_start_matches('/'));
    let user = own.get("NCCL_CONF_FILE").cloned();
    let user = user.or_else(|| Some(format!("{}/.nccl.conf", own.get("HOME")?)));
    let mut out = BTreeMap::new();
    for path in std::iter::once("/etc/nccl.conf".to_owned()).chain(user) {
        let Ok(bytes) = fs::read(inside(&path)) else { continue };
        let text =
            String::from_utf8_lossy(bytes.get(..bytes.len().min(MAX_FILE)).unwrap_or_default()).into_owned();
        let lines =
            text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
        out.extend(lines.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    out
}

fn wanted(setting: &Setting, own: &BTreeMap<String, String>) -> Compared {
    let row = setting.row;
    let name =
        std::iter::once(&row.name).chain(row.old).find(|name| own.contains_key(**name)).unwrap_or(&row.name);
    let is = own.get(*name).map(String::as_str);
    let (standing, why) = match fate(setting, is) {
        SettingFate::Set => (Standing::Missing, row.without),
        SettingFate::Replaces(_) | SettingFate::Left(_) => (Standing::Differs, row.without),
        SettingFate::Does(_) | SettingFate::Unset => (Standing::Good, row.gives),
    };
    Compared {
        name: (*name).to_owned(),
        standing,
        is: is.map(str::to_owned),
        should: (standing != Standing::Good).then(|| setting.value.clone()),
        why: why.to_owned(),
        pids: Vec::new(),
    }
}

/// What is set without effect, or not read as intended.
fn unread(name: &str, value: &str, torch: Option<Release>, nccl: Option<Release>) -> Option<Compared> {
    if !FAMILIES.iter().any(|family| name.starts_with(family)) {
        return None;
    }
    let compared = |standing, why: String| {
        Some(Compared {
            name: name.to_owned(),
            standing,
            is: Some(value.to_owned()),
            should: None,
            why,
            pids: Vec::new(),
        })
    };
    if let Some(unread) = variable::get_unread(name) {
        return compared(Standing::Unread, format!("nothing reads this name; {} is meant", unread.meant));
    }
    let rows = ringleader_knowledge::export::all().iter().filter(|row| row.name == name);
    if let Some(torch) = torch
        && let Some(from) = rows.filter_map(|row| row.from).min()
        && name.starts_with("TORCH_")
        && torch < from
    {
        return compared(Standing::Unread, format!("PyTorch reads it since {from}; this is {torch}"));
    }
    let Some(known) = variable::get(name) else {
        // A plugin reads names of its own, images carry labels, and a newer release may know more.
        let may_be_read = variable::is_of_plugin(name)
            || variable::is_label(name)
            || ringleader_knowledge::export::all().iter().any(|row| row.name == name)
            || nccl.is_some_and(|nccl| nccl > variable::newest());
        let why = "no known release of NCCL or PyTorch reads this name: is it spelt right?";
        return (!may_be_read).then(|| compared(Standing::Unread, why.to_owned())).flatten();
    };
    if let (Some(nccl), Some(since), true) = (nccl, known.since, known.reader == "NCCL")
        && nccl < since
        && !known.since_or_before
    {
        return compared(Standing::Unread, format!("NCCL reads it since {since}; this is {nccl}"));
    }
    let misread = misread(known, value, nccl)?;
    compared(Standing::Misread, format!("{}: {}", misread.what, misread.trap.instead))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::plan::Wants;

    #[test]
    fn a_rank_that_lacks_the_recorder_and_misspells_a_name() {
        let root = tempfile::tempdir().expect("a folder");
        let rank = root.path().join("4711");
        fs::create_dir_all(rank.join("root/etc")).expect("made");
        let environ = "RANK=0\0WORLD_SIZE=2\0NCCL_DEBUG=WARN\0NCCL_IB_DISABLE=true\0NCCL_DEBUG_TIMESTAMP_LEVELS=ALL\0\
                       TORCH_FR_BUFFER_SIZE=20000\0NCCL_SOCKET_IFNAMES=eth0\0NCCL_FOO=1\0NCCL_VERSION=2.21.5\0";
        fs::write(rank.join("environ"), environ).expect("written");
        fs::write(rank.join("stat"), "4711 (python) S 1 4711 4711 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0\n")
            .expect("written");
        fs::write(rank.join("maps"), "").expect("written");
        fs::write(
            rank.join("root/etc/nccl.conf"),
            "# site\nNCCL_DEBUG_FILE=/var/log/nccl.%h\nNCCL_DEBUG=INFO\n",
        )
        .expect("written");
        let job = RunningJob::read(root.path(), 4711).expect("it is there");
        let (torch, nccl) = (Release::parse("2.7.0"), Release::parse("2.21.5"));
        let wants =
            Wants { torch, nccl, plugin: None, dir: "/evidence".into(), is_full: false, has_timeline: false };
        let check = job.check(&wants.settings(), torch, nccl);
        let standing =
            |name: &str| check.settings.iter().find(|one| one.name == name).map(|one| one.standing);
        assert_eq!(standing("TORCH_NCCL_TRACE_BUFFER_SIZE"), Some(Standing::Missing));
        assert_eq!(standing("TORCH_FR_BUFFER_SIZE"), Some(Standing::Unread));
        // The environment is stronger than the file.
        assert_eq!(standing("NCCL_DEBUG"), Some(Standing::Differs));
        assert_eq!(standing("NCCL_DEBUG_FILE"), Some(Standing::Good));
        assert_eq!(standing("NCCL_DEBUG_TIMESTAMP_LEVELS"), Some(Standing::Unread));
        assert_eq!(standing("NCCL_IB_DISABLE"), Some(Standing::Misread));
        assert_eq!(standing("NCCL_FOO"), Some(Standing::Unread));
        assert_eq!(standing("NCCL_VERSION"), None, "a label of an image");
        assert_eq!(standing("NCCL_RAS_ENABLE"), None);
        assert_eq!(job.sort, Sort::Job, "it has a rank");
    }

    #[test]
    fn what_a_process_is_by_what_it_has_loaded() {
        let of = |maps: &str, has_rank: bool| {
            sort(std::iter::once(format!("7f00-7f01 r-xp 00000000 08:01 42 /env/lib/{maps}\n")), has_rank)
        };
        assert_eq!(of("libc.so.6", false), Sort::NoRank);
        assert_eq!(of("libc.so.6", true), Sort::Job, "it may load them yet");
        assert_eq!(of("libtorch_cpu.so", true), Sort::WithoutNccl);
        assert_eq!(of("libtorch_cpu.so\n/env/lib/libtorch_cuda.so", true), Sort::Job);
        assert_eq!(of("libnccl.so.2", false), Sort::Job);
    }
}
