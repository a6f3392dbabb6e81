//! Lanes in plain Rust: the reference of the other paths, and what machines without them run.

use half::{bf16, f16};

use super::{GROUP, LANES, Lanes};
use crate::quantized::scale_of;

#[derive(Clone, Copy)]
pub(crate) struct Scalar;

impl Lanes for Scalar {
    type Floats = [f32; LANES];
    type Ints = [i32; LANES];
    type Bytes = [u8; 4 * LANES];

    const TILE_TOKENS: usize = 64;
    const SUMS_FIT: bool = false;
    const WIDE_COLUMNS: usize = 1;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::Floats {
        [x; LANES]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::Floats {
        // SAFETY: 16 floats are there.
        unsafe { from.cast::<Self::Floats>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const f16) -> Self::Floats {
        // SAFETY: 16 halves are there.
        unsafe { from.cast::<[f16; LANES]>().read_unaligned() }.map(f16::to_f32)
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> Self::Floats {
        // SAFETY: 16 halves are there.
        unsafe { from.cast::<[bf16; LANES]>().read_unaligned() }.map(bf16::to_f32)
    }

    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> Self::Floats {
        // SAFETY: 16 bytes are there.
        unsafe { from.cast::<[u8; LANES]>().read_unaligned() }.map(f32::from)
    }

    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> Self::Floats {
        // SAFETY: 16 bytes are there.
        unsafe { from.cast::<[i8; LANES]>().read_unaligned() }.map(f32::from)
    }

    #[inline(always)]
    unsafe fn load_nibbles(from: *const u8) -> (Self::Floats, Self::Floats) {
        // SAFETY: 16 bytes are there.
        let bytes = unsafe { from.cast::<[u8; LANES]>().read_unaligned() };
        (
            bytes.map(|byte| f32::from(byte & 15)),
            bytes.map(|byte| f32::from(byte >> 4)),
        )
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, x: Self::Floats) {
        // SAFETY: 16 floats are there.
        unsafe { to.cast::<Self::Floats>().write_unaligned(x) }
    }

    #[inline(always)]
    unsafe fn add(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        std::array::from_fn(|i| a[i] + b[i])
    }

    #[inline(always)]
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        std::array::from_fn(|i| a[i] * b[i])
    }

    #[inline(always)]
    unsafe fn fma(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }

    #[inline(always)]
    unsafe fn floats(x: Self::Ints) -> Self::Floats {
        x.map(|x| x as f32)
    }

    #[inline(always)]
    unsafe fn bytes(from: *const u8) -> Self::Bytes {
        // SAFETY: 64 bytes are there.
        unsafe { from.cast::<Self::Bytes>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn field(x: Self::Bytes, right: i32, mask: u8) -> Self::Bytes {
        if right >= 0 {
            x.map(|x| x >> right & mask)
        } else {
            x.map(|x| x << -right & mask)
        }
    }

    #[inline(always)]
    unsafe fn or(a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        std::array::from_fn(|i| a[i] | b[i])
    }

    #[inline(always)]
    unsafe fn dot<const N: usize>(
        _bits: usize,
        weights: &[Self::Bytes; N],
        x: *const i8,
        start: *const i32,
    ) -> Self::Ints {
        // SAFETY: one integer and 4 N quants are there.
        let (start, x) = unsafe { (start.read(), x.cast::<[[i8; 4]; N]>().read_unaligned()) };
        let mut sums = [start; LANES];
        for (weights, x) in weights.iter().zip(x) {
            for (sum, weights) in sums.iter_mut().zip(weights.as_chunks::<4>().0) {
                for (weight, x) in weights.iter().zip(x) {
                    *sum += i32::from(*weight) * i32::from(x);
                }
            }
        }
        sums
    }

    #[inline(always)]
    unsafe fn quantize(x: *const f32, quants: *mut i8) -> (f32, [i32; 2]) {
        // SAFETY: 32 floats are there.
        let x = unsafe { x.cast::<[f32; GROUP]>().read_unaligned() };
        let largest = |max: f32, v: &f32| if v.abs() > max { v.abs() } else { max };
        let (mut scale, inverse) = scale_of(x.iter().fold(0f32, largest));
        if x.iter().any(|v| v.is_nan()) {
            scale = f32::NAN;
        }
        let values = x.map(|x| (x * inverse).round_ties_even() as i8);
        // SAFETY: room for 32 quants is there.
        unsafe { quants.cast::<[i8; GROUP]>().write_unaligned(values) };
        let sum = |half: &[i8]| half.iter().map(|&v| i32::from(v)).sum();
        (scale, [sum(&values[..16]), sum(&values[16..])])
    }

    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}

    #[inline(always)]
    unsafe fn prefetch_later(_: *const u8) {}
}
