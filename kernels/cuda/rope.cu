// Rotary position embedding in place, with the bits of the CPU's rope.rs.
//
// Grid: (pairs of a token's heads / 256, tokens). Block: 256 threads, one for each pair of elements. No shared memory.
#include "common.cuh"

// x: [tokens][heads][dim], tokens `stride` elements apart. cos, sin: [positions][dim / 2]. offset: the position of the first
// token. halves: see
// `pair_at`.
extern "C" __global__ void __launch_bounds__(256) rope(
    float* x, const float* cos, const float* sin, const u32* offset, u32 stride, u32 heads, u32 dim,
    u32 halves) {
    const u32 half = dim / 2, pair = blockIdx.x * 256 + threadIdx.x, token = blockIdx.y;
    if (pair >= heads * half) return;
    const u32 head = pair / half, i = pair % half;
    const u64 angle = (u64)(*offset + token) * half + i;
    float* row = x + (u64)token * stride + head * dim;
    const uint2 at = pair_at(i, dim, halves);
    const float2 both = turned(row[at.x], row[at.y], cos[angle], sin[angle]);
    row[at.x] = both.x;
    row[at.y] = both.y;
}
