#!/usr/bin/env python3
"""Writes docs/scoreboard.md from what zoo/live.py has recorded.

    zoo/scoreboard.py RESULTS.json… [--to docs/scoreboard.md] [--note TEXT]…

Several files form one scoreboard (the places of a zoo run in several calls). A run that appears twice counts once, from the
later file.
"""

import argparse
import json
import os
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import faults  # noqa: E402
import live  # noqa: E402

GROUPS = {
    "calls": "Collective calls",
    "process": "Processes",
    "gpu": "GPU programs",
    "host": "Host programs",
    "slow": "Slow, not stuck",
    "network": "The network between nodes",
    "start": "Before the first step",
}


def read(paths):
    """(results by name, machines, names of runs that were not made)"""
    results, machines, not_run = {}, [], set()
    for path in paths:
        part = json.loads(Path(path).read_text())
        if part["machine"] not in machines:
            machines.append(part["machine"])
        not_run |= set(part.get("not_run", []))
        for result in part["runs"]:
            results[result["name"]] = result
    return list(results.values()), machines, sorted(not_run - set(results))


def times(results, field):
    found = [r["answer"].get(field) for r in results if r.get("answer")]
    return sorted(value for value in found if value is not None)


def spread(values):
    """Median and worst."""
    if not values:
        return "–"
    return f"{statistics.median(values):.1f} s, worst {values[-1]:.1f} s"


def share(part, whole):
    return f"{part} of {whole}" + (f" ({100 * part / whole:.0f} %)" if whole else "")


def common(texts):
    """Each distinct text with its count, most frequent first."""
    counted = {}
    for text in texts:
        counted[text] = counted.get(text, 0) + 1
    ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    whole = len(texts)
    return "; ".join(text if count == whole else f"{count}× {text}" for text, count in ordered)


def without_ranks(text):
    """Drops rank numbers, which differ from place to place; the table counts the right ones."""
    import re

    return re.sub(r": rank \[[^\]]*\]|, no rank", "", text)


def others_cell(runs, who):
    heard = [run[who] for run in runs if run.get(who)]
    if not heard:
        return "not asked"
    says = common([without_ranks(one["says"]) for one in heard])
    return f"{says}. Rank {sum(one['rank'] for one in heard)}/{len(heard)}, cause {sum(one['cause'] for one in heard)}/{len(heard)}"


def row(fault, runs):
    scored = [run for run in runs if "right" in run]
    if not scored:
        why = common([run.get("skipped") or run.get("failed") or "not run" for run in runs]) if runs else "not run"
        return f"| `{fault.name}` | {fault.says} | `{fault.cause}` | left out: {escape(why)} | | | |"
    ranks = [run["right_rank"] for run in scored if run["right_rank"] is not None]
    who = f"{sum(ranks)}/{len(ranks)}" if ranks else "n/a"
    said = common([f"`{run['answer'].get('cause') or 'nothing'}`" for run in scored])
    after = times(scored, "verdict_s")
    when = f"{after[0]:.1f}–{after[-1]:.1f} s" if len(after) > 1 else (f"{after[0]:.1f} s" if after else "–")
    early = sum(bool(run["early_alarms"]) for run in scored)
    said += f"; rank {who}, cause {sum(run['right_cause'] for run in scored)}/{len(scored)}"
    said += f"; **alarm before the fault {early}×**" if early else ""
    failed = [run for run in runs if "failed" in run]
    said += f"; {len(failed)} not run" if failed else ""
    return (
        f"| `{fault.name}` | {fault.says} | `{fault.cause}` | {said} | {when} | "
        f"{escape(others_cell(scored, 'fr'))} | {escape(others_cell(scored, 'ras'))} |"
    )


def escape(text):
    return text.replace("|", "\\|").replace("\n", " ")


