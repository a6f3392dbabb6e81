// Attention of single queries, split over the context.
//
// A split is 128 positions at an absolute place, so a query's result depends on its position alone. All query heads of a KV
// head (up to HEADS of them) are attended together. Each warp of a block takes every fourth tile of 16 tokens of the split:
// keys are read with 128-bit loads straight from their tile, in whatever format it is; the tile of values is copied to the
// warp's own shared memory meanwhile. The warps' softmax states are joined in their order; `paged_attention_combine` joins
// the splits in theirs.
//
// Grid: (splits that the context touches, kv_heads * chunks of HEADS query heads, tokens). Block: 4 warps.
// Shared memory: queries [HEADS][dim]; for each warp weights [16][HEADS]; for each warp its tile of values, later its sums
// [HEADS][dim + 2].
#include "attention.cuh"

namespace {

constexpr u32 SPLIT = 128;
constexpr u32 WARPS = 4;

// Adds, in lanes that differ in `across_lanes` only, halves of N sums: lanes with the bit keep the upper half.
template <u32 N>
__device__ __forceinline__ void halve(float* sums, u32 lane_bit) {
    const bool upper = threadIdx.x & lane_bit;
#pragma unroll
    for (u32 i = 0; i < N / 2; i++) {
        const float kept = upper ? sums[i + N / 2] : sums[i];
        const float given = upper ? sums[i] : sums[i + N / 2];
        sums[i] = kept + across(given, lane_bit);
    }
}

// Scores of a tile of 16-bit keys, into weights [16][HEADS]. A lane takes 8 tokens of every 16th element of the head.
template <u32 HEADS>
__device__ __forceinline__ void scores_16(
    float* weights, const u8* tile, const float* queries, u32 format, u32 dim) {
    const u32 lane = threadIdx.x % WARP;
    float sums[HEADS][8] = {};
#pragma unroll 4
    for (u32 d = lane / 2; d < dim; d += TILE) {
        const uint4 eight = *(const uint4*)(tile + 2 * (d * TILE + lane % 2 * 8));
        const u32 words[4] = {eight.x, eight.y, eight.z, eight.w};
        float keys[8];
#pragma unroll
        for (u32 i = 0; i < 8; i++) keys[i] = half_float(format, words[i / 2] >> i % 2 * 16);
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) {
            const float q = queries[h * dim + d];
#pragma unroll
            for (u32 i = 0; i < 8; i++) sums[h][i] = fmaf(q, keys[i], sums[h][i]);
        }
    }
    const u32 token = lane % 2 * 8 + lane / 16 * 4 + lane / 8 % 2 * 2 + lane / 4 % 2;
#pragma unroll
    for (u32 h = 0; h < HEADS; h++) {
        halve<8>(sums[h], 16);
        halve<4>(sums[h], 8);
        halve<2>(sums[h], 4);
        const float score = sums[h][0] + across(sums[h][0], 2);
        if (lane / 2 % 2 == 0) weights[token * HEADS + h] = score;
    }
}

// The same of quantized keys. A lane takes 4 tokens of 4 elements of a group; in q4 of 4 more, 16 further, and of every other
// group.
template <u32 HEADS>
__device__ __forceinline__ void scores_quantized(
    float* weights, const u8* tile, const float* queries, u32 format, u32 dim) {
    const u32 lane = threadIdx.x % WARP, groups = dim / GROUP;
    const u8* scales = tile + TILE * quant_bytes(format, dim);
    float sums[HEADS][4] = {};
    for (u32 g = format == Q4 ? lane / 16 : 0; g < groups; g += format == Q4 ? 2 : 1) {
        const u32 quad = format == Q4 ? lane / 4 % 4 : lane / 4;
        const u32 row = (format == Q4 ? 4 * g : 8 * g) + quad;
        const uint4 four = *(const uint4*)(tile + (row * TILE + lane % 4 * 4) * 4);
        const uint2 both = *(const uint2*)(scales + 2 * (g * TILE + lane % 4 * 4));
        const u32 words[4] = {four.x, four.y, four.z, four.w};
        const float* q = queries + g * GROUP + quad * 4;
#pragma unroll
        for (u32 t = 0; t < 4; t++) {
            const float scale = f16_float((t < 2 ? both.x : both.y) >> t % 2 * 16);
            float low[4], high[4];
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                const u32 word = format == Q4 ? words[t] & 0x0f0f0f0f : words[t];
                low[i] = byte_float(word, i, format == Q4 ? 8.0f : 128.0f);
                high[i] = byte_float(words[t] >> 4 & 0x0f0f0f0f, i, 8.0f);
            }
#pragma unroll
            for (u32 h = 0; h < HEADS; h++) {
                float sum = 0.0f;
#pragma unroll
                for (u32 i = 0; i < 4; i++) sum = fmaf(q[h * dim + i], low[i], sum);
                if (format == Q4)
#pragma unroll
                    for (u32 i = 0; i < 4; i++) sum = fmaf(q[h * dim + i + 16], high[i], sum);
                sums[h][t] = fmaf(scale, sum, sums[h][t]);
            }
        }
    }
    const u32 token = lane % 4 * 4 + lane / 16 * 2 + lane / 8 % 2;
