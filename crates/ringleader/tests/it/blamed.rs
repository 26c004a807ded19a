//! Whom a verdict accuses where only words, addresses or numbers of GPUs tell, from text to verdict.

use ringleader_model::Verdict;

use crate::recorded;

fn verdict(files: &[(&str, &str)]) -> Verdict {
    let files: Vec<(String, Vec<u8>)> =
        files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect();
    recorded::diagnose(&files)
}

fn ranks(files: &[(&str, &str)]) -> Vec<u32> {
    verdict(files).culprits.iter().filter_map(|c| c.rank.map(|rank| rank.0)).collect()
}

fn machines(files: &[(&str, &str)]) -> Vec<String> {
    verdict(files).culprits.iter().filter_map(|c| c.host.as_ref().map(ToString::to_string)).collect()
}

#[test]
fn tasks_that_a_launcher_says_ran_out_of_memory() {
    let text = "\
slurmstepd: error: Detected 3 oom-kill event(s) in StepId=517.0. Some of the step tasks have been OOM Killed.
srun: error: gn07: tasks 1,5: Out Of Memory
srun: Terminating StepId=517.0
srun: error: gn07: tasks 0,2-4,6-7: Killed
";
    assert_eq!(verdict(&[("slurm-517.out", text)]).cause.id(), "oom-killed");
    assert_eq!(ranks(&[("slurm-517.out", text)]), [1, 5]);
    assert_eq!(machines(&[("slurm-517.out", text)]), ["gn07", "gn07"]);
}

#[test]
fn the_machine_whose_tasks_ended_by_themselves() {
    let job = |first: &str| {
        format!(
            "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory\n\
             srun: error: {first}: tasks 8-15: Exited with exit code 1\n\
             srun: error: gn02: tasks 0-7: Terminated\n"
        )
    };
    assert_eq!(machines(&[("job.out", &job("gn03"))]), ["gn03"]);
    // Both ended so: neither is at fault alone.
    let both = job("gn03").replace("Terminated", "Exited with exit code 1");
    assert!(machines(&[("job.out", &both)]).is_empty());
}

/// A survivor that speaks alone of a lost machine is not that machine.
#[test]
fn a_survivor_is_not_the_machine_that_was_lost() {
    let text = "\
ops@cn-03:~$ scontrol show job 41 | grep State
srun: error: Node failure on node list that is not shown
slurmstepd: error: *** JOB 41 CANCELLED AT 2025-02-03T10:11:12 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***
";
    assert_eq!(verdict(&[("slurm-41.out", text)]).cause.id(), "node-lost");
    assert!(!machines(&[("slurm-41.out", text)]).contains(&"cn-03".to_owned()));
}

#[test]
fn the_one_in_another_kind_of_call() {
    let line = |rank: u32, op: &str| {
        format!(
            "[E ProcessGroupNCCL.cpp:566] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(OpType={op}, \
             Timeout(ms)=1800000) ran for 180{rank}164 milliseconds before timing out.\n"
        )
    };
    let few = format!(
        "{}{}{}{}",
        line(0, "ALLREDUCE"),
        line(1, "BROADCAST"),
        line(2, "BROADCAST"),
        line(3, "BROADCAST")
    );
    assert_eq!(ranks(&[("train.log", &few)]), [0], "{:#?}", verdict(&[("train.log", &few)]));
    // Two and two.
    let even = format!(
        "{}{}{}{}",
        line(0, "ALLREDUCE"),
        line(1, "BROADCAST"),
        line(2, "BROADCAST"),
        line(3, "ALLREDUCE")
    );
    assert!(ranks(&[("train.log", &even)]).is_empty());
}

const FOUR_GPUS: &str = "\
index, pci.bus_id, utilization.gpu [%]
0, 00000000:17:00.0, 100 %
1, 00000000:31:00.0, 100 %
2, 00000000:62:00.0, 100 %
3, 00000000:98:00.0, 100 %
";
const FELL_OFF: &str =
    "[41211.8] NVRM: Xid (PCI:0000:62:00): 79, pid=4711, name=python3, GPU has fallen off the bus.\n";
const FOUR_RANKS: &str =
    "$ torchrun --standalone --nproc_per_node=4 train.py\nstep 1 loss 2.71\nstep 2 loss 2.52\n";

#[test]
fn the_rank_of_a_gpu_by_its_address_or_its_idleness() {
    let of = |smi: &str, kernel: &str, launch: &str| {
        ranks(&[("smi.csv", smi), ("dmesg.txt", kernel), ("train.log", launch)])
    };
    assert_eq!(of(FOUR_GPUS, FELL_OFF, FOUR_RANKS), [2]);
    // No job, no ranks.
    assert!(ranks(&[("smi.csv", FOUR_GPUS), ("dmesg.txt", FELL_OFF)]).is_empty());
    // The list does not show the GPU.
    let other = FELL_OFF.replace("62:00", "b1:00");
    assert!(of(FOUR_GPUS, &other, FOUR_RANKS).is_empty());
    // Eight ranks are on two machines: which of them has these GPUs is not known.
    let eight = "$ torchrun --nnodes=2 --node_rank=1 --nproc_per_node=4 --master_addr=gn01 train.py\n\
                 [rank7]: RuntimeError: CUDA error: unspecified launch failure\n";
    assert!(!of(FOUR_GPUS, FELL_OFF, eight).contains(&2));
}

