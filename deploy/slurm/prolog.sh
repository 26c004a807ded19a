#!/bin/sh
# Prolog= of slurm.conf: keeps jobs off a bad node. Slurm drains the node if this exits with anything but 0.
# Only findings that justify draining a node count (--for prolog); a failure of the tool itself does not drain a node.
out=$(timeout 30 "${RINGLEADER:-ringleader}" check --for prolog --quick --quiet --color never 2>&1)
code=$?
[ "$code" -eq 4 ] || exit 0
logger -t ringleader-prolog -- "job ${SLURM_JOB_ID:-?}: $out" 2>/dev/null
# slurmd reports this as the reason.
printf '%s\n' "$out" | head -n 3 >&2
exit 1
