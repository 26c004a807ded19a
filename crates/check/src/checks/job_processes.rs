//! # What it checks
//!
//! The ranks of this node: as many as their launcher started, alive, running.
//!
//! # What fails
//!
//! A rank that is missing, a zombie (Z), stopped (T), or blocked so deep in the kernel that even reading it hangs. It
//! warns about a thread in an uninterruptible wait at both readings, and about a process under a debugger. Children of
//! a rank (data loaders) do not count as ranks.
//!
//! # What to do
//!
//! Read the log of the missing rank first: the others only wait for it. Continue a stopped one with SIGCONT.
//!
//! # References
//!
//! proc_pid_stat(5); torchrun's variables; Slurm's srun(1), output environment.

use std::collections::BTreeSet;

use ringleader_node::{Jobs, Process, is_hang};

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::jobs::{LaunchedRanks, astray, by_launcher, by_meeting, meets_on_loopback, name};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "job-processes",
    title: "the job's processes are alive",
    area: Area::Job,
    reads: &[Probe::Jobs],
    drains: false,
    is_quick: true,
    since: "0.2",
    doc: include_str!("job_processes.rs"),
    run,
};

/// A launcher younger than this may still be starting its ranks, nanoseconds.
const STARTING_NS: i64 = 20_000_000_000;

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let jobs = match view.node.jobs.seen() {
        Ok(jobs) => jobs,
        Err(missing) => return missing.into(),
    };
    let astray = astray(jobs);
    // Nothing waits for processes left by an earlier run; another check names them.
    let mut groups = by_launcher(jobs);
    for job in &mut groups {
        job.ranks.retain(|rank| !astray.contains(&rank.pid));
    }
    groups.retain(|job| job.launcher.is_some() || !job.ranks.is_empty());
    let n_ranks: usize = groups.iter().map(|job| job.ranks.len()).sum();
    let mut items = Vec::new();
    for process in &jobs.processes {
        if let Some(why) = process.hidden.as_deref().filter(|why| is_hang(why)) {
            items.push(item(process, CheckState::Fail, why.to_owned(), place_of(process)));
        }
    }
    if n_ranks == 0 && items.is_empty() {
        let none = "no visible process has a rank";
        return CheckAnswer::skipped(match jobs.blind_spot() {
            None => "no process here has a rank".to_owned(),
            Some(why) => format!("{none}; {why}"),
        });
    }
    missing_of_world(jobs, &groups, &mut items);
    for job in &groups {
        missing(view, job, &mut items);
        for rank in &job.ranks {
            standing(rank, &mut items);
        }
        let expected = expected(job);
        let is_whole = expected.is_some_and(|n| job.ranks.len() >= n as usize);
        for dead in jobs.processes.iter().filter(|p| p.state == "Z" && !is_whole) {
            let is_sibling =
                job.ranks.iter().any(|rank| rank.ppid == dead.ppid && rank.command == dead.command);
            let is_last =
                job.ranks.is_empty() && job.launcher.is_some_and(|launcher| launcher.pid == dead.ppid);
            if is_sibling || is_last {
                let text = format!(
                    "is a zombie: it has exited, and its parent, pid {}, has not reaped it",
                    dead.ppid
                );
                let evidence = format!("/proc/{}/stat: state Z, parent {}", dead.pid, dead.ppid);
                let subject = format!("pid {} ({})", dead.pid, dead.command);
                items.push(Item { subject, verdict: CheckState::Fail, text, evidence });
            }
        }
    }
    let stopped: Vec<String> = jobs
        .processes
        .iter()
        .filter(|p| p.state == "T" && !astray.contains(&p.pid))
        .map(|p| p.pid.to_string())
        .collect();
    let has_stopped = groups.iter().flat_map(|job| &job.ranks).any(|rank| rank.state == "T");
    let mut answer = CheckAnswer::from_items(format!("{n_ranks} ranks alive"), items);
    if has_stopped {
        let command = format!("kill -CONT {}", stopped.join(" "));
        answer = answer.advise(
            Impact::Disruptive,
            "resume the stopped process, once you know who stopped it",
            Some(command),
        );
    }
    answer
        .advise(
            Impact::Harmless,
            "collect evidence before the launcher ends the job, and read the log of the affected rank",
            Some("ringleader collect".to_owned()),
        )
        .value("job.n-ranks", n_ranks, ValueKind::Same)
}

/// Number of ranks that the launcher wants on this node.
fn expected(job: &LaunchedRanks<'_>) -> Option<u32> {
    let of_rank =
        ["LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"];
    let told = job.ranks.iter().find_map(|rank| of_rank.iter().find_map(|name| rank.number(name)));
    told.or_else(|| {
        let arguments = &job.launcher?.arguments;
        arguments.iter().enumerate().find_map(|(at, word)| {
            let flag = word.trim_start_matches('-').replace('_', "-");
            match flag.split_once('=') {
                Some(("nproc-per-node", n)) => n.parse().ok(),
                None if flag == "nproc-per-node" => arguments.get(at + 1)?.parse().ok(),
                _ => None,
            }
        })
    })
}

