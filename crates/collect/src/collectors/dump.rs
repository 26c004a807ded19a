//! Asks the live job for a Flight Recorder dump, by the named pipe that torch reads where
//! `TORCH_NCCL_DEBUG_INFO_PIPE_FILE` is set: `<value><rank>.pipe`, any byte. The process writes its dump and continues.
//! torch has no signal for it: whatever handles SIGUSR1 in a process is the program's own, and none is sent.
//!
//! Only when asked for: the job writes a file. Paths are the job's and may be on what hangs: processes of their own
//! look at them, all ranks' at once.

use std::path::PathBuf;

use ringleader_bundle::{Item, ItemOutcome, Origin};
use ringleader_node::Process;

use super::logs::dump_paths;
use super::{Context, outcome_of, run_for_each};
use crate::request::{FileAsk, Request, Target};
use crate::run::now_ns;

/// Processes that are asked at the same time: more than a node has ranks.
const AT_ONCE: usize = 64;
/// Clocks of file systems run up to a tick behind.
const TICK_NS: i64 = 10_000_000;

#[expect(clippy::unnecessary_wraps, reason = "collectors have one form")]
pub(super) fn collect(context: &mut Context<'_, '_>) -> Result<(), ringleader_bundle::BundleError> {
    let Some(jobs) = context.jobs() else { return Ok(()) };
    let ranks: Vec<Process> = jobs.processes.iter().filter(|p| p.rank().is_some()).cloned().collect();
    let pipes: Vec<(&Process, String)> = ranks
        .iter()
        .filter_map(|process| {
            let prefix = process.variable("TORCH_NCCL_DEBUG_INFO_PIPE_FILE")?;
            Some((process, format!("{prefix}{}.pipe", process.rank().unwrap_or_default())))
        })
        .collect();
    if pipes.is_empty() {
        let why = "no process of the job has TORCH_NCCL_DEBUG_INFO_PIPE_FILE set: without that pipe a dump cannot be requested, and torch has no signal for it";
        let item = context.item("ask-dump", "", Origin::Unknown);
        context.bundle.missing(Item { outcome: ItemOutcome::Skipped(why.to_owned()), ..item });
        return Ok(());
    }
    let since_ns = now_ns() - TICK_NS;
    let of = |process: &Process| Request {
        target: Target { pids: vec![process.pid], ..Target::default() },
        deadline_ms: 0,
        since_ns,
        ..context.ask.request.clone()
    };
    let requests: Vec<Request> = pipes
        .iter()
        .map(|(process, pipe)| Request {
            file: Some(FileAsk { path: PathBuf::from(pipe), ..FileAsk::default() }),
            ..of(process)
        })
        .collect();
    let asked = run_for_each(context.program, "ask-of", &requests, AT_ONCE, context.ask.longest_ms);
    let outcomes: Vec<Option<Vec<String>>> = asked
        .iter()
        .map(|part| match outcome_of(part)? {
            ItemOutcome::Failed(why) => Some(why),
            ItemOutcome::Skipped(why) => Some(vec![why]),
            _ => None,
        })
        .collect();
    // What was asked for is written within moments; logs are taken after it.
    let awaited: Vec<Request> = pipes
        .iter()
        .zip(&outcomes)
        .filter(|(_, why)| why.is_none())
        .map(|((process, _), _)| Request { awaited: dump_paths(context, process), ..of(process) })
        .collect();
    run_for_each(context.program, "written-of", &awaited, AT_ONCE, context.ask.longest_ms);
    for ((process, pipe), why) in pipes.iter().zip(outcomes) {
        let outcome = why.map_or(ItemOutcome::Done, |why| {
            ItemOutcome::Failed([vec!["ask for a dump".to_owned()], why].concat())
        });
        let mut item = context.item("ask-dump", "", Origin::Path(pipe.clone()));
        item.pid = Some(process.pid);
        context.bundle.missing(Item { outcome, ..item });
    }
    Ok(())
}
