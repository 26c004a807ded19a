"""The catalogue: every fault that the zoo can plant, with the right answer. Plain data, no PyTorch.

`cause` is an id of the closed list of causes (`ringleader explain CAUSE`). `also` lists ids that are right as well, because
the evidence cannot distinguish the two or because both describe the fault. `words`: if the report contains one of them, it
names the rank's activity; this is counted separately from "right cause".
"""

from dataclasses import dataclass

# A fault in the calls needs a kind of job that makes such calls; a fault of a process works with any job.
ANY = ("ddp", "plain", "fsdp", "mesh", "pipeline")
OUTSIDE = "stuck-outside-collective"


@dataclass(frozen=True)
class Fault:
    name: str
    says: str
    cause: str
    also: tuple = ()
    kinds: tuple = ANY
    # calls, process, gpu, host, slow, network: planted in the middle of training. start: before the first step.
    group: str = "calls"
    # True: ranks end by themselves, so the job may end before anything stalls.
    ends: bool = False
    # The launcher for each place: "keep" leaves the others alone when a rank ends (srun, mpirun), "torchrun" is
    # PyTorch's own launcher, which ends them.
    launch: tuple = ("keep",)
    # one: the rank with the fault. none: no single rank is to blame; any answer to "who" is right.
    culprit: str = "one"
    words: tuple = ()
    # Each rank in a network namespace of its own.
    nodes: bool = False
    # Smallest number of ranks, and the ranks that may get the fault (None: any).
    least: int = 2
    ranks: object = None
    needs: tuple = ()
    # Seconds to wait for an answer after planting.
    wait: float = 14.0


def _not_zero(world):
    return range(1, world)


def _zero(world):
    return range(0, 1)


