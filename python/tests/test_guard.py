"""The guard in real jobs of gloo: each test starts its ranks."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest

HERE = pathlib.Path(__file__).parent
_server = None


def server():
    """The process that starts jobs; one for all tests."""
    global _server
    if _server is None or _server.poll() is not None:
        path = str(HERE.parent) + os.pathsep + os.environ.get("PYTHONPATH", "")
        env = dict(os.environ, PYTHONPATH=path, OMP_NUM_THREADS="1")
        env.pop("RANK", None)
        start = [sys.executable, str(HERE / "guard_server.py")]
        _server = subprocess.Popen(start, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    return _server


def run(tmp_path, n, *args, timeout=240):
    """Runs the job on n ranks; what each rank printed, and the events by rank."""
    said = tmp_path / "stderr"
    asked = dict(args=[*map(str, args), "--ranks", str(n)], env={"RINGLEADER_RING_DIR": str(tmp_path)}, stderr=str(said))
    at = server()
    print(json.dumps(asked), file=at.stdin, flush=True)
    pid = int(at.stdout.readline())
    # Its answer comes when the job has ended.
    alarm = threading.Timer(timeout, lambda: os.killpg(pid, signal.SIGKILL))
    alarm.start()
    code = int(at.stdout.readline())
    alarm.cancel()
    out = [(tmp_path / ("out-%d" % rank)).read_text() for rank in range(n)]
    assert code == 0, "\n".join(out) + said.read_text()
    events = {}
    for file in tmp_path.glob("events-*.jsonl"):
        for line in file.read_text().splitlines():
            event = json.loads(line)
            assert event["schema"] == "ringleader.event.v1" and event["wall_ns"] > 0
            events.setdefault(event["rank"], []).append(event)
    return out, events


@pytest.mark.parametrize("lag", [0, 1, 3])
@pytest.mark.parametrize("kind", ["plain", "ddp", "hsdp"])
def test_a_flipped_bit_after_the_reduction_is_named_with_rank_and_parameter(tmp_path, kind, lag):
    out, events = run(tmp_path, 4, kind, "--flip-gradient", "2:7:1.weight", "--steps", 12, "--lag", lag)
    first = {rank: next(e for e in own if e["kind"] == "digest") for rank, own in events.items()}
    # With replicas of two no one has the majority: both are named.
    ranks = {"plain": {0, 1, 2, 3}, "ddp": {0, 1, 2, 3}, "hsdp": {0, 2}}[kind]
    assert set(first) == ranks, out
    for event in first.values():
        assert event["step"] == 7 and event["value"] == "gradient" and event["agree"] is False
        assert event["parameter"].endswith("1.weight") and event["layer"].endswith("1")
        assert event["odd"] == ([] if kind == "hsdp" else [2])
        assert event["differing"] == 1


@pytest.mark.parametrize("every,step,lag", [(1, 6, 0), (4, 8, 0), (1, 6, 1), (4, 8, 1)])
def test_a_changed_parameter_is_named_at_the_next_check(tmp_path, every, step, lag):
    way = ("--every", every, "--lag", lag)
    _, events = run(tmp_path, 4, "ddp", "--flip-parameter", "3:5:0.bias", "--steps", 9, *way)
    event = next(e for e in events[0] if e["kind"] == "digest")
    assert event["odd"] == [3] and event["parameter"] == "0.bias" and event["value"] == "parameter"
    assert event["step"] == step
    assert not event["never_in_sync"]


def test_after_a_disagreement_checks_are_read_at_once(tmp_path):
    way = ("--flip-parameter", "2:3:1.weight", "--steps", 7, "--lag", 2, "--close")
    _, events = run(tmp_path, 4, "ddp", *way)
    # The check of step 4 is read before step 6; that of step 5 was queued by then.
    assert [(e["step"], e["value"], e["odd"]) for e in events[0]] == [(n, "parameter", [2]) for n in (4, 6, 5, 7)]


def test_a_fault_in_the_last_step_is_named_by_close(tmp_path):
    _, events = run(tmp_path, 4, "ddp", "--flip-gradient", "1:6:0.weight", "--steps", 6, "--lag", 1, "--close")
    event = next(e for e in events[1] if e["kind"] == "digest")
    assert event["step"] == 6 and event["odd"] == [1] and event["parameter"] == "0.weight"


@pytest.mark.parametrize("kind", ["plain", "ddp", "fsdp", "hsdp", "replicas"])
@pytest.mark.parametrize("what", ["NaN", "Inf"])
def test_a_nan_is_named_with_rank_layer_and_step_before_the_reduction_spreads_it(tmp_path, kind, what):
    # The last step: what is still unread is told at the end of the process.
    way = ("--steps", 6, "--lag", 1) if kind in ("ddp", "replicas") else ("--steps", 8)
    out, events = run(tmp_path, 4, kind, "--spoil", "1:6:1:%s" % what, *way)
    own = [e for e in events.get(1, []) if e["kind"] == "nan"]
    assert own, out
    assert own[0]["step"] == 6 and own[0]["layer"] == "1"
    # A weight's gradient makes NaN of Inf, and FSDP2 keeps weight and bias in one buffer.
    assert own[0]["value"] == what or kind in ("fsdp", "hsdp", "replicas")
    others = [e for rank, all_ in events.items() if rank != 1 for e in all_ if e["kind"] == "nan"]
    # Once the sum has spread it, the next step's are everybody's.
    assert all(e["step"] > 6 for e in others)


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "replicas"])
def test_between_checks_nothing_is_looked_at(tmp_path, kind):
    out, events = run(tmp_path, 4, kind, "--spoil", "1:6:1:NaN", "--steps", 8, "--every", 3, "--close")
    assert [(rank, e["step"], e["layer"]) for rank, own in events.items() for e in own if e["kind"] == "nan"] == [(1, 6, "1")], out
    (tmp_path / "again").mkdir()
    _, events = run(tmp_path / "again", 4, kind, "--spoil", "1:5:1:NaN", "--steps", 5, "--every", 3, "--close")
    assert events == {}


@pytest.mark.parametrize("kind,lag", [("plain", 0), ("ddp", 1), ("fsdp", 1), ("hsdp", 1)])
def test_a_healthy_job_is_silent_for_a_thousand_steps(tmp_path, kind, lag):
    out, events = run(tmp_path, 4, kind, "--steps", 1000, "--small", "--lag", lag, "--close", timeout=400)
    assert events == {}
    assert not any("ringleader guard: " in text and "sharded without a copy" not in text for text in out), out


@pytest.mark.parametrize("way", ["accumulate", "clip", "unused", "frozen", "buffers", "tied", "subgroup"])
def test_what_differs_in_health_raises_nothing(tmp_path, way):
    out, events = run(tmp_path, 4, "ddp", "--steps", 20, "--small", "--way", way)
    assert events == {}, out


def test_what_was_never_in_sync_is_said_so(tmp_path):
    _, events = run(tmp_path, 4, "plain", "--steps", 3, "--small", "--way", "own-init")
    event = next(e for e in events[0] if e["kind"] == "digest" and e["value"] == "parameter")
    assert event["step"] == 1 and event["never_in_sync"]


def test_a_loss_spike_is_noted(tmp_path):
    _, events = run(tmp_path, 2, "ddp", "--steps", 40, "--small", "--spike", 30)
    assert [e["step"] for e in events[0] if e["kind"] == "spike"] == [30]


def test_raise_stops_all_ranks_together(tmp_path):
    out, _ = run(tmp_path, 4, "ddp", "--flip-gradient", "2:3:1.weight", "--steps", 9, "--action", "raise")
    assert all("Disagreement" in text and "rank 2" in text for text in out), out


@pytest.mark.parametrize(
    "option,said",
    [
        ({"every": 4}, "every differs: 2 on ranks 0-2, 4 on rank 3"),
        ({"lag": 1}, "lag differs: 0 on ranks 0-2, 1 on rank 3"),
        ({"gradients": False}, "gradients differs: True on ranks 0-2, False on rank 3"),
        ({"parameters": False, "every": 3}, "every differs: 2 on ranks 0-2, 3 on rank 3; parameters differs: True on ranks 0-2"),
        ({"action": "raise"}, 'action differs: "not raise" on ranks 0-2, "raise" on rank 3'),
    ],
)
def test_options_that_differ_are_named_on_every_rank(tmp_path, option, said, kind="ddp"):
    way = ("--every", 2, "--steps", 9, "--differs", "3:" + json.dumps(option))
    out, events = run(tmp_path, 4, kind, *way, timeout=100)
    assert all("refused, 0 hooks left" in text and said in text for text in out), out
    assert events == {}


def test_options_are_compared_over_all_of_a_mesh(tmp_path):
    # Ranks 0 and 2 are not compared with rank 3, and would wait for it all the same.
    said = "every differs: 2 on ranks 0-2, 4 on rank 3"
    test_options_that_differ_are_named_on_every_rank(tmp_path, {"every": 4}, said, "hsdp")


def test_other_parameters_are_named_with_what_to_do(tmp_path):
    out, _ = run(tmp_path, 4, "plain", "--steps", 3, "--way", "frozen-on-1", timeout=100)
    said = "the number of parameters to compare differs: 6 on ranks 0,2-3, 4 on rank 1; group="
    assert all(said in text for text in out), out


def test_a_rank_without_a_guard_is_named(tmp_path):
    out, _ = run(tmp_path, 4, "ddp", "--steps", 3, "--unguarded", 2, timeout=100)
    assert all("rank 2 has set up no guard in 3 s" in out[rank] for rank in (0, 1, 3)), out


def test_sharded_ranks_compare_nothing_and_may_differ(tmp_path):
    out, _ = run(tmp_path, 4, "fsdp", "--steps", 3, "--differs", '3:{"every": 2}', timeout=100)
    assert all("done" in text for text in out), out


@pytest.mark.parametrize("lag,gathers", [(0, 12), (1, 6)])
@pytest.mark.parametrize("action", ["warn", "raise"])
def test_a_check_is_one_collective_or_two_if_it_is_read_at_once(tmp_path, lag, gathers, action):
    out, _ = run(tmp_path, 2, "ddp", "--steps", 6, "--small", "--lag", lag, "--action", action, "--close")
    assert all("done" in text and " %d gathers" % gathers in text for text in out), out


@pytest.mark.parametrize(
    "kind,way",
    [
        ("plain", ()),
        ("ddp", ()),
        ("ddp", ("--no-gradients",)),
        ("ddp", ("--lag", 1)),
        ("ddp", ("--lag", 2, "--every", 2)),
        ("replicas", ()),
    ],
)
def test_a_nan_ends_all_ranks_that_are_compared(tmp_path, kind, way):
    way = ("--spoil", "1:6:1:NaN", "--steps", 12, "--action", "raise", *way)
    out, events = run(tmp_path, 4, kind, *way, timeout=100)
    assert "Disagreement ringleader guard: rank 1: the local gradient of 1" in out[1] and "NaN at step 6" in out[1], out
    for rank in (0, 2, 3):
        assert "Disagreement ringleader guard: rank 1 found NaN or Inf in its local gradients at step 6" in out[rank], out
    # The others have nothing of their own to tell.
    told = [(rank, e["kind"], e["step"], e["layer"]) for rank, own in events.items() for e in own]
    assert told == [(1, "nan", 6, "1")], out


def test_a_loss_ends_all_ranks_in_a_step_that_is_checked(tmp_path):
    way = ("--loss", "2:4:NaN", "--steps", 9, "--action", "raise", "--every", 2)
    out, events = run(tmp_path, 4, "ddp", *way, timeout=100)
    assert "Disagreement ringleader guard: rank 2: the loss is nan at step 4" in out[2], out
    others = (out[rank] for rank in (0, 1, 3))
    assert all("rank 2 has a loss that jumped or is no number at step 4" in text for text in others), out
    assert list(events) == [2]


def test_one_process_alone_is_watched_for_nan(tmp_path):
    _, events = run(tmp_path, 1, "plain", "--spoil", "0:3:0:NaN", "--steps", 4)
    assert events[0][0]["kind"] == "nan" and events[0][0]["step"] == 3
