//! # What it shows
//!
//! A segment could not be made because one of that name is already there.
//!
//! # Why it happens
//!
//! A job that was killed left its nccl-* segments behind.
//!
//! # Evidence
//!
//! `File exists` about a shared-memory segment.
//!
//! # What looks like it but is not
//!
//! `No space left on device` may have the same origin, but then the size matters first (shm-full).
//!
//! # What to do
//!
//! Remove segments that no process has open.
//!
//! # References
//!
//! NVIDIA/nccl src/misc/shmutils.cc.

use ringleader_model::Cause;

use crate::drafting;
use crate::rule::{Outcome, Rule};
use crate::told::{Told, found};
use ringleader_correlate::Scene;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "shm-stale",
    title: "left-over shared-memory segments",
    since: "0.1",
    doc: include_str!("shm_stale.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, Cause::ShmStale) else { return Outcome::Clear };
    let title = format!("{who}: a shared-memory segment of a dead job is in the way", who = told.who());
    found(drafting::advise_removal_of_segments(told.draft(&RULE, Cause::ShmStale, title)))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{Stage, Trial as _};

    #[test]
    fn nccl_says_so() {
        Stage::new().process("n", 1, Some(1)).warn("misc/shmutils.cc:71", "Error while creating shared memory segment /dev/shm/nccl-A (size 4), error: File exists (17)").expect(&RULE, &["shm-stale 1"]);
    }

    #[test]
    fn another_file_that_exists() {
        Stage::new().raised(Some(1), "FileExistsError", "[Errno 17] File exists: '/ckpt'", &[]).silent(&RULE);
    }
}
