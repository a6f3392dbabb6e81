//! The inner loops over one block: widening to f32, and a small matrix product.

use std::ops::Range;

use half::f16;

use super::Tiles;
use crate::lanes::{GROUP, LANES, Lanes, unrolled};
use crate::layout::TILE_TOKENS;
use crate::quantized::Element;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Memory that is needed soon. It is asked for a little at a time: many requests at once would hold up the work.
pub(super) struct Ahead {
    pub(super) next: Option<*const u8>,
    pub(super) bytes_left: usize,
    /// Bytes of a step.
    pub(super) step: usize,
}

impl Ahead {
    /// # Safety
    /// As `Lanes`.
    #[inline(always)]
    pub(super) unsafe fn step<L: Lanes>(&mut self) {
        let Some(next) = self.next else {
            return;
        };
        let bytes = self.step.min(self.bytes_left);
        for at in (0..bytes).step_by(LINE) {
            // SAFETY: any address may be prefetched.
            unsafe { L::prefetch_later(next.wrapping_add(at)) };
        }
        self.next = Some(next.wrapping_add(bytes));
        self.bytes_left -= bytes;
    }
}

/// Keys of 16 bits to f32 `[dim, 64]`, whole tiles up to the token `last`.
///
/// # Safety
/// As `Lanes`; the tiles are there, and `out` holds a block.
#[inline(always)]
pub(super) unsafe fn widen_keys<L: Lanes, E: Element>(
    keys: Tiles,
    dim: usize,
    last: usize,
    out: &mut [f32],
) {
    for tile in 0..last.div_ceil(TILE_TOKENS) {
        let from = keys.tile(tile).cast::<E>();
        for d in 0..dim {
            // SAFETY: a vector of the tile, and its place.
            unsafe {
                let to = out.as_mut_ptr().add(d * crate::BLOCK_TOKENS + tile * LANES);
                L::store(to, E::load::<L>(from.add(d * LANES)));
            }
        }
    }
}

/// The first `last` values of 16 bits to f32 `[64, stride]`, the stride `dim` rounded up to whole vectors.
///
/// # Safety
/// As `Lanes`; the tokens are there, and `out` holds a block.
#[inline(always)]
pub(super) unsafe fn widen_values<L: Lanes, E: Element>(
    values: Tiles,
    dim: usize,
    last: usize,
    out: &mut [f32],
) {
    let (whole, stride) = (dim - dim % LANES, dim.next_multiple_of(LANES));
    // SAFETY: element d < dim of token t < last is there.
    unsafe {
        for t in 0..last {
            let tile = values.tile(t / TILE_TOKENS).cast::<E>();
            let from = tile.add(t % TILE_TOKENS * dim);
            let to = out.as_mut_ptr().add(t * stride);
            for d in (0..whole).step_by(LANES) {
                L::store(to.add(d), E::load::<L>(from.add(d)));
            }
            for d in whole..dim {
                *to.add(d) = from.add(d).read_unaligned().to_f32();
            }
        }
    }
}

/// The first `last` values of `q8` to f32 `[64, dim]`: exactly, a product of 8 and 11 bits.
///
/// # Safety
/// As `widen_values`; scales stand `scales_at` bytes behind the beginning of a tile.
#[inline(always)]
pub(super) unsafe fn widen_q8<L: Lanes>(
    values: Tiles,
    (dim, scales_at): (usize, usize),
    last: usize,
    out: &mut [f32],
) {
    let groups = dim / GROUP;
    // SAFETY: group g of token t < last is there.
    unsafe {
        for t in 0..last {
            let (tile, lane) = (values.tile(t / TILE_TOKENS), t % TILE_TOKENS);
            let scales = tile.add(scales_at).cast::<f16>().add(lane * groups);
            for g in 0..groups {
                let scale = L::splat(scales.add(g).read_unaligned().to_f32());
                let from = tile.add(lane * dim + g * GROUP).cast::<i8>();
                let to = out.as_mut_ptr().add(t * dim + g * GROUP);
                L::store(to, L::mul(L::load_i8(from), scale));
                L::store(to.add(LANES), L::mul(L::load_i8(from.add(LANES)), scale));
            }
        }
    }
}

/// As `widen_q8`, of `q4`.
///
/// # Safety
/// As `widen_q8`.
#[inline(always)]
pub(super) unsafe fn widen_q4<L: Lanes>(
    values: Tiles,
    (dim, scales_at): (usize, usize),
    last: usize,
    out: &mut [f32],
) {
    let groups = dim / GROUP;
    // SAFETY: group g of token t < last is there.
    unsafe {
        for t in 0..last {
            let (tile, lane) = (values.tile(t / TILE_TOKENS), t % TILE_TOKENS);
            let scales = tile.add(scales_at).cast::<f16>().add(lane * groups);
            for g in 0..groups {
                let scale = scales.add(g).read_unaligned().to_f32();
                let (factor, offset) = (L::splat(scale), L::splat(-8.0 * scale));
                let from = tile.add((lane * groups + g) * GROUP / 2);
                let (low, high) = L::load_nibbles(from);
                let to = out.as_mut_ptr().add(t * dim + g * GROUP);
                L::store(to, L::fma(low, factor, offset));
                L::store(to.add(LANES), L::fma(high, factor, offset));
            }
        }
    }
}

/// Adds the tokens `seen` of values of 16 bits where they lie, times their weights.
///
/// # Safety
/// As `product`.
#[inline(always)]
pub(super) unsafe fn weigh_tiles<L: Lanes, E: Element>(
    (weights, row): (*const f32, usize),
    values: Tiles,
    sums: Target,
    seen: Range<usize>,
) {
    // Of these values rows have no padding.
    let dim = sums.columns;
    for tile in seen.start / TILE_TOKENS..seen.end.div_ceil(TILE_TOKENS) {
        let start = tile * TILE_TOKENS;
        let tokens = seen.start.max(start) - start..seen.end.min(start + TILE_TOKENS) - start;
        // SAFETY: the caller's promise; weights stand at the tokens' places in the block.
        unsafe {
            let values = Right::rows(values.tile(tile).cast::<E>(), dim);
            product::<L, E>((weights.add(start), row), values, sums, tokens);
        }
    }
}

/// The right side of a product: rows with a distance, in vectors of 16 columns with a distance.
#[derive(Clone, Copy)]
pub(super) struct Right<B> {
    values: *const B,
    row: usize,
    vector: usize,
}

impl<B> Right<B> {
    /// Rows `row` apart.
    pub(super) fn rows(values: *const B, row: usize) -> Self {
        Self {
            values,
            row,
            vector: LANES,
        }
    }

    /// Tiles of 16 columns.
    pub(super) fn tiles(tiles: Tiles) -> Self {
        Self {
            values: tiles.first.cast(),
            row: LANES,
            vector: tiles.stride / size_of::<B>(),
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

/// `c[i, j] = sum over t in inner of a[i, t] * b[t, j]`; `a` is rows with a distance. An element is summed in the order of
/// `inner`.
///
/// # Safety
/// As `Lanes`; the rows and columns that the sizes name are there.
#[inline(always)]
pub(super) unsafe fn product<L: Lanes, B: Element>(
    a: (*const f32, usize),
    b: Right<B>,
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
    b: Right<B>,
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
    b: Right<B>,
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
            let from = b.values.add(t * b.row + column / LANES * b.vector);
            let mut right = [L::splat(0.0); V];
            unrolled!(v < V, {
                right[v] = B::load::<L>(from.add(b.vector * v));
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
            let (a, b) = (
                (self.a.as_ptr(), inner_len),
                Right::rows(self.b.as_ptr(), columns),
            );
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
