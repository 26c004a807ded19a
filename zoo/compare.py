"""What others say of the same stalled run: NCCL's RAS, and PyTorch's analyzer of Flight Recorder dumps."""

import os
import re
import socket
import subprocess
import sys
import time

# What the analyzer's words come to, as ids of the closed list.
FR_CAUSES = {
    "COLLECTIVE_TYPE_MISMATCH": "op-mismatch",
    "SIZE_OR_SYNTAX_MISMATCH": "shape-mismatch",
    "COLLECTIVE_DTYPE_MISMATCH": "dtype-mismatch",
}


def ask_ras(port, node=None, seconds=12):
    """The text of VERBOSE STATUS, or why there is none. `node`: the network namespace to ask in, hence a process of its
    own."""
    command = [sys.executable, os.path.abspath(__file__), str(port), str(seconds), *([node] if node else [])]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds + 10)
    return done.stdout or f"no answer: {last_line(done.stderr)}"


def ras_text(port, seconds):
    end = time.monotonic() + seconds
    got = b""
    with socket.create_connection(("127.0.0.1", port), timeout=2) as peer:
        peer.sendall(b"TIMEOUT 3\nVERBOSE STATUS\n")
        while time.monotonic() < end:
            peer.settimeout(max(0.1, end - time.monotonic()))
            try:
                part = peer.recv(65536)
            except TimeoutError:
                got += b"\n(cut off)"
                break
            if not part:
                break
            got += part
    return got.decode(errors="replace")


def judge_ras(text, pids, right):
    """One line, and whether it names the rank and the cause. `pids`: pid to global rank."""
    if text.startswith("no answer") or not text.strip():
        return {"says": "nothing listens" if "refused" in text else text.strip()[:80] or "no answer", "rank": False, "cause": False}
    wrong = text.partition("\nErrors\n")[2]
    named = sorted({pids[int(pid)] for pid in re.findall(r"[Pp]rocess (\d+)", wrong) if int(pid) in pids})
    kinds = sorted(set(re.findall(r"\b(MISMATCH|INCOMPLETE|DEAD|TIMEOUT|ABORT)\b", text)))
    if not kinds and not named:
        return {"says": "OK", "rank": False, "cause": False}
    counts = re.findall(r"different (\w+) operation counts", wrong)
    says = ", ".join(kinds) + (f" ({counts[0]} counts)" if counts else "") + (f": rank {named}" if named else ", no rank")
    causes = set()
    if counts:
        causes |= {"skipped-collective", "extra-collective", "uneven-inputs"}
    if "DEAD" in kinds or "INCOMPLETE" in kinds:
        causes |= {"peer-process-died"}
    return {"says": says, "rank": named == right["ranks"], "cause": bool(causes & set(right["causes"]))}


def ask_for_dumps(prefix, ranks, seconds=4.0):
    """Writes to each rank's pipe, as PyTorch's documentation tells; answers with the ranks that have dumped."""
    waiting = {}
    for rank in ranks:
        path = f"{prefix}{rank}.pipe"
        try:
            pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            os.write(pipe, b"1")
            os.close(pipe)
            waiting[rank] = f"{prefix}{rank}"
        except OSError:
            continue
    end = time.monotonic() + seconds
    sizes = {}
    while waiting and time.monotonic() < end:
        time.sleep(0.25)
        now = {rank: os.path.getsize(path) for rank, path in waiting.items() if os.path.exists(path)}
        if len(now) == len(waiting) and now == sizes and all(now.values()):
            break
        sizes = now
    return sorted(rank for rank in ranks if os.path.exists(f"{prefix}{rank}"))


def judge_fr(text, dumped, world, right):
    """The same for the analyzer's output."""
    if not dumped:
        return {"says": "no dumps", "rank": False, "cause": False}
    named = {int(rank) for rank in re.findall(r"Culprit rank (\d+)", text)}
    causes, says = set(), []
    for word, cause in FR_CAUSES.items():
        if word in text:
            causes.add(cause)
            says.append(word)
    joined = re.findall(r"missing ranks: \{([^}]*)\}", text)
    if joined:
        named |= {int(rank) for rank in re.findall(r"\d+", joined[0])}
        says.append("not joined")
        causes.add("skipped-collective")
    undumped = re.findall(r"(?:Missing dump files from ranks|missed FR dumps from ranks) \(?\{([^}]*)\}", text)
    if undumped and not says:
        says.append(f"no dump of rank {undumped[0]}")
    if not says and "COLLECTIVE_STATE_MISMATCH" in text:
        says.append("COLLECTIVE_STATE_MISMATCH")
    if not says:
        says.append("no errors found" if "No errors found" in text or not text.strip() else last_line(text))
    ranks = sorted(named)
    return {
        "says": ", ".join(says) + (f": rank {ranks}" if ranks else ""),
        "rank": ranks == right["ranks"],
        "cause": bool(causes & set(right["causes"])),
    }


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:80] if lines else "nothing"


if __name__ == "__main__":
    if len(sys.argv) > 3:
        import netns

        netns.enter(sys.argv[3])
    try:
        print(ras_text(int(sys.argv[1]), float(sys.argv[2])))
    except OSError as error:
        print(f"no answer: {error}")
