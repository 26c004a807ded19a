//! # What it shows
//! The process of one rank is in state D: it sleeps in the kernel and takes no signals.
//!
//! # Why it happens
//! A file system that does not answer, a driver call that hangs, memory reclaim under pressure.
//!
//! # Evidence
//! A process list with state D and the kernel function (WCHAN); its peers wait for it. Or the kernel's own report that
//! the task was blocked for minutes, or a processor stuck in it. If the kernel also reports that storage of that host
//! fails or does not answer, that is what it waits for.
//!
//! # What looks like it but is not
//! One sample of D is ordinary during disk reads: it counts only together with peers that wait for this rank, or a
//! stack that does not change. Storage that does not answer while no rank visibly waits for it leads to a question.
//!
//! # What to do
//! Fix what it waits for; the process cannot be killed until then.
//!
//! # References
//! proc(5); kernel documentation, hung task detector.

use ringleader_knowledge::place;
use ringleader_model::{Cause, Confidence, Host, Impact, KernelEventKind, Need, StorageTrouble, Weight};

use crate::drafting;
use crate::drafting::kernel::KernelFault;
use crate::health;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::machine::faults::storage;
use ringleader_correlate::machine::kernel::Bond;
use ringleader_correlate::process::fate::{Fate, Life};

/// The rule.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "process-uninterruptible",
    title: "a rank hangs in the kernel",
    since: "0.1",
    doc: include_str!("process_uninterruptible.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let mut findings = Vec::new();
    for (rank, condition) in scene.conditions().all() {
        if scene.fate(rank).map(Fate::life) != Some(Life::Blocked) {
            continue;
        }
        let Some((_, seen)) = &condition.state else { continue };
        // One sample is normal during disk reads: another rank must wait for this one.
        let Some(suspect) = scene.suspects().iter().find(|s| s.node.rank() == Some(rank)) else { continue };
        let place = condition.stand.as_ref().and_then(|s| s.place());
        let title = format!(
            "{} hangs in the kernel (state D){}{}",
            drafting::rank(rank),
            condition.wchan.as_ref().map_or_else(String::new, |w| format!(" in {w}")),
            format_args!("; {} for it", drafting::waiting(&suspect.victims))
        );
        let draft = Draft::new(RULE.id, Cause::ProcessUninterruptible, title)
            .weight(Weight::Stated)
            .confidence(Confidence::High)
            .culprits(drafting::culprits(
                scene,
                &[ringleader_correlate::track::RankOrSource::Rank(rank)],
                place,
            ))
            .evidence([seen.clone()])
            .evidence(condition.stand_failure.iter().map(|(_, e)| e.clone()))
            .evidence(condition.stand.iter().map(|s| s.evidence.clone()))
            .victims(suspect.victims.clone())
            .evidence(suspect.evidence.iter().take(3).cloned())
            .at(suspect.since_ns);
        let host = scene.roster().culprit_rank(rank).host;
        let draft = with_storage(scene, draft, host.as_ref());
        let pid = drafting::pid_of(scene, rank);
        let draft = draft
            .advise_made(Impact::Harmless, "check where in the kernel it waits: a file system, the GPU driver, memory reclaim", Some(format!("cat /proc/{pid}/stack /proc/{pid}/wchan")))
            .advise_command(Impact::Harmless, "look for a stuck mount", "grep -E ' (nfs|nfs4|lustre|fuse|ceph|gpfs)' /proc/mounts; dmesg -T | grep -i 'blocked for more than'");
        findings.extend(draft.build());
    }
    if findings.is_empty() {
        findings.extend(blocked(scene));
    }
    if findings.is_empty() {
        findings.extend(stays(scene));
    }
    if findings.is_empty() {
        return asks_about_storage(scene);
    }
    Outcome::from_findings(findings)
}

