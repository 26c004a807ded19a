//! # What it shows
//! A batch script writes a fixed port for the rendezvous.
//!
//! # Why it happens
//! It works until two jobs share a node.
//!
//! # Evidence
//! MASTER_PORT is a number, and the job is not exclusive.
//!
//! # What looks like it but is not
//! A job that has its nodes for itself.
//!
//! # What to do
//! Derive the port from the job's number.
//!
//! # References
//! Samudra#805.

use ringleader_model::{Cause, Confidence, Severity};

use crate::launch::Launch;
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "fixed-port",
    title: "jobs on one node would share a port",
    family: Family::Launch,
    predicts: Cause::PortInUse,
    severity: Severity::Warning,
    confidence: Confidence::Low,
    doc: include_str!("fixed_port.rs"),
    check,
};

/// The default port of the launchers.
const DEFAULT_PORT: &str = "29500";
/// Advice of the finding.
const HELP: &str = "derive it from the job: MASTER_PORT=$((10000 + SLURM_JOB_ID % 50000))";

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let mut findings: Vec<LintFinding> = scan.launch.iter().flat_map(side_by_side).collect();
    // Only where a scheduler may put two jobs on one node.
    for launch in scan.launch.iter().filter(|launch| !launch.directives.is_empty()) {
        if launch.directives.iter().any(|(key, ..)| key == "exclusive") {
            continue;
        }
        for command in launch.commands.iter().filter(|command| command.launcher().is_some()) {
            let port = command.option(&["master-port", "main-process-port"]);
            if let Some(port) = port.filter(|port| port.parse::<u16>().is_ok_and(|n| n > 0)) {
                let title = format!("port {port} is the same for each job: two on one node collide");
                findings.push(launch.finding(&RULE, command.at, title, HELP));
            }
        }
        for setting in launch.settings.iter().filter(|setting| setting.name == "MASTER_PORT") {
            if setting.value.as_deref().is_some_and(|port| port.parse::<u16>().is_ok()) {
                let title = format!("port {} is the same for each job: two on one node collide", setting.raw);
                findings.push(launch.finding(&RULE, setting.at, title, HELP));
            }
        }
    }
    findings
}

/// Jobs that one script starts side by side on its node.
fn side_by_side(launch: &Launch<'_>) -> Vec<LintFinding> {
    let mut findings = Vec::new();
    let mut taken: Vec<&str> = Vec::new();
    for command in launch.commands.iter().filter(|command| command.is_background && !command.is_repeated) {
        let Some(launcher) = command.launcher() else { continue };
        let is_here = !matches!(command.program(), "ssh" | "srun" | "pdsh" | "docker" | "kubectl" | "nohup");
        let picks = command.words.iter().any(|word| word == "--standalone")
            || command.option(&["rdzv-endpoint", "rdzv-backend"]).is_some();
        let has_own_port = command.own.iter().any(|setting| setting.name == "MASTER_PORT");
        if !is_here || picks || has_own_port || launcher.nodes.is_some_and(|n| n > 1) {
            continue;
        }
        let port = command.option(&["master-port", "main-process-port"]).unwrap_or(DEFAULT_PORT);
        if taken.contains(&port) {
            let title = format!("a job beside this one takes port {port}, too: the second does not start");
            let help = "give each its own --master-port, or --standalone";
            findings.push(launch.finding(&RULE, command.at, title, help));
        }
        taken.push(port);
    }
    findings
}
