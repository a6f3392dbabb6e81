//! The two sides of attention over one block, in whatever format it is: scores from keys, sums from values.

use std::ops::Range;

use half::{bf16, f16};

use super::segment::Scratch;
use super::tile::{self, Ahead};
use super::{Attention, Tiles};
use crate::lanes::{LANES, Lanes};
use crate::layout::Side;
use crate::output::{Output, Shared};
use crate::quantized::{Q4Tiles, Q8Tiles};
use crate::{BLOCK_TOKENS, KvDtype};

/// One head's keys of a block, as its scores are computed from them.
#[derive(Clone, Copy)]
pub(super) enum Keys {
    /// In the scratch, as f32.
    Wide,
    F16(Tiles),
    Bf16(Tiles),
    Q8(Tiles),
    Q4(Tiles),
}

impl Keys {
    /// # Safety
    /// As `Lanes`; the first `last` tokens are there.
    #[inline(always)]
    pub(super) unsafe fn new<L: Lanes>(
        dtype: KvDtype,
        tiles: Tiles,
        few: bool,
        dim: usize,
        last: usize,
        scratch: &mut Scratch,
    ) -> Keys {
        let wide = &mut scratch.wide_keys;
        // SAFETY: the caller's promise.
        unsafe {
            match dtype {
                KvDtype::F16 if few => Keys::F16(tiles),
                KvDtype::Bf16 if few => Keys::Bf16(tiles),
                KvDtype::F16 => {
                    tile::widen_keys::<L, f16>(tiles, dim, last, wide);
                    Keys::Wide
                }
                KvDtype::Bf16 => {
                    tile::widen_keys::<L, bf16>(tiles, dim, last, wide);
                    Keys::Wide
                }
                KvDtype::Q8 => Keys::Q8(tiles),
                KvDtype::Q4 => Keys::Q4(tiles),
            }
        }
    }

    /// Scores of the rows `q`, which are the chunk `index` of the quantized queries, up to token `end`.
    ///
    /// # Safety
    /// As `Lanes`; the keys up to `end` are there.
    #[inline(always)]
    pub(super) unsafe fn scores<L: Lanes>(
        self,
        scratch: &mut Scratch,
        q: &[f32],
        index: usize,
        end: usize,
        ahead: &mut Ahead,
    ) {
        let Scratch {
            wide_keys,
            scores,
            queries,
            ..
        } = scratch;
        let dim = wide_keys.len() / BLOCK_TOKENS;
        let rows = q.len() / dim;
        let tiles = 0..end.div_ceil(LANES);
        let target = tile::Target {
            values: scores.as_mut_ptr(),
            row: BLOCK_TOKENS,
            rows,
            columns: tiles.end * LANES,
            add: false,
        };
        let q = (q.as_ptr(), dim);
        // SAFETY: the caller's promise.
        unsafe {
            for _ in tiles.clone() {
                ahead.step::<L>();
            }
            let out = Output::store(
                Shared::new(&mut scores[..rows * BLOCK_TOKENS]),
                BLOCK_TOKENS,
            );
            match self {
                Keys::Wide => {
                    let keys = tile::Right::rows(wide_keys.as_ptr(), BLOCK_TOKENS);
                    tile::product::<L, f32>(q, keys, target, 0..dim);
                }
                Keys::F16(keys) => {
                    tile::product::<L, f16>(q, tile::Right::tiles(keys), target, 0..dim);
                }
                Keys::Bf16(keys) => {
                    tile::product::<L, bf16>(q, tile::Right::tiles(keys), target, 0..dim);
                }
                Keys::Q8(keys) => {
                    let keys = Q8Tiles::new(keys.first, keys.stride, dim);
                    keys.multiply::<L>(&queries[index], tiles, out);
                }
                Keys::Q4(keys) => {
                    let keys = Q4Tiles::new(keys.first, keys.stride, dim);
                    keys.multiply::<L>(&queries[index], tiles, out);
                }
            }
        }
    }
}

/// One head's values of a block, as sums are computed from them.
#[derive(Clone, Copy)]
pub(super) enum Values {
    /// In the scratch, as f32.
    Wide,
    F16(Tiles),
    Bf16(Tiles),
}

impl Values {
    /// # Safety
    /// As `Keys::new`.
    #[inline(always)]
    pub(super) unsafe fn new<L: Lanes>(
        attention: &Attention,
        tiles: Tiles,
        few: bool,
        last: usize,
        scratch: &mut Scratch,
    ) -> Values {
        let (dim, wide) = (attention.layout.head_dim, &mut scratch.wide_values);
        // SAFETY: the caller's promise.
        unsafe {
            match attention.layout.format.value {
                KvDtype::F16 if few => return Values::F16(tiles),
                KvDtype::Bf16 if few => return Values::Bf16(tiles),
                KvDtype::F16 => tile::widen_values::<L, f16>(tiles, dim, last, wide),
                KvDtype::Bf16 => tile::widen_values::<L, bf16>(tiles, dim, last, wide),
                KvDtype::Q8 => {
                    let scales_at = attention.layout.quant_bytes(Side::Value);
                    tile::widen_q8::<L>(tiles, (dim, scales_at), last, wide);
                }
                KvDtype::Q4 => {
                    let scales_at = attention.layout.quant_bytes(Side::Value);
                    tile::widen_q4::<L>(tiles, (dim, scales_at), last, wide);
                }
            }
        }
        Values::Wide
    }

    /// Adds the values of the tokens `seen`, each times its weight.
    ///
    /// # Safety
    /// As `Lanes`; the values seen are there.
    #[inline(always)]
    pub(super) unsafe fn weighed<L: Lanes>(
        self,
        scratch: &Scratch,
        sums: tile::Target,
        seen: Range<usize>,
    ) {
        let weights = (scratch.scores.as_ptr(), BLOCK_TOKENS);
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Values::Wide => {
                    let stride = scratch.wide_values.len() / BLOCK_TOKENS;
                    let values = tile::Right::rows(scratch.wide_values.as_ptr(), stride);
                    tile::product::<L, f32>(weights, values, sums, seen);
                }
                Values::F16(tiles) => tile::weigh_tiles::<L, f16>(weights, tiles, sums, seen),
                Values::Bf16(tiles) => tile::weigh_tiles::<L, bf16>(weights, tiles, sums, seen),
            }
        }
    }
}