/// The job is stalled, no record shows which rank waits for which, and one rank does not leave the kernel for its
/// files.
fn stays(scene: &Scene<'_>) -> Option<ringleader_model::Finding> {
    let still = scene.stood_still().first().filter(|_| scene.suspects().is_empty())?;
    let on_files =
        |(_, at): &&(u32, Box<str>)| place::of_wait(at).is_some_and(|shown| shown.id == place::ids::STORAGE);
    let mut stuck = health::blocked(scene).filter_map(|(row, process)| {
        let (_, place) = process.blocked.iter().find(on_files)?;
        Some((scene.roster().rank_of(row.pid?, None)?, place))
    });
    let (rank, place) = stuck.next()?;
    if stuck.any(|(other, _)| other != rank) {
        return None;
    }
    let (_, seen) = scene.condition(rank)?.state.as_ref()?;
    let pid = drafting::pid_of(scene, rank);
    let title = format!(
        "{} hangs in the kernel (state D) in {place} in two samples; the job makes no progress",
        drafting::rank(rank)
    );
    let draft = Draft::new(RULE.id, Cause::ProcessUninterruptible, title)
        .weight(Weight::Derived)
        .at_most(Confidence::Medium)
        .culprits(drafting::culprits(scene, &[ringleader_correlate::track::RankOrSource::Rank(rank)], None))
        .evidence([seen.clone(), still.evidence()]);
    let host = scene.roster().culprit_rank(rank).host;
    with_storage(scene, draft, host.as_ref())
        .advise_made(
            Impact::Harmless,
            "check where in the kernel it waits: a file system, the GPU driver, memory reclaim",
            Some(format!("cat /proc/{pid}/stack /proc/{pid}/wchan")),
        )
        .build()
}

/// What a rank in the kernel most likely waits for, if the kernel says so.
fn with_storage(scene: &Scene<'_>, draft: Draft, host: Option<&Host>) -> Draft {
    let Some((what, evidence)) = storage(scene.kernel(), host, |t| t != StorageTrouble::ReadOnly) else {
        return draft;
    };
    draft.evidence(evidence).advise(
        Impact::Disruptive,
        format!("storage: {what}; fix that first, then the process continues or ends by itself"),
    )
}

/// Storage that did not answer while ranks hang, and no process list that shows who waits for it.
fn asks_about_storage(scene: &Scene<'_>) -> Outcome {
    if scene.suspects().is_empty() || scene.process_tables().next().is_some() {
        return Outcome::Clear;
    }
    let Some((what, _)) = storage(scene.kernel(), None, |t| t != StorageTrouble::ReadOnly) else {
        return Outcome::Clear;
    };
    Outcome::Undecided(vec![Need {
        question: format!(
            "storage: {what}, according to the kernel log; does a rank wait for it in the kernel?"
        ),
        command: "ps -eo pid,stat,wchan:32,args | awk '$2 ~ /D/'; cat /proc/<pid>/stack".to_owned(),
        ..Need::default()
    }])
}

