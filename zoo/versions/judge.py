"""Compares the rings with the job that `job.cc` runs: pure functions of the job's output and the rings' contents.

Each check returns `ok`, `no: WHY`, or `-: WHY` if this interface cannot report it."""

# The interface that each release asks for first, newest first.
INTERFACES = [((2, 31), 7), ((2, 29), 6), ((2, 28), 5), ((2, 27), 4), ((2, 26), 3), ((2, 24), 2), ((2, 23), 1)]
BYTES = {"ncclUint8": 1, "ncclBfloat16": 2, "ncclFloat32": 4, "ncclInt64": 8}
P2P = ("Send", "Recv")
# Steps with one operation at a time, each awaited, so that the plugin has no reason to skip any.
FOLLOWED = ("operations", "split", "after", "uneven")


# The last release without launches of several broadcasts.
BEFORE_LAUNCHES = (2, 28, 9)


def interface_of(version):
    return next(number for since, number in INTERFACES if version >= since)


def are_kernels_told(version):
    """2.26.2 could report, but is not asked: its counts diverge from those of its kernels (see docs/plugin.md)."""
    return version >= (2, 26, 3)


def is_end_told(version, transport, function):
    """Whether this NCCL reports the end of an operation: by proxies, if there are any, or by kernels."""
    if function == "Broadcast" and version >= (2, 29):
        return None  # may use all_gather_v, which is not reported
    return transport == "socket" or are_kernels_told(version)


def parts_counts(broadcast, before, version):
    """Whether NCCL miscounts kernels from this broadcast on, called after `before`, so that the plugin gives them up: since
    2.29 after broadcasts of several roots in one group, since 2.31 after any."""
    is_second = before and before.get("call") == "Broadcast" and before["comm"] == broadcast["comm"]
    return interface_of(version) >= 7 or interface_of(version) == 6 and is_second and before["root"] != broadcast["root"]


def are_graphs_told(version, transport):
    """Without kernels NCCL before 2.28 reports a graph's runs only if proxies work for it. It does not report calls beside it
    either while the graph exists, which ends some time after its destruction."""
    return transport == "socket" or are_kernels_told(version)


def expected(lines, version, transport):
    """Operations of each communicator from a rank's output: collectives, and pairs of sends and receives; `is_cut` if
    operations after the last one may be unreported."""
    comms, step, graph, is_parted, before = {}, "", [], False, None

    def of(call):
        return comms.setdefault(call["comm"], {"collectives": [], "p2p": [], "is_cut": False})

    def take(call):
        function, count, datatype = call["call"], call["count"], call["datatype"]
        if interface_of(version) < 5 and function in ("AllGather", "Broadcast"):
            # Before NCCL reported the program's calls it had converted these to bytes.
            count, datatype = count * BYTES[datatype], "ncclInt8"
        told = {"function": function, "count": count, "datatype": datatype, "step": step, "is_captured": call["runs"] != 1}
        told["is_parted"] = is_parted
        told["root"] = call["root"] if call["root"] >= 0 else None
        told["peer"] = call["peer"] if call["peer"] >= 0 else None
        comm = of(call)
        if comm["is_cut"]:
            return
        comm["p2p" if function in P2P else "collectives"].append(told)

    def run_graph():
        if graph and not are_graphs_told(version, transport):
            of(graph[0])["is_cut"] = True
        runs = graph[0]["runs"] if graph else 0
        if graph and is_parted and transport == "direct":
            runs = 1  # without kernels and proxies the recording is reported, but no run
        for _ in range(runs):
            for call in graph:
                take(call)
        graph.clear()

    for line in lines:
        is_recorded = "call" in line and line["runs"] != 1
        if graph and (not is_recorded or line["runs"] != graph[0]["runs"] or line["comm"] != graph[0]["comm"]):
            run_graph()
        if line.get("call") == "Broadcast":
            is_parted = is_parted or parts_counts(line, before, version)
        before = line
        if "step" in line:
            step = line["step"]
        elif is_recorded:
            graph.append(line)
        elif "call" in line:
            take(line)
    run_graph()
    return comms


