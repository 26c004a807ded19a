"""Records the plants: `python3 zoo/trace/record.py OUT [--budget SECONDS] [--ranks N] [NAME...]`.

One set of processes runs all plants one after the other; plants with different settings get separate processes.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def start(names, out, n_ranks, settings):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    tag = names[0]
    ranks = []
    for rank in range(n_ranks):
        env = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(n_ranks), "MASTER_ADDR": "127.0.0.1",
               "MASTER_PORT": str(port), "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "4", **settings}
        log = open(f"{out}/rank{rank}-{tag}.log", "w")
        ranks.append(subprocess.Popen([sys.executable, f"{HERE}/rank.py", out, *names], env=env, stdout=log, stderr=log,
                                      start_new_session=True))
    return ranks


def end(ranks, seconds):
    """Waits for all processes up to a limit; then ends the rest."""
    until = time.monotonic() + seconds
    for rank in ranks:
        try:
            rank.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(rank.pid, signal.SIGKILL)
            rank.wait()
    return [rank.returncode for rank in ranks]


def main():
    a = argparse.ArgumentParser()
    a.add_argument("out")
    a.add_argument("--budget", type=float, default=280)
    a.add_argument("--ranks", type=int, default=2)
    a.add_argument("names", nargs="*")
    a = a.parse_args()
    sys.path.insert(0, HERE)
    import other_plants  # noqa: F401 (its rows join those of plants)
    import plants

    os.makedirs(a.out, exist_ok=True)
    names = a.names or sorted(plants.PLANTS)
    # Plants with equal settings share processes. A hang costs all later plants, so the riskiest come last.
    groups = {}
    for name in names:
        settings = plants.settings_of(name)
        key = (len(settings) == 0, sorted(settings.items()), not settings and (2 if "pipeline" in name else int(name.startswith("b"))))
        groups.setdefault(str(key), []).append(name)
    begin = time.monotonic()
    for _, group in sorted(groups.items()):
        left = a.budget - (time.monotonic() - begin)
        if left < 10:
            print("no time left for", *group)
            continue
        settings = plants.settings_of(group[0])
        codes = end(start(group, a.out, a.ranks, settings), min(left, 45) if settings else left)
        print(codes, f"{time.monotonic() - begin:.0f} s", *group, flush=True)


if __name__ == "__main__":
    main()
