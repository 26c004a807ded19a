//! Every form of line that 2.8 to 2.32 print, one check each.

use super::{read, read_within, summary};
use crate::ground::Limits;

/// Reads `lines` and compares the summary without its first line (counts) and without the processes' line ranges.
#[track_caller]
fn check(lines: &str, expected: &str) {
    let log = read(lines.as_bytes());
    let summary = summary(&log);
    let mut said: Vec<&str> =
        summary.lines().skip(1).map(|l| l.split(" lines ").next().unwrap_or(l)).collect();
    if log.n_lines == 0 {
        said = vec!["nothing"];
    }
    let expected: Vec<&str> = expected.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let said: Vec<&str> = said.into_iter().map(str::trim).collect();
    assert_eq!(said, expected, "{lines}\n-- gave --\n{summary}\n");
}

#[test]
fn heads() {
    let warn = "process 0: vm/7 \n WARN 0: init.cc:904 x y => - [line 1]";
    let warn = warn.replace(" \n", "\n");
    check("vm:7:9 [0] init.cc:904 NCCL WARN x y\n", &warn);
    check("[2026-11-20 08:21:25] vm:7:9 [0] init.cc:904 NCCL WARN x y\n", &warn);
    check("[2026-11-20 08:21:25] vm:7:9 [0] init.cc:904 (commAlloc) NCCL WARN x y\n", &warn);
    check("vm:7:-9 [0] init.cc:904 NCCL WARN x y\n", &warn);
    check("vm:7:9 [0] init.cc:904 NCCL WARN x y\r\n", &warn);
    check("include/shm.h:28 NCCL WARN x y\n", "WARN ?: include/shm.h:28 x y => - [line 1]");
    check("NCCL WARN x y\n", "WARN ?: - x y => - [line 1]");
    check(
        "node3:XXXXXX [5] ibvwrap.c:262 NCCL WARN x y\n",
        "process 0: node3/-\nWARN 0: ibvwrap.c:262 x y => - [line 1]",
    );
    check("step 5 loss 2.1 vm:7:9 [0] init.cc:904 NCCL WARN x y\n", &warn);
    check("2026-11-20 08:21:25,123 vm:7:9 [0] init.cc:904 NCCL WARN x y\n", &warn);
    check("[rank3]: vm:7:9 [0] init.cc:904 NCCL WARN x y\n", &warn.replace("vm/7", "vm/7 rank=3"));
    check("[1,3]<stdout>:NCCL WARN x y\n", "process 0: -/- rank=3\nWARN 0: - x y => - [line 1]");
    // A process that a prefix alone named gets its host and pid as soon as a line has them.
    check(
        "[1,3]<stdout>:NCCL version 2.9.9+cuda11.3\n[1,3]<stdout>:vm:7:9 [0] NCCL INFO x\n",
        "process 0: vm/7 rank=3 nccl=2.9.9+cuda11.3",
    );
    check(
        "vm:7:9 [0] NCCL INFO x\nloss 2.31vm:7:8 [0] NCCL INFO Using network IB\n",
        "process 0: vm/7 network=IB",
    );
    check("acc 0.93=vm:7:9 [0] init.cc:904 NCCL WARN x y\n", "WARN ?: init.cc:904 x y => - [line 1]");
    check("vm:7:9 NCCL CALL ncclAllReduce(0x1,0x2)\n", "process 0: vm/7");
}

#[test]
fn what_only_speaks_of_nccl_is_no_line_of_its_own() {
    for line in [
        "run with NCCL_DEBUG=INFO for details",
        "look for NCCL WARN lines in the log",
        "NCCL version 2.28.9 compiled with CUDA 13.0",
        "ncclRemoteError: NCCL error in: ProcessGroupNCCL.cpp:2363, remote process exited, NCCL version 2.21.5",
        "vm:1345",
        "vm:1345:1345 [0] NCCL INFO",
        "xNCCL INFO y",
    ] {
        check(line, "nothing");
    }
}

