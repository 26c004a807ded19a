"""One run of the zoo: a job, its fault, the watcher, the answers of other tools, and the score."""

import concurrent.futures
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

import compare
import faults
from launch import free_port

HERE = Path(__file__).resolve().parent
# Importing PyTorch, CUDA contexts and NCCL's start, with several jobs at once.
START_SECONDS = 90


class Run:
    def __init__(self, options, name, what, place):
        self.options, self.name, self.what, self.place = options, name, what, place
        self.healthy = isinstance(what, faults.Healthy)
        self.dice = random.Random(f"{options.seed} {name}")
        self.gpus = None

    def longest(self):
        """Seconds, for the order of runs."""
        if self.healthy:
            return 25 + self.what.options.get("first_step_seconds", 0) + self.what.options.get("first_step_extra", 0)
        return self.what.wait + (12 if self.what.group == "start" else 0)

    def settle(self, gpus):
        """The place of this run: as random as the fault allows, the same for the same seed."""
        what, options = self.what, self.options
        self.gpus = gpus
        if self.healthy:
            self.kind = options.kind or what.kind
        else:
            # Each fault begins with another kind of job, so that a few places cover all kinds.
            turn = self.place + sum(what.name.encode())
            self.kind = options.kind or what.kinds[turn % len(what.kinds)]
        self.world = options.ranks
        least = 1 if self.healthy else what.least
        if self.healthy and what.world:
            self.world = max(1, min(gpus, options.ranks)) if what.world == "own" else what.world
        if self.kind != "mesh" and not self.healthy:
            own = min(gpus, options.ranks)
            if self.place % 3 == 1:
                self.world = self.dice.randrange(least, options.ranks + 1)
            elif self.place % 3 == 2 and own >= least and not what.nodes:
                # One GPU per rank if there are enough: NVLink or PCIe instead of sockets.
                self.world = own
        self.launch = what.launch if self.healthy else what.launch[self.place % len(what.launch)]
        if not options.preload:
            self.launch = "keep"
        if self.healthy:
            self.rank, self.step = None, None
            return
        if self.world < least:
            raise RuntimeError(f"needs {least} ranks")
        self.rank = self.dice.choice(list(what.ranks(self.world) if what.ranks else range(self.world)))
        self.step = -1 if what.group == "start" else self.dice.randrange(25, 40)

    def place_of(self):
        group = "healthy" if self.healthy else self.what.group
        return {"name": self.name, "fault": self.what.name, "group": group, "place": self.place, "says": self.what.says}

    # --- the run

    def do(self, zoo, number):
        self.settle(zoo.gpus)
        # Neither names nor arguments reveal the fault to the watcher.
        self.folder = zoo.base / f"job-{number:03}"
        self.folder.mkdir()
        shared = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile_dir()
        self.rings = Path(shared) / f"zoo-{os.getpid()}-{number:03}"
        self.rings.mkdir(mode=0o700)
        self.truth = self.folder / "truth.jsonl"
        self.stream = Stream()
        self.watcher = self.switch = None
        self.nodes, self.cgroups, self.listener = [], [], None
        self.launcher = self.code = self.dumped = None
        self.server = zoo.server
        try:
            if self.what.nodes:
                self.make_nodes()
            self.start()
            if not self.options.no_watch:
                self.watch()
            result = self.follow()
        except Exception:
            self.clean()
            self.forget()
            raise
        # Before the dumps are read, since a stalled job occupies GPUs that others share.
        self.clean()
        if "failed" not in result:
            result.update(self.judge_others())
            result["step_s"], result["longest_step_s"] = self.step_seconds()
        if self.options.record:
            self.file_away(result)
        self.forget()
        return result

    def make_nodes(self):
        control = self.folder / "switch"
        command = [sys.executable, str(HERE / "netns.py"), str(self.world), str(control)]
        self.switch = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        said = self.switch.stdout.readline()
        if not said:
            raise RuntimeError("the nodes' network could not be made")
        self.nodes = json.loads(said)["nodes"]

    def settings(self):
        made = {
            "kind": self.kind,
            "backend": self.options.backend,
            "oversubscribe": self.shares_gpus(),
            "blocking_sync": 2 * self.world * self.options.parallel > (os.cpu_count() or 1),
            "truth": str(self.truth),
            "work": str(self.folder / "work"),
            "tracebacks": self.options.no_watch,
            "steps": 60 if self.healthy else 1000,
        }
        if self.nodes:
            made["bucket_kb"], made["width"] = [512, 128, 4], 512
            made["control"] = str(self.folder / "switch")
        if self.healthy:
            made.update(self.what.options)
        else:
            made.update(fault=self.what.name, fault_rank=self.rank, fault_step=self.step, variant=self.place)
        return {**made, **self.options.settings}

    def shares_gpus(self):
        return bool(self.gpus) and self.world > self.gpus and not self.nodes

    def environment(self):
        env = {key: value for key, value in os.environ.items() if not key.startswith(("ZOO_", "RINGLEADER_"))}
        self.ras_port = free_port()
        env.update(
            {
                "MASTER_ADDR": "10.77.0.10" if self.nodes else "127.0.0.1",
                "NCCL_DEBUG": "WARN",
                "NCCL_NVLS_ENABLE": "0",
                "NCCL_IB_DISABLE": "1",
                "NCCL_RAS_ADDR": "localhost:28028" if self.nodes else f"localhost:{self.ras_port}",
                "RINGLEADER_RING_DIR": str(self.rings),
                "TORCHELASTIC_RUN_ID": f"run-{self.folder.name}",
                "TORCH_FR_BUFFER_SIZE": "2000",
                "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
                "TORCH_FR_DUMP_TEMP_FILE": str(self.folder / "fr" / "rank"),
                "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(self.folder / "fr" / "rank"),
                "OMP_NUM_THREADS": "1",
            }
        )
        if self.nodes:
            env["NCCL_SOCKET_IFNAME"] = env["GLOO_SOCKET_IFNAME"] = "eth0"
        if self.options.plugin:
            env["NCCL_PROFILER_PLUGIN"] = self.options.plugin
        return env

    def wrong_start(self, env):
        """The changes by faults before the first step: (environment of single ranks, ranks that are not started)."""
        name, of, absent = self.what.name, {}, []
        # One rank has the wrong setting; the others get a right one if there is no default.
        if name == "wrong-interface":
            of = {"NCCL_SOCKET_IFNAME": "mgmt0"}
        elif name == "no-interface":
            of = {"NCCL_SOCKET_IFNAME": "ib7"}
        elif name == "env-algo":
            env["NCCL_ALGO"], of = "Ring", {"NCCL_ALGO": "Tree"}
        elif name == "env-world":
            of = {"WORLD_SIZE": str(self.world + 1)}
        elif name == "env-master":
            of = {"MASTER_ADDR": "no-such-host.invalid"}
        elif name == "env-rank":
            self.twin = self.dice.choice([rank for rank in range(1, self.world) if rank != self.rank])
            of = {"RANK": str(self.twin)}
        elif name == "duplicate-gpu" and self.shares_gpus():
            of = {"NCCL_HOSTID": f"zoo-host-{self.rank - 1}"}
        elif name in ("missing-rank", "missing-node"):
            absent = [self.rank]
        return ({str(self.rank): of} if of else {}), absent

    def start(self):
        (self.folder / "work").mkdir()
        (self.folder / "fr").mkdir()
        settings = self.folder / "settings.json"
        settings.write_text(json.dumps(self.settings()))
        env, port = self.environment(), free_port()
        rank_env, absent, planted = {}, [], None
        if not self.healthy and self.what.group == "start":
            rank_env, absent = self.wrong_start(env)
            planted = {"fault": self.what.name, "rank": self.rank, "step": -1, "place": "start"}
            if self.what.name == "port":
                import socket

                self.listener = socket.create_server(("0.0.0.0", port))
        log, program = str(self.folder / "job.log"), str(HERE / "train.py")
        if self.launch == "torchrun":
            command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={self.world}",
                       f"--master-port={port}", program, "--settings", str(settings)]  # fmt: skip
            with open(log, "ab") as out:
                self.process = subprocess.Popen(
                    command, env=env, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True
                )
            self.launcher = self.process.pid
        else:
            self.process = None
            self.launcher = self.server.start(
                do="job", program=program, settings=str(settings), world=self.world, port=port, env=env, rank_env=rank_env,
                absent=absent, log=log, truth=str(self.truth), nodes=self.nodes, planted=planted,
            )  # fmt: skip
        self.began = time.monotonic()

    def watch(self):
        command = [self.options.bin, "watch", "--pid", str(self.launcher), "--json", "--until-verdict", "--no-screen",
                   "--rings", str(self.rings), "--out", str(self.folder / "bundle"),
                   *shlex.split(self.options.watch_arguments)]  # fmt: skip
        if self.what.group == "start":
            command += shlex.split(self.options.start_arguments)
        env = {**os.environ, "NCCL_RAS_ADDR": f"localhost:{self.ras_port}"}
        self.watcher = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace",
            stderr=open(self.folder / "watch.err", "w"),
        )  # fmt: skip
        threading.Thread(target=self.stream.read, args=(self.watcher.stdout, time.monotonic), daemon=True).start()

    def follow(self):
        planted = self.until_planted()
        if self.healthy:
            return self.end_of_healthy()
        if planted is None:
            return {**self.place_now(), "failed": f"the fault was not planted in {START_SECONDS} s: {self.log_tail()}"}
        self.planted = planted
        end = planted["mono"] + self.what.wait
        if self.options.no_watch:
            time.sleep(max(0.0, planted["mono"] + min(4, self.what.wait) - time.monotonic()))
            look = self.look()
            self.ask_others()
            return {**self.place_now(), "look": look, "ended": self.how_ended(), "log": self.log_tail()}
        self.stream.wait_for(lambda event: self.is_answer(event, planted), end)
        result = self.did_watch() or self.score(planted)
        self.ask_others()
        return result

    def did_watch(self):
        """None if the watcher ran; otherwise the run is void, since the silence of a dead watcher proves nothing."""
        code = self.watcher.poll()
        seen = [event for event in self.stream.events if event["event"] == "watching"]
        # Nothing wrong, a verdict, undecided.
        if code in (None, 0, 4, 5) and seen:
            return None
        said = (self.folder / "watch.err").read_text(errors="replace").strip()[-200:]
        return {**self.place_now(), "failed": f"the watcher did not watch (exit code {code}): {said}"}

    def until_planted(self):
        """The record of the planting, or of the first step in healthy runs. None if it does not come."""
        end = self.began + START_SECONDS
        wanted = "first-step" if self.healthy else "planted"
        end += 40 if self.healthy else 0
        while time.monotonic() < end:
            found = [line for line in self.read_truth() if line["event"] == wanted]
            if found:
                return min(found, key=lambda line: line["mono"])
            if self.is_over():
                time.sleep(0.2)
                found = [line for line in self.read_truth() if line["event"] == wanted]
                return min(found, key=lambda line: line["mono"]) if found else None
            time.sleep(0.05)
        return None

    def read_truth(self):
        try:
            lines = self.truth.read_text().splitlines()
        except OSError:
            return []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def is_over(self):
        return self.how_ended() is not None

    def how_ended(self):
        """The launcher's exit code; None while it runs."""
        if self.code is None:
            self.code = self.process.poll() if self.process else self.server.wait(self.launcher, 0)
        return self.code

    def is_answer(self, event, planted):
        if event["arrived"] < planted["mono"]:
            return False
        if event["event"] == "verdict":
            return cause_of(event) != "none"
        # Straggler events in the first moments cannot be about this fault yet.
        late = event["arrived"] > planted["mono"] + 1.5
        return event["event"] == "straggler" and self.what.group == "slow" and late and event.get("confidence") != "low"

    # --- the score

    def place_now(self):
        return {
            **self.place_of(), "kind": self.kind, "world": self.world, "rank": self.rank, "step": self.step,
            "launch": self.launch, "gpus": min(self.world, self.gpus or 0), "nodes": bool(self.nodes),
        }  # fmt: skip

    def right_answer(self):
        ranks = [[self.rank]]
        if self.what.name == "env-rank":
            ranks += [[self.twin], sorted([self.rank, self.twin])]
        if self.what.name == "duplicate-gpu":
            ranks += [[self.rank - 1], [self.rank - 1, self.rank]]
        if self.what.culprit == "none":
            ranks = None
        return {"causes": [self.what.cause, *self.what.also], "ranks": ranks}

    def score(self, planted):
        want = self.right_answer()
        answer = {"stall_s": None, "verdict_s": None}
        early = [e for e in self.stream.events if e["arrived"] < planted["mono"] and is_alarm(e)]
        for event in self.stream.events:
            if event["arrived"] < planted["mono"]:
                continue
            after = round(event["arrived"] - planted["mono"], 2)
            if event["event"] == "stall" and answer["stall_s"] is None:
                answer.update(stall_s=after, suspects=event.get("suspects"), states=shorten(event.get("states")))
            if self.is_answer(event, planted) and answer["verdict_s"] is None:
                answer.update(read_answer(event), verdict_s=after)
        ranks = answer.get("ranks")
        right_rank = None if want["ranks"] is None else ranks in want["ranks"]
        right_cause = answer.get("cause") in want["causes"]
        words = json.dumps([answer.get("summary"), answer.get("states"), answer.get("of")])
        return {
            **self.place_now(),
            "want": {"causes": want["causes"], "ranks": want["ranks"] and want["ranks"][0]},
            "answer": answer,
            "early_alarms": [brief(event) for event in early],
            "right_cause": right_cause,
            "right_rank": right_rank,
            "exact_cause": answer.get("cause") == self.what.cause,
            "right_words": any(word in words for word in self.what.words) if self.what.words else None,
            "right": right_cause and right_rank is not False,
            "ended": self.how_ended(),
            "watcher": self.watcher.poll(),
            "sees": self.stream.sees(),
        }

    def end_of_healthy(self):
        end = self.began + START_SECONDS + 60
        while time.monotonic() < end and not self.is_over():
            time.sleep(0.1)
        code = self.how_ended()
        if code != 0:
            return {**self.place_now(), "failed": f"the healthy job ended with {code}: {self.log_tail()}"}
        if self.options.no_watch:
            return {**self.place_now(), "look": f"ended with {code}"}
        self.stream.wait_for(lambda event: event["event"] == "ended", time.monotonic() + 5)
        time.sleep(0.5)
        void = self.did_watch()
        if void:
            return void
        alarms = [brief(event) for event in self.stream.events if is_alarm(event)]
        remarks = [brief(event) for event in self.stream.events if event["event"] == "straggler"]
        return {
            **self.place_now(), "answer": alarms, "remarks": remarks, "right": not alarms, "ended": code,
            "events": self.stream.counts(), "watcher": self.watcher.poll(), "sees": self.stream.sees(),
        }  # fmt: skip

    # --- the others

    def pids(self):
        """Rank to pid, for all ranks that ever started."""
        found = {}
        for line in self.read_truth():
            if line["event"] == "ranks":
                found.update({int(rank): pid for rank, pid in line["pids"].items()})
            elif line["event"] == "started":
                found[line["rank"]] = line["pid"]
        return found

    def ask_others(self):
        """While the job hangs: asks RAS and requests the dumps. They are evaluated after the job has ended."""
        if self.options.no_others or self.options.backend != "nccl":
            return
        # The namespace of a healthy rank.
        node = self.nodes[0 if self.rank != 0 else 1] if self.nodes else None
        with concurrent.futures.ThreadPoolExecutor(1) as beside:
            said = beside.submit(compare.ask_ras, 28028 if self.nodes else self.ras_port, node)
            self.dumped = compare.ask_for_dumps(str(self.folder / "fr" / "rank"), range(self.world))
            (self.folder / "ras.txt").write_text(said.result())

    def judge_others(self):
        if self.dumped is None:
            return {}
        right = self.right_answer()
        right = {"causes": right["causes"], "ranks": (right["ranks"] or [None])[0]}
        pids = {pid: rank for rank, pid in self.pids().items()}
        ras = compare.judge_ras((self.folder / "ras.txt").read_text(), pids, right)
        said = ""
        if self.dumped:
            folder = str(self.folder / "fr")
            said = self.analyse(self.folder / "fr.txt", ["-p", "rank", folder])
            if "Missing dump files" in said:
                said += self.analyse(self.folder / "fr2.txt", ["--allow-incomplete-ranks", "-p", "rank", folder])
        fr = compare.judge_fr(said, self.dumped, right)
        return {"ras": ras, "fr": {**fr, "dumps": self.dumped}}

    def analyse(self, out, arguments):
        for pipe in (self.folder / "fr").glob("*.pipe"):
            pipe.unlink(missing_ok=True)
        pid = self.server.start(do="fr", out=str(out), arguments=arguments)
        if self.server.wait(pid, 35) is None:
            return "the analyzer does not end"
        return out.read_text(errors="replace")

    # --- where each rank is, without a watcher

    def look(self):
        said = []
        ended = {line["rank"]: line["code"] for line in self.read_truth() if line["event"] == "exit"}
        for rank, pid in sorted(self.pids().items()):
            if rank in ended:
                said.append(f"{rank}: exit {ended[rank]}")
                continue
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                where = Path(f"/proc/{pid}/wchan").read_text() or "-"
            except OSError:
                said.append(f"{rank}: gone")
                continue
            said.append(f"{rank}: {state} {where}")
            if state in "RS":
                try:
                    os.kill(pid, signal.SIGUSR1)
                except OSError:
                    continue
        time.sleep(0.5)
        instead = [line["why"] for line in self.read_truth() if line["event"] == "instead"]
        return "; ".join(said) + (f" (instead: {instead})" if instead else "")

    def log_tail(self):
        try:
            text = (self.folder / "job.log").read_text(errors="replace")
        except OSError:
            return "no log"
        return text[-1500:] if self.options.no_watch else " / ".join(text.strip().splitlines()[-3:])[-300:]

    # --- the end

    def clean(self):
        if self.watcher and self.watcher.poll() is None:
            self.watcher.terminate()
            try:
                self.watcher.wait(timeout=3)
            except subprocess.TimeoutExpired:
                self.watcher.kill()
                self.watcher.wait()
        for line in self.read_truth():
            if line["event"] == "cgroup":
                self.cgroups.append(line["path"])
        end_session(self.launcher)
        # torchrun opens a session for each rank.
        for line in self.read_truth():
            if line["event"] == "started" and start_of(line["pid"]) in (None, line["start"]):
                end_session(line["pid"])
        if self.process:
            self.process.wait(timeout=10)
        elif self.launcher:
            self.server.wait(self.launcher, 10)
        if self.switch:
            self.switch.stdin.close()
            try:
                self.switch.wait(timeout=3)
            except subprocess.TimeoutExpired:
                self.switch.kill()
                self.switch.wait()
        if self.listener:
            self.listener.close()
        for path in self.cgroups:
            for _ in range(20):
                try:
                    os.rmdir(path)
                    break
                except OSError:
                    time.sleep(0.1)

    def forget(self):
        shutil.rmtree(self.rings, ignore_errors=True)
        if not self.options.record:
            shutil.rmtree(self.folder, ignore_errors=True)

    def step_seconds(self):
        """The job's rhythm before the fault: mean and longest step. On a machine shared by many jobs some steps are long
        anyway, and an alarm in them is not false."""
        lines = self.read_truth()
        first = [line["mono"] for line in lines if line["event"] == "first-step"]
        last = [line for line in lines if line["event"] in ("planted", "finished") and line.get("step", -1) > 0]
        longest = [line["longest_s"] for line in lines if line.get("longest_s")]
        if not first or not last:
            return None, max(longest, default=None)
        end = min(last, key=lambda line: line["mono"])
        return round((end["mono"] - min(first)) / end["step"], 3), max(longest, default=None)

    def file_away(self, result):
        """Keeps the files of the run under its name: rings and dumps, which are small, but no checkpoints."""
        to = Path(self.options.record) / self.name.replace("/", "-").replace(":", "-")
        shutil.rmtree(to, ignore_errors=True)
        shutil.rmtree(self.folder / "work", ignore_errors=True)
        if not self.options.bundles:
            shutil.rmtree(self.folder / "bundle", ignore_errors=True)
        with open(self.folder / "events.jsonl", "w") as file:
            file.writelines(json.dumps(event) + "\n" for event in self.stream.events)
        (self.folder / "result.json").write_text(json.dumps(result, indent=1) + "\n")
        if not self.healthy and (result.get("answer") or {}).get("stall_s") is None:
            # No answer, or only at the job's end: keep the rings to find out why (mostly zeros, they compress well).
            with tarfile.open(self.folder / "rings.tar.xz", "w:xz", preset=1) as archive:
                archive.add(self.rings, "rings")
        self.folder.rename(to)


