//! Products with weights of 16 or 32 bits. Sixteen rows lie interleaved: `[tile][column][16]`.
//!
//! An output element is one lane of four sums, each over every fourth column in order; they are added at the end. So a
//! single token, whose additions wait for one another, still keeps the adders busy.

use std::ops::Range;

use half::{bf16, f16};

use super::activations::tiles;
use crate::cpu::Kernel;
use crate::lanes::{LANES, Lanes};
use crate::output::Output;
use crate::team::Team;

/// Sums of an element.
const SUMS: usize = 4;
/// Tokens multiplied together.
const TILE_TOKENS: usize = 4;

/// A weight as it is in the file.
pub(crate) trait Element: Copy + Default + Send + Sync + 'static {
    /// Bytes in the file.
    const BYTES: usize = size_of::<Self>();
    /// From its bytes.
    fn read(bytes: &[u8]) -> Self;
    /// Exactly.
    fn to_f32(self) -> f32;
    /// 16 of them.
    ///
    /// # Safety
    /// As `Lanes`.
    unsafe fn load<L: Lanes>(from: *const Self) -> L::Floats;
}

macro_rules! element {
    ($ty:ty, $to_f32:expr, $load:ident) => {
        impl Element for $ty {
            fn read(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().expect("the bytes of one weight"))
            }

            fn to_f32(self) -> f32 {
                $to_f32(self)
            }

            #[inline(always)]
            unsafe fn load<L: Lanes>(from: *const Self) -> L::Floats {
                // SAFETY: the caller's promise.
                unsafe { L::$load(from) }
            }
        }
    };
}

element!(f32, |x| x, load);
element!(f16, f16::to_f32, load_f16);
element!(bf16, bf16::to_f32, load_bf16);

/// Dense weights. Rows beyond the last are 0.
pub(super) struct Dense<E> {
    values: Vec<E>,
    cols: usize,
}

impl<E: Element> Dense<E> {
    /// Interleaves `rows` rows of `cols` weights; the lengths fit.
    pub(super) fn new(rows: usize, cols: usize, bytes: &[u8], team: &Team) -> Self {
        let mut values = vec![E::default(); rows.next_multiple_of(LANES) * cols];
        let tiles = values.chunks_exact_mut(LANES * cols);
        let parts = tiles.zip(bytes.chunks(LANES * cols * E::BYTES)).collect();
        team.deal(parts, |(tile, rows): (&mut [E], &[u8])| {
            for (row, bytes) in rows.chunks_exact(cols * E::BYTES).enumerate() {
                let bytes = bytes.chunks_exact(E::BYTES);
                for (column, bytes) in tile.chunks_exact_mut(LANES).zip(bytes) {
                    column[row] = E::read(bytes);
                }
            }
        });
        Self { values, cols }
    }

    /// The weights, and nothing: there are no scales.
    pub(super) fn bytes(&self) -> (&[u8], &[u8]) {
        let values = self.values.as_slice();
        // SAFETY: numbers without padding, read as the bytes they consist of, for as long as they are borrowed.
        let bytes = unsafe {
            std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values))
        };
        (bytes, &[])
    }

    /// Row `row` as floats.
    pub(super) fn dequantize(&self, row: usize, out: &mut [f32]) {
        let tile = &self.values[row / LANES * LANES * self.cols..];
        for (out, column) in out.iter_mut().zip(tile.chunks_exact(LANES)) {
            *out = column[row % LANES].to_f32();
        }
    }
}

/// Tiles of rows times all tokens of `x` `[n, cols]`.
pub(super) struct Product<'a, E> {
    pub(super) weights: &'a Dense<E>,
    pub(super) x: &'a [f32],
    pub(super) tiles: Range<usize>,
    pub(super) out: Output<'a>,
}

impl<E: Element> Kernel for Product<'_, E> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let n = self.x.len() / self.weights.cols;
        for row_tile in self.tiles.clone() {
            for tile in tiles(n, TILE_TOKENS) {
                // SAFETY: the machine has the instructions, by the caller's promise.
                unsafe {
                    match tile.tokens {
                        1 => self.tile::<L, 1>(row_tile, tile.first),
                        2 => self.tile::<L, 2>(row_tile, tile.first),
                        _ => self.tile::<L, TILE_TOKENS>(row_tile, tile.first),
                    }
                }
            }
        }
    }
}

impl<E: Element> Product<'_, E> {
    #[inline(always)]
    unsafe fn tile<L: Lanes, const T: usize>(&self, row_tile: usize, first: usize) {
        let cols = self.weights.cols;
        let weights = &self.weights.values[row_tile * LANES * cols..][..LANES * cols];
        let x = &self.x[first * cols..][..T * cols];
        // SAFETY: columns below `cols` of the tile and of T tokens are inside the slices just cut.
        unsafe {
            let mut sums = [[L::splat(0.0); SUMS]; T];
            for column in (0..cols).step_by(SUMS) {
                for i in 0..SUMS.min(cols - column) {
                    let weights = E::load::<L>(weights.as_ptr().add((column + i) * LANES));
                    for (t, sums) in sums.iter_mut().enumerate() {
                        let x = L::splat(*x.as_ptr().add(t * cols + column + i));
                        sums[i] = L::fma(weights, x, sums[i]);
                    }
                }
            }
            for (t, [a, b, c, d]) in sums.into_iter().enumerate() {
                let sum = L::add(L::add(a, b), L::add(c, d));
                self.out.put::<L>(first + t, row_tile * LANES, sum);
            }
        }
    }
}
