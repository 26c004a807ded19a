#!/usr/bin/env bash
# Installs an artefact into a fresh root and makes the first diagnosis there. Prints seconds and sizes. Needs root (chroot). An
# artefact for aarch64 runs by tools/arm64.sh.
#
#   tools/root_test.sh ARTEFACT [ROOT]
#
# ARTEFACT: a .tar.gz, an .oci.tar, a .deb, or a .rpm. Without ROOT the root is empty: evidence, and what is in the artefact; only
# a static program runs there. ROOT: a folder, of which this takes a copy, or the name of a Debian suite, such as bullseye (glibc 2.31),
# which debootstrap makes once and keeps in target/dist-roots. For aarch64 debootstrap only unpacks the packages.
set -euo pipefail
here="$(cd "$(dirname "$0")/.." && pwd)"
artefact="$(realpath "${1:?an artefact}")"
tools="${DIST_TOOLS:-$here/target/dist-tools}"

foreign=()
case "$artefact" in *aarch64* | *arm64*) [ "$(uname -m)" = aarch64 ] || foreign=(--foreign --arch arm64) ;; esac

# Where this machine's packages come from.
suite() {
  local dir="$here/target/dist-roots/$1${foreign:+-arm64}" mirror debootstrap=debootstrap
  if [ ! -d "$dir" ]; then
    # shellcheck disable=SC2016  # apt's own variables
    mirror="$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | head -n 1)"
    if ! command -v debootstrap >/dev/null; then
      debootstrap="$tools/root/usr/sbin/debootstrap"
      export DEBOOTSTRAP_DIR="$tools/root/usr/share/debootstrap"
    fi
    mkdir -p "$dir.new"
    "$debootstrap" --variant=minbase "${foreign[@]}" "$1" "$dir.new" "$mirror" >"$dir.log" 2>&1 || { tail -n 5 "$dir.log" >&2; exit 1; }
    mv "$dir.new" "$dir"
  fi
  echo "$dir"
}

from="${2:-}"
[ -z "$from" ] || [ -d "$from" ] || from="$(suite "$from")"
# Not before the suite: debootstrap makes devices, which a user namespace may not.
if [ ${#foreign[@]} -gt 0 ] && [ -z "${ARM64_QEMU:-}" ]; then
  exec "$here/tools/arm64.sh" "$0" "$artefact" ${from:+"$from"}
fi

root="$(mktemp -d)"
trap 'rm -rf "$root"' EXIT
# Owners other than root and devices are none of the user namespace's.
if [ -n "$from" ]; then tar -C "$from" --exclude ./dev -cf - . | tar -C "$root" --no-same-owner -xpf -; fi

start=$(date +%s%N)
case "$artefact" in
  *.oci.tar)
    layout="$root/.layout"
    mkdir "$layout"
    tar -xf "$artefact" -C "$layout"
    # index.json > manifest > layers, as any runtime follows them; each blob is what its name says.
    python3 - "$layout" "$root" <<'PY'
import hashlib, json, pathlib, subprocess, sys
layout, root = map(pathlib.Path, sys.argv[1:])
def blob(digest):
    path = layout / "blobs" / digest.replace(":", "/")
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest.split(":")[1], path
    return path
index = json.loads((layout / "index.json").read_text())
manifest = json.loads(blob(index["manifests"][0]["digest"]).read_text())
config = json.loads(blob(manifest["config"]["digest"]).read_text())
assert config["config"]["Entrypoint"] == ["/usr/bin/ringleader"], config
for layer in manifest["layers"]:
    subprocess.run(["tar", "-xzf", blob(layer["digest"]), "-C", root], check=True)
PY
    rm -rf "$layout"
    ;;
  *.tar.gz) tar -xzf "$artefact" -C "$root" --strip-components 1 ;;
  *.deb) dpkg-deb -x "$artefact" "$root" ;;
  *.rpm)
    # Lead, signature, header, then a compressed archive in the form of cpio: read here, so that no rpm is needed.
    python3 - "$artefact" "$root" <<'PY'
