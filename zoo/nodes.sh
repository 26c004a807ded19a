#!/usr/bin/env bash
# A thousand simulated nodes: local processes in place of ssh that play recorded answers, so that the asking side can be
# measured by itself. Among them a node with another value, one that fails, one that is slow, one that is dead.
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

# The answer is what this machine says of itself, with the host's name put in.
"$program" check --format jsonl --fail-on never > "$dir/answer"
own="$(sed -n 's/.*"host":"\([^"]*\)".*/\1/p' "$dir/answer")"
sed "s/\"host\":\"$own\"/\"host\":\"HOST\"/" "$dir/answer" > "$dir/template"
sed 's/"verdict":"ok"/"verdict":"fail"/' "$dir/template" > "$dir/failing"
sed 's/"kind":"same"/"kind":"same"/; s/"value":"\([^"]*\)","kind":"same"/"value":"\1-other","kind":"same"/' \
  "$dir/template" > "$dir/other"

cat > "$dir/ssh" <<'STUB'
#!/bin/sh
# Builtins alone: what is measured is the asking, not the start of tools.
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
echo "$n nodes, exit code $status, wall $(echo "$ended - $started" | bc) s; an answer has $(wc -c < "$dir/answer") bytes"