FAULTS = [
    # --- the calls. If two ranks call different things, neither is the odd one: at least three ranks.
    Fault("skip", "a rank skips one collective (a branch that depends on the rank)", "skipped-collective",
          also=("shape-mismatch", "op-mismatch"), kinds=("plain", "ddp", "fsdp", "mesh"), least=3),
    Fault("extra", "a rank calls a collective that no other rank calls", "extra-collective",
          also=("op-mismatch", "skipped-collective", "collective-order-mismatch"), kinds=("fsdp", "plain", "ddp"), least=3),
    Fault("kind", "a rank calls all_gather where the others call all_reduce", "op-mismatch", kinds=("plain",), least=3),
    Fault("shape", "a rank's tensor has only some of the elements", "shape-mismatch", kinds=("plain",), least=3),
    Fault("dtype", "a rank's tensor is half precision", "dtype-mismatch", also=("shape-mismatch",), kinds=("plain",), least=3),
    Fault("order", "a rank calls the same two collectives in the other order", "collective-order-mismatch",
          also=("op-mismatch", "shape-mismatch"), kinds=("plain",), least=3),
    Fault("cycle", "four ranks wait for each other around two dimensions of a mesh", "deadlock-cycle",
          also=("collective-order-mismatch",), kinds=("mesh",), culprit="none", least=4),
    Fault("missing-send", "a pipeline stage does not send its activations", "unmatched-p2p",
          also=("skipped-collective",), kinds=("pipeline",), ranks=lambda world: range(0, world - 1)),
    Fault("wrong-peer", "a pipeline stage sends to the stage after the next", "unmatched-p2p",
          also=("skipped-collective",), kinds=("pipeline",), least=3, ranks=lambda world: range(0, world - 2)),
    Fault("uneven", "a rank has fewer batches and goes on to the end of the program", "uneven-inputs",
          also=("extra-collective", "skipped-collective"), kinds=("ddp", "plain", "fsdp")),
    # --- the process
    Fault("exception", "the program fails on one rank", "application-exception", group="process", ends=True,
          launch=("keep", "keep", "torchrun")),
    Fault("early-exit", "a rank ends normally in the middle", "rank-exited-early", also=("uneven-inputs", "peer-process-died"),
          group="process", ends=True),
    Fault("kill", "kill -9 of a rank", "process-killed", also=("peer-process-died",), group="process", ends=True,
          launch=("keep", "keep", "torchrun")),
    Fault("stop", "SIGSTOP of a rank", "process-stopped", group="process"),
    Fault("freeze", "the rank's cgroup is frozen", "process-stopped", also=(OUTSIDE,), group="process", needs=("cgroup2",)),
    Fault("segfault", "a rank crashes in C code", "process-crashed", also=("peer-process-died",), group="process", ends=True,
          launch=("keep", "keep", "torchrun")),
    Fault("host-memory", "the rank's cgroup runs out of memory and the kernel kills it", "oom-killed",
          also=("process-killed",), group="process", ends=True, needs=("cgroup2", "cgroup2-memory")),
    # --- the GPU's program
    Fault("cuda-oom", "GPU memory runs out on one rank", "cuda-oom", group="gpu", ends=True,
          launch=("keep", "keep", "torchrun")),
    Fault("illegal-access", "a kernel of the program writes to an unmapped address", "illegal-memory-access",
          group="gpu", ends=True),
    Fault("device-assert", "an index out of range on the GPU", "device-assert", group="gpu", ends=True),
    Fault("endless-kernel", "a kernel before the collective never ends", "gpu-kernel-stuck", group="gpu",
          words=("kernel",)),
    Fault("cuda-call", "the host waits in a CUDA call for another stream, which never ends", OUTSIDE,
          also=("gpu-kernel-stuck",), group="gpu", words=("CUDA", "cuda", "Synchronize", "driver")),
    # --- the host's program
    Fault("data-loader", "a data loader worker waits for a reply that never comes", OUTSIDE, also=("slow-rank-stall",),
          kinds=("ddp",), group="host", words=("data loader", "dataloader", "DataLoader")),
    Fault("lock", "two threads take two locks in opposite order", OUTSIDE, group="host", words=("lock",)),
    Fault("gil", "a C extension holds the GIL", OUTSIDE, also=("slow-rank-stall",), group="host",
          words=("GIL", "interpreter")),
    Fault("checkpoint", "one rank writes its checkpoint to slow storage", "slow-rank-stall", also=(OUTSIDE,), group="host",
          words=("checkpoint",)),
    Fault("evaluation", "one rank alone evaluates for minutes", "slow-rank-stall", also=(OUTSIDE,), group="host",
          words=("evaluat", "busy", "running")),
    Fault("mount", "a file system stops answering (FUSE): state D", "process-uninterruptible", group="host",
          needs=("root",), words=("storage", "fuse", "kernel", "state D")),
    Fault("log-pipe", "the reader of the log has stopped, the pipe is full", OUTSIDE, group="host",
          words=("log", "pipe")),
    Fault("storage", "an object store stops in the middle of a reply", OUTSIDE, also=("slow-rank-stall",), group="host",
          words=("storage", "socket", "read", "network")),
    Fault("compile", "an extension waits for the lock file of a dead build", OUTSIDE, group="host",
          words=("compil", "build")),
    # --- slow, not stuck
    Fault("slow-host", "one rank's host takes 250 ms longer in every step", "straggler", also=("slow-rank-stall",),
          kinds=("plain", "ddp", "fsdp"), group="slow", words=("host", "CPU"), wait=22.0),
    Fault("slow-gpu", "one rank's GPU computes 250 ms longer in every step", "straggler", also=("gpu-throttled",),
          kinds=("plain", "ddp", "fsdp"), group="slow", words=("GPU", "compute"), wait=22.0),
    Fault("slow-link", "the link of one node carries 3 MB/s", "slow-link", also=("straggler", "bandwidth-below-expected"),
          kinds=("plain",), group="slow", nodes=True, needs=("netns",), words=("network", "link"), wait=25.0),
    # --- the network between nodes
    Fault("link-down", "the interface of one node goes down", "network-link-down", also=("network-unreachable",),
          kinds=("plain", "ddp"), group="network", nodes=True, needs=("netns",)),
    Fault("packet-loss", "all packets to and from one node are lost", "network-unreachable",
          also=("network-link-down", "firewall-or-port", "routing-or-rail"), kinds=("plain", "ddp"), group="network", nodes=True,
          needs=("netns",)),
    # --- before the first step
    Fault("wrong-interface", "one node is configured to use an interface that does not reach the others", "wrong-interface",
          also=("nccl-env-misconfigured", "nccl-env-mismatch"), kinds=("plain",), group="start", nodes=True, needs=("netns",), ends=True, wait=40.0),
    Fault("no-interface", "one rank is configured to use an interface that does not exist", "wrong-interface",
          also=("nccl-env-misconfigured", "nccl-env-mismatch"), kinds=("plain",), group="start", ends=True, wait=40.0),
    Fault("missing-rank", "one rank is never started", "missing-rank", kinds=("plain",), group="start", ranks=_not_zero, wait=40.0),
    Fault("missing-node", "one of the nodes never joins", "missing-rank", kinds=("plain",), group="start", nodes=True,
          needs=("netns",), ranks=_not_zero, wait=40.0),
    Fault("env-algo", "NCCL_ALGO differs on one rank", "nccl-env-mismatch", kinds=("plain",), group="start", wait=40.0, least=3),
    Fault("env-rank", "two processes have the same RANK", "rank-env-misconfigured", also=("missing-rank", "duplicate-gpu"),
          kinds=("plain",), group="start", ranks=_not_zero, least=3, ends=True, wait=40.0),
    Fault("env-world", "WORLD_SIZE is one too many on one rank", "rank-env-misconfigured", also=("missing-rank",),
          kinds=("plain",), group="start", ranks=_not_zero, ends=True, wait=40.0),
    Fault("env-master", "MASTER_ADDR does not resolve on one rank", "hostname-resolution", also=("missing-rank",),
          kinds=("plain",), group="start", ranks=_not_zero, ends=True, wait=40.0),
    Fault("port", "the rendezvous port is taken", "port-in-use", kinds=("plain",), group="start", ranks=_zero, ends=True, wait=40.0),
    Fault("duplicate-gpu", "two ranks of one host use the same GPU", "duplicate-gpu", kinds=("plain",), group="start",
          ranks=_not_zero, ends=True, wait=40.0),
]  # fmt: skip

