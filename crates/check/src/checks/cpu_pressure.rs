//! # What it checks
//!
//! Whether the ranks get the processors that they need: quota of their cgroup, processors that they are bound to,
//! OpenMP threads, load of the host.
//!
//! # What fails
//!
//! A cgroup that is throttled in most of its periods: NCCL's proxy threads stop as well, which looks like a slow
//! network. It warns about a smaller share, ranks bound to a single processor, more OpenMP threads than processors,
//! and a host whose tasks wait for processors.
//!
//! # What to do
//!
//! Raise the quota, bind each rank to several processors of its GPU's NUMA node, set OMP_NUM_THREADS to the number of
//! processors divided by the number of ranks.
//!
//! # References
//!
//! Linux Documentation/scheduler/sched-bwc.rst; Documentation/accounting/psi.rst; torchrun, OMP_NUM_THREADS.

use std::collections::BTreeMap;

use ringleader_node::{Cgroup, Process};

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::jobs::name;
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "cpu-pressure",
    title: "processors available to the ranks",
    area: Area::Host,
    reads: &[Probe::System, Probe::Jobs],
    drains: false,
    is_quick: true,
    since: "0.2",
    doc: include_str!("cpu_pressure.rs"),
    run,
};

/// Share of a cgroup's periods in which it was throttled, percent.
const HELD_FAIL_PCT: u64 = 50;
const HELD_WARN_PCT: u64 = 10;
/// Fewest periods for a meaningful share.
const MIN_PERIODS: u64 = 100;
/// Share of the last ten seconds in which some task waited for a processor, percent.
const WAIT_PCT: f64 = 60.0;
/// Tasks that run or wait, by processor. Chosen: data loaders and threads of the driver come and go, and one task more than
/// there are processors is ordinary.
const LOAD_PER_CPU: f64 = 2.0;

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let system = match view.node.system.seen() {
        Ok(system) => system,
        Err(missing) => return missing.into(),
    };
    let ranks: Vec<&Process> = view.ranks().collect();
    let mut items = Vec::new();
    let mut groups: BTreeMap<&str, &Cgroup> = BTreeMap::new();
    for rank in &ranks {
        groups.extend(rank.cgroup.as_ref().map(|group| (group.path.as_str(), group)));
    }
    for group in groups.values() {
        held_back(group, &mut items);
    }
    bound(&ranks, system.n_cpus, &mut items);
    threads(&ranks, system.n_cpus, &mut items);
    let waits = system.pressure_some_pct.get("cpu").copied();
    // Load includes tasks that wait for disks: if pressure is known, both must agree.
    let is_loaded = system.n_cpus > 0 && system.load_1m > LOAD_PER_CPU * f64::from(system.n_cpus);
    if is_loaded && waits.is_none_or(|share| share >= WAIT_PCT) {
        let pressure =
            waits.map_or(String::new(), |share| format!("; /proc/pressure/cpu some avg10 {share:.2}"));
        items.push(Item {
            subject: "host processors".to_owned(),
            verdict: CheckState::Warn,
            text: format!("load {:.0} on {} processors", system.load_1m, system.n_cpus),
            evidence: format!("/proc/loadavg {:.2}{pressure}", system.load_1m),
        });
    }
    CheckAnswer::from_items(format!("load {:.1} on {} processors", system.load_1m, system.n_cpus), items)
        .advise(
            Impact::Harmless,
            "check which processes use them",
            Some("ps -eo pid,user,pcpu,nlwp,args --sort=-pcpu | head".to_owned()),
        )
        .advise(Impact::Disruptive, "give each rank its share: quota, binding, OMP_NUM_THREADS", None)
        .value("cpu.n", system.n_cpus, ValueKind::Same)
        .value("cpu.load", format!("{:.1}", system.load_1m), ValueKind::Near)
}

fn held_back(group: &Cgroup, items: &mut Vec<Item>) {
    let (Some(cpus), Some(periods), Some(held)) = (group.cpus, group.cpu_periods, group.cpu_throttled) else {
        return;
    };
    let pct = (held * 100).checked_div(periods).unwrap_or(0);
    if periods < MIN_PERIODS || pct < HELD_WARN_PCT {
        return;
    }
    items.push(Item {
        subject: format!("cgroup {}", group.path),
        verdict: if pct >= HELD_FAIL_PCT { CheckState::Fail } else { CheckState::Warn },
        text: format!("was throttled in {pct} % of its periods: its quota is {cpus} processors"),
        evidence: format!("cpu.stat: nr_periods {periods}, nr_throttled {held}"),
    });
}

