//! Small evidence, from text to verdict: each with a look-alike.

use crate::recorded;

fn cause(files: &[(&str, &str)]) -> &'static str {
    let files: Vec<(String, Vec<u8>)> =
        files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect();
    recorded::diagnose(&files).cause.id()
}

const PLUGIN_FAILS: &str = "\
n7:431:431 [0] NCCL INFO Bootstrap : Using eth0:10.2.0.7<0>
n7:431:431 [0] create:96 NCCL WARN NET/OFI Only EFA provider is supported
n7:431:431 [0] create:131 NCCL WARN NET/OFI aws-ofi-nccl initialization failed
n7:431:431 [0] NCCL INFO Using network Socket
n7:431:470 [0] NCCL INFO comm 0x55d2c0 rank 0 nranks 4 cudaDev 0 busId 1b0 - Init COMPLETE
";

#[test]
fn what_a_program_states_before_its_orderly_end_was_overcome() {
    let went_well = "\
[2025-03-04 10:02:11] epoch 0 step 100/400 loss 1.91 8.1 it/s
[2025-03-04 10:02:55] epoch 0 step 400/400 loss 1.22 8.1 it/s
[2025-03-04 10:02:58] Training finished, process exited with code 0
";
    assert_eq!(cause(&[("job.log", &format!("{PLUGIN_FAILS}{went_well}"))]), "none");
    // Nothing shows how it went on.
    assert_eq!(cause(&[("job.log", PLUGIN_FAILS)]), "net-plugin-error");
    // It ended by a failure.
    let failed = "[rank0]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error\n";
    assert_eq!(cause(&[("job.log", &format!("{PLUGIN_FAILS}{failed}"))]), "net-plugin-error");
}

/// Whoever catches an exception catches it again: the last one, behind which one more step is printed, is no failure either.
#[test]
fn an_exception_that_is_caught_again_and_again() {
    let caught = "\
Traceback (most recent call last):
  File \"/srv/sing.py\", line 157, in main
    import curves
ModuleNotFoundError: No module named 'curves'
";
    let steps =
        |from: u32| (from..from + 3).map(|n| format!("step {n} loss 2.{n}\n")).collect::<Vec<_>>().concat();
    let text = format!("{}{caught}{}{caught}step 6 loss 2.6\n", steps(0), steps(3));
    assert_ne!(cause(&[("job.log", &text)]), "application-exception", "{text}");
    // Behind which nothing more is printed, it may have ended the program, and so may another one.
    let ends = format!("{}{caught}{}{caught}", steps(0), steps(3));
    assert_eq!(cause(&[("job.log", &ends)]), "application-exception", "{ends}");
    let other = caught.replace("curves", "lines");
    assert_eq!(
        cause(&[("job.log", &format!("{}{caught}{}{other}", steps(0), steps(3)))]),
        "application-exception"
    );
}

/// Last words of another rank, of a handler or of a part of the program do not make a failure harmless.
#[test]
fn exceptions_are_not_overcome_by_last_words() {
    let steps = "step 1 loss 2.1\nstep 2 loss 2.0\n";
    for (error, last) in [
        (
            "[rank0]: RuntimeError: CUDA error: an illegal memory access was encountered",
            "[rank1]: evaluation run took 3.1 s",
        ),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
            "evaluation run took 3.1 s",
        ),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "process group destroyed"),
    ] {
        let text = format!("{steps}{error}\n{last}\n");
        assert_ne!(cause(&[("job.log", &text)]), "none", "{text}");
    }
}

#[test]
fn a_rank_that_says_why_it_cannot_join_explains_the_wait_for_it() {
    let waits = "\
INFO 2024-06-03 08:11:01,694 Rank 0 will host the TCPStore server at trainer-a:47279
RuntimeError: Timed out after 301 seconds waiting for clients. 1/2 clients joined.
";
    let fails = "\
INFO 2024-06-03 08:11:01,702 Rank 1 connects to the TCPStore server at trainer-a:47279
Traceback (most recent call last):
  File \"/opt/app/main.py\", line 44, in <module>
    store = TCPStore(host, port, world_size, is_master=False, timeout=timeout)
ValueError: host not found: Name or service not known
";
    assert_eq!(cause(&[("a.log", waits), ("b.log", fails)]), "hostname-resolution");
    assert_eq!(cause(&[("a.log", waits)]), "missing-rank");
}

