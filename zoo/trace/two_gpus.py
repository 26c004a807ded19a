"""Everything, on a machine with two GPUs, that `trace` has to show there: `two_gpus.py OUT --ringleader BIN --plugin LIB`.

All processes start at once and wait, since starting takes longer than most jobs; they work one after the other. In order:
pipelines; the plants of `other_plants.py`; those with settings of their own; `trace record` on a DDP and an FSDP2 job;
`watch --record-late` on a job with a slow host and on one with more work on a GPU, at the same time. Nsight Systems, if there is any.
`--second` records what a first run of 300 s had no time for, and the jobs of `trace record` with TEARDOWN_CUPTI=1;
`--third` the plants of `third_plants.py`, and these jobs likewise; `--fourth` those of `fourth_plants.py` and nothing else, in 400 s.
Results lie in OUT; `--pack DIR` also packs them into files of at most 15 MB.
"""

import argparse
import concurrent.futures
import glob
import json
import lzma
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BEGUN = time.monotonic()
PIPELINES = ["c-pipeline", "c-pipeline-control", "c-pipeline-unequal", "c-pipeline-gpipe", "a-pipeline", "a-pipeline-control", "b-pipeline"]
PLANTS = [
    "c-control", "c-huge-bucket", "c-host-straggler", "c-compute-straggler", "c-same-stream", "c-same-stream-control", "c-fsdp",
    "c-fsdp-control", "c-lengths", "c-lengths-control", "c-experts", "c-experts-control", "c-item", "c-item-control", "c-empty-cache",
    "c-micro-control", "c-loader", "c-loader-control", "c-pageable", "c-pageable-control", "c-host-bound", "c-host-bound-control",
    "c-small-control", "c-tiny-conv", "c-tiny-conv-control", "c-slow-gpu", "c-host-late", "c-tiny-bucket",
]
SECOND = ["c-control", "c-host-late", "c-tiny-bucket", "a-control", "a-item", "a-item-control", "a-tiny-bucket", "a-tiny-bucket-control",
          "a-lengths", "a-lengths-control", "b-pipeline"]


def say(*words):
    print(f"[{time.monotonic() - BEGUN:6.1f}]", *words, flush=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Job:
    """Ranks that wait until they may work."""

    def __init__(self, out, name, program, settings=None, n_ranks=2):
        self.name, self.go = name, f"{out}/{name}.go"
        port = free_port()
        self.ranks = []
        for rank in range(n_ranks):
            env = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(n_ranks), "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(port), "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "4", "ZOO_GO": self.go, **(settings or {})}
            log = open(f"{out}/{name}.rank{rank}.log", "w")
            self.ranks.append(subprocess.Popen([sys.executable, *program], env=env, stdout=log, stderr=log, start_new_session=True))

    def pids(self):
        return [rank.pid for rank in self.ranks]

    def work(self):
        open(self.go, "w").close()

    def end(self, seconds):
        until = time.monotonic() + seconds
        for rank in self.ranks:
            try:
                rank.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(rank.pid, signal.SIGKILL)
                rank.wait()
        say(self.name, "ended with", [rank.returncode for rank in self.ranks])


