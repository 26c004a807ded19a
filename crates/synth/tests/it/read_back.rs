//! Evidence reads back what synth writes.

use ringleader_evidence::{Limits, Scratch, read};
use ringleader_model::{
    Fact, FlightDump, FlightOp, NcclLog, NoteKind, OpKind, OpState, ProcessTable, StackTool,
};
use ringleader_synth::{Emit, ExpectedOp, Fault, Options, job, job_with_dumps};

fn facts(name: &str, bytes: &[u8]) -> Vec<Fact> {
    let extract = read(name, &mut &*bytes, &mut Scratch::default(), &Limits::default());
    // RAS of NCCL 2.28 omits the comma before missing ranks, and the reader notes that.
    assert!(extract.notes.iter().all(|n| n.kind == NoteKind::Remark), "{name}: {:?}", extract.notes);
    extract.observations.into_iter().map(|o| o.fact).collect()
}

fn flat(shapes: &[Box<[u64]>]) -> Vec<u64> {
    assert_eq!(shapes.len(), 1, "one tensor a call");
    shapes[0].to_vec()
}

/// An entry of a dump as read, in the words of the expected entry.
fn in_words(dump: &FlightDump, op: &FlightOp) -> ExpectedOp {
    let group = &dump.groups[usize::from(op.group)];
    let signature = &dump.signatures[op.signature as usize];
    let frames = &dump.stacks[op.stack as usize];
    let name = match (signature.kind, signature.me, signature.peer) {
        (OpKind::Send, Some(me), Some(peer)) => format!("send {}->{}", me.0, peer.0),
        (OpKind::Recv, Some(me), Some(peer)) => format!("recv {}<-{}", me.0, peer.0),
        _ if signature.name.is_empty() => signature.kind.name().to_owned(),
        _ => signature.name.to_string(),
    };
    assert_eq!(signature.input_dtypes, signature.output_dtypes);
    ExpectedOp {
        group: group.name.to_string(),
        members: group.ranks.iter().map(|r| r.0).collect(),
        seq: op.seq,
        p2p_seq: op.p2p_seq,
        record_id: op.record_id,
        name,
        input: flat(&signature.input_sizes),
        output: flat(&signature.output_sizes),
        dtype: signature.input_dtypes[0].to_string(),
        completed: op.state == OpState::Completed,
        is_p2p: op.is_p2p(),
        created_ns: op.created_ns,
        functions: frames.iter().map(|f| dump.frames[*f as usize].function.to_string()).collect(),
    }
}

#[test]
fn flight_recorder_dumps() {
    let mut n_ops = 0;
    for seed in 0..60 {
        let options = Options { max_ranks: 24, clock_skew_ms: 5_000, ..Options::default() };
        let options = Options { emit: Emit { flight: true, ..Emit::NONE }, ..options };
        let (truth, evidence, expected) = job_with_dumps(seed, &options);
        assert_eq!(evidence.files.len(), expected.len());
        for ((name, bytes), want) in evidence.files.iter().zip(&expected) {
            let facts = facts(name, bytes);
            let [Fact::Flight(dump)] = facts.as_slice() else {
                panic!("seed {seed}: {name} is no single dump")
            };
            assert!(!dump.truncated);
            assert_eq!(&*dump.version, "2.10");
            assert_eq!(dump.name_hint.map(|r| r.0), Some(want.rank));
            let got: Vec<ExpectedOp> = dump.ops.iter().map(|op| in_words(dump, op)).collect();
            n_ops += got.len();
            assert_eq!(got, want.ops, "seed {seed}, {name} of {truth}");
        }
    }
    assert!(n_ops > 5_000, "{n_ops} entries are too few to prove anything");
}

fn log(name: &str, bytes: &[u8]) -> NcclLog {
    let mut logs = facts(name, bytes).into_iter().filter_map(|f| match f {
        Fact::Nccl(log) => Some(*log),
        _ => None,
    });
    logs.next().unwrap_or_else(|| panic!("{name} holds no NCCL lines"))
}

