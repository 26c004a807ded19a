use ringleader_evidence::{Limits, Scratch, merge, read};

use super::*;

/// What the readers make of a launcher's output.
fn output(text: &str) -> Case {
    let bytes = &mut text.as_bytes();
    merge(vec![read("stderr-0001.log", bytes, &mut Scratch::default(), &Limits::default())])
}

fn ends(text: &str) -> Ends {
    Ends::of(&output(text)).pop().unwrap_or_default()
}

/// torchrun's table: rank and exit code of each row, the first observed failure last.
fn table(rows: &[(u32, i32)]) -> String {
    let row = |(rank, code): &(u32, i32)| {
        format!(
            "[0]:\n  time      : 2026-11-20_08:22:23\n  host      : vm\n  rank      : {rank} (local_rank: {rank})\n  \
             exitcode  : {code} (pid: {})\n  error_file: <N/A>\n  traceback : To enable traceback see: \
             https://pytorch.org/docs/stable/elastic/errors.html\n",
            700 + rank
        )
    };
    let (root, others) = rows.split_last().unwrap();
    let others: String = others.iter().map(row).collect();
    format!(
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n{bar}\nt.py FAILED\n{line}\nFailures:\n{others}{line}\n\
         Root Cause (first observed failure):\n{}{bar}\n",
        row(root),
        bar = "=".repeat(60),
        line = "-".repeat(60),
    )
}

fn closing(pid: u32) -> String {
    format!(
        "W1120 08:21:51.212000 1330 torch/distributed/elastic/multiprocessing/api.py:897] Sending process {pid} closing signal SIGTERM\n"
    )
}

fn verdict(summary: &str, evidence: model::Evidence) -> Verdict {
    let finding = model::Finding {
        rule: "application-exception",
        cause: Cause::ApplicationException,
        category: model::Category::Crash,
        severity: model::Severity::Error,
        confidence: Confidence::High,
        title: summary.to_owned(),
        culprits: Vec::new(),
        victims: model::RankSet::default(),
        evidence: vec![evidence],
        actions: Vec::new(),
        weight: model::Weight::Stated,
        at_ns: None,
        call: None,
        explains: &[],
        is_outright: false,
        yields_to: None,
    };
    Verdict {
        cause: finding.cause,
        category: finding.category,
        confidence: finding.confidence,
        summary: summary.to_owned(),
        culprits: Vec::new(),
        victims: model::RankSet::default(),
        actions: Vec::new(),
        findings: vec![finding],
        needs: Vec::new(),
        ranks: Vec::new(),
    }
}

#[test]
fn an_exit_of_its_own_is_in_the_table() {
    assert_eq!(ends(&table(&[(1, 3)])).own_exit(), Some((1, 3)));
    assert_eq!(ends(&table(&[(0, -15), (1, 3)])).own_exit(), Some((1, 3)));
    for code in [1, 0, -9] {
        assert_eq!(ends(&table(&[(1, code)])).own_exit(), None);
    }
    assert_eq!(ends("exitcode : 3").own_exit(), None);
    // Of two tables the last one.
    assert_eq!(ends(&(table(&[(0, 7)]) + &table(&[(2, -15), (1, 3)]))).own_exit(), Some((1, 3)));
    let judgement = with_table(Judgement::unjudged("?"), || output(&table(&[(1, 3)])), &[0, 1]);
    assert_eq!((judgement.class, judgement.cause), (Class::Program, Cause::ApplicationException.into()));
    assert_eq!(judgement.summary, "rank 1 exited with code 3 and no traceback");
}

