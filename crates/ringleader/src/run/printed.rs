//! `run --print-scripts`: the files, with all that was asked for.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use ringleader_report::quote;
use ringleader_run::decide::allowed;
use ringleader_run::policy::Policy;
use ringleader_run::scripts;

use crate::command::print;
use crate::exit::Code;
use crate::failure::Failure;
use crate::run::{RunArgs, launch};

/// Writes the files; remarks go to standard error.
pub(crate) fn write(args: &RunArgs, policy: Policy, folder: &Path) -> Result<ExitCode, Failure> {
    let nodes = args.n_nodes();
    // The default allows one node less: better than to wait for a repair.
    let least = if args.min_nodes.is_some() { args.n_least() } else { nodes.saturating_sub(1).max(1) };
    let (command, note) = launch::on_nodes(&args.command, nodes);
    let asked = scripts::ScriptRequest {
        command,
        nodes: nodes as u32,
        least: least as u32,
        job: args.job_name(),
        checkpoints: policy.checkpoint.dir.clone(),
        hub: args.hub.clone(),
        options: options(args),
        policy: for_nodes(policy, nodes, least),
    };
    let made = scripts::write(folder, &asked)
        .map_err(|source| Failure::CannotWrite { path: folder.to_owned(), source })?;
    if let Some(note) = note {
        // Standard error may be closed.
        let _ = writeln!(std::io::stderr().lock(), "ringleader: {}", quote::plain(&note));
    }
    print(&made.iter().map(|path| path.display().to_string() + "\n").collect::<String>())?;
    Ok(Code::NothingFound.into())
}

/// The policy for this number of nodes: if the job can run without one of them, its share allows to exclude one.
fn for_nodes(mut policy: Policy, nodes: usize, least: usize) -> Policy {
    if least < nodes && allowed(policy.exclude.max_share, nodes) == 0 {
        policy.exclude.max_share = (100.0 / nodes as f64).ceil() / 100.0;
    }
    policy
}

/// Options that the files pass on as they are.
fn options(args: &RunArgs) -> Vec<String> {
    let text = |path: &std::path::PathBuf| path.display().to_string();
    let seconds = |value: f64, usual: f64| (value.to_bits() != usual.to_bits()).then(|| value.to_string());
    let given = [
        ("--on-decision", args.on_decision.clone()),
        ("--webhook", args.webhook.clone()),
        ("--metrics", args.metrics.as_ref().map(text)),
        ("--history", args.history.as_ref().map(text)),
        ("--rings", args.rings.as_ref().map(text)),
        ("--lost-after", seconds(args.lost_after, 30.0)),
        ("--join-within", seconds(args.join_within, 300.0)),
        ("--silence-floor", seconds(args.silence_floor, 60.0)),
        ("--stall-floor", seconds(args.stall_floor, 5.0)),
        ("--end-grace", seconds(args.end_grace, 15.0)),
    ];
    let flags = [("--no-history", args.no_history), ("--no-ras", args.no_ras)];
    let values = given.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
    values.chain(flags.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_allows_one_node_if_the_job_can_do_without_it() {
        let share = |nodes, least| for_nodes(Policy::default(), nodes, least).exclude.max_share;
        for (nodes, least, expected) in [(4, 3, 1), (3, 2, 1), (16, 15, 1), (4, 4, 0), (1, 1, 0), (40, 39, 2)]
        {
            assert_eq!(allowed(share(nodes, least), nodes), expected, "{nodes} {least}");
        }
    }
}
