// What the kernels share: warps, the layout of tiles, widening, and functions with the CPU's bits.
//
// Everything is compiled with --fmad=false: a multiplication and a sum become one instruction only where `fmaf` says so, so
// that results do not depend on what a compiler finds.
#pragma once

#include <cuda_fp16.h>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr u32 WARP = 32;
constexpr u32 FULL = 0xffffffffu;
// Tokens of a tile and of a block, and elements that share a scale: see kernels/src/layout.rs, which draws the tiles.
constexpr u32 TILE = 16;
constexpr u32 BLOCK = 64;
constexpr u32 GROUP = 32;
// Elements of the largest head, and how many of them a lane holds: element 32 i + lane is register i.
constexpr u32 MAX_DIM = 256;
constexpr u32 HELD = MAX_DIM / WARP;

// The formats of keys and values, numbered as KvDtype::ALL.
constexpr u32 F16 = 0;
constexpr u32 BF16 = 1;
constexpr u32 Q8 = 2;
constexpr u32 Q4 = 3;

constexpr float MAX_F16 = 65504.0f;
constexpr float LOG2_E = 1.4426950408889634f;
constexpr float NONE = -__builtin_huge_valf();

__device__ __forceinline__ float bits_float(u32 bits) { return __uint_as_float(bits); }

__device__ __forceinline__ bool is_rotated(u32 format) { return format >= Q8; }

// Bytes of the quants, or of the elements, of one token in one head.
__device__ __forceinline__ u32 quant_bytes(u32 format, u32 dim) {
    return format == Q4 ? dim / 2 : format == Q8 ? dim : 2 * dim;
}

// Bytes of one head's tile.
__device__ __forceinline__ u32 tile_bytes(u32 format, u32 dim) {
    const u32 scales = is_rotated(format) ? 2 * (dim / GROUP) : 0;
    return TILE * (quant_bytes(format, dim) + scales);
}

// Bytes from the beginning of the keys or values of a layer to the tile of the token at `position`.
__device__ __forceinline__ u64 tile_at(u32 position, u32 head, u32 kv_heads, u32 bytes) {
    return (u64)(position % BLOCK / TILE * kv_heads + head) * bytes;
}

// An address from a table, which is one of global memory.
__device__ __forceinline__ u8* global(void* address) {
    __builtin_assume(__isGlobal(address));
    return (u8*)address;
}

// --- Numbers ---

__device__ __forceinline__ float f16_float(u16 bits) { return __half2float(__ushort_as_half(bits)); }

__device__ __forceinline__ float bf16_float(u32 bits) { return bits_float(bits << 16); }

__device__ __forceinline__ float half_float(u32 format, u16 bits) {
    return format == F16 ? f16_float(bits) : bf16_float(bits);
}

// As f32::clamp of Rust: NaN stays NaN.
__device__ __forceinline__ float clamped(float x, float most) {
    x = x < -most ? -most : x;
    return x > most ? most : x;
}

__device__ __forceinline__ u16 to_f16(float x) {
    return __half_as_ushort(__float2half_rn(clamped(x, MAX_F16)));
}

__device__ __forceinline__ u16 to_bf16(float x) {
    const u32 bits = __float_as_uint(clamped(x, bits_float(0x7f7f0000)));
    return x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// Byte `index` of a word, an integer of 8 bits, less `offset`: exact. The byte becomes the last bits of 2^23.
__device__ __forceinline__ float byte_float(u32 word, u32 index, float offset) {
    return bits_float(__byte_perm(word, 0x4b000000, 0x7540 + index)) - (8388608.0f + offset);
}

// e^x with the bits of the CPU's (kernels/src/exp.rs).
__device__ __forceinline__ float exp_exact(float x) {
    const float round = 12582912.0f;
    float clamped = x < -87.0f ? -87.0f : x;
    clamped = clamped > 88.0f ? 88.0f : clamped;
    const float shifted = clamped * LOG2_E + round;
    const float n = shifted - round;
    const float r = clamped - n * 0.6933594f - n * -2.1219444e-4f;
    float p = 1.9875691e-4f;
    p = p * r + 1.3981999e-3f;
    p = p * r + 8.333452e-3f;
    p = p * r + 4.1665796e-2f;
    p = p * r + 1.6666665e-1f;
    p = p * r + 0.5f;
    p = p * (r * r) + r + 1.0f;
    const float power = bits_float((__float_as_uint(shifted) << 23) + (127u << 23));
    return x < -87.0f ? 0.0f : p * power;
}

// e^(x - y), quickly; 0 for x = -inf.
__device__ __forceinline__ float exp_less(float x, float y) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"((x - y) * LOG2_E));
    return power;
}

