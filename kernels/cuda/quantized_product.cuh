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

// --- Products on tensor cores (sm_80) ---

// A block of 4 warps multiplies 64 rows, a tile each, and 64 tokens. Weights come from global memory into the registers where
// `mma` wants them, one group ahead; activations come through shared memory in stages of four groups, one stage ahead.

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

// Both halves of a group for sixteen tokens, as `mma` wants them.
__device__ __forceinline__ void load_x(u32 (&to)[4], const u8* from) {
    const u32 address = (u32)__cvta_generic_to_shared(from);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
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
        u32 b[4];
        load_x(b, from + pair * 16 * X_STRIDE);
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
    // A warp beyond the last tile computes that once more and stores nothing.
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
    if (tile >= tiles) return;
#pragma unroll 1
    for (u32 token = lane / ROWS; token < 16 * pairs; token += WARP / ROWS) {
        const float sum = turned[token * TURNED_STRIDE + lane % ROWS];
        put(o.out, first_token + token, tile * ROWS + lane % ROWS, sum);
    }
}

// --- Embeddings ---

// The rows `ids` [n] as floats [n][cols], with the roundings of the file format's definition; NaN where there is no such row.
// Grid: (quads of columns / blockDim, n).
template <class F>
__device__ __forceinline__ void embed(
    const u8* quants, const u8* scales, const u32* ids, float* out, u32 rows, u32 cols) {
    const u32 quad = blockIdx.x * blockDim.x + threadIdx.x, id = ids[blockIdx.y];
    if (quad >= cols / 4) return;
    const u32 groups = cols / GROUP, group = quad / 8, j = quad % 8, row = id % ROWS;
    const u32 half = F::HALVES == 2 ? j / 4 : 0;
    float values[4];
    if (id < rows) {
        quants += ((u64)(id / ROWS) * groups + group) * F::QUANT_BYTES + 4 * row;
        scales += (u64)(id / ROWS) * (groups / F::UNIT) * F::SCALE_BYTES;
        const Head head = load_head<F>(scales, group / SEGMENT, row);
        const RawScales raw = load_scales<F>(scales, group, row);
        u32 words[F::PAIR_WORDS];
        load_pair<F>(words, quants, j % 4);
        const u32 four = j < 4 ? signed_quad<F>(words, j % 4, 0) : signed_quad<F>(words, j % 4, 1);
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            values[i] = scale_of<F>(head, raw, half) * (float)(s8)(four >> 8 * i);
            if (F::HAS_MINIMA) values[i] += minimum_of<F>(head, raw, half);
        }
    } else {
#pragma unroll
        for (u32 i = 0; i < 4; i++) values[i] = bits_float(0x7fc00000);
    }
    ((float4*)out)[(u64)blockIdx.y * (cols / 4) + quad] = *(float4*)values;
}

// --- The kernels of a format ---

#define PRODUCT_PARAMETERS                                                                            \
    const u8 *quants, const u8 *scales, const s8 *x, const float *parts, float *out, const float *bias, \
        u32 rows, u32 cols, u32 tokens, u32 x_stride, u32 out_stride, u32 is_added
#define PRODUCT_OPERANDS                                     \
    {quants, scales, x, parts, cols / GROUP, x_stride, \
     {out, bias, rows, tokens, out_stride, is_added != 0}}

// One token a block, for decoding.
#define DECODE_KERNEL(FORMAT, NAME)                                                           \
    extern "C" __global__ void __launch_bounds__(256) product_decode_##NAME(PRODUCT_PARAMETERS) { \
        multiply_rows<FORMAT, 1, 4>(PRODUCT_OPERANDS);                                        \
    }

#define EMBEDDING_KERNEL(FORMAT, NAME)                                                              \
    extern "C" __global__ void __launch_bounds__(256) embedding_##NAME(                             \
        const u8* quants, const u8* scales, const u32* ids, float* out, u32 rows, u32 cols) { \
        embed<FORMAT>(quants, scales, ids, out, rows, cols);                                        \
    }

// Eight tokens a block on devices without such tensor cores, 64 on others.
#if __CUDA_ARCH__ >= 800
#define PREFILL_KERNEL(FORMAT, NAME)                                                           \
    extern "C" __global__ void __launch_bounds__(128, 4) product_prefill_##NAME(PRODUCT_PARAMETERS) { \
        multiply_matrices<FORMAT>(PRODUCT_OPERANDS);                                           \
    }
#else
#define PREFILL_KERNEL(FORMAT, NAME)                                                         \
    extern "C" __global__ void __launch_bounds__(256) product_plain_##NAME(PRODUCT_PARAMETERS) { \
        multiply_rows<FORMAT, 8, 1>(PRODUCT_OPERANDS);                                       \
    }
#endif

#define PRODUCT_KERNELS(FORMAT, NAME) \
    DECODE_KERNEL(FORMAT, NAME)       \
    PREFILL_KERNEL(FORMAT, NAME)      \
    EMBEDDING_KERNEL(FORMAT, NAME)
