// Packed weights: kernels/src/quantized/packed.rs and format.rs draw how they lie. Sixteen rows make a tile; a group is 32 weights
// along a row, eight quads of four, and a line holds a word of each row of the tile.
#pragma once

#include "segments.cuh"

typedef signed char s8;

constexpr u32 LINE = 4 * ROWS;
// Groups of a segment. A unit of a K-quant is one.
constexpr u32 SEGMENT = 8;

// How the scales of a unit lie, behind the halves that scale them once more.
enum Scaling {
    // None: a unit is a group, its scale and minimum are halves.
    HALVES_ALONE,
    // Q4_K, Q5_K: for each group 16 scales and 16 minima.
    SCALES_AND_MINIMA,
    // Q3_K, Q6_K: for each half of a group 16 signed scales.
    SIGNED_SCALES,
    // Q2_K: for each half of a group 16 bytes, the scale low and the minimum high.
    NIBBLES,
};

// weight = scale * (quant - OFFSET) + minimum.
template <u32 BITS_, int OFFSET_, bool HAS_MINIMA_, Scaling SCALING_>
struct Format {
    static constexpr u32 BITS = BITS_;
    static constexpr int OFFSET = OFFSET_;
    static constexpr bool HAS_MINIMA = HAS_MINIMA_;
    static constexpr Scaling SCALING = SCALING_;
    // Scales of a group.
    static constexpr u32 HALVES = SCALING == SIGNED_SCALES || SCALING == NIBBLES ? 2 : 1;
    static constexpr bool IS_SCALED_TWICE = SCALING != HALVES_ALONE;
    static constexpr u32 UNIT = IS_SCALED_TWICE ? SEGMENT : 1;
    static constexpr u32 QUANT_BYTES = LINE * BITS;
    static constexpr u32 HEAD_BYTES = (HAS_MINIMA ? 2 : 1) * 2 * ROWS;
    static constexpr u32 SCALE_BYTES = HEAD_BYTES + (IS_SCALED_TWICE ? SEGMENT * 2 * ROWS : 0);
    // Words that hold two quads, j and j + 4, of a row.
    static constexpr u32 PAIR_WORDS = BITS == 4 ? 1 : BITS == 3 || BITS == 6 ? 3 : 2;
};

typedef Format<4, 8, false, HALVES_ALONE> Q4_0;
typedef Format<4, 0, true, HALVES_ALONE> Q4_1;
typedef Format<5, 16, false, HALVES_ALONE> Q5_0;
typedef Format<5, 0, true, HALVES_ALONE> Q5_1;
typedef Format<8, 128, false, HALVES_ALONE> Q8_0;
typedef Format<2, 0, true, NIBBLES> Q2K;
typedef Format<3, 4, false, SIGNED_SCALES> Q3K;
typedef Format<4, 0, true, SCALES_AND_MINIMA> Q4K;
typedef Format<5, 0, true, SCALES_AND_MINIMA> Q5K;
typedef Format<6, 32, false, SIGNED_SCALES> Q6K;

// --- Quants ---

__device__ __forceinline__ u32 line_word(const u8* lines, u32 line) {
    return __ldg((const u32*)(lines + line * LINE));
}

// All words of a row's group; `lines` points to the row's word of the first.
template <class F>
__device__ __forceinline__ void load_row(u32 (&words)[F::BITS], const u8* lines) {
#pragma unroll
    for (u32 i = 0; i < F::BITS; i++) words[i] = line_word(lines, i);
}

// The bits of quads above the lowest two or four, in place, from a word that holds those of several quads.
template <class F>
__device__ __forceinline__ u32 upper_bits(u32 line, u32 shift) {
    if (F::BITS == 3) return (line >> shift & 0x01010101) << 2;
    if (F::BITS == 5) return (line >> shift & 0x01010101) << 4;
    return (line >> shift & 0x03030303) << 4;
}

// Quad j of a row that `load_row` loaded, one byte each.
template <class F>
__device__ __forceinline__ u32 quad_of(const u32 (&words)[F::BITS], u32 j) {
    if (F::BITS == 8) return words[j % F::BITS];
    if (F::BITS < 4) {
        const u32 low = words[j / 4] >> 2 * (j % 4) & 0x03030303;
        return F::BITS == 3 ? low | upper_bits<F>(words[2 % F::BITS], j) : low;
    }
    const u32 low = words[j % 4] >> 4 * (j / 4) & 0x0f0f0f0f;
    if (F::BITS == 5) return low | upper_bits<F>(words[4 % F::BITS], j);
    if (F::BITS == 6) return low | upper_bits<F>(words[(4 + j / 4) % F::BITS], 2 * (j % 4));
    return low;
}

