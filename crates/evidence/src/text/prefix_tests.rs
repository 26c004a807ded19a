use ringleader_model::{LocalRank, Pid, Rank, WallTime};

use super::*;

/// The body and what the tag says, of the last of some lines.
fn check(lines: &str, expected_body: &str, expected_tag: &str) {
    let mut stripper = Stripper::default();
    let mut tag = Tag::default();
    let mut body = Vec::new();
    for line in lines.lines() {
        body = stripper.strip(line.as_bytes(), &mut tag).to_vec();
    }
    let mut said = Vec::new();
    if let Some(Rank(rank)) = tag.who.rank {
        said.push(format!("rank {rank}"));
    }
    if let Some(LocalRank(rank)) = tag.who.local_rank {
        said.push(format!("local {rank}"));
    }
    if let Some(host) = &tag.who.host {
        said.push(format!("host {host}"));
    }
    if let Some(Pid(pid)) = tag.who.pid {
        said.push(format!("pid {pid}"));
    }
    if let Some(WallTime { ns, has_year, .. }) = tag.at {
        said.push(format!(
            "at {}.{:09}{}",
            ns / 1_000_000_000,
            ns % 1_000_000_000,
            if has_year { "" } else { " no year" }
        ));
    }
    assert_eq!(
        (String::from_utf8_lossy(&body).as_ref(), said.join(", ").as_str()),
        (expected_body, expected_tag),
        "{lines}"
    );
}

#[test]
fn launcher_prefixes_are_taken_off_and_used() {
    check("[rank3]: Traceback (most recent call last):", "Traceback (most recent call last):", "rank 3");
    check("[rank3]:   File \"train.py\", line 3", "  File \"train.py\", line 3", "rank 3");
    check(
        "[rank1]:[E415 19:42:31.52 ProcessGroupNCCL.cpp:552] x",
        "[E415 19:42:31.52 ProcessGroupNCCL.cpp:552] x",
        "rank 1",
    );
    check("[rank8] Gloo connectFullMesh failed", "Gloo connectFullMesh failed", "rank 8");
    check("[rank12]:", "", "rank 12");
    check(
        "[07/18/2026-21:47:32] [TRT-LLM] [RANK 5] [E] Traceback (most recent call last):",
        "Traceback (most recent call last):",
        "rank 5, at 1784411252.000000000",
    );
    check("[07/18/2026-21:47:32] [TRT-LLM] [I] x", "x", "at 1784411252.000000000");
    check("[07/18/2026-21:47:32] [TRT-LLM] done", "[07/18/2026-21:47:32] [TRT-LLM] done", "");
    check("[default3]:  File \"x\"", "  File \"x\"", "local 3");
    check("[default3]:[rank11]: ValueError: x", "ValueError: x", "rank 11, local 3");
    check("[default0]: vm:1:1 [0] NCCL INFO x", "vm:1:1 [0] NCCL INFO x", "local 0");
    check("0: vm:13:13 [0] NCCL INFO x", "vm:13:13 [0] NCCL INFO x", "rank 0");
    check(
        " 7: [2026-11-20 08:21:25] vm:13:13 [0] NCCL INFO x",
        "[2026-11-20 08:21:25] vm:13:13 [0] NCCL INFO x",
        "rank 7",
    );
    check("12: Traceback (most recent call last):", "Traceback (most recent call last):", "rank 12");
    check("0: starting\n1: starting\n0: a\n1: b", "b", "rank 1");
    check("1: [default3]:step", "step", "local 3");
    check("1: [default3]:vm:1:1 [3] NCCL INFO x", "vm:1:1 [3] NCCL INFO x", "local 3");
    check("[1,3]<stdout>:node0:7731:8210 [0] NCCL INFO x", "node0:7731:8210 [0] NCCL INFO x", "rank 3");
    check("[1,3]<stderr>:  File \"x\"", "  File \"x\"", "rank 3");
    check("[prterun-node0-77@1,12]<stdout>: step", "step", "rank 12");
    check("(train_fn pid=123, ip=10.0.0.1) step 4", "step 4", "host 10.0.0.1, pid 123");
    check("(pid=123)   File \"x\"", "  File \"x\"", "pid 123");
    check(
        "(Worker_TP1 pid=51220) ERROR 05-28 16:20:11 [x.py:962] y",
        "ERROR 05-28 16:20:11 [x.py:962] y",
        "pid 51220",
    );
    check("\x1b[36m(main pid=9)\x1b[0m vm:1:1 [0] NCCL INFO x", "vm:1:1 [0] NCCL INFO x", "pid 9");
    check(
        "2026-11-20T08:21:34.123456789Z stdout F vm:1:1 [0] NCCL INFO x",
        "vm:1:1 [0] NCCL INFO x",
        "at 1795162894.123456789",
    );
    check("2026-11-20T08:21:34+00:00 stderr P half", "half", "at 1795162894.000000000");
    check("2026-11-20T08:21:34Z [rank2]: x", "x", "rank 2, at 1795162894.000000000");
    check("2026-11-20T08:21:34+0000 node7 python[88]: x", "x", "host node7, pid 88, at 1795162894.000000000");
    check(
        "Nov 20 08:21:34 node7.cluster python3[123]: hello",
        "hello",
        "host node7, pid 123, at 27937294.000000000 no year",
    );
    check(
        "Nov  2 08:21:34 node7 slurmstepd[1]: 3: NCCL WARN x",
        "NCCL WARN x",
        "rank 3, host node7, pid 1, at 26382094.000000000 no year",
    );
    check("node1: vm:1:1 [0] NCCL INFO x", "vm:1:1 [0] NCCL INFO x", "host node1");
    check("gpu-node-4.cluster.local: [rank3]: KeyError: 3", "KeyError: 3", "rank 3, host gpu-node-4");
    check("a-1: x\na-2: x\na-1: y\na-2: z", "z", "host a-2");
    check("10.0.0.7: NCCL version 2.18.5+cuda12.2", "NCCL version 2.18.5+cuda12.2", "host 10.0.0.7");
    check(
        "[24 similar log lines] [W1008 21:07:10.7 socket.cpp:767] x",
        "[W1008 21:07:10.7 socket.cpp:767] x",
        "",
    );
}