def seen(ring, comm, is_p2p):
    """Operations of a communicator in a ring by number: each with whether it is in flight and whether its end was seen."""
    ops = [dict(op, is_over=True) for op in ring["recent"] if op["comm"] == comm["slot"]]
    ops += [dict(op, is_over=False, is_end_seen=False) for op in comm["in_flight"]]
    return sorted((op for op in ops if op["is_p2p"] == is_p2p), key=lambda op: op["number"])


def verdict(problems):
    return "ok" if not problems else f"no: {'; '.join(problems[:3])}" + (f" (and {len(problems) - 3} more)" if problems[3:] else "")


def parted(ring):
    """One ring per rank of a process with several ranks, as if each had its own process."""
    rings = []
    for rank in range(2):
        comms = [comm for comm in ring["comms"] if comm["rank"] == rank]
        slots = [comm["slot"] for comm in comms]
        rings.append({**ring, "comms": comms, "recent": [op for op in ring["recent"] if op["comm"] in slots]})
    return rings


def of_rank(lines, rank):
    """The output of one rank of several; its number is the rank in its communicator."""
    return [line | {"comm": 0} if "call" in line else line for line in lines if line.get("comm", rank) == rank]


def loaded(rings, version, ranks=(0, 1)):
    problems = []
    for rank, ring in zip(ranks, rings):
        if ring is None:
            problems.append(f"rank {rank} has no ring")
            continue
        if ring["interface"] != interface_of(version):
            problems.append(f"interface {ring['interface']} in place of {interface_of(version)}")
        lost = {what: n for what, n in ring["lost"].items() if n and what != "overwritten"}
        if lost:
            problems.append(f"rank {rank} lost {lost}")
        if ring["rank"] != rank:
            problems.append(f"rank {rank} is called {ring['rank']}")
    return verdict(problems)


def differs(want, have, version):
    """The wrong fields of an operation in the ring."""
    call = have["call"]
    wrong = [key for key in ("function", "count", "datatype") if call[key] != want[key]]
    if want["function"] == "Broadcast" and call["root"] != want["root"]:
        wrong.append("root")
    # A call that is not followed lacks its peer (5 and later).
    if want["peer"] is not None and call["peer"] != want["peer"] and (call["peer"] is not None or interface_of(version) < 5):
        wrong.append("peer")
    if interface_of(version) >= 5 and bool(call["is_captured"]) != want["is_captured"]:
        wrong.append("is_captured")
    return [f"{key} {call[key]} in place of {want[key]}" for key in wrong]


def by_pairs(ops, key):
    """Sorts pairs: NCCL launches the calls of one group in any order."""
    return [one for at in range(0, len(ops), 2) for one in sorted(ops[at : at + 2], key=key)]


def by_root(ops, call_of):
    """Sorts adjacent broadcasts by root: before NCCL reported calls, it launched those of a group in any order."""
    ops = list(ops)
    for at in range(len(ops) - 1):
        first, second = call_of(ops[at]), call_of(ops[at + 1])
        if first["function"] == second["function"] == "Broadcast" and (first["root"] or 0) > (second["root"] or 0):
            ops[at], ops[at + 1] = ops[at + 1], ops[at]
    return ops


def calls(ring, lines, version, transport):
    """The ring contains every call, in program order, with its arguments."""
    problems = []
    for number, want in sorted(expected(lines, version, transport).items()):
        if number >= len(ring["comms"]):
            problems.append(f"communicator {number} is missing")
            continue
        comm = ring["comms"][number]
        for is_p2p, name in ((False, "collectives"), (True, "p2p")):
            have, told = seen(ring, comm, is_p2p), want[name]
            if want["is_cut"] and len(have) == comm[name] >= len(told):
                have = have[: len(told)]
            elif comm[name] != len(told):
                have = []
            if [op["number"] for op in have] != list(range(len(told))):
                problems.append(f"communicator {number}: {comm[name]} {name} counted of {len(told)}")
                continue
            if is_p2p:
                have, told = by_pairs(have, lambda op: op["call"]["function"]), by_pairs(told, lambda call: call["function"])
            elif interface_of(version) < 5:
                have, told = by_root(have, lambda op: op["call"]), by_root(told, lambda call: call)
            for one, other in zip(told, have):
                wrong = differs(one, other, version)
                if wrong:
                    problems.append(f"communicator {number}, {one['step']}, {one['function']}: {', '.join(wrong)}")
    return verdict(problems)


