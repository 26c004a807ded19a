#!/usr/bin/env bash
# Compares two builds of the program on the same evidence: logs of NCCL and dumps of the Flight Recorder, both the recorded job's,
# multiplied. The second may take a tenth longer than the first. Needs hyperfine (tools/dist-tools.sh brings it).
#
#   tools/speed_test.sh FIRST SECOND [RUNS]
set -euo pipefail
here="$(cd "$(dirname "$0")/.." && pwd)"
first="$(realpath "${1:?a program}")"
second="$(realpath "${2:?another one}")"
runs="${3:-30}"
hyperfine="$(command -v hyperfine || echo "${DIST_TOOLS:-$here/target/dist-tools}/root/usr/bin/hyperfine")"
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
  "$hyperfine" -N -i --warmup 3 --runs "$runs" --export-json "$dir/$what.json" \
    "$first diagnose --fail-on never $dir/$what" "$second diagnose --fail-on never $dir/$what" >/dev/null 2>&1
  python3 - "$dir/$what.json" "$what" "$(du -sb "$dir/$what" | cut -f1)" <<'PY' || bad=1
import json, sys
first, second = json.load(open(sys.argv[1]))["results"]
ms = lambda one, key: one[key] * 1e3
cpu = lambda one: (one["user"] + one["system"]) * 1e3
# The best of the runs: others use the machine, too.
ratio = second["min"] / first["min"]
print(f"{sys.argv[2]} ({int(sys.argv[3]) / 1e6:.1f} MB): best {ms(first, 'min'):.1f} and {ms(second, 'min'):.1f} ms, median {ms(first, 'median'):.1f} and "
      f"{ms(second, 'median'):.1f} ms, processor {cpu(first):.1f} and {cpu(second):.1f} ms: {ratio:.2f} x")
sys.exit(ratio > 1.10)
PY
done
exit "$bad"
