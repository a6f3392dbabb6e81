//! Products of packed rows (of weights, or keys) and quantized activations.
//!
//! An output element is one lane of one sum: for each group in order, the integer dot product of its quants times the two
//! scales, then its minimum times the sum of the activations. Which tile, thread or path computed it changes no bit.

use std::marker::PhantomData;
use std::ops::Range;

use super::activations::{Activations, Tile};
use super::format::Format;
use super::packed::{QUADS, RowTiles, spread};
use crate::cpu::Kernel;
use crate::lanes::{GROUP, LANES, Lanes, unrolled};
use crate::output::Output;

/// How far ahead of a one-token product weights are asked for, in bytes. The machine's own prefetching stops at pages.
const AHEAD_BYTES: usize = 4096;

/// Most tokens of a tile.
const MOST_TOKENS: usize = 64;

/// Tiles of rows times all tokens of `x`.
pub(super) struct Product<'a, F, W> {
    pub(super) weights: &'a W,
    /// Prepared for `F`.
    pub(super) x: &'a Activations,
    /// Tiles of 16 rows.
    pub(super) tiles: Range<usize>,
    /// `[tokens, rows]`
    pub(super) out: Output<'a>,
    pub(super) format: PhantomData<F>,
}

impl<F: Format, W: RowTiles<F>> Kernel for Product<'_, F, W> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        for row_tile in self.tiles.clone() {
            for tile in self.x.tiles() {
                // SAFETY: the machine has the instructions, by the caller's promise.
                unsafe {
                    match tile.tokens {
                        1 => self.tile::<L, 1>(row_tile, tile),
                        2 => self.tile::<L, 2>(row_tile, tile),
                        4.. if !L::SUMS_FIT => self.long_tile::<L>(row_tile, tile),
                        4 => self.tile::<L, 4>(row_tile, tile),
                        8 => self.tile::<L, 8>(row_tile, tile),
                        16 => self.tile::<L, 16>(row_tile, tile),
                        _ => unreachable!("tiles are powers of two up to L::TILE_TOKENS"),
                    }
                }
            }
        }
    }
}

/// What a tile of rows and a tile of tokens multiply, each in its own order (`packed`, `Activations`).
struct Operands<'a> {
    quants: &'a [u8],
    scales: &'a [u8],
    x_quants: &'a [i8],
    x_scales: &'a [f32],
    starts: &'a [i32],
    terms: &'a [f32],
}

