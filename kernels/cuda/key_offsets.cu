// What scores over balanced keys lack (kernels/src/key_balance.rs): the products of each query with what was taken off the keys
// of each block. Factors of keys and queries cancel and the Hadamard rotation keeps products, so they are those of the queries
// as they come with the means as they are, turned by the rope of the middle of the block.
//
// A row is one query head of one token, numbered as in prefill; a column is position 0 or a block of 64 positions. An entry is
// one sum in the order of the head's elements, so that it depends on the query and the block alone. Columns that no row of a
// thread block sees are left alone.
//
// Grid: (rows / 16, kv_heads, columns / 32). Block: 4 warps, 4 rows to each; a lane has a column. Shared memory: the centers of
// the columns [dim][33].
#include "balance.cuh"

namespace {

constexpr u32 THREADS = 128;
constexpr u32 ROWS = 4;
// Floats from an element of the centers to the next: one more than columns, so that lanes share no bank either way.
constexpr u32 PITCH = WARP + 1;

// The centers of `columns` columns from `first` on to [dim][PITCH].
__device__ __forceinline__ void load_centers(
    float* to, const Centers& centers, u32 head, u32 dim, u32 first, u32 columns) {
    const u32 half = dim / 2;
    const float* of_first = balance_part(centers.numbers, head, FIRST, dim);
    for (u32 i = threadIdx.x; i < columns * half; i += THREADS) {
        const u32 column = i / half, pair = i % half;
        const uint2 at = pair_at(pair, dim, centers.halves);
        float2 both = make_float2(of_first[at.x], of_first[at.y]);
        if (first + column > 0) both = centers.pair(head, first + column - 1, dim, pair);
        to[at.x * PITCH + column] = both.x;
        to[at.y * PITCH + column] = both.y;
    }
}

}  // namespace

// queries: [tokens][num_heads][dim], with rope, at a multiple of 16. out: [tokens][num_heads][columns]: for position 0, then for
// each block. numbers, cos, sin, halves: see balance.cuh. offset: the position of the first query. window, scale: as in
// attention.cuh.
extern "C" __global__ void __launch_bounds__(128) key_offsets(
    const float* queries, float* out, const float* numbers, const float* cos, const float* sin,
    const u32* offset, u32 tokens, u32 num_heads, u32 kv_heads, u32 dim, u32 halves, u32 columns,
    u32 window, float scale) {
    extern __shared__ __align__(16) float memory[];
    const Centers centers = {numbers, cos, sin, halves};
    const u32 group = num_heads / kv_heads, head = blockIdx.y, all_rows = tokens * group;
    const u32 first_row = blockIdx.x * ROWS * (THREADS / WARP);
    const u32 end_row = min(first_row + ROWS * (THREADS / WARP), all_rows);
    const u32 seen = first_seen(*offset + first_row / group, window);
    const u32 last = *offset + (end_row - 1) / group;
    // Beyond the last block there may be no angles.
    const u32 first = blockIdx.z * WARP, end = min(first + WARP, 2 + last / BLOCK);
    if (first >= end || (seen > 0 && end <= 1 + seen / BLOCK)) return;
    load_centers(memory, centers, head, dim, first, end - first);
    __syncthreads();

    const u32 lane = threadIdx.x % WARP, row = first_row + threadIdx.x / WARP * ROWS;
    if (row >= end_row || first + lane >= end) return;
    u64 at[ROWS];
    const float4* query[ROWS];
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
        // The last row again where there is no other.
        const u32 here = min(row + r, end_row - 1);
        at[r] = (u64)(here / group) * num_heads + head * group + here % group;
        query[r] = (const float4*)(queries + at[r] * dim);
    }
    float sums[ROWS] = {};
    for (u32 d = 0; d < dim; d += 4) {
        float center[4];
#pragma unroll
        for (u32 i = 0; i < 4; i++) center[i] = memory[(d + i) * PITCH + lane];
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            const float4 q = query[r][d / 4];
            sums[r] = fmaf(q.x * scale, center[0], sums[r]);
            sums[r] = fmaf(q.y * scale, center[1], sums[r]);
            sums[r] = fmaf(q.z * scale, center[2], sums[r]);
            sums[r] = fmaf(q.w * scale, center[3], sums[r]);
        }
    }
#pragma unroll
    for (u32 r = 0; r < ROWS; r++)
        if (row + r < end_row) out[at[r] * columns + first + lane] = sums[r];
}
