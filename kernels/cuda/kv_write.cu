// Writes the keys and values of new tokens into their tiles, with the bytes of the CPU's kv_write.rs. Keys of a rotated format
// are balanced first where there is a balance.
//
// Grid: (tiles that the tokens touch, kv_heads, 2: keys and values). Block: 16 warps, one for each token of the tile.
// Shared memory: the tile, so that it goes out in whole lines; tokens of it that are not new are left alone.
#include "balance.cuh"

// What the largest magnitude of a group in 4 bits becomes. Not in the namespace below: the name that it would get there depends
// on the path of this file.
__constant__ float ENDS[12] = {-8.0f, -7.5f, -7.0f, -6.5f, -6.0f, -5.5f,
                               -5.0f, 7.0f,  6.5f,  6.0f,  5.5f,  5.0f};

namespace {

// Adding it rounds to the nearest integer, ties to even, which then stands in the low bits.
constexpr float ROUND = 12582912.0f;

__device__ __forceinline__ float shifted(float x, float least, float most) {
    x = x > least ? x : least;
    return (x < most ? x : most) + ROUND;
}

__device__ __forceinline__ u32 rounded(float x, float least, float most) {
    return __float_as_uint(shifted(x, least, most)) & 0xff;
}

__device__ __forceinline__ float inverse_of(float scale) {
    return scale == 0.0f ? 0.0f : 1.0f / scale;
}

// The scale of a group in 8 bits, as f16.
__device__ __forceinline__ u16 scale_8(float x) {
    const float scale = max_of(fabsf(x), WARP) / 127.0f;
    return to_f16(scale < MAX_F16 ? scale : MAX_F16);
}

// The scale of a group in 4 bits: lane c < 12 computes the error of candidate c, in the CPU's order.
__device__ __forceinline__ u16 scale_4(float x) {
    const u32 lane = threadIdx.x % WARP;
    const float largest = max_of(fabsf(x), WARP);
    const float sign = __ballot_sync(FULL, x == largest) ? 1.0f : -1.0f;
    const u32 candidate = lane < 12 ? lane : 0;
    const u16 bits = to_f16(sign * largest / ENDS[candidate]);
    const float scale = f16_float(bits), inverse = inverse_of(scale);
    float error = 0.0f;
#pragma unroll 2
    for (u32 i = 0; i < GROUP / 2; i++) {
        const float a = from_lane(x, i), b = from_lane(x, i + GROUP / 2);
        const float error_a = a - scale * (shifted(a * inverse, -8.0f, 7.0f) - ROUND);
        const float error_b = b - scale * (shifted(b * inverse, -8.0f, 7.0f) - ROUND);
        error += error_a * error_a + error_b * error_b;
    }
    // The first of the smallest; an error that is no number is none.
    const bool is_one = lane < 12 && error < __builtin_huge_valf();
    const float least = -max_of(is_one ? -error : NONE, WARP);
    const u32 winners = __ballot_sync(FULL, is_one && error == least);
    const u32 winner = winners ? __ffs(winners) - 1 : 0;
    const u32 chosen = __shfl_sync(FULL, (u32)bits, winner);
    return winners ? chosen : 0;
}

// Balances the key at `position` that a warp holds, with the bits of the CPU's.
__device__ __forceinline__ void balance(
    float (&x)[HELD], const Centers& centers, u32 head, u32 position, u32 dim) {
    const float* factors = balance_part(centers.numbers, head, FACTORS, dim);
#pragma unroll
    for (u32 i = 0; i < HELD; i++) {
        const u32 d = i * WARP + threadIdx.x % WARP;
        if (d < dim) x[i] = (x[i] - centers.element(head, position, dim, d)) * factors[d];
    }
}

// One head of one token, rotated, into its places of the tile.
__device__ __forceinline__ void quantize(
    u8* tile, const float (&x)[HELD], u32 dim, u32 format, bool is_key, u32 token) {
    const u32 lane = threadIdx.x % WARP, groups = dim / GROUP;
    u16* scales = (u16*)(tile + TILE * quant_bytes(format, dim));
#pragma unroll
    for (u32 g = 0; g < HELD; g++) {
        if (g >= groups) break;
        u16 scale;
        if (format == Q8) {
            scale = scale_8(x[g]);
            const u32 quant = rounded(x[g] * inverse_of(f16_float(scale)), -127.0f, 127.0f);
            const u32 quad = 8 * g + lane / 4;
            if (is_key)
                tile[(quad * TILE + token) * 4 + lane % 4] = quant ^ 0x80;
            else
                tile[token * dim + g * GROUP + lane] = quant;
        } else {
            scale = scale_4(x[g]);
            const u32 quant = rounded(x[g] * inverse_of(f16_float(scale)), -8.0f, 7.0f) + 8 & 15;
            const u32 high = __shfl_down_sync(FULL, quant, GROUP / 2);
            const u32 quad = 4 * g + lane / 4;
            if (lane < GROUP / 2) {
                const u32 at = is_key ? (quad * TILE + token) * 4 + lane % 4
                                      : (token * groups + g) * (GROUP / 2) + lane;
                tile[at] = quant | high << 4;
            }
        }
        // A NaN is not hidden.
        if (__any_sync(FULL, x[g] != x[g])) scale = 0x7e00;
        if (lane == 0) scales[is_key ? g * TILE + token : token * groups + g] = scale;
    }
}

// Those elements of the tile that belong to the tokens from `first` to before `end`.
template <class T>
__device__ __forceinline__ void put(
    u8* to, const u8* tile, u32 per_token, bool is_key, u32 first, u32 end) {
    for (u32 i = threadIdx.x; i < TILE * per_token; i += blockDim.x) {
        const u32 token = is_key ? i % TILE : i / per_token;
        if (token >= first && token < end) ((T*)to)[i] = ((const T*)tile)[i];
    }
}

}  // namespace

