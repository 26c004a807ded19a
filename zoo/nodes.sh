#!/usr/bin/env bash
# A thousand simulated nodes: local processes in place of ssh replay recorded answers, so that only the asking side is
# measured. One node has a different value, one fails, one is slow and one is dead.
#
#   zoo/nodes.sh PROGRAM [N] [ARGUMENTS OF check…]
#
# Prints the table, then wall time and peak memory of the asking process.
set -euo pipefail

program="$(realpath "${1:?the ringleader program}")"
n="${2:-1000}"
shift $(($# < 2 ? $# : 2))
dir="$(mktemp -d)"
trap 'rm -rf "$dir"' EXIT

# The answer is this machine's own, with the node's host name, and as long as that of a GPU node: 60 checks, 200 values.
# No time, since a recorded time says nothing about clocks.
"$program" check --format jsonl --fail-on never > "$dir/answer"
python3 - "$dir" <<'PYTHON'
import json, sys

folder = sys.argv[1]
answer = json.load(open(f"{folder}/answer"))


def write(name, value, verdict):
    node = dict(answer, host="HOST", at_ns=0)
    one = answer["checks"][-1]
    node["checks"] = [dict(one, id=f"check-{n}", verdict="ok", summary="all is well on eight GPUs") for n in range(60)]
    node["checks"][7].update(verdict=verdict, summary="GPU 3: 2 uncorrected errors", drains=True)
    node["values"] = [{"key": f"gpu.{n % 8}.value-{n}", "value": "570.124.06", "kind": "same"} for n in range(100)]
    node["values"] += [{"key": f"gpu.{n % 8}.reading-{n}", "value": str(40 + n % 7), "kind": "near"} for n in range(100)]
    node["values"][3]["value"] = value
    with open(f"{folder}/{name}", "w") as file:
        file.write(json.dumps(node, separators=(",", ":")) + "\n")


write("template", "570.124.06", "ok")
write("other", "565.57.01", "ok")
write("failing", "570.124.06", "fail")
PYTHON

cat > "$dir/ssh" <<'STUB'
#!/bin/sh
# Shell builtins only, so as not to measure the start of tools.
while [ "$1" != -- ]; do shift; done
host="$2"
file=template
case "$host" in
  *17) file=other ;;
  *42) file=failing ;;
  *666) exec sleep 60 ;;
  *777) echo "ssh: connect to host $host port 22: Connection refused" >&2; exit 255 ;;
esac
IFS= read -r line < "${0%/*}/$file"
printf '%s"host":"%s"%s\n' "${line%%\"host\":\"HOST\"*}" "$host" "${line#*\"host\":\"HOST\"}"
STUB
chmod +x "$dir/ssh"

last="$(printf '%04d' "$n")"
started="$(date +%s.%N)"
status=0
/usr/bin/env time -f 'peak memory of the asking process: %M KiB' \
  "$program" check --unstable-ssh "$dir/ssh" --hosts "node[0001-$last]" --node-deadline-secs 5 "$@" || status=$?
ended="$(date +%s.%N)"
echo "$n nodes, exit code $status, wall $(echo "$ended - $started" | bc) s; an answer has $(wc -c < "$dir/template") bytes"
