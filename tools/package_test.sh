#!/usr/bin/env bash
# Installs a .deb or a .rpm with its own package manager into a root, makes the first diagnosis with what was installed, and removes it
# again. Prints seconds. Needs root (chroot), dpkg or rpm, and the artefact for this machine.
#
#   tools/package_test.sh ARTEFACT [ROOT]
#
# ROOT: a folder, of which this takes a copy; else the Debian suite of this machine, which debootstrap makes once and keeps in
# target/dist-roots. dpkg checks what the package depends on against that root. No source of packages here has a root of RPM's: there the
# C library of the root is Debian's, so the test asks rpm for what it misses, which must be glibc alone, and installs without it.
set -euo pipefail
here="$(cd "$(dirname "$0")/.." && pwd)"
artefact="$(realpath "${1:?a .deb or a .rpm}")"
fail() { echo "FAIL: $*" >&2; exit 1; }

from="${2:-}"
if [ -z "$from" ]; then
  # shellcheck disable=SC1091
  suite="$(. /etc/os-release && echo "$VERSION_CODENAME")"
  from="$here/target/dist-roots/$suite"
  if [ ! -d "$from" ]; then
    # shellcheck disable=SC2016  # apt's own variables
    mirror="$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | head -n 1)"
    mkdir -p "$from.new"
    debootstrap --variant=minbase "$suite" "$from.new" "$mirror" >"$from.log" 2>&1 || { tail -n 5 "$from.log" >&2; exit 1; }
    mv "$from.new" "$from"
  fi
fi
root="$(mktemp -d)"
trap 'rm -rf "$root"' EXIT
tar -C "$from" --exclude ./dev -cf - . | tar -C "$root" -xpf -
[ ! -e "$root/usr/bin/ringleader" ] || fail "the root has a ringleader already"

start=$(date +%s%N)
passed() { echo $((($(date +%s%N) - start) / 1000000)); }
case "$artefact" in
  *.deb)
    dpkg --root="$root" --install "$artefact" >"$root/said.txt" 2>&1 || fail "$(cat "$root/said.txt")"
    listed() { dpkg --root="$root" --listfiles ringleader; }
    [ "$(dpkg-query --admindir="$root/var/lib/dpkg" -W -f '${Status}' ringleader)" = "install ok installed" ] || fail "dpkg does not call it installed"
    remove() { dpkg --root="$root" --remove ringleader >/dev/null 2>&1; }
    ;;
  *.rpm)
    rpm --root "$root" --initdb
    missing="$(rpm --root "$root" --install "$artefact" 2>&1 | sed -n 's/^\t\(.*\) is needed by .*/\1/p' || true)"
    [ "$missing" = "glibc >= 2.28" ] || fail "rpm misses: $missing"
    rpm --root "$root" --install --nodeps "$artefact"
    listed() { rpm --root "$root" --query --list ringleader; }
    rpm --root "$root" --verify --nodeps ringleader || fail "rpm --verify"
    remove() { rpm --root "$root" --erase ringleader; }
    ;;
  *) echo "no way to install $artefact" >&2; exit 2 ;;
esac
installed=$(passed)
mkdir -p "$root/evidence"
cp "$here"/cases/skipped-allreduce/evidence/* "$root/evidence/"
chroot="$(command -v chroot)"
# With a /proc, as an installed program has: by it the program finds the plugin.
# shellcheck disable=SC2016  # of the inner shell
run() { unshare --mount --pid --fork sh -c 'mount -t proc proc "$1/proc"; exec env -i PATH=/usr/bin:/bin "$0" "$@"' "$chroot" "$root" "$@"; }
run ringleader diagnose --fail-on never /evidence >"$root/report.txt"
grep -q '^skipped-collective (hang, high confidence)' "$root/report.txt" || fail "$(cat "$root/report.txt")"
echo "ok: $(basename "$artefact"), $(stat -c %s "$artefact") bytes: installed after $installed ms, first diagnosis after $(passed) ms"
run ringleader version --verbose | grep -q '/usr/lib/ringleader/libringleader_nccl.so' || fail "the program does not find the plugin of its package"
for path in /usr/share/man/man1/ringleader.1 /usr/share/bash-completion/completions/ringleader /usr/lib/systemd/system/ringleader.service \
  /usr/share/doc/ringleader/LICENSE-MIT /usr/share/doc/ringleader/deploy/prometheus/rules.yml; do
  listed | grep -qx "$path" || fail "$path is not in the package"
done
n_files=$(listed | wc -l)
remove || fail "it cannot be removed"
left="$(cd "$root" && find . -name '*ringleader*' -not -path './var/lib/*' | head -n 3)"
[ -z "$left" ] || fail "left behind: $left"
echo "ok: the plugin is found, $n_files paths are listed, and removing leaves none"
