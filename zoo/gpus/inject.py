"""Faults planted on every GPU and every link of this node, one at a time: is exactly that place named?

    inject.py RINGLEADER [--gpus N] [--seconds S] [--lanes L] [--full gpu:2,link:1-3] [--out FILE] [-- OPTIONS OF verify]

For each fault `ringleader verify --for 1s --inject FAULT` runs, several at once, with the least work that still checks everything;
those of `--full` with all of it. Printed: what was planted, what was named, the exit code, seconds. Right is exit code 4 and that
place alone. Then as many random faults in one process (`--prove`) as cover all of them, with a seed that is computed here.
What there was no time for is listed. Exit code: 0 if all that ran are right.
"""

import argparse
import concurrent.futures
import json
import subprocess
import sys
import time

MASK = (1 << 64) - 1
# Seconds that one planted fault may take.
LIMIT_S = 60
KINDS = ("buffer", "product", "memory", "gpu", "link")


class Random:
    """SplitMix64, as in crates/probe/src/verify/inject.rs."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        x = self.state
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
        return (x ^ (x >> 31)) % n


def drawn(seed, n_gpus):
    """The faults that `--prove` plants with this seed, one after the other."""
    random = Random(seed)
    while True:
        gpu = random.below(n_gpus)
        kind = KINDS[random.below(5)]
        if kind == "link":
            yield f"link:{gpu}-{(gpu + 1 + random.below(n_gpus - 1)) % n_gpus}"
        else:
            yield f"{kind}:{gpu}"


def links(n_gpus):
    return [f"link:{a}-{b}" for a in range(n_gpus) for b in range(a + 1, n_gpus)]


def back(link):
    a, b = link.removeprefix("link:").split("-")
    return f"link:{b}-{a}"


def cover(n_gpus, seeds):
    """(seed, number of faults): the seed that plants every kind on every GPU and one direction of every link soonest."""
    wanted = len(KINDS[:4]) * n_gpus + len(links(n_gpus))
    best = (0, 10**9)
    for seed in range(1, seeds + 1):
        seen = set()
        for n, fault in enumerate(drawn(seed, n_gpus), 1):
            seen.add(min(fault, back(fault)) if fault.startswith("link") else fault)
            if len(seen) == wanted:
                best = min(best, (seed, n), key=lambda one: one[1])
                break
            if n >= best[1]:
                break
    return best


def words(place):
    """`gpu:1`, `link:0-1` or `one-of:0,1` from the report."""
    (kind, of), = place.items()
    return f"{kind}:{'-'.join(map(str, of))}" if kind == "link" else f"{kind}:{','.join(map(str, of)) if isinstance(of, list) else of}"


def wanted_place(fault):
    return fault if fault.startswith("link") else "gpu:" + fault.split(":")[1]


def run(given, fault, is_full):
    began = time.monotonic()
    left = given.until - began
    row = {"fault": fault, "wanted": wanted_place(fault), "is_full": is_full}
    if left < given.least:
        return {**row, "code": "no time"}
    command = [given.ringleader, "verify", "--for", "1s", "--in-use", "--inject", fault, "--format", "json", *given.options]
    command += ["--margin-mib", str(given.margin_mib)] if is_full else ["--unstable-brief"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=min(left, LIMIT_S), check=False)
    except subprocess.TimeoutExpired:
        # Beyond its own limit it hangs; cut off by the end of all it has not run.
        hangs = {"named": [], "is_right": False} if left > LIMIT_S else {}
        return {**row, **hangs, "code": "cut off", "seconds": round(time.monotonic() - began, 1)}
    row.update(code=done.returncode, seconds=round(time.monotonic() - began, 1))
    try:
        report = json.loads(done.stdout)
    except ValueError:
        return {**row, "named": [], "is_right": False, "error": done.stderr[-400:]}
    row["named"] = [words(finding["place"]) for finding in report["findings"]]
    row["causes"] = sorted({finding["cause"] for finding in report["findings"]})
    row["checks"] = sorted({check for finding in report["findings"] for check in finding["checks"]})
    row["is_right"] = done.returncode == 4 and row["named"] == [row["wanted"]]
    return row


def prove(given, n_gpus):
    seed, n = cover(n_gpus, 2000)
    left = given.until - time.monotonic()
    row = {"prove": n, "seed": seed}
    if left < 2 * given.least:
        return {**row, "code": "no time"}
    began = time.monotonic()
    command = [given.ringleader, "verify", "--in-use", "--prove", str(n), "--seed", str(seed), "--format", "json", *given.options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=left, check=False)
        score = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError) as error:
        return {**row, "code": "cut off", "is_right": False, "error": str(error)[-300:], "seconds": round(time.monotonic() - began, 1)}
    wrong = [{"fault": proof["fault"], "found": proof["found"]} for proof in score["proofs"] if not proof["is_right"]]
    planted = {words(proof["fault"]) for proof in score["proofs"]}
    missing = [link for link in links(n_gpus) if not planted & {link, back(link)}]
    missing += [f"{kind}:{gpu}" for kind in KINDS[:4] for gpu in range(n_gpus) if f"{kind}:{gpu}" not in planted]
    return {**row, "code": done.returncode, "right": score["right"], "without_a_fault": score["findings_without_a_fault"], "wrong": wrong,
            "not_planted": missing, "seconds": round(time.monotonic() - began, 1), "is_right": done.returncode == 0}


def say(row):
    named = ", ".join(row.get("named", [])) or "-"
    mark = {True: "right", False: "WRONG"}.get(row.get("is_right"), "-")
    print(f"{row['fault']:12} {'full' if row['is_full'] else 'brief':6} wanted {row['wanted']:10} named {named:22} exit {row['code']!s:8} {mark:6}"
          f"{row.get('seconds', '')!s:>5} s  {' '.join(row.get('checks', []))} {row.get('error', '')}", flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ringleader")
    parser.add_argument("--gpus", type=int, default=0, help="0: all")
    parser.add_argument("--seconds", type=float, default=90, help="for everything")
    parser.add_argument("--least", type=float, default=6, help="nothing is started with fewer seconds left")
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--full", default="", help="faults that are also tried with all of the work, one at a time")
    parser.add_argument("--margin-mib", type=int, default=24000, help="memory left to others by those")
    parser.add_argument("--both-ways", action="store_true", help="links also in the other direction")
    parser.add_argument("--no-prove", action="store_true")
    parser.add_argument("--out", default=None)
    own, _, options = " ".join(sys.argv[1:]).partition(" -- ")
    given = parser.parse_args(own.split())
    given.options = options.split()
    given.until = time.monotonic() + given.seconds
    n_gpus = given.gpus or len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout.splitlines())
    faults = [f"gpu:{gpu}" for gpu in range(n_gpus)] + links(n_gpus)
    faults += [f"{kind}:{gpu}" for kind in ("memory", "product", "buffer") for gpu in range(n_gpus)]
    faults += [back(link) for link in links(n_gpus)] if given.both_ways else []
    full = [fault for fault in given.full.split(",") if fault]
    with concurrent.futures.ThreadPoolExecutor(given.lanes) as lanes, concurrent.futures.ThreadPoolExecutor(1) as alone:
        jobs = [alone.submit(lambda f=fault: say(run(given, f, True))) for fault in full]
        jobs += [lanes.submit(lambda f=fault: say(run(given, f, False))) for fault in faults]
        rows = [job.result() for job in jobs]
    proof = {} if given.no_prove else prove(given, n_gpus)
    if proof:
        print(json.dumps(proof), flush=True)
    ran = [row for row in rows if "is_right" in row]
    right = sum(row["is_right"] for row in ran)
    print(f"{right} of {len(ran)} planted faults named at exactly their place; not run: {[row['fault'] for row in rows if row not in ran]}")
    if given.out:
        with open(given.out, "w") as file:
            json.dump({"rows": rows, "proof": proof}, file, indent=1)
    sys.exit(0 if ran and right == len(ran) and proof.get("is_right", True) else 1)


if __name__ == "__main__":
    main()
