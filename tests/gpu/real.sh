#!/usr/bin/env bash
# Checks the GPU side of Airlock on a machine that has a GPU, in less than 8 minutes, and prints one table. What cannot
# be tried here is named as skipped; without a GPU that is nearly all. The status is 0 if nothing failed.
#
#   tests/gpu/real.sh
#
#   AIRLOCK_BIN   the command (default: the build's, release before debug)
#   CUDA_PROGRAM  tests/gpu/cuda.c as a program, where there is no C compiler
#   PYTHON        a Python with PyTorch (default: python3)
set -uo pipefail
cd "$(dirname "$0")"
build=../../target/x86_64-unknown-linux-gnu
airlock=${AIRLOCK_BIN:-$(ls -d $build/release/airlock $build/debug/airlock 2>/dev/null | head -1)}
python=${PYTHON:-python3}
place=$(mktemp -d /tmp/airlock-real.XXXXXX)
chmod 755 "$place"
trap 'rm -rf "$place"' EXIT
table=$place/table failed=0 started=$SECONDS
flags=()

row() { printf '%-10s %-44s %s\n' "$1" "$2" "$3" | tee -a "$table" >&2; [ "$1" != FAILED ] || failed=1; }
ok() { row ok "$@"; }
skip() { row skipped "$@"; }
bad() { row FAILED "$@"; }
# last LINES-OF-OUTPUT: the last one that says something.
last() { printf '%s' "$1" | grep -v '^ *$' | tail -1 | cut -c1-300; }
limited() { timeout -k 5 "$@"; }
# inside GPUS COMMAND...: in a sandbox, with the programs of this check at /check.
inside() { local gpus=$1; shift; limited 90 "$airlock" run "${flags[@]}" --gpus "$gpus" --mount "$place:/check:exec" \
    --report "$place.report" -- "$@"; }
# field NAME: a number of the first GPU in the last end report.
field() { sed -n "s/^ *\"$1\": \([0-9.]*\),*$/\1/p" "$place.report" 2>/dev/null | head -1; }
trap 'rm -rf "$place" "$place.report"' EXIT

finish() {
    printf '\n== %s s\n' $((SECONDS - started))
    cat "$table"
    exit $failed
}

[ -x "$airlock" ] || { bad "the airlock command" "build it first, or set AIRLOCK_BIN"; finish; }

# 1. Discovery.
began=$(date +%s%N)
listed=$(limited 60 "$airlock" gpu list 2>&1); status=$?
took=$((($(date +%s%N) - began) / 1000000))
printf '%s\n' "$listed"
[ $status -eq 0 ] && ok "airlock gpu list" "$took ms" || bad "airlock gpu list" "$(last "$listed")"
all=$(limited 60 "$airlock" gpu list --json 2>/dev/null | tr -d '\n' | sed 's/"links".*//')
uuids=$(grep -o '"uuid": "GPU-[^"]*"' <<<"$all" | cut -d'"' -f4)
count=$(grep -c . <<<"$uuids")
if [ "$count" -eq 0 ]; then
    for what in "CUDA outside" "CUDA inside" "one GPU of several" "leases" "memory of the last user" "the end report" \
        "PyTorch inside against outside" "NCCL"; do
        skip "$what" "no NVIDIA GPU here"
    done
    finish
fi
if command -v nvidia-smi >/dev/null; then
    theirs=$(nvidia-smi --query-gpu=uuid --format=csv,noheader 2>/dev/null | sort | tr '\n' ' ')
    [ "$theirs" = "$(sort <<<"$uuids" | tr '\n' ' ')" ] && ok "the same GPUs as nvidia-smi" "$count" ||
        bad "the same GPUs as nvidia-smi" "$theirs"
else
    skip "the same GPUs as nvidia-smi" "no nvidia-smi"
fi

# What this machine lets a sandbox have at all.
if ! said=$(limited 30 "$airlock" run -- true 2>&1); then
    flags=(--best-effort limits,devices)
    if limited 30 "$airlock" run "${flags[@]}" -- true; then
        skip "limits and device filter" "lowered here: $(last "$said")"
    else
        bad "a sandbox without a GPU" "$(last "$said")"
        finish
    fi
fi

# 2. CUDA through the driver's library.
program=${CUDA_PROGRAM:-}
if [ -z "$program" ] && command -v cc >/dev/null; then
    cc -O1 -w -o "$place/cuda" cuda.c -ldl && program=$place/cuda
