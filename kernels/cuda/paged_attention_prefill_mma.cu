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
#include "mma_tiles.cuh"

namespace {

constexpr u32 ROWS = 64;

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

    // What the scores of the block at `start` lack: for the first token of the lane, which may be that of position 0, and for
    // all others.
    __device__ __forceinline__ void load_key_offsets(
        float (&lacking)[2][2], const Attention& a, u32 first_row, u32 start) {
#pragma unroll
        for (u32 r = 0; r < 2; r++) {
            if (!is_row[r]) continue;
            const u64 query = a.query_of(first_row + row_of(r), blockIdx.y);
            const u32 key = start + threadIdx.x % 4 * 2;
            lacking[r][0] = a.key_offset(query, key, first_seen[r], position[r]);
            lacking[r][1] = a.key_offset(query, start + 1, first_seen[r], position[r]);
        }
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
        const u32 row = first_row + r;
        if (row < all_rows) load_query(x, queries + a.row_at(row, blockIdx.y), blockIdx.y, a);
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

// Adds what scores lack: see Rows::load_key_offsets.
__device__ __forceinline__ void add_key_offsets(float (&scores)[8][4], const float (&lacking)[2][2]) {
#pragma unroll
    for (u32 n = 0; n < 8; n++)
#pragma unroll
        for (u32 i = 0; i < 4; i++) scores[n][i] += lacking[i / 2][n > 0 || i % 2 > 0];
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
        float lacking[2][2] = {};
        if (a.key_offsets) rows.load_key_offsets(lacking, a, first_row, start);
        float scores[8][4] = {};
        score<DIM, IS_BF16>(scores, query_at, key_at);
        if (a.key_offsets) add_key_offsets(scores, lacking);
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
        u32 key_format, u32 value_format, u32 window, float scale, float softcap,                \
        const float* balance, const float* key_offsets, u32 key_offset_stride) {                 \
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
                             softcap,                                                            \
                             IS_BF16 ? nullptr : balance,                                        \
                             IS_BF16 ? nullptr : key_offsets,                                    \
                             key_offset_stride};                                                 \
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