#pragma unroll
    for (u32 h = 0; h < HEADS; h++) {
        halve<4>(sums[h], 16);
        halve<2>(sums[h], 8);
        const float score = sums[h][0] + across(sums[h][0], 4);
        if (lane / 4 % 2 == 0) weights[token * HEADS + h] = score;
    }
}

// A warp's softmax states: of head h its sums over the elements 64 p + 2 lane and the next. The largest score and the sum of
// weights of head h stand in lanes 0..16 (h even) or 16..32 (h odd) at h / 2.
template <u32 HEADS, u32 PAIRS>
struct States {
    static constexpr u32 HALF = (HEADS + 1) / 2;
    float2 sums[HEADS][PAIRS];
    float max[HALF];
    float sum[HALF];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (u32 h = 0; h < HEADS; h++)
#pragma unroll
            for (u32 p = 0; p < PAIRS; p++) sums[h][p] = make_float2(0.0f, 0.0f);
#pragma unroll
        for (u32 i = 0; i < HALF; i++) {
            max[i] = NONE;
            sum[i] = 0.0f;
        }
    }

    // What the scores that this lane weighs lack in the tile at `start`. `query` is the first of `heads` query heads, which see
    // the positions from `from` to before `end`.
    static __device__ __forceinline__ void load_key_offsets(
        float (&lacking)[HALF], const Attention& a, u64 query, u32 heads, u32 start, u32 from,
        u32 end) {
        const u32 lane = threadIdx.x % WARP, token = lane % TILE;
#pragma unroll
        for (u32 i = 0; i < HALF; i++) {
            const u32 head = 2 * i + lane / TILE;
            const bool is_any = a.key_offsets && head < heads;
            lacking[i] = is_any ? a.key_offset(query + head, start + token, from, end - 1) : 0.0f;
        }
    }

    // Turns scores into weights, 0 outside of the tokens from `first` to before `end`, and rescales the states.
    __device__ __forceinline__ void weigh(
        float* weights, const float (&lacking)[HALF], u32 first, u32 end, float softcap) {
        const u32 lane = threadIdx.x % WARP, token = lane % TILE;
#pragma unroll
        for (u32 i = 0; i < HALF; i++) {
            const u32 head = 2 * i + lane / TILE;
            const bool is_seen = head < HEADS && token >= first && token < end;
            const float score =
                is_seen ? capped(weights[token * HEADS + head] + lacking[i], softcap) : NONE;
            const float largest = fmaxf(max[i], max_of(score, TILE));
            const float weight = is_seen ? exp_less(score, largest) : 0.0f;
            const float factor = exp_less(max[i], largest);
            if (head < HEADS) weights[token * HEADS + head] = weight;
            max[i] = largest;
            sum[i] = sum[i] * factor + sum_of(weight, TILE);
#pragma unroll
            for (u32 odd = 0; odd < 2; odd++) {
                const u32 h = 2 * i + odd;
                if (h >= HEADS) continue;
                const float rescale = from_lane(factor, odd * TILE);
#pragma unroll
                for (u32 p = 0; p < PAIRS; p++) {
                    sums[h][p].x *= rescale;
                    sums[h][p].y *= rescale;
                }
            }
        }
    }

    // Adds the values of those tokens times their weights.
    __device__ __forceinline__ void add(
        const float* weights, const u8* tile, u32 format, u32 dim, u32 first, u32 end) {
        const u32 lane = threadIdx.x % WARP;
        for (u32 token = first; token < end; token++) {
#pragma unroll
            for (u32 p = 0; p < PAIRS; p++) {
                const u32 d = 2 * WARP * p + 2 * lane;
                if (d >= dim) continue;
                const float2 v = value_pair(tile, format, dim, token, d);
#pragma unroll
                for (u32 h = 0; h < HEADS; h++) {
                    const float weight = weights[token * HEADS + h];
                    sums[h][p].x = fmaf(weight, v.x, sums[h][p].x);
                    sums[h][p].y = fmaf(weight, v.y, sums[h][p].y);
                }
            }
        }
    }

    // To [HEADS][dim + 2]: sums, the largest score, the sum of weights.
    __device__ __forceinline__ void store(float* to, u32 dim) const {
        const u32 lane = threadIdx.x % WARP;
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) {
            float* row = to + h * (dim + 2);
#pragma unroll
            for (u32 p = 0; p < PAIRS; p++) {
                const u32 d = 2 * WARP * p + 2 * lane;
                if (d < dim) *(float2*)(row + d) = sums[h][p];
            }
            if (lane == h % 2 * TILE) *(float2*)(row + dim) = make_float2(max[h / 2], sum[h / 2]);
        }
    }
};

