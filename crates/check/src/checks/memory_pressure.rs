//! # What it checks
//!
//! Memory of the host and of the cgroups (containers, job steps) that the ranks run in.
//!
//! # What fails
//!
//! A cgroup near its limit with memory that cannot be reclaimed: the next allocation ends a rank. A host with almost no
//! memory left. It warns about processes killed for lack of memory in the job's cgroup, and about time in which tasks
//! wait for memory. The page cache counts as free.
//!
//! # What to do
//!
//! Give the job more memory, or fewer data-loader workers and less pinned memory. /dev/shm counts as memory of the job.
//!
//! # References
//!
//! Linux Documentation/admin-guide/cgroup-v2.rst, memory; Documentation/accounting/psi.rst.

use std::collections::BTreeMap;

use ringleader_node::Cgroup;

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "memory-pressure",
    title: "memory of host and job",
    area: Area::Host,
    reads: &[Probe::System, Probe::Jobs],
    drains: false,
    is_quick: true,
    since: "0.2",
    doc: include_str!("memory_pressure.rs"),
    run,
};

/// Free memory of the host, percent.
const HOST_FAIL_PCT: u64 = 2;
const HOST_WARN_PCT: u64 = 5;
/// Unreclaimable memory of a cgroup, percent of its limit.
const GROUP_FAIL_PCT: u64 = 97;
const GROUP_WARN_PCT: u64 = 90;
/// Shared memory is named from more than one part in this many of what the cgroup holds. Chosen: less does not explain the use.
const SHARED_ONE_IN: u64 = 5;
/// Share of the last ten seconds in which all tasks waited for memory, percent: the host is thrashing.
const STALL_PCT: f64 = 10.0;

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let system = match view.node.system.seen() {
        Ok(system) => system,
        Err(missing) => return missing.into(),
    };
    let mut items = Vec::new();
    let free_pct = (system.memory_available * 100).checked_div(system.memory_total);
    match free_pct {
        Some(pct) if pct < HOST_WARN_PCT => items.push(Item {
            subject: "host memory".to_owned(),
            verdict: if pct < HOST_FAIL_PCT { CheckState::Fail } else { CheckState::Warn },
            text: format!("{} of {} available", gib(system.memory_available), gib(system.memory_total)),
            evidence: "/proc/meminfo: MemAvailable".to_owned(),
        }),
        _ => {}
    }
    if let Some(share) = system.pressure_full_pct.get("memory").filter(|share| **share >= STALL_PCT) {
        items.push(Item {
            subject: "host memory".to_owned(),
            verdict: CheckState::Warn,
            text: format!("all tasks waited for memory in {share:.0} % of the last 10 s"),
            evidence: format!("/proc/pressure/memory: full avg10={share:.2}"),
        });
    }
    let mut groups: BTreeMap<&str, &Cgroup> = BTreeMap::new();
    for rank in view.ranks() {
        groups.extend(rank.cgroup.as_ref().map(|group| (group.path.as_str(), group)));
    }
    // Without a job, use the limits of the container of this reading: a job would get the same.
    if groups.is_empty() {
        groups.extend(system.cgroup.as_ref().map(|group| (group.path.as_str(), group)));
    }
    for group in groups.values() {
        of_group(group, &mut items);
    }
    let Some(free_pct) = free_pct else {
        return CheckAnswer::skipped("/proc/meminfo does not show how much there is");
    };
    CheckAnswer::from_items(
        format!("{} of {} available", gib(system.memory_available), gib(system.memory_total)),
        items,
    )
    .advise(
        Impact::Harmless,
        "check which processes hold it",
        Some("ps -eo pid,user,rss,args --sort=-rss | head; df -h /dev/shm".to_owned()),
    )
    .advise(Impact::Disruptive, "give the job more memory, or fewer data-loader workers", None)
    .value("memory.total-gib", system.memory_total >> 30, ValueKind::Same)
    .value("memory.available-pct", free_pct, ValueKind::Near)
    .value("memory.oom-kills", system.oom_kills.unwrap_or(0), ValueKind::Counter)
}

