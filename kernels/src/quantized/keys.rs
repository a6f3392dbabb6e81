//! Products with quantized keys: a tile of keys is a tile of 16 rows, and lies as packed weights do.

use std::marker::PhantomData;
use std::ops::Range;

use super::activations::Activations;
use super::format::{Format, Q4_0, Q8_0};
use super::packed::RowTiles;
use super::product::Product;
use crate::cpu::Kernel;
use crate::lanes::{GROUP, Lanes};
use crate::output::Output;

/// The keys of one head in one block.
pub(crate) struct KeyTiles<F> {
    first: *const u8,
    stride: usize,
    groups: usize,
    format: PhantomData<F>,
}

/// Keys in `q8`.
pub(crate) type Q8Tiles = KeyTiles<Q8_0>;
/// Keys in `q4`.
pub(crate) type Q4Tiles = KeyTiles<Q4_0>;

impl<F: Format> KeyTiles<F> {
    /// Tiles of heads of `dim` elements, `stride` bytes apart.
    ///
    /// # Safety
    /// The tiles that are multiplied are there, and nobody writes them meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn new(first: *const u8, stride: usize, dim: usize) -> Self {
        Self {
            first,
            stride,
            groups: dim / GROUP,
            format: PhantomData,
        }
    }

    /// What activations need before `multiply`, once.
    pub(crate) fn prepare(x: &mut Activations) {
        x.prepare::<F>();
        if let Some(rest) = &mut x.rest {
            rest.prepare::<F>();
        }
    }

    /// Some tiles times all rows of `x`, into `out` `[rows, 64]`.
    ///
    /// # Safety
    /// The machine has the instructions of `L`.
    #[inline(always)]
    pub(crate) unsafe fn multiply<L: Lanes>(
        &self,
        x: &Activations,
        tiles: Range<usize>,
        out: Output<'_>,
    ) {
        let product = |x, out| Product {
            weights: self,
            x,
            tiles: tiles.clone(),
            out,
            format: PhantomData,
        };
        // SAFETY: the caller's promise.
        unsafe {
            product(x, out).run::<L>();
            if let Some(rest) = &x.rest {
                product(rest, out.adding()).run::<L>();
            }
        }
    }
}

impl<F: Format> RowTiles<F> for KeyTiles<F> {
    #[inline(always)]
    fn quants(&self, tile: usize) -> &[u8] {
        let len = self.groups * F::QUANT_BYTES;
        // SAFETY: a tile that is there, by the promise of `new`.
        unsafe { std::slice::from_raw_parts(self.first.add(tile * self.stride), len) }
    }

    #[inline(always)]
    fn scales(&self, tile: usize) -> &[u8] {
        let at = tile * self.stride + self.groups * F::QUANT_BYTES;
        // SAFETY: as above; the scales follow the quants.
        unsafe { std::slice::from_raw_parts(self.first.add(at), self.groups * F::SCALE_BYTES) }
    }
}