/// Ranks of a job whose ranks all run on this node, since its master is called localhost, and no launcher says how many.
fn missing_of_world(jobs: &Jobs, groups: &[LaunchedRanks<'_>], items: &mut Vec<Item>) {
    if groups.iter().any(|job| expected(job).is_some()) {
        return;
    }
    for ranks in by_meeting(jobs).iter().filter(|ranks| ranks.iter().all(|rank| meets_on_loopback(rank))) {
        let Some(world) = ranks.iter().find_map(|rank| rank.world_size()).filter(|n| *n <= MAX_WORLD) else {
            continue;
        };
        let here: BTreeSet<u32> = ranks.iter().filter_map(|rank| rank.rank()).collect();
        for rank in (0..world).filter(|rank| !here.contains(rank)) {
            items.push(Item {
                subject: format!("rank {rank}"),
                verdict: CheckState::Fail,
                text: format!("has no process; its job has {world} ranks, all on this node"),
                evidence: format!(
                    "WORLD_SIZE={world} and a loopback MASTER_ADDR; ranks seen: {}",
                    listed(&here)
                ),
            });
        }
    }
}

/// Ranks of one node.
const MAX_WORLD: u32 = 1024;

fn listed(ranks: &BTreeSet<u32>) -> String {
    let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
    if ranks.is_empty() { "none".to_owned() } else { ranks.join(", ") }
}

fn missing(view: &NodeView<'_>, job: &LaunchedRanks<'_>, items: &mut Vec<Item>) {
    let Some(n) = expected(job) else { return };
    // The scheduler's count per node is that of its own tasks.
    let here: BTreeSet<u32> = job.ranks.iter().filter_map(|rank| rank.local_rank()).collect();
    if here.is_empty() && !job.ranks.is_empty() {
        return;
    }
    // By every launcher's default the global ranks of a node are consecutive.
    let first = job.ranks.iter().find_map(|rank| rank.rank()?.checked_sub(rank.local_rank()?));
    let is_starting =
        job.launcher.is_some_and(|launcher| view.node.at_ns - launcher.started_ns < STARTING_NS);
    let launcher =
        job.launcher.map_or_else(|| "its launcher".to_owned(), |l| format!("pid {} ({})", l.pid, l.command));
    for local in (0..n).filter(|local| !here.contains(local)) {
        let subject = match first {
            Some(first) => format!("rank {} (local rank {local})", first + local),
            None => format!("local rank {local}"),
        };
        let (verdict, text) = if is_starting {
            (CheckState::Warn, format!("has no process yet; {launcher} has just started"))
        } else {
            (CheckState::Fail, format!("has no process; {launcher} wants {n} ranks here"))
        };
        let evidence =
            format!("LOCAL_WORLD_SIZE or --nproc-per-node: {n}; local ranks seen: {}", listed(&here));
        items.push(Item { subject, verdict, text, evidence });
    }
}

fn standing(rank: &Process, items: &mut Vec<Item>) {
    match rank.state.as_str() {
        "T" => {
            let text = "is stopped (SIGSTOP or SIGTSTP): all others wait for it".to_owned();
            items.push(item(rank, CheckState::Fail, text, format!("/proc/{}/stat: state T", rank.pid)));
        }
        "t" => {
            let text = "is held by a debugger".to_owned();
            items.push(item(rank, CheckState::Warn, text, format!("/proc/{}/stat: state t", rank.pid)));
        }
        _ => {}
    }
    if let Some((tid, place)) = rank.blocked_threads.first() {
        let n = rank.blocked_threads.len();
        let place = if place.is_empty() || place == "0" { "the kernel" } else { place };
        let text =
            format!("{n} of its threads wait uninterruptibly in {place} and did not run between two samples");
        items.push(item(
            rank,
            CheckState::Warn,
            text,
            format!("/proc/{}/task/{tid}/wchan: {place}", rank.pid),
        ));
    }
}

fn place_of(process: &Process) -> String {
    format!(
        "/proc/{}: state {}, wchan {}",
        process.pid,
        process.state,
        process.wchan.as_deref().unwrap_or("unknown")
    )
}

fn item(process: &Process, verdict: CheckState, text: String, evidence: String) -> Item {
    Item { subject: name(process), verdict, text, evidence }
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::answer::CheckState;
    use crate::staging_jobs::{NOW_NS, NodeStage, process};

    /// Started by a shell's loop: no launcher says how many there are to be.
    #[test]
    fn a_rank_that_is_missing_from_a_job_of_this_node() {
        let rank = |rank: u32, master: &str| {
            let rank_word = rank.to_string();
            let of: Vec<(&str, &str)> = vec![
                ("RANK", &rank_word),
                ("WORLD_SIZE", "3"),
                ("MASTER_ADDR", master),
                ("MASTER_PORT", "29500"),
            ];
            process(90 + rank, 1, "python3", &of)
        };
        let job = |master: &str| NodeStage::new().process(rank(0, master)).process(rank(2, master));
        job("127.0.0.1").expect(&CHECK, CheckState::Fail, &["rank 1"]);
        job("node7").expect(&CHECK, CheckState::Ok, &[]);
    }

    #[test]
    fn all_alive() {
        NodeStage::job(|_, _| {}).expect(&CHECK, CheckState::Ok, &[]);
        // Children that are dead, stopped or blocked are not ranks.
        let worker = |state: &str| {
            let mut worker = process(300, 81, "pt_data_worker", &[("RANK", "1"), ("LOCAL_RANK", "1")]);
            worker.state = state.to_owned();
            worker
        };
        NodeStage::job(|_, _| {}).process(worker("Z")).process(worker("D")).expect(
            &CHECK,
            CheckState::Ok,
            &[],
        );
        // A program that the launcher ran and did not wait for, while all ranks exist.
        let mut smi = process(301, 70, "nvidia-smi", &[]);
        (smi.state, smi.environment) = ("Z".to_owned(), None);
        NodeStage::job(|_, _| {}).process(smi).expect(&CHECK, CheckState::Ok, &[]);
    }

    #[test]
    fn stopped_blocked_and_debugged() {
        let state = |which: u32, state: &'static str| {
            NodeStage::job(move |n, rank| {
                if n == which {
                    rank.state = state.to_owned();
                }
            })
        };
        state(2, "T").expect(&CHECK, CheckState::Fail, &["pid 82 (rank 2)"]);
        assert_eq!(state(2, "T").answer(&CHECK).fixes[0].command.as_deref(), Some("kill -CONT 82"));
        state(1, "t").expect(&CHECK, CheckState::Warn, &["pid 81 (rank 1)"]);
        // State D at one reading proves nothing.
        state(1, "D").expect(&CHECK, CheckState::Ok, &[]);
        let blocked = NodeStage::job(|n, rank| {
            if n == 3 {
                rank.blocked_threads = vec![(99, "rpc_wait_bit_killable".to_owned())];
            }
        });
        blocked.expect(&CHECK, CheckState::Warn, &["pid 83 (rank 3)"]);
        assert!(blocked.answer(&CHECK).summary.contains("rpc_wait_bit_killable"));
    }

    #[test]
    fn a_rank_is_missing_or_dead() {
        NodeStage::job(|_, _| {}).without(82).expect(&CHECK, CheckState::Fail, &["rank 2 (local rank 2)"]);
        let mut dead = process(82, 70, "python3", &[]);
        (dead.state, dead.environment) = ("Z".to_owned(), None);
        let stage = NodeStage::job(|_, _| {}).without(82).process(dead);
        stage.expect(&CHECK, CheckState::Fail, &["rank 2 (local rank 2)", "pid 82 (python3)"]);
        // The launcher has just started.
        let mut young = process(70, 1, "torchrun", &[]);
        young.started_ns = NOW_NS - 1_000_000_000;
        NodeStage::job(|_, _| {}).without(82).without(70).process(young).expect(
            &CHECK,
            CheckState::Warn,
            &["rank 2 (local rank 2)"],
        );
    }

    #[test]
    fn what_an_earlier_run_has_left_is_no_rank_of_this_job() {
        let old = [
            ("RANK", "2"),
            ("LOCAL_RANK", "2"),
            ("LOCAL_WORLD_SIZE", "4"),
            ("TORCHELASTIC_RUN_ID", "old"),
            ("TORCHELASTIC_RESTART_COUNT", "0"),
        ];
        let mut left = process(500, 1, "python3", &old);
        left.state = "T".to_owned();
        let stage = NodeStage::job(|_, _| {}).process(left.clone());
        stage.expect(&CHECK, CheckState::Ok, &[]);
        assert_eq!(stage.answer(&CHECK).summary, "4 ranks alive");
        NodeStage::new().process(process(1, 0, "systemd", &[])).process(left).expect(
            &CHECK,
            CheckState::Skipped,
            &[],
        );
    }

    #[test]
    fn nothing_to_judge() {
        NodeStage::new().expect(&CHECK, CheckState::Skipped, &[]);
        let hidden = NodeStage::new().with(|node| {
            node.jobs =
                ringleader_node::Part::of(ringleader_node::Jobs { n_hidden: 3, ..Default::default() });
        });
        assert!(hidden.answer(&CHECK).summary.contains("run as root"));
        let hidden = NodeStage::new().with(|node| {
            let unseen = Some("/proc is mounted with hidepid=2".to_owned());
            node.jobs = ringleader_node::Part::of(ringleader_node::Jobs { unseen, ..Default::default() });
        });
        assert!(hidden.answer(&CHECK).summary.contains("hidepid"));
        NodeStage::new().with(|node| node.jobs = ringleader_node::Part::default()).expect(
            &CHECK,
            CheckState::Skipped,
            &[],
        );
    }
}
