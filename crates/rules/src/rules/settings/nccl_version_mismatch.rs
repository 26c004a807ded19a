//! # What it shows
//!
//! The ranks of one job, or the framework and the library, do not use the same NCCL.
//!
//! # Why it happens
//!
//! Several installations on the path (system, conda, wheel), a node with an older image, LD_LIBRARY_PATH or
//! LD_PRELOAD.
//!
//! # Evidence
//!
//! `Mismatched NCCL version detected`, different `NCCL version` lines of processes in one communicator, `undefined
//! symbol: nccl…`.
//!
//! # What looks like it but is not
//!
//! `Message truncated` of the bootstrap may also mean different world sizes. Two jobs in one folder may well
//! differ.
//!
//! # What to do
//!
//! Find out which library each rank loads and make them equal.
//!
//! # References
//!
//! NVIDIA/nccl src/init.cc (2.23.4 and later), src/bootstrap.cc.

use std::collections::BTreeMap;

use ringleader_knowledge::version::NcclVersion;
use ringleader_model::{Cause, Confidence, Culprit, Evidence, Impact, NcclProcess, SourceKind, Weight};

use crate::drafting::claims::ClaimsOfCause;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::who::culprits::{add_culprit, who};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "nccl-version-mismatch",
    title: "ranks load different NCCL releases",
    since: "0.1",
    doc: include_str!("nccl_version_mismatch.rs"),
    check,
};

/// Lines that are cited of what failed of it.
const CITED_FAILURES: usize = 2;

fn check(scene: &Scene<'_>) -> Outcome {
    const CAUSE: Cause = Cause::NcclVersionMismatch;
    let told = ClaimsOfCause::of(scene, CAUSE);
    // Whose bootstrap failed of it does not say whose release is the odd one; the releases do.
    let releases = match &told {
        Some(told) if told.is_stated() => None,
        Some(_) => Releases::of_job(scene),
        None => Releases::of_a_communicator(scene),
    };
    let draft = match (told, releases) {
        (told, Some(releases)) => {
            let (title, odd) = (releases.title(scene), releases.odd(scene));
            let failed = told.iter().flat_map(ClaimsOfCause::claims).take(CITED_FAILURES);
            Draft::new(RULE.id, CAUSE, title)
                .weight(Weight::Stated)
                .confidence(Confidence::High)
                .at(told.iter().flat_map(ClaimsOfCause::claims).find_map(|claim| claim.at_ns))
                .culprits(odd)
                .evidence(releases.evidence())
                .evidence(failed.map(|claim| claim.evidence()))
        }
        (Some(told), None) => told.draft(&RULE, CAUSE, format!("{}: NCCL releases do not match", told.who())),
        (None, None) => return Outcome::Clear,
    };
    Outcome::from_findings(advised(draft).build().into_iter().collect())
}

fn advised(draft: Draft) -> Draft {
    draft
        .advise_command(
            Impact::Harmless,
            "on every node, check which library a rank loads and which one torch ships",
            "grep -o '/.*libnccl[^ ]*' /proc/<pid>/maps | sort -u; python -c 'import torch; print(torch.cuda.nccl.version())'",
        )
        .advise(Impact::Harmless, "use one image on all nodes, and take other copies of libnccl out of LD_LIBRARY_PATH and LD_PRELOAD")
}

/// Processes by the release of NCCL that they print, if there are several.
struct Releases<'a>(BTreeMap<NcclVersion, Vec<&'a NcclProcess>>);

impl<'a> Releases<'a> {
    /// Those of one communicator.
    fn of_a_communicator(scene: &Scene<'a>) -> Option<Self> {
        let mut by_comm: BTreeMap<u64, BTreeMap<NcclVersion, Vec<&NcclProcess>>> = BTreeMap::new();
        for (_, log) in scene.nccl_logs() {
            for comm in &log.comms {
                let Some(process) = log.processes.get(comm.process as usize) else { continue };
                let (Some(id), Some(version)) = (comm.comm_id, release(process)) else { continue };
                by_comm.entry(id).or_default().entry(version).or_default().push(process);
            }
        }
        by_comm.into_values().find(|versions| versions.len() > 1).map(Self)
    }

