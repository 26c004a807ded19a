//! File systems: room, read-only, and whether they answer at all.
//!
//! Each is asked in a thread of its own, since a mount whose server is gone holds who asks it. The thread is left
//! behind then, and the mount is named with the place in the kernel. Nothing is written, and nothing is mounted:
//! automounters are passed by.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ringleader_node::{Mount, NO_ANSWER};
use rustix::fs::{StatVfs, StatVfsMountFlags};

use super::jobs;
use crate::procfs::Stat;
use crate::request::{ReadingError, Request};
use crate::sysfs::{names, text};

/// Kinds that hold no files of a job, or would be mounted by being asked; and images that are full by nature.
const PASSED_BY: &[&str] = &[
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "erofs",
    "fuse.gvfsd-fuse",
    "fuse.lxcfs",
    "fuse.portal",
    "fusectl",
    "hugetlbfs",
    "iso9660",
    "mqueue",
    "nsfs",
    "nullfs",
    "proc",
    "pstore",
    "ramfs",
    "rootfs",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "squashfs",
    "sysfs",
    "tracefs",
];
/// File systems that are asked at most; what a job works on comes first.
const MAX_MOUNTS: usize = 256;
/// Other mount namespaces (containers) that are looked at.
const MAX_NAMESPACES: usize = 16;
/// Open files of one process that are placed.
const MAX_FILES: usize = 1024;
/// Patience with all mounts together, if the caller states no deadline.
const PATIENCE_MS: u64 = 700;

/// A line of mountinfo.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    device: String,
    at: String,
    kind: String,
    source: String,
    is_read_only: bool,
}

/// What one thread is asked, and what it says.
type Ask = fn(&Path) -> Result<StatVfs, rustix::io::Errno>;

pub(super) fn take(request: &Request) -> Result<Vec<Mount>, ReadingError> {
    take_with(request, |path| rustix::fs::statvfs(path))
}

fn take_with(request: &Request, ask: Ask) -> Result<Vec<Mount>, ReadingError> {
    let proc = &request.roots.proc;
    let own = text(&proc.join("self/mountinfo")).ok_or_else(|| {
        ReadingError::Failed(format!("{} is not readable", proc.join("self/mountinfo").display()))
    })?;
    // Without processes there are still file systems.
    let job = jobs::pids(request).unwrap_or_default();
    let mut mounts: Vec<(Mount, PathBuf)> = Vec::new();
    let own_namespace = fs::read_link(proc.join("self/ns/mnt")).ok();
    let mut namespaces: BTreeMap<PathBuf, Vec<u32>> = BTreeMap::new();
    let mut ours: Vec<u32> = Vec::new();
    for pid in job {
        match fs::read_link(proc.join(pid.to_string()).join("ns/mnt")) {
            Ok(namespace) if Some(&namespace) != own_namespace.as_ref() => {
                namespaces.entry(namespace).or_default().push(pid);
            }
            _ => ours.push(pid),
        }
    }
    let root = proc.parent().filter(|root| *root != Path::new("/"));
    for (line, used_by) in place(proc, &lines(&own), &ours, true) {
        let path =
            root.map_or_else(|| PathBuf::from(&line.at), |root| root.join(line.at.trim_start_matches('/')));
        mounts.push((mount(line, used_by, None), path));
    }
    for pids in namespaces.values().take(MAX_NAMESPACES) {
        let Some(first) = pids.first() else { continue };
        let eyes = proc.join(first.to_string());
        let Some(listing) = text(&eyes.join("mountinfo")) else { continue };
        for (line, used_by) in place(proc, &lines(&listing), pids, false) {
            let path = eyes.join("root").join(line.at.trim_start_matches('/'));
            mounts.push((mount(line, used_by, Some(*first)), path));
        }
    }
    mounts.sort_by_key(|(mount, _)| mount.used_by.is_empty());
    mounts.truncate(MAX_MOUNTS);
    let patience = match request.deadline_ms {
        0 => PATIENCE_MS,
        // The answer has to be out before the deadline.
        deadline => deadline * 6 / 10,
    };
    Ok(question(mounts, ask, Duration::from_millis(patience)))
}

fn mount(line: Line, used_by: Vec<u32>, seen_by: Option<u32>) -> Mount {
    Mount {
        at: line.at,
        device: line.source,
        kind: line.kind,
        read_only: line.is_read_only,
        used_by,
        seen_by,
        ..Mount::default()
    }
}

