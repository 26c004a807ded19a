//! What must hold before a job may be called healthy. That no rule found anything is not enough: what was not seen is
//! not healthy, and what is unfinished, truncated or unexplained has not ended well.

use std::borrow::Cow;
use std::collections::BTreeSet;

use ringleader_knowledge::sign;
use ringleader_model::{
    Case, Confidence, Fact, NetFact, Note, NoteKind, Observation, Pick, PickedProcess, Pid, ProcessRow, Rank,
    RankSet, ReachOutcome, Scheduler, SchedulerEvent, SchedulerKind, Source, SourceId, SourceKind,
};

use ringleader_correlate::Scene;
use ringleader_correlate::signs::SeenSign;
use ringleader_correlate::track::{GroupRecorder, Origin};
use ringleader_correlate::waits::suspects::Suspect;
use ringleader_correlate::when::window::{has_records, is_cut};
use ringleader_correlate::who::roster::told_size;

/// Whether a source is evidence of a kind that is known. Text may be anything, and a manifest only lists others.
pub fn is_known(source: &Source) -> bool {
    let known =
        |kind: &SourceKind| !matches!(kind, SourceKind::PlainText | SourceKind::Bundle | SourceKind::Unknown);
    source.kinds.iter().any(known)
}

/// No evidence shows anything of a job: that is not health. (The quiet output of a healthy job is text, and counts
/// beside evidence that there is a job.)
pub(crate) fn is_without_evidence(case: &Case) -> bool {
    let says_something = |o: &Observation| match &o.fact {
        Fact::Flight(dump) => !dump.ops.is_empty(),
        Fact::Ras(report) => !report.comms.is_empty() || !report.missing_processes.is_empty(),
        Fact::Timeline(timeline) => !timeline.work.is_empty(),
        Fact::Processes(table) => !table.rows.is_empty(),
        Fact::Words(_)
        | Fact::Sign(_)
        | Fact::StepTimes(_)
        | Fact::Pace(_)
        | Fact::Outlier(_)
        | Fact::Apart(_)
        | Fact::Hosts(_) => false,
        _ => true,
    };
    let quiet = |s: &Source| s.kinds.contains(&SourceKind::PlainText) && s.size_bytes > 0;
    if !case.sources.iter().any(is_known) {
        // Text that was read as a whole may be the quiet output of a healthy job; what could not be read is nothing.
        let is_whole =
            |n: &Note| matches!(n.kind, NoteKind::Unrecognised | NoteKind::Remark | NoteKind::Empty);
        return !case.notes.iter().all(is_whole) || !case.sources.iter().any(quiet);
    }
    !case.observations.iter().any(says_something) && !case.sources.iter().any(quiet)
}

/// Which files end before their end, in words, where something of them was read.
pub(crate) fn cut(case: &Case) -> Option<String> {
    let truncated = case.notes.iter().filter(|note| note.kind == NoteKind::Truncated);
    let of =
        |note: &Note| case.sources.get(note.cite.source.0 as usize).filter(|source| source.size_bytes > 0);
    let files: BTreeSet<&str> = truncated.filter_map(of).map(|source| source.path.as_str()).collect();
    let first = files.first()?;
    let which = match files.len() {
        1 => format!("{first} is cut off"),
        n => format!("{first} and {} more are cut off", n - 1),
    };
    Some(format!("{which}: the part before the cut shows no failure, and what followed is unknown"))
}

/// A log of the job that could not be read to its end, in words: a healthy beginning is no healthy end.
fn cut_log(case: &Case) -> Option<String> {
    let is_log = |source: &&Source| {
        let kinds = [SourceKind::NcclLog, SourceKind::TorchLog, SourceKind::PlainText];
        source.size_bytes > 0 && source.kinds.iter().any(|kind| kinds.contains(kind))
    };
    let truncated = case.notes.iter().filter(|note| note.kind == NoteKind::Truncated);
    let of = |note: &Note| case.sources.get(note.cite.source.0 as usize).filter(is_log);
    let files: BTreeSet<&str> = truncated.filter_map(of).map(|source| source.path.as_str()).collect();
    let first = files.first()?;
    Some(match files.len() {
        1 => format!("{first} is cut off, and what its missing part held is unknown: give the whole file"),
        n => format!(
            "{first} and {} more are cut off, and what their missing parts held is unknown: give the whole files",
            n - 1
        ),
    })
}