fi
if [ -n "$program" ]; then
    [ "$program" = "$place/cuda" ] || cp "$program" "$place/cuda"
    first=$(head -1 <<<"$uuids")
    said=$(limited 60 "$place/cuda" run 2>&1) && ok "CUDA outside" "$(last "$said")" || bad "CUDA outside" "$(last "$said")"
    said=$(inside 1 /check/cuda run 2>&1) && ok "CUDA inside" "$(last "$said")" || bad "CUDA inside" "$(last "$said")"
    if [ "$count" -gt 1 ]; then
        said=$(inside "$first,$(sed -n 2p <<<"$uuids")" /check/cuda run 2>&1)
        [[ $said == *"2 GPU"* ]] && ok "two GPUs inside" "$(last "$said")" || bad "two GPUs inside" "$(last "$said")"
        said=$(inside "$first" /check/cuda run 2>&1)
        [[ $said == *"1 GPU"* ]] && ok "one GPU of several" "the others are not there" || bad "one GPU of several" "$(last "$said")"
    else
        skip "one GPU of several" "there is one"
    fi
    nodes=$(inside 1 sh -c 'ls -d /dev/nvidia*; ls /proc/driver/nvidia/gpus' 2>&1 | tr '\n' ' ')
    ok "nodes inside" "$nodes"

    # 3. The memory of the last user. The control says whether the pattern can be found at all.
    control=$(inside "$first" /check/cuda both 1024 2>/dev/null)
    inside "$first" /check/cuda soil 8192 >/dev/null 2>&1
    found=$(inside "$first" /check/cuda look 8192 2>/dev/null)
    case $found in
        0) ok "memory of the last user" "not found in 8 GiB (found $control words in one process of its own)" ;;
        *) bad "memory of the last user" "${found:-no answer} words of it" ;;
    esac

    # 4. Leases.
    inside "$first" sleep 20 >/dev/null 2>&1 & holder=$!
    sleep 5
    said=$(inside "$first" true 2>&1)
    [[ $said == *"is held by sandbox"* ]] && ok "a second sandbox on one GPU" "refused: it is held" ||
        bad "a second sandbox on one GPU" "$(last "$said")"
    wait $holder

    # 5. What the end report says.
    inside "$first" sh -c 'for i in 1 2 3 4; do /check/cuda soil 16384; done' >/dev/null 2>&1
    left=$(tr -d '\n' <"$place.report" | sed -n 's/.*"left": *\[\([^]]*\)\].*/\1/p')
    peak=$(field memory_peak)
    peak=$((${peak:-0} >> 20))
    numbers="peak $peak MiB, $(field utilisation) %, $(field energy) mJ, left: ${left:-nothing}"
    [ $peak -ge 8192 ] && [ -z "${left// /}" ] && ok "the end report" "$numbers" || bad "the end report" "$numbers"
else
    for what in "CUDA outside" "CUDA inside" "one GPU of several" "leases" "memory of the last user" "the end report"; do
        skip "$what" "no C compiler; set CUDA_PROGRAM"
    done
fi

# 6. PyTorch, inside against outside, in turn: clocks and temperature drift.
cat >"$place/matmul.py" <<'PY'
import time, torch
a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
for _ in range(10): a @ b
torch.cuda.synchronize()
best = 0.0
for _ in range(5):
    start = time.perf_counter()
    for _ in range(20): a @ b
    torch.cuda.synchronize()
    best = max(best, 20 * 2 * 8192**3 / (time.perf_counter() - start) / 1e12)
print(f"{best:.1f}")
PY
cat >"$place/nccl.py" <<'PY'
import torch, torch.distributed as dist, torch.multiprocessing as mp
def work(rank, size):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method="file:///tmp/nccl", rank=rank, world_size=size)
    numbers = torch.ones(1 << 20, device="cuda")
    dist.all_reduce(numbers)
    assert numbers.mean().item() == size
    dist.destroy_process_group()
if __name__ == "__main__":
    size = torch.cuda.device_count()
    mp.spawn(work, args=(size,), nprocs=size)
    print(f"sum over {size} GPU right")
PY
if limited 60 "$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    roots=$("$python" -c 'import sys, os, torch
print("\n".join(sorted({os.path.realpath(p) for p in (sys.prefix, sys.base_prefix, os.path.dirname(os.path.dirname(torch.__file__)))})))')
    keep=("${flags[@]}")
    while read -r root; do case $root in /usr | /usr/lib/* | /usr/bin*) ;; *) flags+=(--mount "$root:$root:exec") ;; esac; done <<<"$roots"
    command=$("$python" -c 'import sys; print(sys.executable)')
    outside=0 within=0
    for _ in 1 2; do
        one=$(limited 60 "$python" "$place/matmul.py" 2>/dev/null | tail -1)
        said=$(inside "$(head -1 <<<"$uuids")" "$command" /check/matmul.py 2>&1)
        two=$(last "$said")
        outside=$(printf '%s\n%s\n' "$outside" "$one" | sort -g | tail -1)
        [[ $two =~ ^[0-9.]+$ ]] && within=$(printf '%s\n%s\n' "$within" "$two" | sort -g | tail -1)
    done
    if [ "$within" != 0 ]; then
        share=$(awk "BEGIN { printf \"%.3f\", $within / $outside }")
        awk "BEGIN { exit !($share > 0.97) }" && ok "PyTorch inside against outside" "$within / $outside TFLOPS = $share" ||
            bad "PyTorch inside against outside" "$within / $outside TFLOPS = $share"
    else
        bad "PyTorch inside against outside" "$(last "$said")"
    fi
    said=$(inside "$count" "$command" /check/nccl.py 2>&1)
    [[ $(last "$said") == "sum over"* ]] && ok "NCCL" "$(last "$said")" || bad "NCCL" "$(last "$said")"
    flags=("${keep[@]}")
else
    skip "PyTorch inside against outside" "no PyTorch that sees a GPU; set PYTHON"
    skip "NCCL" "no PyTorch"
fi
finish
