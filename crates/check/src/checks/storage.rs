//! # What it checks
//!
//! File systems: whether they answer, have space and inodes, and are writable where a job works.
//!
//! # What fails
//!
//! One that the job uses and that does not answer, is full, has no inode left, or is a disk that became read-only under
//! the job's directory or logs. A full root or /tmp counts as used by every job. It warns about other file systems. The
//! check writes nothing.
//!
//! # What to do
//!
//! For a mount that does not answer, check its server and the kernel log; free space; move the logs.
//!
//! # References
//!
//! statvfs(3); proc_pid_mountinfo(5).

use ringleader_node::{Mount, Process};

use crate::answer::{CheckAnswer, CheckState, Impact, Item};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "storage",
    title: "file systems answer and have space",
    area: Area::Host,
    reads: &[Probe::Mounts, Probe::Jobs],
    drains: false,
    is_quick: false,
    since: "0.2",
    doc: include_str!("storage.rs"),
    run,
};

/// Free space below which the next log line or checkpoint fails, bytes.
const NO_ROOM: u64 = 64 << 20;
/// A small file system never has much more than that: there one part in this many of its size counts instead.
const NO_ROOM_ONE_IN: u64 = 20;
/// Free space below which a checkpoint fails: both the share and the amount.
const LITTLE_ROOM: u64 = 10 << 30;
const LITTLE_PCT: u64 = 2;
/// A healthy file system reports its size within this time, milliseconds.
const SLOW_MS: u64 = 300;
/// Layers and images are read-only by nature.
const READ_ONLY_BY_NATURE: &[&str] =
    &["overlay", "squashfs", "iso9660", "erofs", "tmpfs", "cvmfs2", "fuse.squashfuse", "cramfs"];

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let mounts = match view.node.mounts.seen() {
        Ok(mounts) => mounts,
        Err(missing) => return missing.into(),
    };
    if mounts.is_empty() {
        return CheckAnswer::skipped("no file system was checked");
    }
    let processes: &[Process] = view.node.jobs.get().map_or(&[], |jobs| &jobs.processes);
    let mut items = Vec::new();
    for mount in mounts {
        judge(mount, mounts, processes, &mut items);
    }
    let n_used = mounts.iter().filter(|mount| !mount.used_by.is_empty()).count();
    let stuck: Vec<&Mount> = mounts.iter().filter(|mount| mount.is_silent()).collect();
    let mut answer = CheckAnswer::from_items(
        format!("{} file systems answer, the job works on {n_used}", mounts.len()),
        items,
    );
    answer = if stuck.is_empty() {
        answer.advise(Impact::Harmless, "check what fills it", Some("df -h; df -i".to_owned()))
    } else {
        answer.advise(
            Impact::Harmless,
            "check what the kernel logs about it, and whether its server answers",
            Some("dmesg -T | grep -iE 'nfs|lustre|ceph|fuse|not responding' | tail".to_owned()),
        )
    };
    answer
}

