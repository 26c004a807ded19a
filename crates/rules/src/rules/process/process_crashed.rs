//! # What it shows
//! One rank ended by a signal of its own making: SIGSEGV, SIGBUS, SIGFPE, SIGILL, or an abort that no
//! watchdog asked for.
//!
//! # Why it happens
//! A bug in native code, a bad pointer through ctypes, a broken library mix. A SIGBUS is reported as `shm-full`: a page of
//! /dev/shm could not be had; seldom a mapped file was cut short.
//!
//! # Evidence
//! The launcher's exit code, and the crash report with its stack.
//!
//! # What looks like it but is not
//! SIGABRT after a collective timed out is the watchdog ending a victim. A crash while others had failed
//! before is a consequence. An abort whose C++ exception states a cause is a consequence of that cause.
//!
//! # What to do
//! Read the stack; get a core dump if it is not enough.
//!
//! # References
//! Python faulthandler; signal(7).

use ringleader_knowledge::program::trains;
use ringleader_knowledge::signal::{SIGABRT, SIGBUS, Signal};
use ringleader_model::{
    Cause, Confidence, Evidence, Fact, Impact, KernelEventKind, Need, Rank, SourceKind, ThreadStack,
    TorchEvent, WatchEvent, Weight,
};

use crate::drafting;
use crate::drafting::kernel::KernelFault;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::machine::kernel::Bond;
use ringleader_correlate::process::condition;
use ringleader_correlate::process::fate::{End, Fate, Killer};
use ringleader_correlate::track::RankOrSource;

/// The rule.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "process-crashed",
    title: "a rank crashed by itself",
    since: "0.1",
    doc: include_str!("process_crashed.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let mut findings = Vec::new();
    let seen = KernelFault::of(scene, |e| match &e.event.kind {
        // Any program of a machine may crash: without a rank only one that could be of a job counts.
        KernelEventKind::Crash { name, .. } | KernelEventKind::MemoryFailure { name, .. } => {
            e.culprit.rank.is_some() || e.bond == Bond::Alone && trains(name)
        }
        _ => false,
    });
    let kernels: Vec<_> = seen.filter(KernelFault::is_bound).map_or_else(Vec::new, |s| s.events().to_vec());
    let of_rank = |rank| kernels.iter().find(move |e| e.culprit.rank == rank);
    for (rank, fate) in scene.fates().all() {
        let End::Crashed(signal) = fate.end() else { continue };
        let name = signal.name;
        let is_root = fate.failed_first();
        let report = crash_report(scene, rank, signal);
        let frames = report.as_ref().map(|(threads, _)| condition::crash_frames(threads)).unwrap_or_default();
        let place = ringleader_model::user_frame(frames);
        let told = of_rank(Some(rank));
        let by_memory = told.is_some_and(|e| matches!(e.event.kind, KernelEventKind::MemoryFailure { .. }));
        let (cause, why) = cause_of(signal, by_memory);
        let by_shm = cause == Cause::ShmFull;
        let mut draft = Draft::new(
            RULE.id,
            cause,
            format!("{} crashed with {name}{}{why}", drafting::rank(rank), drafting::at(place)),
        )
        .weight(Weight::Stated)
        .confidence(if (is_root || report.is_some()) && !by_shm {
            Confidence::High
        } else {
            Confidence::Medium
        })
        .culprits(drafting::culprits(scene, &[RankOrSource::Rank(rank)], place))
        .evidence(fate.evidence().iter().cloned());
        if let Some((_, evidence)) = report {
            draft = draft.evidence([evidence.clone()]);
        }
        draft = draft.evidence(told.map(|e| e.evidence()));
        if signal.number == SIGABRT && !is_root && follows_a_kill(scene, rank) {
            draft = draft.weight(Weight::Echo).at_most(Confidence::Low);
        }
        // The watchdog ends the process because of an error of NCCL, whose cause is elsewhere.
        if signal.number == SIGABRT && scene.is_ended_by_watchdog(rank) {
            draft = draft.weight(Weight::Echo).at_most(Confidence::Medium);
        }
        // What it said when it aborted names the cause.
        if let Some(thrown) = scene.thrown(rank).filter(|_| signal.number == SIGABRT) {
            draft = draft.weight(Weight::Echo).evidence([thrown.evidence]);
        }
        if by_memory {
            findings.extend(replace_memory(draft).build());
            continue;
        }
        if by_shm {
            draft = look_at_shm(scene, rank, draft);
        }
        findings.extend(
            draft
                .advise(
                    Impact::Harmless,
                    format!(
                        "read the native stack{}; with a core dump (ulimit -c unlimited) gdb shows all of it",
                        drafting::at(place)
                    ),
                )
                .build(),
        );
    }
    // Facts that only the kernel reports.
    let mut told: Vec<Option<Rank>> = findings.iter().flat_map(|f| &f.culprits).map(|c| c.rank).collect();
    for event in &kernels {
        let rank = event.culprit.rank;
        if told.contains(&rank) {
            continue;
        }
        told.push(rank);
        let (name, what) = match &event.event.kind {
            KernelEventKind::Crash { name, what, object, .. } => {
                let place = object.as_ref().map_or_else(String::new, |o| format!(" in {o}"));
                (name, format!("{what}{place}"))
            }
            KernelEventKind::MemoryFailure { name, .. } => {
                (name, "bad memory of the host (SIGBUS)".to_owned())
            }
            _ => continue,
        };
        let who = rank.map_or_else(|| name.to_string(), drafting::rank);
        let draft = Draft::new(RULE.id, Cause::ProcessCrashed, format!("{who} crashed: {what}"))
            .weight(Weight::Stated)
            .confidence(Confidence::Medium)
            .culprit(event.culprit.clone())
            .at(event.at_ns())
            .evidence([event.evidence()]);
        let draft = if matches!(event.event.kind, KernelEventKind::MemoryFailure { .. }) {
            replace_memory(draft)
        } else {
            draft.advise(
                Impact::Harmless,
                "get a core dump (ulimit -c unlimited) and read the native stack with gdb",
            )
        };
        findings.extend(draft.build());
    }
    if findings.is_empty() { host_failed(scene) } else { Outcome::Found(findings) }
}

