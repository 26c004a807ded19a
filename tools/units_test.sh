#!/usr/bin/env bash
# Reads the units of deploy/ by `systemd-analyze verify`, with the program where they expect it.
#
#   tools/units_test.sh target/debug/ringleader
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
program="$(realpath "${1:?the program}")"
dir="$(mktemp -d)"
trap 'rm -rf "$dir"' EXIT
for unit in "$root"/deploy/ringleader.service "$root"/deploy/systemd/*; do
  sed "s|^ExecStart=/usr/bin/ringleader |ExecStart=$program |" "$unit" >"$dir/$(basename "$unit")"
done
# Manual pages are not installed here. Notes count as failures.
said="$(SYSTEMD_LOG_LEVEL=notice systemd-analyze verify --man=no --recursive-errors=yes "$dir"/*.service "$dir"/*.timer 2>&1)" || { echo "FAIL: $said" >&2; exit 1; }
[ -z "$said" ] || { echo "FAIL: $said" >&2; exit 1; }
echo "ok: $(cd "$dir" && echo *) ($(systemd-analyze --version | head -n 1))"
