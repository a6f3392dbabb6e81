//! Lanes in pairs of 256-bit registers: AVX2, FMA and F16C, with or without the dot products of AVX-VNNI.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::{GROUP, Lanes, unrolled};
use crate::quantized::scale_of;

#[derive(Clone, Copy)]
pub(crate) struct Avx2<const VNNI: bool>;

// SAFETY of every block here: the machine has the instructions, and the elements are there, by the trait's contract.
#[allow(clippy::undocumented_unsafe_blocks)]
impl<const VNNI: bool> Lanes for Avx2<VNNI> {
    type Floats = [__m256; 2];
    type Ints = [__m256i; 2];
    type Bytes = [__m256i; 2];

    const TILE_TOKENS: usize = 64;
    const SUMS_FIT: bool = false;
    const WIDE_COLUMNS: usize = 1;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::Floats {
        unsafe { [_mm256_set1_ps(x); 2] }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::Floats {
        unsafe { [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))] }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const f16) -> Self::Floats {
        unsafe {
            [
                _mm256_cvtph_ps(_mm_loadu_si128(from.cast())),
                _mm256_cvtph_ps(_mm_loadu_si128(from.add(8).cast())),
            ]
        }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> Self::Floats {
        unsafe {
            let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.add(8).cast()));
            [
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(low)),
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(high)),
            ]
        }
    }

    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> Self::Floats {
        unsafe {
            let low = _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast()));
            let high = _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.add(8).cast()));
            [_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)]
        }
    }

    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> Self::Floats {
        unsafe {
            let low = _mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast()));
            let high = _mm256_cvtepi8_epi32(_mm_loadl_epi64(from.add(8).cast()));
            [_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)]
        }
    }

    #[inline(always)]
    unsafe fn load_nibbles(from: *const u8) -> (Self::Floats, Self::Floats) {
        unsafe {
            let low = _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast()));
            let high = _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.add(8).cast()));
            let mask = _mm256_set1_epi32(15);
            (
                [
                    _mm256_cvtepi32_ps(_mm256_and_si256(low, mask)),
                    _mm256_cvtepi32_ps(_mm256_and_si256(high, mask)),
                ],
                [
                    _mm256_cvtepi32_ps(_mm256_srli_epi32::<4>(low)),
                    _mm256_cvtepi32_ps(_mm256_srli_epi32::<4>(high)),
                ],
            )
        }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, x: Self::Floats) {
        unsafe {
            _mm256_storeu_ps(to, x[0]);
            _mm256_storeu_ps(to.add(8), x[1]);
        }
    }

    #[inline(always)]
    unsafe fn add(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
    }

    #[inline(always)]
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
    }

    #[inline(always)]
    unsafe fn fma(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        unsafe {
            [
                _mm256_fmadd_ps(a[0], b[0], c[0]),
                _mm256_fmadd_ps(a[1], b[1], c[1]),
            ]
        }
    }

    #[inline(always)]
    unsafe fn floats(x: Self::Ints) -> Self::Floats {
        unsafe { [_mm256_cvtepi32_ps(x[0]), _mm256_cvtepi32_ps(x[1])] }
    }

    #[inline(always)]
    unsafe fn bytes(from: *const u8) -> Self::Bytes {
        unsafe {
            [
                _mm256_loadu_si256(from.cast()),
                _mm256_loadu_si256(from.add(32).cast()),
            ]
        }
    }

    #[inline(always)]
    unsafe fn field(x: Self::Bytes, right: i32, mask: u8) -> Self::Bytes {
        // Constants after inlining: one shift and one mask.
        unsafe {
            let (count, mask) = (_mm_cvtsi32_si128(right.abs()), _mm256_set1_epi8(mask as i8));
            let shift = |x| {
                if right >= 0 {
                    _mm256_srl_epi16(x, count)
                } else {
                    _mm256_sll_epi16(x, count)
                }
            };
            [
                _mm256_and_si256(shift(x[0]), mask),
                _mm256_and_si256(shift(x[1]), mask),
            ]
        }
    }

    #[inline(always)]
    unsafe fn or(a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        unsafe { [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])] }
    }

    #[inline(always)]
    unsafe fn dot<const N: usize>(
        bits: usize,
        weights: &[Self::Bytes; N],
        x: *const i8,
        start: *const i32,
    ) -> Self::Ints {
        unsafe {
            if VNNI {
                let mut sums = [_mm256_set1_epi32(start.read()); 2];
                for (j, weights) in weights.iter().enumerate() {
                    let x = four(x, j);
                    sums[0] = _mm256_dpbusd_avx_epi32(sums[0], weights[0], x);
                    sums[1] = _mm256_dpbusd_avx_epi32(sums[1], weights[1], x);
                }
                return sums;
            }
            let ones = _mm256_set1_epi16(1);
            if bits == 8 {
                // Two products of unsigned bytes do not fit 16 bits, those of signed ones do: 2 * 128 * 127. So the
                // offset, which is 128, is taken off here, and the magnitudes meet the values with the weights' signs.
                let mut sums = [_mm256_setzero_si256(); 2];
                for (j, weights) in weights.iter().enumerate() {
                    let x = four(x, j);
                    for (sum, weights) in sums.iter_mut().zip(weights) {
                        let signed = _mm256_xor_si256(*weights, _mm256_set1_epi8(i8::MIN));
                        let magnitudes = _mm256_abs_epi8(signed);
                        let pairs = _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(x, signed));
                        *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones));
                    }
                }
                return sums;
            }
            // Pairs of products add up in 16 bits as often as they fit.
            let often = 32_767 / (2 * ((1 << bits) - 1) * 127);
            let mut sums = [_mm256_set1_epi32(start.read()); 2];
            let mut j = 0;
            while j < N {
                let mut pairs = [_mm256_setzero_si256(); 2];
                let end = N.min(j + often);
                while j < end {
                    let x = four(x, j);
                    for (pairs, weights) in pairs.iter_mut().zip(&weights[j]) {
                        *pairs = _mm256_add_epi16(*pairs, _mm256_maddubs_epi16(*weights, x));
                    }
                    j += 1;
                }
                for (sum, pairs) in sums.iter_mut().zip(pairs) {
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones));
                }
            }
            sums
        }
    }

    /// Quad by quad: two registers of weights meet the quants of all four tokens.
    #[inline(always)]
    unsafe fn four_dots<const N: usize>(
        bits: usize,
        weights: &[Self::Bytes; N],
        x: *const i8,
        starts: *const i32,
        halves: usize,
    ) -> [Self::Ints; 4] {
        unsafe {
            let ones = _mm256_set1_epi16(1);
            let mut sums = [[_mm256_setzero_si256(); 2]; 4];
            if VNNI || bits < 8 {
                unrolled!(t < 4, {
                    sums[t] = [_mm256_set1_epi32(starts.add(t * halves).read()); 2];
                });
            }
            if VNNI {
                unrolled!(j < N, {
                    let [low, high] = weights[j];
                    unrolled!(t < 4, {
                        let x = four(x.add(t * GROUP), j);
                        sums[t][0] = _mm256_dpbusd_avx_epi32(sums[t][0], low, x);
                        sums[t][1] = _mm256_dpbusd_avx_epi32(sums[t][1], high, x);
                    });
                });
                return sums;
            }
            if bits == 8 {
                // As in `dot`.
                unrolled!(j < N, {
                    let signs = _mm256_set1_epi8(i8::MIN);
                    let low = _mm256_xor_si256(weights[j][0], signs);
                    let high = _mm256_xor_si256(weights[j][1], signs);
                    let magnitudes = [_mm256_abs_epi8(low), _mm256_abs_epi8(high)];
                    unrolled!(t < 4, {
                        let x = four(x.add(t * GROUP), j);
                        let pairs = _mm256_maddubs_epi16(magnitudes[0], _mm256_sign_epi8(x, low));
                        sums[t][0] = _mm256_add_epi32(sums[t][0], _mm256_madd_epi16(pairs, ones));
                        let pairs = _mm256_maddubs_epi16(magnitudes[1], _mm256_sign_epi8(x, high));
                        sums[t][1] = _mm256_add_epi32(sums[t][1], _mm256_madd_epi16(pairs, ones));
                    });
                });
                return sums;
            }
            let often = 32_767 / (2 * ((1 << bits) - 1) * 127);
            let mut pairs = [[_mm256_setzero_si256(); 2]; 4];
            unrolled!(j < N, {
                let [low, high] = weights[j];
                unrolled!(t < 4, {
                    let x = four(x.add(t * GROUP), j);
                    let products = [_mm256_maddubs_epi16(low, x), _mm256_maddubs_epi16(high, x)];
                    if j.is_multiple_of(often) {
                        pairs[t] = products;
                    } else {
                        pairs[t][0] = _mm256_add_epi16(pairs[t][0], products[0]);
                        pairs[t][1] = _mm256_add_epi16(pairs[t][1], products[1]);
                    }
                    if j % often == often - 1 || j == N - 1 {
                        let low = _mm256_madd_epi16(pairs[t][0], ones);
                        let high = _mm256_madd_epi16(pairs[t][1], ones);
                        sums[t][0] = _mm256_add_epi32(sums[t][0], low);
                        sums[t][1] = _mm256_add_epi32(sums[t][1], high);
                    }
                });
            });
            sums
        }
    }

    #[inline(always)]
    unsafe fn quantize(x: *const f32, quants: *mut i8) -> (f32, [i32; 2]) {
        unsafe { quantize(x, quants) }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    unsafe fn prefetch_later(at: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
    }
}