__device__ __forceinline__ float capped(float score, float cap) {
    if (cap == 0.0f) return score;
    return cap * (1.0f - 2.0f / (exp_exact(2.0f * (score / cap)) + 1.0f));
}

// The first of the positions that a query sees: its own and those before, the last `window` of them where that is not 0.
__device__ __forceinline__ u32 first_seen(u32 position, u32 window) {
    return window != 0 && position + 1 > window ? position + 1 - window : 0;
}

// --- Rope ---

// The elements of a head that are rotated together by angle i: i and i + dim / 2, otherwise 2 i and 2 i + 1.
__device__ __forceinline__ uint2 pair_at(u32 i, u32 dim, u32 halves) {
    return halves ? make_uint2(i, i + dim / 2) : make_uint2(2 * i, 2 * i + 1);
}

__device__ __forceinline__ float2 turned(float a, float b, float cos, float sin) {
    return make_float2(a * cos - b * sin, a * sin + b * cos);
}

// --- Warps ---

__device__ __forceinline__ float from_lane(float x, u32 lane) { return __shfl_sync(FULL, x, lane); }

__device__ __forceinline__ float across(float x, u32 lanes) { return __shfl_xor_sync(FULL, x, lanes); }

// The largest of neighbours in groups of `lanes`; NaN is none.
__device__ __forceinline__ float max_of(float x, u32 lanes) {
#pragma unroll
    for (u32 half = WARP / 2; half > 0; half /= 2)
        if (half < lanes) x = fmaxf(x, across(x, half));
    return x;
}

__device__ __forceinline__ float sum_of(float x, u32 lanes) {
#pragma unroll
    for (u32 half = WARP / 2; half > 0; half /= 2)
        if (half < lanes) x += across(x, half);
    return x;
}

// Rotates the head that a warp holds, with the bits of the CPU's (kernels/src/hadamard.rs).
__device__ __forceinline__ void hadamard(float (&x)[HELD], u32 dim) {
    const u32 lane = threadIdx.x % WARP;
    const u32 size = dim & (0u - dim);
#pragma unroll
    for (u32 half = 1; half < WARP; half *= 2) {
#pragma unroll
        for (u32 i = 0; i < HELD; i++) {
            if (i * WARP >= dim) continue;
            const float other = across(x[i], half);
            x[i] = lane & half ? other - x[i] : x[i] + other;
        }
    }
#pragma unroll
    for (u32 half = 1; half < HELD; half *= 2) {
        if (half * WARP >= size) continue;
#pragma unroll
        for (u32 i = 0; i < HELD; i++) {
            if (i & half || i * WARP >= dim) continue;
            const float low = x[i], high = x[i + half];
            x[i] = low + high;
            x[i + half] = low - high;
        }
    }
    const float scale = 1.0f / sqrtf((float)size);
#pragma unroll
    for (u32 i = 0; i < HELD; i++) x[i] *= scale;
}

// --- Copies ---

// 16 bytes from global to shared memory; on sm_80 without waiting.
__device__ __forceinline__ void copy_16(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
    const u32 at = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
#else
    *(uint4*)to = *(const uint4*)from;
#endif
}

__device__ __forceinline__ void commit_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most MOST of this thread's groups are under way.
template <u32 MOST>
__device__ __forceinline__ void wait_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(MOST) : "memory");
#endif
}
