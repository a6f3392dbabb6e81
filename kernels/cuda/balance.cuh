// How the keys of a layer are balanced before a format rounds them: kernels/src/key_balance.rs, which says why.
#pragma once

#include "common.cuh"

// What there is of each KV head, as KeyBalance::device_numbers lays it out: [kv_heads][PARTS][dim].
constexpr u32 MEAN = 0;
constexpr u32 FIRST = 1;
constexpr u32 FACTORS = 2;
constexpr u32 INVERSE = 3;
constexpr u32 PARTS = 4;

__device__ __forceinline__ const float* balance_part(
    const float* numbers, u32 head, u32 part, u32 dim) {
    return numbers + (head * PARTS + part) * dim;
}

// The mean of the keys of each KV head, turned by the rope of the middle of a block.
struct Centers {
    // Null where keys are as they come.
    const float* numbers;
    // [positions][dim / 2], to the end of the last token's block.
    const float* cos;
    const float* sin;
    // As in rope.cu.
    u32 halves;

    // The two elements of pair i, with the bits of the CPU's.
    __device__ __forceinline__ float2 pair(u32 head, u32 block, u32 dim, u32 i) const {
        const float* mean = balance_part(numbers, head, MEAN, dim);
        const u64 angle = (u64)(block * BLOCK + BLOCK / 2) * (dim / 2) + i;
        const uint2 at = pair_at(i, dim, halves);
        return turned(mean[at.x], mean[at.y], cos[angle], sin[angle]);
    }

    // Element d of what is taken off the key at `position`.
    __device__ __forceinline__ float element(u32 head, u32 position, u32 dim, u32 d) const {
        if (position == 0) return balance_part(numbers, head, FIRST, dim)[d];
        const bool is_second = halves ? d >= dim / 2 : d % 2;
        const float2 both =
            pair(head, position / BLOCK, dim, halves ? d % (dim / 2) : d / 2);
        return is_second ? both.y : both.x;
    }
};
