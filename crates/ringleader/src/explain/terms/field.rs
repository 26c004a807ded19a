//! Words of the field that reports and `watch` use without explaining them.

use super::Term;

const fn word(
    name: &'static str,
    also: &'static [&'static str],
    title: &'static str,
    means: &'static str,
    see: &'static [&'static str],
    source: &'static str,
) -> Term {
    Term { name, also, title, means, is_not: "", see, source }
}

const NCCL: &str = "NVIDIA NCCL user guide";
const TORCH: &str = "PyTorch documentation, torch.distributed";
const STACKS: &str = "ringleader's table of places, by names of functions in stacks";
const TRACE: &str = "docs/trace.md";

pub(super) const TERMS: &[Term] = &[
    word(
        "collective",
        &["collectives", "collective call", "allreduce", "allgather", "reducescatter", "alltoall"],
        "an operation that all ranks of a communicator make together",
        "all_reduce, all_gather, reduce_scatter, broadcast, barrier and others. It ends on no rank before all ranks have called it, in the \
         same order and with the same sizes",
        &["communicator", "skipped-collective", "handed over"],
        NCCL,
    ),
    word(
        "handed over",
        &["handed over to the GPU", "launched", "enqueued"],
        "the program has called an operation, and the host has put it into the queue of the GPU",
        "the time behind it is the host's. The kernel of the operation may begin later: the GPU does what is before it first",
        &["in flight", "scheduled"],
        "docs/plugin.md",
    ),
    word(
        "scheduled",
        &["state scheduled"],
        "the state of an operation in the Flight Recorder that has been called and has not begun on the GPU",
        "the states are `scheduled`, `started` and `completed`. `scheduled` while peers are at `started`: the GPU is busy with something before it",
        &["handed over", "flight-recorder"],
        TORCH,
    ),
    word(
        "SeqNum",
        &["seqnum", "sequence number", "work sequence id", "collective_seq_id"],
        "the number of a collective within its group, in lines of PyTorch's watchdog",
        "each rank counts the calls of a group: the same number on all ranks is meant to be the same call. `last enqueued work` is the last one \
         that the rank has called, `last completed work` the last one that ended; a rank whose last enqueued work is smaller than its peers' is behind",
        &["process group", "collective"],
        TORCH,
    ),
    word(
        "NumelIn",
        &["numelout", "numel in", "numel out", "numelin numelout"],
        "the number of elements that this rank gives to a collective, and that it gets (NumelOut), in lines of PyTorch's watchdog",
        "of one SeqNum they must be the same on all ranks, all-to-all and uneven gathers apart: one that differs is a shape-mismatch",
        &["SeqNum", "shape-mismatch"],
        TORCH,
    ),
    word(
        "PG ID",
        &["pg guid", "pg id", "pg guid default_pg", "process group id"],
        "the number of a process group within a process, and its name in all (PG GUID), in lines of PyTorch's watchdog",
        "`[PG ID 0 PG GUID 0(default_pg) Rank 3]`: group 0 is the default one, and `Rank` counts within the group: in groups other than the \
         default one it is not the rank of the job",
        &["process group", "SeqNum"],
        TORCH,
    ),
    word(
        "MFU",
        &["model flops utilization", "model flops utilisation", "hfu"],
        "model FLOPs utilisation: the share of the GPU's arithmetic that the model's own operations use",
        "what is left of it is waiting for communication, data and the host, or computing twice. It falls while the loss goes on as usual: the job is \
         slow, `trace` says where the time goes",
        &["straggler", "no-compute-overlap"],
        "Chowdhery and others, PaLM, 2022",
    ),
    word(
        "process group",
        &[
            "process groups",
            "pg",
            "c10d",
            "processgroup",
            "process group nccl",
            "processgroupnccl",
            "default pg",
        ],
        "PyTorch's name for a group of ranks and what it uses to communicate",
        "`c10d` is the library of torch.distributed, ProcessGroupNCCL its part that calls NCCL; each group has a communicator of NCCL or several. \
         `default_pg` holds all ranks",
        &["communicator", "rank"],
        TORCH,
    ),
    word(
        "split communicator",
        &["split communicators", "commsplit", "comm split"],
        "a communicator that was made from another one",
        "ncclCommSplit makes it: a part of the ranks of its parent, such as those of one tensor-parallel group. Calls are counted in each by itself",
        &["communicator"],
        NCCL,
    ),
    word(
        "GDRDMA",
        &["gdr", "gpudirect rdma", "gpu direct rdma"],
        "a network card reads and writes the GPU's memory itself",
        "in NCCL's lines `via NET/IB/0/GDRDMA`. Without it data goes through the host's memory: nvidia-peermem or DMA-BUF is missing, or the card and the \
         GPU are too far apart",
        &["gdr-peermem-missing", "NCCL_NET_GDR_LEVEL"],
        NCCL,
    ),
    word(
        "axis",
        &["axes", "mesh axis", "group axis"],
        "one direction of a mesh of ranks: data, tensor, pipeline, expert, context parallel",
        "groups of one axis do the same with other ranks; `trace` shows figures for each",
        &["process group"],
        TRACE,
    ),
    word(
        "exposed communication",
        &["exposed comm", "exposed", "hidden communication", "hidden comm"],
        "time in which the GPU communicates and computes nothing",
        "hidden communication runs beside kernels that compute and costs little. A step is as long as its compute, exposed communication, exposed copies \
         and idle time together",
        &["no-compute-overlap"],
        TRACE,
    ),
    word(
        "in a deliberate sleep",
        &["deliberate sleep", "sleep"],
        "the main thread is in a sleep that the program asked for",
        "`time.sleep` and the like: a retry with a pause, a wait for a file, a debugging aid. The line behind it is the program's",
        &["stuck-outside-collective", "hold"],
        STACKS,
    ),
    word(
        "waiting for a lock or a queue",
        &["in a lock", "asleep in a futex", "futex", "in the kernel function futex"],
        "the main thread sleeps until another thread or process lets it go on",
        "Linux calls it a futex: locks, conditions, queues, and also a collective of gloo, whose own thread does the work. The frames above it show which",
        &["stacks"],
        STACKS,
    ),
];