BY_NAME = {fault.name: fault for fault in FAULTS}


@dataclass(frozen=True)
class Healthy:
    """A healthy job: a stall report or a cause is wrong."""

    name: str
    says: str
    kind: str
    options: dict
    launch: str = "keep"
    nodes: bool = False
    needs: tuple = ()
    group: str = "healthy"
    # Number of ranks; "own": as many as there are GPUs; None: as for the faults.
    world: object = None


HEALTHY = [
    Healthy("plain", "all_reduce by hand", "plain", {}),
    Healthy("ddp", "DDP with a data loader", "ddp", {}, launch="torchrun"),
    Healthy("fsdp", "FSDP2", "fsdp", {}),
    Healthy("mesh", "2x2 mesh, two groups", "mesh", {}),
    Healthy("pipeline", "stages that send and receive", "pipeline", {}),
    Healthy("checkpoint", "a checkpoint that takes three usual steps, every 20 steps", "ddp", {"checkpoint_every": 20}),
    Healthy("checkpoint-one", "the same, written by rank 0 alone while the others wait", "fsdp",
            {"checkpoint_every": 20, "checkpoint_rank": 0}),
    Healthy("first-step", "a first step of 20 s on every rank, like a compilation", "plain", {"first_step_seconds": 20}),
    Healthy("first-step-uneven", "one rank compiles 12 s longer than the others", "ddp",
            {"first_step_seconds": 3, "first_step_extra": 12}),
    Healthy("compile", "torch.compile", "ddp", {"compile": True}),
    Healthy("evaluation", "an evaluation of 4 s every 25 steps", "fsdp", {"eval_every": 25, "eval_seconds": 4}),
    Healthy("uneven-steps", "steps of 60 to 400 ms, different on every rank", "plain", {"jitter_ms": 340}),
    Healthy("one-rank", "a single rank", "ddp", {}, world=1),
    Healthy("own-gpus", "a GPU for each rank", "ddp", {}, world="own"),
    Healthy("own-gpus-fsdp", "the same with FSDP2 and checkpoints", "fsdp", {"checkpoint_every": 20}, world="own"),
    Healthy("nodes", "four nodes with a network between them", "ddp", {}, nodes=True, needs=("netns",)),
]  # fmt: skip

HEALTHY_BY_NAME = {healthy.name: healthy for healthy in HEALTHY}
