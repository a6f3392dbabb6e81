//! Products with `Q4_0`, `Q4_1` and `Q8_0` for x86-64 with AVX2, FMA and F16C.
//!
//! With several tokens a few rows are unpacked to one byte per weight and multiplied with all tokens of a panel, a few
//! tokens at a time; with one or two a row is unpacked in registers. Either way an output element is eight lanes, each
//! summed over the groups in order; the minima times the group sums come last, then the lanes in a fixed order.

use std::arch::x86_64::*;
use std::ops::Range;

use rayon::prelude::*;

use super::activations::{Activations, GROUP, padded_groups, scale_of};

/// Formats, as constants to specialise by: weight = scale * quant + minimum.
/// Quants 0..16; the file's -8 becomes a minimum of -8 * scale.
pub(super) const Q4_0: u8 = 0;
/// Quants 0..16.
pub(super) const Q4_1: u8 = 1;
/// Quants -128..128, no minimum.
pub(super) const Q8_0: u8 = 2;

/// Rows unpacked together.
const TILE_ROWS: usize = 2;
/// Tokens multiplied together.
const TILE_TOKENS: usize = 4;
/// Tokens from which unpacking rows pays.
const LEAST_UNPACKED: usize = 3;
/// Tokens for which rows are unpacked once: as many activations as stay in the cache.
const PANEL_TOKENS: usize = 64;
/// Multiply-adds below which a product stays on its thread, and of one task.
const TASK_MULS: usize = 150_000;

const fn block_bytes(format: u8) -> usize {
    match format {
        Q4_0 => 18,
        Q4_1 => 20,
        _ => 34,
    }
}

/// `out[n, rows] = x[n, cols] * weights[rows, cols]^T`; the machine has the features.
pub(super) fn product<const F: u8>(weights: &[u8], cols: usize, x: &[f32], out: &mut [f32]) {
    assert!(crate::cpu::path() == crate::cpu::Path::Avx2);
    let row_bytes = cols / GROUP * block_bytes(F);
    let (n, rows) = (x.len() / cols, weights.len() / row_bytes);
    assert!(x.len() == n * cols && weights.len() == rows * row_bytes && out.len() == n * rows);
    let x = Activations::new(x, cols);
    let out = Output {
        values: out.as_mut_ptr(),
        rows,
    };
    let task = |range: Range<usize>| {
        let weights = &weights[range.start * row_bytes..range.end * row_bytes];
        // SAFETY: the machine has the features; `out` holds n * rows values; ranges of rows do not overlap.
        unsafe { rows_product::<F>(weights, cols, &x, n, out, range.start) };
    };
    let threads = rayon::current_num_threads();
    let least = (TASK_MULS / (n * cols)).max(1);
    let rows_per_task = rows.div_ceil(4 * threads).max(least);
    let rows_per_task = rows_per_task.next_multiple_of(TILE_ROWS);
    if threads == 1 || rows_per_task >= rows {
        task(0..rows);
    } else {
        (0..rows.div_ceil(rows_per_task))
            .into_par_iter()
            .for_each(|i| task(i * rows_per_task..rows.min((i + 1) * rows_per_task)));
    }
}

/// The output `[n, rows]`, of which each task writes its own columns.
#[derive(Clone, Copy)]
struct Output {
    values: *mut f32,
    rows: usize,
}

// SAFETY: tasks write disjoint elements (see `product`), and `product` outlives them.
unsafe impl Send for Output {}
// SAFETY: as above.
unsafe impl Sync for Output {}

/// Some rows, one byte per weight.
struct Unpacked {
    /// `[TILE_ROWS, cols]`
    quants: Vec<u8>,
    /// `[TILE_ROWS, padded groups]`
    scales: Vec<f32>,
    /// As `scales`; the padding stays 0.
    minima: Vec<f32>,
}

