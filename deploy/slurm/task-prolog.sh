#!/bin/sh
# TaskProlog= of slurm.conf: every task gets the settings that make its failure diagnosable; Slurm adds `export NAME=value` lines to
# its environment. Every value that the user has set stays (--keep), also one that says less.
# RINGLEADER names the program if it is not on the PATH of the user's tasks.
[ -n "$RINGLEADER_NO_ENV" ] && exit 0
PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}
ringleader=${RINGLEADER:-ringleader}
dir=${SLURM_SUBMIT_DIR:-/tmp}/ringleader-${SLURM_JOB_ID:-0}
mkdir -p "$dir" 2>/dev/null || dir=/tmp
timeout 10 "$ringleader" env --keep --format slurm --dir "$dir" 2>/dev/null
case $? in
  126 | 127)
    why="$ringleader could not be started, so the task has none of its settings: write its full path into task-prolog.sh (ringleader=...)"
    logger -t ringleader-task-prolog -- "job ${SLURM_JOB_ID:-?}: $why" 2>/dev/null
    printf '%s\n' "$why" >&2
    ;;
esac
exit 0
