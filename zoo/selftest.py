"""Tests of the runner itself: a job without PyTorch and a stand-in for the watcher, which reads the planted fault and
answers correctly, wrongly, too early or not at all. Called by `zoo/live.py --self-test`."""

import contextlib
import dataclasses
import io
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import compare
import faults
import live
import netns
import scoreboard
from runs import Run, members_of, start_of

# Reads the truth file beside its output folder, which a real watcher cannot; the mode is the program's name.
STAND_IN = '''#!{python}
import json, os, sys, time
sys.path.insert(0, {here!r})
import faults
mode = os.path.basename(sys.argv[0])
if "--version" in sys.argv:
    print("stand-in 1"); sys.exit()
if mode == "broken":
    print("no such option", file=sys.stderr); sys.exit(2)
out = sys.argv[sys.argv.index("--out") + 1]
pid = int(sys.argv[sys.argv.index("--pid") + 1])
truth = os.path.join(os.path.dirname(out), "truth.jsonl")
def say(event, **more):
    print(json.dumps(dict(schema="ringleader.watch.v1", event=event, at=time.time(), **more)), flush=True)
def verdict(cause, ranks):
    culprits = [dict(rank=rank) for rank in ranks]
    say("verdict", report=dict(verdict=dict(cause=cause, culprits=culprits, confidence="high", summary="a lock")))
    sys.exit(4)
say("watching", nodes=1, ranks=2, sees="processes", cannot_see=[])
if mode == "hasty":
    while not os.path.exists(truth) or "first-step" not in open(truth).read():
        time.sleep(0.01)
    say("stall", comm="world", suspects=[0])
while os.path.exists(f"/proc/{{pid}}"):
    lines = [json.loads(line) for line in open(truth)] if os.path.exists(truth) else []
    planted = [line for line in lines if line["event"] == "planted"]
    if planted and mode != "silent":
        fault, rank = faults.BY_NAME[planted[0]["fault"]], planted[0]["rank"]
        time.sleep(2 if fault.group == "slow" else 0.3)
        if fault.group == "slow":
            say("straggler", rank=rank, late_ms=250, of="host", confidence="high", persistent=True)
            break
        say("stall", comm="world", suspects=[rank], states=[dict(rank=rank, state="outside", detail="lock")])
        verdict(fault.cause, [rank + 1 if mode == "wrong" else rank])
    time.sleep(0.02)
say("ended", how="0")
'''


def run(folder, mode, names, **changes):
    """Results by name. Each run is real: a launcher, two ranks, and the stand-in."""
    program = Path(folder) / mode
    program.write_text(STAND_IN.format(python=sys.executable, here=str(Path(__file__).resolve().parent)))
    program.chmod(0o755)
    options = live.options_of(["--bin", str(program), "--backend", "gloo", "--ranks", "2", "--parallel", "3"])
    options.kind, options.preload, options.gpus = "dummy", False, 0
    options.settings = {"step_ms": 20}
    options.record = str(Path(folder) / f"record-{mode}")
    os.makedirs(options.record)
    zoo = live.Zoo(options)
    runs = []
    for name in names:
        healthy = name.startswith("healthy:")
        what = faults.HEALTHY_BY_NAME[name[8:]] if healthy else faults.BY_NAME[name]
        what = what if healthy else dataclasses.replace(what, **changes)
        runs.append(Run(options, f"{name}/0", what, 0))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        zoo.do(runs)
        zoo.write()
    print(said.getvalue(), end="")
    for result in zoo.results:
        assert ("failed" in result) == (mode == "broken"), result
    return {result["name"]: result for result in zoo.results}, Path(options.record)


