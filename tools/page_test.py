#!/usr/bin/env python3
"""Opens HTML reports in headless Chromium, at three widths, and says what is wrong with them.

    tools/page_test.py --ringleader target/debug/ringleader [--axe axe.min.js] [--wide RANKS] [--out DIR] [FOLDER ...]

Reports are made of a recorded job, of hostile evidence, of an undecided one, of a node's topology, of 1,024 ranks (wide_job.py; `--wide` for more), and of
each FOLDER. A page must be below 2 MB, load nothing but itself, write nothing to the console, let no evidence act, not be wider than
the window, answer the keyboard, and print. With `--axe` (axe-core's one file) it must pass that, too. Needs Chromium; speaks its
protocol over a pipe, so nothing listens anywhere.
"""

import argparse
import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import wide_job

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Width, height, colour scheme.
SCREENS = [(1280, 900, "light"), (800, 900, "dark"), (390, 844, "light")]
MAX_BYTES = 2_000_000
# What evidence may try, and the name of its file.
HOSTILE_NAME = "<img src=x onerror=window.owned=6>.log"
HOSTILE = [
    "</script><script>window.owned=1</script>",
    "<img src=x onerror='window.owned=2'>",
    "<svg onload=window.owned=3>",
    "\"><iframe src=javascript:parent.owned=4></iframe>",
    "javascript:window.owned=5",
    "<!-- ]]> --> <style>body{display:none}</style>",
    "<a href=https://example.org/>click</a>",
    "\x1b[2J\u202egnp.exe",
]


class Browser:
    """Chromium, spoken to over file descriptors 3 and 4."""

    def __init__(self, program):
        self.folder = tempfile.mkdtemp(prefix="page-test-")
        theirs_in, self.to = os.pipe()
        self.back, theirs_out = os.pipe()

        def hand_over():
            # Above all others first, so that neither overwrites the other.
            high_in, high_out = os.dup2(theirs_in, 200), os.dup2(theirs_out, 201)
            os.dup2(high_in, 3)
            os.dup2(high_out, 4)

        command = [
            program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
            "--disable-dev-shm-usage", "--disable-background-networking", "--remote-debugging-pipe",
            f"--user-data-dir={self.folder}", "about:blank",
        ]
        self.child = subprocess.Popen(
            command, preexec_fn=hand_over, close_fds=False, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.rest = b""
        self.number = 0
        self.events = []
        self.session = None

    def read(self):
        while b"\0" not in self.rest:
            part = os.read(self.back, 1 << 20)
            if not part:
                raise RuntimeError("Chromium is gone")
            self.rest += part
        one, self.rest = self.rest.split(b"\0", 1)
        return json.loads(one)

    def ask(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def until(self, method):
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self.read())

    def evaluate(self, script):
        result = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"])[:400])
        return result["result"].get("value")

    def tab(self):
        self.session = None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        return target

    def close(self):
        self.session = None
        try:
            self.ask("Browser.close")
        except (RuntimeError, OSError):
            pass
        self.child.wait(timeout=20)
        shutil.rmtree(self.folder, ignore_errors=True)


def press(browser, key):
    text = key if len(key) == 1 else ""
    for kind in ("keyDown", "keyUp"):
        browser.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, text=text if kind == "keyDown" else "")


def look(browser, page, screen, axe, out, is_drawn):
    """What is wrong with one page at one width."""
    width, height, scheme = screen
    wrong = []
    target = browser.tab()
    browser.events.clear()
    browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    start = time.monotonic()
    url = page.resolve().as_uri()
    browser.ask("Page.navigate", url=url)
    browser.until("Page.loadEventFired")
    browser.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
    seconds = time.monotonic() - start
    for event in browser.events:
        method, params = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent" and not params["request"]["url"].startswith((url, "data:")):
            wrong.append(f"asks for {params['request']['url']}")
        if method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening"):
            wrong.append(f"{method}: {json.dumps(params)[:300]}")
    facts = browser.evaluate("""({
        owned: window.owned ?? null, images: document.images.length, frames: frames.length,
        scripts: document.scripts.length, wide: document.documentElement.scrollWidth - innerWidth,
        links: [...document.links].filter(a => !a.getAttribute('href').startsWith('#')).length,
        hidden: getComputedStyle(document.body).display === 'none', title: document.title,
        nodes: document.querySelectorAll('*').length, verdict: !!document.querySelector('h1'),
        lanes: !!document.querySelector('#lanes svg') })""")
    if facts["owned"] is not None or facts["images"] or facts["frames"] or facts["links"] or facts["hidden"]:
        wrong.append(f"evidence acts: {facts}")
    if facts["scripts"] != 2 or not facts["verdict"]:
        wrong.append(f"not the page that was made: {facts}")
    if is_drawn and not facts["lanes"]:
        wrong.append("no timeline is drawn")
    if facts["wide"] > 0:
        wrong.append(f"{facts['wide']} px wider than the window of {width}")
    if facts["lanes"]:
        shown = "document.getElementById('chosen').textContent + document.querySelector('#lanes').innerHTML.length"
        browser.evaluate("document.getElementById('lanes').focus()")
        if browser.evaluate("document.activeElement.id") != "lanes":
            wrong.append("the timeline cannot be focused")
        for key in ("n", "+", "ArrowRight"):
            before = browser.evaluate(shown + " + document.querySelector('#lanes').innerHTML")
            press(browser, key)
            if browser.evaluate(shown + " + document.querySelector('#lanes').innerHTML") == before:
                wrong.append(f"the key {key} does nothing in the timeline")
    if axe:
        browser.evaluate(axe + "; 0")
        found = browser.evaluate(
            "axe.run().then(r => r.violations.map(v => v.id + ': ' + v.help + ' ' + v.nodes.slice(0, 2).map(n => n.target)))"
        )
        wrong.extend(f"axe {one}" for one in found)
    if out:
        shot = browser.ask("Page.captureScreenshot", format="png")["data"]
        (out / f"{page.stem}-{width}.png").write_bytes(base64.b64decode(shot))
    if width == SCREENS[0][0]:
        size = len(base64.b64decode(browser.ask("Page.printToPDF")["data"]))
        if size < 5_000:
            wrong.append(f"prints as {size} bytes")
    browser.session = None
    browser.ask("Target.closeTarget", targetId=target)
    return wrong, seconds, facts["nodes"]


