//! Writing the keys and values of new tokens into their tiles (`layout` draws them).

mod read;

use half::{bf16, f16};

use crate::cpu::{Path, widened};
use crate::hadamard::hadamard;
use crate::kv_format::KvDtype;
use crate::lanes::{GROUP, LANES};
use crate::layout::{KvLayout, Side, TILE_TOKENS};
pub(crate) use read::read;

const MAX: f32 = 65_504.0;
/// Adding it rounds to the nearest integer, ties to even, which then stands in the low bits.
const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23

/// One head's rounded values, before they go to their places. Memory for reuse.
#[derive(Default)]
pub(crate) struct Rounded {
    halves: Vec<u16>,
    quants: Vec<i8>,
    scales: Vec<f16>,
    /// What is taken off a key first, `[head_dim]`.
    pub(crate) center: Vec<f32>,
}

impl Rounded {
    /// Rounds one head `x` `[head_dim]` of one token, which is rotated in place first where the format wants it, and writes it
    /// as token `lane` of `tile`.
    ///
    /// # Safety
    /// `tile` is a tile of `layout` on that side; nobody reads or writes this token of it meanwhile.
    pub(crate) unsafe fn write(
        &mut self,
        path: Path,
        layout: &KvLayout,
        side: Side,
        x: &mut [f32],
        (tile, lane): (*mut u8, usize),
    ) {
        let dim = x.len();
        let dtype = layout.dtype(side);
        if dtype.is_rotated() {
            hadamard(path, x, dim);
        }
        self.quants.resize(dim, 0);
        self.scales.resize(dim / GROUP, f16::ZERO);
        // SAFETY: every place is inside the tile.
        unsafe {
            match dtype {
                KvDtype::F16 => narrow_f16(path, x, &mut self.halves),
                KvDtype::Bf16 => narrow_bf16(x, &mut self.halves),
                KvDtype::Q8 => {
                    quantize_8(path, x, &mut self.quants, &mut self.scales);
                    self.put_8(side, tile, lane);
                }
                KvDtype::Q4 => {
                    quantize_4(path, x, &mut self.quants, &mut self.scales);
                    self.put_4(side, tile, lane);
                }
            }
            if !dtype.is_rotated() {
                let tile = tile.cast::<u16>();
                for (d, half) in self.halves.iter().enumerate() {
                    let at = match side {
                        Side::Key => d * TILE_TOKENS + lane,
                        Side::Value => lane * dim + d,
                    };
                    tile.add(at).write_unaligned(*half);
                }
            } else {
                self.put_scales(side, tile.add(layout.quant_bytes(side)), lane);
            }
        }
    }

    unsafe fn put_8(&self, side: Side, tile: *mut u8, lane: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match side {
                Side::Key => {
                    for (j, quad) in self.quants.as_chunks::<4>().0.iter().enumerate() {
                        let to = tile.add((j * TILE_TOKENS + lane) * 4);
                        to.cast::<[u8; 4]>().write(quad.map(|q| q as u8 ^ 0x80));
                    }
                }
                Side::Value => {
                    let to = tile.add(lane * self.quants.len()).cast::<i8>();
                    to.copy_from_nonoverlapping(self.quants.as_ptr(), self.quants.len());
                }
            }
        }
    }

    unsafe fn put_4(&self, side: Side, tile: *mut u8, lane: usize) {
        let both = |low: i8, high: i8| (low + 8) as u8 | ((high + 8) as u8) << 4;
        // SAFETY: the caller's promise.
        unsafe {
            for (g, quants) in self.quants.as_chunks::<GROUP>().0.iter().enumerate() {
                let bytes: [u8; GROUP / 2] =
                    std::array::from_fn(|i| both(quants[i], quants[i + GROUP / 2]));
                match side {
                    Side::Key => {
                        for (j, quad) in bytes.as_chunks::<4>().0.iter().enumerate() {
                            let to = tile.add(((4 * g + j) * TILE_TOKENS + lane) * 4);
                            to.cast::<[u8; 4]>().write(*quad);
                        }
                    }
                    Side::Value => {
                        let at = (lane * self.scales.len() + g) * bytes.len();
                        tile.add(at).cast::<[u8; GROUP / 2]>().write(bytes);
                    }
                }
            }
        }
    }

    unsafe fn put_scales(&self, side: Side, scales: *mut u8, lane: usize) {
        let groups = self.scales.len();
        for (g, scale) in self.scales.iter().enumerate() {
            let at = match side {
                Side::Key => g * TILE_TOKENS + lane,
                Side::Value => lane * groups + g,
            };
            // SAFETY: the caller's promise.
            unsafe { scales.cast::<f16>().add(at).write_unaligned(*scale) };
        }
    }
}

/// f32 to f16, to nearest. Values beyond the range of f16 become its largest ones, so that what is read back is finite; NaN
/// stays NaN.
fn narrow_f16(path: Path, x: &[f32], out: &mut Vec<u16>) {
    out.resize(x.len(), 0);
    #[cfg(target_arch = "x86_64")]
    if path != Path::Scalar {
        // SAFETY: every other path of this architecture has the features.
        return unsafe { narrow_avx2(x, out) };
    }
    let _ = path;
    narrow_reference(x, out);
}