def check_right(folder):
    names = ["lock", "kill", "stop", "exception", "early-exit", "missing-rank", "slow-host", "healthy:plain"]
    results, record = run(folder, "right", names)
    for name in names:
        result = results[f"{name}/0"]
        assert result["right"], result
        if name.startswith("healthy:"):
            assert result["answer"] == [] and result["ended"] == 0, result
            continue
        assert result["right_cause"] and result["right_rank"] and not result["early_alarms"], result
        assert 0.2 < result["answer"]["verdict_s"] < 10, result
        # The planted fault happened, and to the planned rank.
        truth = [json.loads(line) for line in (record / f"{name}-0" / "truth.jsonl").read_text().splitlines()]
        planted = [line for line in truth if line["event"] == "planted"]
        assert [line["rank"] for line in planted] == [result["rank"]], planted
    ends = {line["rank"]: line["code"] for line in lines(record / "exception-0" / "truth.jsonl") if line["event"] == "exit"}
    assert ends[results["exception/0"]["rank"]] == 1, ends
    assert "ValueError: sample" in (record / "exception-0" / "job.log").read_text()
    ends = {line["rank"]: line["code"] for line in lines(record / "kill-0" / "truth.jsonl") if line["event"] == "exit"}
    assert ends[results["kill/0"]["rank"]] == -9, ends
    assert results["lock/0"]["right_words"] is True
    return record


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def check_wrong(folder):
    results, _ = run(folder, "wrong", ["lock"])
    result = results["lock/0"]
    assert result["right_cause"] and result["right_rank"] is False and not result["right"], result
    results, _ = run(folder, "broken", ["stop", "healthy:plain"], wait=1.0)
    assert "no such option" in results["healthy:plain/0"]["failed"], results
    results, _ = run(folder, "hasty", ["stop"])
    assert len(results["stop/0"]["early_alarms"]) == 1, results
    results, _ = run(folder, "silent", ["lock"], wait=1.5)
    result = results["lock/0"]
    assert not result["right"] and result["answer"].get("cause") is None and result["answer"]["verdict_s"] is None, result


def check_page(record):
    results, machines, not_run = scoreboard.read([record / "results.json"])
    page = scoreboard.page(results, machines, not_run, ["a note"])
    assert "| right culprit rank | 7 of 7 (100 %) |" in page, page
    assert "| healthy jobs without alarm | 1 of 1 (100 %) |" in page, page
    row = next(line for line in page.splitlines() if line.startswith("| `lock`"))
    assert "`stuck-outside-collective`; rank 1/1, cause 1/1" in row, row
    # Skipped runs say so.
    row = next(line for line in page.splitlines() if line.startswith("| `gil`"))
    assert "not run" in row, row
    assert "a note" in page and "stand-in 1" in page


def check_catalogue():
    known = {line[1:-1] for line in causes().splitlines() if line.startswith("[") and line.endswith("]")}
    names = [fault.name for fault in faults.FAULTS]
    assert len(names) == len(set(names)) and len(names) >= 30, len(names)
    for fault in faults.FAULTS:
        assert {fault.cause, *fault.also} <= known, (fault.name, {fault.cause, *fault.also} - known)
        assert fault.cause not in fault.also and len(fault.also) <= 3, fault.name
        assert fault.cause not in ("none", "undecided") and "undecided" not in fault.also, fault.name
    # The same seed gives the same places.
    options = live.options_of(["--seed", "7"])

    def places():
        runs = live.plan(options)
        for one in runs:
            one.settle(4)
        return [(one.name, one.kind, one.rank, one.step) for one in runs]

    assert places() == places()


def causes():
    here = Path(__file__).resolve().parent.parent
    return (here / "crates" / "knowledge" / "data" / "causes.toml").read_text()


# The output of NCCL 2.28.9 and PyTorch 2.11.
RAS = """Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 1461 on node 127.0.0.1 managing GPU 0

#0-0 (c1066d1d27d9dccc) ERROR
  Asynchronous errors on 2 ranks
  2 ranks reported Remote process error
  Rank 1 -- GPU 0 managed by process 1462 on node 127.0.0.1
  Rank 2 -- GPU 0 managed by process 1463 on node 127.0.0.1

Warnings
========
"""
COUNTS = """Errors
======

Warnings
========

#0-0 (d084fa8fcc524627) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 48
  Rank 2 has launched up to operation 47 -- GPU 2 managed by process 1463 on node 127.0.0.1
"""
FR = """Collective sequence number: 82 has errors
collective: nccl:all_reduce
error msg: Culprit rank 3; Error type: SIZE_OR_SYNTAX_MISMATCH, Expected input sizes: '[[10]]' does not match found input sizes: '[[20]]'
Not all ranks joining collective, sequence number: 83
missing ranks: {0, 1}
"""


