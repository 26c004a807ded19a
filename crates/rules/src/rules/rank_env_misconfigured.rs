//! # What it shows
//!
//! The numbers that the launcher gives to the processes contradict each other or the machine.
//!
//! # Why it happens
//!
//! RANK or WORLD_SIZE set by hand, one node rank used twice, more processes than GPUs, CUDA_VISIBLE_DEVICES
//! narrowed per process while local ranks count on.
//!
//! # Evidence
//!
//! NCCL: `rank … has already checked in`, `mismatch in rank count`; CUDA: `invalid device ordinal`; torch:
//! `environment variable … expected, but not set`.
//!
//! # What looks like it but is not
//!
//! A rank that never came is missing-rank. Two ranks on one GPU are duplicate-gpu.
//!
//! # What to do
//!
//! Print the launcher's variables on every rank and compare.
//!
//! # References
//!
//! NVIDIA/nccl src/bootstrap.cc; pytorch/pytorch torch/distributed/rendezvous.py.

use ringleader_model::Impact;

use crate::correlate::Scene;
use crate::rule::{Input, Outcome, Rule};
use crate::told::{Told, found};

/// See the module.
pub(super) static RULE: Rule = Rule {
    id: "rank-env-misconfigured",
    title: "ranks and process counts do not fit",
    since: "0.1",
    reads: &[Input::NcclLog, Input::TorchLog],
    doc: include_str!("rank_env_misconfigured.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, "rank-env-misconfigured") else { return Outcome::Clear };
    let title =
        format!("{who}: rank, world size, process count or visible GPUs do not fit", who = told.who());
    let draft = told
        .draft(&RULE, "rank-env-misconfigured", title)
        .advise_command(
            Impact::Harmless,
            "print what each process was given",
            "env | grep -E 'RANK|WORLD_SIZE|MASTER_|CUDA_VISIBLE|SLURM_'",
        )
        .advise_command(
            Impact::Disruptive,
            "give each node its own node rank, and as many processes as it has visible GPUs",
            "torchrun --nnodes=N --node-rank=R --nproc-per-node=gpu …",
        );
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::staging::Stage;

    #[test]
    fn a_rank_came_twice() {
        Stage::new()
            .process("n", 1, Some(1))
            .warn("bootstrap.cc:150", "Bootstrap Root : rank 1 of 4 ranks has already checked in")
            .expect(&RULE, &["rank-env-misconfigured 1"]);
    }

    #[test]
    fn more_processes_than_gpus() {
        Stage::new()
            .raised(Some(3), "RuntimeError", "CUDA error: invalid device ordinal", &[])
            .expect(&RULE, &["rank-env-misconfigured 3"]);
    }

    #[test]
    fn a_variable_is_missing() {
        Stage::new().raised(None, "ValueError", "Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, but not set", &[]).expect(&RULE, &["rank-env-misconfigured"]);
    }

    #[test]
    fn a_function_that_is_missing() {
        Stage::new()
            .raised(Some(3), "RuntimeError", "CUDA error: invalid device function", &[])
            .silent(&RULE);
    }
}
