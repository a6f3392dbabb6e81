// The kernels of one format of packed weights.
#pragma once

#include "matrix_product.cuh"

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

// BLOCKS of them fit a multiprocessor: that many, and no more, so that the compiler keeps loads under way rather than registers few.
#define PRODUCT_KERNEL(KERNEL, THREADS, BLOCKS, MULTIPLY)                                               \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) KERNEL(                               \
        const u8* quants, const u8* scales, const s8* x, const float* parts, float* out,                \
        const float* bias, u32 rows, u32 cols, u32 tokens, u32 x_stride, u32 out_stride, u32 is_added) { \
        const Output output = {out, bias, rows, tokens, out_stride, is_added != 0};                     \
        MULTIPLY({quants, scales, x, parts, cols / GROUP, x_stride, output});                           \
    }

// To prefill: 64 tokens a block on tensor cores, eight on devices without those.
#if __CUDA_ARCH__ >= 800
#define PREFILL_KERNEL(FORMAT, NAME) \
    PRODUCT_KERNEL(product_prefill_##NAME, 128, 4, multiply_matrices<FORMAT>)
#else
#define PREFILL_KERNEL(FORMAT, NAME) \
    PRODUCT_KERNEL(product_plain_##NAME, 256, 2, (multiply_rows<FORMAT, 8, 1>))
#endif

// To decode: one token a block.
#define PRODUCT_KERNELS(FORMAT, NAME)                                                           \
    PRODUCT_KERNEL(product_decode_##NAME, 256, 2, (multiply_rows<FORMAT, 1, 4>))                \
    PREFILL_KERNEL(FORMAT, NAME)                                                                \
    extern "C" __global__ void __launch_bounds__(256) embedding_##NAME(                         \
        const u8* quants, const u8* scales, const u32* ids, float* out, u32 rows, u32 cols) { \
        embed<FORMAT>(quants, scales, ids, out, rows, cols);                                    \
    }
