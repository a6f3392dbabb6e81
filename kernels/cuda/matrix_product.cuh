// Products of packed weights and quantized activations on tensor cores (sm_80), with the bits of those lane by lane.
//
// A block of 4 warps multiplies 64 rows, a tile each, and 64 tokens. Weights come from global memory into the registers where
// `mma` wants them, one group ahead; activations come through shared memory in stages of four groups, one stage ahead.
#pragma once

#include "mma.cuh"
#include "quantized_product.cuh"

constexpr u32 WARPS = 4;
constexpr u32 TOKENS = 64;
// Groups of a stage: half a segment, so that a small device holds four blocks at once.
constexpr u32 STAGE = SEGMENT / 2;
// Bytes from one token to the next in shared memory: 16 more than a stage has, so that eight tokens meet in no bank.
constexpr u32 X_STRIDE = STAGE * GROUP + 16;
constexpr u32 X_BYTES = TOKENS * X_STRIDE;
constexpr u32 PLANE_FLOATS = STAGE * TOKENS;
// Floats from one token's sums of 16 rows to the next's.
constexpr u32 TURNED_STRIDE = ROWS + 1;
static_assert(WARPS * TOKENS * TURNED_STRIDE * 4 <= 2 * X_BYTES, "the sums of a block fit two buffers");

// A stage of the activations in shared memory.
template <class F>
struct Buffer {
    // Those that a format reads here, where quants are less their offset already.
    static constexpr u32 PLANES_READ = F::HAS_MINIMA ? 1 + F::HALVES : 1;
    static constexpr u32 BYTES = X_BYTES + PLANES_READ * PLANE_FLOATS * 4;
};

// Begins to copy the stage from group `first` on of the block's tokens, `used` of them.
template <class F>
__device__ __forceinline__ void copy_stage(
    u8* to, const Operands& o, u32 first, u32 first_token, u32 used) {
    const u32 groups = min(STAGE, o.groups - first), last = o.out.tokens - 1;
    const u32 piece = threadIdx.x % (2 * STAGE), of_tokens = WARPS * WARP / (2 * STAGE);
    if (piece < 2 * groups)
        for (u32 token = threadIdx.x / (2 * STAGE); token < used; token += of_tokens) {
            const u8* x = (const u8*)o.x + (u64)min(first_token + token, last) * o.groups * GROUP;
            copy_16(to + token * X_STRIDE + 16 * piece, x + first * GROUP + 16 * piece);
        }
    // Four tokens of a group; there are always whole fours of them.
    const u32 group = threadIdx.x / (TOKENS / 4), token = threadIdx.x % (TOKENS / 4) * 4;
    if (group < groups && token < used)
#pragma unroll
        for (u32 plane = 0; plane < Buffer<F>::PLANES_READ; plane++) {
            const float* from = o.parts + ((u64)(first + group) * PLANES + plane) * o.x_stride;
            float* parts = (float*)(to + X_BYTES) + plane * PLANE_FLOATS + group * TOKENS;
            copy_16(parts + token, from + min(first_token + token, last / 4 * 4));
        }
}

// What a lane holds of a group: quads lane % 4 and four further of two rows, as they lie.
template <class F>
struct Fragment {
    u32 words[2][F::PAIR_WORDS];
    RawScales raw[2];
};

template <class F>
__device__ __forceinline__ void load_fragment(
    Fragment<F>& to, const u8* quants, const u8* scales, u32 group, u32 row, u32 j) {
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        const u32 at = row + 8 * i;
        load_pair<F>(to.words[i], quants + (u64)group * F::QUANT_BYTES + 4 * at, j);
        to.raw[i] = load_scales<F>(scales, group, at);
    }
}

// The sums of 16 rows and 8 tokens over a group, or over one of its halves.
template <class F>
__device__ __forceinline__ void multiply_tile(
    int (&c)[4], const u32 (&a)[4], u32 half, u32 b0, u32 b1) {
    if (F::HALVES == 1)
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
            "{%8, %9}, {%10, %10, %10, %10};"
            : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(START));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
            "{%7, %7, %7, %7};"
            : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
            : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(half ? b1 : b0), "r"(START));
}