/// Something is wrong, or a message claims that something failed.
pub(crate) fn in_trouble(scene: &Scene<'_>) -> bool {
    trouble(scene).is_some() || scene.has_failed()
}

/// The job ended in order, and nothing was wrong with it: whatever else was reported, it completed regardless.
pub(crate) fn completed(scene: &Scene<'_>) -> bool {
    scene.course().ended_in_order() && !in_trouble(scene)
}

/// The first sign that something is wrong, in words.
pub(crate) fn trouble(scene: &Scene<'_>) -> Option<Cow<'static, str>> {
    known_trouble(scene)
        .map(Cow::Borrowed)
        .or_else(|| ended(scene).or_else(|| stands(scene)).map(Cow::Owned))
        .or_else(|| {
            let (row, process) = blocked(scene).next()?;
            let (_, place) = process.blocked.first()?;
            let place =
                if place.is_empty() || &**place == "0" { String::new() } else { format!(" ({place})") };
            let who = whom(scene, row);
            Some(format!("{who} stayed in the kernel{place} and did not run between two samples").into())
        })
}

fn known_trouble(scene: &Scene<'_>) -> Option<&'static str> {
    // Counts of a running job differ for a moment; states that a recorder kept do not.
    let held_up = |s: &Suspect| !s.weak && s.views.iter().any(|v| *v != GroupRecorder::Ras);
    if let Some((way, _)) = scene.failure().first() {
        return Some(way.words());
    }
    if !scene.stood_still().is_empty() {
        return Some("the job made no progress while it was watched");
    }
    if ended_within(scene) {
        return Some(
            "the processes ended, or their records were copied, during operations that no rank finished",
        );
    }
    if scene.suspects().iter().any(held_up) {
        return Some("ranks wait for another rank");
    }
    if !scene.ledger().may_run() && has_unfinished(scene) {
        return Some("the recorders hold unfinished operations");
    }
    if scene
        .ras()
        .any(|(_, r)| !r.missing_processes.is_empty() || r.comms.iter().any(|c| !c.missing.is_empty()))
    {
        return Some("some ranks do not answer RAS");
    }
    if scene.signs().get(sign::ids::NOTE_STANDS_STILL).is_some_and(|note| !is_done(scene, note)) {
        return Some("a note in the evidence says that nothing moves");
    }
    if scene.signs().get(sign::ids::NOTE_OF_FAILURE).is_some_and(|note| !is_done(scene, note)) {
        return Some("a note in the evidence says that something fails");
    }
    if scene.signs().get(sign::ids::TOOL_REPORTS_TROUBLE).is_some_and(|line| !is_done(scene, line)) {
        return Some("a tool or a driver reports a failure of its own");
    }
    let is_there = |id| scene.signs().get(id).is_some();
    if is_there(sign::ids::ENGINE_IS_STARTING)
        && !is_there(sign::ids::ENGINE_IS_UP)
        && !scene.course().text().goes_on()
    {
        return Some("an engine was started, and nothing shows that it came up");
    }
    if scene.signs().get(sign::ids::THROUGHPUT_DROPS).is_some() {
        return Some("the speed of training falls below half, and stays there for a while");
    }
    if scene.signs().get(sign::ids::MORE_GPUS_NO_FASTER).is_some() {
        return Some("the same program is no faster on more GPUs than on fewer");
    }
    if failed_by_account(scene) {
        return Some("the scheduler's account says that a job failed");
    }
    // Beside a job that goes on, a dropped echo proves nothing.
    let is_lost = |fact: &NetFact| match fact {
        NetFact::Reach(reach) => {
            matches!(
                reach.outcome,
                ReachOutcome::TimedOut | ReachOutcome::NoRoute | ReachOutcome::UnknownHost
            )
        }
        _ => false,
    };
    if !scene.has_job() && scene.net().any(|(_, fact)| is_lost(fact)) {
        return Some("a test of the network got no answer");
    }
    if scene.fates().any_stopped() {
        return Some("a process of the job is stopped");
    }
    if scene.case().sources.iter().any(|s| s.kinds.contains(&SourceKind::ElasticError)) {
        return Some("a process left an error file");
    }
    scene.failure().was_asked_to_stop().then_some("the launcher was stopped from outside")
}

/// The scheduler counts a job as failed, and it is the job of the evidence, or nothing else is known of that.
fn failed_by_account(scene: &Scene<'_>) -> bool {
    let schedulers = scene.schedulers();
    let is_ours = |e: &SchedulerEvent| {
        if scene.has_job() { schedulers.covers_job(e) } else { !schedulers.is_of_other_job(e) }
    };
    let is_failed = |e: &SchedulerEvent| e.scheduler == Scheduler::Slurm && e.kind == SchedulerKind::Failed;
    schedulers
        .events()
        .any(|(_, e)| is_failed(e) && is_ours(e) && scene.precedes_job(e.ended_at) != Some(true))
}

/// A program's own word that it is done: of the one whose output has the note, where that shows steps.
fn is_done(scene: &Scene<'_>, note: &SeenSign) -> bool {
    let sources: Vec<SourceId> = note.evidence.iter().map(|e| e.cite.source).collect();
    scene.course().text().is_done_in(&sources)
}

/// No rank went on between two readings of a job that runs, where nothing records its operations.
fn stands(scene: &Scene<'_>) -> Option<String> {
    let looks = scene.looks();
    (is_sight_alone(scene) && (looks.all_stand() || looks.may_go_on())).then(|| {
        let woke = if looks.may_go_on() { ", and woke in between: it is slow, or polls" } else { "" };
        format!(
            "each rank was seen in one place in two samples {:.0} s apart{woke}, which shows no progress",
            looks.apart_s()
        )
    })
}

/// Processes of the job that a snapshot has seen.
fn picked<'a>(scene: &Scene<'a>) -> impl Iterator<Item = (&'a ProcessRow, &'a PickedProcess)> {
    let rows = scene.process_tables().flat_map(|(_, table)| &table.rows);
    rows.filter_map(|row| Some((row, row.picked.as_deref()?))).filter(|(_, process)| process.is_of_job)
}

/// One that has ended beside others that live, where no record shows how they end.
fn ended(scene: &Scene<'_>) -> Option<String> {
    let is_over = |(row, _): &(&ProcessRow, &PickedProcess)| row.state.starts_with(['Z', 'X']);
    let (row, _) = picked(scene).find(is_over).filter(|_| !has_records(scene.case()))?;
    let lives = picked(scene).any(|one| !is_over(&one));
    lives.then(|| format!("{} has ended while other processes of the job are alive", whom(scene, row)))
}

/// Ranks with a thread that stayed in the kernel from one look to the next. A ring that was read from a living process
/// shows better whether it goes on.
pub(crate) fn blocked<'a>(scene: &Scene<'a>) -> impl Iterator<Item = (&'a ProcessRow, &'a PickedProcess)> {
    let live: BTreeSet<Pid> =
        scene.rings().iter().filter(|(_, ring)| ring.is_live).filter_map(|(o, _)| o.who.pid).collect();
    picked(scene).filter(move |(row, process)| {
        !process.blocked.is_empty() && !row.pid.is_some_and(|pid| live.contains(&pid))
    })
}

