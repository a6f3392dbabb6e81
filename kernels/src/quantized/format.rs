//! How each GGUF format lies in packed memory, and how its blocks are read.
//!
//! All formats are a quant of 2 to 8 bits, an offset or a minimum, and a scale for 16 or 32 weights; K-quants scale the
//! scales of 256 weights once more. Nothing is rounded by packing: scales stay as they are in the file.

use half::f16;

use crate::lanes::{GROUP, LANES, Lanes};

/// A format of packed weights: weight = scale * (quant - OFFSET) + minimum.
///
/// A **unit** is what shares a block in the file: `UNIT_GROUPS` groups of 32 weights along a row.
pub(crate) trait Format: 'static {
    /// Bits of a quant.
    const BITS: usize;
    /// Taken off every quant.
    const OFFSET: i32;
    /// Whether there are minima.
    const HAS_MINIMA: bool;
    /// Scales of a group: 1, or 2 for 16 weights each.
    const HALVES: usize;
    /// Groups of a unit.
    const UNIT_GROUPS: usize;
    /// Bytes of a unit in the file, for one row.
    const BLOCK_BYTES: usize;
    /// Bytes of a unit's scales and minima in memory, for 16 rows.
    const SCALE_BYTES: usize;

    /// Bytes of a group's quants in memory, for 16 rows.
    const QUANT_BYTES: usize = GROUP / 8 * LANES * Self::BITS;

    /// Reads the unit of one row: its quants, and its scales and minima into place among those of 16 rows.
    fn read(block: &[u8], quants: &mut [[u8; GROUP]], row: usize, scales: &mut [u8]);

    /// Scales and minima of 16 rows for a half (the only one where `HALVES` is 1) of a group of the unit.
    ///
    /// # Safety
    /// As `Lanes`; `scales` holds `SCALE_BYTES`.
    unsafe fn scales<L: Lanes>(
        scales: *const u8,
        group: usize,
        half: usize,
    ) -> (L::Floats, Option<L::Floats>);
}

/// Copies the half at `block[at..]` into row `row` of a vector of halves.
fn copy_half(block: &[u8], at: usize, row: usize, out: &mut [u8]) {
    out[2 * row..2 * row + 2].copy_from_slice(&block[at..at + 2]);
}

/// As `copy_half`, with the sign flipped: minima of K-quants are subtracted.
fn copy_negated_half(block: &[u8], at: usize, row: usize, out: &mut [u8]) {
    out[2 * row] = block[at];
    out[2 * row + 1] = block[at + 1] ^ 0x80;
}

/// Low and high nibbles of 16 bytes: quants 0..16 and 16..32.
fn read_nibbles(bytes: &[u8], quants: &mut [u8; GROUP]) {
    let (low, high) = quants.split_at_mut(GROUP / 2);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
        *low = byte & 15;
        *high = byte >> 4;
    }
}

/// Adds one bit of `bits` to each quant, at `value`.
fn add_bits(bits: &[u8], value: u8, quants: &mut [u8; GROUP]) {
    for (i, quant) in quants.iter_mut().enumerate() {
        *quant |= (bits[i / 8] >> (i % 8) & 1) * value;
    }
}

/// Bytes of a vector of halves.
const HALVES_OF_ROWS: usize = 2 * LANES;

/// Formats with a scale, and perhaps a minimum, for each group.
macro_rules! plain {
    ($name:ident, $bits:literal, $offset:literal, $minima:literal, $block:literal, $read:expr) => {
        pub(crate) struct $name;

        impl Format for $name {
            const BITS: usize = $bits;
            const OFFSET: i32 = $offset;
            const HAS_MINIMA: bool = $minima;
            const HALVES: usize = 1;
            const UNIT_GROUPS: usize = 1;
            const BLOCK_BYTES: usize = $block;
            const SCALE_BYTES: usize = if $minima { 2 } else { 1 } * HALVES_OF_ROWS;

            fn read(block: &[u8], quants: &mut [[u8; GROUP]], row: usize, scales: &mut [u8]) {
                copy_half(block, 0, row, scales);
                let at = if $minima {
                    copy_half(block, 2, row, &mut scales[HALVES_OF_ROWS..]);
                    4
                } else {
                    2
                };
                let read: fn(&[u8], &mut [u8; GROUP]) = $read;
                read(&block[at..], &mut quants[0]);
            }

            #[inline(always)]
            unsafe fn scales<L: Lanes>(
                scales: *const u8,
                _: usize,
                _: usize,
            ) -> (L::Floats, Option<L::Floats>) {
                // SAFETY: the caller's promise.
                unsafe {
                    let scale = L::load_f16(scales.cast());
                    let minima = scales.add(HALVES_OF_ROWS);
                    (scale, $minima.then(|| L::load_f16(minima.cast())))
                }
            }
        }
    };
}