/// Every call of a dump is also in the same rank's NCCL log: kind, position within its communicator, type,
/// peer.
#[test]
fn nccl_logs_tell_what_the_dumps_tell() {
    for seed in 0..40 {
        let options = Options { fault: Some(Fault::SkippedCollective), max_ranks: 16, ..Options::default() };
        let (_, evidence, expected) = job_with_dumps(seed, &options);
        for want in &expected {
            let file =
                evidence.files.iter().filter(|(name, _)| name.starts_with("nccl_")).nth(want.rank as usize);
            let (name, bytes) = file.expect("one log a rank");
            let log = log(name, bytes);
            assert_eq!(log.n_calls_dropped, 0);
            assert_eq!(log.processes.len(), 1);
            assert_eq!(
                log.comms.iter().filter(|c| c.parent.is_none()).map(|c| c.rank.0).collect::<Vec<_>>(),
                [want.rank]
            );
            // The ring may have rolled over: compare the tails.
            let tail = &log.calls[log.calls.len() - want.ops.len()..];
            for (call, op) in tail.iter().zip(&want.ops) {
                assert_eq!(call.kind, OpKind::from_profiling_name(&op.name), "seed {seed}: {op:?}");
                let comm = &log.comms[call.comm as usize];
                assert_eq!(comm.n_ranks as usize, op.members.len());
                let count: u64 = match call.kind {
                    OpKind::ReduceScatter => op.output.iter().product(),
                    _ => op.input.iter().product(),
                };
                assert_eq!(call.count, count);
                assert_eq!(ringleader_model::nccl_datatype_name(call.datatype), op.dtype);
                if op.is_p2p {
                    let peer: String = op.name.chars().rev().take_while(char::is_ascii_digit).collect();
                    assert_eq!(call.root.to_string().chars().rev().collect::<String>(), peer);
                }
            }
        }
    }
}

/// Process lists, GPU tables, stacks and RAS reports name every existing process.
#[test]
fn snapshots() {
    for seed in 0..30 {
        let options = Options { fault: Some(Fault::Stopped), max_ranks: 16, ..Options::default() };
        let (truth, evidence) = job(seed, &options);
        let (mut n_rows, mut n_gpus, mut n_stacks, mut stopped, mut n_ras) = (0, 0, 0, 0, 0);
        for (name, bytes) in &evidence.files {
            if name.starts_with("fr_") || name.starts_with("nccl_") || name.starts_with("stderr") {
                continue;
            }
            for fact in facts(name, bytes) {
                match fact {
                    Fact::Processes(table) => {
                        let ProcessTable { rows, .. } = *table;
                        stopped += rows.iter().filter(|r| r.state.starts_with('T')).count();
                        n_rows += rows.iter().filter(|r| r.command.contains(" -u ")).count();
                    }
                    Fact::Gpus(table) => {
                        assert!(
                            table.gpus.iter().all(|g| g.power_w.is_some()
                                && g.pci.is_some()
                                && g.utilization_pct.is_some())
                        );
                        assert_eq!(table.gpus.len(), table.processes.len());
                        n_gpus += table.gpus.len();
                    }
                    Fact::Stacks(stacks) => {
                        assert_eq!(stacks.tool, StackTool::PySpy);
                        n_stacks += 1;
                        let main = stacks.threads.first();
                        assert!(
                            stacks.failure.is_some() || main.is_some_and(|t| t.frames.len() >= 4),
                            "{name}: {stacks:?}"
                        );
                    }
                    Fact::Ras(report) => {
                        n_ras += 1;
                        let world = report.comms.iter().find(|c| c.size == truth.n_ranks);
                        assert!(world.is_some_and(|c| c.missing.len() == 1), "seed {seed}, {name}");
                    }
                    _ => {}
                }
            }
        }
        let n = truth.n_ranks as usize;
        assert_eq!((n_rows, n_gpus, n_stacks, stopped, n_ras), (n, n, n, 1, 2), "seed {seed}: {truth}");
    }
}