def check_others():
    """The output of RAS and the analyzer is read as a person would read it."""
    pids = {1461: 0, 1462: 1, 1463: 2}
    gone, skipped = {"causes": ["peer-process-died"], "ranks": [0]}, {"causes": ["skipped-collective"], "ranks": [2]}
    said = compare.judge_ras("\n" + RAS, pids, gone)
    assert said == {"says": "INCOMPLETE, ERROR: rank [0]", "rank": True, "cause": True}, said
    said = compare.judge_ras("\n" + COUNTS, pids, skipped)
    assert said == {"says": "MISMATCH (AllReduce counts): rank [2]", "rank": True, "cause": True}, said
    said = compare.judge_ras("\nErrors\n======\n\nWarnings\n========\n", pids, skipped)
    assert said == {"says": "OK", "rank": False, "cause": False}, said
    assert compare.judge_ras("no answer: [Errno 111] Connection refused", pids, gone)["says"] == "nothing listens"
    said = compare.judge_fr(FR, [0, 1, 2, 3], {"causes": ["shape-mismatch"], "ranks": [3]})
    assert said == {"says": "SIZE_OR_SYNTAX_MISMATCH: rank [3]", "rank": True, "cause": True}, said
    said = compare.judge_fr(FR.partition("Not all")[1] + FR.partition("Not all")[2], [0], {"causes": ["skipped-collective"], "ranks": [0]})
    assert said == {"says": "not joined: rank [0, 1]", "rank": False, "cause": True}, said
    text = 'assert f"Missing dump files from ranks {missing}"\nAssertionError: Missing dump files from ranks {2}\n'
    said = compare.judge_fr(text, [0, 1, 3], {"causes": ["process-killed"], "ranks": [2]})
    assert said == {"says": "no dump: rank [2]", "rank": True, "cause": False}, said
    assert compare.judge_fr("", [], gone)["says"] == "no dumps"


def check_nodes():
    """Two nodes reach each other until the switch drops the packets of one."""
    import socket
    import subprocess

    why = "needs root" if os.geteuid() != 0 else netns.possible()
    if why:
        print(f"SKIPPED: {why}")
        return
    with tempfile.TemporaryDirectory() as folder:
        control = os.path.join(folder, "switch")
        command = [sys.executable, str(Path(netns.__file__)), "2", control]
        switch = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        nodes = json.loads(switch.stdout.readline())["nodes"]
        ask = (
            "import netns, socket, sys; netns.enter(sys.argv[1], 'node0'); s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
            "s.settimeout(0.5); s.bind(('0.0.0.0', 7000)); \n"
            "for n in range(3):\n s.sendto(b'ping', (netns.address(1), 7001))\n"
            " try: s.recv(10); print('answer'); break\n except TimeoutError: pass\n"
            "else: print('silence')"
        )
        echo = (
            "import netns, socket, sys; netns.enter(sys.argv[1], 'node1'); s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
            "s.bind(('0.0.0.0', 7001)); print('up', flush=True)\n"
            "while True:\n got, who = s.recvfrom(10); s.sendto(got, who)"
        )
        here = str(Path(netns.__file__).parent)
        peer = subprocess.Popen([sys.executable, "-c", echo, nodes[1]], cwd=here, stdout=subprocess.PIPE, text=True)
        assert peer.stdout.readline() == "up\n"
        said = []
        for lose in (0.0, 1.0, 0.0):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as order:
                order.sendto(json.dumps({"node": 1, "lose": lose}).encode(), control)
            done = subprocess.run([sys.executable, "-c", ask, nodes[0]], cwd=here, capture_output=True, text=True, timeout=20)
            said.append(done.stdout.strip())
        peer.kill()
        peer.wait()
        switch.stdin.close()
        switch.wait(timeout=5)
        assert said == ["answer", "silence", "answer"], said


def main():
    begin = time.monotonic()
    shm = set(os.listdir("/dev/shm"))
    check_catalogue()
    check_others()
    check_nodes()
    with tempfile.TemporaryDirectory() as folder:
        record = check_right(folder)
        check_wrong(folder)
        check_page(record)
        # No run leaves anything behind: no process of its sessions, no ring folder.
        for truth in Path(folder).glob("record-*/*/truth.jsonl"):
            for line in lines(truth):
                if line["event"] == "ranks":
                    for pid in line["pids"].values():
                        assert not members_of(pid) and not alive(pid, truth), (truth, pid)
    left = {name for name in set(os.listdir("/dev/shm")) - shm if name.startswith(f"zoo-{os.getpid()}-")}
    assert not left, left
    print(f"the zoo's runner is right, {time.monotonic() - begin:.1f} s")
    return 0


def alive(pid, truth):
    """Whether this same process still runs; its pid may have been reused."""
    started = [line for line in lines(truth) if line["event"] == "started" and line["pid"] == pid]
    if not started or start_of(pid) != started[0]["start"]:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