/// All wait for what rank 0 does; nothing states why it is not there.
#[test]
fn who_does_not_wait_is_named_where_a_hang_is_guessed() {
    for case in ["round-43/accelerate-2528", "round-42/coderosetta-4"] {
        let verdict = recorded::diagnose(&files_of_case(case));
        assert_eq!(verdict.cause.id(), "slow-rank-stall", "{verdict:?}");
        let named: Vec<_> = verdict.culprits.iter().filter_map(|c| c.rank).collect();
        assert_eq!(named, [ringleader_model::Rank(0)], "{verdict:?}");
    }
}

/// The evidence of a case of `unseen/`, in the order of names.
fn files_of_case(path: &str) -> Vec<(String, Vec<u8>)> {
    let folder = format!("{}/../../unseen/{path}/evidence", env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<(String, Vec<u8>)> = std::fs::read_dir(folder)
        .expect("the case")
        .map(|entry| {
            let entry = entry.expect("an entry");
            (entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path()).expect("bytes"))
        })
        .collect();
    files.sort();
    files
}

/// A launcher ends its ranks with signals after a watchdog has spoken: nobody stopped the job from outside.
#[test]
fn a_job_that_timed_out_was_not_stopped_from_outside() {
    let signals = "\
W1121 01:48:08.743000 5512 torch/distributed/elastic/multiprocessing/api.py:1012] Sending process 5515 closing signal SIGTERM
W1121 01:48:08.744000 5512 torch/distributed/elastic/multiprocessing/api.py:1012] Sending process 5516 closing signal SIGTERM
    raise SignalException(f\"Process {os.getpid()} got signal: {sigval}\", sigval=sigval)
torch.distributed.elastic.multiprocessing.api.SignalException: Process 5512 got signal: 15
";
    let timed_out = "[rank0]:[E1121 01:47:52.857003672 ProcessGroupNCCL.cpp:689] [Rank 0] Watchdog caught collective operation \
                     timeout: WorkNCCL(SeqNum=8, OpType=BROADCAST, NumelIn=512, NumelOut=512, Timeout(ms)=8000) ran for 8004 \
                     milliseconds before timing out.\n";
    assert_eq!(cause(&[("stderr.log", signals)]), "stopped-from-outside");
    assert_ne!(cause(&[("stderr.log", &format!("{timed_out}{signals}"))]), "stopped-from-outside");
}

/// Machines that the verdict names.
fn machines(files: &[(&str, &str)]) -> Vec<String> {
    let files: Vec<(String, Vec<u8>)> =
        files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect();
    let culprits = recorded::diagnose(&files).culprits;
    culprits.iter().filter_map(|c| c.host.as_ref().map(ToString::to_string)).collect()
}

const LOST_GPU: &str =
    "[41211.8] NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, name=python3, GPU has fallen off the bus.\n";

#[test]
fn the_machine_is_named_by_the_prompt_the_command_or_the_file() {
    let prompt = format!("ops@cn-41:~$ dmesg | tail -3\n{LOST_GPU}");
    assert_eq!(machines(&[("paste.txt", &prompt)]), ["cn-41"]);
    let ssh = format!("$ ssh cn-42 'dmesg | tail -3'\n{LOST_GPU}");
    assert_eq!(machines(&[("paste.txt", &ssh)]), ["cn-42"]);
    assert_eq!(machines(&[("dmesg_cn-43.txt", LOST_GPU)]), ["cn-43"]);
    // The one that is broken, not the one that was looked at last.
    let two = format!(
        "ops@cn-41:~$ dmesg | tail -3\n{LOST_GPU}ops@cn-44:~$ dmesg | tail -3\nops@cn-44:~$ uptime\n"
    );
    assert_eq!(machines(&[("paste.txt", &two)]), ["cn-41"]);
    // No name of a machine.
    assert!(machines(&[("dmesg.txt", LOST_GPU)]).is_empty());
    let bare = format!("$ dmesg | tail -3\n{LOST_GPU}");
    assert!(machines(&[("attempt-2.txt", &bare)]).is_empty());
    // What a shell without a name printed is not of the machine that it asks next.
    let next = format!("$ dmesg | tail -3\n{LOST_GPU}$ ssh cn-42 uptime\n 10:11:12 up 3 days\n");
    assert!(machines(&[("paste.txt", &next)]).is_empty());
}

