//! The loops of `tile` for x86-64 with AVX2, FMA and F16C.

use std::arch::x86_64::*;
use std::ops::Range;

use half::f16;

use super::tile::COLUMNS;
use crate::BLOCK_TOKENS;

/// As `tile::transpose_keys`, for the multiple of 8 elements it returns.
///
/// # Safety
/// The machine has the features; `keys` holds `rows` rows and `out` `dim * 64` elements.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn transpose_keys(
    keys: &[f16],
    row: usize,
    dim: usize,
    rows: usize,
    ahead: &[f16],
    out: &mut [f32],
) -> usize {
    let done = dim & !7;
    for d in (0..done).step_by(8) {
        for t in (0..BLOCK_TOKENS).step_by(8) {
            // As many steps as rows when dim is 64, so that loads are spread over the work.
            prefetch(ahead, d + t / 8, row, dim);
            let mut lines = [_mm_setzero_si128(); 8];
            if t + 8 <= rows {
                for (i, line) in lines.iter_mut().enumerate() {
                    // SAFETY: row t + i < rows, and d + 8 <= dim.
                    *line = unsafe { load(keys, (t + i) * row + d) };
                }
            } else {
                for (i, line) in lines.iter_mut().enumerate().take(rows.saturating_sub(t)) {
                    // SAFETY: as above.
                    *line = unsafe { load(keys, (t + i) * row + d) };
                }
            }
            for (i, column) in transpose(lines).into_iter().enumerate() {
                let wide = _mm256_cvtph_ps(column);
                // SAFETY: d + i < dim, and t + 8 <= 64.
                unsafe { _mm256_storeu_ps(out.as_mut_ptr().add((d + i) * BLOCK_TOKENS + t), wide) };
            }
        }
    }
    done
}

/// Eight halves from `at` on.
///
/// # Safety
/// They exist.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn load(values: &[f16], at: usize) -> __m128i {
    // SAFETY: the caller's promise.
    unsafe { _mm_loadu_si128(values.as_ptr().add(at).cast()) }
}

/// Asks for row `t` of `ahead` `[rows, dim]`, rows `row` apart, to be in the cache soon. Rows of one head do not follow each
/// other in memory, so the machine does not find out by itself.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(super) fn prefetch(ahead: &[f16], t: usize, row: usize, dim: usize) {
    const LINE: usize = 64 / size_of::<f16>();
    if let Some(ahead) = ahead.get(t * row..t * row + dim) {
        for value in ahead.iter().step_by(LINE) {
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast());
        }
    }
}

/// Transposes 8 x 8 values of 16 bits.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn transpose(r: [__m128i; 8]) -> [__m128i; 8] {
    let a = [
        _mm_unpacklo_epi16(r[0], r[1]),
        _mm_unpackhi_epi16(r[0], r[1]),
        _mm_unpacklo_epi16(r[2], r[3]),
        _mm_unpackhi_epi16(r[2], r[3]),
        _mm_unpacklo_epi16(r[4], r[5]),
        _mm_unpackhi_epi16(r[4], r[5]),
        _mm_unpacklo_epi16(r[6], r[7]),
        _mm_unpackhi_epi16(r[6], r[7]),
    ];
    let b = [
        _mm_unpacklo_epi32(a[0], a[2]),
        _mm_unpackhi_epi32(a[0], a[2]),
        _mm_unpacklo_epi32(a[1], a[3]),
        _mm_unpackhi_epi32(a[1], a[3]),
        _mm_unpacklo_epi32(a[4], a[6]),
        _mm_unpackhi_epi32(a[4], a[6]),
        _mm_unpacklo_epi32(a[5], a[7]),
        _mm_unpackhi_epi32(a[5], a[7]),
    ];
    [
        _mm_unpacklo_epi64(b[0], b[4]),
        _mm_unpackhi_epi64(b[0], b[4]),
        _mm_unpacklo_epi64(b[1], b[5]),
        _mm_unpackhi_epi64(b[1], b[5]),
        _mm_unpacklo_epi64(b[2], b[6]),
        _mm_unpackhi_epi64(b[2], b[6]),
        _mm_unpacklo_epi64(b[3], b[7]),
        _mm_unpackhi_epi64(b[3], b[7]),
    ]
}