def hostile(folder):
    """A job whose every word is an attempt."""
    folder.mkdir()
    lines = ["node1:4242:4242 [0] NCCL INFO comm 0x55 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x1 - Init COMPLETE"]
    for text in HOSTILE:
        lines.append(f"node1:4242:4242 [0] transport/net.cc:1 NCCL WARN {text}")
        lines.append(f"[rank0]: RuntimeError: {text}")
        lines.append(f"ERROR: {text}")
    lines.append("Traceback (most recent call last):")
    lines.append(f'  File "/srv/{HOSTILE[0]}.py", line 3, in {HOSTILE[1]}')
    lines.append(f"ValueError: {HOSTILE[0]}")
    (folder / HOSTILE_NAME).write_text("\n".join(lines) + "\n")
    return folder


def undecided(folder):
    folder.mkdir()
    (folder / "stderr.log").write_text("step 1 loss 2.1\nERROR: the flux of the third kind has been lost\nstep 2 loss 2.0\nfatal: giving up\n")
    return folder


def topology(folder):
    """A node of eight GPUs and four cards, one of which is down; two GPUs are near none."""
    shutil.copytree(ROOT / "cases/ib-port-down-in-use/evidence", folder)
    gpus, cards = range(8), range(4)
    head = [*(f"GPU{i}" for i in gpus), *(f"NIC{i}" for i in cards), "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]
    lines = ["root@node1:~# nvidia-smi topo -m", "\t" + "\t".join(head)]
    for i in gpus:
        links = [" X " if i == other else "NV18" for other in gpus]
        ways = ["SYS" if i > 5 or i // 4 != card // 2 else "PIX" if i // 2 == card else "NODE" for card in cards]
        lines.append("\t".join([f"GPU{i}", *links, *ways, "0-31", str(i // 4), "", "N/A"]))
    lines += ["", "NIC Legend:", "", *(f"  NIC{i}: mlx5_{i}" for i in cards)]
    (folder / "topo.txt").write_text("\n".join(lines) + "\n")
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ringleader", required=True)
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome"))
    parser.add_argument("--axe", type=pathlib.Path)
    parser.add_argument("--wide", type=int, action="append", default=[1024], metavar="RANKS", help="ranks of one more wide job")
    parser.add_argument("--out", type=pathlib.Path, help="folder for screenshots")
    parser.add_argument("folders", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    if not args.chromium:
        sys.exit("no Chromium: install chromium, or give --chromium")
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
    axe = args.axe.read_text() if args.axe else None
    work = pathlib.Path(tempfile.mkdtemp(prefix="pages-"))
    browser = Browser(args.chromium)
    failed = False
    try:
        jobs = [("recorded", ROOT / "cases/skipped-allreduce/evidence"), ("hostile", hostile(work / "evil")), ("undecided", undecided(work / "open"))]
        jobs.append(("topology", topology(work / "topology")))
        jobs += [(f"wide-{ranks}", wide_job.write(work / f"ranks-{ranks}", ranks, calls=40, unlike=True)) for ranks in args.wide]
        jobs += [(folder.name, folder) for folder in args.folders]
        for name, folder in jobs:
            page = work / f"{name}.html"
            made = subprocess.run([args.ringleader, "diagnose", "--quiet", "--html", page, folder], capture_output=True, check=False)
            if not page.exists():
                print(f"{name}: no page: {made.stderr.decode()}")
                failed = True
                continue
            size = page.stat().st_size
            for screen in SCREENS:
                wrong, seconds, nodes = look(browser, page, screen, axe, args.out, name == "recorded" or name.startswith("wide-"))
                if size >= MAX_BYTES:
                    wrong.append(f"{size} bytes")
                print(f"{name} at {screen[0]}: {size} bytes, {nodes} elements, {seconds:.2f} s{': ' if wrong else ''}{'; '.join(wrong)}", flush=True)
                failed |= bool(wrong)
    finally:
        browser.close()
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
