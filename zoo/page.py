#!/usr/bin/env python3
"""A screenshot of the page of `ringleader watch --serve`: two processes in Python that call NCCL's plugin, the second of them stopped. Writes
docs/watch.png. Needs Chromium.

    zoo/page.py target/debug/ringleader target/debug/libringleader_nccl.so
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
PORT = 9476
PICTURE = ROOT / "docs/watch.png"
TRAIN = f"""
import os, pathlib, sys, time
sys.path.insert(0, {str(ROOT / "zoo/versions")!r})
import stand_in

folder = pathlib.Path(__file__).parent
number = int(os.environ["RANK"])
rank = stand_in.Rank("right", number, folder)
comm = rank.comm()

def sync_grads(step):
    (folder / f"entered-{{number}}-{{step}}").touch()
    rank.call(comm, "AllReduce", 1 << 20, is_quiet=True, wait_for=f"entered-{{1 - number}}-{{step}}")

def load_batch(step):
    time.sleep(0.02)

for step in range(4000):
    load_batch(step)
    sync_grads(step)
"""


def main(program, plugin):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    assert browser, "no Chromium: apt-get install chromium"
    children = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "train.py").write_text(TRAIN)
        (folder / "rings").mkdir()
        try:
            for rank in range(2):
                env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29577",
                           NCCL_PROFILER_PLUGIN=str(pathlib.Path(plugin).resolve()), RINGLEADER_RING_DIR=str(folder / "rings"))  # fmt: skip
                children.append(subprocess.Popen([sys.executable, folder / "train.py"], env=env, stdout=subprocess.DEVNULL))
            pids = [word for child in children for word in ("--pid", str(child.pid))]
            children.append(subprocess.Popen([program, "watch", "--no-screen", "--no-ras", "--rings", folder / "rings", "--out", folder, "--interval", "0.2",
                                              "--stall-floor", "1", "--hold", "2", "--serve", str(PORT), *pids], stdout=subprocess.DEVNULL))  # fmt: skip
            until = time.time() + 60
            while not (folder / "entered-1-150").exists():
                assert time.time() < until, "the job does not work"
                time.sleep(0.1)
            os.kill(children[1].pid, signal.SIGSTOP)
            page = f"http://127.0.0.1:{PORT}"
            while 'ringleader_verdict{' not in urllib.request.urlopen(f"{page}/metrics").read().decode():
                assert time.time() < until + 60, "no verdict"
                time.sleep(0.2)
            # A picture taken before the page has asked for its data is nearly empty, and taken again.
            for attempt in range(6):
                subprocess.run([browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}/profile-{attempt}",
                                "--window-size=1100,900", f"--timeout={4000 + 2000 * attempt}", f"--screenshot={PICTURE}", page],
                               check=True, capture_output=True, timeout=60)  # fmt: skip
                if PICTURE.stat().st_size > 60_000:
                    break
            else:
                sys.exit("the page stays empty")
        finally:
            for child in children:
                child.kill()
                child.wait()
    print(f"docs/watch.png: {PICTURE.stat().st_size} bytes")


main(*sys.argv[1:])
