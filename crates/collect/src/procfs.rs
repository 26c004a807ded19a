//! One process as shown in /proc, and the limits of its cgroups.
//!
//! Not by the crate `procfs`: it reads in the calling thread, and a file of a process that hangs in the kernel may never answer. Of the
//! rest a few fields are wanted of thousands of processes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use std::{fs, io};

use ringleader_node::Cgroup;

use crate::sysfs::{link_name, names, number, text};

/// The line of /proc/PID/stat.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stat {
    /// Its program, 15 letters.
    pub command: String,
    /// `R`, `S`, `D`, `T`, `t`, `Z`, `X`, `I`.
    pub state: String,
    /// Parent.
    pub ppid: u32,
    /// Session.
    pub session: u32,
    /// Processor time so far, clock ticks.
    pub cpu_ticks: u64,
    /// Threads.
    pub n_threads: u32,
    /// Start, clock ticks since boot.
    pub started_ticks: u64,
    /// Memory held, pages.
    pub resident_pages: u64,
    /// How a zombie ended, as wait(2) gives it; 0 as well where this process may not trace that one.
    pub wait_status: i32,
}

impl Stat {
    /// Source: proc_pid_stat(5). The command may hold blanks and brackets, so the fields are counted from its last one.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (head, tail) = line.rsplit_once(") ")?;
        let (_, command) = head.split_once('(')?;
        let fields: Vec<&str> = tail.split_whitespace().collect();
        let field = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            command: command.to_owned(),
            state: fields.first()?.chars().next()?.to_string(),
            ppid: u32::try_from(field(1)?).ok()?,
            // 0 for what belongs to another namespace.
            session: field(3).and_then(|session| u32::try_from(session).ok()).unwrap_or_default(),
            cpu_ticks: field(11)? + field(12)?,
            n_threads: u32::try_from(field(17)?).ok()?,
            started_ticks: field(19)?,
            resident_pages: field(21)?,
            wait_status: fields.get(49).and_then(|status| status.parse().ok()).unwrap_or_default(),
        })
    }
}

/// How a zombie of this user ended: its exit code, or the number of its signal, negative. None for a living process and where the
/// kernel does not tell: it shows the status to who may trace the process, and 0 to all others.
pub(crate) fn exit_code(stat: &Stat, uid: u32) -> Option<i64> {
    let own = rustix::process::geteuid();
    if stat.state != "Z" || stat.wait_status == 0 && !own.is_root() && own.as_raw() != uid {
        return None;
    }
    let signal = i64::from(stat.wait_status & 0x7f);
    Some(if signal == 0 { i64::from(stat.wait_status >> 8 & 0xff) } else { -signal })
}

/// All processes: number and stat line.
pub(crate) fn processes(proc: &Path) -> BTreeMap<u32, Stat> {
    let pids = names(proc).into_iter().filter_map(|name| name.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, Stat::parse(&text(&proc.join(pid.to_string()).join("stat"))?)?)))
        .collect()
}

/// Why processes of other users do not show in `proc` at all, or only as bare numbers; None if they do.
///
/// Source: proc_pid_permission of Linux fs/proc/base.c. Those of the mount's group and who may trace anybody see all.
pub(crate) fn hidden_by_mount(proc: &Path) -> Option<String> {
    let mounts = text(&proc.join("self/mountinfo"))?;
    // What was mounted last is on top.
    let options = mounts.lines().rev().find_map(|line| {
        let (place, source) = line.split_once(" - ")?;
        let is_proc = place.split(' ').nth(4) == Some("/proc") && source.starts_with("proc ");
        is_proc.then(|| source.rsplit(' ').next())?
    })?;
    let option =
        |name: &str| options.split(',').find_map(|option| option.strip_prefix(name)?.strip_prefix('='));
    let how = option("hidepid").filter(|how| !matches!(*how, "0" | "off"))?;
    let of_self = text(&proc.join("self/status")).unwrap_or_default();
    let mask = status(&of_self, "CapEff").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    let may_trace = mask.is_some_and(|mask| mask & CAP_SYS_PTRACE != 0);
    let group = option("gid").unwrap_or("0");
    let is_member = !matches!(how, "4" | "ptraceable")
        && ["Groups", "Gid"].iter().any(|name| {
            status(&of_self, name).is_some_and(|ids| ids.split_whitespace().any(|id| id == group))
        });
    let why =
        || format!("/proc is mounted with hidepid={how}, processes of other users do not show: run as root");
    (!may_trace && !is_member).then(why)
}

