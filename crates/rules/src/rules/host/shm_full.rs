//! # What it shows
//!
//! Shared memory could not be had. NCCL keeps buffers between the ranks of a node there, data loaders pass their
//! batches through it.
//!
//! # Why it happens
//!
//! A container has 64 MB by default; left-over segments of dead jobs fill it; many data-loader workers.
//!
//! # Evidence
//!
//! `No space left on device` about a shared-memory segment; a data-loader worker that dies of a bus error.
//!
//! # What looks like it but is not
//!
//! `No space left on device` about a checkpoint or a cache is a full disk. A worker that is killed by signal 9 ran
//! out of host memory.
//!
//! # What to do
//!
//! Give the container more shared memory and remove segments that nobody uses.
//!
//! # References
//!
//! NVIDIA/nccl src/misc/shmutils.cc, src/os/linux.cc; pytorch/pytorch torch/utils/data.

use ringleader_model::{Cause, Impact};

use crate::rule::{Outcome, Rule};
use crate::told::{Told, found};
use ringleader_correlate::Scene;

/// See the module.
pub(in crate::rules) static RULE: Rule =
    Rule { id: "shm-full", title: "/dev/shm is full", since: "0.1", doc: include_str!("shm_full.rs"), check };

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, Cause::ShmFull) else { return Outcome::Clear };
    let title = format!("/dev/shm is full or too small for {who}", who = told.who());
    let draft = told
        .draft(&RULE, Cause::ShmFull, title)
        .advise_command(
            Impact::Harmless,
            "see size, use and left-over segments",
            "df -h /dev/shm; ls -la /dev/shm | head",
        )
        .advise_command(
            Impact::Disruptive,
            "start the container with more shared memory, or with that of the host (--ipc=host); in Kubernetes mount an emptyDir with medium: Memory at /dev/shm",
            "docker run --shm-size=16g …",
        );
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{Stage, Trial as _};

    #[test]
    fn nccl_says_so() {
        Stage::new()
            .warn("include/shm.h:28", "Call to posix_fallocate failed: No space left on device")
            .warn(
                "include/shm.h:48",
                "Error while creating shared memory segment nccl-shm-recv-7c (size 9637888)",
            )
            .expect(&RULE, &["shm-full"]);
    }

    #[test]
    fn the_data_loader_says_so() {
        Stage::new().raised(Some(2), "RuntimeError", "DataLoader worker (pid 812) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.", &[]).expect(&RULE, &["shm-full 2"]);
    }

    #[test]
    fn a_full_disk_is_another_thing() {
        Stage::new()
            .raised(Some(0), "OSError", "[Errno 28] No space left on device: '/ckpt/step_100.pt'", &[])
            .silent(&RULE);
    }

    #[test]
    fn a_forbidden_segment_is_another_thing() {
        Stage::new().process("n", 1, Some(1)).warn("misc/shmutils.cc:71", "Error while creating shared memory segment /dev/shm/nccl-A (size 4), error: Permission denied (13)").silent(&RULE);
    }
}