/// All tokens times the rows in `weights`, the first of which is row `first` of the output.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn rows_product<const F: u8>(
    weights: &[u8],
    cols: usize,
    x: &Activations,
    n: usize,
    out: Output,
    first: usize,
) {
    let stride = padded_groups(cols);
    let mut unpacked = Unpacked {
        quants: vec![0; TILE_ROWS * cols],
        scales: vec![0.0; TILE_ROWS * stride],
        minima: vec![0.0; TILE_ROWS * stride],
    };
    let row_bytes = cols / GROUP * block_bytes(F);
    if n < LEAST_UNPACKED {
        for (row, blocks) in weights.chunks_exact(row_bytes).enumerate() {
            for token in 0..n {
                let minima = &mut unpacked.minima[..stride];
                let sum = row_product::<F>(blocks, x, (token, cols), minima);
                // SAFETY: the token and the row exist, by the caller's promise.
                unsafe { *out.values.add(token * out.rows + first + row) = sum };
            }
        }
        return;
    }
    for panel in (0..n).step_by(PANEL_TOKENS) {
        let tokens = panel..n.min(panel + PANEL_TOKENS);
        for (i, rows) in weights.chunks(TILE_ROWS * row_bytes).enumerate() {
            let (count, row) = (rows.len() / row_bytes, first + i * TILE_ROWS);
            for (r, blocks) in rows.chunks_exact(row_bytes).enumerate() {
                unpack::<F>(blocks, r, cols, &mut unpacked);
            }
            // SAFETY: the tokens and rows exist, by the caller's promise.
            unsafe {
                match count {
                    TILE_ROWS => {
                        panel_product::<F, TILE_ROWS>(&unpacked, cols, x, tokens.clone(), out, row)
                    }
                    _ => panel_product::<F, 1>(&unpacked, cols, x, tokens.clone(), out, row),
                }
            }
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn panel_product<const F: u8, const R: usize>(
    w: &Unpacked,
    cols: usize,
    x: &Activations,
    tokens: Range<usize>,
    out: Output,
    row: usize,
) {
    let mut token = tokens.start;
    while token < tokens.end {
        // SAFETY: as many tokens remain as the tile takes.
        unsafe {
            match tokens.end - token {
                1 => tile::<F, R, 1>(w, cols, x, token, out, row),
                2 => tile::<F, R, 2>(w, cols, x, token, out, row),
                3 => tile::<F, R, 3>(w, cols, x, token, out, row),
                _ => tile::<F, R, TILE_TOKENS>(w, cols, x, token, out, row),
            }
        }
        token += TILE_TOKENS;
    }
}

/// Unpacks the blocks of one row into row `r` of `out`.
#[target_feature(enable = "avx2,fma,f16c")]
fn unpack<const F: u8>(blocks: &[u8], r: usize, cols: usize, out: &mut Unpacked) {
    let stride = padded_groups(cols);
    let quants = out.quants[r * cols..(r + 1) * cols]
        .as_chunks_mut::<GROUP>()
        .0;
    let scales = out.scales[r * stride..]
        .iter_mut()
        .zip(&mut out.minima[r * stride..]);
    let blocks = blocks.chunks_exact(block_bytes(F));
    for ((block, quants), (scale, minimum)) in blocks.zip(quants).zip(scales) {
        (*scale, *minimum) = scale_and_minimum::<F>(block);
        // SAFETY: 32 bytes are written.
        unsafe { _mm256_storeu_si256(quants.as_mut_ptr().cast(), weights::<F>(block)) };
    }
}

/// The quants of a block, one byte each.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn weights<const F: u8>(block: &[u8]) -> __m256i {
    let quants = if F == Q4_1 { &block[4..] } else { &block[2..] };
    if F == Q8_0 {
        let quants: &[u8; 32] = quants.first_chunk().expect("a whole block");
        // SAFETY: 32 bytes are read.
        return unsafe { _mm256_loadu_si256(quants.as_ptr().cast()) };
    }
    let quants: &[u8; 16] = quants.first_chunk().expect("a whole block");
    // SAFETY: 16 bytes are read.
    let packed = unsafe { _mm_loadu_si128(quants.as_ptr().cast()) };
    let high = _mm_srli_epi16::<4>(packed);
    _mm256_and_si256(_mm256_set_m128i(high, packed), _mm256_set1_epi8(0x0f))
}

/// The scale of a block, and its minimum or 0.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn scale_and_minimum<const F: u8>(block: &[u8]) -> (f32, f32) {
    let bits = match F {
        Q4_1 => i32::from_le_bytes([block[0], block[1], block[2], block[3]]),
        _ => i32::from(u16::from_le_bytes([block[0], block[1]])),
    };
    let both = _mm_cvtph_ps(_mm_cvtsi32_si128(bits));
    let scale = _mm_cvtss_f32(both);
    match F {
        Q4_0 => (scale, -8.0 * scale),
        Q4_1 => (scale, _mm_cvtss_f32(_mm_movehdup_ps(both))),
        _ => (scale, 0.0),
    }
}

/// One row times one token; `minima` is scratch, of which the padding is 0.
#[target_feature(enable = "avx2,fma,f16c")]
fn row_product<const F: u8>(
    blocks: &[u8],
    x: &Activations,
    (token, cols): (usize, usize),
    minima: &mut [f32],
) -> f32 {
    let quants = x.quants[token * cols..(token + 1) * cols]
        .as_chunks::<GROUP>()
        .0;
    let scales = &x.scales[token * x.stride..(token + 1) * x.stride];
    let mut sum = _mm256_setzero_ps();
    let blocks = blocks.chunks_exact(block_bytes(F)).zip(quants);
    for ((block, quants), (x_scale, minimum)) in blocks.zip(scales.iter().zip(&mut *minima)) {
        let scale;
        (scale, *minimum) = scale_and_minimum::<F>(block);
        // SAFETY: 32 bytes are read.
        let values = unsafe { _mm256_loadu_si256(quants.as_ptr().cast()) };
        let dot = _mm256_cvtepi32_ps(dot::<F>(weights::<F>(block), values));
        sum = _mm256_fmadd_ps(_mm256_set1_ps(scale * x_scale), dot, sum);
    }
    let group_sums = &x.sums[token * x.stride..(token + 1) * x.stride];
    add_lanes(add_minima::<F>(sum, minima, group_sums))
}

/// `sum` plus the minima of a row times the sums of a token's groups.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn add_minima<const F: u8>(mut sum: __m256, minima: &[f32], group_sums: &[f32]) -> __m256 {
    if F == Q8_0 {
        return sum;
    }
    let (minima, group_sums) = (minima.as_chunks::<8>().0, group_sums.as_chunks::<8>().0);
    for (minima, group_sums) in minima.iter().zip(group_sums) {
        // SAFETY: eight floats are read from each.
        let (minima, group_sums) = unsafe {
            (
                _mm256_loadu_ps(minima.as_ptr()),
                _mm256_loadu_ps(group_sums.as_ptr()),
            )
        };
        sum = _mm256_fmadd_ps(minima, group_sums, sum);
    }
    sum
}

