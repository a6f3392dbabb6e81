// Products of weights of 16 bits, as floats, and f32 activations on tensor cores (sm_80), for prefill.
//
// Weights lie as [tile][column][16] (kernels/src/quantized/dense.rs) and are multiplied as they are. A tensor core takes both
// factors in one 16-bit format, so an activation becomes a sum of parts of the weights' format, each part what the ones before
// left, rounded to nearest: two f16, or three bf16. Ootomo and Yokota (2022, "Recovering single precision accuracy from Tensor
// Cores while surpassing the FP32 theoretical peak performance") split so, and show why tensor cores must not carry the sum along
// all columns: they cut where f32 rounds. So they add up 32 columns only, a group; the groups are added in f32:
//     c = 0; for each part, the smallest first: c += 16 columns by `mma`; c += the other 16
//     sum = fma(c, 1 / scale, sum)
// group after group, one chain for an element. It is the same for every token, whose bits depend on its own activations and the
// weights alone: `mma` computes each element of its result in one way, and no element has a part in another. The bias, and what
// stands in the output, are added after the sum, as in segments.cuh.
//
// `scale` is a power of two, for each token and group: the largest |x| of the group comes to [2^TOP, 2^(TOP + 1)), so that no part
// overflows, and what is lost to subnormals is lost far below that largest, M:
//     f16:  |x - parts| <= max(2^-22 |x|, 2^-39 M), since a part has 11 bits, and half the smallest f16 is 2^-25, where M is 2^14
//           (from M < 2^-112 on the scale stays 2^126, and what is lost is at most 2^-151);
//     bf16: the parts are x, 8 + 8 + 8 bits, but for what lies below 2^-135 M.
//
// The error of an element. A tensor core multiplies exactly, aligns the terms of a sum, its start among them, to the largest, and
// cuts them, and then the result, behind 24 bits or more (Fasi, Higham, Mikaitis and Pranesh, 2021, "Numerical behavior of NVIDIA
// tensor cores", who also find that subnormals are kept; NVIDIA promises "at least single precision"). However it cuts 16 terms
// into sums of 4, 8 or 16, that is less than 2 * 16 times 2^-23 of the largest partial sum, so 2^-17 of a group's sum of |w x| for
// its 32 columns, and 2^-6 of that more for the smaller parts. Then each group rounds once. With S = sum of |w x|, an element is
// off by at most
//     (136 + cols / 32) 2^-24 S + 2^-39 sum of |w| M,
// where the chains of 256 multiply-adds of the plain kernel keep within (256 + cols / 256) 2^-24 S. A token with an activation
// that is infinite or NaN gets NaN.
//
// A block of 4 warps takes 64 rows and 64 tokens, a warp 32 by 32: each fragment from shared memory is multiplied twice, which
// keeps reading them (2 KiB of weights and 2 KiB of each part for a warp and group: 24 KiB for a block, or 192 cycles at 128
// bytes a cycle) below multiplying them (2 * 64 * 64 * 32 = 256 Ki flop for each part, or 256 cycles for two at the 2048 flop a
// cycle of sm_80, 1024 for two on desktop cards), and small matrices still make enough blocks. A group costs global memory, or
// the L2, 4 KiB of weights and 8 KiB of activations. Both come one group ahead: weights by `cp.async`, activations through
// registers, where they are split once for the 64 rows. Two groups are 28.5 KiB of shared memory for f16 and 38.5 KiB for bf16,
// so that desktop cards hold three or two blocks at once and larger ones four.
//
// Grid: (tiles of tokens, tiles of rows). Block: 4 warps. Shared memory: two of `Buffer`.
#include "mma.cuh"
#include "segments.cuh"