def communicators(rings, lines, version):
    """Communicators created and destroyed in order, with the same id on both ranks, with rank and size."""
    problems = []
    made = 1 + max((line["comm"] for line in lines[0] if "call" in line), default=-1)
    for rank, ring in enumerate(rings):
        if len(ring["comms"]) != made:
            problems.append(f"rank {rank}: {len(ring['comms'])} communicators of {made}")
        if not all(comm["is_ended"] for comm in ring["comms"]) or not ring["is_ended"]:
            problems.append(f"rank {rank}: not all are ended")
    for number, pair in enumerate(zip(*(ring["comms"] for ring in rings))):
        if len({comm["id"] for comm in pair}) != 1 or pair[0]["id"] == "0x0":
            problems.append(f"communicator {number}: ids {[comm['id'] for comm in pair]}")
        sizes = {comm["size"] for comm in pair}
        if sizes != ({2} if interface_of(version) >= 4 else {0}):
            problems.append(f"communicator {number}: sizes {sizes}")
        if sorted(str(comm["rank"]) for comm in pair) != ["0", "1"]:
            problems.append(f"communicator {number}: ranks {[comm['rank'] for comm in pair]}")
    # In `all` the second one has the ranks reversed.
    is_turned = any(line.get("step") == "split" for line in lines[0])
    for number, turn in ((0, 0), *(((1, 1),) if is_turned else ())):
        for rank, ring in enumerate(rings):
            if number < len(ring["comms"]) and number < made and ring["comms"][number]["rank"] != (rank + turn) % 2:
                problems.append(f"communicator {number}: rank {rank} is {ring['comms'][number]['rank']}")
    ids = [comm["id"] for comm in rings[0]["comms"]]
    # 2.23 gives all communicators split from one parent with one color the same number.
    if len(set(ids)) != len(ids) and version >= (2, 24):
        problems.append("ids are not unique")
    return verdict(problems)


def ended(ring, lines, version, transport):
    """The ends of single operations were seen, and nothing is reported as still running."""
    problems, n_told, n_silent, is_parted = [], 0, 0, False
    for number, want in sorted(expected(lines, version, transport).items()):
        if number >= len(ring["comms"]):
            continue
        comm = ring["comms"][number]
        for is_p2p, name in ((False, "collectives"), (True, "p2p")):
            have, told = seen(ring, comm, is_p2p), want[name]
            if is_p2p:
                have, told = by_pairs(have, lambda op: op["call"]["function"]), by_pairs(told, lambda call: call["function"])
            for one, other in zip(told, have):
                is_told = is_end_told(version, transport, one["function"])
                is_parted = is_parted or one["is_parted"]
                if one["is_parted"] and transport == "direct":
                    is_told = False
                if is_told is False:
                    n_silent += 1
                if not is_told or one["step"] not in FOLLOWED:
                    continue
                n_told += 1
                if not other["is_over"] or not other["is_end_seen"]:
                    how = "its end was not seen" if other["is_over"] else "in flight after the end"
                    problems.append(f"communicator {number}, {one['step']}, {one['function']}: {how}")
    if is_parted != (ring["kernels_ended_ns"] is not None):
        problems.append("kernels are asked for still" if is_parted else "kernels were given up")
    for number, comm in enumerate(ring["comms"]):
        for op in comm["in_flight"]:
            if op["is_end_visible"]:
                problems.append(f"communicator {number}: {op['call']['function']} {op['number']} in flight after the end")
    if not problems and not n_told:
        return "-: ends are not told" if n_silent else "no: nothing to look at"
    return verdict(problems)


