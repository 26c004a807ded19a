#!/usr/bin/env bash
# Compares two builds of the program on the same evidence: logs of NCCL and dumps of the Flight Recorder, both the recorded job's,
# multiplied. Both run in turns. The second may take a tenth more than the first: more processor time in its best run, since others
# use the machine, too, and the best of the wall times is only shown.
#
#   tools/speed_test.sh FIRST SECOND [RUNS]
set -euo pipefail
here="$(cd "$(dirname "$0")/.." && pwd)"
first="$(realpath "${1:?a program}")"
second="$(realpath "${2:?another one}")"
runs="${3:-30}"
dir="$(mktemp -d)"
trap 'rm -rf "$dir"' EXIT
python3 - "$here/cases/skipped-allreduce/evidence" "$dir" <<'PY'
import pathlib, pickle, shutil, sys
case, out = map(pathlib.Path, sys.argv[1:])
(out / "small").mkdir(), (out / "logs").mkdir(), (out / "dumps").mkdir()
for path in case.iterdir():
    shutil.copy(path, out / "small")
for path in case.glob("nccl_*.log"):
    text = path.read_bytes()
    (out / "logs" / path.name).write_bytes(text * (24_000_000 // len(text)))
# Dumps of this repository, so reading them as a pickle is safe here.
for path in case.glob("fr_rank*"):
    dump = pickle.loads(path.read_bytes())
    entries, n = dump["entries"], 0
    more = []
    while len(more) < 20_000:
        for entry in entries:
            n += 1
            more.append(dict(entry, record_id=n))
    dump["entries"] = more
    (out / "dumps" / path.name).write_bytes(pickle.dumps(dump, protocol=2))
PY
bad=0
for what in small logs dumps; do
  # The same answer first of all.
  "$first" diagnose --fail-on never "$dir/$what" >"$dir/first.txt"
  "$second" diagnose --fail-on never "$dir/$what" >"$dir/second.txt"
  cmp "$dir/first.txt" "$dir/second.txt"
  python3 - "$first" "$second" "$dir/$what" "$runs" <<'PY' || bad=1
import os, sys, time
programs, folder, runs = sys.argv[1:3], sys.argv[3], int(sys.argv[4])
nothing = os.open(os.devnull, os.O_WRONLY)
def run(program):
    start = time.monotonic()
    actions = [(os.POSIX_SPAWN_DUP2, nothing, fd) for fd in (1, 2)]
    pid = os.posix_spawn(program, [program, "diagnose", "--fail-on", "never", folder], os.environ, file_actions=actions)
    _, status, used = os.wait4(pid, 0)
    assert status == 0, (program, status)
    return (used.ru_utime + used.ru_stime) * 1e3, (time.monotonic() - start) * 1e3
times = [[], []]
for _ in range(runs):
    for one, program in zip(times, programs):
        one.append(run(program))
(cpu_a, wall_a), (cpu_b, wall_b) = ([min(column) for column in zip(*one)] for one in times)
size = sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder)) / 1e6
print(f"{os.path.basename(folder)} ({size:.1f} MB): processor {cpu_a:.1f} and {cpu_b:.1f} ms, wall {wall_a:.1f} and {wall_b:.1f} ms: "
      f"{cpu_b / cpu_a:.2f} x")
sys.exit(cpu_b > 1.10 * cpu_a)
PY
done
exit "$bad"
