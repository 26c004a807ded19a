//! # What it shows
//!
//! The ranks of one job, or the framework and the library, do not use the same NCCL.
//!
//! # Why it happens
//!
//! Several installations on the path (system, conda, wheel), a node with an older image, LD_LIBRARY_PATH or
//! LD_PRELOAD.
//!
//! # Evidence
//!
//! `Mismatched NCCL version detected`, different `NCCL version` lines of processes in one communicator, `undefined
//! symbol: nccl…`.
//!
//! # What looks like it but is not
//!
//! `Message truncated` of the bootstrap may also mean different world sizes. Two jobs in one folder may well
//! differ.
//!
//! # What to do
//!
//! Find out which library each rank loads and make them equal.
//!
//! # References
//!
//! NVIDIA/nccl src/init.cc (2.23.4 and later), src/bootstrap.cc.

use std::collections::BTreeMap;

use ringleader_knowledge::version::NcclVersion;
use ringleader_model::{
    Cause, Confidence, Culprit, Evidence, Finding, Impact, NcclProcess, SourceKind, Weight,
};

use crate::drafting::claims::Told;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::who::culprits::{add_culprit, who};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "nccl-version-mismatch",
    title: "ranks load different NCCL releases",
    since: "0.1",
    doc: include_str!("nccl_version_mismatch.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let seen = versions_of_one_job(scene);
    if let Some(told) = Told::of(scene, Cause::NcclVersionMismatch) {
        let title = format!("{}: NCCL releases do not match", told.who());
        let draft = told.draft(&RULE, Cause::NcclVersionMismatch, title);
        return Outcome::from_findings(advised(draft).build().into_iter().collect());
    }
    Outcome::from_findings(seen.into_iter().collect())
}

fn advised(draft: Draft) -> Draft {
    draft
        .advise_command(
            Impact::Harmless,
            "on every node, check which library a rank loads and which one torch ships",
            "grep -o '/.*libnccl[^ ]*' /proc/<pid>/maps | sort -u; python -c 'import torch; print(torch.cuda.nccl.version())'",
        )
        .advise(Impact::Harmless, "use one image on all nodes, and take other copies of libnccl out of LD_LIBRARY_PATH and LD_PRELOAD")
}

/// Processes of one communicator that print different releases; the smaller part is named.
fn versions_of_one_job(scene: &Scene<'_>) -> Option<Finding> {
    let mut by_comm: BTreeMap<u64, BTreeMap<NcclVersion, Vec<&NcclProcess>>> = BTreeMap::new();
    for (_, log) in scene.nccl_logs() {
        for comm in &log.comms {
            let Some(process) = log.processes.get(comm.process as usize) else { continue };
            let (Some(id), Some(text)) = (comm.comm_id, process.nccl_version.as_deref()) else { continue };
            let Some(version) = NcclVersion::parse(text) else { continue };
            by_comm.entry(id).or_default().entry(version).or_default().push(process);
        }
    }
    let mixed = by_comm.into_values().find(|versions| versions.len() > 1)?;
    let most = mixed.values().map(Vec::len).max()?;
    let odd = mixed.values().filter(|p| p.len() < most).flatten();
    let mut culprits: Vec<Culprit> = Vec::new();
    for process in odd {
        add_culprit(&mut culprits, scene.culprit(&process.who));
    }
    let names: Vec<String> = mixed.keys().map(NcclVersion::to_string).collect();
    let evidence = mixed.iter().filter_map(|(version, processes)| {
        let cite = processes.first()?.first?;
        Some(Evidence { cite, text: format!("NCCL version {version}"), kind: SourceKind::NcclLog })
    });
    let title = format!("ranks of one communicator run NCCL {}", names.join(" and "));
    let title = if culprits.is_empty() { title } else { format!("{}: {title}", who(&culprits)) };
    let draft = Draft::new(RULE.id, Cause::NcclVersionMismatch, title)
        .weight(Weight::Stated)
        .confidence(Confidence::High)
        .culprits(culprits)
        .evidence(evidence);
    advised(draft).build()
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{Stage, Trial as _};

    fn with(stage: Stage, pid: u32, rank: u32, version: &str) -> Stage {
        stage
            .process("n", pid, Some(rank))
            .about(|p| p.nccl_version = Some(version.into()))
            .comm(rank, 3, 1, false)
    }

    #[test]
    fn nccl_says_so() {
        Stage::new()
            .process("n", 1, Some(2))
            .warn("init.cc:1", "Mismatched NCCL version detected : rank 0 version 22809 rank 2 version 22304")
            .expect(&RULE, &["nccl-version-mismatch 2"]);
    }

    #[test]
    fn the_odd_one_out_is_named() {
        let stage = with(
            with(with(Stage::new(), 1, 0, "2.28.9+cuda13.0"), 2, 1, "2.23.4+cuda12.4"),
            3,
            2,
            "2.28.9+cuda13.0",
        );
        stage.expect(&RULE, &["nccl-version-mismatch 1"]);
    }

    #[test]
    fn equal_versions_are_fine() {
        with(with(Stage::new(), 1, 0, "2.28.9+cuda13.0"), 2, 1, "2.28.9+cuda12.9").silent(&RULE);
    }
}