    /// Those of all logs: of one job, since its ranks say that they do not match.
    fn of_job(scene: &Scene<'a>) -> Option<Self> {
        let mut all: BTreeMap<NcclVersion, Vec<&NcclProcess>> = BTreeMap::new();
        for process in scene.nccl_logs().flat_map(|(_, log)| &log.processes) {
            if let Some(version) = release(process) {
                all.entry(version).or_default().push(process);
            }
        }
        (all.len() > 1).then_some(Self(all))
    }

    /// The smaller part; nobody if both are as large.
    fn odd(&self, scene: &Scene<'_>) -> Vec<Culprit> {
        let most = self.0.values().map(Vec::len).max().unwrap_or_default();
        let mut culprits: Vec<Culprit> = Vec::new();
        for process in self.0.values().filter(|p| p.len() < most).flatten() {
            add_culprit(&mut culprits, scene.culprit(&process.who));
        }
        culprits
    }

    fn title(&self, scene: &Scene<'_>) -> String {
        let names: Vec<String> = self.0.keys().map(NcclVersion::to_string).collect();
        let title = format!("ranks of one job run NCCL {}", names.join(" and "));
        match self.odd(scene).as_slice() {
            [] => title,
            odd => format!("{}: {title}", who(odd)),
        }
    }

    fn evidence(&self) -> Vec<Evidence> {
        let of = |(version, processes): (&NcclVersion, &Vec<&NcclProcess>)| {
            let cite = processes.iter().find_map(|p| p.version_at.or(p.first))?;
            Some(Evidence { cite, text: format!("NCCL version {version}"), kind: SourceKind::NcclLog })
        };
        self.0.iter().filter_map(of).collect()
    }
}

fn release(process: &NcclProcess) -> Option<NcclVersion> {
    NcclVersion::parse(process.nccl_version.as_deref()?)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    const TRUNCATED: &str = "Message truncated : received 1024 bytes instead of 256";

    fn with(stage: StagedCase, pid: u32, rank: u32, version: &str) -> StagedCase {
        stage
            .process("n", pid, Some(rank))
            .about(|p| p.nccl_version = Some(version.into()))
            .comm(rank, 3, 1, false)
    }

    #[test]
    fn nccl_says_so() {
        StagedCase::new()
            .process("n", 1, Some(2))
            .warn("init.cc:1", "Mismatched NCCL version detected : rank 0 version 22809 rank 2 version 22304")
            .expect(&RULE, &["nccl-version-mismatch 2"]);
    }

    #[test]
    fn the_odd_one_out_is_named() {
        let stage = with(
            with(with(StagedCase::new(), 1, 0, "2.28.9+cuda13.0"), 2, 1, "2.23.4+cuda12.4"),
            3,
            2,
            "2.28.9+cuda13.0",
        );
        stage.expect(&RULE, &["nccl-version-mismatch 1"]);
    }

    /// Who fails to talk is not who is different; of two halves none is the odd one.
    #[test]
    fn releases_say_more_than_who_failed() {
        let failed = |stage: StagedCase| stage.warn("bootstrap.cc:125", TRUNCATED);
        let stage = failed(with(StagedCase::new(), 1, 0, "2.21.5+cuda12.4"));
        let two = failed(with(stage, 2, 1, "2.19.3+cuda12.3"));
        two.expect(&RULE, &["nccl-version-mismatch"]);
        let stage = failed(with(StagedCase::new(), 1, 0, "2.21.5+cuda12.4"));
        let three = with(failed(with(stage, 2, 1, "2.19.3+cuda12.3")), 3, 2, "2.21.5+cuda12.4");
        three.expect(&RULE, &["nccl-version-mismatch 1"]);
        let equal = failed(with(StagedCase::new(), 1, 0, "2.21.5+cuda12.4"));
        equal.expect(&RULE, &["nccl-version-mismatch 0"]);
    }

    #[test]
    fn equal_versions_are_fine() {
        with(with(StagedCase::new(), 1, 0, "2.28.9+cuda13.0"), 2, 1, "2.28.9+cuda12.9").silent(&RULE);
    }
}