/// Bit 19 of the effective capabilities.
const CAP_SYS_PTRACE: u64 = 1 << 19;
/// Inode of the first pid namespace of a kernel: PROC_PID_INIT_INO of Linux include/linux/proc_ns.h.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Why processes outside are not seen: this is a pid namespace of its own.
pub(crate) fn pid_namespace(proc: &Path) -> Option<String> {
    let own = link_name(&proc.join("self/ns/pid"))?;
    let why = "this is a pid namespace of its own, processes outside do not show: run it on the host";
    (own != FIRST_PID_NAMESPACE).then(|| why.to_owned())
}

/// A field of /proc/PID/status.
pub(crate) fn status<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

/// /proc/PID/limits: name -> soft, hard; None is unlimited.
pub(crate) fn limits(table: &str) -> BTreeMap<String, (Option<u64>, Option<u64>)> {
    let value = |word: &str| if word == "unlimited" { Some(None) } else { word.parse().ok().map(Some) };
    let rows = table.lines().skip(1).filter_map(|line| {
        // Columns are 25 and 20 wide: `Max locked memory         8388608              8388608              bytes`.
        let (name, rest) = line.split_at_checked(25)?;
        let mut words = rest.split_whitespace();
        Some((name.trim().to_owned(), (value(words.next()?)?, value(words.next()?)?)))
    });
    rows.collect()
}

/// How many numbers a list such as `0-3,8` names.
pub(crate) fn count_of_list(list: &str) -> Option<u32> {
    list.trim().split(',').filter(|part| !part.is_empty()).try_fold(0_u32, |sum, part| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (u32, u32) = (from.parse().ok()?, to.parse().ok()?);
        sum.checked_add(to.checked_sub(from)?.checked_add(1)?)
    })
}

/// Whether a file is open for writing, by its `fdinfo`: the access mode is the last two bits of the octal flags.
pub(crate) fn is_written(info: &Path) -> bool {
    let flags = text(info).and_then(|info| {
        let line =
            info.lines().find_map(|line| line.strip_prefix("flags:").map(str::trim).map(str::to_owned))?;
        u32::from_str_radix(&line, 8).ok()
    });
    flags.is_some_and(|flags| flags & 0o3 != 0)
}

/// Reads a file, waiting no longer than that: the files of a process that hangs in its own address space (environ,
/// cmdline, maps) hang their reader as well.
///
/// # Errors
/// Those of reading; `TimedOut` if it took longer. The thread stays behind then.
pub(crate) fn read_patiently(path: PathBuf, patience: Duration) -> io::Result<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        // Nobody may be waiting any more.
        let _ = sender.send(fs::read(path));
    });
    receiver.recv_timeout(patience).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// A limit that means none in version 1: the largest multiple of the page size below 2^63.
const V1_UNLIMITED: u64 = 1 << 62;

/// The groups of a process, as /proc/PID/cgroup has them. The tightest limit of the group and those above it counts.
pub(crate) fn cgroup(sys: &Path, listing: &str) -> Option<Cgroup> {
    let root = sys.join("fs/cgroup");
    let of = |controller: &str| {
        listing.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (_, names, path) = (parts.next()?, parts.next()?, parts.next()?);
            names.split(',').any(|name| name == controller).then_some(path)
        })
    };
    let unified = listing.lines().find_map(|line| line.strip_prefix("0::"));
    if let Some(path) = of("memory") {
        let mut group = Cgroup { path: path.to_owned(), version: 1, ..Cgroup::default() };
        v1_memory(&mut group, &chain(&root.join("memory"), path));
        if let Some(path) = of("cpu") {
            let base = ["cpu", "cpu,cpuacct", "cpuacct,cpu"]
                .iter()
                .map(|name| root.join(name))
                .find(|at| at.is_dir());
            if let Some(base) = base {
                v1_cpu(&mut group, &chain(&base, path));
            }
        }
        if let Some(path) = of("pids") {
            pids(&mut group, &chain(&root.join("pids"), path));
        }
        return Some(group);
    }
    let path = unified?;
    let mut group = Cgroup { path: path.to_owned(), version: 2, ..Cgroup::default() };
    let groups = chain(&root, path);
    v2_memory(&mut group, &groups);
    v2_cpu(&mut group, &groups);
    pids(&mut group, &groups);
    Some(group)
}

/// The folder of a group and those above it, innermost first. In a container the path may be the host's, and the
/// group itself is mounted as the root.
fn chain(base: &Path, path: &str) -> Vec<PathBuf> {
    let relative = Path::new(path.trim_start_matches('/'));
    // `/../x`: a group outside of the namespace that is looked from.
    let is_inside = relative.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    let mut folders: Vec<PathBuf> = Vec::new();
    if is_inside && base.join(relative).is_dir() {
        folders.extend(
            relative.ancestors().filter(|part| !part.as_os_str().is_empty()).map(|part| base.join(part)),
        );
    }
    folders.push(base.to_owned());
    folders
}