#[test]
fn who_reports_a_lost_machine_is_not_the_lost_one() {
    let text = "\
ops@login1:~$ squeue -j 41
srun: error: Node failure on cn-07
slurmstepd: error: *** JOB 41 ON cn-03 CANCELLED AT 2025-02-03T10:11:12 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***
";
    assert!(!machines(&[("slurm-41.out", text)]).contains(&"login1".to_owned()));
}

#[test]
fn the_one_rank_with_an_error_of_its_own_is_named() {
    let text = "\
[rank2]: OSError: [Errno 28] No space left on device: '/ckpt/step_400/rank2.pt'
[rank0]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error
[rank1]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error
";
    let files = [("job.log".to_owned(), text.as_bytes().to_vec())];
    let verdict = recorded::diagnose(&files);
    let ranks: Vec<u32> = verdict.culprits.iter().filter_map(|c| c.rank.map(|r| r.0)).collect();
    assert_eq!(ranks, [2], "{verdict:#?}");
}

/// Steps that advance earn a clean bill, unless somebody's own words beside them say that something fails.
#[test]
fn complaints_beside_steps_that_advance_deny_a_clean_bill() {
    let steps = "Epoch [1/10] train loss 0.52 acc 0.81\nEpoch [2/10] train loss 0.41 acc 0.86\n";
    assert_eq!(cause(&[("train.log", steps)]), "none");
    for complaint in [
        "it crashes with no message",
        "after this everything is stuck, GPU 100%",
        "and it is twice as slow as with one GPU",
        "the loss becomes nan",
        "the job was killed",
        "the results differ between ranks",
    ] {
        assert_ne!(cause(&[("train.log", &format!("{steps}{complaint}\n"))]), "none", "{complaint}");
    }
    for harmless in ["warning: a run that gets stuck may be ended with Ctrl-C", "set this if it crashes"] {
        assert_eq!(cause(&[("train.log", &format!("{steps}{harmless}\n"))]), "none", "{harmless}");
    }
}

/// A server's start that worried somebody: no sign of health is recorded, and the words are those of healthy jobs.
#[test]
fn words_of_healthy_jobs_earn_a_clean_bill_that_a_complaint_denies() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../unseen/round-39/vllm-29250/evidence");
    let mut text = String::new();
    for entry in std::fs::read_dir(path).expect("the case") {
        text.push_str(&std::fs::read_to_string(entry.expect("an entry").path()).expect("text"));
    }
    let went = recorded::diagnose(&[("serve.log".to_owned(), text.clone().into_bytes())]);
    assert_eq!(went.cause.id(), "none");
    assert_eq!(went.summary, "no line reports a failure, and the wording is that of healthy jobs");
    assert_eq!(went.confidence, ringleader_model::Confidence::Low);
    assert_ne!(
        cause(&[("serve.log", &format!("{text}\nand then it hangs after the first request\n"))]),
        "none"
    );
}

/// A guess needs more words than one message has.
#[test]
fn a_guess_needs_words() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../unseen/written-2/data-loading-bound.txt");
    let pieces = std::fs::read_to_string(path).expect("the pieces");
    let piece = pieces.split("\n-----8<-----\n").next().expect("a piece");
    let guess = recorded::diagnose(&[("note.txt".to_owned(), piece.as_bytes().to_vec())]);
    assert_eq!(guess.cause.id(), "data-loading-bound");
    assert!(guess.confidence < ringleader_model::Confidence::High);
    let few = "the data loader of our job reads from a network file system, and steps are slow\n";
    assert_eq!(cause(&[("note.txt", few)]), "undecided");
}

/// Where rules are unsure, plain words of another cause count; the look-alikes among the cases hold what they must not do.
#[test]
fn words_count_where_rules_are_unsure() {
    let of_case = |path: &str| recorded::diagnose(&files_of_case(path)).cause.id();
    // A message that only suggests its cause.
    assert_eq!(of_case("round-40/deeplearningexamples-339"), "rank-env-misconfigured");
    // Ranks that never joined, and words that say why.
    assert_eq!(of_case("round-54/llamafactory-360"), "slow-rank-stall");
    // Tables in which nothing is wrong, beside somebody's words of a fault.
    assert_ne!(of_case("round-54/pytorch-52142"), "none");
}