class Stream:
    """The watcher's events with their arrival times."""

    def __init__(self):
        self.events = []
        self.changed = threading.Condition()
        self.over = False

    def read(self, lines, clock):
        for line in lines:
            self.add(line, clock())
        with self.changed:
            self.over = True
            self.changed.notify_all()

    def add(self, line, arrived):
        try:
            event = json.loads(line)
        except ValueError:
            return
        if isinstance(event, dict) and "event" in event:
            with self.changed:
                self.events.append({**event, "arrived": arrived})
                self.changed.notify_all()

    def wait_for(self, wanted, until):
        """The first wanted event; None if it has not come by then or the watcher has ended."""
        with self.changed:
            while True:
                found = next((event for event in self.events if wanted(event)), None)
                left = until - time.monotonic()
                if found or self.over or left <= 0:
                    return found
                self.changed.wait(left)

    def sees(self):
        """The watcher's best source."""
        seen = {event.get("sees") for event in self.events if event["event"] == "watching"}
        return next((by for by in ("plugin", "ras", "processes") if by in seen), None)

    def counts(self):
        found = {}
        for event in self.events:
            found[event["event"]] = found.get(event["event"], 0) + 1
        return found


def verdict_of(event):
    return (event.get("report") or {}).get("verdict") or {}


def cause_of(event):
    return verdict_of(event).get("cause", "none")