plain!(Q4_0, 4, 8, false, 18, read_nibbles);
plain!(Q4_1, 4, 0, true, 20, read_nibbles);
plain!(Q5_0, 5, 16, false, 22, |block, quants| {
    read_nibbles(&block[4..], quants);
    add_bits(block, 16, quants);
});
plain!(Q5_1, 5, 0, true, 24, |block, quants| {
    read_nibbles(&block[4..], quants);
    add_bits(block, 16, quants);
});
plain!(Q8_0, 8, 128, false, 34, |block, quants| {
    for (quant, byte) in quants.iter_mut().zip(block) {
        *quant = byte ^ 0x80;
    }
});

/// `Q4_K` and `Q5_K`: for each group a scale and a minimum of 6 bits, scaled once more.
/// In memory: scales [16] f16, negated scales of the minima [16] f16, then for each group 16 scales and 16 minima.
macro_rules! with_minima {
    ($name:ident, $bits:literal, $block:literal, $read:expr) => {
        pub(crate) struct $name;

        impl Format for $name {
            const BITS: usize = $bits;
            const OFFSET: i32 = 0;
            const HAS_MINIMA: bool = true;
            const HALVES: usize = 1;
            const UNIT_GROUPS: usize = 8;
            const BLOCK_BYTES: usize = $block;
            const SCALE_BYTES: usize = 2 * HALVES_OF_ROWS + 8 * 2 * LANES;

            fn read(block: &[u8], quants: &mut [[u8; GROUP]], row: usize, scales: &mut [u8]) {
                copy_half(block, 0, row, scales);
                copy_negated_half(block, 2, row, &mut scales[HALVES_OF_ROWS..]);
                let small = &mut scales[2 * HALVES_OF_ROWS..];
                for group in 0..8 {
                    let (scale, minimum) = six_bits(&block[4..16], group);
                    small[2 * LANES * group + row] = scale;
                    small[2 * LANES * group + LANES + row] = minimum;
                }
                let read: fn(&[u8], &mut [[u8; GROUP]]) = $read;
                read(&block[16..], quants);
            }

            #[inline(always)]
            unsafe fn scales<L: Lanes>(
                scales: *const u8,
                group: usize,
                _: usize,
            ) -> (L::Floats, Option<L::Floats>) {
                // SAFETY: the caller's promise.
                unsafe {
                    let small = scales.add(2 * HALVES_OF_ROWS + 2 * LANES * group);
                    let scale = L::mul(L::load_f16(scales.cast()), L::load_u8(small));
                    let of_minima = L::load_f16(scales.add(HALVES_OF_ROWS).cast());
                    let minimum = L::mul(of_minima, L::load_u8(small.add(LANES)));
                    (scale, Some(minimum))
                }
            }
        }
    };
}

/// Scale and minimum of group `i` among the twelve bytes that hold those of eight.
fn six_bits(bytes: &[u8], i: usize) -> (u8, u8) {
    if i < 4 {
        return (bytes[i] & 63, bytes[i + 4] & 63);
    }
    let (low, high) = (bytes[i + 4], |at: usize| bytes[at] >> 6 << 4);
    (low & 15 | high(i - 4), low >> 4 | high(i))
}

/// Nibbles of 128 bytes: each 32 bytes hold the low and the high nibbles of two groups.
fn read_nibble_groups(bytes: &[u8], quants: &mut [[u8; GROUP]]) {
    for (bytes, quants) in bytes.chunks_exact(GROUP).zip(quants.chunks_exact_mut(2)) {
        let [low, high] = quants else { unreachable!() };
        for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
            *low = byte & 15;
            *high = byte >> 4;
        }
    }
}

with_minima!(Q4K, 4, 144, read_nibble_groups);
with_minima!(Q5K, 5, 176, |block, quants| {
    read_nibble_groups(&block[32..], quants);
    for (group, quants) in quants.iter_mut().enumerate() {
        for (quant, bits) in quants.iter_mut().zip(&block[..32]) {
            *quant |= (bits >> group & 1) << 4;
        }
    }
});

