use super::*;

const ORDINARY: &str = include_str!("../../data/messages/ordinary.txt");

/// Lines that report a failure, and the signs in their form.
#[test]
fn failures_are_seen() {
    let sees = |line: &str, shows: fn(Form<'_>) -> bool| {
        let form = of(line);
        assert!(form.is_some_and(shows), "{line}: {form:?}");
    };
    sees("E1120 10:00:00.123456 4242 store.cc:12] peer is gone", |f| f.level == Some(Level::Error));
    sees("2026-11-20 10:00:00.511020: E external/xla/xla/service/rendezvous.cc:31] something is odd", |f| {
        f.level == Some(Level::Error)
    });
    sees(
        "E0325 20:57:27.620000 2606 site-packages/torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -11) local_rank: 5 (pid: 2630) of binary: python",
        |f| f.exit == Some(-11),
    );
    sees("[rank2]:[E ProcessGroupNCCL.cpp:915] [Rank 2] taking the entire process down.", |f| {
        f.level == Some(Level::Error)
    });
    sees(
        "[rank3]:[W TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=3): Connection reset by peer",
        |f| f.errno.map(|e| e.name) == Some("ECONNRESET") && f.word.is_some(),
    );
    sees(
        "node0:1:2 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.0.5<43210> failed : Connection refused",
        |f| f.level == Some(Level::NcclWarn) && f.errno.map(|e| e.number) == Some(111),
    );
    sees("[2026-11-20 10:00:00,000] [ERROR] [engine.py:12] all is lost", |f| f.level == Some(Level::Error));
    sees("2026-11-20 10:00:00.123 | CRITICAL | train:main:12 - stop", |f| f.level == Some(Level::Fatal));
    sees("2026-11-20T10:00:00Z ERROR net::peer: gone", |f| f.level == Some(Level::Error));
    sees("ts=2026-11-20T10:00:00Z level=error caller=main.go:42 msg=\"scrape\"", |f| {
        f.level == Some(Level::Error)
    });
    sees("{\"ts\":1,\"level\":\"fatal\",\"msg\":\"stop\"}", |f| f.level == Some(Level::Fatal));
    sees(
        "[1700000000.123456] [gpu-02:4422 :0]  ucp_worker.c:1783 UCX  ERROR failed to resolve remote",
        |f| f.level == Some(Level::Error),
    );
    sees(
        "(raylet) [2026-11-20 10:00:00,000 E 1 1] (raylet) node_manager.cc:3064: 3 Workers killed due to memory pressure",
        |f| f.level == Some(Level::Error),
    );
    sees("srun: error: gpu-01: task 3: Exited with exit code 1", |f| {
        f.level == Some(Level::Error) && f.exit == Some(1)
    });
    sees("RuntimeError: CUDA error: an illegal memory access was encountered", |f| {
        f.exception == Some("RuntimeError")
    });
    sees("torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:94", |f| {
        f.exception == Some("torch.distributed.DistBackendError")
    });
    sees("terminate called after throwing an instance of 'c10::Error'", |f| {
        f.exception == Some("terminate called")
    });
    sees("thread 'main' panicked at src/main.rs:12:5:", |f| f.exception.is_some());
    sees("Caused by: java.lang.OutOfMemoryError: Java heap space", |f| f.exception.is_some());
    sees("MemoryError", |f| f.exception == Some("MemoryError"));
    sees("Fatal Python error: Aborted", |f| f.exception.is_some());
    sees("  exitcode  : -9 (pid: 14750)", |f| f.exit == Some(-9));
    sees("    Exit Code:    137", |f| {
        f.exit == Some(137)
            && matches!(f.ended_by(), Some(signal::ExitStatus::Signal(s)) if s.name == "SIGKILL")
    });
    sees("with errorcode 1.", |f| f.exit == Some(1));
    sees("traceback : Signal 9 (SIGKILL) received by PID 14750", |f| f.signal.map(|s| s.number) == Some(9));
    sees(
        "/var/spool/slurmd/job123/slurm_script: line 12:  4422 Aborted                 (core dumped) python train.py",
        |f| f.signal.map(|s| s.number) == Some(6),
    );
    sees("Bus error (core dumped)", |f| f.signal.map(|s| s.number) == Some(7));
    sees("OSError: [Errno 98] Address already in use", |f| f.errno.map(|e| e.name) == Some("EADDRINUSE"));
    sees("dial tcp 10.0.0.5:2379: connect: connection refused", |f| {
        f.errno.map(|e| e.name) == Some("ECONNREFUSED")
    });
    sees("Failed to process command ALLOC_PD (opcode 14) comp_status 1 err -12", |f| f.word.is_some());
    sees("ibv_modify_qp failed with 110", |f| f.word == Some("failed"));
    sees("MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD", |f| f.ended == Some("MPI_ABORT"));
    sees("slurmstepd: error: *** JOB 123456 ON gpu-01 CANCELLED AT 2026-11-20T10:00:00 ***", |f| {
        f.ended.is_some()
    });
    sees(
        "Warning  Evicted    2m    kubelet            The node was low on resource: ephemeral-storage.",
        |f| f.ended == Some("Evicted"),
    );
    sees("The following tasks are unhealthy (stopped sending heartbeats):", |f| f.ended.is_some());
    sees("iteration 1000/ 50000 | lm loss: nan | grad norm: nan | number of nan iterations: 1", |f| {
        f.nan == Some("lm loss")
    });
    sees("{'loss': nan, 'grad_norm': nan, 'epoch': 0.1}", |f| f.nan == Some("loss"));
    sees("step 812 loss nan lr 3e-4", |f| f.nan == Some("loss"));
    sees("Step:413/1843  TotalLoss:nan  PostnetLoss:nan", |f| f.nan == Some("TotalLoss"));
    sees("step 4\tloss\tnan", |f| f.nan == Some("loss"));
    sees("train_loss=inf, epoch=3", |f| f.nan == Some("train_loss"));
    sees("epoch 1 batch 80 loss nan", |f| f.nan == Some("loss"));
    sees("[04:32:11] (0) round 160 critic nan generator nan accuracy 0.50", |f| f.nan == Some("critic"));
    sees("Found NaN in gradients of layer 3", |f| f.nan.is_some());
    sees("# Out of bounds values : 12 FAILED", |f| f.wrong.is_some());
    sees("3 errors", |f| f.word == Some("errors"));
    sees(
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1) ran for 600 milliseconds before timing out",
        |f| f.word.is_some(),
    );
}

