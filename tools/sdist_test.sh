#!/usr/bin/env bash
# Unpacks the source distribution far from the repository, builds the wheel from it as pip would, without optimisation, and tests that
# wheel. Seconds and size.
#
#   tools/sdist_test.sh ringleader-0.1.0.tar.gz [PYTHON]
#
# CARGO_TARGET_DIR: a target folder to reuse compiled dependencies of.
set -euo pipefail
here="$(cd "$(dirname "$0")/.." && pwd)"
sdist="$(realpath "${1:?a source distribution}")"
python="${2:-python3}"
target="$(realpath -m "${CARGO_TARGET_DIR:-$here/target}")"
dir="$(mktemp -d)"
trap 'rm -rf "$dir"' EXIT
tar -xzf "$sdist" -C "$dir" --strip-components 1
start=$SECONDS
"$python" -m venv "$dir/.venv"
# What its pyproject.toml asks for to be built.
"$dir/.venv/bin/pip" install -q --disable-pip-version-check 'maturin>=1.7,<2'
# The lock file names packages of the repository that are not in the distribution, so cargo drops lines from it: as pip lets it. It
# adds none.
cp "$dir/Cargo.lock" "$dir/Cargo.lock.given"
(cd "$dir" && PATH="$dir/.venv/bin:$PATH" CARGO_TARGET_DIR="$target" maturin build --profile dev --compatibility linux --out wheels >/dev/null)
python3 - "$dir/Cargo.lock.given" "$dir/Cargo.lock" <<'PY'
import re, sys
given, used = (set(re.findall(r'name = "(.+)"\nversion = "(.+)"', open(path).read())) for path in sys.argv[1:])
assert used and used <= given, used - given
PY
echo "ok: a wheel from $(stat -c %s "$sdist") bytes of source in $((SECONDS - start)) s"
"$here/tools/wheel_test.sh" "$dir"/wheels/*.whl "$python"