/// A line of a driver or a tool that tells of its own failure earns no clean bill; a dropped ping does not either, unless a job
/// goes on beside it (the case `like-ping-dropped`).
#[test]
fn a_failure_that_a_driver_reports_denies_a_clean_bill() {
    for line in [
        "mlx5_core 0000:c1:00.0 eth2: TX timeout detected",
        "mlx5_core 0000:18:00.0: wait_func:1155:(pid 1967079): TEARDOWN_HCA(0x103) timeout. Will cause a leak of a command resource",
        "efa 0000:00:1d.0: nvidia_p2p_get_pages failed -22",
        "5 packets transmitted, 0 received, 100% packet loss, time 4099ms",
        "# Avg bus bandwidth    : 21.3 FAILED",
    ] {
        assert_ne!(cause(&[("dmesg.txt", &format!("{line}\n"))]), "none", "{line}");
    }
}

/// A rule that would need more evidence stands against a clean bill by words.
#[test]
fn an_open_question_of_a_rule_denies_a_clean_bill() {
    let healthy = "step 100 loss 2.31 4.1 it/s\nstep 200 loss 2.02 4.1 it/s\nstep 300 loss 1.88 4.1 it/s\nTraining completed.\n";
    assert_eq!(cause(&[("train.log", healthy)]), "none");
    let lost = "$ ping -c 3 node7\n3 packets transmitted, 0 received, 100% packet loss, time 2040ms\n";
    assert_eq!(cause(&[("ping.txt", lost)]), "undecided");
}

/// Lines of a message that is known to be harmless state nothing of their own; the same words elsewhere do.
#[test]
fn a_harmless_message_of_several_lines() {
    let tried = "\
--------------------------------------------------------------------------
The library attempted to open the following supporting CUDA libraries,
but each of them failed.  CUDA-aware support is disabled.
libcuda.so.1: cannot open shared object file: No such file or directory
libcuda.dylib: cannot open shared object file: No such file or directory
--------------------------------------------------------------------------
";
    let steps =
        (1..40).map(|n| format!("epoch 0 step {n}/400 loss 2.{n} 8.1 it/s\n")).collect::<Vec<_>>().concat();
    assert_eq!(cause(&[("job.log", &format!("{tried}{steps}"))]), "none");
    let fails = "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory\n";
    assert_eq!(cause(&[("job.log", fails)]), "container-config");
    assert_eq!(cause(&[("job.log", &format!("{tried}{}{fails}", "x\n".repeat(30)))]), "container-config");
    // Right below it, too.
    assert_ne!(cause(&[("job.log", &format!("{tried}{steps}{fails}"))]), "none");

    let fork = "\
An MPI process has executed an operation involving a call to the
\"fork()\" system call to create a child process.  Open MPI is currently
operating in a condition that could result in memory corruption or
other system errors; your MPI job may hang, crash, or produce silent
data corruption.  The use of fork() (or system() or other calls that
create child processes) is strongly discouraged.
";
    assert_eq!(cause(&[("job.log", &format!("{fork}{steps}"))]), "none");
    let corrupt = "ERROR: memory corruption on rank 3\n";
    assert_ne!(cause(&[("job.log", &format!("{steps}{fork}{corrupt}"))]), "none");
}

#[test]
fn loaders_with_more_workers_than_processors() {
    let steps = (1..12).map(|n| format!("step {n} loss 2.{n} 0.19 it/s\n")).collect::<Vec<_>>().concat();
    let warns = "UserWarning: This DataLoader will create 8 worker processes in total. Our suggested max number of worker in current system is 1, which is smaller than what this DataLoader is going to create.\n";
    let gpus = |used: u32| {
        format!(
            "$ nvidia-smi --query-gpu=index,utilization.gpu --format=csv\nindex, utilization.gpu [%]\n0, {used} %\n1, {used} %\n2, 3 %\n3, {used} %\n"
        )
    };
    let of = |used| cause(&[("job.log", &format!("{warns}{steps}")), ("gpus.txt", &gpus(used))]);
    assert_eq!(of(2), "data-loading-bound");
    assert_ne!(of(96), "data-loading-bound");
}

#[test]
fn a_loss_that_is_nan_however_it_is_printed() {
    let steps: String =
        (1..40).map(|n| format!("Step:{n}/400  TotalLoss:2.{n}  8.1 it/s\n")).collect::<Vec<_>>().concat();
    assert_eq!(cause(&[("job.log", &steps)]), "none");
    for nan in ["TotalLoss:nan  GradNorm:nan", "loss:nan, lr:0.1", "\tloss\tnan\t"] {
        let text = format!("{steps}{}", format!("Step:41/400  {nan}\n").repeat(12));
        assert_ne!(cause(&[("job.log", &text)]), "none", "{nan}");
    }
}
