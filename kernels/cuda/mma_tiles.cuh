// Matrices of 16-bit elements in shared memory: products of them on tensor cores (sm_80), and the keys and values of a block of
// tokens brought into that form.
#pragma once

#include "attention.cuh"

// Threads that load together.
constexpr u32 LOADERS = 128;

// Byte of piece `piece` of a row of `elements` 16-bit elements.
template <u32 ELEMENTS>
__device__ __forceinline__ u32 piece_at(u32 row, u32 piece) {
    const u32 swap = ELEMENTS % 64 == 0 ? row % 8 : row / 2 % 4;
    return (row * (ELEMENTS / 8) + (piece ^ swap)) * 16;
}

__device__ __forceinline__ u32 pack(float low, float high, bool bf16) {
    u32 both;
    if (bf16)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

// Two f16 of which none is infinite.
__device__ __forceinline__ u32 pack_finite(float low, float high) {
    return pack(clamped(low, MAX_F16), clamped(high, MAX_F16), false);
}

__device__ __forceinline__ void load_matrices(u32 (&to)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void load_transposed(u32 (&to)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

// c += a b for 16 × 16 and 16 × 8.
template <bool IS_BF16>
__device__ __forceinline__ void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    if (IS_BF16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
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
