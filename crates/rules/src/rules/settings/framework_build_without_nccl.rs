//! # What it shows
//!
//! The program asks for the NCCL backend and its torch (or Horovod) does not have it.
//!
//! # Why it happens
//!
//! A CPU wheel, a build for another platform, a conda resolver that chose the CPU variant.
//!
//! # Evidence
//!
//! `Distributed package doesn't have NCCL built in`, `Torch not compiled with CUDA enabled`.
//!
//! # What looks like it but is not
//!
//! A symbol missing from libnccl is a version matter (nccl-version-mismatch).
//!
//! # What to do
//!
//! Install the CUDA build.
//!
//! # References
//!
//! pytorch/pytorch torch/distributed/distributed_c10d.py.

use ringleader_model::{Cause, Impact};

use crate::rule::{Outcome, Rule};
use crate::told::{Told, found};
use ringleader_correlate::Scene;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "framework-build-without-nccl",
    title: "built without NCCL",
    since: "0.1",
    doc: include_str!("framework_build_without_nccl.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, Cause::FrameworkBuildWithoutNccl) else { return Outcome::Clear };
    let title = format!("the framework of {who} was built without NCCL", who = told.who());
    let draft = told
        .draft(&RULE, Cause::FrameworkBuildWithoutNccl, title)
        .advise_command(
            Impact::Harmless,
            "see what this torch has",
            "python -c \"import torch, torch.distributed as d; print(torch.__version__, torch.version.cuda, d.is_nccl_available())\"",
        )
        .advise(Impact::Disruptive, "install the CUDA build of torch in the environment of this rank");
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{Stage, Trial as _};

    #[test]
    fn torch_says_so() {
        Stage::new()
            .raised(Some(0), "RuntimeError", "Distributed package doesn't have NCCL built in", &[])
            .expect(&RULE, &["framework-build-without-nccl 0"]);
    }

    #[test]
    fn another_exception() {
        Stage::new()
            .raised(Some(0), "RuntimeError", "NCCL communicator was aborted on rank 0.", &[])
            .silent(&RULE);
    }
}