namespace {

constexpr u32 THREADS = 128;
constexpr u32 TOKENS = 64;
// Tiles of a block, and of a warp; tokens of a warp.
constexpr u32 TILES = 4;
constexpr u32 WARP_TILES = 2;
constexpr u32 WARP_TOKENS = 32;
// Columns and tokens of a fragment of activations, as `load_matrices` brings it.
constexpr u32 STEP = 16;
constexpr u32 PAIR = 16;
// Elements of 16 bytes.
constexpr u32 PIECE = 8;
// Threads that split a token's group together, and tokens that all threads split at once.
constexpr u32 SPLITTERS = GROUP / PIECE;
constexpr u32 SPLIT_TOKENS = THREADS / SPLITTERS;

struct F16Weight {
    static constexpr bool IS_BF16 = false;
    static constexpr u32 PARTS = 2;
    // As large as leaves room for rounding up: the more is left to the second part before it is subnormal.
    static constexpr u32 TOP = 14;
    static __device__ __forceinline__ float read(u32 x) { return f16_float(x); }
};

struct Bf16Weight {
    static constexpr bool IS_BF16 = true;
    static constexpr u32 PARTS = 3;
    // Small, since weights may be as large as f32 allows.
    static constexpr u32 TOP = 1;
    static __device__ __forceinline__ float read(u32 x) { return bf16_float(x); }
};

// A group in shared memory: weights [TILES][GROUP][ROWS], parts [PARTS][TOKENS][GROUP], and 1 / scale [TOKENS].
template <class E>
struct Buffer {
    static constexpr u32 TILE_BYTES = GROUP * ROWS * 2;
    // From one token to the next: 16 more than a group has, so that eight tokens meet in no bank.
    static constexpr u32 X_STRIDE = GROUP * 2 + 16;
    static constexpr u32 PART_BYTES = TOKENS * X_STRIDE;
    static constexpr u32 X_AT = TILES * TILE_BYTES;
    static constexpr u32 SCALES_AT = X_AT + E::PARTS * PART_BYTES;
    static constexpr u32 BYTES = SCALES_AT + TOKENS * 4;
};

struct Operands {
    const u16* __restrict__ weights;
    // [tokens][cols]
    const float* __restrict__ x;
    // A multiple of 4.
    u32 cols;
    Output out;
};

// Byte of eight rows of a column; they change places every four columns, so that eight columns meet in no bank.
__device__ __forceinline__ u32 eight_rows_at(u32 column, u32 half) {
    return column * ROWS * 2 + (half ^ (column / 4 & 1)) * 16;
}

// Begins to copy a group of the block's weights; columns beyond the last are 0. A tile beyond the last is that once more, and
// `put` stores nothing of it.
template <class E>
__device__ __forceinline__ void copy_weights(u8* to, const Operands& o, u32 group) {
    const u32 last_tile = (o.out.rows - 1) / ROWS;
#pragma unroll
    for (u32 i = threadIdx.x; i < TILES * GROUP * 2; i += THREADS) {
        const u32 tile = i / (GROUP * 2), column = i / 2 % GROUP, half = i % 2;
        u8* at = to + tile * Buffer<E>::TILE_BYTES + eight_rows_at(column, half);
        const u64 from = (u64)min(blockIdx.y * TILES + tile, last_tile) * o.cols + group * GROUP + column;
        if (group * GROUP + column < o.cols)
            copy_16(at, o.weights + from * ROWS + half * PIECE);
        else
            *(uint4*)at = make_uint4(0, 0, 0, 0);
    }
}

// What a thread splits of a group: eight columns of each of its tokens.
struct Floats {
    float4 fours[TOKENS / SPLIT_TOKENS][2];
};

// Loads them; 0 beyond the last column or token.
__device__ __forceinline__ void load_floats(Floats& to, const Operands& o, u32 group) {
    const u32 column = group * GROUP + threadIdx.x % SPLITTERS * PIECE;
#pragma unroll
    for (u32 i = 0; i < TOKENS / SPLIT_TOKENS; i++) {
        const u32 token = blockIdx.x * TOKENS + i * SPLIT_TOKENS + threadIdx.x / SPLITTERS;
        const float* from = o.x + (u64)token * o.cols + column;
#pragma unroll
        for (u32 j = 0; j < 2; j++) {
            const bool is_there = token < o.out.tokens && column + 4 * j < o.cols;
            to.fours[i][j] = is_there ? __ldg((const float4*)from + j) : make_float4(0, 0, 0, 0);
        }
    }
}

// Stores eight columns of a token as parts. The threads of a token do so together.
template <class E>
__device__ __forceinline__ void store_parts(u8* to, const float4 (&fours)[2], u32 token) {
    float x[PIECE] = {fours[0].x, fours[0].y, fours[0].z, fours[0].w,
                      fours[1].x, fours[1].y, fours[1].z, fours[1].w};
    float most = 0.0f;
#pragma unroll
    for (u32 i = 0; i < PIECE; i++) most = fmaxf(most, fabsf(x[i]));
    // The exponent of the largest as f32 has it; not so small that the scale would be infinite.
    const u32 exponent = max(__float_as_uint(max_of(most, SPLITTERS)) >> 23, E::TOP + 1);
    const float scale = bits_float((254 + E::TOP - exponent) << 23);
#pragma unroll
    for (u32 i = 0; i < PIECE; i++) x[i] *= scale;
    const u32 piece = threadIdx.x % SPLITTERS;
    u8* parts = to + Buffer<E>::X_AT + token * Buffer<E>::X_STRIDE + piece * PIECE * 2;
#pragma unroll
    for (u32 part = 0; part < E::PARTS; part++) {
        u32 words[PIECE / 2];
#pragma unroll
        for (u32 i = 0; i < PIECE / 2; i++) {
            words[i] = pack(x[2 * i], x[2 * i + 1], E::IS_BF16);
            x[2 * i] -= E::read(words[i] & 0xffff);
            x[2 * i + 1] -= E::read(words[i] >> 16);
        }
        *(uint4*)(parts + part * Buffer<E>::PART_BYTES) = make_uint4(words[0], words[1], words[2], words[3]);
    }
    float* scales = (float*)(to + Buffer<E>::SCALES_AT);
    if (piece == 0) scales[token] = bits_float((exponent - E::TOP) << 23);
}

// Those of the block's first `used` tokens.
template <class E>
__device__ __forceinline__ void split(u8* to, const Floats& floats, u32 used) {
#pragma unroll
    for (u32 i = 0; i < TOKENS / SPLIT_TOKENS; i++) {
        const u32 token = i * SPLIT_TOKENS + threadIdx.x / SPLITTERS;
        // The same for a whole warp.
        if (token < used) store_parts<E>(to, floats.fours[i], token);
    }
}

// Adds a group of a warp's rows times its tokens, `pairs` of 16, from the block's `tile` and `token` on.
template <class E>
__device__ __forceinline__ void add_group(
    float (&sums)[WARP_TOKENS / 8][WARP_TILES][4], const u8* from, u32 tile, u32 token, u32 pairs) {
    const u32 lane = threadIdx.x % WARP;
    const u32 at = (u32)__cvta_generic_to_shared(from);
    // Lanes 0..8 point to columns 0..8 of the first rows, 8..16 to those of the last, 16..32 to columns 8..16.
    u32 a[WARP_TILES][GROUP / STEP][4];
#pragma unroll
    for (u32 i = 0; i < WARP_TILES; i++)
#pragma unroll
        for (u32 step = 0; step < GROUP / STEP; step++) {
            const u32 column = step * STEP + lane / 16 * 8 + lane % 8;
            load_transposed(
                a[i][step], at + (tile + i) * Buffer<E>::TILE_BYTES + eight_rows_at(column, lane / 8 % 2));
        }
    // Lanes 0..8 point to the first columns of tokens 0..8, 8..16 to the last, 16..32 to tokens 8..16.
    const u32 x = at + Buffer<E>::X_AT + (token + lane / 16 * 8 + lane % 8) * Buffer<E>::X_STRIDE +
                  lane / 8 % 2 * PIECE * 2;
    const float* scales = (const float*)(from + Buffer<E>::SCALES_AT) + token + lane % 4 * 2;
#pragma unroll
    for (u32 pair = 0; pair < WARP_TOKENS / PAIR; pair++) {
        if (pair >= pairs) break;
        float c[2][WARP_TILES][4] = {};
#pragma unroll
        for (u32 part = E::PARTS; part-- > 0;)
#pragma unroll
            for (u32 step = 0; step < GROUP / STEP; step++) {
                u32 b[4];
                load_matrices(
                    b, x + part * Buffer<E>::PART_BYTES + pair * PAIR * Buffer<E>::X_STRIDE + step * STEP * 2);
#pragma unroll
                for (u32 i = 0; i < 2 * WARP_TILES; i++) {
                    const u32 half = i / WARP_TILES, tile = i % WARP_TILES;
                    multiply<E::IS_BF16>(c[half][tile], a[tile][step], b[2 * half], b[2 * half + 1]);
                }
            }
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            const float2 scale = *(const float2*)(scales + pair * PAIR + 8 * half);
#pragma unroll
            for (u32 i = 0; i < WARP_TILES * 4; i++) {
                float& sum = sums[2 * pair + half][i / 4][i % 4];
                sum = fmaf(c[half][i / 4][i % 4], i % 2 ? scale.y : scale.x, sum);
            }
        }
    }
}

