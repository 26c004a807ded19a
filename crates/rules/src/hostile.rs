//! Numbers that no job writes: torn or forged evidence must cause neither a panic nor a large allocation.

use ringleader_model::{
    Case, Cause, Cite, Fact, FlightDump, FlightGroup, FlightOp, Frame, GroupRank, NcclCall, NcclComm,
    NcclLog, NcclProcess, Observation, OpKind, OpState, Pid, Rank, RasComm, RasPeer, RasRank, RasReport,
    Signature, Source, SourceId, StoreEvent, TorchEvent, Who, WorkDescription,
};

use crate::diagnose;

fn observed(fact: Fact, who: Who) -> Observation {
    Observation { cite: Cite::whole(SourceId(0)), who, at: None, fact, text: "made up".into() }
}

fn dump(hint: u32, seqs: &[u32], times: [i64; 2]) -> Fact {
    let signature = |kind: OpKind, peer| Signature {
        kind,
        name: "".into(),
        peer,
        me: peer.map(|_| GroupRank(u32::MAX)),
        input_sizes: vec![vec![u64::MAX, u64::MAX].into()].into(),
        output_sizes: Box::default(),
        input_dtypes: Box::default(),
        output_dtypes: Box::default(),
    };
    let op = |seq: u32, signature: u32, state: OpState| FlightOp {
        created_ns: times[0],
        started_ns: 0,
        completed_ns: times[1],
        seq,
        p2p_seq: seq,
        record_id: seq,
        signature,
        stack: u32::MAX,
        timeout_ms: u32::MAX,
        duration_us: u32::MAX,
        group: 0,
        state,
        flags: if signature == 1 { FlightOp::P2P } else { 0 },
    };
    Fact::Flight(Box::new(FlightDump {
        name_hint: Some(Rank(hint)),
        groups: vec![FlightGroup {
            name: "0".into(),
            desc: "default_pg".into(),
            ranks: vec![Rank(0), Rank(u32::MAX), Rank(1)].into(),
            last_enqueued: Some(i64::MAX),
            last_completed: Some(i64::MIN),
            ..FlightGroup::default()
        }],
        frames: vec![Frame { function: "f".into(), file: "f.py".into(), line: u32::MAX }].into(),
        stacks: vec![vec![0, u32::MAX].into()].into(),
        signatures: vec![
            signature(OpKind::AllReduce, None),
            signature(OpKind::Send, Some(GroupRank(u32::MAX))),
        ]
        .into(),
        ops: seqs
            .iter()
            .flat_map(|seq| {
                [
                    op(*seq, 0, OpState::Completed),
                    op(*seq, 1, OpState::Scheduled),
                    op(*seq, 0, OpState::Scheduled),
                ]
            })
            .collect(),
        ..FlightDump::default()
    }))
}

fn log(n_comms: u32) -> Fact {
    let comm = |n: u32| NcclComm {
        process: n % 3,
        ptr: u64::from(n),
        rank: GroupRank(u32::MAX - n),
        n_ranks: u32::MAX - n % 2,
        cuda_dev: Some(u32::MAX),
        nvml_dev: None,
        gpu: None,
        comm_id: Some(u64::from(n)),
        parent: Some(u64::MAX),
        color: Some(i64::MIN),
        api: None,
        started: Some(Cite::whole(SourceId(0))),
        completed: None,
        destroyed: None,
        aborted: None,
        at: None,
    };
    let call = NcclCall {
        count: u64::MAX,
        offset: u64::MAX,
        op_count: u64::MAX,
        at_s: u32::MAX,
        comm: 0,
        line: u32::MAX,
        root: i32::MIN,
        kind: OpKind::Send,
        datatype: u8::MAX,
        redop: u8::MAX,
    };
    Fact::Nccl(Box::new(NcclLog {
        processes: vec![NcclProcess {
            who: Who { pid: Some(Pid(u32::MAX)), ..Who::default() },
            ..NcclProcess::default()
        }],
        comms: (0..n_comms).map(comm).collect(),
        calls: vec![call; 20],
        dropped_of_comm: vec![u64::MAX],
        n_calls_dropped: u64::MAX,
        ..NcclLog::default()
    }))
}