/// The folder with the least value, and the value.
fn tightest<T: PartialOrd + Copy>(
    folders: &[PathBuf],
    read: impl Fn(&Path) -> Option<T>,
) -> Option<(&PathBuf, T)> {
    folders
        .iter()
        .filter_map(|folder| Some((folder, read(folder)?)))
        .reduce(|best, next| if next.1 < best.1 { next } else { best })
}

fn entry(folder: &Path, file: &str, name: &str) -> Option<u64> {
    text(&folder.join(file))?.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        if key == name { value.trim().parse().ok() } else { None }
    })
}

fn v2_memory(group: &mut Cgroup, folders: &[PathBuf]) {
    let tight = tightest(folders, |folder| number::<u64>(&folder.join("memory.max")));
    let Some(at) = tight.map(|(folder, _)| folder).or(folders.first()) else { return };
    group.memory_max = tight.map(|(_, max)| max);
    group.memory_current = number(&at.join("memory.current"));
    group.memory_inactive_file = entry(at, "memory.stat", "inactive_file");
    group.memory_shmem = entry(at, "memory.stat", "shmem");
    group.oom_kills = entry(at, "memory.events", "oom_kill");
    group.hits = entry(at, "memory.events", "max");
}

fn v1_memory(group: &mut Cgroup, folders: &[PathBuf]) {
    let tight = tightest(folders, |folder| {
        number::<u64>(&folder.join("memory.limit_in_bytes")).filter(|max| *max < V1_UNLIMITED)
    });
    let Some(at) = tight.map(|(folder, _)| folder).or(folders.first()) else { return };
    group.memory_max = tight.map(|(_, max)| max);
    group.memory_current = number(&at.join("memory.usage_in_bytes"));
    group.memory_inactive_file = entry(at, "memory.stat", "total_inactive_file");
    group.memory_shmem = entry(at, "memory.stat", "total_shmem");
    group.oom_kills = entry(at, "memory.oom_control", "oom_kill");
    group.hits = number(&at.join("memory.failcnt"));
}

fn v2_cpu(group: &mut Cgroup, folders: &[PathBuf]) {
    let tight = tightest(folders, |folder| {
        let line = text(&folder.join("cpu.max"))?;
        let (quota, period) = line.split_once(' ')?;
        Some(quota.parse::<f64>().ok()? / period.trim().parse::<f64>().ok().filter(|period| *period > 0.0)?)
    });
    let Some((at, cpus)) = tight else { return };
    group.cpus = Some(cpus);
    group.cpu_periods = entry(at, "cpu.stat", "nr_periods");
    group.cpu_throttled = entry(at, "cpu.stat", "nr_throttled");
    group.cpu_throttled_us = entry(at, "cpu.stat", "throttled_usec");
}

fn v1_cpu(group: &mut Cgroup, folders: &[PathBuf]) {
    let tight = tightest(folders, |folder| {
        let quota = number::<f64>(&folder.join("cpu.cfs_quota_us")).filter(|quota| *quota > 0.0)?;
        Some(quota / number::<f64>(&folder.join("cpu.cfs_period_us")).filter(|period| *period > 0.0)?)
    });
    let Some((at, cpus)) = tight else { return };
    group.cpus = Some(cpus);
    group.cpu_periods = entry(at, "cpu.stat", "nr_periods");
    group.cpu_throttled = entry(at, "cpu.stat", "nr_throttled");
    group.cpu_throttled_us = entry(at, "cpu.stat", "throttled_time").map(|ns| ns / 1000);
}

