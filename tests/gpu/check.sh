#!/usr/bin/env bash
# Checks and measures Reprise on a machine with an NVIDIA GPU, in about seven minutes, without network, Rust or a CUDA toolkit.
#
#   cargo xtask gpu-check                 where Rust is: builds what is needed into target/gpu-check
#   tests/gpu/check.sh target/gpu-check [WORK]   where the GPU is: runs it and prints one table
#
# WORK is a folder on the disk that is to be measured, with 6 GB free; without it, the system's for temporary files.
#
# What runs: the test before a device's first use in every process, the model against the CPU, laws 1 to 5 on the device,
# the kernels under a memory checker where one is installed, then resume, prefill, decode and snapshot with models of 1B and 8B
# parameters whose random weights are made here. Models go to a folder of its own in WORK, 5 GB of it, and are removed.
set -euo pipefail

built=$(cd "${1:?usage: check.sh FOLDER [WORK]: FOLDER is what cargo xtask gpu-check has made}" && pwd)
work=$(mktemp -d -p "${2:-${TMPDIR:-/tmp}}")
trap 'rm -rf "$work"' EXIT
# Every process below compiles the same kernels: once is enough, also where the home cannot be written.
export REPRISE_TEST_GPU=1 TMPDIR="$work" CUDA_CACHE_PATH="$work/compiled"
failed=0

say() { printf '\n== %s\n' "$*"; }

check() {
    local name=$1
    shift
    if "$@" >"$work/out" 2>&1; then
        printf 'ok      %s\n' "$name"
    else
        failed=1
        printf 'FAILED  %s\n' "$name"
        tail -n 30 "$work/out"
    fi
}

bench() {
    # One JSON object a line; a measurement that fails is said, and the others still run.
    if ! "$built/reprise-cli" --json bench "$@" --device cuda:0 2>"$work/err"; then
        failed=1
        printf 'FAILED  bench %s: %s\n' "$*" "$(tail -n 1 "$work/err")"
    fi
}

say "the device"
if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
fi
"$built/reprise-cli" engine devices

say "the disk"
case $(stat -f -c %T "$work") in
    tmpfs | ramfs) printf 'left    %s is memory: what is said of the disk below is said of memory; name a folder on a disk\n' "$work" ;;
esac
if [ "$(df -Pk "$work" | awk 'NR == 2 { print $4 }')" -lt 6000000 ]; then
    printf 'FAILED  less than 6 GB are free below %s: name another folder\n' "$work"
    exit 1
fi

say "what it computes"
check "the model against the CPU, in any chunk, restored" "$built/suite" device:: --test-threads 1
if [ "$failed" = 1 ]; then
    echo "left    everything else: the GPU cannot be used, or computes something else than the CPU"
    exit 1
fi
check "laws 1 to 5" "$built/gpu" laws:: --test-threads 1
if command -v compute-sanitizer >/dev/null; then
    check "memory checker" compute-sanitizer --error-exitcode 1 "$built/suite" device::logits --test-threads 1
else
    printf 'left    memory checker: compute-sanitizer is not installed\n'
fi

say "how fast it is"
for shape in 1b 8b; do
    model="$work/$shape.gguf"
    "$built/synthetic" --shape "$shape" --weights q4_k "$model"
    bench prefill --model "$model" --tokens 2048
    bench decode --model "$model" --tokens 128
    bench decode --model "$model" --tokens 128 --depth 4096
    bench resume --model "$model" --tokens 1024,4096,7600 --runs 1
    bench snapshot --model "$model" --tokens 2048 --runs 1
    rm -f "$model"
done

exit $failed
