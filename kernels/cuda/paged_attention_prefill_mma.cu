// Attention of many queries on tensor cores (sm_80), for heads of 64, 96, 128 and 256 elements.
//
// A row is one query head of one token; rows of a KV head are numbered token by token, `group` to each, and a block takes 64 of
// them, 16 to each of its 4 warps. It walks the blocks of 64 tokens that its rows see, at absolute places, as FlashAttention-2
// (Dao, 2023) does: scores of 64 rows and 64 tokens, an online softmax, weights times values. A block of tokens in which a row
// sees nothing leaves the row's bits alone, so that they depend on its position only. 16-bit keys and values are copied as
// they are; quantized ones become f16. Queries and weights are rounded to the type of the keys and of the values.
//
// Grid: (rows / 64, kv_heads), the last rows first, since they see most. Block: 4 warps.
// Shared memory, 16-bit, in pieces of 8 elements that are permuted within each row so that no two of a matrix share a bank:
// queries [64][DIM], keys [DIM][64], values [64][DIM]; at the end keys and values make room for the outputs [64][DIM] f32.
#include "attention.cuh"

namespace {

constexpr u32 THREADS = 128;
constexpr u32 ROWS = 64;

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
        for (u32 i = threadIdx.x; i < 4 * 2 * DIM; i += THREADS) {
            const u32 tile = i / (2 * DIM), at = i % (2 * DIM);
            copy_16(to + piece_at<64>(at / 2, 2 * tile + at % 2), from + tile * stride + at * 16);
        }
        return;
    }
    // 16 bytes are 4 tokens of 4 elements, in q4 of 4 more, 16 further.
    const u32 per_group = format == Q8 ? 32 : 16, quads = per_group / 4;
    const u32 per_tile = DIM / GROUP * per_group, scales = TILE * quant_bytes(format, DIM);
    for (u32 i = threadIdx.x; i < 4 * per_tile; i += THREADS) {
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
    for (u32 i = threadIdx.x; i < BLOCK * per_token; i += THREADS) {
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

// A warp's 16 rows: lane l has rows l / 4 and l / 4 + 8, and of each 8 columns 2 (l % 4) and the next.
template <u32 DIM>
struct Rows {
    float sums[DIM / 8][4];
    float largest[2];
    // Of the columns of this lane only.
    float sum[2];
    u32 position[2];
    u32 first_seen[2];
    bool is_row[2];

    __device__ __forceinline__ void start(const Attention& a, u32 first_row, u32 all_rows) {
#pragma unroll
        for (u32 n = 0; n < DIM / 8; n++)
#pragma unroll
            for (u32 i = 0; i < 4; i++) sums[n][i] = 0.0f;
#pragma unroll
        for (u32 r = 0; r < 2; r++) {
            const u32 row = first_row + row_of(r);
            largest[r] = NONE;
            sum[r] = 0.0f;
            is_row[r] = row < all_rows;
            position[r] = *a.offset + row / a.group();
            first_seen[r] = a.first_seen(position[r]);
        }
    }

    // The row of a block that this lane has as its first or second.
    static __device__ __forceinline__ u32 row_of(u32 r) {
        return threadIdx.x / WARP * 16 + threadIdx.x % WARP / 4 + 8 * r;
    }

    // Turns scores of the tokens from `start` on into weights, and rescales the sums.
    __device__ __forceinline__ void weigh(float (&scores)[8][4], u32 start, float softcap) {
        const u32 column = threadIdx.x % 4 * 2;
#pragma unroll
        for (u32 r = 0; r < 2; r++) {
            float most = largest[r];
#pragma unroll
            for (u32 n = 0; n < 8; n++) {
#pragma unroll
                for (u32 i = 0; i < 2; i++) {
                    const u32 key = start + 8 * n + column + i;
                    const bool is_seen = is_row[r] && key <= position[r] && key >= first_seen[r];
                    float& score = scores[n][2 * r + i];
                    score = is_seen ? capped(score, softcap) : NONE;
                    most = fmaxf(most, score);
                }
            }
            most = fmaxf(most, across(most, 1));
            most = fmaxf(most, across(most, 2));
            // Before the first token that is seen there is no largest score to subtract.
            const float base = most == NONE ? 0.0f : most;
            const float factor = exp_less(largest[r], base);
            largest[r] = most;
            float added = 0.0f;
#pragma unroll
            for (u32 n = 0; n < 8; n++) {
#pragma unroll
                for (u32 i = 0; i < 2; i++) {
                    float& score = scores[n][2 * r + i];
                    score = exp_less(score, base);
                    added += score;
                }
            }
            rescale(r, factor);
            sum[r] += added;
        }
    }

    __device__ __forceinline__ void rescale(u32 r, float factor) {
        sum[r] *= factor;
#pragma unroll
        for (u32 n = 0; n < DIM / 8; n++) {
            sums[n][2 * r] *= factor;
            sums[n][2 * r + 1] *= factor;
        }
    }
};

// The queries of a warp's rows to [64][DIM].
template <u32 DIM, bool IS_BF16>
__device__ __forceinline__ void load_queries(
    u8* to, const float* queries, const Attention& a, u32 first_row, u32 all_rows) {
    const u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    for (u32 r = warp * 16; r < warp * 16 + 16; r++) {
        float x[HELD] = {};
        if (first_row + r < all_rows) load_query(x, queries + a.row_at(first_row + r, blockIdx.y), a);
#pragma unroll
        for (u32 i = 0; i < DIM / WARP; i++) {
            const u32 d = i * WARP + lane;
            *(u16*)(to + piece_at<DIM>(r, d / 8) + d % 8 * 2) =
                IS_BF16 ? to_bf16(x[i]) : to_f16(x[i]);
        }
    }
}

// Scores of a warp's 16 rows and the 64 tokens whose keys are there. Addresses are of shared memory.
template <u32 DIM, bool IS_BF16>
__device__ __forceinline__ void score(float (&scores)[8][4], u32 queries, u32 keys) {
    const u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
#pragma unroll 2
    for (u32 d = 0; d < DIM; d += 16) {
        u32 q[4];
        load_matrices(q, queries + piece_at<DIM>(warp * 16 + lane % 16, d / 8 + lane / 16));
#pragma unroll
        for (u32 n = 0; n < 8; n += 2) {
            u32 k[4];
            load_transposed(k, keys + piece_at<64>(d + lane % 16, n + lane / 16));
            multiply<IS_BF16>(scores[n], q, k[0], k[1]);
            multiply<IS_BF16>(scores[n + 1], q, k[2], k[3]);
        }
    }
}

// Adds the values that are there, times their weights.
template <u32 DIM, bool IS_BF16>
__device__ __forceinline__ void add(Rows<DIM>& rows, const float (&scores)[8][4], u32 values) {
    const u32 lane = threadIdx.x % WARP;
#pragma unroll
    for (u32 t = 0; t < BLOCK; t += 16) {
        const float(&low)[4] = scores[t / 8];
        const float(&high)[4] = scores[t / 8 + 1];
        const u32 weights[4] = {pack(low[0], low[1], IS_BF16), pack(low[2], low[3], IS_BF16),
                                pack(high[0], high[1], IS_BF16), pack(high[2], high[3], IS_BF16)};
#pragma unroll
        for (u32 n = 0; n < DIM / 8; n += 2) {
            u32 v[4];
            load_transposed(v, values + piece_at<DIM>(t + lane % 16, n + lane / 16));
            multiply<IS_BF16>(rows.sums[n], weights, v[0], v[1]);
            multiply<IS_BF16>(rows.sums[n + 1], weights, v[2], v[3]);
        }
    }
}

// A warp's rows, by way of its part of `memory` [64][DIM] f32, to the outputs.
template <u32 DIM>
__device__ __forceinline__ void store(
    Rows<DIM>& rows, float* memory, float* out, const float* sinks, const Attention& a,
    u32 first_row, u32 all_rows) {
    const u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
#pragma unroll
    for (u32 r = 0; r < 2; r++) {
        const u32 at = Rows<DIM>::row_of(r), head = (first_row + at) % a.group();
        rows.sum[r] += across(rows.sum[r], 1);
        rows.sum[r] += across(rows.sum[r], 2);
        if (sinks && rows.is_row[r]) {
            const float sink = sinks[blockIdx.y * a.group() + head];
            const float most = fmaxf(rows.largest[r], sink);
            rows.rescale(r, exp_less(rows.largest[r], most));
            rows.sum[r] += exp_less(sink, most);
        }
#pragma unroll
        for (u32 n = 0; n < DIM / 8; n++)
            *(float2*)(memory + at * DIM + 8 * n + lane % 4 * 2) = make_float2(
                rows.sums[n][2 * r] / rows.sum[r], rows.sums[n][2 * r + 1] / rows.sum[r]);
    }
    __syncwarp();
    for (u32 r = warp * 16; r < warp * 16 + 16; r++) {
        if (first_row + r >= all_rows) break;
        float x[HELD] = {};
#pragma unroll
        for (u32 i = 0; i < DIM / WARP; i++) x[i] = memory[r * DIM + i * WARP + lane];
        store_output(out + a.row_at(first_row + r, blockIdx.y), x, a);
    }
}

template <u32 DIM, bool IS_BF16>
__device__ __forceinline__ void attend(
    const Attention& a, const float* queries, const float* sinks, float* out, u32 tokens, u8* memory) {
    const u32 group = a.group(), kv_head = blockIdx.y, begin = *a.offset;
    const u32 first_row = (gridDim.x - 1 - blockIdx.x) * ROWS, all_rows = tokens * group;
    u8* query = memory;
    u8* key = query + ROWS * DIM * 2;
    u8* value = key + BLOCK * DIM * 2;
    const u32 query_at = (u32)__cvta_generic_to_shared(query);
    const u32 key_at = (u32)__cvta_generic_to_shared(key);
    const u32 value_at = (u32)__cvta_generic_to_shared(value);
    const u32 key_stride = a.kv_heads * tile_bytes(a.key_format, DIM);
    const u32 value_stride = a.kv_heads * tile_bytes(a.value_format, DIM);
    const u32 first = a.first_seen(begin + first_row / group) / BLOCK * BLOCK;
    const u32 last = begin + (min(first_row + ROWS, all_rows) - 1) / group;

    load_queries<DIM, IS_BF16>(query, queries, a, first_row, all_rows);
    Rows<DIM> rows;
    rows.start(a, first_row, all_rows);
    load_keys<DIM>(key, a.keys(first, kv_head), a.key_format, key_stride);
    commit_copies();
    for (u32 start = first; start <= last; start += BLOCK) {
        // Keys are there, and everyone is done with the values before.
        wait_copies<0>();
        __syncthreads();
        load_values<DIM>(
            value, a.values(start, kv_head), a.value_format, value_stride, begin + tokens - start);
        commit_copies();
        float scores[8][4] = {};
        score<DIM, IS_BF16>(scores, query_at, key_at);
        rows.weigh(scores, start, a.softcap);
        // Values are there, and everyone is done with the keys.
        wait_copies<0>();
        __syncthreads();
        if (start + BLOCK <= last)
            load_keys<DIM>(
                key, a.keys(start + BLOCK, kv_head), a.key_format, key_stride);
        commit_copies();
        add<DIM, IS_BF16>(rows, scores, value_at);
    }
    // The outputs take the place of keys and values.
    __syncthreads();
    store(rows, (float*)key, out, sinks, a, first_row, all_rows);
}

}  // namespace

// queries, out: [tokens][num_heads][DIM]. sinks: [num_heads], scores that take weight and have no value, or null. `f16` is for
// keys and values in f16, q8 or q4, `bf16` for both in bf16.
#define PREFILL(DIM, TYPE, IS_BF16)                                                               \
    extern "C" __global__ void __launch_bounds__(128) paged_attention_prefill_##DIM##_##TYPE(    \
        const float* queries, const float* sinks, float* out, u32 tokens, const u64* blocks,     \
        const u32* offset, u64 key_at, u64 value_at, u32 num_heads, u32 kv_heads, u32 dim,       \
        u32 key_format, u32 value_format, u32 window, float scale, float softcap) {              \
        extern __shared__ __align__(16) u8 memory[];                                             \
        const Attention a = {blocks,                                                             \
                             offset,                                                             \
                             key_at,                                                             \
                             value_at,                                                           \
                             num_heads,                                                          \
                             kv_heads,                                                           \
                             DIM,                                                                \
                             IS_BF16 ? BF16 : key_format,                                        \
                             IS_BF16 ? BF16 : value_format,                                      \
                             window,                                                             \
                             scale,                                                              \
                             softcap};                                                           \
        attend<DIM, IS_BF16>(a, queries, sinks, out, tokens, memory);                            \
    }

PREFILL(64, f16, false)
PREFILL(96, f16, false)
PREFILL(128, f16, false)
PREFILL(256, f16, false)
PREFILL(64, bf16, true)
PREFILL(96, bf16, true)
PREFILL(128, bf16, true)
PREFILL(256, bf16, true)