/// `rank 3 (pid 4711)`.
fn whom(scene: &Scene<'_>, row: &ProcessRow) -> String {
    let Some(pid) = row.pid else { return "a process".to_owned() };
    match scene.roster().rank_of(pid, None) {
        Some(rank) => format!("rank {} (pid {})", rank.0, pid.0),
        None => format!("pid {}", pid.0),
    }
}

/// What of the job could not be seen, or was cut off, in words: what is not seen is not healthy.
pub(crate) fn unseen(scene: &Scene<'_>) -> Option<String> {
    let notes = |is: &dyn Fn(NoteKind, &Source) -> bool| {
        let source = |id: ringleader_model::SourceId| scene.case().sources.get(id.0 as usize);
        scene.case().notes.iter().any(|n| source(n.cite.source).is_some_and(|s| is(n.kind, s)))
    };
    if is_cut(scene.case()) {
        return Some("an archive is truncated, and what the missing part held is unknown".to_owned());
    }
    if let Some(cut) = cut_log(scene.case()) {
        return Some(cut);
    }
    let known: BTreeSet<Pid> = scene.roster().members.iter().filter_map(|m| m.pid).collect();
    let hidden = picked(scene).find_map(|(row, process)| {
        let why = process.hidden.as_deref()?;
        // Its own records may have shown all that matters.
        let is_known = has_records(scene.case()) && row.pid.is_some_and(|pid| known.contains(&pid));
        (!is_known).then(|| format!("{} could not be inspected: {why}", whom(scene, row)))
    });
    if hidden.is_some() || has_records(scene.case()) {
        return hidden;
    }
    let is_damage =
        |kind| matches!(kind, NoteKind::Truncated | NoteKind::Malformed | NoteKind::UnknownVersion);
    if notes(&|kind, source| is_damage(kind) && source.kinds.contains(&SourceKind::NodeSnapshot)) {
        return Some("the state of the node could not be read completely".to_owned());
    }
    if picked(scene).next().is_some() {
        let ranks: BTreeSet<Rank> = scene.roster().members.iter().filter_map(|m| m.rank).collect();
        let world = told_size(scene.case()).unwrap_or(0) as usize;
        let n_seen = ranks.len();
        return (n_seen > 0 && n_seen < world).then(|| {
            let absent: RankSet = scene.looks().missing().iter().copied().collect();
            let which = match absent.len() {
                0 => String::new(),
                1 => format!(", and rank {absent} was not"),
                _ => format!(", and ranks {absent} were not"),
            };
            format!("{n_seen} of {world} ranks were seen{which}")
        });
    }
    let picks = || {
        scene.case().observations.iter().filter_map(|o| match &o.fact {
            Fact::Processes(table) => table.pick.as_ref(),
            _ => None,
        })
    };
    if let Some(why) = picks().find_map(|pick: &Pick| pick.unread.as_deref()) {
        return Some(format!("the job's processes were not seen: {why}"));
    }
    let n_hidden = picks().map(|pick| pick.n_hidden).max().unwrap_or(0);
    (n_hidden > INIT).then(|| {
        format!(
            "no process of a job was seen, and {n_hidden} processes of other users could not be inspected"
        )
    })
}