fn lines(listing: &str) -> Vec<Line> {
    listing.lines().filter_map(parse).collect()
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue` (proc_pid_mountinfo(5)).
fn parse(line: &str) -> Option<Line> {
    let (left, right) = line.split_once(" - ")?;
    let left: Vec<&str> = left.split(' ').collect();
    let mut right = right.split(' ');
    let (kind, source, of_all) = (right.next()?, right.next()?, right.next().unwrap_or_default());
    let has_ro = |options: &str| options.split(',').any(|option| option == "ro");
    Some(Line {
        device: (*left.get(2)?).to_owned(),
        at: unescape(left.get(4)?),
        kind: kind.to_owned(),
        source: without_credentials(&unescape(source)),
        is_read_only: has_ro(left.get(5)?) || has_ro(of_all),
    })
}

/// `//user:password@server/share` of some network file systems.
fn without_credentials(source: &str) -> String {
    if crate::allowed::looks_secret(source) { crate::allowed::CUT.to_owned() } else { source.to_owned() }
}

/// Blanks and backslashes are written as ` `.
fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((head, tail)) = rest.split_once('\\') {
        out.push_str(head);
        let code = tail.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(code) = code {
            out.push(char::from(code));
            rest = tail.get(3..).unwrap_or_default();
        } else {
            out.push('\\');
            rest = tail;
        }
    }
    out + rest
}

/// The file systems that are worth a question, each once, with the processes that work on it. `all`: also those that
/// none of `pids` works on.
fn place(proc: &Path, lines: &[Line], pids: &[u32], all: bool) -> Vec<(Line, Vec<u32>)> {
    let mut used: BTreeMap<usize, BTreeSet<u32>> = BTreeMap::new();
    for pid in pids {
        let at = proc.join(pid.to_string());
        let numbers =
            names(&at.join("fd")).into_iter().take(MAX_FILES).map(|number| at.join("fd").join(number));
        for link in [at.join("cwd")].into_iter().chain(numbers) {
            // The link is text to the kernel: reading it does not touch the file system it names.
            let Ok(path) = fs::read_link(link) else { continue };
            let Some(path) = path.to_str().filter(|path| path.starts_with('/')) else { continue };
            if let Some(index) = mount_of(lines, path) {
                used.entry(index).or_default().insert(*pid);
            }
        }
    }
    let is_wanted = |line: &Line| {
        !PASSED_BY.contains(&line.kind.as_str())
            // Of the memory's file systems those in which jobs keep things.
            && (line.kind != "tmpfs" || line.at == "/tmp" || line.at == "/")
    };
    let mut by_device: BTreeMap<&str, (usize, BTreeSet<u32>)> = BTreeMap::new();
    for (index, line) in lines.iter().enumerate() {
        let users = used.remove(&index).unwrap_or_default();
        let is_used = !users.is_empty() && !PASSED_BY.contains(&line.kind.as_str());
        // What is mounted over it hides it.
        let is_hidden = lines.iter().skip(index + 1).any(|later| later.at == line.at);
        if is_hidden || !(is_used || all && is_wanted(line)) {
            continue;
        }
        let known = by_device.entry(&line.device).or_insert_with(|| (index, BTreeSet::new()));
        // One file system at many places (bind mounts) is asked once: where it is used, and nearest to the root.
        let is_better = |old: &Line| {
            (known.1.is_empty() && is_used) || (known.1.is_empty() != is_used && line.at.len() < old.at.len())
        };
        if lines.get(known.0).is_some_and(is_better) {
            known.0 = index;
        }
        known.1.extend(users);
    }
    let mut placed: Vec<(Line, Vec<u32>)> = by_device
        .into_values()
        .filter_map(|(index, users)| Some((lines.get(index)?.clone(), users.into_iter().collect())))
        .collect();
    placed.sort_by(|a, b| a.0.at.cmp(&b.0.at));
    placed
}

/// The line whose mount holds a path: the longest one that is its beginning, the last of equals.
fn mount_of(lines: &[Line], path: &str) -> Option<usize> {
    let holds =
        |at: &str| at == "/" || path == at || path.strip_prefix(at).is_some_and(|rest| rest.starts_with('/'));
    lines
        .iter()
        .enumerate()
        .filter(|(_, line)| holds(&line.at))
        .max_by_key(|(_, line)| line.at.len())
        .map(|(index, _)| index)
}

