//! # What it checks
//!
//! Limits of the ranks themselves: locked memory, open files, processes. A shell on the node may have other limits.
//!
//! # What fails
//!
//! Little locked memory on a node with RDMA devices, for a process that may not exceed the limit (CAP_IPC_LOCK); a
//! limit of open files that is nearly used up or smaller than the job needs; a limit of processes that is nearly used
//! up. It warns about a rank whose limits are lower than its peers': it was started differently.
//!
//! # What to do
//!
//! Raise them where the processes are started: `LimitMEMLOCK=infinity` for slurmd, `--ulimit memlock=-1` for docker.
//!
//! # References
//!
//! NCCL user guide, troubleshooting, memory lock limit; NVIDIA/nccl src/misc/ibvwrap.cc; getrlimit(2).

use std::collections::BTreeMap;

use ringleader_node::Process;

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::jobs::name;
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "limits",
    title: "limits of the ranks",
    area: Area::Job,
    reads: &[Probe::Jobs, Probe::Rdma],
    drains: false,
    is_quick: true,
    since: "0.2",
    doc: include_str!("limits.rs"),
    run,
};

const MEMLOCK: &str = "Max locked memory";
const FILES: &str = "Max open files";
const PROCESSES: &str = "Max processes";
/// NCCL registers some 10 MB per connection: less than this does not allow even a few.
const LITTLE_LOCKED: u64 = 64 << 20;
/// With less than this a job of some hundred ranks does not get far.
const SOME_LOCKED: u64 = 1 << 30;
/// The kernel's default: a smaller limit was set deliberately.
const DEFAULT_FILES: u64 = 1024;
/// Connections of rank 0 per rank of the job: the store, and NCCL's bootstrap.
const FILES_PER_RANK: u64 = 2;
const CAP_IPC_LOCK: u64 = 1 << 14;

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let jobs = match view.node.jobs.seen() {
        Ok(jobs) => jobs,
        Err(missing) => return missing.into(),
    };
    let ranks: Vec<&Process> = view.ranks().collect();
    if ranks.iter().all(|rank| rank.limits.is_empty()) {
        return CheckAnswer::skipped("no rank runs here whose limits can be read");
    }
    let has_rdma = view.node.rdma.get().map(|ports| !ports.is_empty());
    let mut items = Vec::new();
    for rank in &ranks {
        locked(rank, has_rdma, &mut items);
        files(rank, &mut items);
    }
    for limit in [MEMLOCK, FILES, PROCESSES] {
        peers(&ranks, limit, &mut items);
    }
    processes(jobs, &ranks, &mut items);
    let soft = |limit: &str| {
        let mut all: Vec<String> =
            ranks.iter().filter_map(|rank| Some(shown(rank.limits.get(limit)?.0))).collect();
        all.sort();
        all.dedup();
        all.join(", ")
    };
    let (memlock, open) = (soft(MEMLOCK), soft(FILES));
    let what =
        |limit: &str| items.iter().any(|i: &Item| i.verdict > CheckState::Ok && i.evidence.contains(limit));
    let (is_memlock, is_files) = (what(MEMLOCK), what(FILES));
    let mut answer = CheckAnswer::from_items(
        format!("{} ranks: locked memory {}, open files {open}", ranks.len(), locked_of(&ranks)),
        items,
    );
    let pid = ranks.first().map_or(0, |rank| rank.pid);
    answer = answer.advise(
        Impact::Harmless,
        "check the limits of the process itself",
        Some(format!("cat /proc/{pid}/limits")),
    );
    if is_memlock {
        answer = answer.advise(
            Impact::Disruptive,
            "raise the locked-memory limit where the job is started: LimitMEMLOCK=infinity for slurmd, --ulimit memlock=-1 for docker run, or the shell",
            Some("ulimit -l unlimited".to_owned()),
        );
    }
    if is_files {
        answer = answer.advise(
            Impact::Disruptive,
            "raise the limit of open files where the job is started",
            Some("ulimit -n 65536".to_owned()),
        );
    }
    answer.value("limit.memlock", memlock, ValueKind::Same).value("limit.open-files", open, ValueKind::Same)
}

/// The limits of locked memory, each once, with their unit.
fn locked_of(ranks: &[&Process]) -> String {
    let mut all: Vec<Option<u64>> =
        ranks.iter().filter_map(|rank| Some(rank.limits.get(MEMLOCK)?.0)).collect();
    all.sort_unstable();
    all.dedup();
    let words = all.into_iter().map(|limit| match limit {
        None => "unlimited".to_owned(),
        Some(n) if n >= 1 << 20 && n % (1 << 20) == 0 => format!("{} MiB", n >> 20),
        Some(n) if n % 1024 == 0 => format!("{} KiB", n >> 10),
        Some(n) => format!("{n} bytes"),
    });
    words.collect::<Vec<_>>().join(", ")
}

