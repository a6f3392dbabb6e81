// The next token from logits, so that nothing but it crosses to the host; in the order of models' sampler: top-k, top-p, min-p,
// temperature. Logits that are not numbers are never chosen, those beyond ±1e30 count as that, equal ones are ranked by id.
//
// Grid: (rows). Block: 1024 threads. Shared memory: static, as declared.
#include "common.cuh"

namespace {

constexpr u32 THREADS = 1024;
constexpr u32 WARPS = THREADS / WARP;
// Most candidates that are ranked.
constexpr u32 MOST = 256;
// The answer when those do not suffice and the host must choose.
constexpr u32 UNDECIDED = 0xffffffffu;

// Larger for what ranks first; all differ; 0 for what is no number.
__device__ __forceinline__ u64 key_of(float logit, u32 id) {
    if (logit != logit) return 0;
    const u32 bits = __float_as_uint(clamped(logit, 1e30f));
    // -0 and 0 are equal.
    const u32 plain = bits == 0x80000000 ? 0 : bits;
    const u32 ordered = plain & 0x80000000 ? ~plain : plain | 0x80000000;
    return (u64)ordered << 32 | (u32)~id;
}

__device__ __forceinline__ float logit_of(u64 key) {
    const u32 ordered = key >> 32;
    return bits_float(ordered & 0x80000000 ? ordered & 0x7fffffff : ~ordered);
}

__device__ __forceinline__ u32 id_of(u64 key) { return ~(u32)key; }

__device__ __forceinline__ u64 larger(u64 a, u64 b) { return a > b ? a : b; }

// The largest key of the block, in every thread.
__device__ __forceinline__ u64 largest_of(u64 key, u64* shared) {
#pragma unroll
    for (u32 half = WARP / 2; half > 0; half /= 2)
        key = larger(key, __shfl_xor_sync(FULL, key, half));
    if (threadIdx.x % WARP == 0) shared[threadIdx.x / WARP] = key;
    __syncthreads();
    u64 largest = 0;
    for (u32 warp = 0; warp < WARPS; warp++) largest = larger(largest, shared[warp]);
    return largest;
}

// The key of rank `count` (from 1), which is not larger than the number of keys that are not 0: byte by byte from the top, those
// of the keys that share the bytes so far are counted.
__device__ __forceinline__ u64 threshold(const float* logits, u32 vocab, u32 count, u32* counts) {
    u64 prefix = 0;
    u32 left = count;
    for (int shift = 56; shift >= 0; shift -= 8) {
        if (threadIdx.x < 256) counts[threadIdx.x] = 0;
        __syncthreads();
        for (u32 id = threadIdx.x; id < vocab; id += THREADS) {
            const u64 key = key_of(logits[id], id);
            const bool is_in = shift == 56 || key >> (shift + 8) == prefix >> (shift + 8);
            if (key != 0 && is_in) atomicAdd(&counts[key >> shift & 255], 1u);
        }
        __syncthreads();
        u32 byte = 255;
        for (; counts[byte] < left; byte--) left -= counts[byte];
        const bool is_whole = counts[byte] == left;
        prefix |= (u64)byte << shift;
        __syncthreads();
        // All that share the bytes so far are wanted.
        if (is_whole) break;
    }
    return prefix;
}

}  // namespace

// logits: [rows][vocab]. tokens: [rows], the most likely token, 0 if none is a number.
extern "C" __global__ void __launch_bounds__(1024) sample_greedy(
    const float* logits, u32* tokens, u32 vocab) {
    __shared__ u64 keys[WARPS];
    const float* row = logits + (u64)blockIdx.x * vocab;
    u64 key = 0;
    for (u32 id = threadIdx.x; id < vocab; id += THREADS) key = larger(key, key_of(row[id], id));
    key = largest_of(key, keys);
    if (threadIdx.x == 0) tokens[blockIdx.x] = key == 0 ? 0 : id_of(key);
}

