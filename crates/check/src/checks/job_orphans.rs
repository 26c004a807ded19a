//! # What it checks
//!
//! Processes of an earlier run that still exist: their launcher is gone, and they hold GPUs, ports and memory that the
//! next run needs.
//!
//! # What fails
//!
//! A process with variables that only a launcher sets, without a launcher above it, that uses a GPU. Without a GPU it
//! only warns. A daemon that a rank of a live job has detached is not an orphan.
//!
//! # What to do
//!
//! Inspect each process, then end it: `ringleader check --kill-orphans PID,…` checks again that these are orphans and
//! yours, and sends them SIGTERM without asking. A stopped process receives it when it is continued.
//!
//! # References
//!
//! torchrun's and srun's environment; proc_pid_stat(5), parent.

use crate::answer::{CheckAnswer, CheckState, Impact, Item};
use crate::jobs::{Orphan, orphans};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "job-orphans",
    title: "no process left over from an earlier run",
    area: Area::Job,
    reads: &[Probe::Jobs, Probe::Gpus, Probe::System],
    drains: false,
    is_quick: true,
    since: "0.2",
    doc: include_str!("job_orphans.rs"),
    run,
};

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let jobs = match view.node.jobs.seen() {
        Ok(jobs) => jobs,
        Err(missing) => return missing.into(),
    };
    let found = orphans(view.node);
    let items = found.iter().map(|orphan| item(orphan, view.node.at_ns)).collect();
    // A sandbox may hide a process of its own even from root: that is no other user's job.
    let is_root = view.node.system.get().is_some_and(|system| system.euid == 0) && jobs.unseen.is_none();
    if let Some(why) = jobs.blind_spot().filter(|_| found.is_empty() && !is_root) {
        return CheckAnswer::skipped(why);
    }
    let pids: Vec<String> = found.iter().map(|orphan| orphan.pid.to_string()).collect();
    CheckAnswer::from_items("no process is left over from an earlier run", items)
        .advise(
            Impact::Harmless,
            "look at them",
            Some(format!("ps -o pid,ppid,user,lstart,stat,args -p {}", pids.join(","))),
        )
        .advise(
            Impact::Destructive,
            "end orphans that no job needs: it checks again, and ends only your own processes that are still orphans",
            Some(format!("ringleader check --only job-orphans --kill-orphans {}", pids.join(","))),
        )
}

fn item(orphan: &Orphan, now_ns: i64) -> Item {
    let age_min = (now_ns - orphan.started_ns).max(0) / 60_000_000_000;
    let subject = match orphan.rank {
        Some(rank) => format!("pid {} (was rank {rank})", orphan.pid),
        None => format!("pid {}", orphan.pid),
    };
    let held = match (orphan.gpus.as_slice(), orphan.gpu_memory_mib) {
        ([], _) => "uses no GPU".to_owned(),
        (gpus, Some(mib)) => format!("holds {mib} MiB of {}", gpus.join(", ")),
        (gpus, None) => format!("has {} open", gpus.join(", ")),
    };
    Item {
        subject,
        verdict: if orphan.gpus.is_empty() { CheckState::Warn } else { CheckState::Fail },
        text: format!("{} of user {}, {age_min} min old, {held}: {}", orphan.command, orphan.uid, orphan.why),
        evidence: format!("/proc/{}/stat and environ", orphan.pid),
    }
}

#[cfg(test)]
mod tests {
    use ringleader_node::{Jobs, Part, System};

    use super::CHECK;
    use crate::answer::CheckState;
    use crate::staging_jobs::{NodeStage, process};

    const OLD: [(&str, &str); 4] = [
        ("RANK", "5"),
        ("LOCAL_RANK", "5"),
        ("TORCHELASTIC_RUN_ID", "old"),
        ("TORCHELASTIC_RESTART_COUNT", "0"),
    ];

    #[test]
    fn one_is_left_beside_a_job() {
        let stage = NodeStage::job(|_, _| {}).process(process(500, 1, "python3", &OLD));
        stage.expect(&CHECK, CheckState::Warn, &["pid 500 (was rank 5)"]);
        let stage = stage.gpu("0000:1b:00.0", &[(500, 900), (80, 70_000)]);
        stage.expect(&CHECK, CheckState::Fail, &["pid 500 (was rank 5)"]);
        let commands: Vec<_> = stage.answer(&CHECK).fixes.into_iter().filter_map(|fix| fix.command).collect();
        assert_eq!(commands[1], "ringleader check --only job-orphans --kill-orphans 500");
        assert!(stage.answer(&CHECK).summary.contains("60 min old, holds 900 MiB of 0000:1b:00.0"));
    }

    #[test]
    fn a_job_alone_and_nothing_read() {
        NodeStage::job(|_, _| {}).expect(&CHECK, CheckState::Ok, &[]);
        NodeStage::new().expect(&CHECK, CheckState::Ok, &[]);
        NodeStage::new().with(|node| node.jobs = ringleader_node::Part::default()).expect(
            &CHECK,
            CheckState::Skipped,
            &[],
        );
    }

    #[test]
    fn what_does_not_show_is_not_said_to_be_absent() {
        let jobs = |n_hidden: u32, unseen: Option<&str>, euid: u32| {
            NodeStage::new().with(|node| {
                let unseen = unseen.map(str::to_owned);
                node.jobs = Part::of(Jobs { n_hidden, unseen, ..Jobs::default() });
                node.system = Part::of(System { euid, ..System::default() });
            })
        };
        let hides = Some("/proc is mounted with hidepid=2");
        jobs(0, hides, 1000).expect(&CHECK, CheckState::Skipped, &[]);
        assert!(jobs(0, hides, 1000).answer(&CHECK).summary.contains("hidepid"));
        jobs(3, None, 1000).expect(&CHECK, CheckState::Skipped, &[]);
        // A sandbox's first process, and a part that was not read, so that the user is unknown.
        jobs(1, None, 0).expect(&CHECK, CheckState::Ok, &[]);
        jobs(3, None, 0).with(|node| node.system = Part::default()).expect(&CHECK, CheckState::Skipped, &[]);
        // Orphans that are found are reported all the same.
        let stage = jobs(0, hides, 1000)
            .process(process(1, 0, "systemd", &[]))
            .process(process(500, 1, "python3", &OLD));
        stage.expect(&CHECK, CheckState::Warn, &["pid 500 (was rank 5)"]);
    }
}
