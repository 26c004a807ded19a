"""The guard in real jobs of gloo: each test starts its ranks."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
JOB = HERE / "guard_job.py"


def run(tmp_path, n, *args, timeout=240):
    """Runs the job on n ranks; what each rank printed, and the events by rank."""
    port = 20_000 + os.getpid() % 20_000 + run.count
    run.count += 1
    env = dict(
        os.environ,
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        RINGLEADER_RING_DIR=str(tmp_path),
        PYTHONPATH=str(HERE.parent) + os.pathsep + os.environ.get("PYTHONPATH", ""),
        OMP_NUM_THREADS="1",
    )
    job = [sys.executable, str(JOB), *map(str, args), "--ranks", str(n)]
    ended = subprocess.run(job, env=env, timeout=timeout, capture_output=True, text=True)
    out = [(tmp_path / ("out-%d" % rank)).read_text() for rank in range(n)]
    assert ended.returncode == 0, "\n".join(out) + ended.stderr
    events = {}
    for file in tmp_path.glob("events-*.jsonl"):
        for line in file.read_text().splitlines():
            event = json.loads(line)
            assert event["schema"] == "ringleader.event.v1" and event["wall_ns"] > 0
            events.setdefault(event["rank"], []).append(event)
    return out, events


run.count = 0


@pytest.mark.parametrize("kind", ["plain", "ddp", "hsdp"])
def test_a_flipped_bit_after_the_reduction_is_named_with_rank_and_parameter(tmp_path, kind):
    out, events = run(tmp_path, 4, kind, "--flip-gradient", "2:7:1.weight", "--steps", 12)
    first = {rank: next(e for e in own if e["kind"] == "digest") for rank, own in events.items()}
    # With replicas of two no one has the majority: both are named.
    ranks = {"plain": {0, 1, 2, 3}, "ddp": {0, 1, 2, 3}, "hsdp": {0, 2}}[kind]
    assert set(first) == ranks, out
    for event in first.values():
        assert event["step"] == 7 and event["value"] == "gradient" and event["agree"] is False
        assert event["parameter"].endswith("1.weight") and event["layer"].endswith("1")
        assert event["odd"] == ([] if kind == "hsdp" else [2])
        assert event["differing"] == 1


@pytest.mark.parametrize("every,step", [(1, 6), (4, 8)])
def test_a_changed_parameter_is_named_at_the_next_check(tmp_path, every, step):
    _, events = run(tmp_path, 4, "ddp", "--flip-parameter", "3:5:0.bias", "--steps", 9, "--every", every)
    event = next(e for e in events[0] if e["kind"] == "digest")
    assert event["odd"] == [3] and event["parameter"] == "0.bias" and event["value"] == "parameter"
    assert event["step"] == step
    assert not event["never_in_sync"]


@pytest.mark.parametrize("kind", ["plain", "ddp", "fsdp", "hsdp"])
@pytest.mark.parametrize("what", ["NaN", "Inf"])
def test_a_nan_is_named_with_rank_layer_and_step_before_the_reduction_spreads_it(tmp_path, kind, what):
    out, events = run(tmp_path, 4, kind, "--spoil", "1:6:1:%s" % what, "--steps", 8)
    own = [e for e in events.get(1, []) if e["kind"] == "nan"]
    assert own, out
    assert own[0]["step"] == 6 and own[0]["layer"] == "1"
    # A weight's gradient makes NaN of Inf, and FSDP2 keeps weight and bias in one buffer.
    assert own[0]["value"] == what or kind in ("fsdp", "hsdp")
    others = [e for rank, all_ in events.items() if rank != 1 for e in all_ if e["kind"] == "nan"]
    # Once the sum has spread it, the next step's are everybody's.
    assert all(e["step"] > 6 for e in others)


@pytest.mark.parametrize("kind", ["plain", "ddp", "fsdp", "hsdp"])
def test_a_healthy_job_is_silent_for_a_thousand_steps(tmp_path, kind):
    out, events = run(tmp_path, 4, kind, "--steps", 1000, "--small", timeout=400)
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
    assert [e["step"] for e in events[0] if e["kind"] == "spike"] == [29]


def test_raise_stops_all_ranks_together(tmp_path):
    out, _ = run(tmp_path, 4, "ddp", "--flip-gradient", "2:3:1.weight", "--steps", 9, "--action", "raise")
    assert all("Disagreement" in text and "rank 2" in text for text in out), out


def test_one_process_alone_is_watched_for_nan(tmp_path):
    _, events = run(tmp_path, 1, "plain", "--spoil", "0:3:0:NaN", "--steps", 4)
    assert events[0][0]["kind"] == "nan" and events[0][0]["step"] == 3
