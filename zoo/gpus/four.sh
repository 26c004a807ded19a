#!/bin/bash
# All that a machine with four GPUs or more can show, in one go: four.sh RINGLEADER PLUGIN SOURCES OUT [PART...]
#
# SOURCES holds nccl-tests.tar.xz and profiler.tar.xz (NCCL's folder plugins/profiler), public source that is built here and not kept.
# PARTS: verify, faults, nodes, inject, second, trace, bench, overhead; all without any. What needs the GPUs for itself (verify, trace,
# bench, overhead) runs alone; the others, which mostly wait for programs to start, run at the same time. BUDGET: seconds for everything.
# PYTHON: one with PyTorch. Nothing is downloaded, no setting of a GPU is changed. OUT gets results.tgz and the recordings.
set -u
[ $# -ge 4 ] || { sed -n 2,7p "$0"; exit 2; }
ringleader=$(realpath "$1") plugin=$(realpath "$2") sources=$(realpath "$3")
mkdir -p "$4"
kept=$(realpath "$4")
shift 4
parts=" ${*:-verify faults nodes inject second trace bench overhead} "
zoo=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
budget=${BUDGET:-330}
gpus=$(nvidia-smi -L | wc -l)
ranks=${RANKS:-$gpus}
work=$(mktemp -d /tmp/four.XXXXXX)
out=$work/results
mkdir -p "$out"
export PYTHONUNBUFFERED=1 NCCL_NVLS_ENABLE=0 ZOO_FOUR=$$
[ -x /usr/local/cuda/bin/nvcc ] || ! command -v nvcc > /dev/null || CUDA_HOME=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
export CUDA_HOME=${CUDA_HOME:-/usr/local/cuda}
export PATH=$PATH:$CUDA_HOME/bin

has() { [[ $parts == *" $1 "* ]]; }
left() { echo $((budget - SECONDS)); }
say() { printf '[%4d] %s\n' "$SECONDS" "$*"; }

# part NAME MOST COMMAND...: at most MOST seconds and what is left of all; its output in NAME.log, its times on the screen.
part() {
    local name=$1 most=$2 begin=$SECONDS
    shift 2
    [ "$(left)" -gt 5 ] || { say "$name: no time left"; return; }
    [ "$most" -lt "$(left)" ] || most=$(left)
    say "$name starts, at most $most s"
    timeout -k 5 "$most" "$@" > "$out/$name.log" 2>&1 < /dev/null
    say "$name ended with $? after $((SECONDS - begin)) s"
}

# What a part left behind: processes of this script's marker, but for those of the recordings that still wait.
sweep() {
    local pid words
    for pid in $(grep -lz "^ZOO_FOUR=$1\$" /proc/[0-9]*/environ 2> /dev/null | tr -dc '0-9\n'); do
        words=$(cat "/proc/$pid/cmdline" 2> /dev/null | tr '\0' ' ' | cut -c1-100)
        # One that is ending has no command any more.
        [ -n "$words" ] && kill -KILL "$pid" 2> /dev/null && say "left behind: $pid $words"
    done
}

keep() { tar -C "$work" --exclude='*.rings' --exclude='trace/*' -czf "$kept/results.tgz" results; }
show() { echo "--- $1"; tail -n "$2" "$out/$1.log" 2> /dev/null | cut -c1-260; }

build() {
    local nccl
    nccl=$("$python" -c 'import nvidia.nccl as n; print(list(n.__path__)[0])') || return
    mkdir -p "$work/nccl/lib"
    ln -sfn "$nccl/include" "$work/nccl/include"
    ln -sf "$nccl/lib/libnccl.so.2" "$work/nccl/lib/libnccl.so"
    ln -sf "$nccl/lib/libnccl.so.2" "$work/nccl/lib/libnccl.so.2"
    for source in nccl-tests profiler; do tar -C "$work" -xf "$sources/$source.tar.xz"; done
    if has bench; then
        part build-tests 100 make -C "$work/nccl-tests" -j "$(nproc)" MPI=0 NCCL_HOME="$work/nccl" \
            NVCC_GENCODE="-gencode=arch=compute_90,code=sm_90" \
            BIN_FILES_LIST="all_reduce all_gather reduce_scatter alltoall sendrecv broadcast reduce" &
    fi
    if has second || has overhead; then
        part build-profilers 100 "$python" "$zoo/overhead/overhead.py" --plugin "$plugin" --nccl-source "$work/profiler" \
            --built "$work/overhead" --only-build --ranks "$ranks" &
    fi
    wait
}

machine() {
    date -u; uname -r; nproc; nvidia-smi --query-gpu=index,name,driver_version,memory.total --format=csv,noheader
    nvidia-smi topo -m; "$ringleader" version 2>&1 | head -3; command -v ip nsenter unshare nvcc g++; ls -l /dev/net/tun; ls /proc/modules
    "$python" -c 'import torch; print("torch", torch.__version__, "nccl", ".".join(map(str, torch.cuda.nccl.version())))'
}

machine > "$out/machine.log" 2>&1 &
build &
building=$!
if has verify; then
    part verify 80 "$ringleader" verify --for "${VERIFY:-60s}"
    show verify 12
    keep
fi
wait $building && say "built" || say "a build failed: see build-tests.log and build-profilers.log"

# At the same time: what waits for starts more than for GPUs.
others=()
if has trace; then
    mkdir -p "$work/trace"
    ZOO_FOUR=$$-trace part trace $(($(left) > 200 ? 200 : $(left))) "$python" "$zoo/trace/four_gpus.py" "$work/trace" --ringleader "$ringleader" \
        --ranks "$ranks" --wait --start 90 --budget 45 &
    tracing=$!
fi
if has faults; then
    part faults 108 "$python" "$zoo/run/faults.py" --ringleader "$ringleader" --python "$python" --backend "${BACKEND:-nccl}" \
        --ranks "$ranks" --seeds 1 --seed 22 --parallel 7 --silence 6 --deadline 92 --out "$out/faults.json" \
        --journals "$out/faults-journals.tgz" \
        --only "${FAULTS:-kill,torn,exception-again,early-exit,assert,illegal,shape-again}" &
    others+=($!)
fi
if has nodes; then
    mkdir -p "$work/nodes"
    for scene in lost lost-spare; do
        TMPDIR=$work/nodes part "nodes-$scene" 118 "$python" "$zoo/run/torchrun_nodes.py" --ringleader "$ringleader" --python "$python" --hub dir --network auto \
            --backend "${BACKEND:-nccl}" --gpus "$gpus" --only $scene --steps 160 --silence 10 --lost-after 10 --limit 90 \
            --out "$out/nodes-$scene.json" &
        others+=($!)
    done
fi
if has inject; then
    part inject 95 "$python" "$zoo/gpus/inject.py" "$ringleader" --gpus "$gpus" --seconds 88 --lanes 2 --full gpu:2,link:1-3,memory:3 \
        --out "$out/inject.json" &
    others+=($!)
fi
if has second; then
    part second 95 "$python" "$zoo/second.py" --ringleader "$ringleader" --plugin "$plugin" \
        --inspector "$work/overhead/libnccl-profiler-inspector.so" --ranks "$ranks" --away 1 --at-once &
    others+=($!)
fi
[ ${#others[@]} = 0 ] || wait "${others[@]}"
sweep $$
for name in faults nodes-lost nodes-lost-spare inject second; do [ ! -e "$out/$name.log" ] || show $name 34; done
# What is left of scenes that did not end as they should.
[ ! -d "$work/nodes" ] || (cd "$work/nodes" && find . \( -name 'said*' -o -name '*.jsonl' -o -name 'out*' \) -size -2M -print0 |
    tar --null -czf "$out/nodes-left.tgz" -T -)
keep

if has trace; then
    say "recordings may begin"
    touch "$work/trace/go"
    wait $tracing
    sweep $$-trace
    show trace 22
    mkdir -p "$out/trace-logs"
    cp "$work"/trace/*.log "$out/trace-logs/" 2> /dev/null
    keep
fi
if has bench; then
    libraries=$work/nccl/lib:$CUDA_HOME/lib64:${LD_LIBRARY_PATH:-}
    TOGETHER=1 VERDICTS=0 LD_LIBRARY_PATH=$libraries part bench 125 bash "$zoo/gpus/bench.sh" "$ringleader" "$work/nccl-tests/build" "$out/bench" "${MIN:-16}" "${MAX:-4G}" \
        "${FACTOR:-4}" "${TURNS:-2}"
    show bench 4
    part compare 20 "$python" "$zoo/gpus/compare.py" "$out/bench" --within 1
    grep -E ' (67108864|268435456|1073741824|4294967296) |64 MiB| MiB:' "$out/compare.log"
    keep
fi
if has overhead; then
    part overhead 65 "$python" "$zoo/overhead/overhead.py" --plugin "$plugin" --built "$work/overhead" --ranks "$ranks" --small --processes 2 \
        --rounds 12 --ddp-processes 2 --ddp-rounds 12 --seconds $(($(left) > 63 ? 58 : $(left) - 5)) --limit 30 --out "$out/overhead.json"
    show overhead 40
    keep
fi
if has trace; then
    saved=("$out"/bench/all.save.*)
    if [ -e "${saved[0]}" ]; then
        part score-with-baseline 20 "$python" "$zoo/trace/score.py" "$work/trace/plants" --ringleader "$ringleader" --baseline "${saved[0]}"
        show score-with-baseline 8
    fi
    # Beyond the budget if it must: only processors work.
    budget=$((SECONDS + 30))
    part pack 30 "$python" "$zoo/trace/four_gpus.py" "$work/trace" --ringleader "$ringleader" --pack "$kept"
fi
sweep $$
nvidia-smi --query-compute-apps=pid --format=csv,noheader
keep
rm -rf "$work"
say "done"
ls -l "$kept"
