//! # What it shows
//!
//! A shared-memory segment could not be made because of permissions.
//!
//! # Why it happens
//!
//! The mount is read-only or of another owner; a security profile forbids it; another user's segment has the name.
//!
//! # Evidence
//!
//! `Permission denied` or `Read-only file system` about a segment in /dev/shm.
//!
//! # What looks like it but is not
//!
//! A full /dev/shm says `No space left on device`.
//!
//! # What to do
//!
//! Mount it writable for the user of the job (mode 1777).
//!
//! # References
//!
//! NVIDIA/nccl src/os/linux.cc.

use ringleader_model::{Cause, Impact};

use crate::rule::{Outcome, Rule};
use crate::told::{Told, found};
use ringleader_correlate::Scene;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "shm-permission",
    title: "/dev/shm may not be written",
    since: "0.1",
    doc: include_str!("shm_permission.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, Cause::ShmPermission) else { return Outcome::Clear };
    let title = format!("{who} may not write to /dev/shm", who = told.who());
    let draft = told
        .draft(&RULE, Cause::ShmPermission, title)
        .advise_command(
            Impact::Harmless,
            "see owner, mode and options of the mount",
            "ls -ld /dev/shm; findmnt /dev/shm",
        )
        .advise_command(
            Impact::Disruptive,
            "mount it writable for everybody",
            "mount -o remount,rw,mode=1777 /dev/shm",
        );
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{Stage, Trial as _};

    #[test]
    fn nccl_says_so() {
        Stage::new().process("n", 1, Some(1)).warn("misc/shmutils.cc:71", "Error while creating shared memory segment /dev/shm/nccl-A (size 4), error: Permission denied (13)").expect(&RULE, &["shm-permission 1"]);
    }

    #[test]
    fn a_full_one_is_another_thing() {
        Stage::new()
            .process("n", 1, Some(1))
            .warn(
                "misc/shmutils.cc:71",
                "Error: failed to extend /dev/shm/nccl-A to 4 bytes, error: No space left on device (28)",
            )
            .silent(&RULE);
    }
}
