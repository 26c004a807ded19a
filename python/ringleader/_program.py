"""The program and the plugin that come with this package."""

import json
import os
import subprocess
import sys
import sysconfig

PLUGIN = "libringleader_nccl.so"


class RingleaderError(RuntimeError):
    """The program ended without a report. ``code`` is its exit code (``ringleader help exit-codes``)."""

    def __init__(self, message, code):
        super().__init__(message)
        self.code = code


def program():
    """Path of the program: ``$RINGLEADER_BIN``, else the one that was installed with this package, else the one on the path.

    Raises FileNotFoundError if there is none.
    """
    named = os.environ.get("RINGLEADER_BIN")
    if named:
        return named
    folders = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable)]
    user = "nt_user" if os.name == "nt" else "posix_user"
    if user in sysconfig.get_scheme_names():
        folders.append(sysconfig.get_path("scripts", user))
    # `pip install --target DIR` puts programs into DIR/bin.
    folders.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin"))
    folders.extend(os.environ.get("PATH", "").split(os.pathsep))
    for folder in folders:
        path = os.path.join(folder or ".", "ringleader")
        if folder and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    raise FileNotFoundError("no program `ringleader`: RINGLEADER_BIN names it")


def plugin():
    """Path of the NCCL plugin in this package, for ``NCCL_PROFILER_PLUGIN``; None if it is not there."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", PLUGIN)
    return path if os.path.isfile(path) else None


def diagnose(path, *more, timeout=None):
    """Diagnoses the evidence of one job: a folder, a bundle or files. Returns the report (``ringleader.report.v1``) as a dict.

    A verdict is a report, whatever it says: ``report["verdict"]["cause"]`` is ``none`` for a healthy job. Raises
    RingleaderError if there is no report (a path does not exist, for example), and subprocess.TimeoutExpired.
    """
    paths = [os.fspath(one) for one in (path,) + more]
    command = [program(), "diagnose", "--format", "json-v1", "--fail-on", "never", "--quiet", "--"] + paths
    # What the user's variables and files set is for people; this is read by a program.
    env = {name: value for name, value in os.environ.items() if not name.startswith("RINGLEADER_")}
    env["RINGLEADER_NO_CONFIG"] = "1"
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, timeout=timeout
    )
    try:
        return json.loads(done.stdout.decode("utf-8"))
    except ValueError:
        text = done.stderr.decode("utf-8", "replace").strip()
        raise RingleaderError(text or "the program ended with {}".format(done.returncode), done.returncode)