// random: [rows], in 0..1. k, top_p (0..1) and min_p are off where they are 0 (top_p 1). tokens: [rows]; UNDECIDED where more
// than MOST candidates would have to be ranked.
extern "C" __global__ void __launch_bounds__(1024) sample_top_k(
    const float* logits, const double* random, u32* tokens, u32 vocab, u32 k, float top_p, float min_p,
    float temperature) {
    __shared__ u64 keys[WARPS];
    __shared__ u64 found[MOST];
    __shared__ u64 ranked[MOST];
    __shared__ float weights[MOST];
    __shared__ float sums[WARPS];
    __shared__ u32 counts[256];
    __shared__ u32 num_found;
    const float* row = logits + (u64)blockIdx.x * vocab;

    // The largest, and how many are numbers.
    u64 key = 0;
    u32 numbers = 0;
    for (u32 id = threadIdx.x; id < vocab; id += THREADS) {
        const u64 next = key_of(row[id], id);
        key = larger(key, next);
        numbers += next != 0;
    }
    if (threadIdx.x == 0) num_found = 0;
    key = largest_of(key, keys);
    if (numbers) atomicAdd(&num_found, numbers);
    __syncthreads();
    numbers = num_found;
    if (numbers == 0) {
        if (threadIdx.x == 0) tokens[blockIdx.x] = 0;
        return;
    }
    const float top = logit_of(key);
    const u32 wanted = k == 0 ? numbers : min(k, numbers), count = min(wanted, MOST);
    __syncthreads();

    // The sum of the weights of all that top-k leaves, where they are too many to be ranked.
    float total = 0.0f;
    if (wanted > MOST) {
        for (u32 id = threadIdx.x; id < vocab; id += THREADS)
            if (row[id] == row[id]) total += exp_exact(clamped(row[id], 1e30f) - top);
        total = sum_of(total, WARP);
        if (threadIdx.x % WARP == 0) sums[threadIdx.x / WARP] = total;
    }
    if (threadIdx.x == 0) num_found = 0;
    const u64 least = threshold(row, vocab, count, counts);
    for (u32 id = threadIdx.x; id < vocab; id += THREADS) {
        const u64 next = key_of(row[id], id);
        if (next >= least && next != 0) found[atomicAdd(&num_found, 1u)] = next;
    }
    __syncthreads();
    // In whichever order they were found, they are ranked.
    if (threadIdx.x < count) {
        u32 rank = 0;
        for (u32 i = 0; i < count; i++) rank += found[i] > found[threadIdx.x];
        ranked[rank] = found[threadIdx.x];
        weights[rank] = exp_exact(logit_of(found[threadIdx.x]) - top);
    }
    __syncthreads();

    __shared__ u32 num_kept;
    if (threadIdx.x == 0) {
        total = 0.0f;
        if (wanted > MOST)
            for (u32 warp = 0; warp < WARPS; warp++) total += sums[warp];
        else
            for (u32 i = 0; i < count; i++) total += weights[i];
        u32 kept = count;
        bool is_decided = wanted <= MOST;
        if (top_p < 1.0f) {
            float reached = 0.0f;
            for (u32 i = 0; i < kept; i++) {
                reached += weights[i];
                if (reached >= top_p * total) {
                    kept = i + 1;
                    is_decided = true;
                }
            }
        }
        if (min_p > 0.0f) {
            u32 likely = 0;
            while (likely < kept && weights[likely] >= min_p) likely++;
            is_decided |= likely < kept;
            kept = max(likely, 1u);
        }
        num_kept = is_decided ? kept : 0;
    }
    __syncthreads();
    const u32 kept = num_kept;
    if (threadIdx.x < kept)
        weights[threadIdx.x] = exp_exact((logit_of(ranked[threadIdx.x]) - top) / temperature);
    __syncthreads();
    if (threadIdx.x != 0) return;
    double left = 0.0;
    for (u32 i = 0; i < kept; i++) left += (double)weights[i];
    left *= random[blockIdx.x];
    u32 token = kept == 0 ? UNDECIDED : id_of(ranked[0]);
    for (u32 i = 0; i < kept; i++) {
        left -= (double)weights[i];
        if (left < 0.0) {
            token = id_of(ranked[i]);
            break;
        }
    }
    tokens[blockIdx.x] = token;
}