fn shown(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |n| n.to_string())
}

fn push(items: &mut Vec<Item>, rank: &Process, verdict: CheckState, limit: &str, text: String) {
    let (soft, hard) = rank.limits.get(limit).copied().unwrap_or_default();
    let evidence = format!("/proc/{}/limits: {limit} {} {}", rank.pid, shown(soft), shown(hard));
    items.push(Item { subject: name(rank), verdict, text, evidence });
}

fn locked(rank: &Process, has_rdma: Option<bool>, items: &mut Vec<Item>) {
    let Some((Some(soft), _)) = rank.limits.get(MEMLOCK).copied() else { return };
    let may_pass = rank.capabilities.is_some_and(|mask| mask & CAP_IPC_LOCK != 0);
    if has_rdma != Some(true) || may_pass {
        return;
    }
    if soft < LITTLE_LOCKED {
        let text = format!("may lock only {} KiB of memory: RDMA cannot register its buffers", soft >> 10);
        push(items, rank, CheckState::Fail, MEMLOCK, text);
    } else if soft < SOME_LOCKED {
        let text = format!("may lock only {} MiB of memory: RDMA may run out of it", soft >> 20);
        push(items, rank, CheckState::Warn, MEMLOCK, text);
    }
}

fn files(rank: &Process, items: &mut Vec<Item>) {
    let Some((Some(soft), _)) = rank.limits.get(FILES).copied() else { return };
    let open = rank.n_open_files.map(u64::from);
    let world = rank.world_size().map(u64::from).filter(|_| rank.rank() == Some(0));
    if let Some(open) = open.filter(|open| open * 100 >= soft * 80) {
        let verdict = if open * 100 >= soft * 95 { CheckState::Fail } else { CheckState::Warn };
        push(items, rank, verdict, FILES, format!("has {open} of {soft} files open"));
    } else if let Some(world) = world.filter(|world| soft < world * FILES_PER_RANK) {
        let text = format!(
            "may open {soft} files, and a job of {world} ranks takes {} on rank 0",
            world * FILES_PER_RANK
        );
        push(items, rank, CheckState::Fail, FILES, text);
    } else if soft < DEFAULT_FILES {
        push(
            items,
            rank,
            CheckState::Warn,
            FILES,
            format!("may open {soft} files, less than the kernel's default of {DEFAULT_FILES}"),
        );
    }
}

/// Ranks with lower limits than most others of this node.
fn peers(ranks: &[&Process], limit: &str, items: &mut Vec<Item>) {
    let mut counts: BTreeMap<Option<u64>, usize> = BTreeMap::new();
    for (soft, _) in ranks.iter().filter_map(|rank| rank.limits.get(limit)) {
        *counts.entry(*soft).or_default() += 1;
    }
    let Some((usual, n)) = counts.iter().max_by_key(|(_, n)| **n).map(|(soft, n)| (*soft, *n)) else {
        return;
    };
    if n < 2 {
        return;
    }
    for rank in ranks {
        let Some((Some(soft), _)) = rank.limits.get(limit).copied() else { continue };
        // Limits that already have an item need no second one.
        let is_named = items.iter().any(|item| item.subject == name(rank) && item.evidence.contains(limit));
        if usual.is_none_or(|usual| soft < usual) && !is_named {
            let what = limit.trim_start_matches("Max ");
            let text = format!("its limit of {what} is {soft}, that of {n} others {}", shown(usual));
            push(items, rank, CheckState::Warn, limit, text);
        }
    }
}

fn processes(jobs: &ringleader_node::Jobs, ranks: &[&Process], items: &mut Vec<Item>) {
    // Threads count as processes. The user's other processes are unknown, so this is a lower bound.
    let Some(rank) = ranks.first() else { return };
    let n: u64 = jobs.processes.iter().filter(|p| p.uid == rank.uid).map(|p| u64::from(p.n_threads)).sum();
    if let Some((Some(soft), _)) = rank.limits.get(PROCESSES).copied()
        && rank.uid != 0
        && n * 100 >= soft * 90
    {
        let verdict = if n * 100 >= soft * 98 { CheckState::Fail } else { CheckState::Warn };
        push(
            items,
            rank,
            verdict,
            PROCESSES,
            format!("the job alone has {n} of the {soft} threads its user may have"),
        );
    }
    if let Some(group) = &rank.cgroup
        && let (Some(max), Some(now)) = (group.pids_max, group.pids_current)
        && now * 100 >= max * 90
    {
        items.push(Item {
            subject: format!("cgroup {}", group.path),
            verdict: if now * 100 >= max * 98 { CheckState::Fail } else { CheckState::Warn },
            text: format!("{now} of {max} threads are in use"),
            evidence: format!("pids.current {now}, pids.max {max}"),
        });
    }
}

