#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests read recordings and may fail loudly"
)]

use std::fmt::Write as _;
use std::path::PathBuf;

use proptest::prelude::*;
use ringleader_model::{Fact, Frame, GlooEvent, Observation, StoreEvent, TorchEvent, Who, user_frame};

use crate::Extract;
use crate::ground::Limits;

fn read_bytes(bytes: &[u8]) -> Extract {
    crate::tell::read("stderr.log", bytes)
}

/// What torch's reader tells of `bytes`, whatever other readers make of the same lines.
fn told(bytes: &[u8]) -> Vec<Observation> {
    read_bytes(bytes).observations.into_iter().filter(|o| matches!(o.fact, Fact::Torch(_))).collect()
}

fn who(who: &Who) -> String {
    let mut text = String::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let gap = if text.is_empty() { "" } else { " " };
            write!(text, "{gap}{name}{value}").unwrap();
        }
    };
    add("r", who.rank.map(|r| r.0.to_string()));
    add("local", who.local_rank.map(|r| r.0.to_string()));
    add("pid", who.pid.map(|r| r.0.to_string()));
    add("@", who.host.as_ref().map(ToString::to_string));
    if text.is_empty() { "-".to_owned() } else { text }
}

fn place(frames: &[Frame]) -> String {
    let user = user_frame(frames).map_or("-".to_owned(), |f| format!("{}:{} {}", f.file, f.line, f.function));
    format!("{} frames, user {user}", frames.len())
}

