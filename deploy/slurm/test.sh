#!/usr/bin/env bash
# Tests the scripts of this folder in a real Slurm on network namespaces (zoo/slurm.sh): a prolog that refuses a bad node, a task that gets
# its settings, an epilog that keeps evidence of a failed job, and job_submit.lua. Needs root and Debian's slurm packages.
#
#   deploy/slurm/test.sh target/debug/ringleader
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
program="$(realpath "${1:?the program}")"
dir="$(mktemp -d)"
chmod 755 "$dir"
trap '"$here/../../zoo/slurm.sh" stop "$dir/slurm" >/dev/null 2>&1 || true; rm -rf "$dir"' EXIT

# The program, and a substitute on the node whose check fails. Slurm starts prologs with an empty environment.
cat >"$dir/ringleader" <<EOF
#!/bin/sh
if [ "\$1" = check ] && [ "\$(hostname)" = n2 ]; then echo "gpu-ecc FAIL: planted"; exit 4; fi
exec "$program" "\$@"
EOF
for script in prolog epilog task-prolog; do
  { echo '#!/bin/sh'; echo "export RINGLEADER=$dir/ringleader RINGLEADER_EVIDENCE=$dir/kept HOME=$dir"; tail -n +2 "$here/$script.sh"; } >"$dir/$script.sh"
done
chmod +x "$dir/ringleader" "$dir"/*.sh
more="Prolog=$dir/prolog.sh
Epilog=$dir/epilog.sh
TaskProlog=$dir/task-prolog.sh
PrologFlags=Alloc"
# The name of the plugin in Debian's package, if it was built with Lua.
if find /usr/lib -name job_submit_lua.so 2>/dev/null | grep -q .; then
  more="$more
JobSubmitPlugins=lua"
  lua=yes
fi
mkdir -p "$dir/slurm"
cp "$here/job_submit.lua" "$dir/slurm/job_submit.lua"
ZOO_SLURM_MORE="$more" "$here/../../zoo/slurm.sh" start "$dir/slurm" 2 >/dev/null
run() { timeout 60 "$here/../../zoo/slurm.sh" in "$dir/slurm" "$@"; }

fail() { echo "FAIL: $*" >&2; exit 1; }

# A task on the good node gets its settings, and the folder for them exists.
out=$(cd "$dir" && run srun -w n1 -N1 -n1 --chdir="$dir" sh -c 'echo "$NCCL_DEBUG|$NCCL_DEBUG_FILE|$PYTHONFAULTHANDLER"') || fail "srun on n1: $out"
case "$out" in "INFO|$dir/ringleader-"*"/nccl_%h_%p.log|1") ;; *) fail "the task has: $out" ;; esac
echo "ok: TaskProlog sets $out"

# A user's own setting stays.
out=$(cd "$dir" && NCCL_DEBUG=TRACE run srun -w n1 -N1 -n1 --chdir="$dir" sh -c 'echo "$NCCL_DEBUG"')
[ "$out" = TRACE ] || fail "the user's NCCL_DEBUG became $out"
echo "ok: what the user has set stays"

# The epilog keeps evidence of the failed job, not of a successful one.
[ -z "$(ls "$dir/kept" 2>/dev/null)" ] || fail "evidence of a job that did not fail: $(ls "$dir/kept")"
run sbatch -w n1 -N1 --chdir="$dir" -o /dev/null --wrap 'exit 3' >/dev/null
for _ in $(seq 60); do ls "$dir"/kept/job-*.tar.zst >/dev/null 2>&1 && break; sleep 1; done
ls "$dir"/kept/job-*-n1.tar.zst >/dev/null || fail "no evidence of the failed job"
echo "ok: Epilog keeps $(cd "$dir/kept" && ls)"

# The bad node is drained, and the job does not run there.
run sbatch -w n2 -N1 --chdir="$dir" -o "$dir/out" --wrap 'echo ran' >/dev/null
for _ in $(seq 60); do
  state=$(run sinfo -h -n n2 -o %T)
  case "$state" in *drain*) break ;; esac
  sleep 1
done
case "$state" in *drain*) ;; *) fail "n2 is $state" ;; esac
grep -qs ran "$dir/out" && fail "the job ran on the bad node"
# Slurm's own reason says little; what failed is in the node's log.
grep -q 'prolog failed: rc:1 output:gpu-ecc FAIL: planted' "$dir/slurm/log/slurmd-n2" || fail "the log of slurmd does not say what failed"
echo "ok: Prolog drains n2 ($(run sinfo -h -n n2 -o %E)); slurmd's log says why"

# The notes of job_submit.lua, by an interpreter of Lua alone.
if interpreter=$(command -v lua5.4 || command -v lua5.3 || command -v lua); then
  "$interpreter" "$here/test_job_submit.lua" || fail "test_job_submit.lua"
fi

if [ "${lua:-}" = yes ]; then
  out=$(cd "$dir" && run sbatch -w n1 --gres=none --export=TORCH_NCCL_ASYNC_ERROR_HANDLING=0 --chdir="$dir" -o /dev/null --wrap true 2>&1) || fail "$out"
  case "$out" in *"Submitted batch job"*) echo "ok: job_submit.lua lets jobs through" ;; *) fail "$out" ;; esac
else
  echo "skipped: this Slurm has no job_submit/lua"
fi
