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
(cd "$dir" && PATH="$dir/.venv/bin:$PATH" CARGO_TARGET_DIR="$target" maturin build --locked --profile dev --compatibility linux --out wheels >/dev/null)
echo "ok: a wheel from $(stat -c %s "$sdist") bytes of source in $((SECONDS - start)) s"
"$here/tools/wheel_test.sh" "$dir"/wheels/*.whl "$python"
