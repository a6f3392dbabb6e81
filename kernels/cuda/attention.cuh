// What the attention kernels share: their arguments, and reading tiles.
#pragma once

#include "balance.cuh"

// The same for every attention kernel. Queries and outputs are [tokens][num_heads][dim]; head h belongs to KV head
// h / (num_heads / kv_heads). A query sees the positions up to its own, the last `window` of them where that is not 0.
struct Attention {
    // The address of the slot of each 64 positions.
    const u64* blocks;
    // The position of the first query.
    const u32* offset;
    // Bytes from a slot's beginning to this layer's keys and values.
    u64 key_at;
    u64 value_at;
    u32 num_heads;
    u32 kv_heads;
    u32 dim;
    u32 key_format;
    u32 value_format;
    u32 window;
    // Factor of the scores, and their cap where it is not 0: cap * tanh(score / cap).
    float scale;
    float softcap;
    // The layer's balance of keys (see balance.cuh), and what key_offsets.cu made of it: entries of each row, as many from one
    // row to the next as `key_offset_stride`. Null where keys are as they come.
    const float* balance;
    const float* key_offsets;
    u32 key_offset_stride;

    __device__ __forceinline__ u32 group() const { return num_heads / kv_heads; }

    __device__ __forceinline__ u32 first_seen(u32 position) const {
        return ::first_seen(position, window);
    }

    // The query head of a row. Prefill numbers the query heads of a KV head token by token, `group` to each.
    __device__ __forceinline__ u64 query_of(u32 row, u32 kv_head) const {
        const u64 token = row / group();
        return token * num_heads + kv_head * group() + row % group();
    }

    // Where a row of queries or outputs begins.
    __device__ __forceinline__ u64 row_at(u32 row, u32 kv_head) const {
        return query_of(row, kv_head) * dim;
    }

    // What the score of a query head with the key at `key` lacks, and with all of its block but position 0. The query sees the
    // positions from `first` to `last`: for others there may be no entry, so that they get one of these.
    __device__ __forceinline__ float key_offset(u64 query, u32 key, u32 first, u32 last) const {
        key = min(max(key, first), last);
        return key_offsets[query * key_offset_stride + (key == 0 ? 0 : 1 + key / BLOCK)];
    }

    __device__ __forceinline__ const u8* keys(u32 position, u32 head) const {
        const u64 slot = blocks[position / BLOCK] + key_at;
        return global((void*)(slot + tile_at(position, head, kv_heads, tile_bytes(key_format, dim))));
    }

    __device__ __forceinline__ const u8* values(u32 position, u32 head) const {
        const u64 slot = blocks[position / BLOCK] + value_at;
        return global((void*)(slot + tile_at(position, head, kv_heads, tile_bytes(value_format, dim))));
    }
};

// Elements d and d + 1 (d even) of token `token` of a tile of values.
__device__ __forceinline__ float2 value_pair(const u8* tile, u32 format, u32 dim, u32 token, u32 d) {
    if (!is_rotated(format)) {
        const u32 both = *(const u32*)(tile + 2 * (token * dim + d));
        if (format == BF16) return make_float2(bf16_float(both & 0xffff), bf16_float(both >> 16));
        return make_float2(f16_float(both), f16_float(both >> 16));
    }
    const u32 groups = dim / GROUP, group = d / GROUP, i = d % GROUP;
    const u16* scales = (const u16*)(tile + TILE * quant_bytes(format, dim));
    const float scale = f16_float(scales[token * groups + group]);
    if (format == Q8) {
        // Without their sign, bytes are 128 larger.
        const u32 both = *(const u16*)(tile + token * dim + d) ^ 0x8080;
        return make_float2(scale * byte_float(both, 0, 128.0f), scale * byte_float(both, 1, 128.0f));
    }
    const u32 at = (token * groups + group) * (GROUP / 2) + i % (GROUP / 2);
    const u32 both = *(const u16*)(tile + at) >> (i < GROUP / 2 ? 0 : 4) & 0x0f0f;
    return make_float2(scale * byte_float(both, 0, 8.0f), scale * byte_float(both, 1, 8.0f));
}

// Element d of token `token` of a tile of keys.
__device__ __forceinline__ float key_element(const u8* tile, u32 format, u32 dim, u32 token, u32 d) {
    if (!is_rotated(format))
        return half_float(format, ((const u16*)tile)[d * TILE + token]);
    const u32 group = d / GROUP, i = d % GROUP;
    const u16* scales = (const u16*)(tile + TILE * quant_bytes(format, dim));
    const float scale = f16_float(scales[group * TILE + token]);
    if (format == Q8) return scale * byte_float(tile[(d / 4 * TILE + token) * 4 + d % 4], 0, 128.0f);
    const u32 quad = group * 4 + i % (GROUP / 2) / 4;
    const u32 byte = tile[(quad * TILE + token) * 4 + i % 4];
    return scale * byte_float(i < GROUP / 2 ? byte & 15 : byte >> 4, 0, 8.0f);
}

// A warp's query head, scaled, and balanced and rotated where the keys are. Zero beyond the head.
__device__ __forceinline__ void load_query(
    float (&x)[HELD], const float* query, u32 kv_head, const Attention& a) {
    const u32 lane = threadIdx.x % WARP;
#pragma unroll
    for (u32 i = 0; i < HELD; i++) {
        const u32 d = i * WARP + lane;
        x[i] = d < a.dim ? query[d] * a.scale : 0.0f;
        if (a.balance && d < a.dim) x[i] *= balance_part(a.balance, kv_head, INVERSE, a.dim)[d];
    }
    if (is_rotated(a.key_format)) hadamard(x, a.dim);
}

// A warp's row of outputs, rotated back where the values are. Adding 0 makes a negative zero positive: which of the two a sum is
// depends on what is masked.
__device__ __forceinline__ void store_output(float* out, float (&x)[HELD], const Attention& a) {
    const u32 lane = threadIdx.x % WARP;
    if (is_rotated(a.value_format)) hadamard(x, a.dim);
#pragma unroll
    for (u32 i = 0; i < HELD; i++)
        if (i * WARP + lane < a.dim) out[i * WARP + lane] = x[i] + 0.0f;
}
