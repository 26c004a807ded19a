//! # What it shows
//!
//! A process asked for more GPU memory than was free and ended with an error; its peers then wait or lose their
//! connection.
//!
//! # Why it happens
//!
//! The batch or the model does not fit; fragmentation of the caching allocator; another process on the same GPU;
//! NCCL's own buffers, which are allocated outside torch's pool when a communicator is made.
//!
//! # Evidence
//!
//! torch.OutOfMemoryError, `CUDA out of memory`, `Cuda failure 2 'out of memory'` of NCCL.
//!
//! # What looks like it but is not
//!
//! Multicast memory that cannot be bound (nvls-multicast) says `out of memory` too. A host that runs out of memory
//! kills the process without any message (oom-killed). Pinned host memory is not GPU memory.
//!
//! # What to do
//!
//! Lower the batch or the sequence length, or spread the model further; give NCCL room by a lower memory fraction.
//!
//! # References
//!
//! pytorch/pytorch c10/cuda/CUDACachingAllocator.cpp; NVIDIA/nccl src/include/alloc.h.

use ringleader_model::{Cause, Impact};

use crate::rule::{Outcome, Rule};
use crate::told::{Told, found};
use ringleader_correlate::Scene;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "cuda-oom",
    title: "GPU memory ran out",
    since: "0.1",
    doc: include_str!("cuda_oom.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, Cause::CudaOom) else { return Outcome::Clear };
    let title = format!("GPU memory ran out on {who}", who = told.who());
    let draft = told
        .draft(&RULE, Cause::CudaOom, title)
        .advise(
            Impact::Disruptive,
            "lower the batch size or sequence length of this rank, or shard the model further",
        )
        .advise_command(
            Impact::Harmless,
            "see who else holds memory on that GPU",
            "nvidia-smi --query-compute-apps=gpu_bus_id,pid,used_memory --format=csv",
        )
        .advise_command(
            Impact::Disruptive,
            "if much memory is reserved but not allocated, let segments grow instead of fragmenting",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        );
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{Stage, Trial as _};

    #[test]
    fn torch_says_so() {
        Stage::new()
            .raised(
                Some(1),
                "torch.OutOfMemoryError",
                "CUDA out of memory. Tried to allocate 20.00 GiB.",
                &[],
            )
            .expect(&RULE, &["cuda-oom 1"]);
    }

    #[test]
    fn nccl_says_so() {
        Stage::new()
            .process("n", 7, Some(2))
            .warn("include/alloc.h:98", "Cuda failure 2 'out of memory'")
            .expect(&RULE, &["cuda-oom 2"]);
    }

    #[test]
    fn multicast_memory_is_another_thing() {
        Stage::new()
            .process("n", 7, Some(2))
            .warn("transport/nvls.cc:98", "Cuda failure 2 'out of memory'")
            .silent(&RULE);
    }

    #[test]
    fn host_memory_is_another_thing() {
        Stage::new().raised(Some(1), "MemoryError", "", &[]).silent(&RULE);
    }
}
