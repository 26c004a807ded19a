//! # What it shows
//!
//! RDMA needs memory that cannot be swapped out, and the limit of this process does not allow enough of it.
//!
//! # Why it happens
//!
//! The default limit of a shell, of the service that starts the job (slurmd, sshd, docker) or of the container.
//!
//! # Evidence
//!
//! `ibv_reg_mr`, `ibv_create_qp` or `ibv_create_cq` failed with `Cannot allocate memory`; the limit itself, if it
//! is in the evidence. perftest that fails with `Couldn't allocate MR` beside such a limit.
//!
//! # What looks like it but is not
//!
//! A limit that is low but unused by RDMA does no harm.
//!
//! # What to do
//!
//! Raise the limit where the processes are started: a shell on the node may show another one.
//!
//! # References
//!
//! NVIDIA/nccl src/misc/ibvwrap.cc; user guide, troubleshooting, memory lock limit.

use ringleader_knowledge::wording;
use ringleader_model::{Cause, Cite, Confidence, Evidence, Impact, LimitKind, NetFact, Severity, SourceKind};

use crate::drafting::claims::ClaimsOfCause;
use crate::rule::{Draft, Outcome, Rule, found};
use ringleader_correlate::Scene;
use ringleader_correlate::who::tools::shown;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "memlock-limit",
    title: "the locked-memory limit is too low",
    since: "0.1",
    doc: include_str!("memlock_limit.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let finite = || scene.limits().filter(|(_, l)| l.kind == LimitKind::LockedMemory && l.soft.is_some());
    let tried = tried(scene);
    let mut draft = match ClaimsOfCause::of(scene, Cause::MemlockLimit) {
        Some(told) => {
            let title = format!("{} hit the locked-memory limit", told.who());
            told.draft(&RULE, Cause::MemlockLimit, title).evidence(tried)
        }
        // A test that cannot register its memory says so of its own shell: together with the limit it proves the limit.
        None if !tried.is_empty() && finite().next().is_some() => Draft::new(
            RULE.id,
            Cause::MemlockLimit,
            "perftest could not register memory, and locked memory is limited",
        )
        .severity(Severity::Warning)
        .confidence(Confidence::Medium)
        .at_most(Confidence::Medium)
        .evidence(tried),
        None => return Outcome::Clear,
    };
    let finite = finite();
    for (observation, limit) in finite {
        let cite = Cite { line: limit.line, ..observation.cite };
        let text = format!("locked memory: soft limit {} bytes", limit.soft.unwrap_or_default());
        draft = draft.cite(cite, SourceKind::Limits, text);
    }
    found(
        draft
            .advise_command(
                Impact::Harmless,
                "check the limit of the process itself",
                "grep -i 'locked memory' /proc/<pid>/limits",
            )
            .advise_command(
                Impact::Disruptive,
                "raise it where the job is started: LimitMEMLOCK=infinity for slurmd, --ulimit memlock=-1 for docker run, or the shell",
                "ulimit -l unlimited",
            ),
    )
}

/// Runs of perftest that could not register their memory.
fn tried(scene: &Scene<'_>) -> Vec<Evidence> {
    let failed = scene.net().filter_map(|(o, fact)| match fact {
        NetFact::Perftest(test) => {
            let (line, text) = test.failure.as_ref().filter(|(_, t)| wording::cannot_register_memory(t))?;
            Some(shown(o, Some(*line), SourceKind::Network, text.to_string()))
        }
        _ => None,
    });
    failed.take(2).collect()
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn memory_cannot_be_registered() {
        let stage = StagedCase::new()
            .process("node0", 3340, Some(0))
            .warn("misc/ibvwrap.cc:278", "Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory")
            .limit(ringleader_model::LimitKind::LockedMemory, Some(8192 * 1024), None);
        stage.expect(&RULE, &["memlock-limit 0"]);
        assert_eq!(stage.finding(&RULE).evidence.len(), 2);
    }

    #[test]
    fn a_test_that_cannot_register_memory() {
        let tried = |text: &str| {
            let failure = Some((7, text.into()));
            let test = ringleader_model::Perftest { failure, ..ringleader_model::Perftest::default() };
            StagedCase::new().net("node0", ringleader_model::NetFact::Perftest(test))
        };
        let limited =
            |stage: StagedCase| stage.limit(ringleader_model::LimitKind::LockedMemory, Some(65_536), None);
        limited(tried("Couldn't allocate MR")).concludes(&RULE, "memlock-limit , medium");
        limited(tried("Couldn't connect to 192.0.2.3:18515")).silent(&RULE);
        tried("Couldn't allocate MR").silent(&RULE);
    }

    #[test]
    fn a_low_limit_alone_does_no_harm() {
        StagedCase::new()
            .limit(ringleader_model::LimitKind::LockedMemory, Some(65536), Some(65536))
            .silent(&RULE);
    }
}