/// Only root may look into init; that alone hides no job.
const INIT: u32 = 1;

/// The job's processes are known to live, and nothing has recorded what they do.
pub(crate) fn is_sight_alone(scene: &Scene<'_>) -> bool {
    scene.has_job() && !has_records(scene.case())
}

/// Rings of processes that are gone, or were copied by hand, hold operations in flight.
fn ended_within(scene: &Scene<'_>) -> bool {
    scene.rings().iter().any(|(_, ring)| {
        !ring.is_live && !ring.is_ended && ring.ops.iter().any(ringleader_model::RingOp::is_open)
    })
}

/// Some rank's recorder holds a collective that it has entered and not finished.
fn has_unfinished(scene: &Scene<'_>) -> bool {
    let groups = scene.ledger().groups().iter().filter(|g| g.view.knows_ends());
    groups
        .flat_map(|g| g.tracks.iter().flatten())
        .filter(|t| matches!(t.origin, Origin::Dump(_) | Origin::Ring(_)))
        .any(|t| t.finished.is_some_and(|finished| finished < t.entered))
}

/// Health is as sure as the evidence that would have shown a fault: the records of every rank.
pub(crate) fn confidence(scene: &Scene<'_>) -> Confidence {
    if scene.ledger().may_run() {
        return Confidence::Low;
    }
    let largest_group = scene.dumps().iter().flat_map(|d| &d.dump.groups).map(|g| g.ranks.len()).max();
    let world = scene.roster().world_size.map_or(0, |n| n as usize).max(largest_group.unwrap_or(0));
    let whole = scene.dumps().iter().filter(|d| !d.dump.truncated && !d.dump.ops.is_empty()).count();
    let logged: BTreeSet<Rank> = scene
        .ledger()
        .groups()
        .iter()
        .filter(|g| g.view == GroupRecorder::Nccl)
        .flat_map(|g| g.tracks.iter().flatten())
        .filter(|t| !t.open_end)
        .filter_map(|t| t.rank)
        .collect();
    let rings = scene.rings();
    // Rings that were closed in order, or read from a living job that nothing holds up.
    let closed = rings.iter().filter(|(_, r)| r.is_ended || r.is_live).count();
    let whole = whole.max(closed);
    match (world > 0 && whole >= world, world > 0 && logged.len() >= world) {
        (true, true) => Confidence::High,
        (false, false) => Confidence::Low,
        _ => Confidence::Medium,
    }
}