#[test]
fn prefixes_of_containers_nodes_and_loggers_are_taken_off() {
    check("[pod/job-0/train] [rank1]: ValueError: x", "ValueError: x", "rank 1, host job-0");
    check("[pod/job-0/train]   File \"x\"", "  File \"x\"", "host job-0");
    check("[pod/job-0/train] ", "", "host job-0");
    check("trainer-1  | [rank1]: ValueError: x", "ValueError: x", "rank 1, host trainer-1");
    check("trainer-1    | NCCL version 2.18.5+cuda12.2", "NCCL version 2.18.5+cuda12.2", "host trainer-1");
    check("a-1  | x\na_2  | y\na-1  | z", "z", "host a-1");
    check("a-1  | x\na-2  | y\na-1  |", "", "host a-1");
    check("worker-1: [rank1]: ValueError: x", "ValueError: x", "rank 1, host worker-1");
    check("worker1: x\nworker2: x\nworker1:   File \"x\"", "  File \"x\"", "host worker1");
    check("rank1: Traceback (most recent call last):", "Traceback (most recent call last):", "host rank1");
    check("[2026-11-20 08:21:34] [rank2]: x", "x", "rank 2, at 1795162894.000000000");
    check("[2026-11-20 08:21:34.5] 3: [rank2]: x", "x", "rank 2, at 1795162894.500000000");
    check("[2026-11-20T08:21:34Z]   File \"x\"", "  File \"x\"", "at 1795162894.000000000");
    check(
        "[2026-11-20 08:21:34] [2026-11-20 08:21:25] vm:1:1 [0] NCCL INFO x",
        "[2026-11-20 08:21:25] vm:1:1 [0] NCCL INFO x",
        "at 1795162894.000000000",
    );
    check("2026-11-20 08:21:34,123 INFO starting", "INFO starting", "at 1795162894.123000000");
    check("2026-11-20 08:21:34,123 - ERROR - [rank2]: x", "x", "rank 2, at 1795162894.123000000");
    check("2026-11-20 08:21:34 INFO NCCL WARN x", "NCCL WARN x", "at 1795162894.000000000");
    check("(RolloutWorker(rank=1) pid=4711, ip=10.0.0.7) x", "x", "host 10.0.0.7, pid 4711");
    check("(A(a=(1, 2)) pid=4711) x", "x", "pid 4711");
}