/// What the kernel's hung-task and lockup detectors say.
fn blocked(scene: &Scene<'_>) -> Option<ringleader_model::Finding> {
    let seen = KernelFault::of(scene, |e| {
        matches!(e.event.kind, KernelEventKind::HungTask { .. } | KernelEventKind::Lockup { .. })
            && (e.culprit.rank.is_some() || e.bond == Bond::Alone)
    })?;
    let first = seen.first()?;
    let (name, what) = match &first.event.kind {
        KernelEventKind::HungTask { name, seconds, .. } => {
            (name, format!("blocked for more than {seconds} s"))
        }
        KernelEventKind::Lockup { name, seconds, .. } => {
            (name, format!("a processor stuck for {} s", seconds.unwrap_or(0)))
        }
        _ => return None,
    };
    let who = first.culprit.rank.map_or_else(|| format!("a process ({name})"), drafting::rank);
    let draft = seen
        .draft(&RULE, Cause::ProcessUninterruptible, format!("{who} hangs in the kernel: {what}"))
        // A rank may be blocked and go on later; without a job it may be any service of the machine.
        .weight(if first.culprit.rank.is_some() { Weight::Stated } else { Weight::Derived })
        .confidence(Confidence::Medium);
    let draft = with_storage(scene, draft, first.culprit.host.as_ref())
        .advise_command(
            Impact::Harmless,
            "read in the call trace below that line what it waits for, and look for a stuck mount",
            "dmesg -T | grep -A 20 'blocked for more than'; grep -E ' (nfs|nfs4|lustre|fuse|ceph|gpfs)' /proc/mounts",
        );
    draft.build()
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn in_the_kernel_while_peers_wait() {
        StagedCase::job(3)
            .logs()
            .dumps(&["ar:1 ar:9?", "ar:1 ar:9?", "ar:1"])
            .ps("S S D:nfs_wait_on_request")
            .concludes(&RULE, "process-uninterruptible 2, high");
    }

    #[test]
    fn a_disk_read_that_nobody_waits_for() {
        StagedCase::job(3).logs().dumps(&["ar:1 ar:9"; 3]).ps("S S D:io_schedule").silent(&RULE);
        StagedCase::job(3).logs().ps("S S D:io_schedule").silent(&RULE);
    }

    #[test]
    fn storage_that_does_not_answer() {
        use ringleader_model::{KernelEventKind, StorageTrouble};
        let filer = |stage: StagedCase| {
            let trouble = StorageTrouble::NotResponding;
            stage.kernel("", KernelEventKind::Storage { name: "filer1".into(), trouble })
        };
        let hangs = || StagedCase::job(3).logs().dumps(&["ar:1 ar:9?", "ar:1 ar:9?", "ar:1"]);
        let told = |f: &ringleader_model::Finding| {
            f.actions.iter().any(|a| a.text.contains("filer1 does not answer"))
        };
        let finding = filer(hangs().ps("S S D:rpc_wait_bit_killable")).finding(&RULE);
        assert!(told(&finding), "{finding:#?}");
        // Of another host.
        let other = filer(hangs().ps("S S D:rpc_wait_bit_killable")).on("node9").finding(&RULE);
        assert!(!told(&other), "{other:#?}");
        // Nobody is seen to wait for it: a question. Nobody hangs: nothing.
        let asks = |stage: StagedCase| {
            let scene = ringleader_correlate::Scene::new(&stage.case);
            matches!((RULE.check)(&scene), crate::rule::Outcome::Undecided(_))
        };
        assert!(asks(filer(hangs())));
        assert!(!asks(filer(hangs().ps("S S S"))));
        assert!(!asks(filer(StagedCase::job(3).logs().dumps(&["ar:1 ar:9"; 3]))));
    }

    #[test]
    fn a_watched_job_stands_still_and_one_does_not_leave_the_kernel() {
        let job = |place: &'static str, is_still: bool| {
            let stage = StagedCase::new().seen(1_000, &format!("S D:{place}"), |rank, p| {
                p.blocked.extend((rank == 1).then(|| (101, place.into())));
            });
            if is_still { stage.stalled("start", 40) } else { stage }
        };
        job("rpc_wait_bit_killable", true).concludes(&RULE, "process-uninterruptible 1, medium");
        // Nothing says that it is stalled; another process holds a lock of the driver.
        job("rpc_wait_bit_killable", false).silent(&RULE);
        job("os_acquire_rwlock_write", true).silent(&RULE);
    }

    #[test]
    fn stopped() {
        StagedCase::job(3).logs().dumps(&["ar:1 ar:9?", "ar:1 ar:9?", "ar:1"]).ps("S S T").silent(&RULE);
    }

    #[test]
    fn the_kernel_says_so() {
        use ringleader_model::{KernelEventKind, Pid};
        let hung = |stage: StagedCase, pid, name: &str| {
            let kind = KernelEventKind::HungTask { pid: Some(Pid(pid)), name: name.into(), seconds: 120 };
            stage.kernel("", kind)
        };
        hung(StagedCase::new().two_ranks(), 101, "python3").expect(&RULE, &["process-uninterruptible 1"]);
        hung(StagedCase::new(), 136_986, "jfsmount").expect(&RULE, &["process-uninterruptible"]);
        hung(StagedCase::new().two_ranks(), 136_986, "jfsmount").silent(&RULE);
    }
}
