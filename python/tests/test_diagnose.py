"""`ringleader.diagnose` with the program itself: `RINGLEADER_BIN` names it, else the one of `cargo build` or on the path is taken."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import ringleader

ROOT = pathlib.Path(__file__).resolve().parents[2]
EVIDENCE = ROOT / "cases/skipped-allreduce/evidence"


@pytest.fixture(autouse=True)
def the_program(monkeypatch):
    built = ROOT / "target/debug/ringleader"
    if "RINGLEADER_BIN" not in os.environ and built.is_file():
        monkeypatch.setenv("RINGLEADER_BIN", str(built))
    try:
        ringleader.program()
    except FileNotFoundError as error:
        pytest.skip(str(error))


def test_a_report_is_a_dict_with_cause_and_culprit():
    report = ringleader.diagnose(EVIDENCE)
    assert report["schema"] == "ringleader.report.v1"
    verdict = report["verdict"]
    assert (verdict["cause"], [culprit["rank"] for culprit in verdict["culprits"]]) == ("skipped-collective", [2])
    # As the program prints it.
    printed = subprocess.run(
        [ringleader.program(), "diagnose", "--format", "json-v1", "--fail-on", "never", str(EVIDENCE)], capture_output=True, check=True
    )
    assert json.loads(printed.stdout)["verdict"] == verdict


def test_several_paths_and_strings_are_taken_too():
    files = sorted(path for path in EVIDENCE.iterdir() if path.is_file())
    assert ringleader.diagnose(*map(str, files))["verdict"]["cause"] == "skipped-collective"


def test_a_healthy_job_is_a_report(tmp_path):
    (tmp_path / "stdout.log").write_text("step 1 loss 2.1\nstep 2 loss 2.0\n")
    report = ringleader.diagnose(tmp_path)
    assert report["schema"] == "ringleader.report.v1" and not report["verdict"]["culprits"]


def test_nothing_to_read_is_a_report_too(tmp_path):
    report = ringleader.diagnose(tmp_path)
    assert report["verdict"]["cause"] == "undecided" and not report["looked_at"]
    assert "no usable evidence" in report["verdict"]["summary"]


def test_no_report_is_an_error_with_the_exit_code(tmp_path):
    with pytest.raises(ringleader.RingleaderError) as raised:
        ringleader.diagnose(tmp_path / "nowhere")
    assert raised.value.code == 2 and "nowhere" in str(raised.value)
    # A name that looks like an option is a path.
    with pytest.raises(ringleader.RingleaderError):
        ringleader.diagnose("--help")


def test_what_the_user_set_for_people_changes_nothing(tmp_path, monkeypatch):
    (tmp_path / "ringleader.toml").write_text("not = [toml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RINGLEADER_FORMAT", "markdown")
    monkeypatch.setenv("RINGLEADER_FAIL_ON", "warning")
    assert ringleader.diagnose(EVIDENCE)["verdict"]["cause"] == "skipped-collective"


def test_a_limit_is_kept_and_a_program_that_is_not_there_is_said(tmp_path, monkeypatch):
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("RINGLEADER_BIN", str(slow))
    with pytest.raises(subprocess.TimeoutExpired):
        ringleader.diagnose(EVIDENCE, timeout=0.2)
    monkeypatch.setenv("RINGLEADER_BIN", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError):
        ringleader.diagnose(EVIDENCE)


def test_torch_is_not_imported():
    code = "import ringleader, sys; ringleader.diagnose(sys.argv[1]); sys.exit('torch' in sys.modules)"
    env = dict(os.environ, PYTHONPATH=str(ROOT / "python"))
    assert subprocess.run([sys.executable, "-c", code, str(EVIDENCE)], env=env, check=False).returncode == 0