fn judge(mount: &Mount, mounts: &[Mount], processes: &[Process], items: &mut Vec<Item>) {
    let is_used = !mount.used_by.is_empty();
    let is_everybodys = ["/", "/tmp"].contains(&mount.at.as_str()) && mount.seen_by.is_none();
    let bad = |used: bool| if used { CheckState::Fail } else { CheckState::Warn };
    let seen_by = mount.seen_by.map(|pid| format!(", seen by pid {pid}")).unwrap_or_default();
    let users = match mount.used_by.as_slice() {
        [] => String::new(),
        [pid] => format!("; pid {pid} of the job works there"),
        [pid, ..] => format!("; {} processes of the job work there, pid {pid} first", mount.used_by.len()),
    };
    let mut push = |verdict, text: String, evidence: String| {
        items.push(Item {
            subject: format!("{} ({} {}{seen_by})", mount.at, mount.kind, mount.device),
            verdict,
            text: text + &users,
            evidence,
        });
    };
    if let Some(why) = &mount.failure {
        let place = mount.stuck_in.as_ref().map(|place| format!(": {place}")).unwrap_or_default();
        // Another user's container may refuse access: that is no fault of the file system.
        if !mount.is_refused() {
            push(bad(is_used), format!("{why}{place}"), format!("statfs {}", mount.at));
        }
        return;
    }
    if let Some(ms) = mount.answered_ms.filter(|ms| is_used && *ms >= SLOW_MS) {
        push(CheckState::Warn, format!("took {ms} ms to report its size"), format!("statfs {}", mount.at));
    }
    let writes_here = |process: &&Process| {
        let paths = process.directory.iter().chain(&process.logs);
        mount.used_by.contains(&process.pid) && paths.into_iter().any(|path| is_on(mount, mounts, path))
    };
    let writer = processes.iter().find(writes_here);
    if mount.read_only {
        if let Some(process) = writer {
            let by_nature = READ_ONLY_BY_NATURE.contains(&mount.kind.as_str());
            // Data are often mounted read-only, and a job may well start there: the files that it writes decide.
            let logs = process.logs.iter().any(|path| is_on(mount, mounts, path));
            let verdict = if logs && !by_nature { CheckState::Fail } else { CheckState::Warn };
            let what = if logs { "logs" } else { "directory" };
            push(
                verdict,
                format!("is read-only, and the {what} of pid {} are there", process.pid),
                format!("mountinfo: {} ro", mount.at),
            );
        }
        // Nothing writes to it, so a full one does not matter.
        return;
    }
    if mount.at.starts_with("/boot") {
        return;
    }
    if let (Some(size), Some(available)) = (mount.size, mount.available) {
        let evidence = format!("statfs {}: size {size}, available {available}", mount.at);
        if available < NO_ROOM.min(size / NO_ROOM_ONE_IN) {
            push(
                bad(is_used || is_everybodys),
                format!("is full: {} MiB of {} GiB left", available >> 20, size >> 30),
                evidence,
            );
        } else if available < LITTLE_ROOM && available * 100 < size * LITTLE_PCT {
            push(
                CheckState::Warn,
                format!("{:.1} of {} GiB left", available as f64 / f64::from(1 << 30), size >> 30),
                evidence,
            );
        }
    }
    if let (Some(all), Some(free)) = (mount.inodes, mount.inodes_free) {
        let evidence = format!("statfs {}: inodes {all}, free {free}", mount.at);
        if free == 0 {
            push(
                bad(is_used || is_everybodys),
                "has no inode left: no file can be created".to_owned(),
                evidence,
            );
        } else if free * 100 < all {
            push(CheckState::Warn, format!("{free} of {all} inodes left"), evidence);
        }
    }
}

/// Whether the path is on this mount and on none below it.
fn is_on(mount: &Mount, mounts: &[Mount], path: &str) -> bool {
    let holds =
        |at: &str| at == "/" || path == at || path.strip_prefix(at).is_some_and(|rest| rest.starts_with('/'));
    let same_eyes = mounts.iter().filter(|other| other.seen_by == mount.seen_by && holds(&other.at));
    same_eyes.max_by_key(|other| other.at.len()).is_some_and(|nearest| nearest.at == mount.at)
}

#[cfg(test)]
mod tests {
    use ringleader_node::{Mount, Part};

    use super::CHECK;
    use crate::answer::CheckState;
    use crate::staging_jobs::NodeStage;

    const GIB: u64 = 1 << 30;

    fn mount(at: &str, used_by: &[u32]) -> Mount {
        Mount {
            at: at.to_owned(),
            device: "server:/x".to_owned(),
            kind: "nfs4".to_owned(),
            size: Some(1000 * GIB),
            available: Some(500 * GIB),
            inodes: Some(1000),
            inodes_free: Some(900),
            answered_ms: Some(1),
            used_by: used_by.to_vec(),
            ..Mount::default()
        }
    }

    fn stage(mounts: Vec<Mount>) -> NodeStage {
        NodeStage::job(|n, rank| {
            rank.directory = Some("/work/run".to_owned());
            if n == 0 {
                rank.logs = vec!["/work/run/out.log".to_owned()];
            }
        })
        .with(|node| node.mounts = Part::of(mounts))
    }