fn short(text: &str) -> String {
    let line = text.replace('\n', " | ");
    match line.char_indices().nth(110) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

fn event(event: &TorchEvent) -> String {
    match event {
        TorchEvent::WatchdogTimeout { work, ran_ms, group } => format!(
            "timeout #{} {} numel {:?}/{:?} limit {:?} ran {ran_ms} group {:?}",
            work.seq.map_or_else(|| "?".to_owned(), |seq| seq.to_string()),
            work.kind.name(),
            work.numel_in,
            work.numel_out,
            work.timeout_ms,
            group.guid
        ),
        TorchEvent::WatchdogPosition { seq, last_enqueued, last_completed, group } => {
            format!(
                "position at {seq:?} enqueued {last_enqueued} completed {last_completed} group {:?} {:?}",
                group.guid, group.desc
            )
        }
        TorchEvent::FailedCollectiveStack { frames } => format!("stack {}", place(frames)),
        TorchEvent::AsyncError { work, error, last_error } => {
            format!("async #{:?} {} last {:?}", work.as_ref().and_then(|w| w.seq), short(error), last_error)
        }
        TorchEvent::WatchdogDied { error } => format!("watchdog died: {}", short(error)),
        TorchEvent::DumpSignal { from } => format!("dump signal from {from:?}"),
        TorchEvent::WatchdogStuck { seconds } => format!("watchdog stuck {seconds:?}"),
        TorchEvent::GilStuck => "gil".to_owned(),
        TorchEvent::Desync { unfinished, not_joined, never_joined } => {
            let list = |l: &[(ringleader_model::RankSet, u64)]| {
                l.iter().map(|(r, n)| format!("{r}#{n}")).collect::<Vec<_>>().join(" ")
            };
            format!(
                "desync unfinished [{}] not joined [{}] never [{never_joined}]",
                list(unfinished),
                list(not_joined)
            )
        }
        TorchEvent::FingerprintMismatch { mine, theirs } => {
            let one = |f: &ringleader_model::Fingerprint| {
                format!("{:?} #{:?} {} {} {}", f.rank.map(|r| r.0), f.seq, f.op_type, f.shape, f.dtypes)
            };
            format!("mismatch {} / {}", one(mine), one(theirs))
        }
        TorchEvent::Exception(e) => {
            let chained: Vec<&str> = e.chained.iter().map(|(class, _)| &**class).collect();
            let torn = if e.interleaved { " interleaved" } else { "" };
            let chain =
                if chained.is_empty() { String::new() } else { format!(" after {}", chained.join(", ")) };
            let last = e.nccl_last_error.as_ref().map_or(String::new(), |l| format!(" last-error {l:?}"));
            format!("exception {}: {} ({}){torn}{chain}{last}", e.class, short(&e.message), place(&e.frames))
        }
        TorchEvent::Crash { reason, signal, threads } => {
            let stack = threads.iter().find(|t| t.current).or_else(|| threads.last());
            let stack = stack.map_or("-".to_owned(), |t| place(&t.frames));
            format!("crash {} signal {signal:?} {} threads, {stack}", short(reason), threads.len())
        }
        TorchEvent::ChildFailure { is_root, exit_code, time, host, message } => format!(
            "{} exit {exit_code} {} {} {}",
            if *is_root { "root" } else { "child" },
            time.as_deref().unwrap_or("-"),
            host.as_deref().unwrap_or("-"),
            short(message.as_deref().unwrap_or("-"))
        ),
        TorchEvent::ChildExit { exit_code, .. } => format!("child exit {exit_code}"),
        TorchEvent::Started => "started".to_owned(),
        TorchEvent::LauncherFailed { script } => format!("launcher failed {script:?}"),
        TorchEvent::ClosingSignal { pid, signal } => format!("closing {} {signal}", pid.0),
        TorchEvent::LauncherKilled { signal } => format!("launcher killed {signal}"),
        TorchEvent::Store(StoreEvent::ConnectTimeout { address, .. }) => {
            format!("store connect timeout {address}")
        }
        TorchEvent::Store(StoreEvent::ConnectFailed { address, errno, .. }) => {
            format!("store connect failed {address} {errno:?}")
        }
        TorchEvent::Store(StoreEvent::ClientsMissing { joined, expected }) => {
            format!("store clients {joined}/{expected}")
        }
        TorchEvent::Store(StoreEvent::WaitTimeout { keys, setter }) => {
            format!("store wait [{keys}] setter {:?}", setter.map(|r| r.0))
        }
        TorchEvent::Store(StoreEvent::ConnectionLost { text }) => format!("store lost: {}", short(text)),
        TorchEvent::Store(StoreEvent::AddressInUse { port }) => format!("store port in use {port:?}"),
        TorchEvent::Store(StoreEvent::Unresolved { name, .. }) => format!("store unresolved [{name}]"),
        TorchEvent::Store(StoreEvent::Rendezvous { text }) => format!("rendezvous: {}", short(text)),
        TorchEvent::Gloo(GlooEvent::ClosedByPeer { peer }) => format!("gloo closed by {peer}"),
        TorchEvent::Gloo(GlooEvent::TimedOut) => "gloo timed out".to_owned(),
        TorchEvent::Gloo(GlooEvent::ConnectFailed { remote, .. }) => {
            format!("gloo connect failed [{remote}]")
        }
        TorchEvent::Gloo(GlooEvent::LoopbackFallback) => "gloo loopback".to_owned(),
        TorchEvent::Gloo(GlooEvent::Other { text }) => format!("gloo: {}", short(text)),
        TorchEvent::BarrierMissed { absent } => format!("barrier missed {absent}"),
        TorchEvent::NoNccl { text } => format!("no nccl: {}", short(text)),
        TorchEvent::Echo { what } => format!("echo {what}"),
        TorchEvent::ErrorLine { text } => format!("error line {}", short(text)),
    }
}

fn clock(at: Option<ringleader_model::WallTime>) -> String {
    let Some(at) = at else { return String::new() };
    let seconds = at.ns.div_euclid(1_000_000_000);
    let (day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let year = if at.has_year { "y" } else { "" };
    format!("{year}{day}+{:02}:{:02}:{:02} ", second / 3600, second / 60 % 60, second % 60)
}

fn summary(observations: &[Observation]) -> String {
    let mut text = String::new();
    for o in observations {
        let Fact::Torch(e) = &o.fact else { continue };
        writeln!(text, "{} {}{}: {}", o.cite.line, clock(o.at), who(&o.who), event(e)).unwrap();
    }
    text
}

fn cases() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../cases")
}

/// Every stderr of the recordings, by case and file name.
fn recordings() -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for case in std::fs::read_dir(cases()).unwrap() {
        let case = case.unwrap();
        let Ok(files) = std::fs::read_dir(case.path().join("evidence")) else { continue };
        for file in files {
            let file = file.unwrap().path();
            let name = file.file_stem().unwrap().to_string_lossy().into_owned();
            if name.starts_with("stderr") {
                let name = format!("{}_{name}", case.file_name().to_string_lossy());
                all.push((name, std::fs::read(file).unwrap()));
            }
        }
    }
    all.sort();
    all
}

#[test]
fn recordings_are_read_as_reviewed() {
    let all = recordings();
    assert!(all.len() > 40);
    for (name, bytes) in all {
        // Stacks of a crash are the crash's.
        assert!(!read_bytes(&bytes).observations.iter().any(|o| matches!(o.fact, Fact::Stacks(_))), "{name}");
        insta::assert_snapshot!(name, summary(&told(&bytes)));
    }
}

/// One form: lines in, one line per event out.
#[track_caller]
fn check(input: &str, expected: &str) {
    let got = summary(&told(input.as_bytes()));
    let trim = |t: &str| t.trim().lines().map(str::trim).collect::<Vec<_>>().join("\n");
    assert_eq!(trim(&got), trim(expected), "\ninput:\n{input}");
}