/// `Q3_K` and `Q6_K`: for each 16 weights a signed scale, scaled once more.
/// In memory: scales [16] f16, then for each half group 16 signed scales.
macro_rules! with_signed_scales {
    ($name:ident, $bits:literal, $offset:literal, $block:literal, $scale_at:literal, $read:expr) => {
        pub(crate) struct $name;

        impl Format for $name {
            const BITS: usize = $bits;
            const OFFSET: i32 = $offset;
            const HAS_MINIMA: bool = false;
            const HALVES: usize = 2;
            const UNIT_GROUPS: usize = 8;
            const BLOCK_BYTES: usize = $block;
            const SCALE_BYTES: usize = HALVES_OF_ROWS + 16 * LANES;

            fn read(block: &[u8], quants: &mut [[u8; GROUP]], row: usize, scales: &mut [u8]) {
                copy_half(block, $scale_at, row, scales);
                let read: fn(&[u8], &mut [[u8; GROUP]]) -> [i8; 16] = $read;
                for (half, scale) in read(block, quants).into_iter().enumerate() {
                    scales[HALVES_OF_ROWS + LANES * half + row] = scale as u8;
                }
            }

            #[inline(always)]
            unsafe fn scales<L: Lanes>(
                scales: *const u8,
                group: usize,
                half: usize,
            ) -> (L::Floats, Option<L::Floats>) {
                // SAFETY: the caller's promise.
                unsafe {
                    let small = scales.add(HALVES_OF_ROWS + LANES * (2 * group + half));
                    let scale = L::mul(L::load_f16(scales.cast()), L::load_i8(small.cast()));
                    (scale, None)
                }
            }
        }
    };
}

with_signed_scales!(Q6K, 6, 32, 210, 208, |block, quants| {
    let (low, high) = (&block[..128], &block[128..192]);
    for (group, quants) in quants.iter_mut().enumerate() {
        // Each half of the block: four groups, the first two in the low nibbles of 64 bytes, the others in the high.
        let (half, quarter) = (group / 4, group % 4);
        let low = &low[64 * half + 32 * (quarter % 2)..];
        let bits = quants.iter_mut().zip(low).zip(&high[32 * half..]);
        for ((quant, low), high) in bits {
            *quant = low >> (4 * (quarter / 2)) & 15 | (high >> (2 * quarter) & 3) << 4;
        }
    }
    std::array::from_fn(|i| block[192 + i] as i8)
});
with_signed_scales!(Q3K, 3, 4, 110, 108, |block, quants| {
    let (high, low, packed) = (&block[..32], &block[32..96], &block[96..108]);
    for (group, quants) in quants.iter_mut().enumerate() {
        let low = &low[32 * (group / 4)..];
        for ((quant, low), high) in quants.iter_mut().zip(low).zip(high) {
            *quant = low >> (2 * (group % 4)) & 3 | (high >> group & 1) << 2;
        }
    }
    std::array::from_fn(|i| {
        let low = packed[i % 8] >> (4 * (i / 8)) & 15;
        let high = packed[8 + i % 4] >> (2 * (i / 4)) & 3;
        (low | high << 4) as i8 - 32
    })
});

/// `Q2_K`: for each 16 weights a scale and a minimum of 4 bits in one byte, scaled once more.
/// In memory: scales [16] f16, negated scales of the minima [16] f16, then for each half group 16 such bytes.
pub(super) struct Q2K;

impl Format for Q2K {
    const BITS: usize = 2;
    const OFFSET: i32 = 0;
    const HAS_MINIMA: bool = true;
    const HALVES: usize = 2;
    const UNIT_GROUPS: usize = 8;
    const BLOCK_BYTES: usize = 84;
    const SCALE_BYTES: usize = 2 * HALVES_OF_ROWS + 16 * LANES;

    fn read(block: &[u8], quants: &mut [[u8; GROUP]], row: usize, scales: &mut [u8]) {
        copy_half(block, 80, row, scales);
        copy_negated_half(block, 82, row, &mut scales[HALVES_OF_ROWS..]);
        for (half, byte) in block[..16].iter().enumerate() {
            scales[2 * HALVES_OF_ROWS + LANES * half + row] = *byte;
        }
        for (group, quants) in quants.iter_mut().enumerate() {
            let bytes = &block[16 + 32 * (group / 4)..];
            for (quant, byte) in quants.iter_mut().zip(bytes) {
                *quant = byte >> (2 * (group % 4)) & 3;
            }
        }
    }

    #[inline(always)]
    unsafe fn scales<L: Lanes>(
        scales: *const u8,
        group: usize,
        half: usize,
    ) -> (L::Floats, Option<L::Floats>) {
        // SAFETY: the caller's promise.
        unsafe {
            let small = scales.add(2 * HALVES_OF_ROWS + LANES * (2 * group + half));
            let (low, high) = L::load_nibbles(small);
            let of_minima = L::load_f16(scales.add(HALVES_OF_ROWS).cast::<f16>());
            (
                L::mul(L::load_f16(scales.cast::<f16>()), low),
                Some(L::mul(of_minima, high)),
            )
        }
    }
}
