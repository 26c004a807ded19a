//! Stacks of the job's processes: Python's, and where their threads are in the kernel.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use ringleader_bundle::Origin;
use ringleader_node::Process;

use super::{Context, label, run_for_each};
use crate::request::{Request, Target};

/// Processes that are looked into: workers of data loaders included, more than a node starts.
const MAX_PROCESSES: usize = 512;
/// Processes whose main threads are sampled: a late rank and enough others to compare it with.
const SAMPLED: usize = 8;
/// Processes that are looked into at the same time.
const AT_ONCE: usize = 16;

pub(super) fn collect(context: &mut Context<'_, '_>) -> Result<(), ringleader_bundle::BundleError> {
    context.stacks_at = Some(Instant::now());
    take(context, &[("stacks-of", "stacks", "stacks"), ("threads-of", "threads", "threads")])
}

/// Python's once more, a while after the first time.
pub(super) fn collect_again(context: &mut Context<'_, '_>) -> Result<(), ringleader_bundle::BundleError> {
    if let (Some(at), Some(gap)) = (context.stacks_at, context.ask.stacks_again_ms) {
        thread::sleep(Duration::from_millis(gap).saturating_sub(at.elapsed()));
    }
    take(context, &[("stacks-of", "stacks", "stacks/again")])
}

/// Main threads of a rank and of some of its peers, many times.
pub(super) fn sample(context: &mut Context<'_, '_>) -> Result<(), ringleader_bundle::BundleError> {
    let (Some(samples), Some(jobs)) = (context.ask.samples.clone(), context.jobs()) else { return Ok(()) };
    let shared = jobs.shared_pids();
    let of = |pid: &u32| jobs.processes.iter().find(|process| process.pid == *pid).cloned();
    let processes: Vec<Process> = samples.pids.iter().filter_map(of).take(SAMPLED).collect();
    let requests: Vec<Request> = processes
        .iter()
        .map(|process| Request {
            n_samples: samples.n,
            every_ms: samples.every_ms,
            ..request_of(context, process, &shared)
        })
        .collect();
    let parts = run_for_each(context.program, "samples-of", &requests, SAMPLED, None);
    for (process, part) in processes.iter().zip(&parts) {
        let name = format!("samples/{}.txt", label(process));
        let origin = Origin::Reading(format!("samples of pid {}", process.pid));
        let mut item = context.item("samples", &name, origin);
        item.pid = Some(process.pid);
        context.add_text(item, part, part.get().and_then(|value| value.as_str()))?;
    }
    Ok(())
}

/// What is asked of one process.
fn request_of(context: &Context<'_, '_>, process: &Process, shared: &BTreeSet<u32>) -> Request {
    Request {
        target: Target { pids: vec![process.pid], ..Target::default() },
        deadline_ms: 0,
        known_pid: Some(process.known_pid(shared)),
        ..context.ask.request.clone()
    }
}

/// Tasks for every process: task, kind, folder.
fn take(
    context: &mut Context<'_, '_>,
    tasks: &[(&str, &str, &str)],
) -> Result<(), ringleader_bundle::BundleError> {
    let Some(jobs) = context.jobs() else { return Ok(()) };
    let own = std::process::id();
    let is_alive =
        |p: &&Process| !matches!(p.state.as_str(), "Z" | "X") && !p.is_above && p.pid != 1 && p.pid != own;
    let mut processes: Vec<Process> = jobs.processes.iter().filter(is_alive).cloned().collect();
    // Ranks first, should there be more than are looked into.
    processes.sort_by_key(|process| (process.rank().is_none(), process.rank(), process.pid));
    processes.truncate(MAX_PROCESSES);
    let shared = jobs.shared_pids();
    let requests: Vec<Request> = processes
        .iter()
        .map(|process| Request { native_frames: true, ..request_of(context, process, &shared) })
        .collect();
    for (task, kind, folder) in tasks {
        let parts = run_for_each(context.program, task, &requests, AT_ONCE, context.ask.longest_ms);
        for (process, part) in processes.iter().zip(&parts) {
            let name = format!("{folder}/{}.txt", label(process));
            let mut item =
                context.item(kind, &name, Origin::Reading(format!("{kind} of pid {}", process.pid)));
            item.pid = Some(process.pid);
            context.add_text(item, part, part.get().and_then(|value| value.as_str()))?;
        }
    }
    Ok(())
}
