#!/usr/bin/env bash
# Submits the batch script of README.md, as it stands there, to a real Slurm of two nodes (zoo/slurm.sh) with eight GPUs each by name,
# and looks at what every task gets, and at the folder that the job leaves. torchrun is PyTorch's if it is on the PATH, else a stand-in
# that makes a rank of every GPU. Needs root and Debian's slurm packages.
#
#   deploy/slurm/readme_test.sh target/debug/ringleader
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
root="$here/../.."
program="$(realpath "${1:?the program}")"
dir="$(mktemp -d)"
chmod 755 "$dir"
trap '"$root/zoo/slurm.sh" stop "$dir/slurm" >/dev/null 2>&1 || true; rm -rf "$dir"' EXIT
fail() { echo "FAIL: $*" >&2; exit 1; }

mkdir -p "$dir/bin" "$dir/slurm" "$dir/work"
ln -s "$program" "$dir/bin/ringleader"
cat >"$dir/bin/torchrun" <<'END'
#!/bin/bash
# Options as PyTorch's launcher has them; the script is the first word that is none.
per_node=1
while [ $# -gt 0 ]; do
  case "$1" in
    --nproc-per-node) per_node=$2; shift 2 ;;
    --nnodes | --rdzv-backend | --rdzv-endpoint) printf '%s=%s\n' "$1" "$2"; shift 2 ;;
    -*) echo "torchrun: unknown option $1" >&2; exit 2 ;;
    *) break ;;
  esac
done
for ((local = 0; local < per_node; local++)); do
  LOCAL_RANK=$local RANK=$((SLURM_NODEID * per_node + local)) WORLD_SIZE=$((SLURM_NNODES * per_node)) python3 "$@" &
done
wait
END
chmod +x "$dir/bin/torchrun"
cat >"$dir/work/train.py" <<'END'
import os, socket
names = ("RANK", "WORLD_SIZE", "NCCL_DEBUG", "NCCL_DEBUG_FILE", "PYTHONFAULTHANDLER")
print("rank", socket.gethostname(), *(os.environ.get(name, "-") for name in names), flush=True)
END
# The block of README.md that is a batch script.
awk '/^```bash$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$root/README.md" >"$dir/work/job.sbatch"
grep -q '^#SBATCH' "$dir/work/job.sbatch" || fail "README.md has no batch script"

export ZOO_SLURM_GPUS=8
"$root/zoo/slurm.sh" start "$dir/slurm" 2 >/dev/null
run() { PATH="$dir/bin:$PATH" timeout 90 "$root/zoo/slurm.sh" in "$dir/slurm" "$@"; }
job=$(cd "$dir/work" && run sbatch --parsable --chdir="$dir/work" job.sbatch)
for _ in $(seq 60); do
  state=$(run scontrol show job "$job" | sed -n 's/.*JobState=\([A-Z]*\).*/\1/p')
  case "$state" in PENDING | RUNNING | COMPLETING) sleep 1 ;; *) break ;; esac
done
logs="$dir/work/logs-$job"
[ "$state" = COMPLETED ] || fail "the job is $state: $(cat "$dir/work/slurm-$job.out" "$logs"/* 2>/dev/null)"
for node in 0 1; do
  file="$logs/stderr-$node.log"
  [ "$(grep -c '^rank ' "$file")" = 8 ] || fail "$file has not eight ranks: $(cat "$file")"
  grep -q "^--rdzv-endpoint=n1:29500$" "$file" || fail "the meeting point is another: $(cat "$file")"
  while read -r _ host rank world debug debug_file handler; do
    [ "$world $debug $handler" = "16 INFO 1" ] && [ "$debug_file" = "$logs/nccl_%h_%p.log" ] || fail "rank $rank on $host has $world $debug $debug_file $handler"
  done < <(grep '^rank ' "$file")
done
echo "ok: README.md's batch script ran on two nodes: 16 ranks, settings and logs in logs-$job"
# A rank fails: the folder that the script names is what `diagnose` reads.
echo 'raise RuntimeError("CUDA error: uncorrectable ECC error encountered")' >>"$dir/work/train.py"
job=$(cd "$dir/work" && run sbatch --parsable --wait --chdir="$dir/work" job.sbatch || true)
report=$("$program" diagnose --fail-on never "$dir/work/logs-$job")
case "$report" in *ecc*) echo "ok: diagnose logs-$job: $(head -n 1 <<<"$report")" ;; *) fail "$report" ;; esac