/// What gloo reports of a lost connection names no rank: the only one that reports none is the one that left.
#[test]
fn the_only_rank_that_reports_no_lost_connection() {
    let lost = |rank: u32| {
        format!(
            "[rank{rank}]: RuntimeError: [/src/gloo/gloo/transport/tcp/pair.cc:546] Connection closed by peer [127.0.0.1]:37123\n"
        )
    };
    let steps = |rank: u32, n: u32| -> String {
        (0..n).map(|step| format!("[rank{rank}]: step {step} loss 2.{step}\n")).collect::<Vec<_>>().concat()
    };
    let (zero, two) = (steps(0, 5) + &lost(0), steps(2, 5) + &lost(2));
    let one = steps(1, 3);
    let logs = [("a.log", zero.as_str()), ("b.log", one.as_str()), ("c.log", two.as_str())];
    assert_eq!(ranks(&logs), [1]);
    // All report it: nobody is set apart.
    let all = one + &lost(1);
    assert!(ranks(&[("a.log", &zero), ("b.log", &all), ("c.log", &two)]).is_empty());
}

/// A scheduler's table that says that the job ended well: connections close at its end.
#[test]
fn connections_that_close_at_a_good_end() {
    let log = "\
step 1 loss 2.0
step 2 loss 1.9
[rank5]:[W824 09:41:09.428909110 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=61, addr=[n2]:42195, \
remote=[n1]:29514): Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?
";
    let table = "JobID State ExitCode\n2210745 COMPLETED 0:0\n2210745.0 COMPLETED 0:0\n";
    assert_ne!(verdict(&[("job.out", log), ("sacct.txt", table)]).cause.id(), "peer-process-died");
    let failed = table.replace("COMPLETED 0:0", "FAILED 1:0");
    assert_ne!(verdict(&[("job.out", log), ("sacct.txt", &failed)]).cause.id(), "none");
}

/// An exception without a rank is of the task that ended by itself, of the device that it names, or of the GPU that does nothing.
#[test]
fn whose_exception_it_is() {
    let raised = "\
step 1 loss 2.0
step 2 loss 1.9
Traceback (most recent call last):
  File \"/srv/train.py\", line 81, in <module>
    main()
  File \"/srv/train.py\", line 60, in main
    os.remove(best)
FileNotFoundError: [Errno 2] No such file or directory: '/srv/out/best.pth'
";
    let tasks = format!(
        "{raised}srun: error: hx12: task 2: Exited with exit code 1\nsrun: Terminating StepId=771920.0\n\
         srun: error: hx12: task 1: Terminated\nsrun: error: hx12: task 0: Terminated\nsrun: error: hx12: task 3: Terminated\n"
    );
    assert_eq!(ranks(&[("slurm.out", &tasks)]), [2]);
    // Both ended by themselves.
    let both = tasks.replace("task 1: Terminated", "task 1: Exited with exit code 1");
    assert!(ranks(&[("slurm.out", &both)]).len() != 1);
    let gpus = "\
index, utilization.gpu [%], memory.used [MiB]
0, 100 %, 7310 MiB
1, 100 %, 7288 MiB
2, 100 %, 7288 MiB
3, 0 %, 3 MiB
";
    assert_eq!(ranks(&[("train.log", raised), ("smi.csv", gpus)]), [3]);
    let busy = gpus.replace("0 %, 3 MiB", "100 %, 7288 MiB");
    assert!(ranks(&[("train.log", raised), ("smi.csv", &busy)]).is_empty());
    let out_of_memory = "\
distributed init (rank 0): tcp://localhost:16311
initialized host p100-03 as rank 0
initialized host p100-03 as rank 3
[rank0]: step 1 loss 2.0
[rank3]: step 1 loss 2.0
OOM: Ran out of memory with exception: CUDA out of memory. Tried to allocate 1.12 GiB (GPU 2; 15.90 GiB total capacity)
RuntimeError: CUDA out of memory. Tried to allocate 1.12 GiB (GPU 2; 15.90 GiB total capacity; 14.1 GiB already allocated)
";
    assert_eq!(ranks(&[("train.log", out_of_memory)]), [2]);
    // A process that sees one GPU calls it 0.
    assert!(ranks(&[("train.log", &out_of_memory.replace("GPU 2;", "GPU 0;"))]).is_empty());
}

/// Headings above stacks say whose they are, also where numbers of processes recur on another node.
#[test]
fn stacks_belong_to_the_rank_above_them() {
    let stack = |heading: &str, frames: &str| {
        format!("{heading}\nThread 0x7f2ffd802060 (active): \"MainThread\"\n{frames}\n")
    };
    let waits = "    all_reduce (torch/distributed/distributed_c10d.py:3008)\n    step (train.py:60)\n    main (train.py:90)\n";
    let compiles = "    make_llir (triton/backends/nvidia/compiler.py:338)\n    compile (triton/compiler/compiler.py:300)\n    \
                    _do_compile (triton/runtime/jit.py:790)\n    forward (model.py:37)\n    main (train.py:88)\n";
    let dump: String = [
        stack("--- n1 pid 311 rank 0", compiles),
        stack("--- n1 pid 312 rank 1", waits),
        stack("--- n2 pid 311 rank 2", waits),
        stack("--- n2 pid 312 rank 3", waits),
    ]
    .concat();
    let timed_out = "[rank1]:[E905 14:41:35.718743565 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: \
         WorkNCCL(SeqNum=6, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600074 milliseconds before timing out.\n";
    let found = verdict(&[("stacks.txt", &dump), ("err.log", timed_out)]);
    let ranks: Vec<_> = found.culprits.iter().filter_map(|c| c.rank.map(|rank| rank.0)).collect();
    assert!(
        matches!(found.cause.id(), "slow-rank-stall" | "stuck-outside-collective"),
        "{}",
        found.cause.id()
    );
    assert_eq!(ranks, [0], "{}", found.summary);
}