#[test]
fn prefixes_of_every_version() {
    // 2.0: no stamp, no tag.
    check(
        "[E ProcessGroupNCCL.cpp:474] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=17, OpType=BROADCAST, Timeout(ms)=1800000) ran for 1800123 milliseconds before timing out.",
        "1 r3: timeout #17 broadcast numel None/None limit Some(1800000) ran 1800123 group None",
    );
    // 1.10: no number.
    check(
        "[E ProcessGroupNCCL.cpp:566] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1801164 milliseconds before timing out.",
        "1 r0: timeout #? all_reduce numel None/None limit Some(1800000) ran 1801164 group None",
    );
    check(
        "[rank1]:[E1218 20:27:21.426415540 ProcessGroupNCCL.cpp:629] [PG 0 Rank 1] Timeout at NCCL work: 51753, last enqueued NCCL work: 51760, last completed NCCL work: 51752.",
        "1 351+20:27:21 r1: position at Some(51753) enqueued 51760 completed 51752 group None None",
    );
    // Rank 1 of a tensor-parallel group is not rank 1 of the job.
    check(
        "[E415 19:42:31.5 ProcessGroupNCCL.cpp:629] [PG ID 2 PG GUID 7(tp) Rank 1] failure detected by watchdog at work sequence id: 3 PG status: last enqueued work: 4, last completed work: -1",
        r#"1 104+19:42:31 -: position at Some(3) enqueued 4 completed -1 group Some("7") Some("tp")"#,
    );
    // Elastic of 2.3 prints a thread where 2.4 prints a pid; 2.1 and 2.0 print other prefixes.
    check(
        "W0815 12:00:00.123000 139948373423936 torch/distributed/elastic/multiprocessing/api.py:851] Sending process 12 closing signal SIGTERM\n\
         [2024-04-15 19:42:31,520] torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: 1) local_rank: 0 (pid: 12) of binary: /usr/bin/python\n\
         ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 1 (pid: 13) of binary: /usr/bin/python",
        "1 226+12:00:00 pid12: closing 12 SIGTERM
         2 y19828+19:42:31 local0 pid12: child exit 1
         3 local1 pid13: child exit -9",
    );
    // Behind a print that had not ended its line.
    check(
        "[rank 0] step 3 loss 0.02[rank3]:[E1120 08:21:38.1 ProcessGroupNCCL.cpp:2636] [PG ID 0 PG GUID 0(default_pg) Rank 3] Could not acquire GIL within 300 ms on exit, possible GIL induced hang",
        "1 323+08:21:38 r3: gil",
    );
    check(
        "[16 similar log lines] [W1008 21:07:10.7 socket.cpp:767] [c10d] The server socket on [::]:25000 has timed out, will retry.",
        "1 280+21:07:10 -: store connect failed [::]:25000 None",
    );
}

#[test]
fn watchdog() {
    check(
        "[rank2]:[E1120 08:31:15.8 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID 0(default_pg) Rank 2] Received a dump signal due to a collective timeout from  rank 5 and we will try our best to dump the debug info. Last enqueued NCCL work: 48, last completed NCCL work: 44.This is most likely",
        r#"1 323+08:31:15 r2: dump signal from Some(Rank(5))
           1 323+08:31:15 r2: position at None enqueued 48 completed 44 group Some("0") Some("default_pg")"#,
    );
    check(
        "[rank2]:[E1120 08:31:15.8 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID 0(default_pg) Rank 2] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.\n\
         [rank2]:[F1120 08:31:16.8 ProcessGroupNCCL.cpp:1653] [PG ID 0 PG GUID 0(default_pg) Rank 2] Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL watchdog hang.\n\
         Fatal Python error: Aborted\n\nThread 0x00007f0e45ca66c0 (most recent call first):\n  File \"/srv/a.py\", line 3 in f\n",
        "1 323+08:31:15 r2: watchdog stuck Some(480)
         2 323+08:31:16 r2: watchdog stuck None
         3 r2: crash Aborted signal Some(6) 1 threads, 1 frames, user /srv/a.py:3 f",
    );
    // The exception repeats the timeout, terminate() repeats the exception: reported once.
    let timeout = "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=_ALLGATHER_BASE, NumelIn=1, NumelOut=8, Timeout(ms)=600000) ran for 600072 milliseconds before timing out.";
    check(
        &format!(
            "[rank1]:[E1120 08:31:15.8 ProcessGroupNCCL.cpp:629] {timeout}\n\
             [rank1]:[E1120 08:31:16.8 ProcessGroupNCCL.cpp:1432] [PG 0 Rank 1] Process group watchdog thread terminated with exception: {timeout}\n\
             Exception raised from checkTimeout at ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:618 (most recent call first):\n\
             frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x57 (0x7f in libc10.so)\n\n\
             terminate called after throwing an instance of 'c10::DistBackendError'\n\
             \x20 what():  [PG 0 Rank 1] Process group watchdog thread terminated with exception: {timeout}\n\n\
             Aborted (core dumped)"
        ),
        "1 323+08:31:15 r1: timeout #3 all_gather numel Some(1)/Some(8) limit Some(600000) ran 600072 group None
         2 323+08:31:16 r1: watchdog died: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=_ALLGATHER_BASE, NumelIn=1, N…
         6 r1: crash terminate called after throwing an instance of 'c10::DistBackendError' |   what():  [PG 0 Rank 1] Process grou… signal Some(6) 0 threads, -
         9 -: crash Aborted (core dumped) signal Some(6) 0 threads, -",
    );
    check(
        "[rank0]:[E1120 08:31:16.8 ProcessGroupNCCL.cpp:1432] [PG 0 Rank 0] Process group watchdog thread terminated with exception: CUDA error: uncorrectable ECC error encountered\n\
         CUDA kernel errors might be asynchronously reported at some other API call\n",
        "1 323+08:31:16 r0: watchdog died: CUDA error: uncorrectable ECC error encountered | CUDA kernel errors might be asynchronously reported at some …",
    );
    check(
        "[E ProcessGroupNCCL.cpp:474] Collective WorkNCCL(SeqNum=4, OpType=REDUCE, Timeout(ms)=5) raised the following async exception: NCCL error: unhandled system error, NCCL version 2.18.5\n\
         ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\n\
         Last error:\nCall to ibv_modify_qp failed\n[rank 3] step 4\n",
        r#"1 -: async #Some(4) NCCL error: unhandled system error, NCCL version 2.18.5 | ncclSystemError: System call (e.g. socket, malloc) o… last Some("Call to ibv_modify_qp failed")"#,
    );
    // The line below was taken by the reader of NCCL's log: what follows is not NCCL's word.
    check(
        "[E ProcessGroupNCCL.cpp:474] Collective WorkNCCL(SeqNum=4, OpType=REDUCE, Timeout(ms)=5) raised the following async exception: NCCL error: x\n\
         Last error:\nn0:1:2 [0] net.cc:1 NCCL WARN Call to ibv_modify_qp failed\nstep 4\n",
        "1 -: async #Some(4) NCCL error: x last None",
    );
    check(
        "RuntimeError: [Rank 2] Work WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=10000) timed out in blocking wait.",
        "1 r2: exception RuntimeError: [Rank 2] Work WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=10000) timed out in bloc… (0 frames, user -)
         1 r2: timeout #9 all_reduce numel Some(4)/Some(4) limit Some(10000) ran 10000 group None",
    );
}

