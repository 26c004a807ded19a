//! # What it shows
//!
//! A kernel of this process read or wrote a bad address. CUDA reports it at some later call of the same process,
//! and every call after that fails too, NCCL's among them.
//!
//! # Why it happens
//!
//! An index out of range, a tensor freed while a kernel or a CUDA graph still uses it, a custom kernel, now and
//! then a bug of a library.
//!
//! # Evidence
//!
//! `an illegal memory access was encountered`, `misaligned address`, `unspecified launch failure`, from torch or
//! from NCCL, on the process itself.
//!
//! # What looks like it but is not
//!
//! Peers that report a closed connection afterwards are victims. NCCL repeats the error on each clean-up call: only
//! the first counts. A failed device-side assertion and an uncorrectable memory error have texts of their own.
//!
//! # What to do
//!
//! Find the kernel: run once more with synchronous launches, or under compute-sanitizer. Look for an Xid 31 or 13
//! of the same pid.
//!
//! # References
//!
//! CUDA runtime reference, enum cudaError. Codes 700, 715, 716, 719.

use ringleader_model::Impact;

use crate::correlate::Scene;
use crate::rule::{Input, Outcome, Rule};
use crate::told::{Told, found};

/// See the module.
pub(super) static RULE: Rule = Rule {
    id: "illegal-memory-access",
    title: "a kernel touched bad memory",
    since: "0.1",
    reads: &[Input::NcclLog, Input::TorchLog],
    doc: include_str!("illegal_memory_access.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, "illegal-memory-access") else { return Outcome::Clear };
    let title = format!("{who}: a GPU kernel touched memory that it must not", who = told.who());
    let draft = told
        .draft(&RULE, "illegal-memory-access", title)
        .advise_command(
            Impact::Disruptive,
            "run again with synchronous launches: the traceback then names the kernel that fails",
            "CUDA_LAUNCH_BLOCKING=1",
        )
        .advise_command(
            Impact::Disruptive,
            "or let the checker name the access",
            "compute-sanitizer --tool memcheck python train.py",
        )
        .advise_command(
            Impact::Harmless,
            "see whether the driver logged an Xid for this process",
            "dmesg -T | grep -i xid",
        );
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::staging::Stage;

    #[test]
    fn torch_says_so() {
        Stage::new()
            .raised(
                Some(2),
                "torch.AcceleratorError",
                "CUDA error: an illegal memory access was encountered\nSearch for",
                &[],
            )
            .expect(&RULE, &["illegal-memory-access 2"]);
    }

    #[test]
    fn repeated_by_nccl_it_is_one_finding() {
        Stage::new()
            .raised(
                Some(2),
                "torch.AcceleratorError",
                "CUDA error: an illegal memory access was encountered",
                &[],
            )
            .process("vm", 1456, Some(2))
            .warn("include/alloc.h:250", "Cuda failure 700 'an illegal memory access was encountered'")
            .warn("include/alloc.h:250", "Cuda failure 700 'an illegal memory access was encountered'")
            .expect(&RULE, &["illegal-memory-access 2"]);
    }

    #[test]
    fn an_assertion_is_another_thing() {
        Stage::new()
            .raised(Some(2), "RuntimeError", "CUDA error: device-side assert triggered", &[])
            .silent(&RULE);
    }

    #[test]
    fn the_hint_alone_says_nothing() {
        Stage::new()
            .error_line(Some(1), "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.")
            .silent(&RULE);
    }
}