#[test]
fn versions_and_set_up() {
    check(
        "NCCL version 2.18.5+cuda12.2\nvm:7:9 [0] NCCL INFO cudaDriverVersion 12020\n",
        "process 0: vm/7 nccl=2.18.5+cuda12.2 driver=12020",
    );
    check(
        "NCCL version 2.18.5+cuda12.2\nvm:7:9 [0] NCCL INFO x\nvm:8:9 [0] NCCL INFO x\n",
        "process 0: vm/7\nprocess 1: vm/8\nprocess 2: -/- nccl=2.18.5+cuda12.2",
    );
    check(
        "vm:7:9 [0] NCCL INFO NCCL version 2.32.1+cuda13.1\nvm:7:9 [0] NCCL INFO NCCL git version master abc\n",
        "process 0: vm/7 nccl=2.32.1+cuda13.1",
    );
    check(
        "vm:7:9 [0] NCCL INFO Bootstrap : Using eth0:10.1.1.1<0>\n",
        "process 0: vm/7 bootstrap=eth0:10.1.1.1<0>",
    );
    check(
        "vm:7:9 [0] NCCL INFO Bootstrap : Using [0]eth0:10.1.1.1<0> [1]eth1:10.1.1.2<0>\n",
        "process 0: vm/7 bootstrap=[0]eth0:10.1.1.1<0> [1]eth1:10.1.1.2<0>",
    );
    check(
        "vm:7:9 [0] NCCL INFO Bootstrap: Using eth0:10.1.1.1<0>\nvm:7:9 [0] NCCL INFO Bootstrap timings total 0.1 (create 0.0)\n",
        "process 0: vm/7 bootstrap=eth0:10.1.1.1<0>",
    );
    check(
        "vm:7:9 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB ib0:10.0.0.3<0>\nvm:7:9 [0] NCCL INFO Using network IB\n",
        "process 0: vm/7 network=IB ib=[0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]",
    );
    check(
        "vm:7:9 [0] NCCL INFO NET/IB : No device found.\nvm:7:9 [0] NCCL INFO NET/IB : Using [RO]; OOB eth0:10.0.0.3<0>\n",
        "process 0: vm/7",
    );
    check(
        "vm:7:9 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.5<0>\nvm:7:9 [0] NCCL INFO NET/Socket: Using 2 threads and 1 sockets per thread\n",
        "process 0: vm/7 socket=[0]eth0:10.0.0.5<0>",
    );
    check(
        "vm:7:9 [0] NCCL INFO NCCL_P2P_LEVEL set by environment to -1.\nvm:7:9 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth0.\nvm:7:9 [0] NCCL INFO NCCL_SOCKET_IFNAME set to eth0.\n",
        "process 0: vm/7\nset 0: NCCL_P2P_LEVEL=-1\nset 0: NCCL_SOCKET_IFNAME=eth0.",
    );
    // The same text with a head that a cut may have shortened.
    check("vm:7:9 [0] NCCL INFO Using network IB", "process 0: vm/7");
}

