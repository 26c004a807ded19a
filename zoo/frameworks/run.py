#!/usr/bin/env python3
"""Runs the jobs of declared.py with their faults, several at a time on the same GPUs, and keeps the evidence that a user would have.

    zoo/frameworks/run.py --check
    zoo/frameworks/run.py --jobs ddp,hf --faults healthy,sigkill --out DIR [--at-once 12] [--seconds 500]
    ZOO_DECLARED=declared3 zoo/frameworks/run.py --check     # another set of declarations
    zoo/frameworks/run.py --jobs all --faults all --out DIR --watch 'ringleader watch'     # gets the launcher's pid

Each job has its own folder, session and port. Ends only processes that it started, each by pid; a variable in their
environment identifies them.
"""

import argparse
import glob
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import importlib  # noqa: E402

DECLARED = importlib.import_module(os.environ.get("ZOO_DECLARED", "declared"))
FAULTS, JOBS = DECLARED.FAULTS, DECLARED.JOBS

BY_NAME = {job.name: job for job in JOBS}
MARK = "RUN_ID"


def program_of(fault):
    with open(os.path.join(HERE, "programs", BY_NAME[fault.job].program)) as file:
        text = file.read()
    for old, new in fault.edits:
        if text.count(old) != 1:
            raise ValueError(f"{fault.job}/{fault.name}: {text.count(old)} times {old!r}")
        text = text.replace(old, new)
    return text


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def processes(mark):
    """The pids of all processes with the mark: those that this run started, and their descendants."""
    found = []
    needle = f"{MARK}={mark}".encode()
    for name in os.listdir("/proc"):
        if name.isdigit() and needle in read(f"/proc/{name}/environ").split(b"\0"):
            found.append(int(name))
    return found


def parent(pid):
    try:
        return int(read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])
    except (IndexError, ValueError):
        return 0


def lives(pid):
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return bool(fields) and fields[0] not in (b"Z", b"X")


def command(pid):
    return read(f"/proc/{pid}/cmdline").split(b"\0")


def free_port(taken=set()):
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
        if port not in taken:
            taken.add(port)
            return port


