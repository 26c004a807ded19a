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
//! is in the evidence.
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

use ringleader_model::{Cite, Impact, LimitKind, SourceKind};

use crate::correlate::Scene;
use crate::rule::{Input, Outcome, Rule};
use crate::told::{Told, found};

/// See the module.
pub(super) static RULE: Rule = Rule {
    id: "memlock-limit",
    title: "the locked-memory limit is too low",
    since: "0.1",
    reads: &[Input::NcclLog, Input::TorchLog, Input::Limits],
    doc: include_str!("memlock_limit.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, "memlock-limit") else { return Outcome::Clear };
    let title = format!("{} ran into the limit of locked memory", told.who());
    let mut draft = told.draft(&RULE, "memlock-limit", title);
    let finite = scene.limits().filter(|(_, l)| l.kind == LimitKind::LockedMemory && l.soft.is_some());
    for (observation, limit) in finite {
        let cite = Cite { line: limit.line, ..observation.cite };
        let text = format!("locked memory: soft limit {} bytes", limit.soft.unwrap_or_default());
        draft = draft.cite(cite, SourceKind::Limits, text);
    }
    found(
        draft
            .advise_command(
                Impact::Harmless,
                "see the limit inside the process itself",
                "grep -i 'locked memory' /proc/<pid>/limits",
            )
            .advise_command(
                Impact::Disruptive,
                "lift it where the job is started: LimitMEMLOCK=infinity for slurmd, --ulimit memlock=-1 for docker run, or the shell",
                "ulimit -l unlimited",
            ),
    )
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::staging::Stage;

    #[test]
    fn memory_cannot_be_registered() {
        let stage = Stage::new()
            .process("node0", 3340, Some(0))
            .warn("misc/ibvwrap.cc:278", "Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory")
            .limit(ringleader_model::LimitKind::LockedMemory, Some(8192 * 1024), None);
        stage.expect(&RULE, &["memlock-limit 0"]);
        assert_eq!(stage.finding(&RULE).evidence.len(), 2);
    }

    #[test]
    fn a_low_limit_alone_does_no_harm() {
        Stage::new().limit(ringleader_model::LimitKind::LockedMemory, Some(65536), Some(65536)).silent(&RULE);
    }
}
