// Activations to int8 in groups of 32, with the bits of the CPU's (kernels/src/quantized/activations.rs).
#include "common.cuh"

namespace {

// Lanes of a group, each of which holds four elements.
constexpr u32 LANES = 8;

// Four of a group's quants, and the group's scale.
struct Quants {
    int at[4];
    float scale;
};

// Value ≈ quant * scale, |quant| <= 127. Groups too small to invert are 0; one with a NaN has a NaN as scale.
__device__ __forceinline__ Quants quantize(const float (&x)[4]) {
    float largest = 0.0f;
    bool has_nan = false;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        largest = fmaxf(largest, fabsf(x[i]));
        has_nan |= x[i] != x[i];
    }
    largest = max_of(largest, LANES);
    const u32 lane = threadIdx.x % WARP;
    const u32 nans = __ballot_sync(FULL, has_nan) >> (lane / LANES * LANES) & ((1 << LANES) - 1);
    const bool is_small = largest < 1e-30f;
    const float inverse = is_small ? 0.0f : 127.0f / largest;
    Quants quants;
    quants.scale = is_small ? 0.0f : largest / 127.0f;
    if (nans) quants.scale = bits_float(0x7fc00000);
#pragma unroll
    for (u32 i = 0; i < 4; i++) quants.at[i] = __float2int_rn(x[i] * inverse);
    return quants;
}

}  // namespace

// x: [tokens][cols]. quants: [tokens][cols]. parts: [cols / 32][3][stride], for each group the scales of all tokens, the sums of
// their quants, and the sums of the first 16; 0 for tokens beyond the last. With `has_rest` there is one token more: what rounding
// took off the first, quantized in its turn.
// Grid: (groups / 32, stride). Block: 256.
extern "C" __global__ void __launch_bounds__(256) quantize_activations(
    const float* x, u32* quants, float* parts, u32 cols, u32 tokens, u32 stride, u32 has_rest) {
    const u32 token = blockIdx.y, groups = cols / GROUP, part = threadIdx.x % LANES;
    const u32 group = (blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    const bool is_rest = has_rest && token == tokens, is_token = token < tokens || is_rest;
    const u32 at = min(group, groups - 1) * LANES + part;
    float4 four = {0.0f, 0.0f, 0.0f, 0.0f};
    if (is_token) four = ((const float4*)x)[(u64)(is_rest ? 0 : token) * (cols / 4) + at];
    float values[4] = {four.x, four.y, four.z, four.w};
    Quants got = quantize(values);
    if (is_rest) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) values[i] -= got.scale * (float)got.at[i];
        got = quantize(values);
    }
    int sum = got.at[0] + got.at[1] + got.at[2] + got.at[3];
    sum += __shfl_xor_sync(FULL, sum, 1);
    sum += __shfl_xor_sync(FULL, sum, 2);
    const int all = sum + __shfl_xor_sync(FULL, sum, 4);
    if (group >= groups) return;
    if (is_token) {
        const u32 low = __byte_perm(got.at[0], got.at[1], 0x0040);
        const u32 high = __byte_perm(got.at[2], got.at[3], 0x0040);
        quants[(u64)token * (cols / 4) + at] = __byte_perm(low, high, 0x5410);
    }
    if (part > 0) return;
    float* to = parts + (u64)group * 3 * stride + token;
    to[0] = got.scale;
    to[stride] = (float)all;
    to[2 * stride] = (float)sum;
}
