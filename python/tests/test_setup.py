"""What setup sets, and what it leaves alone."""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent

CODE = """
import os, signal, sys
from ringleader.torch import setup
done = setup(folder=sys.argv[1], ask=False)
assert setup(folder=sys.argv[1], ask=False, quiet=True).get("NCCL_DEBUG") is None, "what is set stays"
os.kill(os.getpid(), signal.SIGUSR2)
print("still here", sorted(done))
"""


def test_stacks_on_a_signal_and_the_users_own_values_stay(tmp_path):
    env = dict(os.environ, PYTHONPATH=str(HERE.parent), NCCL_DEBUG="TRACE")
    env.pop("RANK", None)
    out = subprocess.run([sys.executable, "-c", CODE, str(tmp_path / "dumps")], env=env, capture_output=True, text=True, timeout=240)
    assert out.returncode == 0, out.stderr
    assert "still here" in out.stdout and "faulthandler" in out.stdout
    assert "Current thread" in out.stderr and "'NCCL_DEBUG'" not in out.stdout
    assert "stacks on signal=SIGUSR2" in out.stderr
    assert (tmp_path / "dumps").is_dir()
