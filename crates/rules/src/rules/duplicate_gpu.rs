//! # What it shows
//!
//! Two ranks of one communicator opened the same GPU, which NCCL refuses.
//!
//! # Why it happens
//!
//! The device was chosen by a local rank that is 0 everywhere, or before it was set; CUDA_VISIBLE_DEVICES gives two
//! processes the same GPU; more processes than GPUs.
//!
//! # Evidence
//!
//! `Duplicate GPU detected : rank A and rank B both on CUDA device X`: X is the PCI address in hexadecimal.
//!
//! # What looks like it but is not
//!
//! Ranks of different jobs on one GPU are not noticed by NCCL; they show as lack of memory.
//!
//! # What to do
//!
//! Set the device from the local rank before the first CUDA call.
//!
//! # References
//!
//! NVIDIA/nccl src/init.cc (up to 2.29.7), src/graph/topo.cc (2.30.3 and later).

use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::{Culprit, Impact, PciAddress, Rank, Who};

use crate::correlate::Scene;
use crate::rule::{Input, Outcome, Rule};
use crate::told::{Told, add_culprit, found, reads_variable, who};

/// See the module.
pub(super) static RULE: Rule = Rule {
    id: "duplicate-gpu",
    title: "two ranks on one GPU",
    since: "0.1",
    reads: &[Input::NcclLog, Input::TorchLog],
    doc: include_str!("duplicate_gpu.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, "duplicate-gpu") else { return Outcome::Clear };
    let mut ranks_on: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
    for claim in told.claims() {
        if let Some((a, b, bus_id)) = pair(&claim.text) {
            ranks_on.entry(bus_id).or_default().extend([a, b]);
        }
    }
    let mut culprits: Vec<Culprit> = Vec::new();
    for (&bus_id, ranks) in &ranks_on {
        for &rank in ranks {
            let mut culprit = scene.culprit(&Who::rank(rank));
            culprit.rank = Some(Rank(rank));
            culprit.gpu = culprit.gpu.or(Some(PciAddress::from_nccl_bus_id(bus_id)));
            add_culprit(&mut culprits, culprit);
        }
    }
    let title = match ranks_on.iter().next() {
        Some((&bus_id, _)) if ranks_on.len() == 1 => {
            format!("{} all use the GPU {}", who(&culprits), PciAddress::from_nccl_bus_id(bus_id))
        }
        Some(_) => format!("{} share GPUs", who(&culprits)),
        None => {
            culprits = told.culprits();
            format!("{}: two ranks use the same GPU", told.who())
        }
    };
    let mut draft = told
        .draft_naming(&RULE, "duplicate-gpu", title, culprits)
        .advise_command(
            Impact::Disruptive,
            "choose the GPU by local rank before the first CUDA call of each process",
            "torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"]))",
        )
        .advise_command(
            Impact::Harmless,
            "check that local ranks differ and that each process sees the GPUs it should",
            "env | grep -E 'LOCAL_RANK|LOCALID|CUDA_VISIBLE_DEVICES'",
        );
    if reads_variable(scene, "NCCL_MULTI_RANK_GPU_ENABLE")
        && told.claims().iter().any(|c| c.text.contains("Multi"))
    {
        draft = draft.advise_command(
            Impact::Disruptive,
            "if sharing is meant, allow it (NCCL 2.30.3 and later)",
            "NCCL_MULTI_RANK_GPU_ENABLE=1",
        );
    }
    found(draft)
}

/// `… rank 2 and rank 0 both on CUDA device 1000`: two ranks of the communicator and the bus id.
fn pair(text: &str) -> Option<(u32, u32, u64)> {
    let (_, rest) = text.split_once("rank ")?;
    let (a, rest) = rest.split_once(" and rank ")?;
    let (b, rest) = rest.split_once(" both on CUDA device ")?;
    let hex = rest.split(|c: char| !c.is_ascii_hexdigit()).next()?;
    Some((a.trim().parse().ok()?, b.trim().parse().ok()?, u64::from_str_radix(hex, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::staging::Stage;

    const TEXT: &str = "Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000";

    #[test]
    fn both_ranks_and_their_gpu_are_named() {
        let stage = Stage::new().process("node0", 7730, None).warn("init.cc:497", TEXT);
        stage.expect(&RULE, &["duplicate-gpu 0,2"]);
        let gpu = stage.finding(&RULE).culprits.first().and_then(|c| c.gpu);
        assert_eq!(gpu.map(|g| g.to_string()).as_deref(), Some("0000:01:00.0"));
    }

    #[test]
    fn quoted_by_torch() {
        Stage::new().nccl_raised(Some(2), TEXT).expect(&RULE, &["duplicate-gpu 0,2"]);
    }

    #[test]
    fn the_newer_text_names_no_ranks() {
        Stage::new()
            .process("node0", 1, Some(3))
            .warn("graph/topo.cc:1", "Multiple ranks detected using the same GPU on this node. Set NCCL_MULTI_RANK_GPU_ENABLE=1 to enable this configuration.")
            .expect(&RULE, &["duplicate-gpu 3"]);
    }

    #[test]
    fn lack_of_memory_is_another_thing() {
        Stage::new().raised(Some(1), "torch.OutOfMemoryError", "CUDA out of memory.", &[]).silent(&RULE);
    }
}