// Adds a group of a warp's 16 rows times the tokens, `pairs` of 16.
template <class F>
__device__ __forceinline__ void add_group(
    float (&sums)[TOKENS / 8][4], const Fragment<F>& weights, const Head (&head)[2], const u8* x,
    u32 group, u32 pairs) {
    const u32 lane = threadIdx.x % WARP;
    u32 a[4];
#pragma unroll
    for (u32 i = 0; i < 4; i++) a[i] = signed_quad<F>(weights.words[i % 2], lane % 4, i / 2);
    float scale[2][F::HALVES], minimum[2][F::HALVES];
#pragma unroll
    for (u32 i = 0; i < 2 * F::HALVES; i++) {
        const u32 row = i % 2, half = i / 2;
        scale[row][half] = scale_of<F>(head[row], weights.raw[row], half);
        if (F::HAS_MINIMA) minimum[row][half] = minimum_of<F>(head[row], weights.raw[row], half);
    }
    // Lanes 0..8 point to the first half of tokens 0..8, 8..16 to the second, 16..32 to tokens 8..16.
    const u8* from = x + (lane / 16 * 8 + lane % 8) * X_STRIDE + group * GROUP + lane / 8 % 2 * 16;
    const float* parts = (const float*)(x + X_BYTES) + group * TOKENS + lane % 4 * 2;
#pragma unroll
    for (u32 pair = 0; pair < TOKENS / 16; pair++) {
        if (pair >= pairs) break;
        // Both halves of a group for sixteen tokens.
        u32 b[4];
        load_matrices(b, (u32)__cvta_generic_to_shared(from + pair * 16 * X_STRIDE));
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            const u32 tile = 2 * pair + i;
            const float2 x_scale = *(const float2*)(parts + 8 * tile);
            float2 all = {0.0f, 0.0f}, first = all;
            if (F::HAS_MINIMA) all = *(const float2*)(parts + 8 * tile + SUMS * PLANE_FLOATS);
            if (F::HAS_MINIMA && F::HALVES == 2)
                first = *(const float2*)(parts + 8 * tile + FIRST_SUMS * PLANE_FLOATS);
#pragma unroll
            for (u32 half = 0; half < F::HALVES; half++) {
                int c[4];
                multiply_tile<F>(c, a, half, b[2 * i], b[2 * i + 1]);
                float2 term = all;
                if (F::HALVES == 2 && half == 0) term = first;
                if (F::HALVES == 2 && half == 1) term = make_float2(all.x - first.x, all.y - first.y);
                term = make_float2(x_scale.x * term.x, x_scale.y * term.y);
#pragma unroll
                for (u32 at = 0; at < 4; at++) {
                    const float factor = scale[at / 2][half] * (at % 2 ? x_scale.y : x_scale.x);
                    float sum = fmaf(float_of(c[at]), factor, sums[tile][at]);
                    if (F::HAS_MINIMA)
                        sum = fmaf(minimum[at / 2][half], at % 2 ? term.y : term.x, sum);
                    sums[tile][at] = sum;
                }
            }
        }
    }
}

// 64 rows times 64 tokens. Grid: (tiles of tokens, tiles of rows). Shared memory: two of `Buffer`.
template <class F>
__device__ __forceinline__ void multiply_matrices(const Operands& o) {
    const u32 lane = threadIdx.x % WARP, row = lane / 4;
    const u32 tiles = (o.out.rows + ROWS - 1) / ROWS, tile = blockIdx.y * WARPS + threadIdx.x / WARP;
    const u32 first_token = blockIdx.x * TOKENS;
    const u32 pairs = (min(TOKENS, o.out.tokens - first_token) + 15) / 16;
    // A warp beyond the last tile computes that once more, and `put` stores nothing of it.
    const u64 from = min(tile, tiles - 1);
    const u8* quants = o.quants + from * o.groups * F::QUANT_BYTES;
    const u8* scales = o.scales + from * (o.groups / F::UNIT) * F::SCALE_BYTES;
    float totals[TOKENS / 8][4] = {};
    Fragment<F> next;
    load_fragment<F>(next, quants, scales, 0, row, lane % 4);
    copy_stage<F>(shared, o, 0, first_token, 16 * pairs);
    commit_copies();
#pragma unroll 1
    for (u32 segment = 0; segment * SEGMENT < o.groups; segment++) {
        const Head head[2] = {load_head<F>(scales, segment, row),
                              load_head<F>(scales, segment, row + 8)};
        float sums[TOKENS / 8][4] = {};
        const u32 last = min((segment + 1) * SEGMENT, o.groups);
#pragma unroll 1
        for (u32 first = segment * SEGMENT; first < last; first += STAGE) {
            wait_copies<0>();
            __syncthreads();
            const u32 end = first + STAGE;
            if (end < o.groups) {
                u8* to = shared + end / STAGE % 2 * Buffer<F>::BYTES;
                copy_stage<F>(to, o, end, first_token, 16 * pairs);
                commit_copies();
            }
            const u8* x = shared + first / STAGE % 2 * Buffer<F>::BYTES;
#pragma unroll 1
            for (u32 group = first; group < min(end, last); group++) {
                const Fragment<F> weights = next;
                const u32 ahead = min(group + 1, o.groups - 1);
                load_fragment<F>(next, quants, scales, ahead, row, lane % 4);
                add_group<F>(sums, weights, head, x, group - first, pairs);
            }
        }
#pragma unroll
        for (u32 i = 0; i < TOKENS / 8 * 4; i++) {
            float& total = totals[i / 4][i % 4];
            total = segment == 0 ? sums[i / 4][i % 4] : total + sums[i / 4][i % 4];
        }
    }
    // Each warp turns its sums, so that a lane is a row.
    __syncthreads();
    float* turned = (float*)shared + threadIdx.x / WARP * TOKENS * TURNED_STRIDE;
#pragma unroll
    for (u32 i = 0; i < TOKENS / 8 * 4; i++) {
        const u32 token = i / 4 * 8 + lane % 4 * 2 + i % 2;
        turned[token * TURNED_STRIDE + row + i % 4 / 2 * 8] = totals[i / 4][i % 4];
    }
    __syncwarp();
#pragma unroll 1
    for (u32 token = lane / ROWS; token < 16 * pairs; token += WARP / ROWS) {
        const float sum = turned[token * TURNED_STRIDE + lane % ROWS];
        put(o.out, first_token + token, tile * ROWS + lane % ROWS, sum);
    }
}