class Run:
    def __init__(self, fault, out, work, watch, share=0, rings=None):
        self.fault, self.job = fault, BY_NAME[fault.job]
        self.mark = f"{random.randrange(16**6):06x}"
        self.name = f"{fault.job}-{fault.name}"
        self.out = os.path.join(out, self.name)
        self.work = os.path.join(work, f"{self.job.project}-{self.mark}")
        self.watch, self.share, self.rings = watch, share, rings
        self.pids = []
        self.port = free_port()
        self.meta = {"job": fault.job, "fault": fault.name}

    # -------------------------------------------------------------------------------------------------------- starting
    def command(self):
        job, fault = self.job, self.fault
        args = [*job.args, *fault.args]
        if job.launch == "torchrun":
            extra = [f"--max-restarts={fault.restarts}"] if fault.restarts else []
            return ["torchrun", f"--nproc-per-node={fault.nproc}", *[flag.format(port=self.port) for flag in fault.flags or job.flags or ("--master-port={port}",)], *extra, job.script, *args]
        if job.launch == "accelerate":
            return ["accelerate", "launch", "--multi_gpu", f"--num_processes={fault.nproc}", "--num_machines=1", "--mixed_precision=no",
                    "--dynamo_backend=no", *([f"--max_restarts={fault.restarts}"] if fault.restarts else []), f"--main_process_port={self.port}", job.script, *args]
        if job.launch == "deepspeed":
            return ["deepspeed", f"--num_gpus={fault.nproc}", f"--master_port={self.port}", job.script, *args]
        if job.launch == "python":
            return ["python", "-u", job.script, *args]
        if job.launch == "loop":
            text = fault.loop.format(port=self.port, script=job.script, args=" ".join(args))
            with open(os.path.join(self.work, "launch.sh"), "w") as file:
                file.write("#!/bin/bash\n" + text)
            return ["bash", "launch.sh"]
        start = ["mpirun", "--allow-run-as-root", "--bind-to", "none"]
        if fault.mpirun:
            return [*start, *fault.mpirun]
        what = ["./" + job.script] if job.launch == "binary" else ["python", "-u", job.script]
        return [*start, "-np", str(fault.nproc), *(["--oversubscribe"] if fault.nproc > 2 else []), *what, *args]

    def environment(self):
        job, fault = self.job, self.fault
        env = {k: v for k, v in os.environ.items() if k not in ("OUT", "ZOO")}
        env.update(dict(job.env))
        env[MARK] = self.mark
        env["MASTER_PORT"] = str(self.port)
        env["HF_HUB_OFFLINE"] = "1"
        if "jax" in job.packages or "cupy" in job.packages:
            env["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        env["NCCL_NVLS_ENABLE"] = "0"
        os.makedirs(self.work + "/fr", exist_ok=True)
        env["TORCH_FR_DUMP_TEMP_FILE"] = self.work + "/fr/nccl_trace_rank_"
        # After a timeout PyTorch waits four times this long for the dumps of the others.
        env["TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"] = "3000"
        if "fr" in fault.extra:
            env.update(TORCH_FR_BUFFER_SIZE="2000", TORCH_NCCL_DUMP_ON_TIMEOUT="1")
        if "warn" in fault.extra or "info" in fault.extra:
            env["NCCL_DEBUG"] = "INFO" if "info" in fault.extra else "WARN"
        if "detail" in fault.extra:
            env["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
        if "ras" in fault.extra:
            self.ras_port = free_port()
            env["NCCL_RAS_ADDR"] = f"localhost:{self.ras_port}"
        if self.share:
            env["SHARED_GPUS"] = str(self.share)
            env["PYTHONPATH"] = os.pathsep.join(filter(None, [os.path.join(HERE, "share"), env.get("PYTHONPATH")]))
        env.update(dict(fault.env))
        return {k: v for k, v in env.items() if v != ""}

    def prepare(self):
        os.makedirs(self.work)
        os.makedirs(self.out, exist_ok=True)
        if self.job.launch == "loop":
            os.makedirs(self.work + "/logs")
        text = program_of(self.fault)
        if self.job.launch == "binary":
            with open(os.path.join(self.work, self.job.program), "w") as file:
                file.write(text)
            built = subprocess.run(shlex.split(os.environ.get("ZOO_NVCC", "nvcc")) + ["-o", self.job.script, self.job.program]
                                   + shlex.split(os.environ.get("ZOO_NVCC_FLAGS", "-lnccl -lmpi")),
                                   cwd=self.work, capture_output=True, text=True)
            if built.returncode:
                raise RuntimeError("nvcc: " + built.stderr[-800:])
        else:
            with open(os.path.join(self.work, self.job.script), "w") as file:
                file.write(text)

    def start(self):
        environment = self.environment()
        if any("STORE_PORT" in new for _, new in self.fault.edits):
            store = socket.socket()
            store.bind(("127.0.0.1", 0))
            store.listen(16)
            environment["STORE_PORT"] = str(store.getsockname()[1])
            self.store = store
        if self.fault.port_taken:
            # Both families: a listener on "::" only leaves 0.0.0.0 free.
            self.holder = socket.create_server(("", self.port), family=socket.AF_INET6, dualstack_ipv6=True) if socket.has_dualstack_ipv6() else socket.create_server(("", self.port))
        what = self.command()
        if self.fault.tmpfs:
            mounts = []
            for folder, size in self.fault.tmpfs:
                mounts.append(f"mkdir -p {folder} && mount -t tmpfs -o size={size} tmpfs {folder}")
            what = ["unshare", "-m", "bash", "-c", " && ".join(mounts) + ' && exec "$@"', "bash", *what]
        self.log = open(os.path.join(self.work, "train.log"), "wb", buffering=0)
        stdin = subprocess.PIPE if self.fault.stdin == "pipe" else subprocess.DEVNULL
        self.meta["command"] = " ".join(what)
        self.began = time.time()
        self.launcher = subprocess.Popen(what, cwd=self.work, env=environment, stdin=stdin, stdout=self.log, stderr=self.log,
                                         start_new_session=True)
        self.watcher = None
        if self.watch:
            with open(os.path.join(self.out, "watch.log"), "wb") as file:
                line = self.watch.replace("{}", str(self.launcher.pid)) if "{}" in self.watch else f"{self.watch} {self.launcher.pid}"
                self.watcher = subprocess.Popen(["bash", "-c", "exec " + line], stdout=file, stderr=file, stdin=subprocess.DEVNULL,
                                                env={**os.environ, "RUN_DIR": self.work}, cwd=self.out)

    # ------------------------------------------------------------------------------------------------------- following
    def logs(self):
        folder = self.work + "/logs"
        rest = [os.path.join(folder, n) for n in sorted(os.listdir(folder))] if os.path.isdir(folder) else []
        return [self.work + "/train.log", *rest]

    def text(self):
        return b"\n".join(read(path) for path in self.logs()).decode(errors="replace")

    def ranks(self):
        """rank -> pid: processes that run the user's program under a parent that does not."""
        job, found = self.job, {}
        pids = [p for p in processes(self.mark) if any(part.endswith((job.script.encode(), b"jacobi")) for part in command(p)[:4])
                and b"mpirun" not in command(p)[0] and b"torchrun" not in b" ".join(command(p)[:2])
                and not any(word in b" ".join(command(p)) for word in (b"deepspeed.launcher", b"/deepspeed\0", b"accelerate", b"torchrun", b"bin/deepspeed"))]
        for pid in pids:
            if parent(pid) in pids and job.launch != "python":
                continue
            env = dict(part.partition(b"=")[::2] for part in read(f"/proc/{pid}/environ").split(b"\0"))
            line = command(pid)
            rank = env.get(b"RANK") or env.get(b"OMPI_COMM_WORLD_RANK")
            for flag in (b"--process-id", b"--rank"):
                if flag in line:
                    rank = line[line.index(flag) + 1]
            if job.launch == "python":
                if parent(pid) in pids and env.get(b"LOCAL_RANK") is None:
                    continue
                rank = env.get(b"LOCAL_RANK") or b"0"
            if rank is not None and rank.isdigit():
                found.setdefault(int(rank), pid)
        return found

    def act(self):
        whom, what = self.fault.act
        number = getattr(signal, what)
        if whom == "launcher":
            victim = self.launcher.pid
        elif isinstance(whom, int):
            victim = self.ranks().get(whom)
        else:
            rank = self.ranks().get(int(whom.split()[1]))
            mine = [p for p in processes(self.mark) if parent(p) == rank and command(p) == command(rank)]
            victim = max(mine) if mine else None
        self.meta["acted"] = {"whom": whom, "signal": what, "pid": victim, "after_s": round(time.time() - self.began, 1)}
        if victim:
            os.kill(victim, number)

    def look(self):
        """The evidence that a user collects from a hanging job."""
        extra = self.fault.extra
        ranks = self.ranks()
        self.meta["looked_after_s"] = round(time.time() - self.began, 1)
        self.meta["ranks_seen"] = ranks

        def save(name, argv):
            try:
                done = subprocess.run(argv, capture_output=True, text=True, timeout=25)
                text = done.stdout + done.stderr
            except (OSError, subprocess.TimeoutExpired) as error:
                text = f"{error}\n"
            with open(os.path.join(self.out, name), "a") as file:
                file.write(text)

        if "ps" in extra:
            pids = processes(self.mark)
            save("ps.txt", ["ps", "-o", "pid,ppid,stat,wchan:20,etime,time,pcpu,rss,args", "-ww", "-p", ",".join(map(str, pids))])
        if "smi" in extra:
            save("nvidia-smi.txt", ["nvidia-smi"])
        if "spy" in extra:
            for rank, pid in sorted(ranks.items()):
                if b"T" in read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[:1]:
                    save(f"py-spy-rank{rank}.txt", ["py-spy", "dump", "--nonblocking", "--pid", str(pid)])
                else:
                    save(f"py-spy-rank{rank}.txt", ["py-spy", "dump", "--pid", str(pid)])
        for name in ("stacks.txt",) if "stacks" in extra else ("threads-1.txt", "threads-2.txt") if "spy2" in extra else ():
            if name.endswith("-2.txt"):
                time.sleep(5)
            for rank, pid in sorted(ranks.items()):
                stopped = b"T" in read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[:1]
                save(name, ["py-spy", "dump", *(["--nonblocking"] if stopped else []), "--pid", str(pid)])
        if "ras" in extra:
            try:
                with socket.create_connection(("localhost", self.ras_port), timeout=10) as s:
                    s.sendall(b"client protocol 2\nverbose status\n")
                    s.settimeout(12)
                    got = b""
                    try:
                        while chunk := s.recv(65536):
                            got += chunk
                    except OSError:
                        pass
                with open(self.out + "/ncclras.txt", "wb") as file:
                    file.write(got)
            except OSError as error:
                self.meta["ras"] = str(error)

    def follow(self, deadline):
        fault = self.fault
        acted = looked = going = False
        size, changed = 0, time.time()
        ready = re.compile(fault.ready or self.job.ready)
        limit = min(self.began + fault.limit, deadline)
        while True:
            code = self.launcher.poll()
            if code is not None:
                self.meta["exit"] = code
                break
            now = time.time()
            total = sum(len(read(path)) for path in self.logs())
            if total != size:
                size, changed = total, now
            if fault.act and not acted and going:
                time.sleep(0.7)
                acted = True
                self.act()
                changed = time.time()
            wants = set(fault.extra) & {"spy", "spy2", "stacks", "ps", "smi", "ras"}
            # Until the job is in full progress, silence means loading and compiling.
            if not going and ready.search(self.text()):
                going = True
                self.pids = list(self.ranks().values())
            silent = now - changed if (going and (not fault.act or acted)) or now - self.began > 60 else 0
            if fault.end == "exit" and wants and not looked and silent > 16:
                looked = True
                self.look()
            if fault.end != "exit" and silent > fault.silence and size >= 0:
                self.meta["hung_s"] = round(silent, 1)
                if not looked:
                    looked = True
                    self.look()
                if fault.end == "silence":
                    self.keep()
                break
            if now > limit:
                self.meta["limit"] = True
                if wants and not looked:
                    looked = True
                    self.look()
                break
            time.sleep(0.4)
        self.meta["seconds"] = round(time.time() - self.began, 1)
        self.keep_rings()
        self.end(gently=fault.end == "stopped")
        if "kept" not in self.meta:
            self.keep()

    def end(self, gently):
        # A launcher may exit before its ranks.
        if gently and self.launcher.poll() is None:
            self.launcher.send_signal(signal.SIGINT)
            until = time.time() + 12
            while time.time() < until and self.launcher.poll() is None:
                time.sleep(0.3)
        left = processes(self.mark)
        if left and "exit" in self.meta:
            time.sleep(1.5)
            left = processes(self.mark)
        self.meta["left"] = len(left)
        ended = set(left)
        for _ in range(20):
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            # A process that gives its GPU back has no environment any more, and is not gone yet.
            if self.launcher.poll() is not None and not left and not any(map(lives, ended)):
                break
            time.sleep(0.3)
            left = processes(self.mark)
            ended.update(left)
        if self.watcher:
            # The watcher sees the end of the job, and reports it, before it is told to stop.
            until = time.time() + 6
            while time.time() < until and self.watcher.poll() is None:
                time.sleep(0.2)
        if self.watcher and self.watcher.poll() is None:
            self.watcher.send_signal(signal.SIGINT)
            try:
                self.watcher.wait(20)
            except subprocess.TimeoutExpired:
                self.watcher.kill()
        for name in ("holder", "store"):
            if hasattr(self, name):
                getattr(self, name).close()

    def keep_rings(self):
        """Copies the plugin's rings, which remain after a job's end: what `watch --replay` reads."""
        if self.rings:
            for pid in self.pids:
                for path in glob.glob(os.path.join(self.rings, f"ring-{pid}-*")):
                    os.makedirs(self.out + "/rings", exist_ok=True)
                    shutil.copy(path, self.out + "/rings")

    def keep(self):
        """Copies the output and dumps of the job."""
        self.meta["kept"] = True
        for path in self.logs():
            if os.path.getsize(path) or "logs/" in path:
                shutil.copy(path, self.out)
        if self.job.launch == "loop":
            shutil.copy(self.work + "/launch.sh", self.out)
        if "fr" in self.fault.extra:
            for name in sorted(os.listdir(self.work + "/fr")):
                if os.path.getsize(os.path.join(self.work, "fr", name)) < 2_000_000:
                    shutil.copy(os.path.join(self.work, "fr", name), self.out)
        with open(os.path.join(self.out, "program"), "w") as file:
            file.write(program_of(self.fault))

    def whole(self, deadline):
        try:
            self.prepare()
            self.start()
            self.follow(deadline)
        except Exception as error:
            self.meta["error"] = f"{type(error).__name__}: {error}"
            try:
                if hasattr(self, "launcher"):
                    self.end(False)
                    self.keep()
            except Exception as second:
                self.meta["error"] += f"; {second}"
        with open(os.path.join(self.out, "meta.json"), "w") as file:
            json.dump(self.meta, file, indent=1)
        shutil.rmtree(self.work, ignore_errors=True)
        last = [line for line in self.meta.get("error", "").splitlines()][:1]
        print(f"{self.name:32} exit {self.meta.get('exit', '-')} {self.meta.get('seconds', 0):6} s {'LIMIT ' if self.meta.get('limit') else ''}"
              f"hung {self.meta.get('hung_s', '-')} {self.meta.get('acted', {}).get('pid', '')} {last}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="every edit applies and every program compiles; runs nothing")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--jobs", default="all")
    parser.add_argument("--faults", default="all")
    parser.add_argument("--only", help="JOB/FAULT,… instead of --jobs and --faults")
    parser.add_argument("--in-order", action="store_true", help="in the order of --only")
    parser.add_argument("--out", default="recorded")
    parser.add_argument("--work", default="/workspace")
    parser.add_argument("--at-once", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=3600, help="all is over by then")
    parser.add_argument("--not-in", help="a file of lines JOB/FAULT that are left out")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stagger", type=float, default=0.6)
    parser.add_argument("--watch", help="a command for each job: gets the launcher's pid, as {} or at its end")
    parser.add_argument("--share", type=int, default=0, metavar="GPUS", help="more ranks than these GPUs: the ranks share them")
    parser.add_argument("--rings", help="folder of the plugin's rings, which are kept")
    given = parser.parse_args()
    if given.check:
        for fault in FAULTS:
            text = program_of(fault)
            if BY_NAME[fault.job].program.endswith(".py"):
                compile(text, f"{fault.job}/{fault.name}", "exec")
            if BY_NAME[fault.job].launch == "loop":
                fault.loop.format(port=1, script="x", args="")
        names = [(fault.job, fault.name) for fault in FAULTS]
        if len(set(names)) != len(names):
            raise SystemExit("a name occurs twice")
        print(f"{len(JOBS)} jobs, {len(FAULTS)} faults and healthy runs")
        return
    jobs = None if given.jobs == "all" else given.jobs.split(",")
    names = None if given.faults == "all" else given.faults.split(",")
    chosen = [f for f in FAULTS if (jobs is None or f.job in jobs) and (names is None or f.name in names)]
    if given.only:
        only = given.only.split(",")
        chosen = [f for f in FAULTS if f"{f.job}/{f.name}" in only]
    if given.not_in:
        with open(given.not_in) as file:
            done = set(file.read().split())
        chosen = [f for f in chosen if f"{f.job}/{f.name}" not in done]
    if given.list:
        for fault in chosen:
            print(f"{fault.job}/{fault.name}: {fault.says} -> {fault.cause}")
        return
    # Long jobs first, so that short ones start last; the rest shuffled, so that not all hang at once.
    random.Random(given.seed).shuffle(chosen)
    chosen.sort(key=lambda f: -bool(f.restarts))
    if given.in_order:
        chosen.sort(key=lambda f: only.index(f"{f.job}/{f.name}"))
    deadline = time.time() + given.seconds
    os.makedirs(given.out, exist_ok=True)
    lock, queue = threading.Lock(), list(chosen)

    def worker():
        while True:
            with lock:
                if not queue or time.time() > deadline - 35:
                    return
                fault = queue.pop(0)
                time.sleep(given.stagger)
            Run(fault, given.out, given.work, given.watch, given.share, given.rings).whole(deadline)

    threads = [threading.Thread(target=worker, daemon=True) for _ in range(given.at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for fault in queue:
        print(f"{fault.job}/{fault.name}: not begun", flush=True)


if __name__ == "__main__":
    main()