#[test]
fn desync_and_fingerprint() {
    check(
        "[rank0]:[E1120 08:31:15.8 ProcessGroupNCCL.cpp:629]  - [0] Timeout at collective: ALLREDUCE, #45\n\
         \x20- To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:\n\
         \x20  - [0, 1, 3] joined but didn't finish collective #45 (count from 1)\n\
         \x20  - [2] finished collective #44, but didn't join collective #45 (count from 1)\n\
         \x20- To our best knowledge, ranks [5,6] are the lagging ranks that caused this timeout. They never joined any collectives\n\
         \x20- Snapshot of ranks' latest states:\n\
         \x20  #45 started ranks:\n\
         \x20    [0,1,3] started ALLREDUCE\n\
         step 45\n",
        "1 323+08:31:15 r0: desync unfinished [0-1,3#45] not joined [2#45] never [5-6]",
    );
    check(
        "[rank0]: RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=7, OpType=BROADCAST, TensorShape=[2, 3], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(x)), but Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=7, OpType=BARRIER).",
        "1 r0: exception RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(SequenceNu… (0 frames, user -)
         1 r0: mismatch Some(0) #Some(7) BROADCAST [2, 3] Float / Some(1) #Some(7) BARRIER",
    );
}

#[test]
fn tracebacks() {
    // Chained, without tags, behind prints.
    check(
        "Traceback (most recent call last):\n  File \"/srv/a.py\", line 3, in f\n    x()\nKeyError: 'k'\n\nDuring handling of the above exception, another exception occurred:\n\n\
         Traceback (most recent call last):\n  File \"/srv/a.py\", line 5, in g\n    raise ValueError(\"no k\")\nValueError: no k\nepoch: 3\n",
        "8 -: exception ValueError: no k (1 frames, user /srv/a.py:5 g) after KeyError",
    );
    // Classes of the user's own, and bare ones.
    check(
        "Traceback (most recent call last):\n  File \"/srv/a.py\", line 3, in f\n    x()\nmylib.Stop: now\n\
         Traceback (most recent call last):\n  File \"/srv/a.py\", line 4, in f\n    assert x\n           ^\nAssertionError\n",
        "1 -: exception mylib.Stop: now (1 frames, user /srv/a.py:3 f)
         5 -: exception AssertionError:  (1 frames, user /srv/a.py:4 f)",
    );
    // A logger names the rank on the first line alone; what follows the message is nobody's.
    check(
        "[07/18/2026-21:47:32] [TRT-LLM] [RANK 5] [E] Traceback (most recent call last):\n  File \"/srv/a.py\", line 3, in f\n    x()\n\
         IndexError: no x\nx\n  File \"/srv/b.py\", line 1, in g\n    y()\nKeyError: 1\n",
        "1 y20652+21:47:32 r5: exception IndexError: no x (1 frames, user /srv/a.py:3 f)
         6 -: exception KeyError: 1 (1 frames, user /srv/b.py:1 g)",
    );
    // Torch's tag is on all of its lines.
    check(
        "[rank4]: Traceback (most recent call last):\n  File \"/srv/a.py\", line 3, in f\n    x()\nKeyError: 2\n",
        "2 -: exception KeyError: 2 (1 frames, user /srv/a.py:3 f)",
    );
    // The class line was torn or cut: what was read stays.
    check(
        "[rank4]: Traceback (most recent call last):\n[rank4]:   File \"/srv/a.py\", line 3, in f\n",
        "1 r4: exception :  (1 frames, user /srv/a.py:3 f)",
    );
    // The beginning was cut.
    check(
        "  File \"/srv/a.py\", line 3, in f\n    y()\nOSError: [Errno 28] No space left on device\n",
        "1 -: exception OSError: [Errno 28] No space left on device (1 frames, user /srv/a.py:3 f)",
    );
    // A logger before each line, ranks distinguished by pid.
    let line = |pid: u32, text: &str| {
        format!("(VllmWorkerProcess pid={pid}) ERROR 05-28 16:20:11 [multiproc.py:962] {text}\n")
    };
    check(
        &[
            line(7, "Traceback (most recent call last):"),
            line(8, "Traceback (most recent call last):"),
            line(8, "  File \"/srv/b.py\", line 1, in b"),
            line(7, "  File \"/srv/a.py\", line 1, in a"),
            line(7, "ValueError: a"),
            line(8, "TypeError: b"),
        ]
        .concat(),
        "1 147+16:20:11 pid7: exception ValueError: a (1 frames, user /srv/a.py:1 a)
         2 147+16:20:11 pid8: exception TypeError: b (1 frames, user /srv/b.py:1 b)",
    );
    // Different paths, no tags: what a frame's source calls decides.
    check(
        "Traceback (most recent call last):\n  File \"/srv/a.py\", line 9, in <module>\n    load()\nTraceback (most recent call last):\n  File \"/srv/a.py\", line 12, in <module>\n    train()\n\
         \x20 File \"/srv/a.py\", line 3, in load\n    open(p)\n  File \"/srv/a.py\", line 5, in train\n    step()\n  File \"/srv/m.py\", line 6, in step\n    bad()\nZeroDivisionError: x\nFileNotFoundError: y\n",
        "1 -: exception FileNotFoundError: y (2 frames, user /srv/a.py:3 load) interleaved
         4 -: exception ZeroDivisionError: x (3 frames, user /srv/m.py:6 step) interleaved",
    );
    check("KeyboardInterrupt\n", "1 -: exception KeyboardInterrupt:  (0 frames, user -)");
    // Not exceptions.
    check("UserWarning: x\nEpoch: 3 loss: 4\nINFO: ready\nStop: x\nDone\n", "");
}

