//! # What it shows
//! A job of several nodes names the network of NCCL, and leaves Gloo to whatever the host name resolves to.
//!
//! # Why it happens
//! NCCL_SOCKET_IFNAME is for NCCL alone. Gloo carries object collectives on the CPU, asynchronous checkpoints and
//! monitored barriers; it binds to the address of the host name, which is often the management network or 127.0.1.1.
//!
//! # Evidence
//! The script starts several nodes and exports NCCL_SOCKET_IFNAME with the name of one interface, and no
//! GLOO_SOCKET_IFNAME. The confidence is low: jobs without a Gloo group do not care.
//!
//! # What looks like it but is not
//! A list of exclusions such as `^lo,docker0`, jobs of one node, jobs that use NCCL alone.
//!
//! # What to do
//! Export GLOO_SOCKET_IFNAME with the same interface.
//!
//! # References
//! PyTorch, torch.distributed: common environment variables, choosing the network interface.

use ringleader_model::{Cause, Confidence, Severity};

use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "gloo-on-another-network",
    title: "NCCL gets a network interface and Gloo does not",
    family: Family::Launch,
    predicts: Cause::NetworkUnreachable,
    severity: Severity::Warning,
    confidence: Confidence::Low,
    doc: include_str!("gloo_on_another_network.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let mut findings = Vec::new();
    for launch in &scan.launch {
        let told = launch.commands.iter().filter_map(|command| command.number(&["nnodes", "num-machines"]));
        let n_nodes = launch.directive(&["nodes"]).map(|(n, _)| n).into_iter().chain(told).max().unwrap_or(0);
        let has_gloo = launch.text.contains("GLOO_SOCKET_IFNAME");
        let named = launch.settings.iter().find(|setting| {
            setting.name == "NCCL_SOCKET_IFNAME"
                && !setting.raw.trim_matches(['"', '\'']).is_empty()
                && !setting.raw.contains('^')
        });
        if let Some(setting) = named
            && n_nodes > 1
            && !has_gloo
        {
            let title = format!("NCCL uses {}, and Gloo the interface of the host name", setting.raw);
            let help = "export GLOO_SOCKET_IFNAME with the same interface";
            findings.push(launch.finding(&RULE, setting.at, title, help));
        }
    }
    findings
}
