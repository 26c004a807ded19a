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
