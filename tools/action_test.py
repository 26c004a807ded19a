#!/usr/bin/env python3
"""Runs the steps of action.yml as a runner does, with the program from each place that its input may name. Cargo is a stand-in: what it
builds is tested by `.ci/run install`. No runner of GitHub is needed.

    pip install pyyaml
    tools/action_test.py target/debug/ringleader
"""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = pathlib.Path(sys.argv[1]).resolve()
CODE = "import torch.distributed as dist\n\n\ndef main():\n    if dist.get_rank() == 0:\n        dist.barrier()\n\n\nmain()\n"


class Runner:
    """A folder for each job, and what a step leaves for the next."""

    def __init__(self, folder):
        self.folder = folder
        self.action = yaml.safe_load((ROOT / "action.yml").read_text())
        self.usual = folder / "usual"
        self.usual.mkdir()
        # What a runner has; neither cargo nor ringleader.
        for name in ("bash", "sh", "env", "find", "sort", "xargs", "sha256sum", "cut", "sed", "tar", "gzip", "install", "mktemp", "mkdir", "cp",
                     "rm", "head", "dirname", "curl", "cat", "chmod"):  # fmt: skip
            if path := shutil.which(name, path="/usr/bin:/bin"):
                (self.usual / name).symlink_to(path)

    def job(self, *first, **inputs):
        """Exit code and output of all steps; those after one that failed do not run."""
        values = {name: str(inputs.get(name, one["default"])) for name, one in self.action["inputs"].items()}
        place = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        (place / "train.py").write_text(CODE)
        (place / "path").touch()
        said = ""
        for step in self.action["runs"]["steps"]:
            added = (place / "path").read_text().splitlines()[::-1]
            env = {"PATH": os.pathsep.join([*added, *map(str, first), str(self.usual)]), "HOME": str(self.folder), "RUNNER_TEMP": str(place),
                   "RUNNER_TOOL_CACHE": str(self.folder / "cache"), "GITHUB_PATH": str(place / "path")}  # fmt: skip
            for name, value in step["env"].items():
                value = re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: values[found[1]], value)
                env[name] = value.replace("${{ github.action_path }}", str(ROOT))
                assert "${{" not in env[name], env[name]
            # As GitHub starts `shell: bash`.
            done = subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], env=env, cwd=place,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120)  # fmt: skip
            said += done.stdout
            if done.returncode:
                return done.returncode, said
        return 0, said


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        runner = Runner(folder)
        here = folder / "here"
        here.mkdir()
        (here / "ringleader").symlink_to(PROGRAM)
        tools = folder / "tools"
        tools.mkdir()
        log = folder / "cargo-log"
        (tools / "cargo").write_text(
            f'#!/bin/sh\necho "$@" >> {log}\nwhile [ "$1" != --root ]; do shift; done\nmkdir -p "$2/bin" && cp {PROGRAM} "$2/bin/ringleader"\n'
        )
        (tools / "cargo").chmod(0o755)
        packed = folder / "release.tar.gz"
        with tarfile.open(packed, "w:gz", compresslevel=1) as archive:
            archive.add(PROGRAM, "ringleader-0.1.0-x86_64-unknown-linux-musl/ringleader")
        total = hashlib.sha256(packed.read_bytes()).hexdigest()

        def finds(what, *first, **inputs):
            code, said = runner.job(*first, **inputs)
            assert code == 4 and "::error file=train.py,line=6" in said and "ringleader 0.1.0" in said, (what, code, said)
            print(f"ok: {what}")

        def refuses(what, words, **inputs):
            code, said = runner.job(**inputs)
            assert code == 1 and words in said and "::error::" in said, (what, code, said)
            print(f"ok: {what} is refused")

        finds("the program on the PATH", here)
        assert not log.exists()
        finds("none on the PATH: cargo", tools)
        assert f"--locked --path {ROOT}/crates/ringleader" in log.read_text(), log.read_text()
        finds("what was built, again", tools, here, program="source")
        assert log.read_text().count("\n") == 1, "it was built twice"
        finds("a path", program=PROGRAM)
        finds("an archive with its sum", program=packed, sha256=total)
        refuses("another sum", "another sum", program=packed, sha256="0" * 64)
        refuses("an address without a sum", "needs the input sha256", program="https://localhost/ringleader.tar.gz")
        refuses("an address without encryption", "only https", program="http://localhost/ringleader.tar.gz", sha256=total)
        refuses("a path that is not there", "is not there", program="/no/such/file")
        refuses("neither program nor cargo", "no cargo to build it with")


main()
