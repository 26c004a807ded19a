"""Starts jobs of guard_job.py by forks of one process that has imported PyTorch: importing it takes longer than most jobs.

Reads a JSON object a line: `args` of the job, `env`, and the file `stderr`; answers with the job's pid, then with its exit code. A job has a
session of its own, so that ranks that hang can be ended together.
"""

import atexit
import json
import os
import pathlib
import runpy
import sys
import traceback

import torch._dynamo
import torch.distributed.fsdp
import torch.distributed.tensor

JOB = str(pathlib.Path(__file__).with_name("guard_job.py"))


def job(asked):
    os.setsid()
    os.environ.update(asked["env"])
    for number, path in ((1, os.devnull), (2, asked["stderr"])):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    sys.argv = [JOB, *asked["args"]]
    try:
        runpy.run_path(JOB, run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    # As at the end of an interpreter, which the guard waits for.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        job(json.loads(line))
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
