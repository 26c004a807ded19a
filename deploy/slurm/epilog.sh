#!/bin/sh
# Epilog= of slurm.conf: saves the node's evidence of a failed job before the next job overwrites it. Never fails.
# Slurm starts it with an empty PATH: if the program is in none of these folders, write its full path here.
PATH=${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
ringleader=${RINGLEADER:-ringleader}
dir=${RINGLEADER_EVIDENCE:-/var/spool/ringleader}
case "${SLURM_JOB_EXIT_CODE:-${SLURM_JOB_EXIT_CODE2:-0}}" in 0 | 0:0) exit 0 ;; esac
umask 077
mkdir -p "$dir" || exit 0
name="job-${SLURM_JOB_ID:-0}-$(hostname -s)"
# What this job left, and the node itself: the processes of other jobs are not collected. A job with several launchers has a bundle for
# each, named job-ID-HOST-pidPID.tar.zst.
for kept in "$dir/$name".tar.zst "$dir/$name"-pid*.tar.zst; do [ -e "$kept" ] && exit 0; done
timeout 60 "$ringleader" collect ${SLURM_JOB_ID:+--job "$SLURM_JOB_ID"} -o "$dir/$name.tar.zst" >/dev/null 2>&1
case $? in
  126 | 127)
    why="$ringleader could not be started, so no evidence was kept: write its full path into epilog.sh (ringleader=...)"
    logger -t ringleader-epilog -- "job ${SLURM_JOB_ID:-?}: $why" 2>/dev/null
    printf '%s\n' "$why" >&2
    ;;
esac
# Keeps the newest 50 bundles of this node.
ls -1t "$dir"/job-*.tar.zst 2>/dev/null | tail -n +51 | while IFS= read -r old; do rm -f -- "$old"; done
exit 0
