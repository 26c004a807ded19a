//! # What it shows
//!
//! The numbers that the launcher gives to the processes contradict each other or the machine.
//!
//! # Why it happens
//!
//! RANK or WORLD_SIZE set by hand, twice or differently; one node rank used twice; more processes than GPUs,
//! CUDA_VISIBLE_DEVICES narrowed per process while local ranks count on.
//!
//! # Evidence
//!
//! NCCL: `rank … has already checked in`, `mismatch in rank count`; CUDA: `invalid device ordinal`; torch: `environment
//! variable … expected, but not set`. If NCCL says so, or a watcher saw a job that never reached its first
//! communicator, the environments of the processes show whose numbers are wrong: of two processes with one rank, the
//! one whose local rank belongs to a rank that no process has.
//!
//! # What looks like it but is not
//!
//! A rank that never came is missing-rank. Two ranks on one GPU are duplicate-gpu. The rank that prints what NCCL found
//! is the one the others connected to: it is not at fault.
//!
//! # What to do
//!
//! Print the launcher's variables on every rank and compare.
//!
//! # References
//!
//! NVIDIA/nccl src/bootstrap.cc; pytorch/pytorch torch/distributed/rendezvous.py.

use ringleader_knowledge::wording::{self, Numbers};
use ringleader_model::{Cause, Confidence, Culprit, Impact, Rank, RankSet, Weight};

use crate::drafting;
use crate::drafting::claims::ClaimsOfCause;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::said::watcher::StandStill;
use ringleader_correlate::who::launch::{self, Contradiction};

const CAUSE: Cause = Cause::RankEnvMisconfigured;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "rank-env-misconfigured",
    title: "ranks and process counts are inconsistent",
    since: "0.1",
    doc: include_str!("rank_env_misconfigured.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let (of_others, of_itself): (Vec<_>, Vec<_>) =
        scene.claims().of(CAUSE).partition(|c| wording::numbers(&c.text).is_some());
    let of_others = contradicting(scene, ClaimsOfCause::from(scene, of_others));
    let of_itself = ClaimsOfCause::from(scene, of_itself).map(|told| {
        let title =
            format!("{}: rank, world size, process count or visible GPUs are inconsistent", told.who());
        told.draft(&RULE, CAUSE, title)
    });
    let advised = |draft: Draft| {
        draft
            .advise_command(
                Impact::Harmless,
                "print what each process was given",
                "env | grep -E 'RANK|WORLD_SIZE|MASTER_|CUDA_VISIBLE|SLURM_'",
            )
            .advise_command(
                Impact::Harmless,
                "give each node its own node rank, and as many processes as it has visible GPUs",
                "torchrun --nnodes=N --node-rank=R --nproc-per-node=gpu …",
            )
            .build()
    };
    Outcome::from_findings([of_others, of_itself].into_iter().flatten().filter_map(advised).collect())
}

/// Numbers of processes that contradict each other: rank 0 has heard of it, or none of them came to a communicator.
fn contradicting(scene: &Scene<'_>, heard: Option<ClaimsOfCause<'_, '_>>) -> Option<Draft> {
    let stands = scene.stood_still().iter().find(|s| s.is_at_start());
    if heard.is_none() && stands.is_none() {
        return None;
    }
    let suspects = stands.map_or_else(RankSet::default, |stands| stands.stall.suspects.clone());
    let shown = launch::contradiction(scene.roster(), &launch::started(scene.case()), &suspects);
    let Contradiction { title, culprits, evidence } =
        shown.or_else(|| heard.as_ref()?.claims().iter().find_map(|claim| as_said(&claim.text)))?;
    let draft = match heard {
        Some(heard) => heard.draft_naming(&RULE, CAUSE, title, culprits),
        None => Draft::new(RULE.id, CAUSE, title)
            .weight(Weight::Stated)
            .confidence(Confidence::High)
            .culprits(culprits),
    };
    let draft = draft.evidence(evidence).evidence(stands.map(StandStill::evidence));
    Some(draft.advise(Impact::Harmless, "let one launcher number all ranks, and set none of them by hand"))
}

