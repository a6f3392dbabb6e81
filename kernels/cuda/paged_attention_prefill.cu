// Attention of many queries, in f32 and for every format and head size: the fallback where there are no tensor cores for it.
//
// A row is one query head of one token; rows of a KV head are numbered token by token, `group` to each, and a block takes 16 of
// them. It walks the tiles of 16 tokens that its rows see, at absolute places, with an online softmax; a tile in which a row
// sees nothing leaves the row's bits alone, so that they depend on its position only.
//
// Grid: (rows / 16, kv_heads). Block: 128 threads, 8 for each row: thread t of a row has the tokens t and t + 8 of a tile and
// the elements t, t + 8, ... of the head. Shared memory: queries, later outputs [16][dim + 1]; keys of a tile [dim][16] or values
// [16][dim], as f32.
#include "attention.cuh"

namespace {

constexpr u32 THREADS = 128;
constexpr u32 ROWS = 16;
// Threads of a row.
constexpr u32 PART = 8;

// The keys of a tile to [dim][16].
__device__ __forceinline__ void load_keys(float* to, const u8* tile, const Attention& a) {
    for (u32 i = threadIdx.x; i < a.dim * TILE; i += THREADS)
        to[i] = key_element(tile, a.key_format, a.dim, i % TILE, i / TILE);
}

// The values of a tile to [16][dim]; zero for tokens that may not have been written.
__device__ __forceinline__ void load_values(
    float* to, const u8* tile, const Attention& a, u32 written) {
    const u32 pairs = a.dim / 2;
    for (u32 i = threadIdx.x; i < pairs * TILE; i += THREADS) {
        const u32 token = i / pairs;
        const float2 pair = token < written
                                ? value_pair(tile, a.value_format, a.dim, token, i % pairs * 2)
                                : make_float2(0.0f, 0.0f);
        to[2 * i] = pair.x;
        to[2 * i + 1] = pair.y;
    }
}

}  // namespace

// queries, out: [tokens][num_heads][dim]. sinks: [num_heads], scores that take weight and have no value, or null.
extern "C" __global__ void __launch_bounds__(128) paged_attention_prefill(
    const float* queries, const float* sinks, float* out, u32 tokens, const u64* blocks,
    const u32* offset, u64 key_at, u64 value_at, u32 num_heads, u32 kv_heads, u32 dim,
    u32 key_format, u32 value_format, u32 window, float scale, float softcap) {
    extern __shared__ __align__(16) float memory[];
    const Attention a = {blocks, offset,     key_at,       value_at, num_heads, kv_heads,
                         dim,    key_format, value_format, window,   scale,     softcap};
    const u32 group = a.group(), kv_head = blockIdx.y, stride = dim + 1;
    float* query = memory;
    float* tile = memory + ROWS * stride;
    const u32 first_row = blockIdx.x * ROWS, all_rows = tokens * group, begin = *offset;
    const u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;

    for (u32 r = warp; r < ROWS; r += THREADS / WARP) {
        const u32 row = first_row + r;
        float x[HELD] = {};
        if (row < all_rows) {
            const u64 at = (u64)(row / group) * num_heads + kv_head * group + row % group;
            load_query(x, queries + at * dim, a);
        }
#pragma unroll
        for (u32 i = 0; i < HELD; i++)
            if (i * WARP + lane < dim) query[r * stride + i * WARP + lane] = x[i];
    }

    const u32 r = threadIdx.x / PART, part = threadIdx.x % PART, row = first_row + r;
    const bool is_row = row < all_rows;
    const u32 position = begin + row / group;
    const u32 first_seen = a.first_seen(position);
    const u32 first = a.first_seen(begin + first_row / group) / TILE * TILE;
    const u32 last = begin + (min(first_row + ROWS, all_rows) - 1) / group;

    float sums[MAX_DIM / PART] = {};
    float largest = NONE, sum = 0.0f;
    for (u32 start = first; start <= last; start += TILE) {
        __syncthreads();
        load_keys(tile, a.keys(start, kv_head), a);
        __syncthreads();
        float scores[2] = {};
        for (u32 d = 0; d < dim; d++) {
            const float q = query[r * stride + d];
            scores[0] = fmaf(q, tile[d * TILE + part], scores[0]);
            scores[1] = fmaf(q, tile[d * TILE + part + PART], scores[1]);
        }
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            const u32 key = start + part + i * PART;
            const bool is_seen = is_row && key <= position && key >= first_seen;
            scores[i] = is_seen ? capped(scores[i], softcap) : NONE;
        }
        const float most = fmaxf(largest, max_of(fmaxf(scores[0], scores[1]), PART));
        // Before the first token that is seen there is no largest score to subtract.
        const float base = most == NONE ? 0.0f : most;
        const float factor = exp_less(largest, base);
        const float weights[2] = {exp_less(scores[0], base), exp_less(scores[1], base)};
        largest = most;
        sum = sum * factor + sum_of(weights[0] + weights[1], PART);
#pragma unroll
        for (u32 i = 0; i < MAX_DIM / PART; i++) sums[i] *= factor;
        __syncthreads();
        load_values(tile, a.values(start, kv_head), a, begin + tokens - start);
        __syncthreads();
#pragma unroll
        for (u32 t = 0; t < TILE; t++) {
            const float weight = from_lane(weights[t / PART], lane / PART * PART + t % PART);
#pragma unroll
            for (u32 i = 0; i < MAX_DIM / PART; i++) {
                const u32 d = i * PART + part;
                if (d < dim) sums[i] = fmaf(weight, tile[t * dim + d], sums[i]);
            }
        }
    }

    if (sinks && is_row) {
        const float sink = sinks[kv_head * group + row % group];
        const float most = fmaxf(largest, sink), factor = exp_less(largest, most);
        sum = sum * factor + exp_less(sink, most);
#pragma unroll
        for (u32 i = 0; i < MAX_DIM / PART; i++) sums[i] *= factor;
    }
    // Nobody reads queries since the last barrier but one.
#pragma unroll
    for (u32 i = 0; i < MAX_DIM / PART; i++)
        if (i * PART + part < dim) query[r * stride + i * PART + part] = sums[i] / sum;
    __syncthreads();
    for (u32 r = warp; r < ROWS; r += THREADS / WARP) {
        const u32 row = first_row + r;
        if (row >= all_rows) continue;
        float x[HELD] = {};
#pragma unroll
        for (u32 i = 0; i < HELD; i++)
            if (i * WARP + lane < dim) x[i] = query[r * stride + i * WARP + lane];
        if (is_rotated(value_format)) hadamard(x, dim);
        const u64 at = (u64)(row / group) * num_heads + kv_head * group + row % group;
#pragma unroll
        for (u32 i = 0; i < HELD; i++)
            // Adding 0 makes a negative zero positive: which of the two a sum is depends on what is masked.
            if (i * WARP + lane < dim) out[at * dim + i * WARP + lane] = x[i] + 0.0f;
    }
}