#[test]
fn launchers_own_tracebacks_are_no_ranks() {
    let run = |class: &str| {
        format!(
            "Traceback (most recent call last):\n  File \"/v/lib/python3.12/site-packages/torch/distributed/run.py\", line 990, in main\n    run(args)\n{class}\n"
        )
    };
    check(
        &run("torch.distributed.elastic.multiprocessing.api.SignalException: Process 9 got signal: 15"),
        "1 pid9: launcher killed 15",
    );
    check(&run("KeyboardInterrupt"), "1 -: launcher killed SIGINT");
    check(
        &run(
            "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed.",
        ),
        "1 -: rendezvous: torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has faile…",
    );
    check(&run("FileNotFoundError: no such script"), "1 -: error line FileNotFoundError: no such script");
    check(
        &run("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "),
        "1 -: launcher failed None",
    );
    check(
        "W1120 08:21:17.946000 1200 torch/distributed/elastic/agent/server/api.py:739] Received Signals.SIGTERM death signal, shutting down workers",
        "1 323+08:21:17 pid1200: launcher killed SIGTERM",
    );
    check(
        "W1120 08:21:17.946000 1200 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1] The node 'n1_5_0' has failed to send a keep-alive heartbeat to the rendezvous 'x' due to an error of type RendezvousConnectionError.",
        "1 323+08:21:17 pid1200: rendezvous: The node 'n1_5_0' has failed to send a keep-alive heartbeat to the rendezvous 'x' due to an error of type Rend…",
    );
}