/// Which numbers do not fit, by NCCL's own words; not whose they are.
fn as_said(text: &str) -> Option<Contradiction> {
    let (title, culprits) = match wording::numbers(text)? {
        Numbers::Twice(rank) => {
            let rank = Rank(rank?);
            let title =
                format!("two processes have {}: both joined the same communicator", drafting::rank(rank));
            // Which of the two processes has the wrong number is not said.
            (title, vec![Culprit { rank: Some(rank), ..Culprit::default() }])
        }
        Numbers::Differ(Some((a, b))) => {
            (format!("processes were given different world sizes: {a} and {b}"), Vec::new())
        }
        Numbers::Differ(None) => {
            ("processes that meet were given different settings of their job".to_owned(), Vec::new())
        }
    };
    Some(Contradiction { title, culprits, evidence: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn a_rank_came_twice() {
        StagedCase::new()
            .process("n", 1, Some(1))
            .warn("bootstrap.cc:150", "Bootstrap Root : rank 1 of 4 ranks has already checked in")
            .expect(&RULE, &["rank-env-misconfigured 1"]);
    }

    #[test]
    fn whoever_hears_of_it_is_not_at_fault() {
        let heard = |text: &str| StagedCase::new().process("n", 7, Some(0)).warn("bootstrap.cc:327", text);
        let twice = heard("Bootstrap Root : rank 2 of 4 ranks has already checked in").finding(&RULE);
        assert_eq!(twice.title, "two processes have rank 2: both joined the same communicator");
        for text in [
            "Bootstrap Root : mismatch in info from procs, nranks 5 vs 4, nroots 1 vs 1, iroot 0 vs 0",
            "Bootstrap Root : mismatch in rank count from procs 5 : 4",
        ] {
            let finding = heard(text).finding(&RULE);
            assert_eq!(finding.title, "processes were given different world sizes: 5 and 4");
            assert!(finding.culprits.is_empty(), "{finding:#?}");
        }
    }

    #[test]
    fn the_environments_tell_whose_numbers_are_wrong() {
        let mismatch =
            "Bootstrap Root : mismatch in info from procs, nranks 5 vs 4, nroots 1 vs 1, iroot 0 vs 0";
        let job = |world_of_1: &str| {
            let stage = StagedCase::new().process("n", 7, Some(0)).warn("bootstrap.cc:327", mismatch);
            (0..4).fold(stage, |stage, rank| {
                let (own, world) = (rank.to_string(), if rank == 1 { world_of_1 } else { "4" });
                stage.listing(Some(rank), &[("RANK", &own), ("LOCAL_RANK", &own), ("WORLD_SIZE", world)])
            })
        };
        job("5").concludes(&RULE, "rank-env-misconfigured 1, high");
        assert_eq!(
            job("5").finding(&RULE).title,
            "rank 1 differs in WORLD_SIZE: 4 on ranks 0,2-3, 5 on rank 1"
        );
        // All are alike: the process with the other number has left nothing.
        job("4").concludes(&RULE, "rank-env-misconfigured , high");
        // Nobody has heard of anything.
        let numbers = [("RANK", "1"), ("WORLD_SIZE", "5")];
        StagedCase::new().listing(Some(1), &numbers).listing(Some(0), &[("WORLD_SIZE", "4")]).silent(&RULE);
    }

    #[test]
    fn more_processes_than_gpus() {
        StagedCase::new()
            .raised(Some(3), "RuntimeError", "CUDA error: invalid device ordinal", &[])
            .expect(&RULE, &["rank-env-misconfigured 3"]);
    }

    #[test]
    fn a_variable_is_missing() {
        StagedCase::new().raised(None, "ValueError", "Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, but not set", &[]).expect(&RULE, &["rank-env-misconfigured"]);
    }

    #[test]
    fn a_function_that_is_missing() {
        StagedCase::new()
            .raised(Some(3), "RuntimeError", "CUDA error: invalid device function", &[])
            .silent(&RULE);
    }
}
