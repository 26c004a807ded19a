"""Recording of steps: which, how many, and that nothing happens unasked."""

import gzip
import importlib
import json

import pytest

profile = importlib.import_module("ringleader.profile")


def test_the_window():
    assert profile.window("steps:50-55") == (50, 55)
    assert profile.window("steps:7") == (7, 7)
    assert profile.window("steps:9-3") is None
    assert profile.window("50-55") is None
    assert profile.window("steps:50-55,stacks") == (50, 55)
    assert profile.window("steps:7,stack") is None
    assert profile.with_stacks("steps:7,stacks") and not profile.with_stacks("steps:7")


def test_stacks_are_recorded_if_asked_for(monkeypatch):
    asked = []

    class Torch:
        class cuda:
            @staticmethod
            def is_available():
                return False

        class profiler:
            class ProfilerActivity:
                CPU = "cpu"

            @staticmethod
            def profile(**options):
                asked.append(options)
                raise OSError("only asked")

    for stacks in (False, True):
        recording = profile.Recording(Torch, 1, 2, ".", "0", stacks)
        with pytest.raises(OSError):
            recording._begin()
    assert asked == [{"activities": ["cpu"], "with_stack": stacks} for stacks in (False, True)]


def test_the_asked_steps_are_recorded(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("RINGLEADER_PROFILE", "steps:3-5")
    monkeypatch.setenv("RINGLEADER_PROFILE_DIR", str(tmp_path))
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setattr(profile, "_recording", None)
    assert profile.start()
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader([torch.ones(4)] * 18, batch_size=2)
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    trace = json.load(gzip.open(tmp_path / "timeline-rank2.json.gz"))
    names = [event["name"] for event in trace["traceEvents"]]
    assert sum(name.startswith("Optimizer.step") for name in names) == 3
    events = [event for event in trace["traceEvents"] if event.get("cat") == "user_annotation"]
    parts = {name: [e for e in events if e["name"] == name] for name in ("forward", "backward", "optimizer", "data loading")}
    assert {name: len(found) for name, found in parts.items()} == dict.fromkeys(parts, 3)
    steps = [e for e in events if e["name"].startswith("step ")]
    assert [e["name"] for e in steps] == ["step 3", "step 4", "step 5"]
    for found in parts.values():
        for step, part in zip(steps, found):
            assert step["ts"] <= part["ts"] and part["ts"] + part["dur"] <= step["ts"] + step["dur"] + 1
    assert not hasattr(torch.autograd.backward, "__wrapped__"), "what was wrapped is as before"
    assert not profile._recording.ranges.undo and not profile._recording.ranges.open


def test_nothing_unasked(monkeypatch):
    monkeypatch.delenv("RINGLEADER_PROFILE", raising=False)
    monkeypatch.setattr(profile, "_recording", None)
    assert not profile.start()