/// `R` rows times `T` tokens.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn tile<const F: u8, const R: usize, const T: usize>(
    w: &Unpacked,
    cols: usize,
    x: &Activations,
    token: usize,
    out: Output,
    row: usize,
) {
    let stride = x.stride;
    let mut sums = [[_mm256_setzero_ps(); T]; R];
    // SAFETY: rows 0..R of `w` and T tokens from `token` on exist, with `cols` quants and `stride` scales each.
    unsafe {
        let (quants, scales) = (w.quants.as_ptr(), w.scales.as_ptr());
        let x_quants = x.quants.as_ptr().add(token * cols);
        let x_scales = x.scales.as_ptr().add(token * stride);
        for g in 0..cols / GROUP {
            let mut weights = [_mm256_setzero_si256(); R];
            let mut factors = [_mm256_setzero_ps(); R];
            for r in 0..R {
                weights[r] = _mm256_loadu_si256(quants.add(r * cols + g * GROUP).cast());
                factors[r] = _mm256_set1_ps(*scales.add(r * stride + g));
            }
            for t in 0..T {
                let values = _mm256_loadu_si256(x_quants.add(t * cols + g * GROUP).cast());
                let scale = _mm256_set1_ps(*x_scales.add(t * stride + g));
                for (r, sums) in sums.iter_mut().enumerate() {
                    let dot = _mm256_cvtepi32_ps(dot::<F>(weights[r], values));
                    let factor = _mm256_mul_ps(factors[r], scale);
                    sums[t] = _mm256_fmadd_ps(factor, dot, sums[t]);
                }
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            let minima = &w.minima[r * stride..(r + 1) * stride];
            for (t, sum) in sums.into_iter().enumerate() {
                let group_sums = &x.sums[(token + t) * stride..(token + t + 1) * stride];
                let sum = add_lanes(add_minima::<F>(sum, minima, group_sums));
                *out.values.add((token + t) * out.rows + row + r) = sum;
            }
        }
    }
}

/// 32 products, added up in eight lanes.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn dot<const F: u8>(weights: __m256i, values: __m256i) -> __m256i {
    // The first factor is unsigned. Two products of at most 128 * 127 fit in 16 bits.
    let pairs = if F == Q8_0 {
        let magnitudes = _mm256_abs_epi8(weights);
        _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(values, weights))
    } else {
        _mm256_maddubs_epi16(weights, values)
    };
    _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
}