/// Another rank was killed: a program aborts when its peer is gone, as JAX's runtime does. Who was killed later did not make
/// it abort.
fn follows_a_kill(scene: &Scene<'_>, rank: Rank) -> bool {
    let ended = |rank| ended_ns(scene, rank);
    let is_killed = |fate: &Fate| matches!(fate.end(), End::Killed { by: Killer::Outside, .. });
    let was_later = |other| ended(other).zip(ended(rank)).is_some_and(|(killed, aborted)| killed > aborted);
    scene.fates().all().any(|(other, fate)| other != rank && is_killed(fate) && !was_later(other))
}

/// When a watcher saw the process of a rank end, ns.
fn ended_ns(scene: &Scene<'_>, rank: Rank) -> Option<i64> {
    let ends = scene.case().observations.iter().filter_map(|o| match &o.fact {
        Fact::Watch(WatchEvent::Gone(ends, _)) => Some(ends),
        _ => None,
    });
    ends.flatten().find(|end| end.rank == rank).map(|end| end.at_ns)
}

/// What a crash by this signal shows, and what the title adds. A SIGBUS: what the rank had mapped could not be backed; of fifteen
/// public reports thirteen had a full /dev/shm.
fn cause_of(signal: &Signal, by_memory: bool) -> (Cause, &'static str) {
    match signal.number {
        _ if by_memory => (Cause::ProcessCrashed, ": bad memory of its host"),
        SIGBUS => (Cause::ShmFull, ": most often /dev/shm is full"),
        _ => (Cause::ProcessCrashed, ""),
    }
}

/// What to do about a SIGBUS. Where the size of /dev/shm is known to be small, shm-full has the proof.
fn look_at_shm(scene: &Scene<'_>, rank: Rank, draft: Draft) -> Draft {
    let is_tight = scene.has_tight_shm(scene.roster().culprit_rank(rank).host.as_ref());
    let draft = if is_tight { draft.weight(Weight::Derived) } else { draft };
    draft.advise_command(Impact::Harmless, "look whether /dev/shm is full", "df -h /dev/shm").advise(
        Impact::Harmless,
        "give the container more shared memory (--shm-size, an emptyDir of medium Memory)",
    )
}

