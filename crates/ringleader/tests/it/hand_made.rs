//! Verdicts made by hand, so that the forms of the report are tested apart from the rules.

use ringleader_model::*;

/// A case of a few sources with notes, as a folder with trouble in it gives.
pub(crate) fn case() -> Case {
    let source = |path: &str, kinds: &[SourceKind], size_bytes| Source {
        path: path.into(),
        kinds: kinds.into(),
        size_bytes,
    };
    let note = |at: u32, line, kind, text: &str| Note {
        cite: Cite { source: SourceId(at), line, start: 0, end: 0 },
        kind,
        text: text.into(),
    };
    Case {
        sources: vec![
            source("fr_rank0", &[SourceKind::FlightRecorder], 7823),
            source("fr_rank2", &[SourceKind::FlightRecorder], 7689),
            source("latest", &[], 0),
            source(
                "logs.tar.gz!node\u{1b}[31m-b/stderr.log",
                &[SourceKind::NcclLog, SourceKind::TorchLog],
                17705,
            ),
            source("secret.log", &[], 0),
        ],
        observations: Vec::new(),
        notes: vec![
            note(1, 0, NoteKind::Truncated, "the dump ends in entry 12; what came before was read"),
            note(2, 0, NoteKind::Remark, "link not followed: fr_rank0 is read at its own place"),
            note(
                3,
                812,
                NoteKind::LimitReached,
                "line 812 is longer than 1048576 bytes; its rest was passed over",
            ),
            note(
                4,
                0,
                NoteKind::Unreadable,
                "not read: Permission denied (os error 13); run as its owner or as root, or have its owner grant access: setfacl -R -m u:USER:rX PATH",
            ),
        ],
    }
}

fn evidence(source: u32, line: u32, span: (u64, u64), kind: SourceKind, text: &str) -> Evidence {
    Evidence {
        cite: Cite { source: SourceId(source), line, start: span.0, end: span.1 },
        text: text.into(),
        kind,
    }
}

fn culprit() -> Culprit {
    Culprit {
        rank: Some(Rank(2)),
        host: Some("vm".into()),
        pid: Some(Pid(1347)),
        local_rank: Some(LocalRank(2)),
        gpu: PciAddress::parse("0000:00:08.0"),
        place: Some(Frame { function: "sync_grads".into(), file: "/srv/train/train.py".into(), line: 83 }),
    }
}

fn actions() -> Vec<Action> {
    vec![
        Action {
            text: "Make every rank call all_reduce the same number of times: sync_grads leaves it out under a condition that differs between ranks".into(),
            command: None,
            impact: Impact::Harmless,
        },
        Action {
            text: "Stop the job; it will not go on by itself".into(),
            command: Some("kill 1345 1346 1347 1348".into()),
            impact: Impact::Disruptive,
        },
        Action {
            text: "Record more of the next run".into(),
            command: Some("TORCH_FR_BUFFER_SIZE=20000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 NCCL_DEBUG=INFO torchrun --nproc-per-node 4 train.py --name 'a long quoted name'".into()),
            impact: Impact::Harmless,
        },
    ]
}

/// A hang with a proof whose words try to act on the reader's terminal and ticket.
pub(crate) fn hang() -> Verdict {
    let first = Finding {
        rule: "skipped-collective",
        cause: Cause::SkippedCollective,
        category: Category::Hang,
        severity: Severity::Error,
        confidence: Confidence::High,
        title: "rank 2 skipped all_reduce #45 of the world group".into(),
        culprits: vec![culprit()],
        victims: [0, 1, 3].map(Rank).into_iter().collect(),
        evidence: vec![
            evidence(
                1,
                0,
                (5120, 5360),
                SourceKind::FlightRecorder,
                "#45 all_gather, state started, sync_grads at train.py:83",
            ),
            evidence(0, 0, (5104, 5344), SourceKind::FlightRecorder, "#45 all_reduce, state started"),
            evidence(
                3,
                97,
                (9000, 9400),
                SourceKind::TorchLog,
                "[rank0]:[E1120 08:17:08.659 ProcessGroupNCCL.cpp:689] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=45, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=20000) ran for 20013 milliseconds before timing out.",
            ),
            evidence(
                3,
                120,
                (9900, 9990),
                SourceKind::TorchLog,
                "\u{1b}]0;owned\u{7}\u{1b}[31mred\u{1b}[0m \u{202e}txt.exe\n```\n## <img src=x> @someone #1\n\u{9b}2J",
            ),
        ],
        actions: actions(),
        weight: Weight::Stated,
        at_ns: None,
        explains: &[],
        is_outright: false,
        yields_to: None,
        call: None,
    };
    let second = Finding {
        rule: "watchdog-timeout",
        cause: Cause::ProcessStopped,
        severity: Severity::Warning,
        confidence: Confidence::Low,
        title: "ranks 0-1,3 gave up waiting after 20 s, which is the configured limit of this group".into(),
        culprits: Vec::new(),
        evidence: vec![evidence(
            3,
            97,
            (9000, 9400),
            SourceKind::TorchLog,
            "Watchdog caught collective operation timeout",
        )],
        actions: Vec::new(),
        weight: Weight::Echo,
        ..first.clone()
    };
    let third = Finding {
        rule: "oddity",
        severity: Severity::Info,
        title: "`quoted` *title* of @someone".into(),
        ..second.clone()
    };
    Verdict {
        ranks: Vec::new(),
        cause: Cause::SkippedCollective,
        category: Category::Hang,
        confidence: Confidence::High,
        summary: "rank 2 skipped all_reduce #45 of the world group; ranks 0-1,3 wait in it".into(),
        culprits: vec![culprit()],
        victims: [0, 1, 3].map(Rank).into_iter().collect(),
        actions: actions(),
        findings: vec![first, second, third],
        needs: Vec::new(),
    }
}

/// A healthy job.
pub(crate) fn healthy() -> Verdict {
    Verdict {
        ranks: Vec::new(),
        cause: Cause::None,
        category: Category::None,
        confidence: Confidence::High,
        summary: "4 ranks completed 120 collectives; nothing points at a fault".into(),
        culprits: Vec::new(),
        victims: RankSet::default(),
        actions: Vec::new(),
        findings: Vec::new(),
        needs: Vec::new(),
    }
}

/// Something is wrong and the evidence does not show what.
pub(crate) fn undecided() -> Verdict {
    let need = |question: &str, command: &str| Need {
        question: question.into(),
        command: command.into(),
        ..Need::default()
    };
    Verdict {
        ranks: Vec::new(),
        cause: Cause::Undecided,
        category: Category::Hang,
        confidence: Confidence::Low,
        summary:
            "rank 2 is behind in the world group; skipped-collective, process-stopped or gpu-kernel-stuck"
                .into(),
        culprits: vec![Culprit { rank: Some(Rank(2)), ..Culprit::default() }],
        victims: (8..16).map(Rank).chain([0, 1].map(Rank)).collect(),
        findings: hang().findings.split_off(1),
        needs: vec![
            need("is rank 2 stopped?", "ps -eo pid,ppid,stat,wchan:32,pcpu,etime,args"),
            need("where does rank 2 stand?", "ringleader diagnose --live --pid PID_OF_RANK_2"),
        ],
        ..healthy()
    }
}
