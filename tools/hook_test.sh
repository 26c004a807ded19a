#!/usr/bin/env bash
# Runs the hook of .pre-commit-hooks.yaml by pre-commit (pip install pre-commit==4.7.0) in a project with a collective that one rank
# alone calls, and in the project once it is mended.
#
#   tools/hook_test.sh target/debug/ringleader PRE-COMMIT
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
program="$(realpath "${1:?the program}")"
pre_commit="$(realpath -s "${2:?pre-commit}")"
dir="$(mktemp -d)"
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/bin" "$dir/hooks" "$dir/project"
ln -s "$program" "$dir/bin/ringleader"
# Only the file counts: a clone of the whole repository would take most of the time.
cp "$root/.pre-commit-hooks.yaml" "$dir/hooks/"
export PATH="$dir/bin:$PATH" PRE_COMMIT_HOME="$dir/home" GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
commit() { git -C "$1" add -A && git -C "$1" -c user.name=test -c user.email=test@example.com commit -q -m test; }
git init -q "$dir/hooks" && commit "$dir/hooks"
git init -q "$dir/project"
code='import torch.distributed as dist\n\n\ndef main():\n    dist.init_process_group("nccl")\n%b\n\n\nmain()\n'
# shellcheck disable=SC2059 # The code is a format.
printf "$code" '    if dist.get_rank() == 0:\n        dist.barrier()' >"$dir/project/train.py"
commit "$dir/project"
try() { (cd "$dir/project" && "$pre_commit" try-repo "$dir/hooks" ringleader-lint --all-files); }

if said="$(try 2>&1)"; then echo "FAIL: the hook lets it through: $said" >&2; exit 1; fi
case "$said" in *"train.py:7:9: error [collective-under-rank-condition]"*) ;; *) echo "FAIL: $said" >&2; exit 1 ;; esac
echo "ok: the hook stops a collective that one rank alone calls"
# shellcheck disable=SC2059
printf "$code" '    dist.barrier()' >"$dir/project/train.py"
commit "$dir/project"
said="$(try 2>&1)" || { echo "FAIL: $said" >&2; exit 1; }
case "$said" in *Passed*) ;; *) echo "FAIL: $said" >&2; exit 1 ;; esac
echo "ok: the mended project passes ($("$pre_commit" --version))"