template <class E>
__device__ __forceinline__ void multiply_dense(const Operands& o) {
    const u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const u32 tile = warp / 2 * WARP_TILES, token = warp % 2 * WARP_TOKENS;
    const u32 used = (min(TOKENS, o.out.tokens - blockIdx.x * TOKENS) + PAIR - 1) / PAIR * PAIR;
    const u32 pairs = (max(used, token) - token) / PAIR;
    const u32 groups = (o.cols + GROUP - 1) / GROUP;
    float sums[WARP_TOKENS / 8][WARP_TILES][4] = {};
    Floats ahead;
    copy_weights<E>(shared, o, 0);
    commit_copies();
    load_floats(ahead, o, 0);
    split<E>(shared, ahead, used);
#pragma unroll 1
    for (u32 group = 0; group < groups; group++) {
        const bool is_last = group + 1 == groups;
        u8* next = shared + (group + 1) % 2 * Buffer<E>::BYTES;
        wait_copies<0>();
        __syncthreads();
        if (!is_last) {
            copy_weights<E>(next, o, group + 1);
            commit_copies();
            load_floats(ahead, o, group + 1);
        }
        add_group<E>(sums, shared + group % 2 * Buffer<E>::BYTES, tile, token, pairs);
        if (!is_last) split<E>(next, ahead, used);
    }
    // Eight lanes are eight rows of a token: 32 bytes that stand together.
#pragma unroll
    for (u32 i = 0; i < WARP_TOKENS / 8 * WARP_TILES * 4; i++) {
        const u32 eight = i / (WARP_TILES * 4), of_tile = i / 4 % WARP_TILES, at = i % 4;
        const u32 row = (blockIdx.y * TILES + tile + of_tile) * ROWS + lane / 4 + at / 2 * 8;
        const u32 of_token = blockIdx.x * TOKENS + token + eight * 8 + lane % 4 * 2 + at % 2;
        put(o.out, of_token, row, sums[eight][of_tile][at]);
    }
}

}  // namespace

#define PREFILL_KERNEL(NAME, ELEMENT, BLOCKS)                                                            \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) product_prefill_##NAME(                \
        const u16* weights, const float* x, float* out, const float* bias, u32 rows, u32 cols, u32 tokens, \
        u32 out_stride, u32 is_added) {                                                                  \
        const Output output = {out, bias, rows, tokens, out_stride, is_added != 0};                      \
        multiply_dense<ELEMENT>({weights, x, cols, output});                                             \
    }

PREFILL_KERNEL(f16, F16Weight, 4)
PREFILL_KERNEL(bf16, Bf16Weight, 4)
