//! The inner loops over one block's tile: f16 rows to f32, and a small matrix product.

use std::ops::Range;

use half::f16;

#[cfg(target_arch = "x86_64")]
use super::avx2;
use crate::BLOCK_TOKENS;
use crate::cpu::{Path, path};

/// The width of a product's right side is a multiple of this.
pub(super) const COLUMNS: usize = 16;

/// The keys or values of one head in one block: `[64, dim]` in memory, rows `row` apart.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) values: &'a [f16],
    pub(super) row: usize,
    pub(super) dim: usize,
}

/// Keys to f32 `[dim, 64]`. Only the first `rows` of them are read; the others become 0. `ahead` is what is needed next.
pub(super) fn transpose_keys(keys: Rows, rows: usize, ahead: &[f16], out: &mut [f32]) {
    let Rows { values, row, dim } = keys;
    assert!((1..=BLOCK_TOKENS).contains(&rows) && values.len() >= (rows - 1) * row + dim);
    assert!(out.len() >= dim * BLOCK_TOKENS);
    let done = match path() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the machine has the features, and the lengths were checked.
        Path::Avx2 => unsafe { avx2::transpose_keys(values, row, dim, rows, ahead, out) },
        _ => 0,
    };
    for d in done..dim {
        let out = &mut out[d * BLOCK_TOKENS..(d + 1) * BLOCK_TOKENS];
        for (t, out) in out.iter_mut().enumerate() {
            *out = if t < rows {
                values[t * row + d].to_f32()
            } else {
                0.0
            };
        }
    }
}

/// The first `rows` values to f32 `[rows, stride]`, the stride a multiple of `COLUMNS`. `ahead` is what is needed next.
pub(super) fn widen_values(source: Rows, rows: usize, ahead: &[f16], out: &mut [f32]) {
    let Rows { values, row, dim } = source;
    let done = match path() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the machine has the features.
        Path::Avx2 => unsafe { avx2::widen_values(values, row, dim, rows, ahead, out) },
        _ => 0,
    };
    let out = out.chunks_exact_mut(dim.next_multiple_of(COLUMNS));
    for (t, out) in out.take(rows).enumerate().filter(|_| done < dim) {
        for (out, value) in out[done..]
            .iter_mut()
            .zip(&values[t * row + done..t * row + dim])
        {
            *out = value.to_f32();
        }
    }
}

/// `c[i, j] = sum over t in inner of a[i, t] * b[t, j]`, added to `c` when `add`. Each of `a`, `b`, `c` is row-major with
/// its row length; `b` and `c` have the same, a multiple of `COLUMNS`. An element is summed in the order of `inner`.
pub(super) fn product(
    (a, a_row): (&[f32], usize),
    (b, b_row): (&[f32], usize),
    (c, c_row): (&mut [f32], usize),
    inner: Range<usize>,
    add: bool,
) {
    let rows = c.len() / c_row;
    assert!(c_row == b_row && b_row.is_multiple_of(COLUMNS) && inner.end <= a_row);
    assert!(a.len() >= rows * a_row && b.len() >= inner.end * b_row);
    match path() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the machine has the features, and the lengths were checked.
        Path::Avx2 => unsafe { avx2::product((a, a_row), b, (c, c_row), inner, add) },
        _ => product_reference((a, a_row), (b, b_row), (c, c_row), inner, add),
    }
}

fn product_reference(
    (a, a_row): (&[f32], usize),
    (b, b_row): (&[f32], usize),
    (c, c_row): (&mut [f32], usize),
    inner: Range<usize>,
    add: bool,
) {
    for (a, c) in a.chunks_exact(a_row).zip(c.chunks_exact_mut(c_row)) {
        if !add {
            c.fill(0.0);
        }
        for t in inner.clone() {
            for (c, b) in c.iter_mut().zip(&b[t * b_row..(t + 1) * b_row]) {
                *c += a[t] * b;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::floats;

    #[test]
    fn the_product_equals_the_reference_at_every_size_and_inner_range() {
        for (rows, inner_len, columns) in [(1, 64, 64), (3, 80, 16), (7, 64, 48), (18, 5, 96)] {
            for inner in [0..inner_len, 1..inner_len - 1, 0..0] {
                let (a, b) = (floats(1, rows * inner_len), floats(2, inner_len * columns));
                for add in [false, true] {
                    let (mut got, mut want) =
                        (floats(3, rows * columns), floats(3, rows * columns));
                    product(
                        (&a, inner_len),
                        (&b, columns),
                        (&mut got, columns),
                        inner.clone(),
                        add,
                    );
                    let c = (&mut want[..], columns);
                    product_reference((&a, inner_len), (&b, columns), c, inner.clone(), add);
                    for (got, want) in got.iter().zip(&want) {
                        assert!(
                            (got - want).abs() < 1e-5,
                            "{rows} {inner:?} {columns} {add}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn rows_beyond_the_written_ones_are_never_read() {
        for (dim, rows) in [(64, 1), (80, 63), (20, 9), (96, 64)] {
            let row = 2 * dim;
            let mut source = vec![f16::NAN; BLOCK_TOKENS * row];
            for t in 0..rows {
                for (d, x) in floats(t as u64, dim).into_iter().enumerate() {
                    source[t * row + d] = f16::from_f32(x);
                }
            }
            let mut keys = vec![f32::NAN; dim * BLOCK_TOKENS];
            let rows_of = Rows {
                values: &source,
                row,
                dim,
            };
            transpose_keys(rows_of, rows, &source, &mut keys);
            let stride = dim.next_multiple_of(COLUMNS);
            let mut values = vec![0f32; BLOCK_TOKENS * stride];
            widen_values(rows_of, rows, &[], &mut values);
            for (d, t) in (0..dim).flat_map(|d| (0..BLOCK_TOKENS).map(move |t| (d, t))) {
                let want = if t < rows {
                    source[t * row + d].to_f32()
                } else {
                    0.0
                };
                assert_eq!(keys[d * BLOCK_TOKENS + t], want);
                assert_eq!(values[t * stride + d], want);
            }
        }
    }
}
