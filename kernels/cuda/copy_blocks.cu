// Gathers a stretch of some slots into a staging buffer, or scatters it back, so that one large copy crosses the bus.
//
// Grid: (bytes of the stretch / 16 KiB, slots). Block: 256 threads, each with four pieces of 16 bytes. No shared memory.
#include "common.cuh"

// slots: [gridDim.y] addresses. The stretch begins `at` bytes into a slot and has `bytes`, both multiples of 16; that of slot i
// stands at staging + i * bytes. to_slots: scatters.
extern "C" __global__ void __launch_bounds__(256) copy_blocks(
    const u64* slots, u8* staging, u64 at, u64 bytes, u32 to_slots) {
    uint4* slot = (uint4*)global((void*)(slots[blockIdx.y] + at));
    uint4* staged = (uint4*)(staging + blockIdx.y * bytes);
    const u64 pieces = bytes / 16;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        const u64 piece = (u64)blockIdx.x * 1024 + i * 256 + threadIdx.x;
        if (piece >= pieces) return;
        if (to_slots)
            slot[piece] = staged[piece];
        else
            staged[piece] = slot[piece];
    }
}
