//! # What it shows
//! A job on several nodes has localhost as its meeting point.
//!
//! # Why it happens
//! The script was written for one node, or a lookup of the host name falls back to localhost when it fails.
//!
//! # Evidence
//! The same file contains the number of nodes.
//!
//! # What looks like it but is not
//! A script for one node.
//!
//! # What to do
//! Name the first host of the job.
//!
//! # References
//! PyTorch documentation, torchrun; pytorch#76069, pith-train#91.

use ringleader_model::{Cause, Confidence, Severity};

use crate::launch::{Launch, Spot};
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "localhost-master",
    title: "several nodes use localhost as their rendezvous address",
    family: Family::Launch,
    predicts: Cause::RankEnvMisconfigured,
    severity: Severity::Error,
    confidence: Confidence::High,
    doc: include_str!("localhost_master.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let mut findings = Vec::new();
    for launch in &scan.launch {
        let by_slurm = launch.nodes().map_or(1, |(n, _)| n);
        let by_command = launch.commands.iter().filter_map(|c| c.launcher()?.nodes).max().unwrap_or(1);
        let n_nodes = by_slurm.max(by_command).max(by_variable(launch));
        let is_spread = n_nodes > 1;
        for setting in launch.settings.iter().filter(|setting| setting.name == "MASTER_ADDR") {
            if let Some(finding) = of_submitter(launch, &setting.raw, setting.at) {
                findings.push(finding);
                continue;
            }
            let is_here =
                matches!(setting.value.as_deref(), Some("localhost" | "127.0.0.1" | "0.0.0.0" | "::1"));
            let falls_back =
                ["|| echo localhost", "|| echo 127.0.0.1"].iter().any(|word| setting.raw.contains(word))
                    || (is_spread
                        && [":-localhost", ":-127.0.0.1"].iter().any(|word| setting.raw.contains(word)));
            let help = "take the first host of the job: MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)";
            if is_here && is_spread {
                let title = format!(
                    "MASTER_ADDR is {} with {n_nodes} nodes: each node waits for itself",
                    setting.raw
                );
                findings.push(launch.finding(&RULE, setting.at, title, help));
            } else if falls_back {
                let title =
                    "MASTER_ADDR falls back to localhost: where the lookup fails, each node waits for itself"
                        .to_owned();
                let mut finding = launch.finding(&RULE, setting.at, title, help);
                finding.confidence = Confidence::Medium;
                findings.push(finding);
            }
        }
        for command in &launch.commands {
            // A rendezvous of its own on each node.
            let runs_everywhere = command.program() == "srun" || launch.is_controlled;
            let is_alone = command.words.iter().any(|word| word == "--standalone");
            if is_alone && runs_everywhere && by_slurm > 1 && command.starts("torchrun") {
                let title = format!("--standalone on {by_slurm} nodes: each node trains a job of its own");
                let help = "name the first host of the job: --rdzv-backend=c10d --rdzv-endpoint=$MASTER_ADDR:29500 --nnodes=$SLURM_NNODES";
                let mut finding = launch.finding(&RULE, command.at, title, help);
                finding.confidence = Confidence::Medium;
                findings.push(finding);
            }
            let address =
                command.option(&["master-addr", "rdzv-endpoint", "main-process-ip"]).unwrap_or_default();
            findings
                .extend(of_submitter(launch, address, command.at).filter(|_| command.launcher().is_some()));
            let host = address.split(':').next().unwrap_or_default();
            // The first node may name itself so in a script of its own; the others need its real name.
            let is_first =
                command.node_rank() == Some("0") && command.program() != "srun" && !command.is_repeated;
            if is_first && !launch.is_controlled {
                continue;
            }
            if matches!(host, "localhost" | "127.0.0.1")
                && command.launcher().and_then(|l| l.nodes).unwrap_or(by_slurm) > 1
            {
                let title = format!(
                    "{address} is the rendezvous address of several nodes: each node waits for itself"
                );
                findings.push(launch.finding(&RULE, command.at, title, "name the first host of the job"));
            }
        }
    }
    findings
}

/// The number of nodes that a variable says: `NNODES=2`.
fn by_variable(launch: &Launch<'_>) -> u64 {
    const NAMES: &[&str] = &["NNODES", "NUM_NODES", "N_NODES", "PET_NNODES"];
    const OF_NODE: &[&str] = &["NODE_RANK", "MACHINE_RANK", "PET_NODE_RANK"];
    let all = launch.settings.iter().chain(&launch.assigned);
    // The first node may name itself so in a file of its own.
    if all.clone().any(|one| OF_NODE.contains(&one.name.as_str()) && one.value.as_deref() == Some("0")) {
        return 1;
    }
    let mut said = all.filter(|setting| NAMES.contains(&setting.name.as_str()));
    // Of several values nobody knows which one the job gets.
    let Some(value) = said.next().and_then(|first| first.value.as_deref()?.parse().ok()) else { return 1 };
    if said.all(|other| other.value.as_deref().and_then(|n| n.parse().ok()) == Some(value)) {
        value
    } else {
        1
    }
}

/// The host where the job was submitted is no node of it.
fn of_submitter(launch: &Launch<'_>, address: &str, at: Spot) -> Option<LintFinding> {
    const NAME: &str = "SLURM_SUBMIT_HOST";
    // Where a variable takes it over.
    let taken = launch.assigned.iter().find(|one| one.raw.contains(NAME) && !address.contains(&one.name));
    let at = taken.map_or(at, |one| one.at);
    address.contains(NAME).then(|| {
        let title =
            "the rendezvous address is the host where the job was submitted: no rank runs there".to_owned();
        let help =
            "take the first host of the job: $(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)";
        let mut finding = launch.finding(&RULE, at, title, help);
        finding.confidence = Confidence::Medium;
        finding
    })
}
