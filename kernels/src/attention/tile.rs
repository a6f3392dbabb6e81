//! The inner loops over one block's tile: transposing keys, widening to f32, and a small matrix product.

use std::ops::Range;

use half::f16;

use super::Rows;
use crate::BLOCK_TOKENS;
use crate::lanes::{LANES, Lanes, unrolled};
use crate::quantized::Element;

/// Elements of a cache line.
const LINE: usize = 64 / size_of::<f16>();

/// Columns that `Lanes::transpose` takes, and rows.
const TRANSPOSED: (usize, usize) = (32, 8);

/// Keys to `[dim, 64]`. Of the columns from `rows` on, some become what is in memory there, the rest stay.
///
/// # Safety
/// As `Lanes`; the block's memory is there, and `out` holds a tile.
#[inline(always)]
pub(super) unsafe fn transpose<L: Lanes>(
    keys: Rows,
    rows: usize,
    ahead: &mut Ahead,
    out: &mut [f16],
) {
    let Rows { values, row, dim } = keys;
    let whole = dim - dim % TRANSPOSED.0;
    for t in (0..rows.min(BLOCK_TOKENS)).step_by(TRANSPOSED.1) {
        // SAFETY: eight rows from t on are in the block, 32 elements from d on in the row.
        unsafe {
            ahead.step::<L>();
            let from = values.add(t * row);
            let to = out.as_mut_ptr().add(t);
            for d in (0..whole).step_by(TRANSPOSED.0) {
                L::transpose(from.add(d), row, to.add(d * BLOCK_TOKENS), BLOCK_TOKENS);
            }
            for d in whole..dim {
                for i in 0..TRANSPOSED.1 {
                    *to.add(d * BLOCK_TOKENS + i) = *from.add(i * row + d);
                }
            }
        }
    }
}

/// Rows of keys and values that are needed soon. They are asked for a few at a time: many requests at once would hold up
/// the work, and rows of some heads do not follow each other in memory, so the machine does not find out by itself.
pub(super) struct Ahead {
    pub(super) rows: Option<(Rows, Rows)>,
    pub(super) next: usize,
    /// Rows of a step.
    pub(super) step: usize,
}

impl Ahead {
    /// Steps that a head's tile of 64 tokens takes: in transposing its keys, and in multiplying its values.
    pub(super) const STEPS_PER_HEAD: usize = BLOCK_TOKENS / TRANSPOSED.1 + BLOCK_TOKENS / LANES;

    /// # Safety
    /// As `Lanes`.
    #[inline(always)]
    pub(super) unsafe fn step<L: Lanes>(&mut self) {
        let Some((keys, values)) = self.rows else {
            return;
        };
        let end = BLOCK_TOKENS.min(self.next + self.step);
        for t in self.next..end {
            for d in (0..keys.dim).step_by(LINE) {
                let at = t * keys.row + d;
                // SAFETY: any address may be prefetched.
                unsafe {
                    L::prefetch_later(keys.values.wrapping_add(at).cast());
                    L::prefetch_later(values.values.wrapping_add(at).cast());
                }
            }
        }
        self.next = end;
    }
}

/// A transposed tile to f32.
///
/// # Safety
/// As `Lanes`; `out` is as long as `keys`, a multiple of 64.
#[inline(always)]
pub(super) unsafe fn widen_keys<L: Lanes>(keys: &[f16], out: &mut [f32]) {
    for at in (0..keys.len()).step_by(LANES) {
        // SAFETY: 16 elements from `at` on are there.
        unsafe { L::store(out.as_mut_ptr().add(at), L::load_f16(keys.as_ptr().add(at))) };
    }
}

/// The first `rows` values to f32 `[rows, stride]`, the stride `dim` rounded up to whole vectors.
///
/// # Safety
/// As `Lanes`; the rows are there, and `out` holds a tile.
#[inline(always)]
pub(super) unsafe fn widen_values<L: Lanes>(source: Rows, rows: usize, out: &mut [f32]) {
    let Rows { values, row, dim } = source;
    let (whole, stride) = (dim - dim % LANES, dim.next_multiple_of(LANES));
    // SAFETY: element d < dim of row t < rows is there.
    unsafe {
        for t in 0..rows {
            let (from, to) = (values.add(t * row), out.as_mut_ptr().add(t * stride));
            for d in (0..whole).step_by(LANES) {
                L::store(to.add(d), L::load_f16(from.add(d)));
            }
            for d in whole..dim {
                *to.add(d) = (*from.add(d)).to_f32();
            }
        }
    }
}

/// Where a product goes: `rows` rows, `row` apart, of `columns` columns, a multiple of 16.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) values: *mut f32,
    pub(super) row: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Add to what is there.
    pub(super) add: bool,
}