#[test]
fn a_rank_that_no_table_lists_has_left() {
    let text = table(&[(1, 1)]);
    assert_eq!(ends(&text).left_early(&[0, 1]), Some(vec![0]));
    // All are listed; no rank was observed; the launcher ended a rank, which may have exited with 0 for that reason.
    assert_eq!(ends(&table(&[(0, -15), (1, 1)])).left_early(&[0, 1]), None);
    assert_eq!(ends(&text).left_early(&[]), None);
    assert_eq!(ends(&(closing(8) + &text)).left_early(&[0, 1]), None);
    let three = closing(8) + &table(&[(2, -15), (1, 1)]);
    assert_eq!(ends(&three).left_early(&[0, 1, 2]), Some(vec![0]));
    let judgement = with_table(Judgement::unjudged("?"), || output(&text), &[0, 1]);
    assert_eq!((judgement.class, judgement.cause), (Class::Program, Cause::RankExitedEarly.into()));
}

#[test]
fn a_rank_that_is_gone_beside_a_live_launcher_exited_with_0() {
    let gone = |cause: Cause, rank| Judgement {
        cause: cause.into(),
        culprits: vec![Culprit { rank: Some(rank), ..Culprit::default() }],
        ..Judgement::unjudged("rank 1 is gone")
    };
    let judged = |text: &str, cause, rank| {
        with_live_launcher(gone(cause, rank), || output(text), &[0, 1]).cause.known().unwrap()
    };
    assert_eq!(judged("step 3\n", Cause::PeerProcessDied, 1), Cause::RankExitedEarly);
    // The launcher is ending the others; the rank is another node's; the verdict says something else.
    for ending in [
        closing(8),
        "E1120 08:21:51.212000 1330 torch/distributed/elastic/multiprocessing/api.py:986] failed (exitcode: -9) local_rank: 1 \
         (pid: 8) of binary: /usr/bin/python\n"
            .to_owned(),
        "[2026-11-20 08:21:34,113] [ERROR] [launch.py:321:sigkill_handler] ['python', 'train.py'] exits with return code = -9\n"
            .to_owned(),
    ] {
        assert_eq!(judged(&ending, Cause::PeerProcessDied, 1), Cause::PeerProcessDied, "{ending}");
    }
    assert_eq!(judged("step 3\n", Cause::PeerProcessDied, 5), Cause::PeerProcessDied);
    assert_eq!(judged("step 3\n", Cause::ProcessStopped, 1), Cause::ProcessStopped);
}

#[test]
fn what_the_world_answers_is_no_fault_of_the_program() {
    for (text, expected) in [
        ("OSError: [Errno 28] No space left on device: '/data'", true),
        ("OSError: [Errno 116] Stale file handle", true),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'x'", false),
        ("ValueError: batch 28", false),
        ("[Errno ", false),
    ] {
        let is_of_the_world = errno::in_python(text).any(errno::Errno::is_of_the_world);
        assert_eq!(is_of_the_world, expected, "{text}");
    }
}

#[test]
fn the_exception_itself_says_whether_the_world_is_to_blame() {
    let text = "Traceback (most recent call last):\n  File \"/srv/t.py\", line 3, in save\n    f.write(x)\n";
    for (raised, summary, expected) in [
        ("OSError: [Errno 28] No space left on device", "rank 1 raised OSError", true),
        ("OSError: [Errno 2] No such file or directory", "rank 1 raised OSError", false),
        ("RuntimeError: no room", "rank 1 raised OSError: [Errno 28] No space left on device", true),
    ] {
        let case = output(&format!("{text}{raised}\n"));
        let is_raised = |o: &&model::Observation| matches!(&o.fact, Fact::Torch(TorchEvent::Exception(_)));
        let observation = case.observations.iter().find(is_raised).unwrap();
        let evidence = model::Evidence {
            cite: observation.cite,
            text: observation.text.to_string(),
            kind: model::SourceKind::TorchLog,
        };
        let verdict = verdict(summary, evidence);
        assert_eq!(is_of_the_world(&case, &verdict), expected, "{raised}");
        let judgement = judged(&case, &verdict, Path::new("a.tar.zst"), &[]);
        assert_eq!(judgement.class, if expected { Class::Unknown } else { Class::Program });
        assert_eq!(judgement.evidence.first().map(|cited| &*cited.source), Some("stderr-0001.log"));
    }
}
