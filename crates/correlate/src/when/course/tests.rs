//! What each question says of one statement, at line 5 of a source.

use ringleader_model::{
    Case, Cite, Fact, NanLine, Observation, Progress, PythonException, Rank, Said, SaidForm, SourceId,
    SourceKind, TorchEvent, WatchEvent, WatchedEnd, Who,
};

use crate::Scene;
use crate::said::statements::Stated;
use crate::staging::StagedCase;
use crate::when::failure::Way;

fn line(n: u32) -> Cite {
    Cite { source: SourceId(0), line: n, start: u64::from(n) * 100, end: u64::from(n) * 100 + 99 }
}

/// A source with its last two steps and its end at these lines.
fn text(before_last: Option<u32>, last: Option<u32>, ended: Option<u32>) -> StagedCase {
    let of = |at: Option<u32>| at.map(line);
    let progress = Progress {
        n_steps: before_last.iter().chain(&last).count() as u32,
        before_last: of(before_last),
        last: of(last),
        ended: of(ended),
        ..Progress::default()
    };
    StagedCase::new().push(SourceKind::PlainText, Who::default(), Fact::Progress(progress))
}

/// The last process of rank 0, by a watcher that saw all end.
fn exited(stage: StagedCase, exit_code: i64) -> StagedCase {
    let end = WatchedEnd { rank: Rank(0), at_ns: 9, exit_code: Some(exit_code) };
    stage.push(SourceKind::Watch, Who::default(), Fact::Watch(WatchEvent::Gone(vec![end], true)))
}

/// A communicator that was ready, in a source of its own.
fn communicator(stage: StagedCase, is_destroyed: bool) -> StagedCase {
    let mut stage = stage.process("node0", 1, None).comm(0, 2, 1, true);
    for observation in &mut stage.case.observations {
        if let Fact::Nccl(log) = &mut observation.fact {
            log.comms.iter_mut().filter(|_| is_destroyed).for_each(|c| c.destroyed = c.completed);
        }
    }
    stage
}

fn with(case: &Case, fact: Fact) -> Case {
    let mut case = case.clone();
    let text = "it failed".into();
    case.observations.push(Observation { cite: line(5), who: Who::default(), at: None, fact, text });
    case
}

fn said() -> Fact {
    Fact::Said(Box::new(Said {
        template: "it failed".into(),
        count: 1,
        last: line(5),
        last_at: None,
        form: SaidForm::default(),
        named: ringleader_model::Named::default(),
        rows: Vec::new(),
        is_read: false,
    }))
}

/// The questions that are answered with yes.
fn answers(stage: &StagedCase) -> String {
    let case = with(&stage.case, said());
    let scene = Scene::new(&case);
    let is_survived = |event: TorchEvent, way: Way| {
        let case = with(&stage.case, Fact::Torch(event));
        !Scene::new(&case).failure().has(way)
    };
    let raised = PythonException { class: "OSError".into(), ..PythonException::default() };
    let crash = TorchEvent::Crash { signal: None, reason: "Aborted".into(), threads: Vec::new() };
    let yes = [
        ("statement", scene.stated().all().iter().all(|s: &Stated<'_>| scene.course().was_outlived(s))),
        ("exception", is_survived(TorchEvent::Exception(raised.into()), Way::Raised)),
        ("crash", is_survived(crash, Way::Crashed)),
        ("overcome", scene.course().was_overcome(line(5))),
        ("followed", scene.course().text().was_followed(line(5))),
        ("done", scene.course().was_done_after(line(5))),
        ("closed", scene.course().closed_in_order(line(5))),
        ("order", scene.course().ended_in_order()),
        ("exits", scene.course().exited_well()),
    ];
    yes.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
}

#[test]
fn what_the_text_shows() {
    assert_eq!(answers(&text(None, None, None)), "");
    assert_eq!(answers(&text(Some(1), Some(2), Some(3))), "");
    // One more step; two; the end.
    assert_eq!(answers(&text(Some(4), Some(6), None)), "followed");
    assert_eq!(answers(&text(Some(6), Some(7), None)), "statement exception overcome followed");
    assert_eq!(answers(&text(None, None, Some(6))), "statement exception crash overcome done");
}

#[test]
fn what_exit_codes_show() {
    assert_eq!(answers(&exited(text(None, None, None), 0)), "statement exception crash overcome done exits");
    assert_eq!(answers(&exited(text(None, None, None), 1)), "");
}

/// A process that a launcher saw fail makes the text of others no proof, and of a statement it does not.
#[test]
fn beside_a_process_that_failed() {
    let failed = |stage: StagedCase| stage.failed(1, 1, true);
    assert_eq!(answers(&failed(text(Some(6), Some(7), None))), "statement exception followed");
    assert_eq!(answers(&failed(text(None, None, Some(6)))), "statement exception crash");
    let restarted = exited(failed(text(None, None, None)), 0);
    assert_eq!(answers(&restarted), "statement exception crash overcome done exits");
}

#[test]
fn what_communicators_show() {
    assert_eq!(answers(&communicator(text(None, None, None), true)), "closed order");
    assert_eq!(answers(&communicator(text(None, None, None), false)), "");
    // An exception is a failure, and no process is known to have ended by it.
    let raised = communicator(text(None, None, None), true).raised(Some(1), "OSError", "x", &[]);
    assert_eq!(answers(&raised), "closed");
    assert_eq!(answers(&communicator(text(None, None, None).failed(1, 1, true), true)), "");
    let asked = TorchEvent::Started;
    assert_eq!(answers(&communicator(text(None, None, None), true).torch(None, asked, "")), "closed");
}

/// What is wrong with results does not stop a job.
#[test]
fn a_wrong_result_is_not_overcome_by_more_steps() {
    let mut case = with(&text(Some(6), Some(7), Some(8)).case, said());
    for observation in &mut case.observations {
        if let Fact::Said(said) = &mut observation.fact {
            said.form.nan = Some(NanLine::default());
        }
    }
    let scene = Scene::new(&case);
    assert!(scene.stated().all().iter().all(|s| !scene.course().was_outlived(s)));
}
