//! How far a device may be from the CPU where both are right.

use std::ops::Range;

use candle_core::quantized::GgmlDType;

use super::{OP, Trial};
use crate::kv_write::read;
use crate::layout::{BLOCK_TOKENS, KvLayout, Side, TILE_TOKENS};
use crate::{Error, KvDtype, Result};

/// What an element may be off, in terms of the root mean square of what it is compared with.
///
/// Both compute the same sums in another order, and both round: where numbers that are rounded differ in their last bits, a few
/// fall to the other side, which is a step. An output is a sum of many elements with such steps, whose signs its weights do not
/// know, so that in terms of its size it is off by what its inputs are off, on average, in terms of theirs. The figures below are
/// for inputs that all fall to the other side, which no right device comes near; `DEVIATIONS` of that are for the largest of all
/// elements. A device that is wrong in an element is off by about the element's own size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tolerance {
    /// What one product gives.
    pub(super) product: f32,
    /// What a layer gives.
    pub(super) layer: f32,
}

/// Standard deviations: one element in two million is further off, and there are fewer.
const DEVIATIONS: f32 = 5.0;
/// The most that two sums of 512 products differ: (136 + 512 / 32) 2⁻²⁴ of the sum of their magnitudes is the device's error where
/// that is largest (`Weights::prefill`), (256 + 2) 2⁻²⁴ the CPU's, and the magnitudes are at most √512 times the result's size.
const SUMS: f32 = 1.0 / 1024.0;
/// A step of activations in bytes: the largest of 32, at most 3 of their size, over 127.
const BYTES: f32 = 3.0 / 127.0;

impl Tolerance {
    pub(super) fn of(trial: &Trial) -> Self {
        let takes_bytes = |format: GgmlDType| format.block_size() > 1;
        let product = match trial.matrices().any(takes_bytes) {
            true => BYTES,
            false => SUMS / DEVIATIONS,
        };
        let kv = [trial.layout.format.key, trial.layout.format.value];
        // Tensor cores attend in 16 bits: queries and weights are off by 2⁻¹² of their size, or 2⁻⁹, and a score is at most 8 and
        // makes its weight as much further off.
        let attention: f32 = match kv.contains(&KvDtype::Bf16) {
            true => 8.0 / 512.0,
            false => 8.0 / 4096.0,
        };
        // Steps of keys and values, of which few fall to the other side even where a step is coarse.
        let kept = match kv.iter().any(|dtype| dtype.is_rotated()) {
            true => BYTES,
            false => 0.0,
        };
        // A layer has four products one after the other.
        let all = 4.0 * product * product + attention * attention + kept * kept;
        Self {
            product: DEVIATIONS * product,
            layer: DEVIATIONS * all.sqrt(),
        }
    }

    /// What a head's key or value `[head_dim]` may be off, where those of all tokens have the size `size`: what the product is, and
    /// a step of the format.
    fn kept(&self, dtype: KvDtype, size: f32, head: &[f32]) -> f32 {
        let step = match dtype {
            KvDtype::F16 => 1.0 / 1024.0,
            KvDtype::Bf16 => 1.0 / 128.0,
            KvDtype::Q8 => 1.0 / 127.0,
            // The coarsest scale that it chooses among (`ENDS`).
            KvDtype::Q4 => 1.0 / 5.0,
        };
        let largest = head.iter().fold(0f32, |most, x| most.max(x.abs()));
        self.product * size + step * largest
    }

    /// Compares what two blocks hold of some positions in keys or in values.
    pub(super) fn check_kept(
        &self,
        layout: &KvLayout,
        side: Side,
        [got, want]: [&[Vec<u8>]; 2],
        positions: Range<usize>,
    ) -> Result<()> {
        let what = match side {
            Side::Key => "a key",
            Side::Value => "a value",
        };
        let [got, want] = [got, want].map(|blocks| kept(layout, side, blocks, positions.clone()));
        let size = size_of_all(want.iter().flatten());
        let heads = got.iter().zip(&want).enumerate();
        for (i, (got, want)) in heads {
            let allowed = self.kept(layout.dtype(side), size, want);
            let token = positions.start + i / layout.num_kv_heads;
            check(what, token, (got, want), allowed)?;
        }
        Ok(())
    }
}

/// What blocks hold of some positions, `[positions, kv_heads]` of `[head_dim]`.
fn kept(
    layout: &KvLayout,
    side: Side,
    blocks: &[Vec<u8>],
    positions: Range<usize>,
) -> Vec<Vec<f32>> {
    let of = |position: usize| {
        let (tile, lane) = (
            position % BLOCK_TOKENS / TILE_TOKENS,
            position % TILE_TOKENS,
        );
        (0..layout.num_kv_heads).map(move |head| {
            let block = &blocks[position / BLOCK_TOKENS];
            read(layout, side, &block[layout.tile(side, 0, tile, head)], lane)
        })
    };
    positions.flat_map(of).collect()
}

/// Compares rows of tokens from a position on; an element may be off by so much of the size of all that is wanted.
pub(super) fn check_rows(
    what: &str,
    first: usize,
    (got, want): (&[f32], &[f32]),
    tokens: usize,
    tolerance: f32,
) -> Result<()> {
    let (width, allowed) = (want.len() / tokens, tolerance * size_of_all(want));
    let rows = got.chunks_exact(width).zip(want.chunks_exact(width));
    for (i, row) in rows.enumerate() {
        check(what, first + i, row, allowed)?;
    }
    Ok(())
}

/// Root mean square.
fn size_of_all<'a>(x: impl IntoIterator<Item = &'a f32>) -> f32 {
    let (mut sum, mut len) = (0f64, 0usize);
    for x in x {
        sum += f64::from(*x) * f64::from(*x);
        len += 1;
    }
    (sum / len.max(1) as f64).sqrt() as f32
}

fn check(what: &str, token: usize, (got, want): (&[f32], &[f32]), allowed: f32) -> Result<()> {
    let is_off = |(got, want): &(&f32, &f32)| {
        let error = (*got - *want).abs();
        error > allowed || error.is_nan()
    };
    match got.iter().zip(want).find(is_off) {
        None => Ok(()),
        Some((got, want)) => {
            let reason = format!("{what} of token {token} has {got} where the CPU has {want}");
            Err(Error::argument(OP, reason))
        }
    }
}
