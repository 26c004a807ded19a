#!/bin/sh
# TaskProlog= of slurm.conf: every task gets the settings that make its failure diagnosable; Slurm adds `export NAME=value` lines to
# its environment. Settings of the user stay.
[ -n "$RINGLEADER_NO_ENV" ] && exit 0
dir=${SLURM_SUBMIT_DIR:-/tmp}/ringleader-${SLURM_JOB_ID:-0}
mkdir -p "$dir" 2>/dev/null || dir=/tmp
timeout 10 "${RINGLEADER:-ringleader}" env --format slurm --dir "$dir" 2>/dev/null
exit 0
