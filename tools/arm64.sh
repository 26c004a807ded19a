#!/usr/bin/env bash
# Runs a command where programs for aarch64 run, too: QEMU's user emulation takes them, also those that other programs start. The
# kernel's rule for that (binfmt_misc) stands in a user namespace of its own, so that nothing on the machine changes. Needs Linux 6.7
# and tools/dist-tools.sh.
#
#   tools/arm64.sh COMMAND…
#
# DIST_TOOLS: where the tools are, if not in target/dist-tools.
set -euo pipefail
tools="$(realpath "${DIST_TOOLS:-$(dirname "$0")/../target/dist-tools}")"
export ARM64_QEMU="$tools/root/usr/bin/qemu-aarch64-static"
[ -x "$ARM64_QEMU" ] || { echo "there is no $ARM64_QEMU: tools/dist-tools.sh" >&2; exit 1; }
# Its loader and C library.
export QEMU_LD_PREFIX="$tools/arm64"
# Tests that compile a library for a program under test find a compiler for aarch64.
export PATH="$tools/arm64-bin:$PATH"
# shellcheck disable=SC2016  # for the inner shell
exec unshare --user --map-root-user --mount -- bash -c '
  set -e
  rules=/proc/sys/fs/binfmt_misc
  mount -t binfmt_misc none "$rules"
  # An ELF file of 64 bits, little-endian, a program or a shared object, for machine 183.
  printf "%s" ":aarch64:M::\\x7fELF\\x02\\x01\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02\\x00\\xb7\\x00:\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x00\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xfe\\xff\\xff\\xff:$ARM64_QEMU:F" >"$rules/register"
  exec "$@"' arm64 "$@"
