//! # What it shows
//!
//! Data between nodes goes through host memory although NICs and GPUs could move it directly. Bandwidth is a third
//! to a half of what it could be.
//!
//! # Why it happens
//!
//! The nvidia-peermem module is not loaded and DMA-BUF is not available; GPU and NIC are too far apart by
//! NCCL_NET_GDR_LEVEL; a virtual machine.
//!
//! # Evidence
//!
//! Channels `via NET/IB/n` without `/GDRDMA`; registration of GPU memory that fails; other ranks of the job that do
//! have it.
//!
//! # What looks like it but is not
//!
//! Socket networks have no GPUDirect RDMA. Some channels without it are normal where a NIC is far from the GPU:
//! only ranks with none at all are named.
//!
//! # What to do
//!
//! Load nvidia-peermem, or use a kernel and driver with DMA-BUF.
//!
//! # References
//!
//! NVIDIA/nccl src/transport/net.cc; user guide NCCL_NET_GDR_LEVEL, NCCL_DMABUF_ENABLE; GPUDirect RDMA
//! documentation.

use ringleader_model::{
    Category, Cause, Confidence, Culprit, Evidence, Finding, Impact, NcclLink, NcclLog, Severity, SourceKind,
    SystemFact, Weight,
};

use crate::drafting::claims::ClaimsOfCause;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::who::culprits::{add_culprit, who};
use ringleader_correlate::who::tools::shown;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "gdr-peermem-missing",
    title: "GPUDirect RDMA is off",
    since: "0.1",
    doc: include_str!("gdr_peermem_missing.rs"),
    check,
};

/// Citations of channels.
const CITATIONS: usize = 4;

fn check(scene: &Scene<'_>) -> Outcome {
    if let Some(told) = ClaimsOfCause::of(scene, Cause::GdrPeermemMissing) {
        let title = format!("{}: GPU memory cannot be registered with the NIC", told.who());
        let draft = advised(told.draft(&RULE, Cause::GdrPeermemMissing, title).category(Category::Init));
        return Outcome::from_findings(draft.build().into_iter().collect());
    }
    Outcome::from_findings(channels_without(scene).into_iter().collect())
}

fn advised(draft: Draft) -> Draft {
    draft
        .advise_command(Impact::Harmless, "check whether the module is loaded (with NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,NET the log says 'GPU Direct RDMA Enabled' or 'Disabled')", "lsmod | grep -E 'nvidia_peermem|nv_peer_mem'")
        .advise_command(Impact::Disruptive, "load it on every node, then start the job again", "modprobe nvidia-peermem")
}

/// Links over verbs, grouped by process: does any of them use GPUDirect?
fn channels_without(scene: &Scene<'_>) -> Option<Finding> {
    let mut without: Vec<(&NcclLog, u32, &NcclLink)> = Vec::new();
    let mut n_with = 0;
    for (_, log) in scene.nccl_logs() {
        let mut processes: Vec<u32> = log.links.iter().filter(|l| l.is_verbs()).map(|l| l.process).collect();
        processes.sort_unstable();
        processes.dedup();
        for process in processes {
            let mut links = log.links.iter().filter(|l| l.process == process && l.is_verbs());
            let direct = links.clone().any(NcclLink::is_direct);
            match (direct, links.next()) {
                (false, Some(first)) => without.push((log, process, first)),
                _ => n_with += 1,
            }
        }
    }
    without.first()?;
    let mut culprits: Vec<Culprit> = Vec::new();
    if n_with > 0 {
        for (log, process, _) in &without {
            if let Some(p) = log.processes.get(*process as usize) {
                add_culprit(&mut culprits, scene.culprit(&p.who));
            }
        }
    }
    let title = if n_with > 0 {
        format!("{}: data goes through host memory, unlike on its peers (no GPUDirect RDMA)", who(&culprits))
    } else {
        "data between nodes goes through host memory: no channel uses GPUDirect RDMA".to_owned()
    };
    let evidence = without.iter().take(CITATIONS).map(|(_, _, link)| Evidence {
        cite: link.cite,
        text: format!("{} -> {} via {}", link.from.0, link.to.0, link.transport),
        kind: SourceKind::NcclLog,
    });
    let draft = Draft::new(RULE.id, Cause::GdrPeermemMissing, title)
        .category(Category::Performance)
        .severity(Severity::Warning)
        .weight(Weight::Derived)
        .confidence(Confidence::Medium)
        .culprits(culprits)
        .evidence(evidence)
        .evidence(modules_without(scene));
    advised(draft).build()
}

/// A list of modules that has the driver of the GPUs and of the NICs, and nothing between them.
fn modules_without(scene: &Scene<'_>) -> Option<Evidence> {
    scene.system().find_map(|(observation, fact)| {
        let SystemFact::Modules(names) = fact else { return None };
        let has = |name: &str| names.iter().any(|n| **n == *name);
        let is_missing = has("nvidia") && !has("nvidia_peermem") && !has("nv_peer_mem");
        is_missing
            .then(|| shown(observation, None, SourceKind::System, "nvidia is loaded, nvidia_peermem is not"))
    })
}

#[cfg(test)]
mod tests {
    use ringleader_model::SystemFact;

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn no_channel_has_it() {
        StagedCase::new()
            .process("node0", 1, None)
            .link(8, 0, "NET/IB/0")
            .link(0, 8, "NET/IB/1")
            .expect(&RULE, &["gdr-peermem-missing"]);
    }

    #[test]
    fn one_node_lacks_it() {
        StagedCase::new()
            .process("node0", 1, Some(0))
            .link(8, 0, "NET/IB/0/GDRDMA")
            .process("node1", 1, Some(8))
            .link(0, 8, "NET/IB/0")
            .expect(&RULE, &["gdr-peermem-missing 8"]);
    }

    #[test]
    fn the_list_of_modules_says_why() {
        let lists = |names: &[&str]| {
            let names = names.iter().map(|n| (*n).into()).collect();
            StagedCase::new()
                .process("node0", 1, None)
                .link(8, 0, "NET/IB/0")
                .system("", SystemFact::Modules(names))
        };
        lists(&["mlx5_ib", "nvidia"]).concludes(&RULE, "gdr-peermem-missing , high");
        lists(&["nvidia", "nvidia_peermem"]).concludes(&RULE, "gdr-peermem-missing , medium");
    }

    #[test]
    fn some_channels_without_and_sockets_are_normal() {
        StagedCase::new()
            .process("node0", 1, Some(0))
            .link(8, 0, "NET/IB/0/GDRDMA")
            .link(8, 0, "NET/IB/3")
            .process("node1", 1, Some(8))
            .link(0, 8, "NET/Socket/0")
            .silent(&RULE);
    }
}
