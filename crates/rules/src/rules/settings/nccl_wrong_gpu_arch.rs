//! # What it shows
//!
//! The GPU is of a kind that the loaded library was not built for.
//!
//! # Why it happens
//!
//! A new GPU with an old wheel, or a build for few architectures.
//!
//! # Evidence
//!
//! `no kernel image is available for execution on the device`, `invalid device function`.
//!
//! # What looks like it but is not
//!
//! A driver that is too old for the CUDA release says so in other words.
//!
//! # What to do
//!
//! Install a build for this GPU. If NCCL says it, its libnccl; if torch says it, the wheel.
//!
//! # References
//!
//! CUDA runtime reference, enum cudaError. Codes 98, 209.

use ringleader_model::{Cause, Impact};

use crate::rule::{Outcome, Rule};
use crate::told::{Told, found};
use ringleader_correlate::Scene;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "nccl-wrong-gpu-arch",
    title: "no code for this GPU",
    since: "0.1",
    doc: include_str!("nccl_wrong_gpu_arch.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, Cause::NcclWrongGpuArch) else { return Outcome::Clear };
    let title = format!("{who}: the library holds no code for this GPU", who = told.who());
    let draft = told
        .draft(&RULE, Cause::NcclWrongGpuArch, title)
        .advise_command(
            Impact::Harmless,
            "compare what torch was built for with what the GPU is",
            "python -c \"import torch; print(torch.cuda.get_arch_list())\"; nvidia-smi --query-gpu=name,compute_cap --format=csv",
        )
        .advise(Impact::Disruptive, "install a build of the framework and of NCCL that supports this GPU");
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{Stage, Trial as _};

    #[test]
    fn nccl_says_so() {
        Stage::new()
            .process("n", 1, Some(1))
            .warn(
                "enqueue.cc:30",
                "Cuda failure 209 'no kernel image is available for execution on the device'",
            )
            .expect(&RULE, &["nccl-wrong-gpu-arch 1"]);
    }

    #[test]
    fn an_old_driver_is_another_thing() {
        Stage::new()
            .raised(
                Some(0),
                "RuntimeError",
                "CUDA driver version is insufficient for CUDA runtime version",
                &[],
            )
            .silent(&RULE);
    }
}