fn of_group(group: &Cgroup, items: &mut Vec<Item>) {
    let subject = || format!("cgroup {}", group.path);
    if let (Some(max), Some(current)) = (group.memory_max, group.memory_current) {
        let held = current.saturating_sub(group.memory_inactive_file.unwrap_or(0));
        // If the cache is not counted separately, a full cgroup looks like a busy one.
        let pct = (held * 100).checked_div(max).unwrap_or(0);
        if pct >= GROUP_WARN_PCT && group.memory_inactive_file.is_some() {
            let shared = group
                .memory_shmem
                .filter(|bytes| bytes * SHARED_ONE_IN > held)
                .map(|bytes| format!(", {} of it shared memory", gib(bytes)));
            items.push(Item {
                subject: subject(),
                verdict: if pct >= GROUP_FAIL_PCT { CheckState::Fail } else { CheckState::Warn },
                text: format!(
                    "{} of {} used, without page cache{}",
                    gib(held),
                    gib(max),
                    shared.unwrap_or_default()
                ),
                evidence: format!(
                    "memory current {current}, inactive_file {}, max {max}",
                    group
                        .memory_inactive_file
                        .map_or_else(|| "unknown".to_owned(), |bytes| bytes.to_string())
                ),
            });
        }
    }
    if let Some(n) = group.oom_kills.filter(|n| *n > 0) {
        items.push(Item {
            subject: subject(),
            verdict: CheckState::Warn,
            text: format!("{n} processes were killed for lack of memory since it was created"),
            evidence: format!("memory.events or memory.oom_control: oom_kill {n}"),
        });
    }
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests {
    use ringleader_node::{Cgroup, Part, System};

    use super::CHECK;
    use crate::answer::CheckState;
    use crate::staging_jobs::NodeStage;

    fn host(available: u64) -> NodeStage {
        let system =
            System { memory_total: 1000 << 20, memory_available: available << 20, ..System::default() };
        NodeStage::new().with(|node| node.system = Part::of(system))
    }

    fn group(max: Option<u64>, current: u64, cache: Option<u64>, oom_kills: u64) -> NodeStage {
        NodeStage::job(move |_, rank| {
            rank.cgroup = Some(Cgroup {
                path: "/job".to_owned(),
                memory_max: max,
                memory_current: Some(current),
                memory_inactive_file: cache,
                oom_kills: Some(oom_kills),
                ..Cgroup::default()
            });
        })
    }

    #[test]
    fn little_is_left() {
        host(500).expect(&CHECK, CheckState::Ok, &[]);
        host(40).expect(&CHECK, CheckState::Warn, &["host memory"]);
        host(10).expect(&CHECK, CheckState::Fail, &["host memory"]);
        let stall = host(500).with(|node| {
            let mut system = node.system.get().unwrap().clone();
            system.pressure_full_pct.insert("memory".to_owned(), 30.0);
            node.system = Part::of(system);
        });
        stall.expect(&CHECK, CheckState::Warn, &["host memory"]);
    }

    #[test]
    fn the_jobs_group() {
        group(Some(1000), 990, Some(5), 0).expect(&CHECK, CheckState::Fail, &["cgroup /job"]);
        group(Some(1000), 930, Some(0), 0).expect(&CHECK, CheckState::Warn, &["cgroup /job"]);
        group(None, 1 << 40, Some(0), 2).expect(&CHECK, CheckState::Warn, &["cgroup /job"]);
        // Full of page cache, which is reclaimed when needed; and a cgroup without a limit.
        group(Some(1000), 1000, Some(800), 0).expect(&CHECK, CheckState::Ok, &[]);
        group(Some(1000), 1000, None, 0).expect(&CHECK, CheckState::Ok, &[]);
        group(None, 1 << 40, Some(0), 0).expect(&CHECK, CheckState::Ok, &[]);
    }

    #[test]
    fn nothing_to_judge() {
        NodeStage::new().with(|node| node.system = Part::default()).expect(&CHECK, CheckState::Skipped, &[]);
        host(0).with(|node| node.system = Part::of(System::default())).expect(
            &CHECK,
            CheckState::Skipped,
            &[],
        );
    }
}
