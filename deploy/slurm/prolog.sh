#!/bin/sh
# Prolog= of slurm.conf: keeps a job off a node that would kill it. Slurm drains the node if this ends with anything but 0.
# Only findings that justify draining a node count (--for prolog); a tool that fails is no reason to lose a node.
out=$(timeout 30 "${RINGLEADER:-ringleader}" check --for prolog --quick --quiet --color never 2>&1)
code=$?
[ "$code" -eq 4 ] || exit 0
logger -t ringleader-prolog -- "job ${SLURM_JOB_ID:-?}: $out" 2>/dev/null
# What slurmd reports as the reason.
printf '%s\n' "$out" | head -n 3 >&2
exit 1