#[test]
fn life_of_a_communicator() {
    let p = "process 0: vm/7\n";
    let line = |text: &str| format!("vm:7:9 [0] NCCL INFO {text}\n");
    // ..2.15.5
    check(
        &line("comm 0x7f00 rank 1 nranks 8 cudaDev 1 busId 1b000 - Init COMPLETE"),
        &format!(
            "{p}comm 0: process 0 rank 1/8 dev 1/- gpu 0000:1b:00.0 ? start - complete 1 destroyed - aborted -"
        ),
    );
    // 2.16.2..2.18.1
    check(
        &line("comm 0x7f00 rank 1 nranks 8 cudaDev 1 busId 1b000 commId 0xdd5abef45bbcc4a7 - Init COMPLETE"),
        &format!(
            "{p}comm 0: process 0 rank 1/8 dev 1/- gpu 0000:1b:00.0 id dd5abef45bbcc4a7 ? start - complete 1 destroyed - aborted -"
        ),
    );
    // 2.18.3..2.20.5
    let both =
        line("comm 0x7f00 rank 1 nranks 8 cudaDev 1 nvmlDev 5 busId 1001b000 commId 0xdd - Init START")
            + &line(
                "comm 0x7f00 rank 1 nranks 8 cudaDev 1 nvmlDev 5 busId 1001b000 commId 0xdd - Init COMPLETE",
            );
    check(
        &both,
        &format!(
            "{p}comm 0: process 0 rank 1/8 dev 1/5 gpu 0100:1b:00.0 id dd ? start 1 complete 2 destroyed - aborted -"
        ),
    );
    // 2.21.5..2.28.9, and 2.29.2+ with its rank in front
    let init = "ncclCommInitRank comm 0x7f00 rank 1 nranks 8 cudaDev 1 nvmlDev 5 busId 1b000 commId 0xdd - Init START";
    let expected = format!(
        "{p}comm 0: process 0 rank 1/8 dev 1/5 gpu 0000:1b:00.0 id dd ncclCommInitRank start 1 complete - destroyed - aborted -"
    );
    check(&line(init), &expected);
    check(&line(&format!("[Rank 1] {init}")), &expected);
    // Splits: 2.21.5, 2.23.4 (dash glued), 2.24.3+, 2.29.2+
    for tail in [
        "parent 0x7a00 color 4 key 1 commId 0xee - Init START",
        "parent 0x7a00 color 4 key 1- Init START",
        "parent 0x7a00 splitCount 2 color 4 key 1- Init START",
        "parent 0x7a00 childCount 2 color 4 key -1- Init START",
    ] {
        let log = read(
            line(&format!(
                "ncclCommSplit comm 0x7f00 rank 1 nranks 2 cudaDev 1 nvmlDev 5 busId 1b000 {tail}"
            ))
            .as_bytes(),
        );
        let comm = log.comms.first().unwrap();
        assert_eq!(
            (comm.parent, comm.color, comm.started.is_some()),
            (Some(0x7a00), Some(4), true),
            "{tail}"
        );
        assert_eq!(comm.comm_id, tail.contains("commId").then_some(0xee), "{tail}");
    }
    // The end, and an address that comes back.
    let again = both.clone()
        + &line("comm 0x7f00 rank 1 nRanks 8 cudaDev 1 busId 1001b000 - Abort START")
        + &line("comm 0x7f00 rank 1 nranks 8 cudaDev 1 busId 1001b000 - Destroy COMPLETE")
        + &both.replace("rank 1 nranks 8", "rank 0 nranks 2").replace("0xdd", "0xee");
    check(&again, &format!("{p}comm 0: process 0 rank 1/8 dev 1/5 gpu 0100:1b:00.0 id dd ? start 1 complete 2 destroyed 4 aborted 3
        comm 1: process 0 rank 0/2 dev 1/5 gpu 0100:1b:00.0 id ee ? start 5 complete 6 destroyed - aborted -"));
    // Without START lines, as ..2.17 prints.
    let old = line("comm 0x7f00 rank 1 nranks 8 cudaDev 1 busId 1b000 - Init COMPLETE")
        + &line("comm 0x7f00 rank 0 nranks 4 cudaDev 1 busId 1b000 - Init COMPLETE");
    assert_eq!(read(old.as_bytes()).comms.len(), 2);
    // Placement alone introduces; a cut one does not.
    let placed = line("comm 0x7f00 rank 1 nRanks 8 nNodes 1 localRanks 8 localRank 1 MNNVL 0");
    check(
        &placed,
        &format!("{p}comm 0: process 0 rank 1/8 dev -/- gpu - ? start - complete - destroyed - aborted -"),
    );
    assert_eq!(read(placed.trim_end().as_bytes()).comms.len(), 0);
    check(
        &line("comm 0x7f00 rank 1 nRanks 8 cudaDev 1 busId 1b000 - Revoke START"),
        &format!(
            "{p}INFO 0: - comm 0x7f00 rank 1 nRanks 8 cudaDev 1 busId 1b000 - Revoke START => - [line 1]"
        ),
    );
}

const COLL: &str = "vm:7:7 [0] NCCL INFO AllReduce: opCount 2c sendbuff 0x7f12 recvbuff (nil) count 512 datatype 9 op 4 root 0 comm 0x7f00 [nranks=8] stream 0x55\n";

#[test]
fn calls() {
    let init = "vm:7:9 [0] NCCL INFO comm 0x7f00 rank 1 nranks 8 cudaDev 1 busId 1b000 - Init COMPLETE\n";
    let stamped = format!("{init}[2026-11-20 08:21:25] {COLL}");
    check(
        &stamped,
        "process 0: vm/7
        comm 0: process 0 rank 1/8 dev 1/- gpu 0000:1b:00.0 ? start - complete 1 destroyed - aborted -
        calls 1, last all_reduce opCount 44 count 512 BFloat16 op 4 root 0 line 2 at 1795162885",
    );
    let send = stamped.replace("AllReduce", "Send").replace("root 0", "root 3");
    assert_eq!(read(send.as_bytes()).calls.first().map(|c| (c.kind.name(), c.root)), Some(("send", 3)));
    // A communicator that INIT lines did not introduce, until its end shows who it was.
    check(COLL, "process 0: vm/7\nstranger 0: process 0 nranks 8 calls 1");
    let two = format!("{COLL}{}", COLL.replace("comm 0x7f00", "comm 0x7f11"));
    check(
        &two,
        "process 0: vm/7\nstranger 0: process 0 nranks 8 calls 1\nstranger 1: process 0 nranks 8 calls 1",
    );
    let told = format!(
        "{two}vm:7:9 [0] NCCL INFO comm 0x7f00 rank 1 nranks 8 cudaDev 1 busId 1b000 - Destroy COMPLETE\n"
    );
    check(
        &told,
        "process 0: vm/7
        comm 0: process 0 rank 1/8 dev 1/- gpu 0000:1b:00.0 ? start - complete - destroyed 3 aborted -
        calls 1, last all_reduce opCount 44 count 512 BFloat16 op 4 root 0 line 1 at 0
        stranger 0: process 0 nranks 8 calls 1",
    );
    // Cut anywhere before its last field, or torn by another rank, a call is not guessed at.
    for cut in 0..COLL.len() - 5 {
        assert_eq!(read(&COLL.as_bytes()[..cut]).calls.len(), 0, "{cut}");
    }
    let torn = format!("{COLL}{}{COLL}", &COLL[..90]);
    assert_eq!(read(torn.as_bytes()).calls.len(), 2);
    check(
        "vm:7:7 [0] NCCL INFO AllReduce: 2048 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}\n",
        "process 0: vm/7",
    );
}

#[test]
fn old_calls_make_room() {
    let mut log =
        "vm:7:9 [0] NCCL INFO comm 0x7f00 rank 1 nranks 8 cudaDev 1 busId 1b000 - Init COMPLETE\n".to_owned();
    for at in 0..25 {
        log.push_str(&COLL.replace("opCount 2c", &format!("opCount {at:x}")));
    }
    let (log, extract) = read_within(log.as_bytes(), &Limits { max_calls: 10, ..Limits::default() });
    let kept: Vec<u64> = log.calls.iter().map(|c| c.op_count).collect();
    assert_eq!(log.n_calls_dropped as usize + kept.len(), 25);
    assert_eq!(kept, (log.n_calls_dropped..25).collect::<Vec<_>>());
    assert_eq!(log.dropped_of_comm, [log.n_calls_dropped]);
    assert_eq!(extract.notes.len(), 1);
}

#[test]
fn channels() {
    let line = |text: &str| format!("vm:7:9 [0] NCCL INFO {text}\n");
    let all = line("Channel 00/24 :    0   1   2   3")
        + &line("Channel 00 : 0[1b000] -> 1[1c000] via P2P/IPC/read")
        + &line("Channel 01 : 0[1b000] -> 1[1c000] via P2P/IPC/read")
        + &line("Channel 00/0 : 0[0] -> 3[3] via P2P/CUMEM")
        + &line("Channel 02/0 : 1[1] -> 0[0] via SHM/direct/direct")
        + &line("Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA")
        + &line("Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/1(2)/GDRDMA(PCI)")
        + &line("Channel 03/0 : 0[0] -> 1[1] via P2P/direct pointer")
        + &line("Channel 02/0 : 0[1b000] -> 1[1c000] via P2P/IPC/read")
        + &line("CollNet 00/0 : 8 [send] via COLLNET/SHARP/0/GDRDMA");
    check(
        &all,
        "process 0: vm/7
        link 0: P2P/IPC/read, 1 pairs, 3 channels
        link 0: P2P/CUMEM, 1 pairs, 1 channels
        link 0: SHM/direct/direct, 1 pairs, 1 channels
        link 0: NET/IB/0/GDRDMA receive, 1 pairs, 1 channels
        link 0: NET/IB/1(2)/GDRDMA(PCI) send, 1 pairs, 1 channels
        link 0: P2P/direct pointer, 1 pairs, 1 channels
        link 0: COLLNET/SHARP/0/GDRDMA send, 1 pairs, 1 channels",
    );
    check(line("Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/1").trim_end(), "process 0: vm/7");
}

#[test]
fn failures() {
    let info = |text: &str| format!("vm:7:9 [0] NCCL INFO {text}\n");
    // The first back-trace of the same thread gives the result; another thread's does not.
    check(
        &("\n[2026-11-20 08:21:25] vm:7:9 [0] init.cc:904 NCCL WARN x\n".to_owned()
            + "vm:7:8 [0] NCCL INFO group.cc:70 -> 3 [Async thread]\n"
            + &info("init.cc:1582 -> 5")
            + &info("init.cc:1 -> 6 (remote process exited or there was a network error)")),
        "process 0: vm/7\nWARN 0: init.cc:904 x => 5 [line 2]\nback-traces 3: group.cc:70 -> 3 … init.cc:1 -> 6",
    );
    for text in [
        "socketPollConnect: connect returned Connection refused, retrying (3/35) after sleep for 300 msec",
        "socketPollConnect: connect to 10.0.0.3<5000> returned Connection refused, retrying (3/35) after sleep for 300 msec",
        "fallocate: Failed to extend /dev/shm/nccl-AbC to 9637892 bytes, error: No space left on device (28) - retrying",
        "socketFinalizeAccept from 10.0.0.3<5000>: socket magic mismatch (peer 0x1 != expected 0x2), discarding peer connection",
        "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'x'. Proceeding without NVLS support.",
        "P2P is disabled between connected GPUs 0 and 1. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.",
        "NET/IB : mlx5_0:1 Got non-fatal async event: port active(10)",
        "NET/IB : mlx5_0:1 GID table changed",
        "cuMem host allocations do not appear to be working; falling back to a /dev/shm/ based implementation.",
        "Call to connect failed : Connection timed out",
        "[Service thread] Connection closed by localRank 2",
        "Invalid value 3x for NCCL_ALGO, using default 0.",
    ] {
        check(&info(text), &format!("process 0: vm/7\nINFO 0: - {text} => - [line 1]"));
    }
    for text in [
        "NET/IB : No device found.",
        "Failed to initialize NET plugin IB",
        "dlvsym failed on mlx5dv_reg_dmabuf_mr - /lib/libmlx5.so: undefined symbol: mlx5dv_reg_dmabuf_mr",
        "NET/Plugin: Could not find: libnccl-net.so",
        "Topology detection : could not read /sys/devices/system/node/node-1/cpumap, ignoring",
        "socketProgressOpt: abort called",
        "Connected all rings, use ring PXN 0 GDR 1",
        "Ring 00 : 3 -> 0 -> 1",
        "Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1",
    ] {
        check(&info(text), "process 0: vm/7");
    }
}

#[test]
fn a_number_that_two_living_processes_bear_is_no_rank() {
    let line = |pid: u32| format!("0: vm:{pid}:9 [0] NCCL INFO x\n");
    check(&(line(7) + &line(8) + &line(7)), "process 0: vm/7\nprocess 1: vm/8");
    // One after the other: a restart.
    check(&(line(7) + &line(7) + &line(8)), "process 0: vm/7 rank=0\nprocess 1: vm/8 rank=0");
}
