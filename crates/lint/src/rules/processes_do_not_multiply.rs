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

use crate::launch::{Command, Launch};
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

/// Directives that give GPUs to a node.
const GPUS: &[&str] = &["gpus-per-node", "gres", "gpus-per-task"];

fn check(scan: &Scan<'_, '_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for launch in &scan.launch {
        let gpus = launch.directive(GPUS);
        let tasks = launch.directive(&["ntasks-per-node", "tasks-per-node"]);
        let is_plain = |command: &&Command| {
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
        findings.extend(launch.commands.iter().flat_map(|command| of_launcher(launch, command)));
        if let Some(batch) = launch.batch
            && batch.micro * batch.accumulation > 0
            && batch.train % (batch.micro * batch.accumulation) != 0
        {
            let title = format!(
                "train_batch_size {} is no multiple of {} samples a GPU and {} steps: DeepSpeed refuses to start",
                batch.train, batch.micro, batch.accumulation
            );
            let help =
                "train_batch_size is the micro batch times the accumulation steps times the number of GPUs";
            findings.push(launch.finding(&RULE, batch.at, title, help));
        }
    }
    findings
}

/// What torchrun, accelerate or deepspeed is told, against what the scheduler or controller gives.
fn of_launcher(launch: &Launch<'_>, command: &Command) -> Vec<Finding> {
    let Some(launcher) = command.launcher() else { return Vec::new() };
    let mut findings = Vec::new();
    let nodes = launch.nodes();
    let of_containers = || {
        let mut counts = launch.containers.iter().map(|container| container.n_gpus);
        let first = counts.next()?;
        (launch.is_controlled && counts.all(|n| n == first)).then_some(first)
    };
    let gpus = launch.directive(GPUS).map(|(n, _)| n).or_else(of_containers).filter(|n| *n > 0);
    let name = launcher.name;
    let runs_everywhere = command.starts("srun") || launch.is_controlled;
    if let (Some((have, _)), Some(want)) = (nodes, launcher.nodes)
        && have != want
        && runs_everywhere
    {
        let title = format!("{name} waits for {want} nodes, and the job has {have}");
        let help = "take the number from the scheduler: $SLURM_NNODES, or the controller's variables";
        findings.push(launch.finding(&RULE, command.at, title, help));
    }
    if let (Some(have), Some(want)) = (gpus, launcher.per_node)
        && want > have
    {
        let title = format!("{want} processes a node share {have} GPU{}", if have == 1 { "" } else { "s" });
        let help = "start as many processes as the node has GPUs: --nproc-per-node=gpu";
        findings.push(launch.finding(&RULE, command.at, title, help));
    }
    // accelerate wants the number in the whole job.
    let n_nodes = launcher.nodes.or(nodes.map(|(n, _)| n)).unwrap_or(1);
    if let Some(total) = launcher.total
        && n_nodes > 1
    {
        let help = "num_processes counts the whole job: machines times GPUs of each";
        if total % n_nodes != 0 {
            let title = format!("{total} processes do not divide among {n_nodes} machines");
            findings.push(launch.finding(&RULE, command.at, title, help));
        } else if gpus.is_some_and(|have| have > 1 && total == have) {
            let title = format!("{total} processes in all, for {n_nodes} machines with {total} GPUs each");
            let mut finding = launch.finding(&RULE, command.at, title, help);
            finding.confidence = Confidence::Medium;
            findings.push(finding);
        }
    }
    findings
}