#[cfg(test)]
mod tests {
    use ringleader_correlate::Scene;
    use ringleader_model::{
        Cite, Confidence, Fact, KernelEventKind, Note, NoteKind, Pick, PickedProcess, Pid, Progress, Sign,
        SourceId, SourceKind, SystemFact, TorchEvent, Who,
    };

    use super::trouble;
    use crate::diagnose;
    use crate::trial::StagedCase;

    #[track_caller]
    fn says(stage: &StagedCase, expected: &str) {
        let verdict = diagnose(&stage.case);
        assert_eq!(format!("{}, {}", verdict.cause, verdict.confidence), expected, "{verdict:#?}");
    }

    #[test]
    fn health_is_as_sure_as_the_records_of_every_rank() {
        let ended = ["ar:1 ar:9", "ar:1 ar:9", "ar:1 ar:9"];
        says(&StagedCase::job(3).dumps(&ended), "none, medium");
        says(&StagedCase::job(3).dump(0, "ar:1 ar:9"), "none, low");
        assert!(Confidence::Low < Confidence::Medium);
    }

    /// A note counts unless its own program is done; where that shows no steps at all, any program.
    #[test]
    fn a_note_of_failure_beside_a_program_that_is_done() {
        let noted = |own: Option<bool>, other: Option<bool>| {
            let sign = Sign { id: "note-of-failure", count: 1 };
            let mut stage = StagedCase::new().push(SourceKind::PlainText, Who::default(), Fact::Sign(sign));
            for (source, ended) in [(Some(SourceId(0)), own), (None, other)] {
                let Some(ended) = ended else { continue };
                stage =
                    stage.push(SourceKind::PlainText, Who::default(), Fact::Progress(Progress::default()));
                let Some(last) = stage.case.observations.last_mut() else { continue };
                last.cite.source = source.unwrap_or(last.cite.source);
                let ended = ended.then_some(last.cite);
                last.fact = Fact::Progress(Progress {
                    n_steps: 1,
                    last: Some(last.cite),
                    ended,
                    ..Progress::default()
                });
            }
            let scene = Scene::new(&stage.case);
            (trouble(&scene).is_some(), scene.course().text().goes_on())
        };
        assert_eq!(noted(None, None), (true, false));
        assert_eq!(noted(Some(true), Some(false)), (false, true));
        assert_eq!(noted(Some(false), Some(true)), (true, true));
        assert_eq!(noted(None, Some(true)), (false, true));
        assert_eq!(noted(Some(false), None), (true, false));
    }

    #[test]
    fn an_engine_that_does_not_come_up() {
        let seen = |ids: &[&'static str]| {
            let stage = ids.iter().fold(StagedCase::new(), |stage, id| {
                stage.push(SourceKind::PlainText, Who::default(), Fact::Sign(Sign { id, count: 1 }))
            });
            trouble(&Scene::new(&stage.case)).is_some()
        };
        assert!(seen(&["engine-is-starting"]));
        assert!(!seen(&["engine-is-starting", "engine-is-up"]));
    }

    #[test]
    fn what_is_unfinished_has_not_ended() {
        says(&StagedCase::job(3).dump(0, "ar:1 ar:9?"), "undecided, low");
    }

    #[test]
    fn a_dump_without_entries_is_no_evidence() {
        says(&StagedCase::job(3).dumps(&["", "", ""]), "undecided, low");
    }