#[test]
fn table_of_failed_workers() {
    let table = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n============================================================\ntrain.py FAILED\n------------------------------------------------------------\nFailures:\n  <NO_OTHER_FAILURES>\n------------------------------------------------------------\nRoot Cause (first observed failure):\n[0]:\n  time      : 2026-11-20_08:28:48\n  host      : node2.cluster.local\n  rank      : 18 (local_rank: 2)\n  exitcode  : 1 (pid: 3173)\n  error_file: /tmp/e/error.json\n  traceback : Traceback (most recent call last):\n    File \"/srv/train.py\", line 9, in f\n      x()\n  RuntimeError: bad batch\n  \n============================================================\n";
    check(
        table,
        "9 y20777+08:28:48 r18 local2 pid3173 @node2: root exit 1 2026-11-20_08:28:48 node2.cluster.local Traceback (most recent call last): | File \"/srv/train.py\", line 9, in f | x() | RuntimeError: bad batch",
    );
    // Cut before the exit code there is nothing to tell but that the launcher failed.
    let (cut, _) = table.split_once("  exitcode").unwrap();
    check(cut, "1 -: launcher failed Some(\"train.py\")");
    let (cut, _) = table.split_once("  error_file").unwrap();
    check(
        cut,
        "9 y20777+08:28:48 r18 local2 pid3173 @node2: root exit 1 2026-11-20_08:28:48 node2.cluster.local -",
    );
}

#[test]
fn native_deaths() {
    check(
        "Segmentation fault (core dumped)",
        "1 -: crash Segmentation fault (core dumped) signal Some(11) 0 threads, -",
    );
    check("Bus error (core dumped)", "1 -: crash Bus error (core dumped) signal Some(7) 0 threads, -");
    check("Killed", "1 -: crash Killed signal Some(9) 0 threads, -");
    check(
        "./go.sh: line 3:  4711 Killed                  python train.py",
        "1 pid4711: child exit -9\n1 pid4711: crash ./go.sh: line 3:  4711 Killed                  python train.py signal Some(9) 0 threads, -",
    );
    check(
        "srun: error: node1: task 3: Out Of Memory",
        "1 r3 @node1: crash srun: error: node1: task 3: Out Of Memory signal Some(9) 0 threads, -",
    );
    check(
        "srun: error: node1: tasks 0-3: Killed",
        "1 @node1: crash srun: error: node1: tasks 0-3: Killed signal Some(9) 0 threads, -",
    );
    check(
        "slurmstepd: error: Detected 1 oom_kill event in StepId=5.0. Some of the step tasks have been OOM Killed.",
        "1 -: crash slurmstepd: error: Detected 1 oom_kill event in StepId=5.0. Some of the step tasks have been OOM Killed. signal Some(9) 0 threads, -",
    );
    check(
        "mpirun noticed that process rank 3 with PID 0 on node n7 exited on signal 11 (Segmentation fault).",
        "1 r3 @n7: child exit -11\n1 r3 pid0 @n7: crash mpirun noticed that process rank 3 with PID 0 on node n7 exited on signal 11 (Segmentation fault). signal Some(11) 0 threads, -",
    );
    check(
        "*** SIGSEGV received at time=1 on cpu 3 ***",
        "1 -: crash *** SIGSEGV received at time=1 on cpu 3 *** signal Some(11) 0 threads, -",
    );
    check(
        "the process was Killed by nobody I know: step 3",
        "1 -: error line the process was Killed by nobody I know: step 3",
    );
}