def finished(lines, codes):
    """All steps were done, and the processes exited by themselves."""
    problems = []
    for rank, (mine, code) in enumerate(zip(lines, codes)):
        steps = [line["step"] for line in mine if "step" in line]
        done = {line["done"] for line in mine if "done" in line}
        left = [step for step in steps if step not in done]
        if code is None:
            problems.append(f"rank {rank} did not end in {(left or ['exit'])[0]}")
        elif code != 0 or left or not steps:
            problems.append(f"rank {rank} ended with {code} in {(left or ['exit'])[0]}")
    return verdict(problems)


def in_flight(ring, count):
    """The operation with this count in flight on the first communicator."""
    comms = ring["comms"] if ring else []
    return next((op for op in (comms[0]["in_flight"] if comms else []) if op["call"]["count"] == count), None)


def knows(ring, count):
    return in_flight(ring, count) is not None or any(op["call"]["count"] == count for op in ring["recent"])


def waiting(rings, count, version, transport):
    """Rank 0 is in the operation, rank 1 has not called it."""
    problems = []
    op = in_flight(rings[0], count)
    if op is None:
        problems.append("rank 0 has not got it in flight")
    else:
        call = op["call"]
        if (call["function"], call["datatype"]) != ("AllReduce", "ncclFloat32"):
            problems.append(f"it is called {call['function']} of {call['datatype']}")
        is_told = is_end_told(version, transport, "AllReduce")
        if op["is_end_visible"] != is_told:
            problems.append(f"that its end {'can' if is_told else 'cannot'} be seen is not known")
        if are_kernels_told(version) and not op["is_started"]:
            problems.append("its kernel was not seen to start")
        if transport == "socket" and not any(wait["peer"] == 1 for wait in op["waits"]):
            problems.append("no proxy waits for rank 1")
        older = [other for other in rings[0]["comms"][0]["in_flight"] if other["number"] < op["number"] and other["is_end_visible"]]
        if older:
            problems.append(f"{len(older)} operations before it are in flight too")
    if knows(rings[1], count):
        problems.append("rank 1 is said to have called it")
    elif not rings[1]["comms"] or rings[0]["comms"][0]["collectives"] != rings[1]["comms"][0]["collectives"] + 1:
        problems.append(f"{[[comm['collectives'] for comm in ring['comms'][:1]] for ring in rings]} collectives called")
    return verdict(problems)


def over(rings, count, version, transport):
    """Both ranks have finished it."""
    problems = []
    for rank, ring in enumerate(rings):
        op = next((op for op in ring["recent"] if op["call"]["count"] == count), None)
        if is_end_told(version, transport, "AllReduce"):
            if op is None or not op["is_end_seen"]:
                problems.append(f"rank {rank}: its end was not seen")
        elif op is None and in_flight(ring, count) is None:
            problems.append(f"rank {rank} does not know it")
    return verdict(problems)


def held(rings, want):
    """Whether the processes that hold the rings are alive."""
    problems = [f"rank {rank} is {'alive' if ring['is_held'] else 'gone'}" for rank, (ring, is_held) in enumerate(zip(rings, want))
                if ring["is_held"] != is_held]  # fmt: skip
    return verdict(problems)


def blamed(report, is_size_known=True):
    """The verdict on the rings names rank 1."""
    told = (report or {}).get("verdict") or {}
    ranks = [culprit.get("rank") for culprit in told.get("culprits") or []]
    what = f"{told.get('cause')} {ranks}"
    if ranks == [1]:
        return f"ok: {what}"
    if not ranks and not is_size_known:
        return f"-: {what}"
    return f"no: {what}"


def aborted(rings, count):
    problems = [] if knows(rings[0], count) else ["rank 0 does not know it"]
    if knows(rings[1], count):
        problems.append("rank 1 is said to have called it")
    problems += [f"rank {rank}: the communicator has not ended" for rank, ring in enumerate(rings) if not ring["comms"][0]["is_ended"]]
    return verdict(problems)