    fn noted(stage: &mut StagedCase, source: SourceId, kind: NoteKind) {
        let cite = Cite::whole(source);
        stage.case.notes.push(Note { cite, kind, text: "cannot be read further".into() });
    }

    /// A source of its own, of no kind.
    fn cut_archive(stage: &mut StagedCase) {
        let source = stage.source(SourceKind::Unknown);
        stage.case.sources.iter_mut().skip(source.0 as usize).for_each(|s| s.kinds.clear());
        noted(stage, source, NoteKind::Truncated);
    }

    #[test]
    fn text_alone_says_little_and_what_could_not_be_read_nothing() {
        let mut stage = StagedCase::new();
        stage.source(SourceKind::PlainText);
        // It may be the quiet output of a job that is well, and nothing shows that it is.
        says(&stage, "undecided, low");
        noted(&mut stage, SourceId(0), NoteKind::Unreadable);
        says(&stage, "undecided, low");
        let mut other = StagedCase::new();
        other.source(SourceKind::Unknown);
        says(&other, "undecided, low");
    }

    #[test]
    fn what_was_not_seen_is_not_well() {
        let seen = |change: fn(u32, &mut PickedProcess)| StagedCase::new().seen(1_000, "S S", change);
        says(&seen(|_, _| {}), "none, low");
        // Each of one rank says that there are two.
        says(&StagedCase::new().seen(1_000, "S", |_, _| {}), "undecided, low");
        let hidden = || seen(|rank, p| p.hidden = (rank == 1).then(|| "it is another user's".into()));
        says(&hidden(), "undecided, low");
        // Its log showed all that matters.
        says(&hidden().process("node0", 100, Some(0)).process("node0", 101, Some(1)), "none, low");
        let list = |pick| {
            StagedCase::new().picked(Vec::new(), pick).system("node0", SystemFact::Modules(Vec::new()))
        };
        says(&list(Pick { n_hidden: 1, ..Pick::default() }), "none, low");
        says(&list(Pick { n_hidden: 200, ..Pick::default() }), "undecided, low");
        says(
            &list(Pick { unread: Some("no answer within 5000 ms".into()), ..Pick::default() }),
            "undecided, low",
        );
    }

    #[test]
    fn a_process_that_has_ended_beside_others() {
        says(&StagedCase::new().seen(1_000, "S Z", |_, _| {}), "undecided, low");
    }

    #[test]
    fn a_rank_that_does_not_leave_the_kernel() {
        let blocked = |_: u32, p: &mut PickedProcess| p.blocked.push((101, "rpc_wait_bit_killable".into()));
        says(&StagedCase::new().seen(1_000, "S D:rpc_wait_bit_killable", blocked), "undecided, low");
        // One look shows nothing.
        says(&StagedCase::new().seen(1_000, "S D:rpc_wait_bit_killable", |_, _| {}), "none, low");
        // Its ring was read while it lived, and nothing in it is overdue.
        let rings = || StagedCase::job(2).rings(&["ar:9", "ar:9"]);
        let cause = |stage: StagedCase| diagnose(&stage.case).cause;
        assert_eq!(cause(rings()), cause(rings().seen(1_000, "S D", blocked)));
    }

    #[test]
    fn an_archive_that_ends_early() {
        let mut stage = StagedCase::job(3).dumps(&["ar:1 ar:9", "ar:1 ar:9", "ar:1 ar:9"]);
        cut_archive(&mut stage);
        says(&stage, "undecided, low");
        // A kernel log in it may be beside a job that was cut off.
        let crash = KernelEventKind::Crash {
            pid: Some(Pid(7)),
            name: "python3".into(),
            what: "segfault".into(),
            object: None,
        };
        let mut alone = StagedCase::new().kernel("", crash);
        says(&alone, "process-crashed, medium");
        cut_archive(&mut alone);
        says(&alone, "undecided, low");
    }

    #[test]
    fn a_launcher_that_was_stopped_did_not_end_by_itself() {
        let stopped = TorchEvent::LauncherKilled { signal: "15".into() };
        says(
            &StagedCase::new().torch(None, stopped, "Received 15 death signal, shutting down workers"),
            "stopped-from-outside, medium",
        );
    }
}