#[test]
fn what_only_looks_like_a_prefix_stays() {
    for line in [
        "RuntimeError: x",
        "ValueError: NCCL WARN is not a level",
        "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled system error",
        "socket.gaierror: [Errno -2] Name or service not known",
        "UnicodeDecodeError: 'utf-8' codec",
        "File \"/srv/train.py\", line 83, in step",
        "  File \"/srv/train.py\", line 83, in step",
        "W1120 08:17:08.659000 12 torch/distributed/run.py:897] x",
        "[E1120 08:17:08.659 ProcessGroupNCCL.cpp:689] [Rank 1] Watchdog",
        "[Rank 1] Collective WorkNCCL(SeqNum=402)",
        "[2026-11-20 08:21:25] vm:1345:1345 [0] NCCL INFO x",
        "vm:1345:1345 [0] NCCL INFO x",
        "node1:1345:1345 [0] init.cc:904 NCCL WARN x",
        "http://10.0.0.1:29500",
        "step: 5",
        "step5: loss 3",
        "epoch-3: [2026-11-20 08:21:25] x",
        "python3: can't open file",
        "libcuda.so.1: cannot open shared object file",
        "train-1.py: error: unrecognized arguments",
        "NET/IB : No device found.",
        "2026-11-20 08:21:34",
        "[2026-11-20 08:21:34]",
        "[2026-11-20 08:21:34,520] torch.distributed.elastic.multiprocessing.api: [ERROR] failed",
        "[pod/job-0] x",
        "[pod/job 0/train] x",
        "Error: x",
        "ValueError: x",
        "Traceback (most recent call last):",
        "step 10: loss 3",
        "rank 1: step",
        "worker-1: loss 3",
        "E1120 08:17:08.659 x",
        "| N/A   31C    P0    70W / 700W |   1024MiB / 81559MiB |",
        "resnet-50  | 76.1",
        "loss  | 76.1",
        "f(x) pid=3",
        "(see f(x) for pid=3)",
        "(a) b (pid=3)",
        "[0] hello",
        "[step3]: x",
        "[1, 2, 3]",
        "(1, 2, 3)",
        "(pid=x)",
        "3 errors: x",
        "frame #0: c10::Error::Error(c10::SourceLocation) + 0x96",
        "Nov 20 08:21:34 node7 kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid=12",
        "Mon Nov 20 08:21:34 2026       ",
        "    3 | return x",
        "",
        ":",
        "[",
        "[rank",
        "[rank3",
        "(",
        "(pid=",
    ] {
        check(line, line, "");
    }
    // A count in the middle of other lines is no task id, a word with a number no node.
    check("hello\nworld\nagain\n3: three little ranks", "3: three little ranks", "");
    check("hello\nworld\nagain\nresnet-50: accuracy 0.7", "resnet-50: accuracy 0.7", "");
    // A row of a table is no line of a container.
    check("a-1 | 1 | 2\na-2 | 1 | 2\na-3 | 1 | 2\na-4 | 1 | 2", "a-4 | 1 | 2", "");
}

#[test]
fn a_tag_does_not_outlive_its_line() {
    check("[rank3]: x\ny", "y", "");
}

/// What is stripped does not depend on the value of a digit.
#[test]
fn a_stamp_that_is_no_time_is_stripped_and_gives_none() {
    check("2026-13-20 08:21:34,123 INFO starting", "INFO starting", "");
    check("2026-13-20T08:21:34Z x", "x", "");
    check("9926-11-20T08:21:34Z x", "x", "");
    check("[2026-11-20 88:21:34] x", "x", "");
    check("Nov 20 08:91:34 node7 train[3]: x", "x", "host node7, pid 3");
}

#[test]
fn ranks_of_composer() {
    check(
        "2024-07-31 14:39:05,772: rank5[906][MainThread]: DEBUG: composer.trainer: x",
        "DEBUG: composer.trainer: x",
        "rank 5, pid 906, at 1722436745.772000000",
    );
    check("rank5[906] x", "rank5[906] x", "");
}

#[test]
fn streams_of_commands_on_several_nodes() {
    check(
        "diffusion.hgx-b07.nolog [stderr]   rank      : 14 (local_rank: 6)",
        "  rank      : 14 (local_rank: 6)",
        "",
    );
    check("he said [stderr] x", "he said [stderr] x", "");
}
