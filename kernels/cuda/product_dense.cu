// Products with weights of 16 or 32 bits, as floats: [tile][column][16] (kernels/src/quantized/dense.rs). An element is a chain of
// multiply-adds over each segment's columns; the order of the sums is that of segments.cuh.
#include "segments.cuh"

namespace {

struct F32Weight {
    typedef float Stored;
    static __device__ __forceinline__ float read(float x) { return x; }
};

struct F16Weight {
    typedef u16 Stored;
    static __device__ __forceinline__ float read(u16 x) { return f16_float(x); }
};

struct Bf16Weight {
    typedef u16 Stored;
    static __device__ __forceinline__ float read(u16 x) { return bf16_float(x); }
};

constexpr u32 SEGMENT_COLS = 256;

// N times four columns of a row times T tokens.
template <class E, u32 T, u32 N>
__device__ __forceinline__ void multiply_columns(
    float (&sums)[T], const typename E::Stored* weights, const float* x, u32 cols, u32 column,
    const u32 (&token)[T]) {
    typename E::Stored stored[N][4];
    float4 first[N];
#pragma unroll
    for (u32 i = 0; i < N; i++) {
#pragma unroll
        for (u32 j = 0; j < 4; j++) stored[i][j] = __ldg(weights + (u64)(column + 4 * i + j) * ROWS);
        first[i] = __ldg((const float4*)(x + (u64)token[0] * cols + column) + i);
    }
#pragma unroll
    for (u32 i = 0; i < N; i++) {
        float w[4];
#pragma unroll
        for (u32 j = 0; j < 4; j++) w[j] = E::read(stored[i][j]);
#pragma unroll
        for (u32 t = 0; t < T; t++) {
            const float4 four =
                t == 0 ? first[i] : __ldg((const float4*)(x + (u64)token[t] * cols + column) + i);
            sums[t] = fmaf(w[0], four.x, sums[t]);
            sums[t] = fmaf(w[1], four.y, sums[t]);
            sums[t] = fmaf(w[2], four.z, sums[t]);
            sums[t] = fmaf(w[3], four.w, sums[t]);
        }
    }
}

// A tile of 16 rows times T tokens, as `sum_segments` says; `cols` is a multiple of 4.
template <class E, u32 T, u32 N>
__device__ __forceinline__ void multiply(
    const typename E::Stored* weights, const float* x, u32 cols, const Output& out) {
    const Tokens<T> tokens(out.tokens);
    const u32 segments = (cols + SEGMENT_COLS - 1) / SEGMENT_COLS;
    sum_segments<T>(out, segments, [&](float(&sums)[T], u32 segment, u32 row) {
        const typename E::Stored* from = weights + (u64)blockIdx.x * cols * ROWS + row;
        u32 column = segment * SEGMENT_COLS;
        const u32 last = min(column + SEGMENT_COLS, cols);
#pragma unroll 1
        for (; column + 4 * N <= last; column += 4 * N)
            multiply_columns<E, T, N>(sums, from, x, cols, column, tokens.at);
        if (N > 1)
#pragma unroll 1
            for (; column < last; column += 4)
                multiply_columns<E, T, 1>(sums, from, x, cols, column, tokens.at);
    });
}

// The rows `ids` [n] as floats [n][cols]; NaN where there is no such row. Grid: (cols / blockDim, n).
template <class E>
__device__ __forceinline__ void embed(
    const typename E::Stored* weights, const u32* ids, float* out, u32 rows, u32 cols) {
    const u32 column = blockIdx.x * blockDim.x + threadIdx.x, id = ids[blockIdx.y];
    if (column >= cols) return;
    float value = bits_float(0x7fc00000);
    if (id < rows) value = E::read(weights[((u64)(id / ROWS) * cols + column) * ROWS + id % ROWS]);
    out[(u64)blockIdx.y * cols + column] = value;
}

}  // namespace

#define PRODUCT_KERNEL(KIND, NAME, ELEMENT, TOKENS, AT_ONCE)                                              \
    extern "C" __global__ void __launch_bounds__(256, 2) product_##KIND##_##NAME(                            \
        const ELEMENT::Stored* weights, const float* x, float* out, const float* bias, u32 rows, u32 cols, \
        u32 tokens, u32 out_stride, u32 is_added) {                                                       \
        const Output output = {out, bias, rows, tokens, out_stride, is_added != 0};                       \
        multiply<ELEMENT, TOKENS, AT_ONCE>(weights, x, cols, output);                                     \
    }

#define DENSE_KERNELS(NAME, ELEMENT)                                                          \
    PRODUCT_KERNEL(decode, NAME, ELEMENT, 1, 8)                                               \
    PRODUCT_KERNEL(plain, NAME, ELEMENT, 8, 1)                                                \
    extern "C" __global__ void __launch_bounds__(256) embedding_##NAME(                       \
        const ELEMENT::Stored* weights, const u32* ids, float* out, u32 rows, u32 cols) {     \
        embed<ELEMENT>(weights, ids, out, rows, cols);                                        \
    }

DENSE_KERNELS(f32, F32Weight)
DENSE_KERNELS(f16, F16Weight)
DENSE_KERNELS(bf16, Bf16Weight)
