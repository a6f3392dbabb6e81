// The gated activation, with the bits of the CPU's swiglu.rs.
//
// Grid: (elements / 1024). Block: 256 threads of 4 elements. No shared memory.
#include "common.cuh"

// out[i] = gate[i] * sigmoid(gate[i]) * up[i] for i < len; out may be gate.
extern "C" __global__ void __launch_bounds__(256) swiglu(
    const float* gate, const float* up, float* out, u32 len) {
    const u32 start = (blockIdx.x * 256 + threadIdx.x) * 4;
    if (start + 4 <= len) {
        float4 g = *(const float4*)(gate + start);
        const float4 u = *(const float4*)(up + start);
        g.x = g.x / (1.0f + exp_exact(-g.x)) * u.x;
        g.y = g.y / (1.0f + exp_exact(-g.y)) * u.y;
        g.z = g.z / (1.0f + exp_exact(-g.z)) * u.z;
        g.w = g.w / (1.0f + exp_exact(-g.w)) * u.w;
        *(float4*)(out + start) = g;
    } else {
        for (u32 i = start; i < len; i++) {
            const float g = gate[i];
            out[i] = g / (1.0f + exp_exact(-g)) * up[i];
        }
    }
}