/// Four quants, in every lane.
#[inline(always)]
unsafe fn four(x: *const i8, j: usize) -> __m256i {
    // SAFETY: they are there, by the contract of `dot`.
    unsafe { _mm256_set1_epi32(x.add(4 * j).cast::<i32>().read_unaligned()) }
}

/// `Lanes::quantize` for every path that has AVX2.
#[inline(always)]
pub(super) unsafe fn quantize(x: *const f32, quants: *mut i8) -> (f32, [i32; 2]) {
    // SAFETY: 32 floats and room for 32 quants are there, by the contract of `Lanes::quantize`.
    unsafe {
        let sign = _mm256_set1_ps(-0.0);
        let parts: [__m256; 4] = [
            _mm256_loadu_ps(x),
            _mm256_loadu_ps(x.add(8)),
            _mm256_loadu_ps(x.add(16)),
            _mm256_loadu_ps(x.add(24)),
        ];
        let mut max = _mm256_setzero_ps();
        for part in parts {
            // A NaN is the first operand, so the maximum so far stays.
            max = _mm256_max_ps(_mm256_andnot_ps(sign, part), max);
        }
        let unordered = _mm256_or_ps(
            _mm256_cmp_ps::<_CMP_UNORD_Q>(parts[0], parts[1]),
            _mm256_cmp_ps::<_CMP_UNORD_Q>(parts[2], parts[3]),
        );
        let max = _mm_max_ps(_mm256_castps256_ps128(max), _mm256_extractf128_ps::<1>(max));
        let max = _mm_max_ps(max, _mm_movehl_ps(max, max));
        let max = _mm_cvtss_f32(_mm_max_ss(max, _mm_movehdup_ps(max)));
        let (mut scale, inverse) = scale_of(max);
        if _mm256_movemask_ps(unordered) != 0 {
            scale = f32::NAN;
        }
        let inverse = _mm256_set1_ps(inverse);
        let a = _mm256_cvtps_epi32(ordered(_mm256_mul_ps(parts[0], inverse)));
        let b = _mm256_cvtps_epi32(ordered(_mm256_mul_ps(parts[1], inverse)));
        let c = _mm256_cvtps_epi32(ordered(_mm256_mul_ps(parts[2], inverse)));
        let d = _mm256_cvtps_epi32(ordered(_mm256_mul_ps(parts[3], inverse)));
        // Packing works within halves of the register; the permutation puts the groups of four back in order.
        let packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        let packed = _mm256_permutevar8x32_epi32(packed, order);
        _mm256_storeu_si256(quants.cast(), packed);
        (
            scale,
            [
                add_lanes(_mm256_add_epi32(a, b)),
                add_lanes(_mm256_add_epi32(c, d)),
            ],
        )
    }
}

/// 0 for NaN, as Rust's conversion to integers has it.
#[inline(always)]
unsafe fn ordered(x: __m256) -> __m256 {
    // SAFETY: the machine has AVX, as the caller.
    unsafe { _mm256_and_ps(x, _mm256_cmp_ps::<_CMP_ORD_Q>(x, x)) }
}

#[inline(always)]
unsafe fn add_lanes(x: __m256i) -> i32 {
    // SAFETY: the machine has AVX2, as the caller.
    unsafe {
        let lanes = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
        let lanes = _mm_add_epi32(lanes, _mm_shuffle_epi32::<0b01_00_11_10>(lanes));
        let lanes = _mm_add_epi32(lanes, _mm_shuffle_epi32::<0b10_11_00_01>(lanes));
        _mm_cvtsi128_si32(lanes)
    }
}