import gzip, pathlib, struct, sys
data, root = pathlib.Path(sys.argv[1]).read_bytes(), pathlib.Path(sys.argv[2])
at = 96
for _ in range(2):
    at = (at + 7) // 8 * 8
    magic, n_entries, n_bytes = struct.unpack(">4s4xII", data[at:at + 16])
    assert magic == b"\x8e\xad\xe8\x01", magic
    at += 16 + 16 * n_entries + n_bytes
data, at = gzip.decompress(data[at:]), 0
padded = lambda n: (n + 3) // 4 * 4
while True:
    fields = [int(data[at + 6 + 8 * i:at + 14 + 8 * i], 16) for i in range(13)]
    assert data[at:at + 6] in (b"070701", b"070702"), data[at:at + 6]
    mode, size, n_name = fields[1], fields[6], fields[11]
    name = data[at + 110:at + 109 + n_name].decode()
    at = padded(at + 110 + n_name)
    if name == "TRAILER!!!":
        break
    path = root / name.lstrip("./")
    if mode & 0o170000 == 0o100000:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data[at:at + size])
        path.chmod(mode & 0o7777)
    at = padded(at + size)
PY
    ;;
  *) echo "no way to install $artefact" >&2; exit 2 ;;
esac
inside() { (cd "$root" && find . -name "$1" -type f "${@:2}" | head -n 1 | sed 's/^\.//'); }
program="$(inside ringleader -perm -u+x)"
[ -n "$program" ] || { echo "no program in $artefact" >&2; exit 1; }
mkdir -p "$root/evidence" "$root/tmp"
cp "$here"/cases/skipped-allreduce/evidence/* "$root/evidence/"
# Nothing of this machine: no environment, no /proc. QEMU, where it runs, finds the root's own loader.
chroot="$(command -v chroot)"
run() { env -i PATH=/usr/bin:/bin "$chroot" "$root" "$program" "$@"; }
run --version
run diagnose --fail-on never /evidence >"$root/report.txt"
grep -q '^skipped-collective (hang, high confidence)' "$root/report.txt"
echo "ok: first diagnosis $((($(date +%s%N) - start) / 1000000)) ms after the start, artefact $(stat -c %s "$artefact") bytes, program $(stat -c %s "$root$program") bytes"
run version --verbose | sed 's/^/  /'
run explain xid 79 | grep -q 'fell off the bus'
run diagnose --fail-on never --html /report.html /evidence >/dev/null
[ -s "$root/report.html" ]
# A pipe into the program, and a machine on which nothing can be asked.
echo 'NCCL WARN Call to connect returned Connection refused' | run explain - >/dev/null
ended=""
for command in "check --quick" "collect -o /tmp/bundle.tar.zst" "watch --once --pid 1" "env --quiet" "bench" "diagnose --live"; do
  code=0
  # shellcheck disable=SC2086  # words
  run $command >"$root/said.txt" 2>&1 </dev/null || code=$?
  # 1 is a bug, above 100 a signal or a panic.
  if [ "$code" = 1 ] || [ "$code" -gt 100 ]; then
    echo "$command ended with $code, which is a bug" >&2
    cat "$root/said.txt" >&2
    exit 1
  fi
  ended="$ended, ${command%% *} with $code"
done
echo "ok: explain, --html; without /proc: ${ended#, }"
# The root's own loader takes the plugin into a program of the root's, as it would into a job.
plugin="$(inside libringleader_nccl.so)"
if [ -n "$plugin" ] && [ -x "$root/bin/sh" ]; then
  said="$(env -i "$chroot" "$root" /bin/sh -c "LD_PRELOAD='$plugin' /bin/true" 2>&1)"
  [ -z "$said" ] || { echo "$said" >&2; exit 1; }
  echo "ok: the plugin loads"
fi
