//! # What it shows
//! One command that runs on all nodes carries a fixed node rank, or a node rank that the rendezvous ignores.
//!
//! # Why it happens
//! The command was copied from the documentation of the first node.
//!
//! # Evidence
//! srun starts it on several nodes with a literal number.
//!
//! # What looks like it but is not
//! A number that the script takes from the scheduler.
//!
//! # What to do
//! Take it from the scheduler.
//!
//! # References
//! PyTorch documentation, torchrun; nvidia-resiliency-ext#142.

use ringleader_model::{Cause, Confidence, Severity};

use crate::launch::{Command, Launch};
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "node-rank-fixed",
    title: "all nodes get one node rank, or it is ignored",
    family: Family::Launch,
    predicts: Cause::RankEnvMisconfigured,
    severity: Severity::Error,
    confidence: Confidence::Medium,
    doc: include_str!("node_rank_fixed.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let mut findings = Vec::new();
    for launch in &scan.launch {
        let started = || launch.commands.iter().filter_map(|command| Some((command, command.launcher()?)));
        for (command, launcher) in started() {
            let Some(rank) = command.node_rank() else { continue };
            let n_nodes = launcher.nodes.unwrap_or(1);
            if command.program() == "srun" && n_nodes > 1 && rank.parse::<u64>().is_ok() {
                let title = format!("each of {n_nodes} nodes is started with node rank {rank}");
                findings.push(launch.finding(
                    &RULE,
                    command.at,
                    title,
                    "write --node-rank=$SLURM_NODEID within what srun starts",
                ));
            } else if command.option(&["rdzv-backend"]) == Some("c10d") {
                let title =
                    "--node-rank has no effect with the c10d rendezvous: ranks are given out as nodes arrive"
                        .to_owned();
                let mut finding = launch.finding(
                    &RULE,
                    command.at,
                    title,
                    "leave it out, or use --master-addr and --node-rank without a rendezvous",
                );
                finding.severity = Severity::Warning;
                finding.confidence = Confidence::Low;
                findings.push(finding);
            }
        }
        findings.extend(put_in_early(launch));
        // All pods of a controller start the same command.
        let several = launch.nodes().filter(|(n, _)| launch.is_controlled && *n > 1);
        let mut of_pods = started().filter(|(command, _)| command.program() != "ssh");
        if let (Some((n_pods, _)), Some((command, launcher)), None) =
            (several, of_pods.next(), of_pods.next())
            && launcher.nodes.is_none_or(|n| n > 1)
            && let Some(rank) = command.node_rank().filter(|rank| rank.parse::<u64>().is_ok())
        {
            let title = format!("all {n_pods} pods are started with node rank {rank}");
            let help = "take it from the pod: $JOB_COMPLETION_INDEX, or the controller's variables";
            findings.push(launch.finding(&RULE, command.at, title, help));
        }
        // The same number for each turn of a loop over hosts.
        let in_loops = started().filter(|(command, launcher)| {
            command.is_repeated && command.program() == "ssh" && launcher.nodes.is_some_and(|n| n > 1)
        });
        for (command, launcher) in in_loops {
            if let Some(rank) = command.node_rank().filter(|rank| rank.parse::<u64>().is_ok()) {
                let n_nodes = launcher.nodes.unwrap_or(1);
                let title = format!("each host of the loop gets node rank {rank}, of {n_nodes} nodes");
                findings.push(launch.finding(&RULE, command.at, title, "count the hosts from 0"));
            }
        }
        // One line for each host: the second with the number of the first.
        let mut seen: Vec<(&str, &str)> = Vec::new();
        for (command, launcher) in started().filter(|(_, launcher)| launcher.nodes.is_some_and(|n| n > 1)) {
            let (Some(rank), Some(host)) = (command.node_rank(), remote_host(command)) else { continue };
            let other = seen.iter().find(|(known, _)| *known == rank && rank.parse::<u64>().is_ok());
            if let Some((_, first)) = other.filter(|(_, first)| *first != host) {
                let n_nodes = launcher.nodes.unwrap_or(1);
                let title = format!("{host} gets node rank {rank}, as {first} does, of {n_nodes} nodes");
                findings.push(launch.finding(&RULE, command.at, title, "number the nodes from 0"));
            }
            seen.push((rank, host));
        }
    }
    findings
}

/// The host of `ssh HOST ...`.
fn remote_host(command: &Command) -> Option<&str> {
    if command.program() != "ssh" {
        return None;
    }
    command.words.iter().skip(1).find(|word| !word.starts_with('-')).map(String::as_str)
}

/// Variables of a task that the batch script puts in, which runs once, on the first node.
fn put_in_early(launch: &Launch<'_>) -> Vec<LintFinding> {
    const OF_A_TASK: &[&str] = &["SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID"];
    let n_nodes = launch.directive(&["nodes"]).map_or(1, |(n, _)| n);
    let n_tasks = launch.directive(&["ntasks-per-node", "tasks-per-node"]).map_or(1, |(n, _)| n);
    if launch.is_controlled || n_nodes * n_tasks < 2 {
        return Vec::new();
    }
    let names = |text: &str| OF_A_TASK.iter().copied().find(|name| text.contains(name));
    let mut findings = Vec::new();
    for command in launch.commands.iter().filter(|command| command.program() == "srun" && !command.is_late) {
        let is_ignored =
            command.option(&["rdzv-backend"]).is_some() || command.option(&["rdzv-endpoint"]).is_some();
        let n = command.launcher().and_then(|launcher| launcher.nodes).unwrap_or(n_nodes);
        if let Some(name) = command.node_rank().and_then(names).filter(|_| !is_ignored && n > 1) {
            let title =
                format!("the batch script puts in {name}: all {n} nodes get the node rank of the first");
            let help = "let each task put it in: srun bash -c 'torchrun --node-rank=$SLURM_NODEID ...', in single quotes";
            let mut finding = launch.finding(&RULE, command.at, title, help);
            if let Some(at) = launch.line_of(command, name).filter(|at| at.line != command.at.line) {
                finding.related.push(launch.related(at, format!("{name} is put in here")));
            }
            findings.push(finding);
        }
    }
    // `export RANK=$SLURM_PROCID` before srun.
    let is_started = launch.commands.iter().any(|command| {
        command.program() == "srun" && command.launcher().is_none() && command.starts_python()
    });
    for setting in
        launch.settings.iter().filter(|setting| matches!(setting.name.as_str(), "RANK" | "LOCAL_RANK"))
    {
        let is_early = launch.is_of_script(setting);
        if let Some(name) = names(&setting.raw).filter(|_| is_early && is_started) {
            let title = format!("{} is {name} of the batch script: all tasks get the same", setting.name);
            let help = "set it in each task: srun bash -c 'export RANK=$SLURM_PROCID; python train.py', in single quotes";
            findings.push(launch.finding(&RULE, setting.at, title, help));
        }
    }
    findings
}
