// Root-mean-square normalisation, with the residual added before.
//
// Grid: (rows). Block: a whole number of warps that depends on the width alone; thread t takes the elements 4 t .. 4 t + 4, then
// those 4 * threads further (1 instead of 4 where the width is no multiple of 4), so the order of sums depends on the width
// alone. Shared memory: one float for each warp.
#include "common.cuh"

namespace {

// Adds the residual to this thread's elements and returns the sum of their squares.
template <class V, u32 N>
__device__ __forceinline__ float add(float* x, const float* residual, u32 width) {
    float sum = 0.0f;
    for (u32 i = threadIdx.x; i < width / N; i += blockDim.x) {
        V value = ((V*)x)[i];
        float* v = (float*)&value;
        if (residual) {
            const V other = ((const V*)residual)[i];
#pragma unroll
            for (u32 j = 0; j < N; j++) v[j] += ((const float*)&other)[j];
            ((V*)x)[i] = value;
        }
#pragma unroll
        for (u32 j = 0; j < N; j++) sum += v[j] * v[j];
    }
    return sum;
}

template <class V, u32 N>
__device__ __forceinline__ void scale(
    float* out, const float* x, const float* weight, float factor, u32 width) {
    for (u32 i = threadIdx.x; i < width / N; i += blockDim.x) {
        V value = ((const V*)x)[i];
        const V weights = ((const V*)weight)[i];
        float* v = (float*)&value;
#pragma unroll
        for (u32 j = 0; j < N; j++) v[j] = v[j] * factor * ((const float*)&weights)[j];
        ((V*)out)[i] = value;
    }
}

}  // namespace

// x: [rows][width], to which residual [rows][width] is added where it is not null. out: [rows][width], may be x.
// weight: [width].
extern "C" __global__ void __launch_bounds__(1024) add_rms_norm(
    float* x, const float* residual, const float* weight, float* out, u32 width, float eps) {
    extern __shared__ __align__(16) float sums[];
    const u64 at = (u64)blockIdx.x * width;
    const float* other = residual ? residual + at : nullptr;
    const bool in_fours = width % 4 == 0;
    float sum = in_fours ? add<float4, 4>(x + at, other, width) : add<float, 1>(x + at, other, width);
    sum = sum_of(sum, WARP);
    if (threadIdx.x % WARP == 0) sums[threadIdx.x / WARP] = sum;
    __syncthreads();
    float total = 0.0f;
    for (u32 warp = 0; warp < blockDim.x / WARP; warp++) total += sums[warp];
    const float factor = 1.0f / sqrtf(total / (float)width + eps);
    if (in_fours)
        scale<float4, 4>(out + at, x + at, weight, factor, width);
    else
        scale<float, 1>(out + at, x + at, weight, factor, width);
}
