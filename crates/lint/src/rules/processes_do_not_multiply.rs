//! # What it shows
//! The launcher is told another number of nodes or processes than the scheduler gives.
//!
//! # Why it happens
//! One of the numbers was changed and the other forgotten.
//!
//! # Evidence
//! Both numbers are written in the file.
//!
//! # What looks like it but is not
//! Numbers that the script computes.
//!
//! # What to do
//! Compute one from the other.
//!
//! # References
//! PyTorch documentation, torchrun; Slurm, sbatch.

use ringleader_model::{Cause, Confidence, Severity};

use crate::rule::{Family, Rule};
use crate::{Finding, Scan};

/// The rule.
pub(crate) static RULE: Rule = Rule {
    id: "processes-do-not-multiply",
    title: "nodes, tasks, GPUs and processes do not fit",
    family: Family::Launch,
    predicts: Cause::MissingRank,
    severity: Severity::Error,
    confidence: Confidence::High,
    doc: include_str!("processes_do_not_multiply.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for launch in &scan.launch {
        let nodes = launch.directive(&["nodes"]);
        let gpus = launch.directive(&["gpus-per-node", "gres", "gpus-per-task"]);
        let tasks = launch.directive(&["ntasks-per-node", "tasks-per-node"]);
        let is_plain = |command: &&crate::launch::Command| {
            let others = ["torchrun", "accelerate", "deepspeed", "apptainer", "singularity", "docker"];
            let is_python = |word: &str| matches!(word.rsplit('/').next(), Some("python" | "python3"));
            // `bash -c "python train.py"`; `python -c` is a helper, not the job.
            let script = command.option(&["c"]).unwrap_or_default();
            let is_wrapped =
                command.starts("bash") && script.split_whitespace().next().is_some_and(is_python);
            let is_direct = command.words.iter().any(|word| is_python(word))
                && !command.words.iter().any(|word| word == "-c")
                && !command.starts("bash");
            let text = command.words.join(" ");
            command.program() == "srun"
                && (is_direct || is_wrapped)
                && !others.iter().any(|program| text.contains(program) || command.starts(program))
        };
        if let (Some((n_gpus, _)), Some((n_tasks, at))) = (gpus, tasks)
            && n_gpus > 1
            && n_tasks == 1
            && let Some(command) = launch.commands.iter().find(is_plain)
            && command.number(&["ntasks-per-node", "ntasks", "n"]).is_none()
        {
            let title = format!("srun starts one process a node, and each node has {n_gpus} GPUs");
            let help = "one task a GPU (--ntasks-per-node), or torchrun, which starts the others";
            let mut finding = launch.finding(&RULE, at, title, help);
            finding.why.push(format!("line {}: srun starts python", command.at.line));
            finding.confidence = Confidence::Medium;
            findings.push(finding);
        }
        for command in launch.commands.iter().filter(|command| command.starts("torchrun")) {
            let (n_nodes, n_processes) = (command.number(&["nnodes"]), command.number(&["nproc-per-node"]));
            if let (Some((have, _)), Some(want)) = (nodes, n_nodes)
                && have != want
                && command.starts("srun")
            {
                let title = format!("torchrun waits for {want} nodes, and the job has {have}");
                let help = "write --nnodes=$SLURM_NNODES";
                findings.push(launch.finding(&RULE, command.at, title, help));
            }
            if let (Some((have, _)), Some(want)) = (gpus, n_processes)
                && want > have
                && have > 0
            {
                let title =
                    format!("{want} processes a node share {have} GPU{}", if have == 1 { "" } else { "s" });
                let help = "start as many processes as the node has GPUs: --nproc-per-node=gpu";
                findings.push(launch.finding(&RULE, command.at, title, help));
            }
        }
    }
    findings
}