// Joins the warps' states [WARPS] of `stride` bytes for element d of head h, or its weights for d = dim + 1.
__device__ __forceinline__ float joined(const u8* states, u32 stride, u32 row, u32 dim, u32 d) {
    float largest = NONE;
#pragma unroll
    for (u32 w = 0; w < WARPS; w++)
        largest = fmaxf(largest, ((const float*)(states + w * stride))[row + dim]);
    if (d == dim) return largest;
    float sum = 0.0f;
#pragma unroll
    for (u32 w = 0; w < WARPS; w++) {
        const float* state = (const float*)(states + w * stride);
        sum = fmaf(exp_less(state[row + dim], largest), state[row + d], sum);
    }
    return sum;
}

template <u32 HEADS, u32 PAIRS>
__device__ __forceinline__ void attend(
    const Attention& a, const float* queries, float* parts, u8* memory) {
    const u32 dim = a.dim, group = a.group(), chunks = (group + HEADS - 1) / HEADS;
    const u32 kv_head = blockIdx.y / chunks, chunk = blockIdx.y % chunks;
    const u32 first_head = kv_head * group + chunk * HEADS;
    const u32 heads = min(HEADS, group - chunk * HEADS);
    const u32 position = *a.offset + blockIdx.z;
    const u32 from = max(a.first_seen(position), blockIdx.x * SPLIT);
    const u32 end = min(position + 1, (blockIdx.x + 1) * SPLIT);
    if (from >= end) return;

    const u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const u32 bytes = tile_bytes(a.value_format, dim);
    const u32 stride = (max(bytes, HEADS * (dim + 2) * 4) + 15) / 16 * 16;
    float* query = (float*)memory;
    float* weights = query + HEADS * dim + warp * TILE * HEADS;
    u8* states = memory + 4 * (HEADS * dim + WARPS * TILE * HEADS);
    u8* tile = states + warp * stride;

    const u64 first_query = (u64)blockIdx.z * a.num_heads + first_head;
    const float* row = queries + first_query * dim;
    for (u32 h = warp; h < HEADS; h += WARPS) {
        float x[HELD] = {};
        if (h < heads) load_query(x, row + h * dim, kv_head, a);
#pragma unroll
        for (u32 i = 0; i < HELD; i++)
            if (i * WARP + lane < dim) query[h * dim + i * WARP + lane] = x[i];
    }
    __syncthreads();

    States<HEADS, PAIRS> state;
    state.clear();
    for (u32 start = blockIdx.x * SPLIT + warp * TILE; start < end; start += WARPS * TILE) {
        if (start + TILE <= from) continue;
        const u8* values = a.values(start, kv_head);
        for (u32 i = lane * 16; i < bytes; i += WARP * 16) copy_16(tile + i, values + i);
        commit_copies();
        float lacking[States<HEADS, PAIRS>::HALF];
        state.load_key_offsets(lacking, a, first_query, heads, start, from, end);
        const u8* keys = a.keys(start, kv_head);
        if (is_rotated(a.key_format))
            scores_quantized<HEADS>(weights, keys, query, a.key_format, dim);
        else
            scores_16<HEADS>(weights, keys, query, a.key_format, dim);
        __syncwarp();
        const u32 first = from > start ? from - start : 0, last = min(end - start, TILE);
        state.weigh(weights, lacking, first, last, a.softcap);
        wait_copies<0>();
        __syncwarp();
        state.add(weights, tile, a.value_format, dim, first, last);
        __syncwarp();
    }
    state.store((float*)tile, dim);
    __syncthreads();
    const u64 out = first_query * gridDim.x + blockIdx.x;
    for (u32 i = threadIdx.x; i < heads * (dim + 2); i += WARPS * WARP) {
        const u32 h = i / (dim + 2), d = i % (dim + 2);
        parts[(out + h * gridDim.x) * (dim + 2) + d] = joined(states, stride, h * (dim + 2), dim, d);
    }
}

}  // namespace