#[test]
fn look_alikes_are_none() {
    for line in ORDINARY.lines() {
        let form = of(line);
        assert!(form.is_none_or(|f| f.weight() == Weight::Weak), "{line}: {form:?}");
    }
    for line in [
        "0 errors",
        "error: 0",
        "no error",
        "failed=0",
        "retries on error",
        "--error",
        "ignore errors",
        "error_feedback=True",
        "nan_to_num",
        "loss: 0.12 error_rate 0.01",
        "exit code 0",
        "errors.py",
        "mean error 0.03",
        "failures: 0",
        "    raise RuntimeError(\"gone\")",
        "number of nan iterations:   0",
        "skipped 3 nan rows",
        "NCCL_ASYNC_ERROR_HANDLING=1",
        "this will fail in a future version",
        "error: None",
        "{\"level\":\"info\",\"error\":null}",
    ] {
        assert_eq!(of(line), None, "{line}");
    }
}

/// The block search leads to everything that `of` detects, wherever the line begins in its block.
#[test]
fn the_search_leads_to_every_form() {
    let mut missed = Vec::new();
    for row in crate::message::all() {
        for line in row.examples().flat_map(str::lines).filter(|l| of(l).is_some()) {
            for shift in 0..4 {
                // A line is between line feeds.
                let block = format!("{}\n{line}\n", &"   "[..shift]);
                if wanted(block.as_bytes(), 0).is_none() {
                    missed.push(line);
                }
            }
        }
    }
    assert!(missed.is_empty(), "{} {missed:#?}", missed.len());
}

#[test]
fn needles_are_long_enough_and_in_lower_case() {
    for needle in NEEDLES {
        assert!(needle.len() >= 5, "{needle}");
        assert_eq!(*needle, needle.to_ascii_lowercase());
    }
}

#[test]
fn templates_fold_what_changes() {
    let same = |a: &str, b: &str| assert_eq!(template(a), template(b));
    same(
        "[rank3] 2026-11-20 10:00:01,532 step 812 failed at 0x7f2a40000000",
        "[rank12] 2026-11-21 11:10:41,002 step 9 failed at 0xdeadbeef",
    );
    same("commId 1d1e2f3a4b5c6d7e", "commId 0a1b2c3d4e5f6071");
    same("GPU-1a2b3c4d-5e6f-7a8b-9c0d-1e2f3a4b5c6d gone", "GPU-00000000-0000-0000-0000-000000000001 gone");
    same("open /dev/shm/nccl-AbCdEf failed", "open /dev/shm/nccl-XyZwVu failed");
    same("10.0.0.5:43210 refused", "10.11.12.13:99 refused");
    assert_ne!(template("mlx5_0 down"), template("eth0 down"));
    for line in ORDINARY.lines() {
        assert_eq!(template(&template(line)), template(line), "{line}");
    }
}

proptest::proptest! {
    #[test]
    fn any_text_is_judged(line in ".{0,200}") {
        let _ = (of(&line), level(&line));
        let once = template(&line);
        proptest::prop_assert_eq!(template(&once), once.clone());
    }

    #[test]
    fn text_like_logs_is_judged(line in "[ \\[\\]:=,./#_a-fx0-9ErorNaSIGfailed-]{0,80}") {
        let _ = (of(&line), level(&line));
        let once = template(&line);
        proptest::prop_assert_eq!(template(&once), once.clone());
    }
}