#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn add_lanes(x: __m256) -> f32 {
    let four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
}

/// As `activations::quantize_reference`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn quantize(x: &[f32; GROUP], quants: &mut [i8; GROUP]) -> (f32, f32) {
    let sign = _mm256_set1_ps(-0.0);
    let mut parts = [_mm256_setzero_ps(); 4];
    for (part, x) in parts.iter_mut().zip(x.as_chunks::<8>().0) {
        // SAFETY: eight floats are read.
        *part = unsafe { _mm256_loadu_ps(x.as_ptr()) };
    }
    let magnitudes = parts.map(|part| _mm256_andnot_ps(sign, part));
    let max = _mm256_max_ps(
        _mm256_max_ps(magnitudes[0], magnitudes[1]),
        _mm256_max_ps(magnitudes[2], magnitudes[3]),
    );
    let max = _mm_max_ps(_mm256_castps256_ps128(max), _mm256_extractf128_ps::<1>(max));
    let max = _mm_max_ps(max, _mm_movehl_ps(max, max));
    let max = _mm_cvtss_f32(_mm_max_ss(max, _mm_movehdup_ps(max)));
    let (scale, inverse) = scale_of(max);
    let inverse = _mm256_set1_ps(inverse);
    let [a, b, c, d] = parts.map(|part| _mm256_cvtps_epi32(_mm256_mul_ps(part, inverse)));
    // Packing works within halves of the register; the permutation puts the groups of four back in order.
    let packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    let packed = _mm256_permutevar8x32_epi32(packed, order);
    // SAFETY: 32 bytes are written.
    unsafe { _mm256_storeu_si256(quants.as_mut_ptr().cast(), packed) };
    let lanes = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
    let lanes = _mm_add_epi32(
        _mm256_castsi256_si128(lanes),
        _mm256_extracti128_si256::<1>(lanes),
    );
    let lanes = _mm_add_epi32(lanes, _mm_shuffle_epi32::<0b01_00_11_10>(lanes));
    let lanes = _mm_add_epi32(lanes, _mm_shuffle_epi32::<0b10_11_00_01>(lanes));
    (scale, scale * _mm_cvtsi128_si32(lanes) as f32)
}
