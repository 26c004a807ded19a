#!/usr/bin/env bash
# A Slurm cluster of network namespaces on one machine, from Debian's packages, for `ringleader check --slurm`.
#
#   apt-get install -y --no-install-recommends slurmctld slurmd slurm-client munge
#   zoo/slurm.sh start DIR [N]     controller and N nodes (5), state under DIR; needs root
#   zoo/slurm.sh in DIR COMMAND…   runs a command where srun and squeue work
#   zoo/slurm.sh job DIR [N]       starts a job on N nodes, prints its id
#   zoo/slurm.sh kill DIR NODE     ends the slurmd of a node: a dead node
#   zoo/slurm.sh hang DIR NODE     stops the slurmd of a node: it accepts connections and never answers
#   zoo/slurm.sh stop DIR          ends everything it started
#
# Each node is a network namespace with its own host name (10.97.0.N on a bridge in the namespace of the controller).
# Nothing is reachable from outside, and nothing outside changes. No cgroups: the nodes share a kernel.
set -euo pipefail

verb="${1:?start, in, job, kill, hang or stop}"
dir="$(realpath -m "${2:?a folder}")"
shift 2
export SLURM_CONF="$dir/slurm.conf"
# Namespace names contain the folder's hash, so that two clusters do not collide.
tag="rl$(printf %s "$dir" | cksum | cut -d' ' -f1)"

# Not `ip netns exec`, which hides the mounts below /sys, where slurmd looks for cgroups.
in_space() { local space="$1"; shift; nsenter --net="/run/netns/$tag-$space" "$@"; }
in_hub() { in_space hub "$@"; }

start() {
  local n="${1:-5}" i
  for program in slurmctld slurmd srun munged ip nsenter unshare; do
    command -v "$program" >/dev/null || { echo "zoo/slurm.sh: $program is not installed" >&2; exit 69; }
  done
  mkdir -p "$dir/state" "$dir/log" "$dir/pid"
  chmod 755 "$dir"
  head -c 1024 /dev/urandom > "$dir/munge.key"
  chmod 400 "$dir/munge.key"

  ip netns add "$tag-hub"
  in_hub ip link set lo up
  in_hub ip link add br0 type bridge
  in_hub ip addr add 10.97.0.254/24 dev br0
  in_hub ip link set br0 up

  {
    echo "ClusterName=zoo"
    echo "SlurmctldHost=hub(10.97.0.254)"
    echo "SlurmUser=root"
    echo "SlurmdUser=root"
    echo "AuthType=auth/munge"
    echo "AuthInfo=socket=$dir/munge.sock"
    echo "CredType=cred/munge"
    echo "StateSaveLocation=$dir/state"
    echo "SlurmctldPidFile=$dir/pid/slurmctld"
    echo "SlurmctldLogFile=$dir/log/slurmctld"
    echo "SlurmdSpoolDir=$dir/spool-%n"
    echo "SlurmdPidFile=$dir/pid/slurmd-%n"
    echo "SlurmdLogFile=$dir/log/slurmd-%n"
    echo "ProctrackType=proctrack/linuxproc"
    echo "TaskPlugin=task/none"
    echo "JobAcctGatherType=jobacct_gather/none"
    echo "SelectType=select/cons_tres"
    echo "SelectTypeParameters=CR_Core"
    echo "SlurmdParameters=config_overrides"
    echo "SwitchType=switch/none"
    echo "MpiDefault=none"
    echo "ReturnToService=2"
    # Slurm still considers a dead node as up: that is the situation to test.
    echo "SlurmdTimeout=3600"
    echo "MessageTimeout=10"
    # GPUs by name alone, as many as asked for.
    if [ -n "${ZOO_SLURM_GPUS:-}" ]; then
      echo "GresTypes=gpu"
      gres="Gres=gpu:$ZOO_SLURM_GPUS "
      for i in $(seq 0 $((ZOO_SLURM_GPUS - 1))); do : > "$dir/gpu$i"; done
      echo "NodeName=n[1-$n] Name=gpu File=$dir/gpu[0-$((ZOO_SLURM_GPUS - 1))]" > "$dir/gres.conf"
    fi
    echo "NodeName=n[1-$n] NodeAddr=10.97.0.[1-$n] CPUs=2 RealMemory=1000 ${gres:-}State=UNKNOWN"
    echo "PartitionName=zoo Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
    # More lines of configuration: prologs and epilogs, by deploy/slurm/test.sh.
    if [ -n "${ZOO_SLURM_MORE:-}" ]; then printf '%s\n' "$ZOO_SLURM_MORE"; fi
  } > "$SLURM_CONF"
  echo "CgroupAutomount=no" > "$dir/cgroup.conf"

  munged --force --key-file="$dir/munge.key" --socket="$dir/munge.sock" --pid-file="$dir/pid/munged" \
    --log-file="$dir/log/munged" --seed-file="$dir/munge.seed" --num-threads=2
  in_hub unshare --uts sh -c 'hostname hub; exec "$@"' - slurmctld -f "$SLURM_CONF" -c

  for i in $(seq "$n"); do
    ip netns add "$tag-n$i"
    ip -n "$tag-hub" link add "v$i" type veth peer name eth0 netns "$tag-n$i"
    ip -n "$tag-hub" link set "v$i" master br0 up
    ip -n "$tag-n$i" addr add "10.97.0.$i/24" dev eth0
    ip -n "$tag-n$i" link set eth0 up
    ip -n "$tag-n$i" link set lo up
    in_space "n$i" unshare --uts sh -c 'hostname "$1"; shift; exec "$@"' - "n$i" \
      slurmd -f "$SLURM_CONF"
  done
  for _ in $(seq 60); do
    [ "$(in_hub sinfo -h -N -o %T 2>/dev/null | grep -c '^idle$' || true)" = "$n" ] && return
    sleep 0.5
  done
  echo "zoo/slurm.sh: the nodes did not come up; see $dir/log" >&2
  in_hub sinfo -N -o '%N %T %E' >&2 || true
  exit 1
}

stop() {
  # Only our own processes, by recorded pid; jobs end with the step daemons of their node.
  in_hub scancel --state=RUNNING --user=root 2>/dev/null || true
  sleep 1
  local file pid name
  for file in "$dir"/pid/*; do
    [ -s "$file" ] || continue
    pid="$(cat "$file")"
    name="$(basename "$file")"
    if grep -qs "${name%%-*}" "/proc/$pid/comm"; then
      kill -CONT "$pid"
      kill -TERM "$pid"
    fi
  done
  sleep 1
  local space
  for space in $(ip netns list | cut -d' ' -f1 | grep "^$tag-" || true); do
    # Step daemons and their tasks run only in the namespaces created here.
    for pid in $(ip netns pids "$space"); do kill -KILL "$pid" 2>/dev/null || true; done
    ip netns delete "$space"
  done
}

case "$verb" in
  start) start "$@" ;;
  in) in_hub unshare --uts sh -c 'hostname hub; exec "$@"' - "$@" ;;
  job) in_hub sbatch --parsable -D / -o /dev/null -N "${1:-5}" --wrap 'sleep 3600' ;;
  kill) kill -TERM "$(cat "$dir/pid/slurmd-$1")" ;;
  hang) kill -STOP "$(cat "$dir/pid/slurmd-$1")" ;;
  stop) stop ;;
  *) echo "zoo/slurm.sh: no such verb: $verb" >&2; exit 64 ;;
esac
