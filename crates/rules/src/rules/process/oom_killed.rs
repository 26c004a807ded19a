//! # What it shows
//!
//! The kernel or the scheduler killed a process because the host or its cgroup had no memory left.
//!
//! # Why it happens
//!
//! Data-loader workers, checkpoints gathered in host memory, pinned buffers; a limit of the container or of the
//! job.
//!
//! # Evidence
//!
//! Lines of Slurm (`oom_kill event`), Ray, Kubernetes or the kernel among the output; the kernel log, whose victim is
//! matched by process.
//!
//! # What looks like it but is not
//!
//! Exit by signal 9 alone does not show who sent it (process-killed). GPU memory is cuda-oom. A kernel log holds the
//! kills of other jobs and days.
//!
//! # What to do
//!
//! Raise the limit or use less.
//!
//! # References
//!
//! Linux mm/oom_kill.c; slurmstepd task/cgroup; Ray memory monitor.

use ringleader_knowledge::program::launches;
use ringleader_knowledge::signal::SIGKILL;
use ringleader_model::{Cause, Impact, KernelEventKind, OomKill, Rank, Severity, Weight};

use crate::drafting::claims::ClaimsOfCause;
use crate::drafting::kernel::{Both, KernelFault};
use crate::rule::{Outcome, Rule, found};
use ringleader_correlate::Scene;
use ringleader_correlate::machine::kernel::Bond;
use ringleader_correlate::process::fate::Fate;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "oom-killed",
    title: "host memory ran out",
    since: "0.1",
    doc: include_str!("oom_killed.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let seen = KernelFault::of(scene, |e| matches!(e.event.kind, KernelEventKind::OomKill(_)));
    let Some(both) = Both::of(ClaimsOfCause::of(scene, Cause::OomKilled), seen) else {
        return Outcome::Clear;
    };
    let mut draft = both.draft(
        &RULE,
        Cause::OomKilled,
        |told| format!("host memory ran out: a process of {who} was killed", who = told.who()),
        |seen| {
            let rank = seen.events().iter().find_map(|e| e.culprit.rank);
            match seen.first().map(|e| &e.event.kind) {
                Some(KernelEventKind::OomKill(kill)) => {
                    format!("the kernel killed {}", described(kill, rank))
                }
                _ => "the kernel killed a process for lack of memory".to_owned(),
            }
        },
    );
    // The launcher saw the same.
    for rank in both.seen().into_iter().flat_map(KernelFault::events).filter_map(|e| e.culprit.rank) {
        let exit = scene.fate(rank).and_then(Fate::exit);
        draft = draft.evidence(exit.map(|e| e.evidence.clone()));
    }
    if let Both::Seen(seen) = &both
        && seen.bond() < Bond::Alone
    {
        // Its number is none of the job's. In a container a process has two: then a rank must have died of SIGKILL.
        let a_rank_was_killed = scene.fates().all().any(|(_, fate)| fate.ended_by(SIGKILL).is_some());
        draft = match (seen.bond(), a_rank_was_killed) {
            (Bond::Time, true) | (Bond::Untold, _) => draft.weight(Weight::Derived),
            (_, true) => draft.severity(Severity::Warning),
            // Without its launcher a job does not succeed, and nothing is left to report that.
            (Bond::Time, false) if seen.events().iter().any(|e| is_launcher(e)) => {
                draft.severity(Severity::Warning).at_most(ringleader_model::Confidence::Low)
            }
            _ => draft.severity(Severity::Info),
        };
    }
    let cgroup = both.seen().and_then(KernelFault::first).is_some_and(
        |e| matches!(&e.event.kind, KernelEventKind::OomKill(k) if k.cgroup_limit == Some(true)),
    );
    if cgroup {
        draft = draft.advise(
            Impact::Harmless,
            "the limit of its container or job was hit, not the host's: raise that limit or use less",
        );
    }
    let draft = draft
        .advise_command(
            Impact::Harmless,
            "check the limit and what was used",
            "dmesg -T | grep -iE \"oom|killed process\"; cat /sys/fs/cgroup/memory.events",
        )
        .advise(Impact::Harmless, "use fewer data-loader workers or ask for more memory per node");
    found(draft)
}

fn is_launcher(event: &ringleader_correlate::machine::kernel::KernelStatement<'_>) -> bool {
    matches!(&event.event.kind, KernelEventKind::OomKill(k) if launches(&k.name))
}