impl<F: Format, W: RowTiles<F>> Product<'_, F, W> {
    #[inline(always)]
    fn operands(&self, row_tile: usize, tile: &Tile) -> Operands<'_> {
        let groups = self.x.groups();
        let (first, len) = (tile.first * groups, tile.tokens * groups);
        Operands {
            quants: self.weights.quants(row_tile),
            scales: self.weights.scales(row_tile),
            x_quants: &self.x.quants[first * GROUP..][..len * GROUP],
            x_scales: &self.x.scales[first..][..len],
            starts: &self.x.starts[first * F::HALVES..][..len * F::HALVES],
            terms: match F::HAS_MINIMA {
                true => &self.x.terms[first * F::HALVES..][..len * F::HALVES],
                false => &[],
            },
        }
    }

    /// 16 rows times `T` tokens.
    #[inline(always)]
    unsafe fn tile<L: Lanes, const T: usize>(&self, row_tile: usize, tile: &Tile) {
        let groups = self.x.groups();
        let Operands {
            quants,
            scales,
            x_quants,
            x_scales,
            starts,
            terms,
        } = self.operands(row_tile, tile);
        // SAFETY: a group's weights, T tokens' quants and scales of it, and their starts and terms, are inside the
        // operands' slices; prefetching may ask for any address.
        unsafe {
            let mut sums = [L::splat(0.0); T];
            for g in 0..groups {
                let lines = quants.as_ptr().add(g * F::QUANT_BYTES);
                if T == 1 {
                    for line in 0..F::BITS {
                        L::prefetch(lines.wrapping_add(AHEAD_BYTES + 64 * line));
                    }
                }
                let weights = spread::<L, F>(lines);
                let (unit, in_unit) = (g / F::UNIT_GROUPS, g % F::UNIT_GROUPS);
                let unit_scales = scales.as_ptr().add(unit * F::SCALE_BYTES);
                if T == 1 {
                    L::prefetch(unit_scales.wrapping_add(AHEAD_BYTES / 4));
                }
                for half in 0..F::HALVES {
                    let (scale, minimum) = F::scales::<L>(unit_scales, in_unit, half);
                    unrolled!(t < T, {
                        let at = g * T + t;
                        let x = x_quants.as_ptr().add(at * GROUP);
                        let start = starts.as_ptr().add(at * F::HALVES + half);
                        let dot = if F::HALVES == 1 {
                            L::dot(F::BITS, &weights, x, start)
                        } else {
                            let quads: &[L::Bytes; QUADS / 2] =
                                &*weights.as_ptr().add(half * QUADS / 2).cast();
                            L::dot(F::BITS, quads, x.add(half * GROUP / 2), start)
                        };
                        let factor = L::mul(scale, L::splat(*x_scales.as_ptr().add(at)));
                        sums[t] = L::fma(L::floats(dot), factor, sums[t]);
                        if let Some(minimum) = minimum {
                            let term = *terms.as_ptr().add(at * F::HALVES + half);
                            sums[t] = L::fma(minimum, L::splat(term), sums[t]);
                        }
                    });
                }
            }
            for (t, sum) in sums.into_iter().enumerate() {
                self.out.put::<L>(tile.first + t, row_tile * LANES, sum);
            }
        }
    }

    /// 16 rows times many tokens, whose sums stay in memory: spreading a group's weights is shared by all of them.
    #[inline(always)]
    unsafe fn long_tile<L: Lanes>(&self, row_tile: usize, tile: &Tile) {
        let (groups, tokens) = (self.x.groups(), tile.tokens);
        let Operands {
            quants,
            scales,
            x_quants,
            x_scales,
            starts,
            terms,
        } = self.operands(row_tile, tile);
        let mut sums = [[0f32; LANES]; MOST_TOKENS];
        assert!(tokens <= MOST_TOKENS && tokens.is_multiple_of(4));
        // SAFETY: as in `tile`; sums holds a vector for each token.
        unsafe {
            for g in 0..groups {
                let weights = spread::<L, F>(quants.as_ptr().add(g * F::QUANT_BYTES));
                let (unit, in_unit) = (g / F::UNIT_GROUPS, g % F::UNIT_GROUPS);
                let unit_scales = scales.as_ptr().add(unit * F::SCALE_BYTES);
                for half in 0..F::HALVES {
                    let (scale, minimum) = F::scales::<L>(unit_scales, in_unit, half);
                    for four in (0..tokens).step_by(4) {
                        let at = g * tokens + four;
                        let x = x_quants.as_ptr().add(at * GROUP);
                        let start = starts.as_ptr().add(at * F::HALVES + half);
                        let dots = if F::HALVES == 1 {
                            L::four_dots(F::BITS, &weights, x, start, F::HALVES)
                        } else {
                            let quads: &[L::Bytes; QUADS / 2] =
                                &*weights.as_ptr().add(half * QUADS / 2).cast();
                            let x = x.add(half * GROUP / 2);
                            L::four_dots(F::BITS, quads, x, start, F::HALVES)
                        };
                        unrolled!(t < 4, {
                            let to = sums.as_mut_ptr().add(four + t).cast::<f32>();
                            let factor = L::mul(scale, L::splat(*x_scales.as_ptr().add(at + t)));
                            let mut sum = L::fma(L::floats(dots[t]), factor, L::load(to));
                            if let Some(minimum) = minimum {
                                let term = *terms.as_ptr().add((at + t) * F::HALVES + half);
                                sum = L::fma(minimum, L::splat(term), sum);
                            }
                            L::store(to, sum);
                        });
                    }
                }
            }
            for (t, sum) in sums[..tokens].iter().enumerate() {
                self.out
                    .put::<L>(tile.first + t, row_tile * LANES, L::load(sum.as_ptr()));
            }
        }
    }
}