/// As `tile::widen_values`, for the multiple of 8 elements it returns.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn widen_values(
    values: &[f16],
    row: usize,
    dim: usize,
    rows: usize,
    ahead: &[f16],
    out: &mut [f32],
) -> usize {
    let stride = dim.next_multiple_of(COLUMNS);
    for (t, out) in out.chunks_exact_mut(stride).take(rows).enumerate() {
        prefetch(ahead, t, row, dim);
        let values = values[t * row..t * row + dim].as_chunks::<8>().0;
        for (value, out) in values.iter().zip(out.as_chunks_mut::<8>().0) {
            // SAFETY: eight halves are read, eight floats are written.
            unsafe {
                let halves = _mm_loadu_si128(value.as_ptr().cast());
                _mm256_storeu_ps(out.as_mut_ptr(), _mm256_cvtph_ps(halves));
            }
        }
    }
    dim & !7
}

/// As `tile::product`; `b` has rows as long as those of `c`.
///
/// # Safety
/// The machine has the features, and the lengths are as `tile::product` checks them.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn product(
    (a, a_row): (&[f32], usize),
    b: &[f32],
    (c, c_row): (&mut [f32], usize),
    inner: Range<usize>,
    add: bool,
) {
    let rows = c.len() / c_row;
    let mut row = 0;
    while row < rows {
        let (a, c) = (&a[row * a_row..], &mut c[row * c_row..]);
        let (t, inner) = ((a, a_row, b, c_row, add), inner.clone());
        // SAFETY: as many rows remain as the kernel takes; the lengths are the caller's promise.
        unsafe {
            match rows - row {
                1 => rows_of::<1, 4>(t, c, inner),
                2 => rows_of::<2, 4>(t, c, inner),
                3 => rows_of::<3, 4>(t, c, inner),
                4 => rows_of::<4, 2>(t, c, inner),
                5 => rows_of::<5, 2>(t, c, inner),
                _ => rows_of::<6, 2>(t, c, inner),
            }
        }
        row += 6;
    }
}

/// `R` rows of a product, `V` registers of 8 columns at a time, the rest two at a time.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn rows_of<const R: usize, const V: usize>(
    (a, a_row, b, c_row, add): (&[f32], usize, &[f32], usize, bool),
    c: &mut [f32],
    inner: Range<usize>,
) {
    let t = (a.as_ptr(), a_row, b.as_ptr(), c_row, add);
    let mut column = 0;
    while column + 8 * V <= c_row {
        // SAFETY: the columns are inside the row.
        unsafe { registers::<R, V>(t, c.as_mut_ptr(), column, inner.clone()) };
        column += 8 * V;
    }
    while column < c_row {
        // SAFETY: as above; c_row is a multiple of 16.
        unsafe { registers::<R, 2>(t, c.as_mut_ptr(), column, inner.clone()) };
        column += 16;
    }
}

/// `R` rows by `8 V` columns, held in registers over the whole inner range.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn registers<const R: usize, const V: usize>(
    (a, a_row, b, b_row, add): (*const f32, usize, *const f32, usize, bool),
    c: *mut f32,
    column: usize,
    inner: Range<usize>,
) {
    let mut sums = [[_mm256_setzero_ps(); V]; R];
    // SAFETY: R rows of a and c and the inner rows of b exist, and 8 V columns from `column` on.
    unsafe {
        if add {
            for (r, sums) in sums.iter_mut().enumerate() {
                for (v, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm256_loadu_ps(c.add(r * b_row + column + 8 * v));
                }
            }
        }
        for t in inner {
            let mut right = [_mm256_setzero_ps(); V];
            for (v, right) in right.iter_mut().enumerate() {
                *right = _mm256_loadu_ps(b.add(t * b_row + column + 8 * v));
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let left = _mm256_set1_ps(*a.add(r * a_row + t));
                for (sum, right) in sums.iter_mut().zip(right) {
                    *sum = _mm256_fmadd_ps(left, right, *sum);
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            for (v, sum) in sums.iter().enumerate() {
                _mm256_storeu_ps(c.add(r * b_row + column + 8 * v), *sum);
            }
        }
    }
}