// keys, values: [tokens][kv_heads][dim], tokens `stride` elements apart. blocks: the address of the slot of each 64
// positions. offset: the position of the first token. key_at, value_at: bytes from a slot's beginning to this layer's keys
// and values. numbers, cos, sin, halves: the balance of keys, see balance.cuh; numbers may be null.
extern "C" __global__ void __launch_bounds__(512) kv_write(
    const float* keys, const float* values, const u64* blocks, const u32* offset, u64 key_at,
    u64 value_at, u32 tokens, u32 key_stride, u32 value_stride, u32 kv_heads, u32 dim,
    u32 key_format, u32 value_format, const float* numbers, const float* cos, const float* sin,
    u32 halves) {
    extern __shared__ __align__(16) u8 tile[];
    const u32 begin = *offset, end = begin + tokens;
    const u32 start = (begin / TILE + blockIdx.x) * TILE;
    if (start >= end) return;
    const bool is_key = blockIdx.z == 0;
    const u32 format = is_key ? key_format : value_format;
    const u32 head = blockIdx.y, token = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (start + token >= begin && start + token < end) {
        const u64 row = (u64)(start + token - begin) * (is_key ? key_stride : value_stride);
        const float* from = (is_key ? keys : values) + row + head * dim;
        float x[HELD];
#pragma unroll
        for (u32 i = 0; i < HELD; i++) x[i] = i * WARP + lane < dim ? from[i * WARP + lane] : 0.0f;
        if (is_rotated(format)) {
            const Centers centers = {numbers, cos, sin, halves};
            if (is_key && numbers) balance(x, centers, head, start + token, dim);
            hadamard(x, dim);
            quantize(tile, x, dim, format, is_key, token);
        } else {
#pragma unroll
            for (u32 i = 0; i < HELD; i++) {
                const u32 d = i * WARP + lane;
                if (d >= dim) break;
                ((u16*)tile)[is_key ? d * TILE + token : token * dim + d] =
                    format == F16 ? to_f16(x[i]) : to_bf16(x[i]);
            }
        }
    }
    __syncthreads();
    const u32 first = begin > start ? begin - start : 0, last = end - start;
    const u64 slot = blocks[start / BLOCK] + (is_key ? key_at : value_at);
    u8* to = global((void*)(slot + tile_at(start, head, kv_heads, tile_bytes(format, dim))));
    if (is_rotated(format)) {
        const u32 quants = TILE * quant_bytes(format, dim);
        put<u32>(to, tile, quants / TILE / 4, is_key, first, last);
        put<u16>(to + quants, tile + quants, dim / GROUP, is_key, first, last);
    } else {
        put<u16>(to, tile, dim, is_key, first, last);
    }
}