fn ras() -> Fact {
    let rank = RasRank {
        peer: RasPeer { rank: Some(GroupRank(u32::MAX)), pid: Some(Pid(0)), ..RasPeer::default() },
        counts: vec![(OpKind::AllReduce, u64::MAX), (OpKind::AllReduce, 0)],
        ..RasRank::default()
    };
    let comm = |size| RasComm {
        hash: u64::from(size),
        size,
        ranks: vec![rank.clone()],
        missing: vec![rank.peer.clone()],
        ..RasComm::default()
    };
    Fact::Ras(Box::new(RasReport {
        comms: vec![comm(u32::MAX), comm(2), comm(400_000), comm(400_001)],
        ..RasReport::default()
    }))
}

#[test]
fn the_largest_numbers_cost_nothing() {
    let work = WorkDescription {
        seq: Some(u64::MAX),
        kind: OpKind::AllReduce,
        numel_in: Some(u64::MAX),
        numel_out: None,
        timeout_ms: None,
    };
    let torch = |event| Fact::Torch(event);
    let facts = vec![
        dump(0, &[u32::MAX, 0, u32::MAX - 1, 7], [i64::MIN, i64::MAX]),
        dump(1, &[0, 1, u32::MAX], [i64::MAX, i64::MIN]),
        dump(u32::MAX, &[u32::MAX], [i64::MAX, i64::MAX]),
        log(5_000),
        ras(),
        torch(TorchEvent::Store(StoreEvent::ClientsMissing { joined: u32::MAX, expected: u32::MAX })),
        torch(TorchEvent::Store(StoreEvent::ClientsMissing { joined: 1, expected: 0 })),
        torch(TorchEvent::WatchdogTimeout {
            work,
            ran_ms: u64::MAX,
            group: ringleader_model::GroupLabel::default(),
        }),
        torch(TorchEvent::WatchdogPosition {
            seq: Some(u64::MAX),
            last_enqueued: i64::MAX,
            last_completed: i64::MIN,
            group: ringleader_model::GroupLabel::default(),
        }),
        torch(TorchEvent::ChildFailure {
            is_root: true,
            exit_code: i64::MIN,
            time: None,
            host: None,
            message: None,
        }),
    ];
    for who in [Who::default(), Who::rank(0), Who::rank(u32::MAX)] {
        let case = Case {
            sources: vec![Source { path: "made up".into(), kinds: Vec::new(), size_bytes: 0 }],
            observations: facts.iter().map(|f| observed(f.clone(), who.clone())).collect(),
            notes: Vec::new(),
        };
        let verdict = diagnose(&case);
        assert!(!verdict.summary.is_empty());
        // What finds no room is said.
        assert!(verdict.needs.iter().any(|n| n.question.contains("communicators were left out")));
        // Each fact alone as well: together they may hide one another.
        for fact in &facts {
            let alone = Case { observations: vec![observed(fact.clone(), who.clone())], ..case.clone() };
            assert!(!diagnose(&alone).summary.is_empty());
        }
    }
}

#[test]
fn a_kernel_log_of_made_up_numbers() {
    use ringleader_model::{KernelEvent, KernelEventKind, OomKill, PciAddress, WallTime, Xid};
    let mut case = Case::default();
    case.sources.push(Source { path: "dmesg".into(), kinds: Vec::new(), size_bytes: 1 });
    let gpu = PciAddress { domain: u32::MAX, bus: 255, device: 255, function: 255 };
    for (ns, has_year) in [(i64::MIN, true), (i64::MAX, true), (i64::MAX, false), (0, false)] {
        for kind in [
            KernelEventKind::Xid(Box::new(Xid { code: u16::MAX, link: Some(i32::MIN), ..Xid::default() })),
            KernelEventKind::Xid(Box::new(Xid { code: 79, ..Xid::default() })),
            KernelEventKind::OomKill(Box::new(OomKill {
                anon_rss_kib: Some(u64::MAX),
                ..OomKill::default()
            })),
            KernelEventKind::HungTask { pid: Some(Pid(u32::MAX)), name: "".into(), seconds: u64::MAX },
        ] {
            let event = KernelEvent { uptime_us: Some(u64::MAX), boot: u32::MAX, device: Some(gpu), kind };
            let mut seen = observed(Fact::Kernel(event.into()), Who::default());
            seen.at = Some(WallTime { ns, error_ns: i64::MAX, has_year });
            case.observations.push(seen);
        }
    }
    assert_eq!(diagnose(&case).cause, Cause::GpuFallenOffBus);
    let mut exit =
        observed(Fact::Torch(TorchEvent::ChildExit { exit_code: -9, is_first: false }), Who::rank(1));
    exit.at = Some(WallTime { ns: i64::MIN, error_ns: 0, has_year: true });
    case.observations.push(exit);
    assert!(!diagnose(&case).summary.is_empty());
}