/// What to do about memory of a host that fails: neither the program nor /dev/shm is at fault.
fn replace_memory(draft: Draft) -> Draft {
    draft
        .advise_command(
            Impact::Harmless,
            "check which memory module (DIMM) it is",
            "ras-mc-ctl --errors; ipmitool sel elist; grep . /sys/devices/system/edac/mc/mc*/dimm*/dimm_*e_count",
        )
        .advise(Impact::Disruptive, "drain the node and have that module replaced before it takes jobs again")
}

/// The host itself failed: no cause of a job's, and no health either.
fn host_failed(scene: &Scene<'_>) -> Outcome {
    let seen = KernelFault::of(scene, |e| {
        matches!(
            e.event.kind,
            KernelEventKind::MachineCheck { uncorrected: true }
                | KernelEventKind::MemoryErrors { uncorrected: true, .. }
                | KernelEventKind::MemoryFailure { .. }
                | KernelEventKind::Panic
        )
    });
    let Some(first) =
        seen.as_ref().filter(|s| s.is_bound() || s.bond() == Bond::Time).and_then(KernelFault::first)
    else {
        return Outcome::Clear;
    };
    let host = first.culprit.host.as_ref().map_or_else(|| "the host".to_owned(), |h| format!("host {h}"));
    let text: String = first.observation.text.chars().take(drafting::QUOTED_CHARS).collect();
    Outcome::Undecided(vec![Need {
        question: format!("did {host} fail during the job? Its kernel reports: {text}"),
        command: "journalctl -k -b -1; ipmitool sel elist; take the node out until its memory is tested"
            .to_owned(),
        ..Need::default()
    }])
}

