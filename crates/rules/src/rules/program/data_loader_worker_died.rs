//! # What it shows
//!
//! A worker process of the data loader was killed; the rank that owns it raises an exception about it.
//!
//! # Why it happens
//!
//! Signal 9 most often means that host memory ran out; a crash is a fault of native code in the data set. (A bus
//! error means a full /dev/shm: shm-full.)
//!
//! # Evidence
//!
//! `DataLoader worker (pid N) is killed by signal: …`.
//!
//! # What looks like it but is not
//!
//! It looks like an exception of the training program, whose traceback shows only the loader.
//!
//! # What to do
//!
//! Find out who sent the signal.
//!
//! # References
//!
//! pytorch/pytorch torch/utils/data/_utils/signal_handling.py.

use ringleader_knowledge::remedy;
use ringleader_model::{Cause, Impact};

use crate::drafting::claims::ClaimsOfCause;
use crate::rule::{Outcome, Rule};
use ringleader_correlate::Scene;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "data-loader-worker-died",
    title: "a data-loader worker died",
    since: "0.1",
    doc: include_str!("data_loader_worker_died.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let killed = ClaimsOfCause::of(scene, Cause::ProcessKilled).and_then(|told| {
        told.draft(
            &RULE,
            Cause::ProcessKilled,
            format!("a data-loader worker of {} was killed from outside", told.who()),
        )
        // torch sees only the signal; who sent it may be known from elsewhere.
        .yields_to(Cause::OomKilled)
        .advise_command(
            Impact::Harmless,
            "check whether the kernel killed it for lack of memory",
            remedy::SHOW_MEMORY_KILLS_AND_LIMIT,
        )
        .advise(Impact::Harmless, "use fewer workers or a smaller prefetch factor, or ask for more memory")
        .build()
    });
    let crashed = ClaimsOfCause::of(scene, Cause::ProcessCrashed).and_then(|told| {
        told.draft(&RULE, Cause::ProcessCrashed, format!("a data-loader worker of {} crashed", told.who()))
            .advise_command(
                Impact::Harmless,
                "run the data set in the main process to get the traceback",
                "num_workers=0 and PYTHONFAULTHANDLER=1",
            )
            .build()
    });
    Outcome::from_findings(killed.into_iter().chain(crashed).collect())
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn killed_from_outside() {
        StagedCase::new()
            .raised(
                Some(2),
                "RuntimeError",
                "DataLoader worker (pid 8121) is killed by signal: Killed. ",
                &[],
            )
            .expect(&RULE, &["process-killed 2"]);
    }

    #[test]
    fn crashed() {
        StagedCase::new()
            .raised(
                Some(2),
                "RuntimeError",
                "DataLoader worker (pid 8121) is killed by signal: Segmentation fault. ",
                &[],
            )
            .expect(&RULE, &["process-crashed 2"]);
    }

    #[test]
    fn a_full_shm_and_an_exception_in_the_worker_are_other_things() {
        StagedCase::new()
            .raised(
                Some(2),
                "RuntimeError",
                "DataLoader worker (pid 8121) is killed by signal: Bus error. ",
                &[],
            )
            .raised(Some(3), "ValueError", "Caught ValueError in DataLoader worker process 0.", &[])
            .silent(&RULE);
    }
}
