//! # What it shows
//!
//! A process may not open another file or socket. With many ranks each process needs a socket or file for most of
//! its peers.
//!
//! # Why it happens
//!
//! A soft limit of 1024 while the hard limit is far higher; data loaders that pass file handles.
//!
//! # Evidence
//!
//! `Too many open files` from NCCL, Python or the loader; the limit itself, if it is in the evidence.
//!
//! # What looks like it but is not
//!
//! A low limit without this error does no harm.
//!
//! # What to do
//!
//! Raise the soft limit in the job's script.
//!
//! # References
//!
//! Linux errno 24, EMFILE; NVIDIA/nccl src/misc/socket.cc; pytorch torch.multiprocessing file_descriptor sharing.

use ringleader_model::{Cause, Cite, Impact, KernelEventKind, LimitKind, SourceKind};

use crate::drafting::claims::ClaimsOfCause;
use crate::drafting::kernel::{Both, KernelFault};
use crate::rule::{Outcome, Rule, found};
use ringleader_correlate::Scene;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "too-many-open-files",
    title: "the open-files limit is too low",
    since: "0.1",
    doc: include_str!("too_many_open_files.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let seen = KernelFault::of(scene, |e| matches!(e.event.kind, KernelEventKind::FileLimit));
    let Some(both) = Both::of(ClaimsOfCause::of(scene, Cause::TooManyOpenFiles), seen) else {
        return Outcome::Clear;
    };
    let mut draft = both.draft(
        &RULE,
        Cause::TooManyOpenFiles,
        |told| format!("{} hit the open-files limit", told.who()),
        |_| "the whole machine hit its open-files limit (fs.file-max)".to_owned(),
    );
    let finite = scene.limits().filter(|(_, l)| l.kind == LimitKind::OpenFiles && l.soft.is_some());
    for (observation, limit) in finite {
        let cite = Cite { line: limit.line, ..observation.cite };
        let text = format!("open files: soft limit {}", limit.soft.unwrap_or_default());
        draft = draft.cite(cite, SourceKind::Limits, text);
    }
    found(
        draft
            .advise_command(
                Impact::Harmless,
                "raise the soft limit to the hard one in the script that starts the job",
                "ulimit -n $(ulimit -Hn)",
            )
            .advise_command(
                Impact::Harmless,
                "check what the process holds open",
                "ls /proc/<pid>/fd | wc -l; grep 'open files' /proc/<pid>/limits",
            ),
    )
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn nccl_says_so() {
        let stage = StagedCase::new()
            .warn("", "ncclOsSocketTryAccept: Accept failed: Too many open files")
            .limit(ringleader_model::LimitKind::OpenFiles, Some(1024), Some(1_048_576));
        stage.expect(&RULE, &["too-many-open-files"]);
        assert_eq!(stage.finding(&RULE).evidence.len(), 2);
    }

    #[test]
    fn a_low_limit_alone_does_no_harm() {
        StagedCase::new().limit(ringleader_model::LimitKind::OpenFiles, Some(1024), None).silent(&RULE);
    }

    #[test]
    fn the_kernel_says_so() {
        StagedCase::new()
            .kernel("", ringleader_model::KernelEventKind::FileLimit)
            .expect(&RULE, &["too-many-open-files"]);
    }
}
