// Products of packed weights and quantized activations (quantize.cu).
//
// The arithmetic is the same in all kernels. A dot product of a group, or of each half where the format has a scale for each, is
// an exact integer d, of the quants less OFFSET; then
//     sum = fma((float)d, scale * x_scale, sum)       and, where there are minima,
//     sum = fma(minimum, x_scale * x_sum, sum)
// with x_sum the sum of those activations' quants; the order of the sums is that of segments.cuh.
#pragma once

#include "packed_weights.cuh"

// Planes of `parts`: for each group the scales of all tokens, the sums of their quants, and the sums of the first halves.
constexpr u32 PLANES = 3;
enum Plane { SCALES, SUMS, FIRST_SUMS };

// Sums of bytes begin here: as the bits of a float they are 1.5 * 2^23 plus the sum, which is exact below 2^22.
constexpr int START = 0x4b400000;

__device__ __forceinline__ float float_of(int sum) { return __int_as_float(sum) - 12582912.0f; }

// sum + the products of four unsigned weights and four activations.
__device__ __forceinline__ int dot(u32 weights, u32 x, int sum) {
    asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(weights), "r"(x));
    return sum;
}

// What all product kernels take.
struct Operands {
    // [tile][group][QUANT_BYTES] and [tile][unit][SCALE_BYTES]
    const u8* __restrict__ quants;
    const u8* __restrict__ scales;
    // [tokens][cols]
    const s8* __restrict__ x;
    // [group][plane][x_stride]
    const float* __restrict__ parts;
    u32 groups, x_stride;
    Output out;
};

// --- Products lane by lane ---

// A group of one token's activations.
struct XGroup {
    uint4 quants[2];
    // The sums of the quants: all, and the first half.
    float scale, all, first;
};

template <class F>
__device__ __forceinline__ XGroup load_x_group(const Operands& o, u32 group, u32 token) {
    const float* parts = o.parts + (u64)group * PLANES * o.x_stride + token;
    const uint4* quants = (const uint4*)(o.x + ((u64)token * o.groups + group) * GROUP);
    XGroup x;
    x.quants[0] = __ldg(quants);
    x.quants[1] = __ldg(quants + 1);
    x.scale = __ldg(parts + SCALES * o.x_stride);
    x.all = __ldg(parts + SUMS * o.x_stride);
    x.first = F::HALVES == 2 ? __ldg(parts + FIRST_SUMS * o.x_stride) : x.all;
    return x;
}

// sum + a group of a row times one of a token.
template <class F>
__device__ __forceinline__ float add_product(
    float sum, const u32 (&quads)[8], const Head& head, const RawScales& raw, const XGroup& x) {
#pragma unroll
    for (u32 half = 0; half < F::HALVES; half++) {
        int products = START;
#pragma unroll
        for (u32 at = half; at < half + 2 / F::HALVES; at++) {
            products = dot(quads[4 * at], x.quants[at].x, products);
            products = dot(quads[4 * at + 1], x.quants[at].y, products);
            products = dot(quads[4 * at + 2], x.quants[at].z, products);
            products = dot(quads[4 * at + 3], x.quants[at].w, products);
        }
        const float x_sum = half == 0 ? x.first : x.all - x.first;
        float d = float_of(products);
        if (F::OFFSET) d = fmaf(-(float)F::OFFSET, x_sum, d);
        sum = fmaf(d, scale_of<F>(head, raw, half) * x.scale, sum);
        if (F::HAS_MINIMA) sum = fmaf(minimum_of<F>(head, raw, half), x.scale * x_sum, sum);
    }
    return sum;
}

// N groups of a row times T tokens. All loads but those of further tokens come first, so that they are under way together.
template <class F, u32 T, u32 N>
__device__ __forceinline__ void multiply_groups(
    float (&sums)[T], const Operands& o, const u8* quants, const u8* scales, const Head& head,
    u32 group, u32 row, const u32 (&token)[T]) {
    u32 words[N][F::BITS];
    RawScales raw[N];
    XGroup x[N];
#pragma unroll
    for (u32 i = 0; i < N; i++) {
        load_row<F>(words[i], quants + (u64)(group + i) * F::QUANT_BYTES + 4 * row);
        raw[i] = load_scales<F>(scales, group + i, row);
        x[i] = load_x_group<F>(o, group + i, token[0]);
    }
#pragma unroll
    for (u32 i = 0; i < N; i++) {
        u32 quads[8];
#pragma unroll
        for (u32 j = 0; j < 8; j++) quads[j] = quad_of<F>(words[i], j);
#pragma unroll
        for (u32 t = 0; t < T; t++) {
            if (t > 0) x[i] = load_x_group<F>(o, group + i, token[t]);
            sums[t] = add_product<F>(sums[t], quads, head, raw[i], x[i]);
        }
    }
}

// A tile of 16 rows times T tokens, as `sum_segments` says; N groups at once.
template <class F, u32 T, u32 N>
__device__ __forceinline__ void multiply_rows(const Operands& o) {
    const u8* quants = o.quants + (u64)blockIdx.x * o.groups * F::QUANT_BYTES;
    const u8* scales = o.scales + (u64)blockIdx.x * (o.groups / F::UNIT) * F::SCALE_BYTES;
    const Tokens<T> tokens(o.out.tokens);
    const u32 segments = (o.groups + SEGMENT - 1) / SEGMENT;
    sum_segments<T>(o.out, segments, [&](float(&sums)[T], u32 segment, u32 row) {
        const Head head = load_head<F>(scales, segment, row);
        u32 group = segment * SEGMENT;
        const u32 last = F::UNIT == SEGMENT ? group + SEGMENT : min(group + SEGMENT, o.groups);
#pragma unroll 1
        for (; group + N <= last; group += N)
            multiply_groups<F, T, N>(sums, o, quants, scales, head, group, row, tokens.at);
        if (N > 1 && F::UNIT != SEGMENT)
#pragma unroll 1
            for (; group < last; group++)
                multiply_groups<F, T, 1>(sums, o, quants, scales, head, group, row, tokens.at);
    });
}
