//! # What it shows
//!
//! A message that, together with the release, is a known NCCL bug, fixed in another release.
//!
//! # Why it happens
//!
//! Releases 2.27.3 to 2.28.9 continue without NVLink SHARP on a rank that cannot get multicast memory, although its
//! peers use it: the first collective hangs. 2.29 fails at the start instead.
//!
//! # Evidence
//!
//! `Proceeding without NVLS support` on some ranks of a communicator and not on others, and the release.
//!
//! # What looks like it but is not
//!
//! The same line on all ranks alike costs speed and nothing else.
//!
//! # What to do
//!
//! Turn NVLink SHARP off on all ranks, or update NCCL.
//!
//! # References
//!
//! NVIDIA/nccl src/transport/nvls.cc, 2.27.3 to 2.29.2; user guide NCCL_NVLS_ENABLE.

use std::collections::BTreeSet;

use ringleader_knowledge::version::NcclVersion;
use ringleader_model::{Cause, Impact, Who};

use crate::drafting::claims::ClaimsOfCause;
use crate::rule::{Outcome, Rule, found};
use ringleader_correlate::Scene;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "nccl-bug-version",
    title: "a known bug of this NCCL",
    since: "0.1",
    doc: include_str!("nccl_bug_version.rs"),
    check,
};

/// Releases that fall back on one rank alone.
const FIRST: NcclVersion = NcclVersion { major: 2, minor: 27, patch: 3 };
const LAST: NcclVersion = NcclVersion { major: 2, minor: 28, patch: 9 };

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = ClaimsOfCause::of(scene, Cause::NcclBugVersion) else { return Outcome::Clear };
    let Some(version) = scene.nccl_version().filter(|v| (FIRST..=LAST).contains(v)) else {
        return Outcome::Clear;
    };
    let fell_back: BTreeSet<&Who> = told.claims().iter().map(|c| &c.who).collect();
    let ready: BTreeSet<&Who> = scene
        .nccl_logs()
        .flat_map(|(_, log)| log.comms.iter().filter_map(|c| log.processes.get(c.process as usize)))
        .map(|p| &p.who)
        .collect();
    if ready.iter().all(|w| fell_back.contains(w)) {
        return Outcome::Clear;
    }
    let title = format!("{} alone went on without NVLink SHARP: NCCL {version} then hangs", told.who());
    let draft = told
        .draft(&RULE, Cause::NcclBugVersion, title)
        .advise_command(Impact::Harmless, "turn NVLink SHARP off on all ranks", "NCCL_NVLS_ENABLE=0")
        .advise(
            Impact::Harmless,
            "or update NCCL to 2.29 or later, which fails at the start instead of hanging",
        );
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    const TEXT: &str = "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 2 'out of memory'. Proceeding without NVLS support.";

    fn rank(stage: StagedCase, rank: u32, version: &str) -> StagedCase {
        stage
            .process("n", 10 + rank, Some(rank))
            .about(|p| p.nccl_version = Some(version.into()))
            .comm(rank, 2, 1, true)
    }

    #[test]
    fn one_rank_alone() {
        rank(rank(StagedCase::new(), 0, "2.28.9+cuda13.0"), 1, "2.28.9+cuda13.0")
            .info(TEXT)
            .expect(&RULE, &["nccl-bug-version 1"]);
    }

    #[test]
    fn all_ranks_alike_are_only_slower() {
        let stage = rank(StagedCase::new(), 0, "2.28.9+cuda13.0").info(TEXT);
        rank(stage, 1, "2.28.9+cuda13.0").info(TEXT).silent(&RULE);
    }

    #[test]
    fn another_release() {
        rank(rank(StagedCase::new(), 0, "2.29.2+cuda13.0"), 1, "2.29.2+cuda13.0").info(TEXT).silent(&RULE);
    }
}
