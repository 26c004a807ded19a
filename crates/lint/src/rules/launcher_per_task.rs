//! # What it shows
//! srun runs torchrun with several tasks a node.
//!
//! # Why it happens
//! ntasks-per-node was set for a script that needs one task a GPU. torchrun starts the processes of a node itself.
//!
//! # Evidence
//! The file contains the number of tasks.
//!
//! # What looks like it but is not
//! srun python with one task a GPU.
//!
//! # What to do
//! One task a node for torchrun.
//!
//! # References
//! pytorch#73656.

use ringleader_model::{Cause, Confidence, Severity};

use crate::launch::{Command, Launch};
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "launcher-per-task",
    title: "srun starts torchrun once for each task",
    family: Family::Launch,
    predicts: Cause::RankEnvMisconfigured,
    severity: Severity::Error,
    confidence: Confidence::High,
    doc: include_str!("launcher_per_task.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let mut findings = Vec::new();
    for launch in &scan.launch {
        let tasks = launch.directive(&["ntasks-per-node", "tasks-per-node"]).or_else(|| {
            // Of the whole job, where nothing is said of a node.
            let (n, at) = launch.directive(&["ntasks"])?;
            Some((n.div_ceil(launch.nodes().map_or(1, |(nodes, _)| nodes).max(1)), at))
        });
        findings.extend(launch.commands.iter().filter_map(|command| by_mpi(launch, command)));
        for command in &launch.commands {
            let Some(launcher) = command.launcher().filter(|_| command.program() == "srun") else { continue };
            let name = launcher.name;
            let own = command.number(&["ntasks-per-node", "tasks-per-node"]).or_else(|| {
                // `-n` and `--ntasks` say how often in the whole job.
                let of_job = command.number(&["ntasks", "n"])?;
                let nodes = launch.directive(&["nodes"]).map_or(1, |(n, _)| n);
                Some(of_job.div_ceil(nodes.max(1)))
            });
            let n = own.or(tasks.map(|(n, _)| n)).unwrap_or(1);
            if n > 1 {
                let title = format!(
                    "srun starts {name} {n} times on each node, and each starts all processes of the node"
                );
                let help =
                    "one task a node: --ntasks-per-node=1, or start python directly with one task a GPU";
                let mut finding = launch.finding(&RULE, command.at, title, help);
                if let (None, Some((_, at))) = (own, tasks) {
                    finding.related.push(launch.related(at, "the number of tasks".to_owned()));
                }
                if let Some(at) = launch.line_of(command, name).filter(|at| at.line != command.at.line) {
                    finding.related.push(launch.related(at, format!("{name} starts all processes")));
                }
                findings.push(finding);
            }
        }
    }
    findings
}

/// mpirun that starts a launcher more often than there are nodes.
fn by_mpi(launch: &Launch<'_>, command: &Command) -> Option<LintFinding> {
    if !matches!(command.program(), "mpirun" | "mpiexec") {
        return None;
    }
    let launcher = command.launcher()?;
    let n = command.number(&["np", "n"])?;
    let is_placed = ["npernode", "ppn", "map-by", "N"].iter().any(|name| command.option(&[name]).is_some());
    let n_nodes = launcher.nodes?;
    (n > n_nodes && !is_placed).then(|| {
        let name = launcher.name;
        let title = format!(
            "mpirun starts {name} {n} times for {n_nodes} nodes, and each starts all processes of its node"
        );
        let help = "one process a node: mpirun -np NODES --map-by ppr:1:node, or start python directly";
        launch.finding(&RULE, command.at, title, help)
    })
}
