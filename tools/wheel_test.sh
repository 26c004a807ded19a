#!/usr/bin/env bash
# Installs a wheel without a network into a fresh environment of each Python that is named, and diagnoses a recorded job with it: by
# the program, by `python -m ringleader` and by the function. Seconds of each. Where uv is, by `uvx`, too.
#
#   tools/wheel_test.sh ringleader-0.1.0-….whl python3.8 python3.13 …
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
wheel="$(realpath "${1:?a wheel}")"
shift
for python in "$@"; do
  command -v "$python" >/dev/null || { echo "skipped: no $python"; continue; }
  dir="$(mktemp -d)"
  start=$(date +%s%N)
  "$python" -m venv "$dir/venv"
  "$dir/venv/bin/pip" install -q --no-index --disable-pip-version-check "$wheel"
  (
    cd "$dir"
    # No Rust, no repository and no plugin of another installation.
    export PATH="$dir/venv/bin:/usr/bin:/bin" HOME="$dir"
    unset VIRTUAL_ENV PYTHONPATH RINGLEADER_PLUGIN
    ringleader --version >/dev/null
    ringleader diagnose --fail-on never "$root/cases/skipped-allreduce/evidence" | grep -q '^skipped-collective'
    python -m ringleader explain xid 79 | grep -q 'fell off the bus'
    python - "$root/cases/skipped-allreduce/evidence" <<'PY'
import sys
import ringleader
report = ringleader.diagnose(sys.argv[1])
assert report["schema"] == "ringleader.report.v1", report["schema"]
assert report["verdict"]["cause"] == "skipped-collective", report["verdict"]["cause"]
assert report["verdict"]["culprits"][0]["rank"] == 2
try:
    ringleader.diagnose("/nonexistent")
except ringleader.RingleaderError as error:
    assert error.code == 2, error.code
else:
    raise AssertionError("a path that does not exist gave a report")
PY
    # Where the wheel brings the plugin, the program finds it and the loader takes it.
    if python -c 'import ringleader, sys; sys.exit(ringleader.plugin() is None)'; then
      python -c 'import ctypes, ringleader; ctypes.CDLL(ringleader.plugin())'
      ringleader env --quiet --format json | grep -q libringleader_nccl.so
      echo "  with the plugin"
    fi
  )
  echo "ok: $("$python" --version 2>&1), $(((($(date +%s%N) - start)) / 1000000)) ms"
  rm -rf "$dir"
done

uvx="$(command -v uvx || echo "${DIST_TOOLS:-$root/target/dist-tools}/venv/bin/uvx")"
# A Python for aarch64 is one that uv does not look for.
if [ -x "$uvx" ] && [[ "$wheel" != *_aarch64.whl ]]; then
  start=$(date +%s%N)
  cache="$(mktemp -d)"
  UV_CACHE_DIR="$cache" "$uvx" --quiet --offline --python /usr/bin/python3 --from "$wheel" ringleader diagnose --fail-on never "$root/cases/skipped-allreduce/evidence" \
    | grep -q '^skipped-collective'
  rm -rf "$cache"
  echo "ok: uvx, $(((($(date +%s%N) - start)) / 1000000)) ms"
fi