/// `c[i, j] = sum over t in inner of a[i, t] * b[t, j]`; `a` and `b` are rows with a distance. An element is summed in the
/// order of `inner`.
///
/// # Safety
/// As `Lanes`; the rows and columns that the sizes name are there.
#[inline(always)]
pub(super) unsafe fn product<L: Lanes, B: Element>(
    a: (*const f32, usize),
    b: (*const B, usize),
    c: Target,
    inner: Range<usize>,
) {
    let mut row = 0;
    while row < c.rows {
        let rows = (c.rows - row).min(6);
        // SAFETY: as many rows remain as the kernel takes.
        unsafe {
            let a = (a.0.add(row * a.1), a.1);
            let c = Target {
                values: c.values.add(row * c.row),
                ..c
            };
            match rows {
                1 => columns::<L, B, 1>(a, b, c, inner.clone()),
                2 => columns::<L, B, 2>(a, b, c, inner.clone()),
                3 => columns::<L, B, 3>(a, b, c, inner.clone()),
                4 => columns::<L, B, 4>(a, b, c, inner.clone()),
                5 => columns::<L, B, 5>(a, b, c, inner.clone()),
                _ => columns::<L, B, 6>(a, b, c, inner.clone()),
            }
        }
        row += rows;
    }
}

/// `R` rows of a product, as many columns at a time as the registers hold.
#[inline(always)]
unsafe fn columns<L: Lanes, B: Element, const R: usize>(
    a: (*const f32, usize),
    b: (*const B, usize),
    c: Target,
    inner: Range<usize>,
) {
    let mut column = 0;
    // SAFETY: the columns are inside the row.
    unsafe {
        while L::WIDE_COLUMNS == 4 && column + 4 * LANES <= c.columns {
            registers::<L, B, R, 4>(a, b, c, column, inner.clone());
            column += 4 * LANES;
        }
        while R <= 3 && column + 2 * LANES <= c.columns {
            registers::<L, B, R, 2>(a, b, c, column, inner.clone());
            column += 2 * LANES;
        }
        while column < c.columns {
            registers::<L, B, R, 1>(a, b, c, column, inner.clone());
            column += LANES;
        }
    }
}

/// `R` rows by `V` vectors of columns, held in registers over the whole inner range.
#[inline(always)]
unsafe fn registers<L: Lanes, B: Element, const R: usize, const V: usize>(
    (a, a_row): (*const f32, usize),
    (b, b_row): (*const B, usize),
    c: Target,
    column: usize,
    inner: Range<usize>,
) {
    // SAFETY: R rows of a and c and the inner rows of b exist, and V vectors from `column` on.
    unsafe {
        let to = c.values.add(column);
        let mut sums = [[L::splat(0.0); V]; R];
        if c.add {
            unrolled!(r < R, {
                unrolled!(v < V, {
                    sums[r][v] = L::load(to.add(r * c.row + LANES * v));
                });
            });
        }
        for t in inner {
            let from = b.add(t * b_row + column);
            let mut right = [L::splat(0.0); V];
            unrolled!(v < V, {
                right[v] = B::load::<L>(from.add(LANES * v));
            });
            unrolled!(r < R, {
                let left = L::splat(*a.add(r * a_row + t));
                unrolled!(v < V, {
                    sums[r][v] = L::fma(left, right[v], sums[r][v]);
                });
            });
        }
        unrolled!(r < R, {
            unrolled!(v < V, {
                L::store(to.add(r * c.row + LANES * v), sums[r][v]);
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{self, Kernel, Path};
    use crate::random::floats;

    struct Product<'a> {
        a: &'a [f32],
        b: &'a [f32],
        c: &'a mut [f32],
        inner: Range<usize>,
        sizes: (usize, usize, usize),
        add: bool,
    }

    impl Kernel for Product<'_> {
        type Out = ();

        #[inline(always)]
        unsafe fn run<L: Lanes>(self) {
            let (rows, inner_len, columns) = self.sizes;
            let c = Target {
                values: self.c.as_mut_ptr(),
                row: columns,
                rows,
                columns,
                add: self.add,
            };
            let (a, b) = ((self.a.as_ptr(), inner_len), (self.b.as_ptr(), columns));
            // SAFETY: the slices have these sizes.
            unsafe { product::<L, f32>(a, b, c, self.inner) };
        }
    }

    #[test]
    fn the_product_is_right_and_has_the_same_bits_on_every_path() {
        for sizes in [
            (1, 64, 64),
            (3, 80, 16),
            (7, 64, 48),
            (18, 5, 96),
            (6, 3, 80),
        ] {
            let (rows, inner_len, columns) = sizes;
            for inner in [0..inner_len, 1..inner_len - 1, 0..0] {
                let (a, b) = (floats(1, rows * inner_len), floats(2, inner_len * columns));
                for add in [false, true] {
                    let mut want = floats(3, rows * columns);
                    for (i, want) in want.iter_mut().enumerate() {
                        let (row, column) = (i / columns, i % columns);
                        let start = if add { *want } else { 0.0 };
                        *want = inner.clone().fold(start, |sum, t| {
                            a[row * inner_len + t].mul_add(b[t * columns + column], sum)
                        });
                    }
                    for path in Path::available() {
                        let mut got = floats(3, rows * columns);
                        let product = Product {
                            a: &a,
                            b: &b,
                            c: &mut got,
                            inner: inner.clone(),
                            sizes,
                            add,
                        };
                        cpu::run(path, product);
                        assert_eq!(got, want, "{path:?} {sizes:?} {inner:?} {add}");
                    }
                }
            }
        }
    }
}
