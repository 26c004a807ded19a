//! # What it shows
//! One rank has not entered the collective its peers wait in. It is alive, waits for no rank of its groups,
//! and is busy in other code.
//!
//! # Why it happens
//! A data loader without data, a lock, storage that is slow, a compile, a checkpoint, a sleep.
//!
//! # Evidence
//! The wait-for graph ends at this rank; its stack shows where it is, and what it does there: the data loader, a
//! checkpoint, a compilation, logging, work on files, a lock, Python's own lock and who holds it, a CUDA call, the
//! driver. Where that is work on files and the kernel says that storage of its host fails or does not answer, that is
//! cited too.
//!
//! # What looks like it but is not
//! A stopped or dead process; a rank that waits in another group (it is a victim there); a rank on its way
//! out (rank-exited-early).
//!
//! # What to do
//! Look at the code where it is; a second stack distinguishes stuck from slow.
//!
//! # References
//! PyTorch docs, Flight Recorder for Debugging Stuck Jobs; NCCL user guide.

use ringleader_knowledge::place::is_file_work;
use ringleader_model::{Cause, Confidence, Impact, Need, OpKind, Rank, Weight};

use crate::drafting;
use crate::rule::{Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::machine::faults::storage;
use ringleader_correlate::process::condition::{Busy, Condition, ProcessState};
use ringleader_correlate::process::fate::Fate;
use ringleader_correlate::said::watchdog::GroupPosition;
use ringleader_correlate::track::{self, GroupRecorder};
use ringleader_correlate::waits::graph::Waits;
use ringleader_correlate::waits::suspects::Suspect;

/// The rule.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "stuck-outside-collective",
    title: "a rank is alive but outside any collective",
    since: "0.1",
    doc: include_str!("stuck_outside_collective.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let mut findings = Vec::new();
    let mut needs = Vec::new();
    for suspect in scene.suspects() {
        let Some(rank) = suspect.node.rank() else { continue };
        let condition = scene.condition(rank);
        if is_dead(scene, rank) || scene.has_parted(suspect.node) {
            continue;
        }
        // With an operation of its own in flight it is inside, wherever its program is.
        if suspect.is_inside || counts_alone_say_so(scene, suspect) || scene.unseen_call(suspect).is_some() {
            continue;
        }
        let stand = condition.and_then(|c| c.stand.as_ref());
        if stand.is_some_and(|s| s.is_leaving() || s.is_joining() || s.waits_in_gpu_or_collective()) {
            continue;
        }
        // Without a sign of life there is only silence, which other rules weigh.
        let idle = condition.is_some_and(|c| c.ring_idle);
        if suspect.weak && !scene.fates().shows_life(rank) || suspect.in_p2p && stand.is_none() && !idle {
            continue;
        }
        // RAS counts of a running job differ for a moment. Alone, with nothing that timed out, they show nothing yet.
        let only_counts = suspect.views.iter().all(|v| *v == GroupRecorder::Ras);
        let nothing_failed = !scene.fates().has_rank_timed_out();
        let unseen = stand.is_none() && !sleeps_among_spinners(scene, suspect);
        // What the records prove to have run a moment ago, one stack does not prove to be stuck.
        if only_counts && nothing_failed && (unseen || scene.ledger().may_run()) {
            needs.push(Need {
                question: format!(
                    "{} has launched fewer collectives than its peers: is it only briefly late, or are the counts unchanged ten seconds later?",
                    drafting::rank(rank)
                ),
                command: "ncclras -v; sleep 10; ncclras -v".to_owned(),
                ..Need::default()
            });
            continue;
        }
        let busy = condition.and_then(Condition::busy);
        let place = stand.and_then(|s| s.place()).or(suspect.last_place.as_ref());
        let pid = drafting::pid_of(scene, rank);
        let mut draft = drafting::from_suspect(
            scene,
            RULE.id,
            if stand.is_none() && is_at_the_start(scene, suspect) {
                Cause::SlowRankStall
            } else {
                Cause::StuckOutsideCollective
            },
            suspect,
            place,
            format!(
                "{} is elsewhere{}{}; {} for it in {}",
                drafting::rank(rank),
                busy.as_ref().map_or_else(String::new, |b| format!(", {}", b.words())),
                drafting::at(place),
                drafting::waiting(&suspect.victims),
                suspect.awaited_in
            ),
        )
        .call(suspect.awaited_call.clone())
        .at_most(drafting::surest_of_one_moment(scene))
        .weight(if stand.is_some() { Weight::Stated } else { Weight::Derived })
        .evidence(stand.map(|s| s.evidence.clone()))
        .evidence(busy.iter().filter_map(|b| b.evidence.clone()))
        .evidence(condition.and_then(|c| c.ring_live.clone()).filter(|_| stand.is_none()))
        .evidence(condition.and_then(|c| c.state.as_ref()).map(|(_, seen)| seen.clone()));
        if stand.is_none() {
            draft = draft.confidence(Confidence::Low);
        }
        // Code that reads or writes files stalls with the storage below it.
        let host = scene.roster().culprit_rank(rank).host;
        if (busy.as_ref().is_some_and(Busy::is_on_files)
            || stand.is_some_and(|s| s.frames.iter().any(|f| !f.is_native() && is_file_work(&f.function))))
            && let Some((what, evidence)) = storage(scene.kernel(), host.as_ref(), |_| true)
        {
            draft = draft
                .evidence(evidence)
                .advise(Impact::Disruptive, format!("storage: {what}; fix that first"));
        }
        findings.extend(
            draft
                .advise_made(
                    Impact::Harmless,
                    "take its stack twice, a few seconds apart: the same place means stuck, another means slow",
                    Some(format!("ringleader diagnose --live --pid {pid}")),
                )
                .build(),
        );
    }
    if findings.is_empty() && !needs.is_empty() {
        return Outcome::Undecided(needs);
    }
    Outcome::from_findings(findings)
}

/// It does not live, and did not while the others waited for it: a launcher ends those that live once others have timed out.
fn is_dead(scene: &Scene<'_>, rank: Rank) -> bool {
    scene.fate(rank).is_some_and(Fate::cannot_come) && !scene.fates().lived_while_others_waited(rank)
}

/// The others wait in the first calls of their group, or in a barrier: there ranks meet that have work of their own to do
/// before, such as reading data, and the one that has most of it comes last.
fn is_at_the_start(scene: &Scene<'_>, suspect: &Suspect) -> bool {
    /// Calls that a program makes before its work begins.
    const FIRST: u32 = 2;
    let waits_early = |stand: &GroupPosition| {
        let work = stand.work.as_ref();
        let is_barrier = work.is_some_and(|w| {
            w.kind == OpKind::Barrier || w.numel_in == Some(1) && w.kind == OpKind::AllReduce
        });
        work.is_some() && (is_barrier || stand.seq.is_some_and(|seq| seq <= FIRST))
    };
    let mut stands = scene.watchdog().all().filter(|(_, rank, _)| suspect.victims.contains(*rank)).peekable();
    stands.peek().is_some() && stands.all(|(_, _, stand)| waits_early(stand))
}

/// Only counts of launches speak against it, and recorders that see operations end have one of its own in flight. Of a
/// process that does not answer RAS they may show a moment long past.
fn counts_alone_say_so(scene: &Scene<'_>, suspect: &Suspect) -> bool {
    let in_flight = |view: &Waits| {
        view.fronts.iter().any(|front| {
            scene.ledger().groups().get(front.group).is_some_and(|group| {
                front.waiting.iter().any(|m| track::node(group, *m) == Some(suspect.node))
            })
        })
    };
    let answers =
        suspect.node.rank().and_then(|r| scene.condition(r)).is_none_or(|c| c.ras_missing.is_none());
    answers
        && !suspect.views.iter().any(|view| view.knows_ends())
        && scene.waits().iter().filter(|w| w.view.knows_ends()).any(in_flight)
}

/// Ranks inside a collective spin; one that sleeps while all that wait for it spin is not in it.
fn sleeps_among_spinners(scene: &Scene<'_>, suspect: &Suspect) -> bool {
    let state = |rank: Rank| scene.condition(rank)?.state.as_ref().map(|(state, _)| *state);
    let mut waiters = suspect.victims.ranks().iter().filter_map(|r| state(*r)).peekable();
    suspect.node.rank().and_then(state) == Some(ProcessState::Sleeping)
        && waiters.peek().is_some()
        && waiters.all(|s| s == ProcessState::Running)
}

#[cfg(test)]
mod tests {
    use ringleader_model::Cause;

    use super::{Outcome, RULE};
    use crate::trial::{StagedCase, Trial as _};

    fn waiting() -> StagedCase {
        StagedCase::job(3).logs().dumps(&["ar:1 ar:9?", "ar:1 ar:9?", "ar:1"])
    }

    const FETCH: (&str, u32, &str) = ("/srv/data.py", 31, "fetch");

    /// All-to-all: each rank sends to itself, too, which no kernel is reported for.
    #[test]
    fn what_a_rank_sends_to_itself_is_nothing_in_flight() {
        let own = "send>0:8*12 recv<1:8*12 send>1:8*12 send>0:8?";
        let other = "send>1:8*12 recv<0:8*12 send>0:8*12 send>1:8? send>0:8? recv<0:8?";
        let job = StagedCase::job(2).rings(&[own, other]).stands(0, &[("/srv/data.py", 85, "next")]);
        job.concludes(&RULE, "stuck-outside-collective 0 at next:85, high");
    }

    #[test]
    fn it_stands_in_code_of_its_own() {
        waiting()
            .stands(2, &[("threading.py", 327, "wait"), FETCH])
            .concludes(&RULE, "stuck-outside-collective 2 at fetch:31, medium");
        let in_time = waiting().timed_out(0, "ar:9", 2, 2).stands(2, &[FETCH]);
        in_time.concludes(&RULE, "stuck-outside-collective 2 at fetch:31, high");
        waiting().ps("S S R").concludes(&RULE, "stuck-outside-collective 2 at step:10, low");
    }

    #[test]
    fn a_difference_that_is_long_over() {
        let job = |n_since: u32| {
            let usual = format!("ar:9*12 ar:100 ar:7*{n_since} ar:3?");
            let odd = format!("ar:9*12 ag:100 ar:7*{n_since}");
            StagedCase::job(3).rings(&[&usual, &usual, &odd]).stands(2, &[FETCH])
        };
        job(20).concludes(&RULE, "stuck-outside-collective 2 at fetch:31, high");
        let verdict = crate::diagnose(&job(20).case);
        assert_eq!(verdict.cause, Cause::StuckOutsideCollective, "{verdict:#?}");
        assert!(verdict.findings.iter().any(|f| f.cause == Cause::OpMismatch), "{verdict:#?}");
        // What differed a moment ago is why it is stalled.
        job(3).silent(&RULE);
        assert_eq!(crate::diagnose(&job(3).case).cause, Cause::OpMismatch);
    }

    #[test]
    fn what_it_does_there() {
        let title = |frames: &[(&str, u32, &str)]| waiting().stands(2, frames).finding(&RULE).title;
        let next = ("/opt/site-packages/torch/utils/data/dataloader.py", 700, "_next_data");
        let train = ("/srv/train.py", 44, "step");
        assert!(
            title(&[("selectors.py", 415, "select"), next, train]).contains(", in the data loader at step")
        );
        assert!(
            title(&[("torch/serialization.py", 900, "save"), train])
                .contains("reading or writing a checkpoint at step")
        );
        assert!(title(&[("threading.py", 327, "wait"), train]).contains("waiting for a lock or a queue"));
        assert!(title(&[train]).starts_with("rank 2 is elsewhere at step"));
    }

    #[test]
    fn work_on_files_over_storage_that_fails() {
        use ringleader_model::{KernelEventKind, StorageTrouble};
        let stands = |at| {
            let trouble = StorageTrouble::NotResponding;
            let finding = waiting()
                .stands(2, &[at])
                .kernel("", KernelEventKind::Storage { name: "filer1".into(), trouble })
                .finding(&RULE);
            finding.evidence.iter().any(|e| e.kind == ringleader_model::SourceKind::KernelLog)
        };
        assert!(stands(("/srv/train.py", 90, "save_checkpoint")));
        // A lock has nothing to do with storage.
        assert!(!stands(("/srv/train.py", 90, "wait_for_lock")));
    }

    #[test]
    fn native_frames_below_pythons_change_nothing_but_what_they_tell() {
        let read = [("libc.so.6", 0, "read"), ("python3.12", 0, "_Py_read"), ("python3.12", 0, "os_read")];
        let stands = |inner: &[(&str, u32, &str)], outer: &[(&str, u32, &str)]| {
            waiting().stands(2, &[inner, outer].concat())
        };
        stands(&read, &[FETCH]).concludes(&RULE, "stuck-outside-collective 2 at fetch:31, medium");
        let proof = |stage: StagedCase| {
            stage.finding(&RULE).evidence.iter().map(|e| e.text.clone()).collect::<Vec<_>>()
        };
        let said = proof(stands(&read, &[FETCH]));
        let whole = "main thread: read < _Py_read < fetch (/srv/data.py:31)";
        assert!(said.iter().any(|text| text == whole), "{said:?}");
        // Deep in the driver, and called by Python: it waits for the GPU.
        let driver = ("libcuda.so.1", 0, "0x1f2e3c");
        let deep = [[driver; 14].as_slice(), &[("libcudart.so.12", 0, "cudaStreamSynchronize")]].concat();
        stands(&deep, &[FETCH]).silent(&RULE);
        let wait = ("torch/distributed/distributed_c10d.py", 4810, "barrier");
        stands(&[driver; 14], &[wait, FETCH]).silent(&RULE);
        // A socket that is closed is no farewell.
        let closes = stands(&[("libc.so.6", 0, "shutdown")], &[FETCH]);
        closes.expect(&RULE, &["stuck-outside-collective 2"]);
        let gil = [("libc.so.6", 0, "pthread_cond_timedwait"), ("python3.12", 0, "take_gil")];
        assert!(stands(&gil, &[FETCH]).finding(&RULE).title.contains("waiting for Python's global lock"));
    }

    #[test]
    fn counts_of_ras_tell_it_too() {
        let job = StagedCase::job(3).logs().ras(&["ar:5 bc:1", "ar:5 bc:1", "ar:4 bc:1"]);
        job.stands(2, &[FETCH]).concludes(&RULE, "stuck-outside-collective 2 at fetch:31, medium");
    }

    #[test]
    fn a_job_that_ran_while_its_records_were_copied() {
        // Rank 0 has finished what rank 2 has not entered: rank 2's dump is the older one.
        StagedCase::job(3).logs().dumps(&["ar:1 ar:9 ar:8?", "ar:1 ar:9?", "ar:1"]).silent(&RULE);
        // Logs that end at a different call each.
        let log = |n: u32| format!("ar:9*{n}");
        let job = |counts: [u32; 4]| {
            (0..4).zip(counts).fold(StagedCase::job(4), |job, (rank, n)| job.log(rank, "node1", &log(n)))
        };
        job([9, 12, 15, 17]).silent(&RULE);
        // The same, where a rank timed out.
        job([9, 12, 15, 17]).timed_out(3, "ar:9", 10, 17).expect(&RULE, &["stuck-outside-collective 0"]);
        // RAS, asked later, counts more calls of rank 0 than its log holds; nobody is behind for good.
        let later = job([9, 12, 12, 12]).ras(&["ar:14", "ar:15", "ar:15", "ar:15"]);
        assert!(matches!(
            (RULE.check)(&ringleader_correlate::Scene::new(&later.case)),
            Outcome::Undecided(_)
        ));
        job([9, 12, 12, 12]).expect(&RULE, &["stuck-outside-collective 0"]);
    }

    #[test]
    fn stopped_or_dead() {
        waiting().ps("S S T").stands(2, &[FETCH]).silent(&RULE);
        waiting().ps("S S -").silent(&RULE);
        waiting().stands(2, &[FETCH]).failed(2, -11, true).silent(&RULE);
    }

    #[test]
    fn it_waits_itself() {
        let wait = ("/opt/site-packages/torch/distributed/distributed_c10d.py", 4810, "barrier");
        waiting().stands(2, &[wait, FETCH]).silent(&RULE);
        // A victim in another group: rank 3 is the one.
        let chain = StagedCase::job(4).logs().group("a", 0..3).group("b", 2..4);
        chain
            .dumps(&["a/ar:9?", "a/ar:9?", "b/ar:9?", ""])
            .stands(3, &[FETCH])
            .expect(&RULE, &["stuck-outside-collective 3"]);
    }

    #[test]
    fn its_own_operation_waits_for_its_gpu() {
        // Rank 0's kernel has not started in one group; in another, which it has not come to, RAS counts a call less.
        let job = |scripts: &[&str; 3]| {
            let job = StagedCase::job(3).group("a", 0..2).group("b", 1..3).rings(scripts);
            job.ras(&["ar:5", "ar:5", "ar:6"]).stands(1, &[FETCH])
        };
        job(&["a/ar:9*12 a/ar:9?", "a/ar:9*12 b/ar:8*9 a/ar:9!", "b/ar:8*9 b/ar:8?"]).silent(&RULE);
        job(&["a/ar:9*12", "a/ar:9*12 b/ar:8*9", "b/ar:8*9 b/ar:8?"])
            .expect(&RULE, &["stuck-outside-collective 1"]);
    }

    #[test]
    fn a_worker_of_its_data_loader_is_not_the_rank() {
        let worker = [
            ("selectors.py", 415, "select"),
            ("torch/utils/data/_utils/worker.py", 318, "_worker_loop"),
            ("/srv/train.py", 44, "step"),
        ];
        waiting().stands(2, &worker).concludes(&RULE, "stuck-outside-collective 2 at step:10, low");
    }

    #[test]
    fn in_a_collective_that_nothing_records() {
        use ringleader_model::SecondLook;
        let gather = ("jax/experimental/multihost_utils.py", 158, "process_allgather.<locals>._pjit");
        let mut stage = StagedCase::job(2).rings_on(&["ar:9*12", "ar:9*12 ag:9?"], &[0, 0]);
        stage = stage.seen(1_000, "S R", |rank, picked| {
            picked.again = Some(SecondLook {
                after_ms: 1_500,
                state: if rank == 0 { "S" } else { "R" }.into(),
                cpu_ms: 9_000 + if rank == 0 { 0 } else { 1_500 },
                first_cpu_ms: 9_000,
                ..SecondLook::default()
            });
        });
        for _ in 0..2 {
            stage = stage.stands(0, &[gather, ("/srv/fit.py", 61, "main")]);
            stage = stage.stands(1, &[("/srv/fit.py", 40, "main")]);
        }
        stage.silent(&RULE);
        assert_eq!(crate::diagnose(&stage.case).cause, Cause::ExtraCollective);
    }

    #[test]
    fn ended_by_its_launcher_after_the_others_had_timed_out() {
        use crate::rules::process::peer_process_died;
        let job = || StagedCase::job(2).rings(&["ar:9*12 ar:9?", "ar:9*12"]).rings_gone();
        let ended = |job: StagedCase| job.failed(0, -6, true).failed(1, -15, false);
        let timed_out = ended(job().timed_out(0, "ar:9", 13, 13));
        timed_out.silent(&peer_process_died::RULE);
        timed_out.expect(&RULE, &["stuck-outside-collective 1"]);
        // One that was killed was not waited for in vain.
        job().timed_out(0, "ar:9", 13, 13).failed(1, -9, true).failed(0, -6, false).silent(&RULE);
    }

    #[test]
    fn on_its_way_out() {
        let leave =
            ("/opt/site-packages/torch/distributed/distributed_c10d.py", 2170, "destroy_process_group");
        waiting().stands(2, &[leave, FETCH]).silent(&RULE);
        let jax = [
            ("jax/_src/distributed.py", 244, "State.shutdown"),
            ("jax/_src/distributed.py", 433, "shutdown"),
            ("jax/_src/api.py", 2860, "clean_up"),
        ];
        waiting().stands(2, &jax).silent(&RULE);
        // A program's own function of that name is no farewell.
        waiting()
            .stands(2, &[("/srv/queue.py", 9, "shutdown")])
            .expect(&RULE, &["stuck-outside-collective 2"]);
    }
}