def wait_until_ready(out, names, seconds, n_ranks=2):
    """Until all ranks of all jobs wait."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        logs = [f"{out}/{name}.rank{rank}.log" for name in names for rank in range(n_ranks)]
        if all("ready" in open(log, errors="replace").read() for log in logs):
            break
        time.sleep(0.2)
    say("all wait" if time.monotonic() < until else "not all are ready")


def plants(out, name, names, budget, settings=None, n_ranks=2):
    program = [f"{HERE}/rank.py", f"{out}/plants", *names]
    return Job(out, name, program, {"ZOO_UNPACKED": "1", "ZOO_BUDGET": str(budget), **(settings or {})}, n_ranks)


def plain(out, name, kind, seconds, more=(), settings=None):
    return Job(out, name, [f"{HERE}/plain_job.py", kind, str(seconds), *more], {"KINETO_USE_DAEMON": "1", **(settings or {})})


def record(a, job, seconds):
    """`trace record` while a job runs that knows nothing of it."""
    folder = f"{a.out}/{job.name}"
    job.work()
    begun = time.time()
    log = open(f"{a.out}/{job.name}.record.log", "w")
    done = subprocess.run([a.ringleader, "trace", "record", "--pid", ",".join(map(str, job.pids())), "--steps", "5", "--at-multiple", str(a.multiple), "--timeout",
                           str(int(seconds)), "-o", folder], stdout=log, stderr=log, timeout=seconds + 20, check=False)
    say("record", job.name, "ended with", done.returncode, f"after {time.time() - begun:.1f} s")
    json.dump({"begun": begun, "ended": time.time(), "pids": job.pids(), "code": done.returncode}, open(f"{a.out}/{job.name}.times.json", "w"))
    job.end(seconds)


def watch(a, name, late, rank, ms, seconds, settings):
    """`watch --record-late` around a job with a straggler."""
    env = {**os.environ, "OMP_NUM_THREADS": "4", "PYTHONUNBUFFERED": "1", "NCCL_PROFILER_PLUGIN": os.path.abspath(a.plugin),
           "ZOO_GO": f"{a.out}/watched.go", **settings}
    command = [a.ringleader, "watch", "--json", "--record-late", "1500", "--out", f"{a.out}/{name}", "--rings", f"{a.out}/{name}.rings", "--",
               sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port()),
               f"{HERE}/plain_job.py", "ddp", str(seconds), "--late", late, "--rank", str(rank), "--ms", str(ms)]
    os.makedirs(f"{a.out}/{name}.rings", exist_ok=True)
    os.makedirs(f"{a.out}/{name}", exist_ok=True)
    json.dump({"late": late, "rank": rank}, open(f"{a.out}/{name}.truth.json", "w"))
    log, errors = open(f"{a.out}/{name}.events.jsonl", "w"), open(f"{a.out}/{name}.log", "w")
    return subprocess.Popen(command, env=env, stdout=log, stderr=errors, start_new_session=True)


def finish(process, name, seconds):
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        time.sleep(3)
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    say(name, "ended with", process.poll())


def nsys(a):
    """Nsight Systems, as far as it is there."""
    places = [shutil.which("nsys"), *glob.glob("/opt/nvidia/nsight-systems*/**/nsys", recursive=True),
              *glob.glob("/opt/nvidia/nsight-compute/*/host/*/nsys")]
    places = [place for place in places if place]
    importers = glob.glob("/opt/nvidia/**/QdstrmImporter", recursive=True) + glob.glob("/usr/lib/nsight*/**/QdstrmImporter", recursive=True)
    with open(f"{a.out}/nsys.log", "w") as log:
        print("nsys:", places, "importers:", importers, file=log, flush=True)
        for place in places[:1]:
            subprocess.run([place, "--version"], stdout=log, stderr=log, timeout=20, check=False)
            # The one that comes with Nsight Compute has an importer, too, and hung in the export (2025.3.1).
            if "nsight-compute" in os.path.realpath(place):
                print("not tried: it belongs to Nsight Compute", file=log)
            elif importers:
                env = {**os.environ, "PATH": os.path.dirname(place) + ":" + os.environ["PATH"]}
                command = [a.ringleader, "trace", "record", "-o", f"{a.out}/nsys", "--nsys-delay", "12", "--nsys-seconds", "2", "--",
                           sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", f"{HERE}/plain_job.py", "ddp", "15"]
                finish(subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True), "nsys", 60)


def squeeze(path):
    with open(path, "rb") as plainly, lzma.open(path + ".xz", "wb", preset=4) as packed:
        shutil.copyfileobj(plainly, packed, 1 << 20)
    os.remove(path)


def pack(out, folder, name="gpu20", parts=14):
    """Compresses each timeline, and splits an archive of everything into parts."""
    large = [path for path in glob.glob(f"{out}/**/*.json", recursive=True) if os.path.getsize(path) > 200_000]
    with concurrent.futures.ProcessPoolExecutor() as pool:
        list(pool.map(squeeze, sorted(large, key=os.path.getsize, reverse=True)))
    archive = out.rstrip("/") + ".tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(out, arcname=name)
    size = 15 << 20
    with open(archive, "rb") as whole:
        for at in range(parts):
            part = whole.read(size)
            if not part:
                break
            with open(f"{folder}/{name}.tar.{at}", "wb") as file:
                file.write(part)
        say("packed", os.path.getsize(archive) >> 20, "MB; left out", len(whole.read()) >> 20, "MB")


def third(a):
    from third_plants import SETTINGS_OF, THIRD

    alone = [plants(a.out, name, [name], 20, settings) for name, settings in SETTINGS_OF.items()]
    return [*alone, plants(a.out, "main", THIRD, 160)]


def fourth(a):
    from fourth_plants import FOURTH, SETTINGS_OF

    alone = [plants(a.out, name, [name], 25, settings) for name, settings in SETTINGS_OF.items()]
    return [plants(a.out, "main", FOURTH, 270), *alone]


def main():
    a = argparse.ArgumentParser()
    a.add_argument("out")
    a.add_argument("--ringleader", required=True)
    a.add_argument("--plugin", required=True)
    a.add_argument("--pack")
    a.add_argument("--budget", type=float, help="seconds; 305, or 400 with --fourth")
    a.add_argument("--multiple", type=int, default=400)
    a.add_argument("--second", action="store_true", help="what the first run left out")
    a.add_argument("--third", action="store_true", help="the third set of plants")
    a.add_argument("--fourth", action="store_true", help="the fourth set of plants, and only these")
    a.add_argument("--quick", action="store_true", help="few plants, to test this program")
    a = a.parse_args()
    os.makedirs(f"{a.out}/plants", exist_ok=True)
    a.budget = a.budget or (400 if a.fourth else 305)
    a.out, a.ringleader = os.path.abspath(a.out), os.path.abspath(a.ringleader)

    def left():
        return a.budget - (time.monotonic() - BEGUN)

    # Watching and packing need this long at the end, and each of two recordings this long before.
    end, each = (5, 0) if a.fourth else (92, 38) if not a.quick else (105, 38)
    main_plants = SECOND if a.second else PLANTS[:3] if a.quick else PLANTS
    stages = fourth(a) if a.fourth else third(a) if a.third else [
        plants(a.out, "no-p2p", ["c-no-p2p"], 20, {"NCCL_P2P_DISABLE": "1"}),
        plants(a.out, "blocking", ["c-blocking"], 20, {"CUDA_LAUNCH_BLOCKING": "1"}),
        plants(a.out, "pipelines", PIPELINES[:2] if a.quick or a.second else PIPELINES, 40),
        plants(a.out, "main", main_plants, 95),
    ]
    settings = {"TEARDOWN_CUPTI": "1"} if a.second or a.third else {}
    if a.fourth:
        wait_until_ready(a.out, [stage.name for stage in stages], 90)
        for stage, most in zip(stages, [290, 25, 25, 25, 25]):
            stage.work()
            stage.end(max(1, min(most, left() - end)))
        if a.pack:
            pack(a.out, a.pack)
        return say("done")
    ddp = plain(a.out, "record-ddp", "ddp", 31, ["--phase", "250"], settings)
    fsdp = plain(a.out, "record-fsdp", "fsdp", 31, ["--phase", "250"], settings)
    own = f"{a.out}/sockets"
    os.makedirs(own, exist_ok=True)
    watched = [
        ("watch-host", watch(a, "watch-host", "host", 0, 120, 70, {})),
        ("watch-compute", watch(a, "watch-compute", "compute", 1, 60, 70, {"KINETO_IPC_SOCKET_DIR": own})),
    ]
    wait_until_ready(a.out, [*(stage.name for stage in stages), "record-ddp", "record-fsdp"], 60)
    for stage, most in zip(stages, [14, 14, 165] if a.third else [14, 14, 40, 100]):
        stage.work()
        stage.end(max(1, min(most, left() - end - 2 * each)))
    for job in (ddp, fsdp):
        if left() > end:
            record(a, job, min(each, left() - end))
        else:
            job.end(0.1)
    open(f"{a.out}/watched.go", "w").close()
    until = time.monotonic() + min(80, left() - 10)
    for name, process in watched:
        finish(process, name, max(1, until - time.monotonic()))
    if left() > 25:
        try:
            nsys(a)
        except subprocess.TimeoutExpired as error:
            say("nsys did not end:", error)
    for path in glob.glob(f"{a.out}/*.rings/**/*", recursive=True):
        if os.path.isfile(path) and os.path.getsize(path) > 8 << 20:
            os.remove(path)
    if a.pack:
        pack(a.out, a.pack)
    say("done")


if __name__ == "__main__":
    main()