// The words of a row's quads j and j + 4.
template <class F>
__device__ __forceinline__ void load_pair(u32 (&words)[F::PAIR_WORDS], const u8* lines, u32 j) {
    if (F::BITS < 4) {
#pragma unroll
        for (u32 i = 0; i < F::PAIR_WORDS; i++) words[i] = line_word(lines, i);
        return;
    }
    words[0] = line_word(lines, j);
    if (F::BITS == 8) words[1 % F::PAIR_WORDS] = line_word(lines, j + 4);
    if (F::BITS == 5 || F::BITS == 6) words[1 % F::PAIR_WORDS] = line_word(lines, 4);
    if (F::BITS == 6) words[2 % F::PAIR_WORDS] = line_word(lines, 5);
}

// Quad j, or the one four further, of what `load_pair` loaded, less OFFSET: signed bytes.
template <class F>
__device__ __forceinline__ u32 signed_quad(const u32 (&words)[F::PAIR_WORDS], u32 j, u32 high) {
    if (F::BITS == 8) return words[high % F::PAIR_WORDS] ^ 0x80808080;
    u32 quad;
    if (F::BITS < 4) {
        quad = words[high % F::PAIR_WORDS] >> 2 * j & 0x03030303;
        if (F::BITS == 3) quad |= upper_bits<F>(words[2 % F::PAIR_WORDS], j + 4 * high);
    } else {
        quad = words[0] >> 4 * high & 0x0f0f0f0f;
        if (F::BITS == 5) quad |= upper_bits<F>(words[1 % F::PAIR_WORDS], j + 4 * high);
        if (F::BITS == 6) quad |= upper_bits<F>(words[(1 + high) % F::PAIR_WORDS], 2 * j);
    }
    if (F::OFFSET == 0) return quad;
    // The top bit of each byte is free and keeps the difference from borrowing of the next.
    return ((quad | 0x80808080) - (u32)F::OFFSET * 0x01010101u) ^ 0x80808080;
}

// --- Scales ---

// What stands at a row's group, as it lies: for each half where there are two, else the scale and the minimum.
struct RawScales {
    u32 at[2];
};

// The halves that scale a unit's scales, and those of its minima.
struct Head {
    float scale, minimum;
};

template <class F>
__device__ __forceinline__ Head load_head(const u8* scales, u32 unit, u32 row) {
    Head head = {0.0f, 0.0f};
    if (F::IS_SCALED_TWICE) {
        const u16* halves = (const u16*)(scales + unit * F::SCALE_BYTES) + row;
        head.scale = f16_float(__ldg(halves));
        if (F::HAS_MINIMA) head.minimum = f16_float(__ldg(halves + ROWS));
    }
    return head;
}

template <class F>
__device__ __forceinline__ RawScales load_scales(const u8* scales, u32 group, u32 row) {
    RawScales raw = {{0, 0}};
    if (F::IS_SCALED_TWICE) {
        const u8* small = scales + group / SEGMENT * F::SCALE_BYTES + F::HEAD_BYTES;
        small += group % SEGMENT * 2 * ROWS + row;
        raw.at[0] = __ldg(small);
        raw.at[1] = __ldg(small + ROWS);
    } else {
        const u16* halves = (const u16*)(scales + group * F::SCALE_BYTES) + row;
        raw.at[0] = __ldg(halves);
        if (F::HAS_MINIMA) raw.at[1] = __ldg(halves + ROWS);
    }
    return raw;
}

template <class F>
__device__ __forceinline__ float scale_of(const Head& head, const RawScales& raw, u32 half) {
    if (F::SCALING == HALVES_ALONE) return f16_float(raw.at[0]);
    if (F::SCALING == SCALES_AND_MINIMA) return head.scale * (float)raw.at[0];
    if (F::SCALING == NIBBLES) return head.scale * (float)((half ? raw.at[1] : raw.at[0]) & 15);
    return head.scale * (float)(s8)(half ? raw.at[1] : raw.at[0]);
}

template <class F>
__device__ __forceinline__ float minimum_of(const Head& head, const RawScales& raw, u32 half) {
    if (F::SCALING == HALVES_ALONE) return f16_float(raw.at[1]);
    if (F::SCALING == SCALES_AND_MINIMA) return head.minimum * (float)raw.at[1];
    return head.minimum * (float)((half ? raw.at[1] : raw.at[0]) >> 4);
}
