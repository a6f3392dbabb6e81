// Matrices of 16-bit elements in shared memory, and the keys and values of a block of tokens brought into that form.
#pragma once

#include "attention.cuh"
#include "mma.cuh"

// Threads that load together.
constexpr u32 LOADERS = 128;

// Byte of piece `piece` of a row of `elements` 16-bit elements.
template <u32 ELEMENTS>
__device__ __forceinline__ u32 piece_at(u32 row, u32 piece) {
    const u32 swap = ELEMENTS % 64 == 0 ? row % 8 : row / 2 % 4;
    return (row * (ELEMENTS / 8) + (piece ^ swap)) * 16;
}

// Two f16 of which none is infinite.
__device__ __forceinline__ u32 pack_finite(float low, float high) {
    return pack(clamped(low, MAX_F16), clamped(high, MAX_F16), false);
}

// The keys of a block of tokens to [DIM][64].
template <u32 DIM>
__device__ __forceinline__ void load_keys(u8* to, const u8* from, u32 format, u32 stride) {
    if (!is_rotated(format)) {
        for (u32 i = threadIdx.x; i < 4 * 2 * DIM; i += LOADERS) {
            const u32 tile = i / (2 * DIM), at = i % (2 * DIM);
            copy_16(to + piece_at<64>(at / 2, 2 * tile + at % 2), from + tile * stride + at * 16);
        }
        return;
    }
    // 16 bytes are 4 tokens of 4 elements, in q4 of 4 more, 16 further.
    const u32 per_group = format == Q8 ? 32 : 16, quads = per_group / 4;
    const u32 per_tile = DIM / GROUP * per_group, scales = TILE * quant_bytes(format, DIM);
    for (u32 i = threadIdx.x; i < 4 * per_tile; i += LOADERS) {
        const u32 tile = i / per_tile, at = i % per_tile, token = at % 4 * 4;
        const u32 group = at / per_group, d = group * GROUP + at / 4 % quads * 4;
        const u8* source = from + tile * stride;
        const uint4 quants = *(const uint4*)(source + at * 16);
        const uint2 both = *(const uint2*)(source + scales + (group * TILE + token) * 2);
        const u32 words[4] = {quants.x, quants.y, quants.z, quants.w};
        const float scale[4] = {f16_float(both.x), f16_float(both.x >> 16), f16_float(both.y),
                                f16_float(both.y >> 16)};
        for (u32 high = 0; high < (format == Q8 ? 1 : 2); high++) {
#pragma unroll
            for (u32 e = 0; e < 4; e++) {
                float x[4];
#pragma unroll
                for (u32 t = 0; t < 4; t++) {
                    const u32 nibbles = words[t] >> 4 * high & 0x0f0f0f0f;
                    const u32 word = format == Q8 ? words[t] : nibbles;
                    x[t] = scale[t] * byte_float(word, e, format == Q8 ? 128.0f : 8.0f);
                }
                const u32 row = d + e + high * 16, piece = 2 * tile + token / 8;
                *(uint2*)(to + piece_at<64>(row, piece) + token % 8 * 2) =
                    make_uint2(pack_finite(x[0], x[1]), pack_finite(x[2], x[3]));
            }
        }
    }
}

// Eight elements of 8 bits, the first four in `low`.
__device__ __forceinline__ uint4 widened(u32 low, u32 high, float scale, float offset) {
    float x[8];
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        x[i] = scale * byte_float(low, i, offset);
        x[i + 4] = scale * byte_float(high, i, offset);
    }
    return make_uint4(pack_finite(x[0], x[1]), pack_finite(x[2], x[3]), pack_finite(x[4], x[5]),
                      pack_finite(x[6], x[7]));
}

// The values of a block of tokens to [64][DIM]; zero from token `written` on, which nobody may have written.
template <u32 DIM>
__device__ __forceinline__ void load_values(
    u8* to, const u8* from, u32 format, u32 stride, u32 written) {
    // 16 bytes are 8, 16 or 32 elements of a token.
    const u32 elements = format == Q4 ? 32 : format == Q8 ? 16 : 8, per_token = DIM / elements;
    const u32 scales = TILE * quant_bytes(format, DIM), pieces = elements / 8;
    for (u32 i = threadIdx.x; i < BLOCK * per_token; i += LOADERS) {
        const u32 token = i / per_token, at = i % per_token, row = token % TILE;
        const u8* source = from + token / TILE * stride;
        const u8* quants = source + (row * per_token + at) * 16;
        if (token >= written) {
            for (u32 p = 0; p < pieces; p++)
                *(uint4*)(to + piece_at<DIM>(token, at * pieces + p)) = make_uint4(0, 0, 0, 0);
            continue;
        }
        if (!is_rotated(format)) {
            copy_16(to + piece_at<DIM>(token, at), quants);
            continue;
        }
        const uint4 q = *(const uint4*)quants;
        const u32 group = at * elements / GROUP;
        const u32 bits = *(const u16*)(source + scales + (row * (DIM / GROUP) + group) * 2);
        const float scale = f16_float(bits);
        if (format == Q8) {
            // Without their sign, bytes are 128 larger.
            const u32 sign = 0x80808080;
            *(uint4*)(to + piece_at<DIM>(token, 2 * at)) =
                widened(q.x ^ sign, q.y ^ sign, scale, 128.0f);
            *(uint4*)(to + piece_at<DIM>(token, 2 * at + 1)) =
                widened(q.z ^ sign, q.w ^ sign, scale, 128.0f);
        } else {
            for (u32 high = 0; high < 2; high++) {
                const u32 shift = 4 * high, mask = 0x0f0f0f0f, piece = 4 * at + 2 * high;
                *(uint4*)(to + piece_at<DIM>(token, piece)) =
                    widened(q.x >> shift & mask, q.y >> shift & mask, scale, 8.0f);
                *(uint4*)(to + piece_at<DIM>(token, piece + 1)) =
                    widened(q.z >> shift & mask, q.w >> shift & mask, scale, 8.0f);
            }
        }
    }
}
