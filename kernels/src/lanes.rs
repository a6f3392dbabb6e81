//! Sixteen lanes: the one vector width that every operation is written in.
//!
//! A path with narrower registers uses several. Since an operation does the same arithmetic in the same lane on every
//! path (products and sums of integers exactly, floats with one rounding per multiply-add), **all paths give the same
//! bits**, and the scalar one is the reference of the others.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;
#[cfg(test)]
mod tests;

use half::{bf16, f16};

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
pub(crate) use scalar::Scalar;

/// Lanes of a vector.
pub(crate) const LANES: usize = 16;
/// Activations that share a scale.
pub(crate) const GROUP: usize = 32;

/// Runs `$body` with `$i` = 0, 1, … below `$n` (a constant of at most 16), written out: sums that live in registers must be
/// named by constants, and the compiler does not unroll bodies of this size by itself.
macro_rules! unrolled {
    ($i:ident < $n:expr, $body:block) => {
        crate::lanes::unrolled!(@ $i, $n, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@ $i:ident, $n:expr, $body:block, $($k:literal)*) => {
        $(if $n > $k {
            let $i: usize = $k;
            $body
        })*
    };
}
pub(crate) use unrolled;

/// What the operations need of an instruction set.
///
/// # Safety
/// The machine must have the instructions, and pointers must be good for as many elements as the function says. Every
/// function is `#[inline(always)]`: inlined into a function that enables the instructions, it becomes a few of them.
pub(crate) trait Lanes: Copy + 'static {
    /// 16 × f32.
    type Floats: Copy;
    /// 16 × i32.
    type Ints: Copy;
    /// 64 × u8: four for each lane.
    type Bytes: Copy;

    /// Tokens that a product multiplies together, a power of two.
    const TILE_TOKENS: usize;
    /// Whether the sums of that many tokens fit the registers, beside the weights of a group.
    const SUMS_FIT: bool;
    /// Vectors of columns that a float product holds in registers for six rows.
    const WIDE_COLUMNS: usize;

    /// `x` in every lane.
    unsafe fn splat(x: f32) -> Self::Floats;
    /// 16 floats.
    unsafe fn load(from: *const f32) -> Self::Floats;
    /// 16 floats, exactly.
    unsafe fn load_f16(from: *const f16) -> Self::Floats;
    /// 16 floats, exactly.
    unsafe fn load_bf16(from: *const bf16) -> Self::Floats;
    /// 16 integers as floats.
    unsafe fn load_u8(from: *const u8) -> Self::Floats;
    /// 16 integers as floats.
    unsafe fn load_i8(from: *const i8) -> Self::Floats;
    /// The low and the high nibbles of 16 bytes as floats.
    unsafe fn load_nibbles(from: *const u8) -> (Self::Floats, Self::Floats);
    /// 16 floats.
    unsafe fn store(to: *mut f32, x: Self::Floats);
    /// `a + b`
    unsafe fn add(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b`
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b + c`, rounded once.
    unsafe fn fma(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// Nearest floats.
    unsafe fn floats(x: Self::Ints) -> Self::Floats;

    /// 64 bytes.
    unsafe fn bytes(from: *const u8) -> Self::Bytes;
    /// `(x >> right) & mask` in each byte; for a negative `right`, `x << -right`.
    unsafe fn field(x: Self::Bytes, right: i32, mask: u8) -> Self::Bytes;
    /// `a | b`
    unsafe fn or(a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;

    /// In lane i: the sum over j of the four products of lane i of `weights[j]` and `x[4 j ..]`, with `offset` taken off
    /// every weight. Weights are below `2^bits`, a constant; `start` is `-offset` times the sum of `x`, for paths whose products take
    /// unsigned weights only, and 0 where there is no offset.
    unsafe fn dot<const N: usize>(
        bits: usize,
        weights: &[Self::Bytes; N],
        x: *const i8,
        start: *const i32,
    ) -> Self::Ints;

    /// `dot` for four tokens, whose quants lie `GROUP` apart and whose starts `halves` apart.
    #[inline(always)]
    unsafe fn four_dots<const N: usize>(
        bits: usize,
        weights: &[Self::Bytes; N],
        x: *const i8,
        starts: *const i32,
        halves: usize,
    ) -> [Self::Ints; 4] {
        // SAFETY: the caller's promise.
        unsafe {
            let dot = |t: usize| Self::dot(bits, weights, x.add(t * GROUP), starts.add(t * halves));
            [dot(0), dot(1), dot(2), dot(3)]
        }
    }

    /// Quantizes 32 floats: writes quants, returns the scale and the sums of the first and last 16 quants. See
    /// `quantized::activations`.
    unsafe fn quantize(x: *const f32, quants: *mut i8) -> (f32, [i32; 2]);

    /// Asks for the cache line of `at`, which need not exist, to be near soon.
    unsafe fn prefetch(at: *const u8);

    /// As `prefetch`, into the larger of the core's caches: for more than the smaller one holds.
    unsafe fn prefetch_later(at: *const u8);
}
