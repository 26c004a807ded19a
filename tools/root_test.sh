#!/usr/bin/env bash
# Installs an artefact into a fresh root and makes the first diagnosis there. Prints seconds and sizes. Needs root (chroot).
#
#   tools/root_test.sh ARTEFACT [ROOT]
#
# ARTEFACT: a .tar.gz or .oci.tar with the static program, a .deb, or a .rpm. Without ROOT the root is empty: evidence, and what
# is in the artefact. With ROOT (such as one that debootstrap made) it is a copy of that.
set -euo pipefail
here="$(cd "$(dirname "$0")/.." && pwd)"
artefact="$(realpath "${1:?an artefact}")"
root="$(mktemp -d)"
trap 'rm -rf "$root"' EXIT
[ $# -lt 2 ] || cp -a "$2/." "$root"

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
  *.rpm) (cd "$root" && rpm2cpio "$artefact" | cpio -idm --quiet) ;;
  *) echo "no way to install $artefact" >&2; exit 2 ;;
esac
program="$(cd "$root" && find . -name ringleader -type f -perm -u+x | head -n 1)"
[ -n "$program" ] || { echo "no program in $artefact" >&2; exit 1; }
program="${program#.}"
mkdir -p "$root/evidence"
cp "$here"/cases/skipped-allreduce/evidence/* "$root/evidence/"
# Nothing of this machine: no environment, no /proc.
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
code=0
run check --quick >"$root/check.txt" 2>&1 || code=$?
[ "$code" != 1 ] || { echo "check ended with 1, which is a bug" >&2; cat "$root/check.txt" >&2; exit 1; }
echo "ok: explain, --html, and check (ended with $code) without /proc"