    fn stuck(used_by: &[u32]) -> Mount {
        Mount {
            size: None,
            available: None,
            answered_ms: None,
            failure: Some("no answer within 720 ms".to_owned()),
            stuck_in: Some("state D, in rpc_wait_bit_killable".to_owned()),
            ..mount("/work", used_by)
        }
    }

    #[test]
    fn a_mount_that_does_not_answer() {
        let used = stage(vec![mount("/", &[]), stuck(&[80, 81])]);
        used.expect(&CHECK, CheckState::Fail, &["/work (nfs4 server:/x)"]);
        let summary = used.answer(&CHECK).summary;
        assert!(summary.contains("rpc_wait_bit_killable") && summary.contains("pid 80"), "{summary}");
        stage(vec![mount("/", &[]), stuck(&[])]).expect(
            &CHECK,
            CheckState::Warn,
            &["/work (nfs4 server:/x)"],
        );
        let refused = Mount {
            failure: Some("statfs: Permission denied (os error 13)".to_owned()),
            answered_ms: None,
            ..mount("/work", &[80])
        };
        stage(vec![refused]).expect(&CHECK, CheckState::Ok, &[]);
    }

    #[test]
    fn full_and_nearly_full() {
        let full = |at: &str, used: &[u32]| Mount { available: Some(1 << 20), ..mount(at, used) };
        stage(vec![full("/work", &[80])]).expect(&CHECK, CheckState::Fail, &["/work (nfs4 server:/x)"]);
        stage(vec![full("/other", &[])]).expect(&CHECK, CheckState::Warn, &["/other (nfs4 server:/x)"]);
        stage(vec![full("/", &[])]).expect(&CHECK, CheckState::Fail, &["/ (nfs4 server:/x)"]);
        stage(vec![full("/boot/efi", &[])]).expect(&CHECK, CheckState::Ok, &[]);
        let nearly = Mount { available: Some(5 * GIB), ..mount("/work", &[80]) };
        stage(vec![nearly]).expect(&CHECK, CheckState::Warn, &["/work (nfs4 server:/x)"]);
        // A large share is used, but there is space enough.
        let large = Mount { available: Some(15 * GIB), ..mount("/work", &[80]) };
        stage(vec![large]).expect(&CHECK, CheckState::Ok, &[]);
        let inodes = Mount { inodes_free: Some(0), ..mount("/work", &[80]) };
        stage(vec![inodes]).expect(&CHECK, CheckState::Fail, &["/work (nfs4 server:/x)"]);
    }

    #[test]
    fn read_only() {
        let read_only = |at: &str, kind: &str, used: &[u32]| Mount {
            read_only: true,
            kind: kind.to_owned(),
            ..mount(at, used)
        };
        stage(vec![mount("/", &[]), read_only("/work", "ext4", &[80])]).expect(
            &CHECK,
            CheckState::Fail,
            &["/work (ext4 server:/x)"],
        );
        // Rank 1 only has its directory there; data that are only read; an image; files below another mount.
        stage(vec![mount("/", &[]), read_only("/work", "ext4", &[81])]).expect(
            &CHECK,
            CheckState::Warn,
            &["/work (ext4 server:/x)"],
        );
        stage(vec![mount("/work", &[80]), read_only("/data", "ext4", &[80])]).expect(
            &CHECK,
            CheckState::Ok,
            &[],
        );
        stage(vec![mount("/work", &[80]), read_only("/", "overlay", &[80])]).expect(
            &CHECK,
            CheckState::Ok,
            &[],
        );
    }

    #[test]
    fn nothing_to_judge() {
        stage(vec![mount("/", &[])]).expect(&CHECK, CheckState::Ok, &[]);
        stage(vec![]).expect(&CHECK, CheckState::Skipped, &[]);
        NodeStage::new().expect(&CHECK, CheckState::Skipped, &[]);
    }
}
