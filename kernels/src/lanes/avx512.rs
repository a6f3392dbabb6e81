//! Lanes in 512-bit registers: AVX-512 F, BW, VL, DQ and VNNI.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::{Lanes, avx2};

#[derive(Clone, Copy)]
pub(crate) struct Avx512;

// SAFETY of every block here: the machine has the instructions, and the elements are there, by the trait's contract.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Lanes for Avx512 {
    type Floats = __m512;
    type Ints = __m512i;
    type Bytes = __m512i;

    const TILE_TOKENS: usize = 16;
    const SUMS_FIT: bool = true;
    const WIDE_COLUMNS: usize = 4;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::Floats {
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::Floats {
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const f16) -> Self::Floats {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> Self::Floats {
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }

    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> Self::Floats {
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> Self::Floats {
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_nibbles(from: *const u8) -> (Self::Floats, Self::Floats) {
        unsafe {
            let wide = _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()));
            let low = _mm512_and_si512(wide, _mm512_set1_epi32(15));
            (
                _mm512_cvtepi32_ps(low),
                _mm512_cvtepi32_ps(_mm512_srli_epi32::<4>(wide)),
            )
        }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, x: Self::Floats) {
        unsafe { _mm512_storeu_ps(to, x) }
    }

    #[inline(always)]
    unsafe fn add(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn fma(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn floats(x: Self::Ints) -> Self::Floats {
        unsafe { _mm512_cvtepi32_ps(x) }
    }

    #[inline(always)]
    unsafe fn bytes(from: *const u8) -> Self::Bytes {
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn field(x: Self::Bytes, right: i32, mask: u8) -> Self::Bytes {
        // Constants after inlining: one shift and one mask.
        unsafe {
            let count = _mm_cvtsi32_si128(right.abs());
            let shifted = match right {
                0 => x,
                1.. => _mm512_srl_epi16(x, count),
                _ => _mm512_sll_epi16(x, count),
            };
            _mm512_and_si512(shifted, _mm512_set1_epi8(mask as i8))
        }
    }

    #[inline(always)]
    unsafe fn or(a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        unsafe { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    unsafe fn dot<const N: usize>(
        _bits: usize,
        weights: &[Self::Bytes; N],
        x: *const i8,
        start: *const i32,
    ) -> Self::Ints {
        unsafe {
            let mut sums = _mm512_set1_epi32(start.read());
            for (j, weights) in weights.iter().enumerate() {
                let x = _mm512_set1_epi32(x.add(4 * j).cast::<i32>().read_unaligned());
                sums = _mm512_dpbusd_epi32(sums, *weights, x);
            }
            sums
        }
    }

    #[inline(always)]
    unsafe fn quantize(x: *const f32, quants: *mut i8) -> (f32, [i32; 2]) {
        unsafe { avx2::quantize(x, quants) }
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
