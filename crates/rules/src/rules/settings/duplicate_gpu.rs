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
//! `Duplicate GPU detected : rank A and rank B both on CUDA device X`: X is the PCI address in hexadecimal. Where the
//! number of that GPU on its node and the local ranks are known, the rank with that local rank is in its place.
//!
//! # What looks like it but is not
//!
//! Ranks of different jobs on one GPU are not noticed by NCCL; they appear as lack of memory.
//!
//! # What to do
//!
//! Set the device from the local rank before the first CUDA call.
//!
//! # References
//!
//! NVIDIA/nccl src/init.cc (up to 2.29.7), src/graph/topo.cc (2.30.3 and later).

use ringleader_knowledge::wording;
use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::{Cause, Culprit, Impact, PciAddress, Rank, Who};

use crate::drafting::claims::ClaimsOfCause;
use crate::rule::{Outcome, Rule, found};
use ringleader_correlate::Scene;
use ringleader_correlate::who::culprits::{add_culprit, who};
use ringleader_correlate::who::gpus::SeenGpu;
use ringleader_correlate::who::launch::{self, Started};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "duplicate-gpu",
    title: "two ranks on one GPU",
    since: "0.1",
    doc: include_str!("duplicate_gpu.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = ClaimsOfCause::of(scene, Cause::DuplicateGpu) else { return Outcome::Clear };
    let mut ranks_on: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
    for claim in told.claims() {
        if let Some((ranks, bus_id)) = wording::same_gpu(&claim.text) {
            ranks_on.entry(bus_id).or_default().extend(ranks);
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
    let mut gpus = ranks_on.keys().map(|bus_id| PciAddress::from_nccl_bus_id(*bus_id));
    let only = gpus.next().filter(|_| ranks_on.len() == 1);
    let title = match only {
        Some(gpu) => match astray(scene, &culprits, gpu) {
            Some((odd, home)) => {
                culprits = odd;
                format!("{} uses the GPU {gpu}, which belongs to {}", who(&culprits), who(&[home]))
            }
            None => format!("{} all use the GPU {gpu}", who(&culprits)),
        },
        None if !ranks_on.is_empty() => format!("{} share GPUs", who(&culprits)),
        None => {
            culprits = told.culprits();
            format!("{}: two ranks use the same GPU", told.who())
        }
    };
    let mut draft = told
        .draft_naming(&RULE, Cause::DuplicateGpu, title, culprits)
        .advise_command(
            Impact::Harmless,
            "choose the GPU by local rank before the first CUDA call of each process",
            "torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"]))",
        )
        .advise_command(
            Impact::Harmless,
            "check that local ranks differ and that each process sees the GPUs it should",
            "env | grep -E 'LOCAL_RANK|LOCALID|CUDA_VISIBLE_DEVICES'",
        );
    if scene.reads_variable("NCCL_MULTI_RANK_GPU_ENABLE")
        && told.claims().iter().any(|c| wording::may_share_gpu(&c.text))
    {
        draft = draft.advise_command(
            Impact::Harmless,
            "if sharing is meant, allow it (NCCL 2.30.3 and later)",
            "NCCL_MULTI_RANK_GPU_ENABLE=1",
        );
    }
    found(draft)
}

/// Of the ranks on one GPU those whose local rank is not its number, and the one whose it is: processes that all see the same
/// GPUs take the one of their number. None where that does not tell.
fn astray(scene: &Scene<'_>, sharing: &[Culprit], gpu: PciAddress) -> Option<(Vec<Culprit>, Culprit)> {
    let is_it = |seen: &&SeenGpu<'_>| seen.pci.is_some_and(|pci| PciAddress { function: 0, ..pci } == gpu);
    let mut numbers = scene.gpus().seen.iter().filter(is_it).map(|seen| seen.row.index);
    let number = numbers.next()??;
    let is_one = numbers.all(|other| other == Some(number));
    let narrowed = |one: &Started<'_>| {
        one.text("CUDA_VISIBLE_DEVICES").is_some() && sharing.iter().any(|c| c.rank == one.rank())
    };
    if !is_one
        || sharing.iter().any(|c| c.local_rank.is_none())
        || launch::started(scene.case()).iter().any(narrowed)
    {
        return None;
    }
    let (home, odd): (Vec<Culprit>, Vec<Culprit>) =
        sharing.iter().cloned().partition(|c| c.local_rank.is_some_and(|local| local.0 == number));
    match home.as_slice() {
        [home] if !odd.is_empty() => Some((odd, home.clone())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use ringleader_model::PciAddress;

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};
    use ringleader_correlate::staging::gpus::gpus;

    const TEXT: &str = "Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000";

    #[test]
    fn both_ranks_and_their_gpu_are_named() {
        let stage = StagedCase::new().process("node0", 7730, None).warn("init.cc:497", TEXT);
        stage.expect(&RULE, &["duplicate-gpu 0,2"]);
        let gpu = stage.finding(&RULE).culprits.first().and_then(|c| c.gpu);
        assert_eq!(gpu.map(|g| g.to_string()).as_deref(), Some("0000:01:00.0"));
    }

    #[test]
    fn the_rank_whose_number_it_is_belongs_there() {
        let job = |locals: [&str; 3], more: (&str, &str)| {
            let stage = StagedCase::new().process("node0", 7730, None).warn("init.cc:497", TEXT);
            let rows = gpus(4, |index, row| row.pci = PciAddress::parse(&format!("0000:0{index}:00.0")));
            (0..3).zip(locals).fold(stage.shows(rows), |mut stage, (rank, local)| {
                stage = stage.listing(Some(rank), &[("LOCAL_RANK", local), more]);
                let listing = stage.case.observations.last_mut();
                if let Some(o) = listing {
                    o.who.pid = Some(ringleader_model::Pid(70 + rank));
                    o.who.local_rank = local.parse().ok().map(ringleader_model::LocalRank);
                }
                stage
            })
        };
        // GPU 1 is that of local rank 1, which rank 2 is.
        job(["0", "2", "1"], ("A", "b")).expect(&RULE, &["duplicate-gpu 0"]);
        let title = job(["0", "2", "1"], ("A", "b")).finding(&RULE).title;
        assert_eq!(title, "rank 0 uses the GPU 0000:01:00.0, which belongs to rank 2");
        job(["0", "0", "0"], ("A", "b")).expect(&RULE, &["duplicate-gpu 0,2"]);
        // Numbers of what each process sees are not those of the node.
        job(["0", "2", "1"], ("CUDA_VISIBLE_DEVICES", "1")).expect(&RULE, &["duplicate-gpu 0,2"]);
    }

    #[test]
    fn quoted_by_torch() {
        StagedCase::new().nccl_raised(Some(2), TEXT).expect(&RULE, &["duplicate-gpu 0,2"]);
    }

    #[test]
    fn the_newer_text_names_no_ranks() {
        StagedCase::new()
            .process("node0", 1, Some(3))
            .warn("graph/topo.cc:1", "Multiple ranks detected using the same GPU on this node. Set NCCL_MULTI_RANK_GPU_ENABLE=1 to enable this configuration.")
            .expect(&RULE, &["duplicate-gpu 3"]);
    }

    #[test]
    fn lack_of_memory_is_another_thing() {
        StagedCase::new().raised(Some(1), "torch.OutOfMemoryError", "CUDA out of memory.", &[]).silent(&RULE);
    }
}