/// The crash report of a rank: its own, or the only one of its kind that names no rank.
fn crash_report<'s>(
    scene: &'s Scene<'_>,
    rank: Rank,
    signal: &Signal,
) -> Option<(&'s [ThreadStack], Evidence)> {
    if let Some((_, threads, evidence)) = &scene.condition(rank)?.crash {
        return Some((threads, evidence.clone()));
    }
    if signal.number == SIGABRT {
        return None;
    }
    let mut unclaimed = scene.case().observations.iter().filter_map(|o| match &o.fact {
        Fact::Torch(TorchEvent::Crash { reason, threads, .. })
            if o.who.rank.is_none() && reason.contains(signal.first_word()) =>
        {
            let evidence = Evidence { cite: o.cite, text: o.text.to_string(), kind: SourceKind::TorchLog };
            Some((threads.as_slice(), evidence))
        }
        _ => None,
    });
    match (unclaimed.next(), unclaimed.next()) {
        (Some(one), None) => Some(one),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};
    use ringleader_correlate::staging::kernel::BEGAN_S;

    #[test]
    fn a_signal_of_its_own_making() {
        StagedCase::new()
            .failed(2, -11, true)
            .crashed(None, "Segmentation fault", &[("/srv/ops.py", 44, "gather")])
            .concludes(&RULE, "process-crashed 2 at gather:44, high");
        StagedCase::new().failed(1, 128 + 7, true).concludes(&RULE, "shm-full 1, medium");
    }

    #[test]
    fn bad_memory_of_the_host_is_no_full_shm() {
        use ringleader_model::{KernelEventKind, Pid};
        let bad = KernelEventKind::MemoryFailure { pid: Some(Pid(101)), name: "python3".into() };
        let stage = || StagedCase::new().two_ranks().failed(1, -7, true);
        stage().kernel("", bad).expect(&RULE, &["process-crashed 1"]);
        stage().expect(&RULE, &["shm-full 1"]);
    }

    #[test]
    fn a_watchdog_that_ends_a_victim() {
        StagedCase::new().timed_out(0, "ar:100", 6, 6).failed(2, -6, true).silent(&RULE);
        StagedCase::new().failed(2, -6, true).expect(&RULE, &["process-crashed 2"]);
    }

    #[test]
    fn the_watchdog_of_a_process_group_ends_its_process() {
        let what = "[PG ID 0 Rank 1] Process group watchdog thread terminated with exception: NCCL error: internal error";
        let reason = format!(
            "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  {what}"
        );
        let stage = StagedCase::new().failed(1, -6, true).crashed(None, &reason, &[]);
        assert_eq!(stage.finding(&RULE).weight, ringleader_model::Weight::Echo);
    }

    #[test]
    fn an_abort_that_says_why_is_a_consequence() {
        let abort = |what: &str| {
            let reason = format!("terminate called after throwing an instance of 'X'\n  what():  {what}");
            let stage = StagedCase::new().failed(1, -6, true).crashed(None, &reason, &[]);
            stage.finding(&RULE).weight
        };
        assert_eq!(abort("op.preamble.length <= op.nbytes. 8192 vs 4"), ringleader_model::Weight::Echo);
        assert_eq!(abort("vector::_M_range_check"), ringleader_model::Weight::Stated);
    }

    #[test]
    fn an_abort_beside_a_rank_that_was_killed() {
        use ringleader_model::{Fact, Rank, SourceKind, WatchEvent, WatchedEnd, Who};
        let job = |is_root: bool| StagedCase::new().failed(0, -9, !is_root).failed(1, -6, is_root);
        job(false).concludes(&RULE, "process-crashed 1, low");
        assert_eq!(crate::diagnose(&job(false).case).cause, ringleader_model::Cause::ProcessKilled);
        let at = |rank, at_ns, exit_code| WatchedEnd { rank: Rank(rank), at_ns, exit_code: Some(exit_code) };
        let seen = |killed, aborted| {
            let ends = WatchEvent::Gone(vec![at(0, killed, -9), at(1, aborted, -6)], true);
            job(false).push(SourceKind::Watch, Who::default(), Fact::Watch(ends))
        };
        seen(7, 8).concludes(&RULE, "process-crashed 1, low");
        seen(8, 7).concludes(&RULE, "process-crashed 1, medium");
        // It was the first to fail.
        job(true).concludes(&RULE, "process-crashed 1, high");
    }

    #[test]
    fn signals_from_outside_and_plain_exits() {
        for code in [-9, -15, 1, 0] {
            StagedCase::new().failed(2, code, true).silent(&RULE);
        }
    }

    #[test]
    fn the_kernel_says_so() {
        use ringleader_model::{KernelEventKind, Pid};
        let crash = |stage: StagedCase, pid, name: &str| {
            let kind = KernelEventKind::Crash {
                pid: Some(Pid(pid)),
                name: name.into(),
                what: "segfault".into(),
                object: Some("libnccl.so.2".into()),
            };
            stage.kernel("", kind)
        };
        crash(StagedCase::new(), 2_536_443, "pt_main_thread").expect(&RULE, &["process-crashed"]);
        crash(StagedCase::new().two_ranks(), 101, "python3").expect(&RULE, &["process-crashed 1"]);
        // One finding where launcher and kernel agree.
        crash(StagedCase::new().two_ranks().failed(1, -11, true), 101, "python3")
            .expect(&RULE, &["process-crashed 1"]);
        // Somebody else's.
        crash(StagedCase::new().two_ranks(), 9_999, "python3").silent(&RULE);
        crash(StagedCase::new(), 9_999, "gnome-shell").silent(&RULE);
        // Of a job that is only seen: another's, its own by the node's number, a worker of rank 1.
        let seen = |outer: u32| {
            StagedCase::new().seen(BEGAN_S, "S S", move |rank, p| p.outer_pid = Some(Pid(outer + rank)))
        };
        let at = |stage: StagedCase, pid, after_s| {
            crash(stage, pid, "python3").on("node0").at_s(BEGAN_S + after_s)
        };
        at(seen(4_000), 9_999, 100).silent(&RULE);
        at(seen(4_000), 101, 100).silent(&RULE);
        at(seen(4_000), 4_001, 100).expect(&RULE, &["process-crashed 1"]);
        at(seen(4_000), 4_001, -100).silent(&RULE);
    }

    #[test]
    fn a_host_that_fails_is_an_open_question() {
        use ringleader_model::KernelEventKind;

        use crate::rule::Outcome;
        use ringleader_correlate::Scene;
        let open = |kind| {
            let stage = StagedCase::new().kernel("", kind);
            matches!((RULE.check)(&Scene::new(&stage.case)), Outcome::Undecided(_))
        };
        assert!(open(KernelEventKind::MachineCheck { uncorrected: true }));
        assert!(open(KernelEventKind::Panic));
        assert!(!open(KernelEventKind::MachineCheck { uncorrected: false }));
        assert!(!open(KernelEventKind::MemoryErrors {
            count: 262,
            uncorrected: false,
            place: "DIMM 0".into()
        }));
    }
}
