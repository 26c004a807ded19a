#!/usr/bin/env bash
# Reads completions and manual pages, as `cargo xtask dist extras` wrote them, by their shells and by mandoc; what is not here is said.
#
#   tools/extras_test.sh target/dist/extras
set -euo pipefail
extras="${1:?the folder}"
check() {
  local program="$1"
  shift
  if ! command -v "$program" >/dev/null; then echo "skipped: no $program"; return; fi
  "$program" "$@" || { echo "FAIL: $program $*" >&2; exit 1; }
  echo "ok: $program"
}
check bash -n "$extras/completions/ringleader.bash"
check zsh -n "$extras/completions/_ringleader"
check fish --no-execute "$extras/completions/ringleader.fish"
check mandoc -T lint -W error "$extras"/man/*.1
# Bash also completes: the commands, and the values of an option.
# shellcheck disable=SC1091
source "$extras/completions/ringleader.bash"
completes() {
  COMP_WORDS=("$@")
  COMP_CWORD=$(($# - 1))
  COMPREPLY=()
  _ringleader ringleader "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
  echo "${COMPREPLY[*]}"
}
[ "$(completes ringleader dia)" = diagnose ] || { echo "FAIL: bash completes 'dia' to: $(completes ringleader dia)" >&2; exit 1; }
case "$(completes ringleader diagnose --format "")" in *json*) ;; *) echo "FAIL: bash completes --format to: $(completes ringleader diagnose --format "")" >&2; exit 1 ;; esac
echo "ok: bash completes commands and values"
