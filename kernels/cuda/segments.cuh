// Sums in segments, and where they go. What products with packed weights and with dense ones share.
//
// Columns of a row are cut into segments of 256 at absolute positions; a segment is one chain of sums from 0, in order, and the
// segments' sums are added in order, starting from the first. So an output element has the same bits whichever kernel computes
// it, but for product_dense_mma.cu, whose order is its own, and whatever tokens are beside it. The bias, where there is one, is
// added to the sum; then that is stored, or added to what stands in the output.
#pragma once

#include "common.cuh"

// Rows of a tile.
constexpr u32 ROWS = 16;
// Segments whose sums are held at once.
constexpr u32 HELD_SEGMENTS = 64;

// Dynamic shared memory.
extern __shared__ __align__(16) u8 shared[];

// [tokens][stride]
struct Output {
    float* __restrict__ out;
    // [rows], or null
    const float* __restrict__ bias;
    u32 rows, tokens, stride;
    bool is_added;
};

__device__ __forceinline__ void put(const Output& o, u32 token, u32 row, float sum) {
    if (token >= o.tokens || row >= o.rows) return;
    if (o.bias) sum += o.bias[row];
    float* to = o.out + (u64)token * o.stride + row;
    *to = o.is_added ? *to + sum : sum;
}

// The tokens of a block's tile: for those beyond the last, that one.
template <u32 T>
struct Tokens {
    u32 at[T];

    __device__ __forceinline__ explicit Tokens(u32 tokens) {
#pragma unroll
        for (u32 t = 0; t < T; t++) at[t] = min(blockIdx.y * T + t, tokens - 1);
    }
};

// A tile of 16 rows times T tokens. A lane is a row; the sixteen lanes of half a warp take a segment, whose sums `multiply(sums,
// segment, row)` adds up, and the sums of all segments meet in shared memory. Grid: (tiles, tiles of tokens). Block: at least
// 16 * T threads, whole warps. Shared memory: [segments, at most HELD_SEGMENTS][T][16] floats.
template <u32 T, class M>
__device__ __forceinline__ void sum_segments(const Output& o, u32 segments, M multiply) {
    float* held = (float*)shared;
    const u32 row = threadIdx.x % ROWS, part = threadIdx.x / ROWS, num_parts = blockDim.x / ROWS;
    float total = 0.0f;
    for (u32 begin = 0; begin < segments; begin += HELD_SEGMENTS) {
        const u32 end = min(begin + HELD_SEGMENTS, segments);
#pragma unroll 1
        for (u32 segment = begin + part; segment < end; segment += num_parts) {
            float sums[T] = {};
            multiply(sums, segment, row);
#pragma unroll
            for (u32 t = 0; t < T; t++) held[((segment - begin) * T + t) * ROWS + row] = sums[t];
        }
        __syncthreads();
        if (threadIdx.x < T * ROWS)
#pragma unroll 1
            for (u32 i = begin; i < end; i++) {
                const float sum = held[(i - begin) * T * ROWS + threadIdx.x];
                total = i == 0 ? sum : total + sum;
            }
        if (end < segments) __syncthreads();
    }
    if (threadIdx.x < T * ROWS) put(o, blockIdx.y * T + part, blockIdx.x * ROWS + row, total);
}