def is_alarm(event):
    return event["event"] == "stall" or (event["event"] == "verdict" and cause_of(event) != "none")


def read_answer(event):
    if event["event"] == "straggler":
        cause = "slow-link" if event.get("of") == "network" else "straggler"
        return {"cause": cause, "ranks": [event.get("rank")], "of": event.get("of"), "confidence": event.get("confidence"),
                "summary": f"late by {event.get('late_ms')} ms"}  # fmt: skip
    verdict = verdict_of(event)
    ranks = sorted({c["rank"] for c in verdict.get("culprits") or [] if c.get("rank") is not None})
    places = [c["where"] for c in verdict.get("culprits") or [] if c.get("where")]
    return {"cause": verdict.get("cause"), "ranks": ranks, "confidence": verdict.get("confidence"),
            "summary": verdict.get("summary"), "where": places}  # fmt: skip


def brief(event):
    if event["event"] == "verdict":
        return {"event": "verdict", "cause": cause_of(event), "summary": verdict_of(event).get("summary")}
    return {key: value for key, value in event.items() if key in ("event", "op", "after_s", "expected_s", "rank", "late_ms", "of", "suspects")}


def shorten(states):
    return [f"{s.get('rank')}: {s.get('state')} {s.get('detail') or ''}".strip()[:120] for s in states or []][:8]


def tempfile_dir():
    import tempfile

    return tempfile.gettempdir()


def end_session(leader):
    """Ends every process of the session that the launcher opened; nothing else is in it. The launcher goes last, so that
    it can reap the others."""
    if not leader:
        return
    for _ in range(10):
        members = members_of(leader)
        if not members:
            return
        for pid in [pid for pid in members if pid != leader] or members:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)


def start_of(pid):
    """Start time in ticks since boot; None if the process is gone. Pid and start time identify a process uniquely."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return None


def members_of(session):
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] not in "ZX":
                found.append(int(entry))
    return found