// queries: [tokens][num_heads][dim]. parts: [tokens][num_heads][splits][dim + 2]: sums, the largest score, the sum of weights.
// HEADS query heads at a time, heads of at most 64 PAIRS elements.
#define DECODE(HEADS, PAIRS)                                                                     \
    extern "C" __global__ void __launch_bounds__(128) paged_attention_decode_##HEADS##_##PAIRS( \
        const float* queries, float* parts, const u64* blocks, const u32* offset, u64 key_at,   \
        u64 value_at, u32 num_heads, u32 kv_heads, u32 dim, u32 key_format, u32 value_format,   \
        u32 window, float scale, float softcap, const float* balance,                           \
        const float* key_offsets, u32 key_offset_stride) {                                      \
        extern __shared__ __align__(16) u8 memory[];                                            \
        const Attention a = {blocks,       offset,  key_at,      value_at,         num_heads,   \
                             kv_heads,     dim,     key_format,  value_format,     window,      \
                             scale,        softcap, balance,     key_offsets,                   \
                             key_offset_stride};                                                \
        attend<HEADS, PAIRS>(a, queries, parts, memory);                                        \
    }

DECODE(1, 2)
DECODE(4, 2)
DECODE(8, 2)
DECODE(1, 4)
DECODE(4, 4)
DECODE(8, 4)

// Joins the splits of each query in their order, and rotates back where the values are rotated. sinks: [num_heads], scores
// that take weight and have no value, or null. out: [tokens][num_heads][dim].
//
// Grid: (tokens * num_heads / 4). Block: 4 warps, one for each query head. No shared memory.
extern "C" __global__ void __launch_bounds__(128) paged_attention_combine(
    const float* parts, const float* sinks, float* out, const u32* offset, u32 tokens,
    u32 num_heads, u32 dim, u32 splits, u32 value_format, u32 window) {
    const u32 row = blockIdx.x * WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (row >= tokens * num_heads) return;
    const u32 position = *offset + row / num_heads;
    const u32 first = first_seen(position, window) / SPLIT, last = position / SPLIT;
    const float* part = parts + (u64)row * splits * (dim + 2);
    float largest = sinks ? sinks[row % num_heads] : NONE;
    for (u32 s = first; s <= last; s++) largest = fmaxf(largest, part[s * (dim + 2) + dim]);
    float sum = sinks ? exp_less(sinks[row % num_heads], largest) : 0.0f;
    float x[HELD] = {};
    for (u32 s = first; s <= last; s++) {
        const float* state = part + s * (dim + 2);
        const float factor = exp_less(state[dim], largest);
        sum = fmaf(factor, state[dim + 1], sum);
#pragma unroll
        for (u32 i = 0; i < HELD; i++)
            if (i * WARP + lane < dim) x[i] = fmaf(factor, state[i * WARP + lane], x[i]);
    }
#pragma unroll
    for (u32 i = 0; i < HELD; i++) x[i] = x[i] / sum;
    if (is_rotated(value_format)) hadamard(x, dim);
#pragma unroll
    for (u32 i = 0; i < HELD; i++)
        if (i * WARP + lane < dim) out[(u64)row * dim + i * WARP + lane] = x[i];
}