#[test]
fn store_sockets_and_gloo() {
    let e = "torch.distributed.DistNetworkError: ";
    let alone = |text: &str, event: &str| {
        let said: String = format!("{e}{text}");
        let got = summary(&told(said.as_bytes()));
        assert_eq!(got.lines().nth(1).unwrap_or_default(), format!("1 -: {event}"), "{text}");
    };
    alone(
        "The client socket has timed out after 600000ms while trying to connect to (10.0.0.1, 29500).",
        "store connect timeout (10.0.0.1, 29500)",
    );
    alone(
        "Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?",
        "store lost: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?",
    );
    alone(
        "wait timeout after 300000ms, keys: /default_pg/0//cuda//timeline_0/default_pg/0/0",
        "store wait [/default_pg/0//cuda//timeline_0/default_pg/0/0] setter None",
    );
    alone("Socket Timeout", "store wait [] setter None");
    alone("Timed out after 601 seconds waiting for clients. 1/4 clients joined.", "store clients 1/4");
    check(
        "[W1120 08:27:24.7 socket.cpp:469] [c10d] TCP client failed to connect/validate to host 127.0.0.1:48315 - retrying (try=0, timeout=600000ms, delay=33924ms): x",
        "1 323+08:27:24 -: store connect failed 127.0.0.1:48315 None",
    );
    check(
        "[W1120 08:27:24.7 socket.cpp:469] [c10d] The client socket has failed to connect to [n0]:29500 (errno: 111 - Connection refused).",
        "1 323+08:27:24 -: store connect failed [n0]:29500 Some(111)",
    );
    check(
        "[E1120 08:27:24.7 socket.cpp:469] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
        "1 323+08:27:24 -: store port in use Some(29500)",
    );
    check(
        "socket.gaierror: [Errno -2] Name or service not known",
        "1 -: exception socket.gaierror: [Errno -2] Name or service not known (0 frames, user -)
        1 -: store unresolved []",
    );
    check("RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.42]:12345",
        "1 -: exception RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.42]:12345 (0 frames, user -)
         1 -: gloo closed by [10.0.0.42]:12345");
    check("RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 1800000ms for recv operation to complete",
        "1 -: exception RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 1800000ms for recv operation to complete (0 frames, user -)
         1 -: gloo timed out");
    check("RuntimeError: [../gloo/transport/tcp/pair.cc:799] connect [127.0.1.1]:58591: Connection refused",
        "1 -: exception RuntimeError: [../gloo/transport/tcp/pair.cc:799] connect [127.0.1.1]:58591: Connection refused (0 frames, user -)
         1 -: gloo connect failed [[127.0.1.1]:58591]");
    check(
        "[E1120 08:27:24.7 ProcessGroupGloo.cpp:136] [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 2000 ms. You can try to increase the timeout.",
        "1 323+08:27:24 r0: barrier missed 1,3",
    );
    check(
        "RuntimeError: Distributed package doesn't have NCCL built in",
        "1 -: exception RuntimeError: Distributed package doesn't have NCCL built in (0 frames, user -)
         1 -: no nccl: Distributed package doesn't have NCCL built in",
    );
}

#[test]
fn error_files() {
    let read = |text: &str| {
        let limits = Limits::default();
        let mut extract = Extract::default();
        let mut sink = crate::ground::Sink::open("error.json", &limits, &mut extract);
        let value = serde_json::from_str(text).unwrap();
        let document =
            crate::ground::Document { name: "", bytes: text.as_bytes(), value: &value, line: 1, offset: 0 };
        let known = super::read_json(&document, &mut sink);
        sink.close(0);
        assert_eq!(known, !extract.sources[0].kinds.is_empty());
        summary(&extract.observations)
    };
    let mut all = String::new();
    for case in
        ["mesh-stuck/evidence/elastic_error.json", "nodes-link-down/evidence/elastic_error_node2.json"]
    {
        all.push_str(&read(&std::fs::read_to_string(cases().join(case)).unwrap()));
    }
    all.push_str(&read(r#"{"message": {"message": "RuntimeError: bad batch", "extraInfo": {"py_callstack": "Traceback (most recent call last):\n  File \"/srv/train.py\", line 9, in f\n    x()\nRuntimeError: bad batch\n", "timestamp": "1754000000"}}}"#));
    all.push_str(&read(r#"{"message": "ValueError: no", "timestamp": "1754000000"}"#));
    all.push_str(&read(r#"{"message": "hello"}"#));
    all.push_str(&read("[1]"));
    insta::assert_snapshot!(all, @"
    0 y20777+08:25:54 pid2324: launcher killed 15
    0 y20777+08:21:18 pid1200: launcher killed 15
    0 y20300+22:13:20 -: exception RuntimeError: bad batch (1 frames, user /srv/train.py:9 f)
    0 y20300+22:13:20 -: exception ValueError: no (0 frames, user -)
    ");
}

#[test]
fn a_flood_of_error_lines_is_bounded() {
    let flood = "some tool: error: it is broken\n".repeat(2_000);
    let extract = read_bytes(flood.as_bytes());
    assert_eq!(extract.observations.len(), 500);
    assert_eq!(extract.notes.len(), 1);
}

/// Statements that end with their line, so that no cut behind it can change them.
fn is_of_one_line(o: &Observation) -> bool {
    !matches!(
        &o.fact,
        Fact::Torch(
            TorchEvent::Exception(_)
                | TorchEvent::Crash { .. }
                | TorchEvent::FailedCollectiveStack { .. }
                | TorchEvent::AsyncError { .. }
                | TorchEvent::WatchdogDied { .. }
                | TorchEvent::Desync { .. }
                | TorchEvent::ChildFailure { .. }
                | TorchEvent::LauncherFailed { .. }
                | TorchEvent::LauncherKilled { .. }
                | TorchEvent::Store(_)
                | TorchEvent::FingerprintMismatch { .. }
                | TorchEvent::Gloo(_)
        )
    )
}

/// Each with the line that tells of it.
fn lines_of(all: Vec<Observation>) -> Vec<(Observation, String)> {
    all.into_iter().map(|o| (o.clone(), summary(std::slice::from_ref(&o)))).collect()
}

#[track_caller]
fn check_cut(name: &str, bytes: &[u8], whole: &[(Observation, String)], at: usize) {
    let part_lines: Vec<String> = lines_of(told(&bytes[..at])).into_iter().map(|(_, line)| line).collect();
    let mut rest = whole.iter();
    let mut n_open = 0;
    for line in &part_lines {
        let mut ahead = rest.clone();
        if ahead.any(|(_, w)| w == line) { rest = ahead } else { n_open += 1 }
    }
    assert!(n_open <= 4, "{name} cut at {at}: {n_open} statements differ\n{}", part_lines.concat());
    for (o, line) in whole {
        if is_of_one_line(o) && o.cite.end < at as u64 {
            assert!(part_lines.contains(line), "{name} cut at {at} lost {line}");
        }
    }
}

#[test]
fn a_cut_file_gives_what_came_before() {
    for (name, bytes) in recordings() {
        let whole = lines_of(told(&bytes));
        // Each byte of short ones. All cuts of all recordings would take minutes.
        let step = (bytes.len() / 50).max(1) | 1;
        for at in (0..bytes.len()).step_by(step) {
            check_cut(&name, &bytes, &whole, at);
        }
    }
}

fn tagged(rank: u32, lines: &[&str]) -> Vec<String> {
    lines.iter().map(|l| format!("[rank{rank}]: {l}\n")).collect()
}

fn merged(a: &[String], b: &[String], picks: &[bool]) -> String {
    let (mut a, mut b) = (a.iter(), b.iter());
    let mut text = String::new();
    for first in picks {
        let next = if *first { a.next().or_else(|| b.next()) } else { b.next().or_else(|| a.next()) };
        text.extend(next.map(String::as_str));
    }
    text.extend(a.chain(b).map(String::as_str));
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        let extract = read_bytes(&bytes);
        prop_assert!(extract.observations.iter().all(|o| o.cite.end <= bytes.len() as u64));
    }

    /// Pieces of real forms in any order, with bytes lost between them.
    #[test]
    fn torn_lines_are_survived(picks in proptest::collection::vec((0_usize..24, 0_usize..60, any::<bool>()), 0..60)) {
        const PIECES: [&str; 24] = [
            "Traceback (most recent call last):", "  File \"/srv/a.py\", line 3, in f", "    main()", "    ^^^^^", "RuntimeError: x",
            "[rank3]: ", "[rank3]:[E1120 08:21:34.8 ProcessGroupNCCL.cpp:689] ", "[PG ID 0 PG GUID 0(default_pg) Rank 3] ",
            "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=45, OpType=ALLREDUCE, Timeout(ms)=8) ran for 9 ms",
            "Stack trace of the failed collective: ", "#0 f from /srv/a.py:3", "Fatal Python error: Aborted", "Extension modules: x",
            "Thread 0x12 (most recent call first):", "  File \"/srv/a.py\", line 3 in f", "Root Cause (first observed failure):", "[0]:",
            "  exitcode  : -6 (pid: 1345)", "============", "x.ChildFailedError: ", "During handling of the above exception",
            "Last error:", "terminated with exception: watchdog", " - [0] Timeout at collective: ALLREDUCE, #45",
        ];
        let mut text = String::new();
        for (piece, keep, newline) in picks {
            let piece = PIECES[piece];
            text.push_str(if keep < 50 { piece } else { &piece[..piece.len() / 2] });
            if newline { text.push('\n') }
        }
        let got = told(text.as_bytes());
        prop_assert!(got.windows(2).all(|w| w[0].cite.start <= w[1].cite.start));
        prop_assert!(got.iter().all(|o| o.cite.line > 0 && o.cite.start < o.cite.end));
    }

    /// However the lines of two ranks are shuffled into each other, each rank says the same as alone.
    #[test]
    fn interleaved_ranks_say_the_same_as_apart(picks in proptest::collection::vec(any::<bool>(), 0..40)) {
        let a = tagged(0, &[
            "Traceback (most recent call last):", "  File \"/srv/a.py\", line 9, in <module>", "    main()",
            "  File \"/srv/a.py\", line 5, in main", "    dist.all_reduce(g)",
            "torch.distributed.DistBackendError: NCCL error in: /x/NCCLUtils.cpp:93, invalid usage, NCCL version 2.28.9",
            "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.", "Last error:", "Duplicate GPU detected",
        ]);
        let b = tagged(1, &[
            "Traceback (most recent call last):", "  File \"/srv/a.py\", line 9, in <module>", "    main()", "KeyError: 'x'", "",
            "The above exception was the direct cause of the following exception:", "",
            "Traceback (most recent call last):", "  File \"/srv/a.py\", line 7, in load", "    raise ValueError(\"y\") from e", "ValueError: y",
        ]);
        let events = |text: &str| -> Vec<String> {
            let mut all: Vec<String> = told(text.as_bytes()).iter().map(|o| {
                let Fact::Torch(e) = &o.fact else { unreachable!() };
                format!("{} {}", who(&o.who), event(e))
            }).collect();
            all.sort();
            all
        };
        let apart: Vec<String> = [events(&a.concat()), events(&b.concat())].concat();
        prop_assert_eq!(apart.len(), 2);
        prop_assert_eq!(events(&merged(&a, &b, &picks)), apart);
    }
}
