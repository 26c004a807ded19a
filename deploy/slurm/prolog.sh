#!/bin/sh
# Prolog= of slurm.conf: keeps jobs off a bad node. Slurm drains the node if this exits with anything but 0.
# Only findings that justify draining a node count (--for prolog); a failure of the tool itself does not drain a node.
# Slurm starts it with an empty PATH: if the program is in none of these folders, write its full path here.
PATH=${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
ringleader=${RINGLEADER:-ringleader}
# How many GPUs this node must have: set RINGLEADER_GPUS to the node's number (Gres= in slurm.conf). Else it is the number that Slurm
# gave to this job on this node, the least that must answer. Without either, the PCI bus counts.
gpus=$RINGLEADER_GPUS
[ -n "$gpus" ] || gpus=$(printf '%s\n' "$SLURM_JOB_GPUS" | tr , '\n' | awk -F- '/^[0-9]/ { n += NF > 1 ? $2 - $1 + 1 : 1 } END { if (n) print n }')
case "$gpus" in *[!0-9]* | '') gpus= ;; esac
out=$(timeout 30 "$ringleader" check --for prolog --quick --quiet --color never --width 400 ${gpus:+--gpus "$gpus"} 2>&1)
code=$?
say() {
  logger -t ringleader-prolog -- "job ${SLURM_JOB_ID:-?}: $1" 2>/dev/null
  # slurmd writes this to its log (`prolog failed: rc:1 output:…`); the node's reason is Slurm's own, `Prolog error`.
  printf '%s\n' "$1" >&2
}
# What fails, a line each; all that was said if no line has the form of a failing check.
failing() {
  printf '%s\n' "$out" | sed -n 's/^ *FAIL  *\([^ ]*\)  */\1: /p' | head -n 3 | grep . || printf '%s\n' "$out" | head -n 3
}
case "$code" in
  4) say "$(failing)"; exit 1 ;;
  126 | 127) say "$ringleader could not be started, so this node was not checked: write its full path into prolog.sh (ringleader=...)" ;;
esac
exit 0