/// `rank 1 (python3, pid 7) at the memory limit of its cgroup, with 64.0 GiB`.
fn described(kill: &OomKill, rank: Option<Rank>) -> String {
    let pid = kill.pid.map_or_else(String::new, |p| format!("pid {}", p.0));
    let who = match rank {
        Some(rank) => format!("rank {} ({}, {pid})", rank.0, kill.name),
        None => format!("{} ({pid})", kill.name),
    };
    let why = match kill.cgroup_limit {
        Some(true) => " at the memory limit of its cgroup",
        Some(false) => " since the host ran out of memory",
        None => " for lack of memory",
    };
    let used = kill
        .anon_rss_kib
        .map_or_else(String::new, |kib| format!(", with {:.1} GiB", kib as f64 / f64::from(1 << 20)));
    format!("{who}{why}{used}")
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn slurm_says_so() {
        StagedCase::new().error_line(None, "slurmstepd: error: Detected 1 oom_kill event in StepId=812.0. Some of the step tasks have been OOM Killed.").expect(&RULE, &["oom-killed"]);
    }

    #[test]
    fn gpu_memory_is_another_thing() {
        StagedCase::new().raised(Some(2), "torch.OutOfMemoryError", "CUDA out of memory.", &[]).silent(&RULE);
    }

    #[test]
    fn the_kernel_says_so() {
        StagedCase::new().oom(15_784, "python3").expect(&RULE, &["oom-killed"]);
        StagedCase::new().two_ranks().oom(101, "pt_main_thread").expect(&RULE, &["oom-killed 1"]);
        // A worker of rank 1's loader.
        StagedCase::new()
            .two_ranks()
            .raised(Some(1), "RuntimeError", "DataLoader worker (pid 4711) is killed by signal: Killed.", &[])
            .oom(4_711, "pt_data_worker")
            .expect(&RULE, &["oom-killed 1"]);
    }

    #[test]
    fn a_kill_of_another_job_decides_nothing() {
        use ringleader_correlate::staging::kernel::BEGAN_S;
        StagedCase::new().two_ranks().oom(9_999, "java").at_s(BEGAN_S - 86_400).silent(&RULE);
        let other =
            StagedCase::new().two_ranks().raised(Some(0), "ValueError", "bad", &[]).oom(9_999, "java");
        assert_eq!(other.worth(&RULE), ["info Derived"]);
        // Numbers of a container are not the host's: a rank that died of SIGKILL may be the victim.
        let maybe = StagedCase::new().two_ranks().failed(1, -9, true).oom(9_999, "python3");
        assert_eq!(maybe.worth(&RULE), ["warning Derived"]);
    }

    #[test]
    fn a_launcher_in_the_job_s_time() {
        use ringleader_correlate::staging::kernel::BEGAN_S;
        let job = || StagedCase::new().two_ranks().raised(Some(0), "RuntimeError", "boom", &[]);
        let launcher = |s: i64| job().oom(1_290, "torchrun").at_s(BEGAN_S + s).on("node0");
        assert_eq!(launcher(60).worth(&RULE), ["warning Derived"]);
        launcher(-86_400).silent(&RULE);
    }

    #[test]
    fn a_kernel_log_without_a_time_of_day() {
        let exit = ringleader_model::TorchEvent::ChildExit { exit_code: -9, is_first: false };
        let job = |name: &str| {
            let stage = StagedCase::new().torch(Some(5), exit.clone(), "exited on signal 9 (Killed)");
            stage.oom(77_123, name).without_time()
        };
        job("pt_main_thread").expect(&RULE, &["oom-killed 5"]);
        // Another program, and two kills of which one may be of another day: nobody is named.
        let names_nobody = |stage: StagedCase| stage.finding(&RULE).culprits.iter().all(|c| c.rank.is_none());
        assert!(names_nobody(job("java")));
        assert!(names_nobody(job("pt_main_thread").oom(4_711, "pt_main_thread").without_time()));
    }

    #[test]
    fn two_nodes_with_the_same_numbers() {
        use ringleader_correlate::staging::kernel::BEGAN_S;
        let exit = ringleader_model::TorchEvent::ChildExit { exit_code: -9, is_first: false };
        let job = |s: i64| {
            let stage = StagedCase::new().process("node0", 101, Some(0)).process("node1", 101, Some(1));
            let stage = stage.torch(None, exit.clone(), "failed (exitcode: -9) (pid: 101)");
            let stage = stage.at_s(BEGAN_S + 600);
            let mut stage = stage.failed(1, -9, true);
            for row in stage.case.observations.iter_mut().rev().take(2) {
                row.who.pid = Some(ringleader_model::Pid(101));
            }
            stage.oom(101, "pt_main_thread").at_s(BEGAN_S + s)
        };
        job(599).expect(&RULE, &["oom-killed 1"]);
        assert_ne!(
            job(10).findings(&RULE).first().map(|f| f.culprits[0].rank),
            Some(Some(ringleader_model::Rank(1)))
        );
    }

    #[test]
    fn a_launcher_whose_table_alone_has_a_time() {
        use ringleader_correlate::staging::kernel::BEGAN_S;
        let job = |killed: i64| {
            let stage = StagedCase::new().two_ranks().failed(1, -9, true).at_s(BEGAN_S + 600);
            stage.oom(77_123, "pt_main_thread").at_s(BEGAN_S + killed)
        };
        job(592).expect(&RULE, &["oom-killed 1"]);
        assert_eq!(job(592).worth(&RULE), ["error Stated"]);
        assert_eq!(job(500).worth(&RULE), ["error Derived"]);
    }

    #[test]
    fn a_container_counts_its_processes_anew() {
        use ringleader_correlate::staging::kernel::BEGAN_S;
        let exit = ringleader_model::TorchEvent::ChildExit { exit_code: -9, is_first: false };
        let job = || {
            let stage = StagedCase::new().two_ranks().torch(Some(1), exit.clone(), "failed (exitcode: -9)");
            stage.at_s(BEGAN_S + 600).failed(1, -9, true)
        };
        job().oom(77_123, "pt_main_thread").at_s(BEGAN_S + 598).expect(&RULE, &["oom-killed 1"]);
        // At another time it is another one's.
        let other = job().oom(77_123, "pt_main_thread").at_s(BEGAN_S + 100);
        assert_eq!(other.worth(&RULE), ["error Derived"]);
        // So it is if the rank went on after it.
        let at = |until| {
            job()
                .group("default_pg", 0..2)
                .rings(&["ar:1", "ar:1"])
                .rings_gone()
                .rings_until(until)
                .oom(77_123, "pt_main_thread")
        };
        at(BEGAN_S + 590).at_s(BEGAN_S + 590).expect(&RULE, &["oom-killed 1"]);
        assert_eq!(at(BEGAN_S + 600).at_s(BEGAN_S + 590).worth(&RULE), ["error Derived"]);
    }
}
