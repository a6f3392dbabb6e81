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

// The queries of a block's rows to [16][dim + 1].
__device__ __forceinline__ void load_queries(
    float* to, const float* queries, const Attention& a, u32 first_row, u32 all_rows) {
    const u32 lane = threadIdx.x % WARP;
    for (u32 r = threadIdx.x / WARP; r < ROWS; r += THREADS / WARP) {
        float x[HELD] = {};
        const u32 row = first_row + r;
        if (row < all_rows) load_query(x, queries + a.row_at(row, blockIdx.y), blockIdx.y, a);
#pragma unroll
        for (u32 i = 0; i < HELD; i++)
            if (i * WARP + lane < a.dim) to[r * (a.dim + 1) + i * WARP + lane] = x[i];
    }
}

// The outputs of a block's rows from [16][dim + 1].
__device__ __forceinline__ void store_outputs(
    float* out, const float* from, const Attention& a, u32 first_row, u32 all_rows) {
    const u32 lane = threadIdx.x % WARP;
    for (u32 r = threadIdx.x / WARP; r < ROWS; r += THREADS / WARP) {
        if (first_row + r >= all_rows) continue;
        float x[HELD] = {};
#pragma unroll
        for (u32 i = 0; i < HELD; i++)
            if (i * WARP + lane < a.dim) x[i] = from[r * (a.dim + 1) + i * WARP + lane];
        store_output(out + a.row_at(first_row + r, blockIdx.y), x, a);
    }
}

// A thread's part of a row's softmax state: every eighth element of the sums.
struct Row {
    float sums[MAX_DIM / PART] = {};
    float largest = NONE;
    float sum = 0.0f;

    __device__ __forceinline__ void rescale(float factor) {
        sum *= factor;
#pragma unroll
        for (u32 i = 0; i < MAX_DIM / PART; i++) sums[i] *= factor;
    }

    // Turns the scores of this thread's two tokens, -inf where they are not seen, into weights.
    __device__ __forceinline__ void weigh(float (&scores)[2]) {
        const float most = fmaxf(largest, max_of(fmaxf(scores[0], scores[1]), PART));
        // Before the first token that is seen there is no largest score to subtract.
        const float base = most == NONE ? 0.0f : most;
        rescale(exp_less(largest, base));
        largest = most;
#pragma unroll
        for (u32 i = 0; i < 2; i++) scores[i] = exp_less(scores[i], base);
        sum += sum_of(scores[0] + scores[1], PART);
    }

    // Adds the values of a tile [16][dim].
    __device__ __forceinline__ void add(const float (&weights)[2], const float* tile, u32 dim) {
        const u32 lane = threadIdx.x % WARP, part = lane % PART;
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

    __device__ __forceinline__ void add_sink(float sink) {
        const float most = fmaxf(largest, sink);
        rescale(exp_less(largest, most));
        sum += exp_less(sink, most);
    }
};

// The scores of this thread's two tokens.
__device__ __forceinline__ void multiply(
    float (&scores)[2], const float* query, const float* keys, u32 dim) {
    const u32 part = threadIdx.x % PART;
    scores[0] = scores[1] = 0.0f;
    for (u32 d = 0; d < dim; d++) {
        scores[0] = fmaf(query[d], keys[d * TILE + part], scores[0]);
        scores[1] = fmaf(query[d], keys[d * TILE + part + PART], scores[1]);
    }
}

}  // namespace

// queries, out: [tokens][num_heads][dim]. sinks: [num_heads], scores that take weight and have no value, or null.
extern "C" __global__ void __launch_bounds__(128) paged_attention_prefill(
    const float* queries, const float* sinks, float* out, u32 tokens, const u64* blocks,
    const u32* offset, u64 key_at, u64 value_at, u32 num_heads, u32 kv_heads, u32 dim,
    u32 key_format, u32 value_format, u32 window, float scale, float softcap, const float* balance,
    const float* key_offsets, u32 key_offset_stride) {
    extern __shared__ __align__(16) float memory[];
    const Attention a = {blocks,      offset,     key_at,       value_at, num_heads,
                         kv_heads,    dim,        key_format,   value_format, window,
                         scale,       softcap,    balance,      key_offsets,
                         key_offset_stride};
    const u32 group = a.group(), kv_head = blockIdx.y, begin = *offset;
    const u32 first_row = blockIdx.x * ROWS, all_rows = tokens * group;
    float* tile = memory + ROWS * (dim + 1);
    load_queries(memory, queries, a, first_row, all_rows);

    const u32 r = threadIdx.x / PART, part = threadIdx.x % PART, row = first_row + r;
    float* query = memory + r * (dim + 1);
    const u32 position = begin + row / group, first_seen = a.first_seen(position);
    const u32 first = a.first_seen(begin + first_row / group) / TILE * TILE;
    const u32 last = begin + (min(first_row + ROWS, all_rows) - 1) / group;
    Row state;
    for (u32 start = first; start <= last; start += TILE) {
        __syncthreads();
        load_keys(tile, a.keys(start, kv_head), a);
        __syncthreads();
        float weights[2];
        multiply(weights, query, tile, dim);
        if (a.key_offsets && row < all_rows)
            for (u32 i = 0; i < 2; i++)
                weights[i] += a.key_offset(
                    a.query_of(row, kv_head), start + part + i * PART, first_seen, position);
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            const u32 key = start + part + i * PART;
            const bool is_seen = row < all_rows && key <= position && key >= first_seen;
            weights[i] = is_seen ? capped(weights[i], softcap) : NONE;
        }
        state.weigh(weights);
        __syncthreads();
        load_values(tile, a.values(start, kv_head), a, begin + tokens - start);
        __syncthreads();
        state.add(weights, tile, dim);
    }
    if (sinks && row < all_rows) state.add_sink(sinks[kv_head * group + row % group]);
    // Nobody reads queries since the last barrier but one.
#pragma unroll
    for (u32 i = 0; i < MAX_DIM / PART; i++)
        if (i * PART + part < dim) query[i * PART + part] = state.sums[i] / state.sum;
    __syncthreads();
    store_outputs(out, memory, a, first_row, all_rows);
}
