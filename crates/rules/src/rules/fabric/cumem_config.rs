//! # What it shows
//!
//! NCCL allocates through the virtual memory interface of CUDA (cuMem) and the platform refuses it.
//!
//! # Why it happens
//!
//! Containers without NUMA information or without the capability for it, virtual machines, old drivers.
//!
//! # Evidence
//!
//! `invalid argument`, `not supported` or `not permitted` whose origin is NCCL's allocator.
//!
//! # What looks like it but is not
//!
//! INFO `cuMem host allocations do not appear to be working; falling back` is harmless. The same CUDA texts from
//! other places of NCCL mean other things.
//!
//! # What to do
//!
//! Turn the path off: host memory first, then all of it.
//!
//! # References
//!
//! NVIDIA/nccl src/include/alloc.h; user guide NCCL_CUMEM_ENABLE (2.18.1), NCCL_CUMEM_HOST_ENABLE (2.23.4).

use ringleader_model::{Cause, Impact};

use crate::rule::{Outcome, Rule};
use crate::told::{Told, found};
use ringleader_correlate::Scene;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "cumem-config",
    title: "the cuMem allocation path fails",
    since: "0.1",
    doc: include_str!("cumem_config.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, Cause::CumemConfig) else { return Outcome::Clear };
    let title = format!("{who}: NCCL's cuMem allocations do not work here", who = told.who());
    let draft = told
        .draft(&RULE, Cause::CumemConfig, title)
        .advise_command(
            Impact::Disruptive,
            "turn cuMem host memory off (read by 2.23.4 and later); NCCL then uses files in /dev/shm",
            "NCCL_CUMEM_HOST_ENABLE=0",
        )
        .advise_command(
            Impact::Disruptive,
            "if that does not help turn cuMem off (2.18.1 and later)",
            "NCCL_CUMEM_ENABLE=0",
        );
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{Stage, Trial as _};

    #[test]
    fn the_allocator_says_so() {
        Stage::new()
            .process("n", 1, Some(1))
            .warn("include/alloc.h:212", "Cuda failure 1 'invalid argument'")
            .expect(&RULE, &["cumem-config 1"]);
    }

    #[test]
    fn the_fall_back_is_harmless() {
        Stage::new().process("n", 1, Some(1)).info("cuMem host allocations do not appear to be working; falling back to a /dev/shm/ based implementation.").silent(&RULE);
    }

    #[test]
    fn memory_that_ran_out_is_another_thing() {
        Stage::new()
            .process("n", 1, Some(1))
            .warn("include/alloc.h:212", "Cuda failure 2 'out of memory'")
            .silent(&RULE);
    }
}