/// Asks all at once and waits for the answers that come in time.
fn question(mounts: Vec<(Mount, PathBuf)>, ask: Ask, patience: Duration) -> Vec<Mount> {
    let started = Instant::now();
    let (sender, receiver) = mpsc::channel();
    let mut asked: Vec<(Mount, Option<i32>, bool)> = Vec::new();
    for (index, (mount, path)) in mounts.into_iter().enumerate() {
        let sender = sender.clone();
        let (says_tid, tid) = mpsc::sync_channel(1);
        let thread = thread::Builder::new().stack_size(64 << 10).spawn(move || {
            // The asker may have given up.
            let _ = says_tid.send(rustix::thread::gettid().as_raw_nonzero().get());
            let began = Instant::now();
            let answer = ask(&path);
            let _ = sender.send((index, answer, began.elapsed().as_millis() as u64));
        });
        let tid = thread.ok().and_then(|_| tid.recv_timeout(Duration::from_millis(50)).ok());
        asked.push((mount, tid, false));
    }
    drop(sender);
    while let Ok((index, answer, took_ms)) = receiver.recv_timeout(patience.saturating_sub(started.elapsed()))
    {
        let Some((mount, _, is_answered)) = asked.get_mut(index) else { continue };
        *is_answered = true;
        match answer {
            Ok(space) => fill(mount, &space, took_ms),
            Err(error) => mount.failure = Some(format!("statfs: {error}")),
        }
    }
    let silent = |(mut mount, tid, is_answered): (Mount, Option<i32>, bool)| {
        if !is_answered {
            mount.failure = Some(format!("{NO_ANSWER} within {} ms", patience.as_millis()));
            mount.stuck_in = tid.and_then(stuck_in);
        }
        mount
    };
    asked.into_iter().map(silent).collect()
}

fn fill(mount: &mut Mount, space: &StatVfs, took_ms: u64) {
    mount.answered_ms = Some(took_ms);
    mount.read_only |= space.f_flag.contains(StatVfsMountFlags::RDONLY);
    // Some network file systems do not count.
    if space.f_blocks > 0 {
        mount.size = Some(space.f_blocks * space.f_frsize);
        mount.available = Some(space.f_bavail * space.f_frsize);
    }
    if space.f_files > 0 {
        mount.inodes = Some(space.f_files);
        mount.inodes_free = Some(space.f_favail);
    }
}