fn pids(group: &mut Cgroup, folders: &[PathBuf]) {
    // How near to the limit it is counts, so the group with the least room is the tightest.
    let room = |folder: &Path| {
        let max = number::<u64>(&folder.join("pids.max"))?;
        Some(max.saturating_sub(number::<u64>(&folder.join("pids.current"))?))
    };
    let Some((at, _)) = tightest(folders, room) else { return };
    group.pids_max = number(&at.join("pids.max"));
    group.pids_current = number(&at.join("pids.current"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_with_brackets_in_its_command() {
        let line =
            "4711 (a) S (b) D 17 4711 1 0 -1 4194560 1 2 3 4 500 250 0 0 20 0 12 0 987654 99999 2048 184467";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.command.as_str(), stat.state.as_str(), stat.ppid), ("a) S (b", "D", 17));
        assert_eq!(stat.session, 1);
        assert_eq!(
            (stat.cpu_ticks, stat.n_threads, stat.started_ticks, stat.resident_pages),
            (750, 12, 987_654, 2048)
        );
        assert_eq!(Stat::parse("4711 (a"), None);
    }

    #[test]
    fn who_is_hidden_by_the_mount_of_proc() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("self");
        fs::create_dir_all(&own).unwrap();
        let told = |options: &str, status: &str| {
            let mounts = format!(
                "22 27 0:21 / /proc rw,relatime - proc proc rw\n30 22 0:21 / /proc rw - proc proc {options}\n"
            );
            fs::write(own.join("mountinfo"), mounts).unwrap();
            fs::write(own.join("status"), status).unwrap();
            hidden_by_mount(root.path())
        };
        let user = "Gid:\t1000\t1000\t1000\t1000\nGroups:\t24 1000\nCapEff:\t0000000000000000\n";
        let root_of_all = "Gid:\t0\nGroups:\t\nCapEff:\t000001ffffffffff\n";
        assert!(told("rw,hidepid=2", user).is_some_and(|why| why.contains("hidepid=2")));
        assert!(told("rw,gid=7,hidepid=invisible", user).is_some());
        assert!(told("rw,hidepid=noaccess", user).is_some());
        assert_eq!(told("rw,gid=24,hidepid=invisible", user), None, "the group that may see all");
        assert!(told("rw,gid=24,hidepid=ptraceable", user).is_some(), "that kind knows no group");
        assert_eq!(told("rw,hidepid=2", root_of_all), None);
        assert_eq!(told("rw", user), None);
        assert_eq!(told("rw,hidepid=off", user), None);
        assert_eq!(hidden_by_mount(Path::new("/nowhere")), None);
    }

    #[test]
    fn limits_and_lists() {
        let table = "Limit                     Soft Limit           Hard Limit           Units     \n\
                     Max locked memory         8388608              unlimited            bytes     \n\
                     Max open files            1024                 524288               files     \n";
        let limits = limits(table);
        assert_eq!(limits["Max locked memory"], (Some(8_388_608), None));
        assert_eq!(limits["Max open files"], (Some(1024), Some(524_288)));
        assert_eq!(count_of_list("0-3,8"), Some(5));
        assert_eq!(count_of_list("3-1"), None);
    }

    fn write(root: &Path, files: &[(&str, &str)]) {
        crate::captured::put(&root.join("fs/cgroup"), files);
    }

    #[test]
    fn the_tightest_group_of_version_2_counts() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            &[
                ("a/memory.max", "1000\n"),
                ("a/memory.current", "900\n"),
                ("a/memory.stat", "anon 1\ninactive_file 300\nshmem 20\n"),
                ("a/memory.events", "low 0\nmax 7\noom 1\noom_kill 2\n"),
                ("a/b/memory.max", "max\n"),
                ("a/b/memory.current", "5\n"),
                ("a/b/cpu.max", "250000 100000\n"),
                ("a/b/cpu.stat", "usage_usec 1\nnr_periods 10\nnr_throttled 4\nthrottled_usec 77\n"),
                ("a/cpu.max", "max 100000\n"),
                ("a/b/pids.max", "max\n"),
                ("a/pids.max", "100\n"),
                ("a/pids.current", "99\n"),
            ],
        );
        let group = cgroup(root.path(), "0::/a/b\n").unwrap();
        assert_eq!((group.version, group.memory_max, group.memory_current), (2, Some(1000), Some(900)));
        assert_eq!((group.oom_kills, group.hits, group.memory_inactive_file), (Some(2), Some(7), Some(300)));
        assert_eq!((group.cpus, group.cpu_throttled, group.cpu_throttled_us), (Some(2.5), Some(4), Some(77)));
        assert_eq!((group.pids_max, group.pids_current), (Some(100), Some(99)));
    }

    #[test]
    fn version_1_where_its_controllers_are_and_its_root_in_a_container() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            &[
                ("memory/memory.limit_in_bytes", "4096\n"),
                ("memory/memory.usage_in_bytes", "4000\n"),
                ("memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
                ("memory/memory.failcnt", "12\n"),
                ("cpu/cpu.cfs_quota_us", "-1\n"),
                ("cpu/cpu.cfs_period_us", "100000\n"),
            ],
        );
        let listing = "4:memory:/docker/0123\n3:cpu,cpuacct:/docker/0123\n0::/docker/0123\n";
        let group = cgroup(root.path(), listing).unwrap();
        assert_eq!(
            (group.version, group.memory_max, group.oom_kills, group.hits),
            (1, Some(4096), Some(3), Some(12))
        );
        assert_eq!(group.cpus, None);
        write(root.path(), &[("memory/memory.limit_in_bytes", "9223372036854771712\n")]);
        assert_eq!(cgroup(root.path(), listing).unwrap().memory_max, None);
        assert_eq!(cgroup(root.path(), ""), None);
    }
}