def page(results, machines, not_run, notes):
    by_fault = {}
    for result in results:
        by_fault.setdefault((result["group"], result["fault"]), []).append(result)
    scored = [r for r in results if "right" in r and r["group"] != "healthy"]
    stalls = [r for r in scored if r["group"] not in ("slow", "start")]
    healthy = [r for r in results if r["group"] == "healthy" and "right" in r]
    sums = live.totals(results)
    lines = ["# Scoreboard: planted faults, diagnosed live", ""]
    lines += ["<!-- Written by zoo/scoreboard.py from what zoo/live.py recorded. -->", ""]
    for machine in machines:
        lines.append(
            f"{machine.get('date')}: {machine.get('gpus')} × {machine.get('gpu')}, driver {machine.get('driver')}, "
            f"PyTorch {machine.get('torch')}, NCCL {machine.get('nccl')}, Linux {machine.get('kernel')}, "
            f"{machine.get('cpus')} processors; {machine.get('ringleader') or 'ringleader'}."
        )
    lines += [""] + [note + "\n" for note in [*conditions(scored + healthy), *notes]]
    lines += [
        "A small training job gets one fault in one rank at a random step, and `ringleader watch` observes it from outside. Times",
        "count from the injection of the fault. The other tools are asked about the same stalled run: PyTorch's analyzer of Flight Recorder",
        "dumps (`python -m torch.distributed.flight_recorder.fr_trace`, with dumps requested at once instead of after ten minutes) and",
        "NCCL's RAS (`VERBOSE STATUS`). `zoo/live.py` repeats the measurement.", "",
        "| | |", "|---|---|",
        f"| faults, runs | {sums['faults']} kinds, {sums['runs']} runs |",
        f"| right culprit rank | {share(sums['right_rank'], sums['rank_asked'])} |",
        f"| right cause | {share(sums['right_cause'], sums['runs'])}; exactly the planted id {share(sum(r['exact_cause'] for r in scored), len(scored))} |",
        f"| the report also names the rank's activity (data loader, lock, …) | {share(sum(bool(r['right_words']) for r in scored), sum(r['right_words'] is not None for r in scored))} |",
        f"| stall reported after | {spread(times(stalls, 'stall_s'))} |",
        f"| rank and cause named after | {spread(times(stalls, 'verdict_s'))} (faults in mid-training) |",
        f"| straggler named after | {spread(times([r for r in scored if r['group'] == 'slow'], 'verdict_s'))} |",
        f"| before the first step | {spread(times([r for r in scored if r['group'] == 'start'], 'verdict_s'))} from the job's start; `watch` waits up to ten minutes before a rhythm is known; here the limit was 8 s |",
        f"| the jobs' own rhythm | {rhythm(results)} |",
        f"| alarm before the fault | {share(sums['early_alarms'], sums['runs'])} |",
        f"| healthy jobs without alarm | {share(sums['healthy_quiet'], sums['healthy'])} |",
        *others_total(scored),
        "",
    ]  # fmt: skip
    for group, title in GROUPS.items():
        lines += [f"## {title}", "", "| fault | injection | cause | ringleader | named after | Flight Recorder analyzer | RAS |"]
        lines.append("|---|---|---|---|---|---|---|")
        for fault in faults.FAULTS:
            if fault.group == group:
                lines.append(row(fault, by_fault.get((group, fault.name), [])))
        lines.append("")
    lines += ["## Healthy jobs", "", "| job | what | alarms | remarks on stragglers |", "|---|---|---|---|"]
    for one in faults.HEALTHY:
        for result in by_fault.get(("healthy", one.name), [{}]):
            if "right" in result:
                alarms = "none" if result["right"] else escape(json.dumps(result["answer"]))
                lines.append(f"| `{one.name}` | {one.says} | {alarms} | {len(result['remarks'])} |")
            else:
                lines.append(f"| `{one.name}` | {one.says} | not run: {result.get('skipped') or result.get('failed') or ''} | |")
    if not_run:
        lines += ["", f"Not run for lack of time: {', '.join(not_run)}."]
    wrong = [r for r in scored if not r["right"]]
    if wrong:
        lines += ["", "## What went wrong", ""]
        for result in sorted(wrong, key=lambda result: result["name"]):
            answer = result["answer"]
            lines.append(
                f"* `{result['name']}` ({result['kind']}, rank {result['rank']} of {result['world']}): expected "
                f"`{result['want']['causes'][0]}`; got `{answer.get('cause') or 'nothing'}`, ranks {answer.get('ranks') or 'none'}"
                f"{': ' + escape(answer['summary']) if answer.get('summary') else ''}"
            )
    failed = [r for r in results if "failed" in r]
    if failed:
        lines += ["", "## Runs that could not be made", ""]
        lines += [f"* `{r['name']}`: {escape(r['failed'])[:200]}" for r in sorted(failed, key=lambda r: r["name"])]
    return "\n".join(lines) + "\n"


def conditions(runs):
    """How these runs differ from a cluster, in words."""
    said = []
    shared = sum(run["world"] > run["gpus"] and not run["nodes"] for run in runs)
    if shared:
        said.append(
            f"In {shared} of {len(runs)} runs ranks share GPUs, since this machine has fewer than four: NCCL treats each rank as "
            "a separate host (`NCCL_HOSTID`) and uses sockets on loopback. The other runs have one GPU per rank, or one network "
            "namespace per node (their links end in a switch in user space, which can lose or delay packets)."
        )
    launched = sum(run["launch"] == "torchrun" for run in runs)
    if launched:
        said.append(f"torchrun started {launched} runs; a launcher that leaves the other ranks alone when one ends, as srun does, started the rest.")
    sees = {}
    for run in runs:
        sees[run.get("sees")] = sees.get(run.get("sees"), 0) + 1
    said.append("The watcher's source: " + ", ".join(f"{by or 'nothing'} in {n}" for by, n in sorted(sees.items(), key=str)) + " runs.")
    return said


def rhythm(results):
    steps = sorted(result["step_s"] for result in results if result.get("step_s"))
    longest = [result["longest_step_s"] for result in results if result.get("longest_step_s")]
    if not steps:
        return "–"
    said = f"steps of {steps[0]:.2f} to {steps[-1]:.2f} s, median {statistics.median(steps):.2f} s"
    return said + (f"; the longest single one {max(longest):.1f} s" if longest else "")


def others_total(scored):
    lines = []
    for who, title in (("fr", "Flight Recorder analyzer, same runs"), ("ras", "RAS, same runs")):
        heard = [run for run in scored if run.get(who)]
        rank = [run for run in heard if run["right_rank"] is not None]
        if heard:
            lines.append(
                f"| {title} | rank {share(sum(run[who]['rank'] for run in rank), len(rank))}, "
                f"cause {share(sum(run[who]['cause'] for run in heard), len(heard))} |"
            )
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+")
    parser.add_argument("--to", default=str(Path(__file__).resolve().parent.parent / "docs" / "scoreboard.md"))
    parser.add_argument("--note", action="append", default=[])
    options = parser.parse_args()
    results, machines, not_run = read(options.results)
    text = page(results, machines, not_run, options.note)
    if options.to == "-":
        sys.stdout.write(text)
    else:
        os.makedirs(os.path.dirname(options.to), exist_ok=True)
        Path(options.to).write_text(text)


if __name__ == "__main__":
    main()
