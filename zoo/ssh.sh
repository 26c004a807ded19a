#!/usr/bin/env bash
# Hosts with one real sshd each on loopback, for `ringleader check --hosts`.
#
#   apt-get install -y --no-install-recommends openssh-server openssh-client
#   zoo/ssh.sh start DIR PROGRAM   n1 and n2 have PROGRAM; n3 is dead (nothing listens); n4 is slow (every command
#                                  sleeps); n5 lacks the program; n6 rejects the key
#   ringleader check --ssh-config DIR/ssh_config --hosts 'n[1-6]' --node-deadline-secs 5
#   zoo/ssh.sh stop DIR
#
# Each host has its own keys, configuration, port and home. Reads and writes nothing of yours.
set -euo pipefail

verb="${1:?start or stop}"
dir="$(realpath -m "${2:?a folder}")"

start() {
  local program i port key_file extra
  program="$(realpath "$1")"
  local sshd
  sshd="$(command -v sshd || echo /usr/sbin/sshd)"
  for tool in "$sshd" ssh ssh-keygen; do
    command -v "$tool" >/dev/null || { echo "zoo/ssh.sh: $tool is not installed" >&2; exit 69; }
  done
  # sshd needs this empty folder when root runs it.
  if [ "$(id -u)" = 0 ]; then mkdir -p /run/sshd; fi
  mkdir -p "$dir/bin"
  ln -sf "$program" "$dir/bin/ringleader"
  ssh-keygen -q -t ed25519 -N '' -f "$dir/key"
  ssh-keygen -q -t ed25519 -N '' -f "$dir/host_key"
  cp "$dir/key.pub" "$dir/authorized_keys"
  : > "$dir/nobody"
  echo "zoo $(cat "$dir/host_key.pub")" > "$dir/known_hosts"
  : > "$dir/ssh_config"
  port=$((20000 + $$ % 20000))
  for i in 1 2 3 4 5 6; do
    mkdir -p "$dir/home$i"
    key_file="$dir/authorized_keys"
    extra="SetEnv HOME=$dir/home$i PATH=/usr/bin:/bin"
    case "$i" in
      1 | 2) extra="SetEnv HOME=$dir/home$i PATH=$dir/bin:/usr/bin:/bin" ;;
      4) extra="ForceCommand sleep 40" ;;
      6) key_file="$dir/nobody" ;;
    esac
    {
      echo "ListenAddress 127.0.0.1"
      echo "HostKey $dir/host_key"
      echo "PidFile $dir/pid$i"
      echo "AuthorizedKeysFile $key_file"
      echo "StrictModes no"
      echo "PermitRootLogin yes"
      echo "PasswordAuthentication no"
      echo "KbdInteractiveAuthentication no"
      echo "UsePAM no"
      echo "$extra"
    } > "$dir/sshd$i"
    if [ "$i" != 3 ]; then
      local tries=0
      until "$sshd" -f "$dir/sshd$i" -p "$port" -E "$dir/log$i" && sleep 0.1 && ! grep -qs 'Address already in use' "$dir/log$i"; do
        tries=$((tries + 1))
        [ "$tries" -lt 20 ] || { echo "zoo/ssh.sh: sshd does not start; see $dir/log$i" >&2; exit 1; }
        : > "$dir/log$i"
        port=$((port + 1))
      done
    fi
    {
      echo "Host n$i"
      # Port 1: nothing listens there.
      echo "  Port $([ "$i" = 3 ] && echo 1 || echo "$port")"
    } >> "$dir/ssh_config"
    port=$((port + 1))
  done
  {
    echo "Host *"
    echo "  HostName 127.0.0.1"
    echo "  User $(id -un)"
    echo "  IdentityFile $dir/key"
    echo "  IdentitiesOnly yes"
    echo "  UserKnownHostsFile $dir/known_hosts"
    echo "  GlobalKnownHostsFile /dev/null"
    echo "  HostKeyAlias zoo"
    echo "  StrictHostKeyChecking yes"
  } >> "$dir/ssh_config"
}

stop() {
  local file pid
  for file in "$dir"/pid?; do
    [ -s "$file" ] || continue
    pid="$(cat "$file")"
    if grep -qs sshd "/proc/$pid/comm"; then kill -TERM "$pid"; fi
  done
}

case "$verb" in
  start) start "${3:?the program}" ;;
  stop) stop ;;
  *) echo "zoo/ssh.sh: no such verb: $verb" >&2; exit 64 ;;
esac
