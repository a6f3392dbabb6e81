// Zeroes the tokens of a block from one on, in all layers: what is left of a block that is cut.
//
// Grid: (4 tiles, kv_heads, layers * 2: keys, then values). A tile's tokens are lanes of keys and rows of values.
#include "common.cuh"

namespace {

template <class T>
__device__ __forceinline__ void clear(u8* tile, u32 per_token, bool is_key, u32 kept) {
    for (u32 i = threadIdx.x; i < TILE * per_token; i += blockDim.x) {
        const u32 token = is_key ? i % TILE : i / per_token;
        if (token >= kept) ((T*)tile)[i] = 0;
    }
}

}  // namespace

// slot: its address. kept: tokens of the block that stay.
extern "C" __global__ void __launch_bounds__(128) clear_tokens(
    u64 slot, u32 kept, u32 kv_heads, u32 dim, u32 key_format, u32 value_format) {
    const u32 first = blockIdx.x * TILE;
    if (kept >= first + TILE) return;
    const u32 keep = kept > first ? kept - first : 0;
    const bool is_key = blockIdx.z % 2 == 0;
    const u32 format = is_key ? key_format : value_format;
    const u64 key_slab = (u64)(BLOCK / TILE) * kv_heads * tile_bytes(key_format, dim);
    const u64 value_slab = (u64)(BLOCK / TILE) * kv_heads * tile_bytes(value_format, dim);
    const u64 at = blockIdx.z / 2 * (key_slab + value_slab) + (is_key ? 0 : key_slab);
    u8* tile = global((void*)(slot + at + tile_at(first, blockIdx.y, kv_heads, tile_bytes(format, dim))));
    if (is_rotated(format)) {
        const u32 quants = TILE * quant_bytes(format, dim);
        clear<u32>(tile, quants / TILE / 4, is_key, keep);
        clear<u16>(tile + quants, dim / GROUP, is_key, keep);
    } else {
        clear<u16>(tile, dim, is_key, keep);
    }
}
