//! # What it shows
//! A container with several GPUs should use RDMA and cannot: it gets no adapter, or may not lock memory.
//!
//! # Why it happens
//! The adapter, the limit on locked memory and NCCL's setting are in three places of a manifest. Without the adapter NCCL
//! uses TCP sockets, many times slower; without locked memory the registration of buffers fails.
//!
//! # Evidence
//! The manifest or command names an adapter and grants neither IPC_LOCK nor an unlimited memlock; or NCCL_IB_HCA names
//! adapters and the container gets none.
//!
//! # What looks like it but is not
//! A privileged container, one with a single GPU, EFA (which locks no memory this way), a container of one node.
//!
//! # What to do
//! Grant all three: the adapter, the memory, the setting.
//!
//! # References
//! NCCL user guide, troubleshooting: memory registration; nccl-tests#206, mscclpp#335.

use ringleader_model::{Cause, Confidence, Severity};

use crate::launch::Launch;
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "rdma-out-of-reach",
    title: "a container should use RDMA and cannot",
    family: Family::Launch,
    predicts: Cause::MemlockLimit,
    severity: Severity::Warning,
    confidence: Confidence::Medium,
    doc: include_str!("rdma_out_of_reach.rs"),
    check,
};

/// Whether a setting names the adapters for NCCL.
fn names_adapters(launch: &Launch<'_>) -> bool {
    launch.settings.iter().any(|setting| {
        setting.name == "NCCL_IB_HCA" && setting.value.as_deref().is_some_and(|value| !value.is_empty())
    })
}

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let mut findings = Vec::new();
    for launch in &scan.launch {
        let is_named = names_adapters(launch);
        let is_efa = launch.text.contains("/efa");
        for container in launch.containers.iter().filter(|container| container.n_gpus > 1) {
            if container.has_rdma && !container.can_lock && !is_efa {
                let title =
                    "an RDMA adapter without locked memory: the registration of buffers fails".to_owned();
                let help = "Kubernetes: securityContext.capabilities.add IPC_LOCK; Docker: --ulimit memlock=-1; Compose: ulimits.memlock -1";
                findings.push(launch.finding(&RULE, container.at, title, help));
            } else if is_named && !container.has_rdma && !is_efa {
                let title =
                    "NCCL_IB_HCA names adapters, and the container gets none: NCCL goes over TCP".to_owned();
                let help = "Kubernetes: a resource of the RDMA device plugin, such as rdma/hca; Docker: --device=/dev/infiniband";
                findings.push(launch.finding(&RULE, container.at, title, help));
            }
        }
    }
    findings
}