/// A host has many processors if each of its ranks could have this many. Chosen: a rank has its own thread, NCCL's proxy and a
/// few data loaders.
const MANY_PER_RANK: usize = 4;

/// Ranks that may run on only one processor of a host with many.
fn bound(ranks: &[&Process], n_cpus: u32, items: &mut Vec<Item>) {
    let bound: Vec<&&Process> = ranks.iter().filter(|rank| rank.n_cpus == Some(1)).collect();
    let Some(first) = bound.first().filter(|_| n_cpus as usize >= MANY_PER_RANK * ranks.len().max(1)) else {
        return;
    };
    let more = if bound.len() > 1 { format!(" and {} more", bound.len() - 1) } else { String::new() };
    items.push(Item {
        subject: format!("{}{more}", name(first)),
        verdict: CheckState::Warn,
        text: format!("may run on one of {n_cpus} processors: its data loaders and NCCL's proxy share it"),
        evidence: format!("/proc/{}/status: Cpus_allowed_list", first.pid),
    });
}

fn threads(ranks: &[&Process], n_cpus: u32, items: &mut Vec<Item>) {
    let told: Vec<u32> = ranks.iter().filter_map(|rank| rank.number("OMP_NUM_THREADS")).collect();
    let sum: u64 = told.iter().map(|n| u64::from(*n)).sum();
    let Some(n) = told.first().filter(|_| n_cpus > 0 && sum > u64::from(n_cpus)) else { return };
    items.push(Item {
        subject: "OMP_NUM_THREADS".to_owned(),
        verdict: CheckState::Warn,
        text: format!("{} ranks with {n} threads each make {sum} threads on {n_cpus} processors", told.len()),
        evidence: format!("OMP_NUM_THREADS={n} of the ranks"),
    });
}

#[cfg(test)]
mod tests {
    use ringleader_node::{Cgroup, Part, Process};

    use super::CHECK;
    use crate::answer::CheckState;
    use crate::staging_jobs::NodeStage;

    fn group(periods: u64, throttled: u64) -> NodeStage {
        NodeStage::job(move |_, rank| {
            rank.cgroup = Some(Cgroup {
                path: "/job".to_owned(),
                cpus: Some(4.0),
                cpu_periods: Some(periods),
                cpu_throttled: Some(throttled),
                ..Cgroup::default()
            });
        })
    }

    fn omp(n: &'static str) -> impl Fn(u32, &mut Process) {
        move |_, rank| {
            rank.environment.as_mut().unwrap().insert("OMP_NUM_THREADS".to_owned(), n.to_owned());
        }
    }

    fn loaded(load: f64, waits: Option<f64>) -> NodeStage {
        NodeStage::new().with(|node| {
            let mut system = node.system.get().unwrap().clone();
            system.load_1m = load;
            system.pressure_some_pct = waits.into_iter().map(|share| ("cpu".to_owned(), share)).collect();
            node.system = Part::of(system);
        })
    }

    #[test]
    fn held_back_by_its_quota() {
        group(1000, 700).expect(&CHECK, CheckState::Fail, &["cgroup /job"]);
        group(1000, 150).expect(&CHECK, CheckState::Warn, &["cgroup /job"]);
        group(1000, 20).expect(&CHECK, CheckState::Ok, &[]);
        group(10, 10).expect(&CHECK, CheckState::Ok, &[]);
    }

    #[test]
    fn bound_to_one_and_too_many_threads() {
        NodeStage::job(|_, rank| rank.n_cpus = Some(1)).expect(
            &CHECK,
            CheckState::Warn,
            &["pid 80 (rank 0) and 3 more"],
        );
        NodeStage::job(|_, rank| rank.n_cpus = Some(16)).expect(&CHECK, CheckState::Ok, &[]);
        NodeStage::job(omp("64")).expect(&CHECK, CheckState::Warn, &["OMP_NUM_THREADS"]);
        NodeStage::job(omp("16")).expect(&CHECK, CheckState::Ok, &[]);
    }

    #[test]
    fn load() {
        loaded(200.0, Some(90.0)).expect(&CHECK, CheckState::Warn, &["host processors"]);
        loaded(200.0, None).expect(&CHECK, CheckState::Warn, &["host processors"]);
        // Tasks that wait for a disk.
        loaded(200.0, Some(2.0)).expect(&CHECK, CheckState::Ok, &[]);
        loaded(60.0, Some(90.0)).expect(&CHECK, CheckState::Ok, &[]);
        NodeStage::new().with(|node| node.system = Part::default()).expect(&CHECK, CheckState::Skipped, &[]);
    }
}
