#!/usr/bin/env bash
# Puts the program where action.yml finds it. PROGRAM says which:
#   (empty)     the one on the PATH; if there is none, `cargo install` from the source that the action came with
#   source      from the source, also if one is on the PATH
#   a path, or an https:// address: the program itself, or a .tar.gz that holds it. SHA256 is compared, and an address needs it.
#
# What is built is kept below RUNNER_TOOL_CACHE by the sums of its source, so that a runner that stays builds each version once.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
program="${PROGRAM:-}"

fail() { echo "::error::ringleader: $*"; exit 1; }
# The rest of the action finds it there.
use() {
  [ -z "${GITHUB_PATH:-}" ] || echo "$1" >>"$GITHUB_PATH"
  "$1/ringleader" --version
}

from_source() {
  command -v cargo >/dev/null || fail "no ringleader on the PATH, and no cargo to build it with: install Rust (rustup toolchain install stable), or name a program"
  local sum place
  sum="$(cd "$root" && find Cargo.toml Cargo.lock crates -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-16)"
  place="${RUNNER_TOOL_CACHE:-$HOME/.cache}/ringleader/$sum"
  if [ ! -x "$place/bin/ringleader" ]; then
    echo "::group::cargo install ringleader (ten to fifteen minutes on two cores)"
    cargo install --locked --path "$root/crates/ringleader" --root "$place" --target-dir "${RUNNER_TEMP:-/tmp}/ringleader-build" || fail "cargo could not build it: Rust $(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml") or later, and a C compiler?"
    rm -rf "${RUNNER_TEMP:-/tmp}/ringleader-build"
    echo "::endgroup::"
  fi
  use "$place/bin"
}

given() {
  local place file="$1"
  place="$(mktemp -d "${RUNNER_TEMP:-/tmp}/ringleader-XXXXXX")"
  case "$file" in
    https://*)
      [ -n "${SHA256:-}" ] || fail "an address needs the input sha256"
      curl -fsSL --proto '=https' --retry 3 -o "$place/fetched" "$file" || fail "$file cannot be fetched"
      ;;
    *://*) fail "only https:// addresses are fetched" ;;
    *)
      [ -f "$file" ] || fail "$file is not there"
      cp "$file" "$place/fetched"
      ;;
  esac
  if [ -n "${SHA256:-}" ]; then
    echo "$SHA256  $place/fetched" | sha256sum --check --status || fail "$file has another sum than the input sha256"
  fi
  if tar -tzf "$place/fetched" >/dev/null 2>&1; then
    mkdir "$place/all" && tar -xzf "$place/fetched" -C "$place/all" --no-same-owner
    file="$(find "$place/all" -type f -name ringleader -perm -u+x | head -n 1)"
    [ -n "$file" ] || fail "the archive holds no program ringleader"
  else
    file="$place/fetched"
  fi
  mkdir "$place/bin"
  install -m755 "$file" "$place/bin/ringleader"
  use "$place/bin"
}

case "$program" in
  '')
    if command -v ringleader >/dev/null; then
      ringleader --version
    else
      from_source
    fi
    ;;
  source) from_source ;;
  *) given "$program" ;;
esac