#[cfg(test)]
mod tests {
    use ringleader_node::{Cgroup, Part, RdmaPort};

    use super::{CHECK, FILES, MEMLOCK, PROCESSES, Process};
    use crate::answer::CheckState;
    use crate::staging_jobs::NodeStage;

    /// All ranks with usual limits, except one limit of rank 2.
    fn stage(limit: &'static str, soft: Option<u64>, has_rdma: bool) -> NodeStage {
        let stage = NodeStage::job(move |n, rank| {
            for (limit, soft) in [(MEMLOCK, None), (FILES, Some(65_536)), (PROCESSES, Some(100_000))] {
                rank.limits.insert(limit.to_owned(), (soft, None));
            }
            if n == 2 {
                rank.limits.insert(limit.to_owned(), (soft, None));
            }
            rank.n_open_files = Some(200);
        });
        let ports = if has_rdma { vec![RdmaPort::default()] } else { Vec::new() };
        stage.with(|node| node.rdma = Part::of(ports))
    }

    #[test]
    fn locked_memory_has_a_unit() {
        let said = |bytes: u64| {
            let set = move |_, rank: &mut Process| {
                rank.limits.insert(MEMLOCK.to_owned(), (Some(bytes), None));
            };
            NodeStage::job(set).with(|node| node.rdma = Part::of(Vec::new())).answer(&CHECK).summary
        };
        assert!(said(8 << 20).contains("locked memory 8 MiB,"), "{}", said(8 << 20));
        assert!(said(65_536).contains("locked memory 64 KiB,"), "{}", said(65_536));
        assert!(said(4_095).contains("locked memory 4095 bytes,"), "{}", said(4_095));
    }

    #[test]
    fn little_locked_memory() {
        stage(MEMLOCK, Some(65_536), true).expect(&CHECK, CheckState::Fail, &["pid 82 (rank 2)"]);
        // Without RDMA it merely differs from the peers' limit.
        stage(MEMLOCK, Some(65_536), false).expect(&CHECK, CheckState::Warn, &["pid 82 (rank 2)"]);
        stage(MEMLOCK, None, true).expect(&CHECK, CheckState::Ok, &[]);
        let all = |capabilities| {
            NodeStage::job(move |_, rank| {
                rank.limits.insert(MEMLOCK.to_owned(), (Some(8 << 20), None));
                rank.capabilities = Some(capabilities);
            })
        };
        // The default of containers, on a node without RDMA, and with the capability to exceed it.
        all(0).expect(&CHECK, CheckState::Ok, &[]);
        all(1 << 14).with(|node| node.rdma = Part::of(vec![RdmaPort::default()])).expect(
            &CHECK,
            CheckState::Ok,
            &[],
        );
    }

    #[test]
    fn few_files() {
        stage(FILES, Some(210), false).expect(&CHECK, CheckState::Fail, &["pid 82 (rank 2)"]);
        stage(FILES, Some(512), false).expect(&CHECK, CheckState::Warn, &["pid 82 (rank 2)"]);
        let of_world = |world: &'static str| {
            NodeStage::job(move |_, rank| {
                rank.limits.insert(FILES.to_owned(), (Some(1024), None));
                rank.environment.as_mut().unwrap().insert("WORLD_SIZE".to_owned(), world.to_owned());
            })
        };
        of_world("4").expect(&CHECK, CheckState::Ok, &[]);
        of_world("1024").expect(&CHECK, CheckState::Fail, &["pid 80 (rank 0)"]);
    }

    #[test]
    fn few_threads() {
        let crowded = NodeStage::job(|_, rank| {
            rank.limits.insert(PROCESSES.to_owned(), (Some(1000), None));
            rank.n_threads = 240;
        });
        crowded.expect(&CHECK, CheckState::Warn, &["pid 80 (rank 0)"]);
        let grouped = NodeStage::job(|_, rank| {
            rank.limits.insert(PROCESSES.to_owned(), (None, None));
            let group = Cgroup {
                path: "/job".to_owned(),
                pids_max: Some(100),
                pids_current: Some(99),
                ..Cgroup::default()
            };
            rank.cgroup = Some(group);
        });
        grouped.expect(&CHECK, CheckState::Fail, &["cgroup /job"]);
    }

    #[test]
    fn nothing_to_judge() {
        NodeStage::new().expect(&CHECK, CheckState::Skipped, &[]);
        NodeStage::new().with(|node| node.jobs = Part::default()).expect(&CHECK, CheckState::Skipped, &[]);
    }
}
