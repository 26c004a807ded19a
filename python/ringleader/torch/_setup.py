"""``setup``: what makes the next failure diagnosable, set before the process group is made."""

import faulthandler
import json
import os
import shutil
import signal
import subprocess
import sys

import torch

# Seconds that the program may take to answer, of a job that is waiting to start.
_ASK_SECONDS = 10

def setup(folder=None, stacks_signal=None, stacks_after=None, quiet=False, ask=True):
    """Sets faulthandler and the variables that a diagnosis needs. Call it before ``init_process_group``.

    What the user has set stays as it is.

    Args:
        folder: where dumps and logs go; by default ``RINGLEADER_DUMP_DIR``, else ``ringleader-dumps`` below the working folder.
        stacks_signal: a signal that makes this process print its Python stacks to standard error and go on; by default
            SIGUSR2, unless somebody handles it.
        stacks_after: print stacks, again and again, if so many seconds pass without ``faulthandler.cancel_dump_traceback_later``.
        quiet: print nothing.
        ask: ask ``ringleader env`` for variables that are checked against the installed versions.

    Returns:
        A dict of what was set.
    """
    folder = os.path.abspath(folder or os.environ.get("RINGLEADER_DUMP_DIR") or "ringleader-dumps")
    done, notes = {}, []
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        notes.append("%s: %s; dumps go nowhere" % (folder, error))
    wanted = (_asked(folder) if ask else None) or _from_table(folder)
    for name, value in wanted:
        if name in os.environ:
            notes.append("%s=%s was set already" % (name, os.environ[name]))
        else:
            os.environ[name] = done[name] = value
    _stacks(stacks_signal, stacks_after, done, notes)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        notes.append("the process group already exists: NCCL and torch read these variables when it is created")
    if not quiet and int(os.environ.get("RANK", "0") or 0) == 0:
        for name, value in done.items():
            print("ringleader: %s=%s" % (name, value), file=sys.stderr)
        for note in notes:
            print("ringleader: " + note, file=sys.stderr)
    return done


def _versions():
    """torch's version, and NCCL's, or None where this torch has no NCCL."""
    own = tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in torch.__version__.split("+")[0].split(".")[:2])
    try:
        nccl = tuple(torch.cuda.nccl.version())[:2]
    except (AttributeError, RuntimeError, TypeError):
        nccl = None
    return own, nccl


def _from_table(folder):
    """What the program would say, by the table that is made from its own (`ringleader._exports`)."""
    try:
        from ringleader._exports import EXPORTS
    except ImportError:
        return []
    own, nccl = _versions()
    wanted = []
    for name, reader, first, last, value in EXPORTS:
        installed = {"NCCL": nccl, "PyTorch": own}.get(reader, ())
        if installed is None or installed and (first and installed < first[:2] or last and installed >= last[:2]):
            continue
        wanted.append((name, value.replace("{dir}", folder)))
    return wanted


def _asked(folder):
    """Variables by ``ringleader env --format json``; None if it is not there or answers otherwise."""
    program = shutil.which("ringleader")
    if program is None:
        return None
    try:
        out = subprocess.run(
            [program, "env", "--format", "json", "--dir", folder, "--python", sys.executable],
            capture_output=True,
            timeout=_ASK_SECONDS,
            check=True,
        ).stdout
        answer = json.loads(out)
        if answer.get("schema") != "ringleader.env.v1":
            return None
        rows = [row for row in answer["variables"] if row.get("state", "export") == "export"]
        return [(str(row["name"]), str(row["value"])) for row in rows]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _stacks(number, after, done, notes):
    faulthandler.enable()
    done["faulthandler"] = "on"
    number = number if number is not None else getattr(signal, "SIGUSR2", None)
    if number is not None and hasattr(faulthandler, "register"):
        if signal.getsignal(number) in (signal.SIG_DFL, None):
            faulthandler.register(number, all_threads=True, chain=False)
            done["stacks on signal"] = signal.Signals(number).name
        else:
            notes.append("%s is handled already: it prints no stacks" % signal.Signals(number).name)
    if after:
        faulthandler.dump_traceback_later(after, repeat=True)
        done["stacks after"] = "%s s" % after
