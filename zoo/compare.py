"""The answers of other tools to the same stalled run: NCCL's RAS and PyTorch's analyzer of Flight Recorder dumps."""

import os
import re
import socket
import subprocess
import sys
import time

# The analyzer's results as ids of the closed list.
FR_CAUSES = {
    "COLLECTIVE_TYPE_MISMATCH": "op-mismatch",
    "SIZE_OR_SYNTAX_MISMATCH": "shape-mismatch",
    "COLLECTIVE_DTYPE_MISMATCH": "dtype-mismatch",
}


def ask_ras(port, node=None, seconds=12):
    """The text of VERBOSE STATUS, or why there is none. `node`: the network namespace to ask in, which takes a separate
    process."""
    command = [sys.executable, os.path.abspath(__file__), str(port), str(seconds), *([node] if node else [])]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds + 10)
    return done.stdout or f"no answer: {last_line(done.stderr)}"


def ras_text(port, seconds):
    """All ranks of a node listen on one port, and the kernel picks one of them. If that one is stopped, another try may
    reach another. A live rank answers the first line at once."""
    end = time.monotonic() + seconds
    got = b""
    while not got and time.monotonic() < end:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as peer:
            peer.sendall(b"TIMEOUT 3\nVERBOSE STATUS\n")
            peer.settimeout(1.0)
            while time.monotonic() < end:
                try:
                    part = peer.recv(65536)
                except TimeoutError:
                    if not got:
                        break
                    got += b"\n(cut off)"
                    return got.decode(errors="replace")
                if not part:
                    break
                got += part
                peer.settimeout(max(0.1, end - time.monotonic()))
    return got.decode(errors="replace") or "no answer: it listens and is silent"


def judge_ras(text, pids, right):
    """A one-line summary, and whether it names the rank and the cause. `pids`: pid to global rank."""
    if text.startswith("no answer") or not text.strip():
        return {"says": "nothing listens" if "refused" in text else text.strip()[:80] or "no answer", "rank": False, "cause": False}
    wrong = text.partition("\nErrors\n")[2]
    # Blocks: a heading with a word in capitals, then indented lines. The ranks of an ERROR block report it; they are not to blame.
    named, kinds, word = {}, [], None
    for line in wrong.splitlines():
        if line and not line.startswith((" ", "=")):
            found = re.search(r"\b(MISMATCH|INCOMPLETE|DEAD|TIMEOUT|ERROR|ABORT)\b", line)
            word = found and found.group(1)
            if word and word not in kinds:
                kinds.append(word)
        elif word:
            for pid in re.findall(r"[Pp]rocess (\d+)", line):
                if int(pid) in pids:
                    named.setdefault(word, set()).add(pids[int(pid)])
    to_blame = sorted(set().union(*(ranks for word, ranks in named.items() if word != "ERROR")) or named.get("ERROR", set()))
    if not kinds:
        return {"says": "OK", "rank": False, "cause": False}
    counts = re.findall(r"different (\w+) operation counts", wrong)
    says = ", ".join(kinds) + (f" ({counts[0]} counts)" if counts else "") + (f": rank {to_blame}" if to_blame else ", no rank")
    causes = set()
    if counts:
        causes |= {"skipped-collective", "extra-collective", "uneven-inputs"}
    if "DEAD" in kinds or "INCOMPLETE" in kinds:
        causes |= {"peer-process-died"}
    return {"says": says, "rank": to_blame == right["ranks"], "cause": bool(causes & set(right["causes"]))}


def ask_for_dumps(prefix, ranks, seconds=4.0):
    """Writes to each rank's pipe, as PyTorch's documentation says; returns the ranks that have dumped."""
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


def judge_fr(text, dumped, right):
    """The same for the analyzer's output. The first entry with errors counts; later ones are consequences."""
    if not dumped:
        return {"says": "no dumps", "rank": False, "cause": False}
    undumped = re.search(r"(?:Missing dump files from ranks|missed FR dumps from ranks) \(?\{([\d, ]+)\}", text)
    first = re.search(r"^error msg: (.*)$|^missing ranks: \{([^}]*)\}", text, re.MULTILINE)
    named, causes, says = set(), set(), []
    if first and first.group(1):
        named = {int(rank) for rank in re.findall(r"Culprit rank (\d+)", first.group(1))}
        says = sorted(set(re.findall(r"Error type: (\w+)", first.group(1))))
        causes = {FR_CAUSES[word] for word in says if word in FR_CAUSES}
    elif first:
        named = {int(rank) for rank in re.findall(r"\d+", first.group(2))}
        says, causes = ["not joined"], {"skipped-collective"}
    elif undumped:
        named = {int(rank) for rank in re.findall(r"\d+", undumped.group(1))}
        says = ["no dump"]
    else:
        says = ["no errors found" if "No errors found" in text or not text.strip() else last_line(text)]
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