fn narrow_reference(x: &[f32], out: &mut [u16]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = f16::from_f32(x.clamp(-MAX, MAX)).to_bits();
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn narrow_avx2(x: &[f32], out: &mut [u16]) {
    use std::arch::x86_64::*;
    let ((x8, x_rest), (out8, out_rest)) = (x.as_chunks::<8>(), out.as_chunks_mut::<8>());
    let max = _mm256_set1_ps(MAX);
    let min = _mm256_set1_ps(-MAX);
    for (x, out) in x8.iter().zip(out8) {
        // SAFETY: eight floats are read, eight halves are written.
        unsafe {
            let value = _mm256_loadu_ps(x.as_ptr());
            // The value second: that operand is the result when it is NaN.
            let value = _mm256_max_ps(min, _mm256_min_ps(max, value));
            let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value);
            _mm_storeu_si128(out.as_mut_ptr().cast(), halves);
        }
    }
    narrow_reference(x_rest, out_rest);
}

/// f32 to bfloat16, to nearest; finite values stay finite.
fn narrow_bf16(x: &[f32], out: &mut Vec<u16>) {
    out.clear();
    let max = bf16::MAX.to_f32();
    out.extend(
        x.iter()
            .map(|x| bf16::from_f32(x.clamp(-max, max)).to_bits()),
    );
}

widened! {
    /// Groups of 32 to -127..=127 and a scale each, the largest magnitude over 127. A group with a NaN has a NaN scale.
    fn quantize_8(x: &[f32], quants: &mut [i8], scales: &mut [f16]) = round_8
}

#[inline(always)]
fn round_8(x: &[f32], quants: &mut [i8], scales: &mut [f16]) {
    let groups = x.as_chunks::<GROUP>().0.iter();
    let quants = quants.as_chunks_mut::<GROUP>().0.iter_mut();
    for ((x, quants), scale) in groups.zip(quants).zip(scales) {
        *scale = f16::from_f32((largest(x) / 127.0).min(MAX));
        let inverse = inverse_of(*scale);
        for (quant, x) in quants.iter_mut().zip(x) {
            *quant = rounded(x * inverse, -127.0, 127.0) as i8;
        }
        if has_nan(x) {
            *scale = f16::NAN;
        }
    }
}

/// What the largest magnitude of a group becomes: the scale is that magnitude over one of these. Reaching past the range cuts
/// the largest elements and leaves finer steps to the others; only the negative end reaches 8.
const ENDS: [f32; 12] = [
    -8.0, -7.5, -7.0, -6.5, -6.0, -5.5, -5.0, 7.0, 6.5, 6.0, 5.5, 5.0,
];

widened! {
    /// Groups of 32 to -8..=7 and a scale each, the one of `ENDS` with the smallest squared error. A group with a NaN has a NaN
    /// scale.
    fn quantize_4(x: &[f32], quants: &mut [i8], scales: &mut [f16]) = round_4
}

#[inline(always)]
fn round_4(x: &[f32], quants: &mut [i8], scales: &mut [f16]) {
    let groups = x.as_chunks::<GROUP>().0.iter();
    let quants = quants.as_chunks_mut::<GROUP>().0.iter_mut();
    for ((x, quants), scale) in groups.zip(quants).zip(scales) {
        let max = largest(x);
        // The element that stands out goes to the end that is meant for it.
        let sign = match x.contains(&max) {
            true => 1.0,
            false => -1.0,
        };
        let mut least = f32::INFINITY;
        *scale = f16::ZERO;
        for end in ENDS {
            let candidate = f16::from_f32((sign * max / end).clamp(-MAX, MAX));
            let error = error_4(x, candidate);
            if error < least {
                (least, *scale) = (error, candidate);
            }
        }
        let inverse = inverse_of(*scale);
        for (quant, x) in quants.iter_mut().zip(x) {
            *quant = rounded(x * inverse, -8.0, 7.0) as i8;
        }
        if has_nan(x) {
            *scale = f16::NAN;
        }
    }
}

/// The squared error of a group with that scale, summed in sixteen lanes.
#[inline(always)]
fn error_4(x: &[f32; GROUP], scale: f16) -> f32 {
    let (inverse, scale) = (inverse_of(scale), scale.to_f32());
    let mut lanes = [0f32; LANES];
    for x in x.as_chunks::<LANES>().0 {
        for (lane, x) in lanes.iter_mut().zip(x) {
            let error = x - scale * nearest(x * inverse, -8.0, 7.0);
            *lane += error * error;
        }
    }
    lanes.iter().sum()
}

#[inline(always)]
fn largest(x: &[f32; GROUP]) -> f32 {
    let mut lanes = [0f32; LANES];
    for x in x.as_chunks::<LANES>().0 {
        for (lane, x) in lanes.iter_mut().zip(x) {
            *lane = if x.abs() > *lane { x.abs() } else { *lane };
        }
    }
    lanes
        .iter()
        .fold(0.0, |max, &lane| if lane > max { lane } else { max })
}

#[inline(always)]
fn has_nan(x: &[f32; GROUP]) -> bool {
    x.iter().fold(false, |nan, x| nan | x.is_nan())
}

/// 0 for scales too small to invert.
#[inline(always)]
fn inverse_of(scale: f16) -> f32 {
    let scale = scale.to_f32();
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

#[inline(always)]
fn shifted(x: f32, least: f32, most: f32) -> f32 {
    let x = if x > least { x } else { least };
    (if x < most { x } else { most }) + ROUND
}

/// The nearest integer in the range.
#[inline(always)]
fn nearest(x: f32, least: f32, most: f32) -> f32 {
    shifted(x, least, most) - ROUND
}

/// The low bits of the nearest integer in the range.
#[inline(always)]
fn rounded(x: f32, least: f32, most: f32) -> u8 {
    shifted(x, least, most).to_bits() as u8
}

#[cfg(test)]
pub(crate) mod tests;
