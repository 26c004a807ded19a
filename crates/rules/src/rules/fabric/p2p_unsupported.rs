//! # What it shows
//!
//! A GPU was asked to reach the memory of another and cannot.
//!
//! # Why it happens
//!
//! GPUs of different kinds or behind different root ports, consumer GPUs whose driver forbids it, a virtual
//! machine, more peers than one GPU can map; on NVLink machines a hardware or Fabric Manager fault.
//!
//! # Evidence
//!
//! `peer access is not supported between these two devices`, `peer mapping resources exhausted`, `P2P is disabled
//! between NVLINK connected GPUs`; `nvidia-smi topo -p2p r` that refuses a pair (`NS`, `CNS`, `GNS`, `TNS`) which `topo -m`
//! joins by NVLink.
//!
//! # What looks like it but is not
//!
//! INFO `P2P is disabled between connected GPUs` only means that shared memory is used. Cards without NVLink between them
//! often have no access by design: a matrix full of `CNS` is no fault.
//!
//! # What to do
//!
//! Look at the access matrix. Where there is NVLink, repair it; elsewhere use shared memory.
//!
//! # References
//!
//! CUDA runtime reference, enum cudaError. Codes 217, 711; NVIDIA/nccl src/graph/paths.cc.

use ringleader_model::{Category, Cause, Confidence, Evidence, Impact, Severity};

use crate::drafting::claims::ClaimsOfCause;
use crate::rule::{Draft, Outcome, Rule, found};
use ringleader_correlate::Scene;
use ringleader_correlate::who::gpus;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "p2p-unsupported",
    title: "GPUs without peer access",
    since: "0.1",
    doc: include_str!("p2p_unsupported.rs"),
    check,
};

/// Citations of pairs.
const CITATIONS: usize = 4;

fn check(scene: &Scene<'_>) -> Outcome {
    let refused = refused(scene);
    let Some(told) = ClaimsOfCause::of(scene, Cause::P2pUnsupported) else {
        let draft = (!refused.is_empty()).then(|| {
            Draft::new(
                RULE.id,
                Cause::P2pUnsupported,
                "GPUs with NVLink between them have no access to each other",
            )
            .category(Category::Performance)
            .severity(Severity::Warning)
            .confidence(Confidence::Medium)
            .evidence(refused)
        });
        return Outcome::from_findings(draft.and_then(|d| advise(d).build()).into_iter().collect());
    };
    let title = format!("{who}: these GPUs have no access to each other", who = told.who());
    found(advise(told.draft(&RULE, Cause::P2pUnsupported, title).evidence(refused)))
}

fn advise(draft: Draft) -> Draft {
    draft
        .advise_command(
            Impact::Harmless,
            "show which pairs have access",
            "nvidia-smi topo -p2p r; nvidia-smi topo -m",
        )
        .advise_command(Impact::Harmless, "use shared memory instead (slower)", "NCCL_P2P_DISABLE=1")
}

/// Pairs that have NVLink between them and no access: both rows of each, as far as they are cited.
fn refused(scene: &Scene<'_>) -> Vec<Evidence> {
    let mut evidence = Vec::new();
    for (observation, table) in scene.gpu_tables() {
        for path in table.paths.iter().filter(|p| p.from < p.to && p.is_nvlink()) {
            let pair = gpus::pair(scene.case(), observation.who.host.as_ref(), path.from, path.to);
            let Some((kind, no)) = pair.access else { continue };
            if matches!(&*kind, "NS" | "CNS" | "GNS" | "TNS") && evidence.len() < CITATIONS {
                evidence.extend(pair.nvlink.into_iter().chain([no]));
            }
        }
    }
    evidence
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn cuda_says_so() {
        StagedCase::new()
            .raised(
                Some(0),
                "RuntimeError",
                "CUDA error: peer access is not supported between these two devices",
                &[],
            )
            .expect(&RULE, &["p2p-unsupported 0"]);
    }

    #[test]
    fn nccl_says_so() {
        StagedCase::new().process("n", 1, Some(1)).warn("graph/paths.cc:330", "P2P is disabled between NVLINK connected GPUs 1 and 0. This should not be the case given their connectivity, and is probably due to a hardware issue.").expect(&RULE, &["p2p-unsupported 1"]);
    }

    #[test]
    fn a_matrix_that_refuses_pairs_with_nvlink() {
        let nvlink = || StagedCase::new().topology(&["X NV18", "NV18 X"]);
        nvlink().topology(&["X NS", "NS X"]).expect(&RULE, &["p2p-unsupported"]);
        assert_eq!(nvlink().topology(&["X NS", "NS X"]).worth(&RULE), ["warning Derived"]);
        nvlink().topology(&["X OK", "OK X"]).silent(&RULE);
        // Cards without NVLink have no access by design.
        StagedCase::new().topology(&["X PHB", "PHB X"]).topology(&["X CNS", "CNS X"]).silent(&RULE);
        // The job's own words, and the matrix beside them.
        let said = "CUDA error: peer access is not supported between these two devices";
        let both = nvlink().topology(&["X CNS", "CNS X"]).raised(Some(0), "RuntimeError", said, &[]);
        assert_eq!(both.finding(&RULE).evidence.len(), 3);
    }

    #[test]
    fn an_illegal_access_is_another_thing() {
        StagedCase::new()
            .raised(Some(0), "RuntimeError", "CUDA error: an illegal memory access was encountered", &[])
            .silent(&RULE);
    }
}