/// Where a thread of this process is.
fn stuck_in(tid: i32) -> Option<String> {
    let at = Path::new("/proc/self/task").join(tid.to_string());
    let stat = Stat::parse(&text(&at.join("stat"))?)?;
    let place = text(&at.join("wchan")).filter(|place| !place.is_empty() && place != "0");
    Some(format!("state {}, in {}", stat.state, place.as_deref().unwrap_or("the kernel")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Roots;

    const LISTING: &str = "\
        25 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
        26 25 0:5 / /proc rw - proc proc rw\n\
        27 25 0:24 / /dev/shm rw - tmpfs tmpfs rw\n\
        30 25 0:50 / /data rw,relatime - nfs4 server:/data rw,vers=4.2\n\
        31 25 0:50 / /very/long/data rw,relatime - nfs4 server:/data rw,vers=4.2\n\
        32 25 0:51 / /my\\040disk ro,relatime - xfs /dev/sdb rw\n\
        33 25 0:52 / /auto rw - autofs systemd-1 rw\n\
        34 25 7:0 / /snap/x ro - squashfs /dev/loop0 ro\n\
        35 25 0:53 / /share rw - cifs //u:hunter2@server/share?password=hunter2 rw\n";

    /// A tree with a rank whose directory is `directory`.
    fn tree(directory: &str) -> (tempfile::TempDir, Request) {
        let root = tempfile::tempdir().unwrap();
        let (own, rank) = (root.path().join("proc/self"), root.path().join("proc/4711"));
        for folder in [own.join("ns"), rank.join("ns"), rank.join("fd")] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(own.join("mountinfo"), LISTING).unwrap();
        fs::write(rank.join("environ"), "RANK=0\0").unwrap();
        let stat = "4711 (python3) S 1 1 1 0 -1 0 1 2 3 4 5 6 0 0 20 0 3 0 100 999 50 0\n";
        fs::write(rank.join("stat"), stat).unwrap();
        std::os::unix::fs::symlink(directory, rank.join("cwd")).unwrap();
        for at in ["data", "very/long/data", "my disk"] {
            fs::create_dir_all(root.path().join(at)).unwrap();
        }
        let request = Request { roots: Roots::under(root.path()), deadline_ms: 400, ..Request::default() };
        (root, request)
    }

    #[test]
    fn a_mount_that_does_not_answer_is_named_and_the_others_are_told() {
        let (_root, request) = tree("/very/long/data/run7");
        let started = Instant::now();
        let taken = take_with(&request, |path| {
            if path.ends_with("data") {
                thread::sleep(Duration::from_secs(30));
            }
            rustix::fs::statvfs(path)
        })
        .unwrap();
        assert!(started.elapsed() < Duration::from_secs(5), "it waited for the stuck one");
        let told: Vec<(&str, bool, bool)> =
            taken.iter().map(|m| (m.at.as_str(), m.failure.is_some(), m.used_by == [4711])).collect();
        // Automounters and images are not asked; a file system at two places is asked where the job works.
        assert_eq!(
            told,
            [
                ("/very/long/data", true, true),
                ("/", false, false),
                ("/my disk", false, false),
                ("/share", true, false)
            ]
        );
        assert!(taken[0].failure.as_deref().unwrap().starts_with("no answer within 240 ms"));
        assert!(taken[0].stuck_in.as_deref().unwrap().contains("state S"));
        assert!(taken[2].read_only && taken[2].size.is_some());
        assert!(!taken[3].device.contains("hunter2"), "{}", taken[3].device);
    }

    #[test]
    fn nobody_works_there() {
        let (_root, request) = tree("/");
        let taken = take(&request).unwrap();
        let at_data = taken.iter().find(|mount| mount.device == "server:/data").unwrap();
        assert_eq!(
            (at_data.at.as_str(), at_data.used_by.len(), at_data.failure.is_none()),
            ("/data", 0, true)
        );
        assert_eq!(taken[0].used_by, [4711]);
    }

    /// A FUSE file system whose daemon never answers, in a mount namespace of the test's own. Needs root, and says so.
    #[test]
    fn a_real_mount_whose_server_never_answers() {
        let at = tempfile::tempdir().unwrap();
        let script = "exec 9<>/dev/fuse && mount -i -t fuse -o fd=9,rootmode=40000,user_id=0,group_id=0 hung \"$1\" \
            || exit 77; exec \"$2\" --exact probes::mounts::tests::beside_a_hung_mount --ignored";
        let output = std::process::Command::new("unshare")
            .args(["-m", "sh", "-c", script, "sh"])
            .arg(at.path())
            .arg(std::env::current_exe().unwrap())
            .env(HUNG, at.path())
            .output();
        match output {
            Ok(output)
                if output.status.code() == Some(77)
                    || String::from_utf8_lossy(&output.stderr).contains("unshare") => {}
            Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout)),
            Err(_) => {}
        }
    }

    const HUNG: &str = "RINGLEADER_TEST_HUNG_MOUNT";

    #[test]
    #[ignore = "runs within the test above, where there is such a mount"]
    fn beside_a_hung_mount() {
        let Ok(hung) = std::env::var(HUNG) else { return };
        let request = Request { deadline_ms: 500, ..Request::default() };
        let started = Instant::now();
        let taken = take(&request).unwrap();
        assert!(started.elapsed() < Duration::from_secs(5));
        let mount = taken.iter().find(|mount| mount.at == hung).unwrap();
        assert_eq!(mount.failure.as_deref(), Some("no answer within 300 ms"));
        let place = mount.stuck_in.as_deref().unwrap();
        assert!(place.contains("state D") && place.contains("fuse"), "{place}");
        assert!(taken.iter().any(|mount| mount.at == "/" && mount.size.is_some()));
        // A process that hangs there is reported with its place by the probe of jobs.
        let mut child = std::process::Command::new("stat").args(["-f", &hung]).spawn().unwrap();
        let target = crate::request::Target { pids: vec![child.id()], ..Default::default() };
        let request = Request { target, ..Request::default() };
        let found = (0..50).find_map(|_| {
            let jobs = jobs::take(&request).unwrap();
            let process = jobs.processes.into_iter().find(|process| process.pid == child.id())?;
            process.blocked_threads.first().map(|(tid, place)| (*tid, place.clone()))
        });
        let id = child.id();
        child.kill().unwrap();
        child.wait().unwrap();
        let (tid, place) = found.unwrap();
        assert!(tid == id && place.contains("fuse"), "{place}");
    }

    #[test]
    fn this_machine() {
        let taken = take(&Request::default()).unwrap();
        let root = taken.iter().find(|mount| mount.at == "/").unwrap();
        assert!(root.failure.is_some() || root.size.is_some());
    }
}
