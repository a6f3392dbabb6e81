//! Quantized weights as they lie in memory, and how the rows of a file come there.
//!
//! Rows are packed sixteen at a time, because sixteen is the width of the lanes: lane i of every vector belongs to row i.
//! Along a row, a **quad** is four weights, which a dot product of bytes takes at once; a group is eight quads:
//!
//! ```text
//!               row 0          row 1               row 15
//!  line 0   │ w0 w1 w2 w3 │ w0 w1 w2 w3 │  …  │ w0 w1 w2 w3 │   quad 0 of 16 rows: 64 bytes, one cache line
//!  line 1   │ w4 w5 w6 w7 │ w4 w5 w6 w7 │  …  │ w4 w5 w6 w7 │   quad 1
//!    …
//!  4 bits:   each byte of line j holds quad j in its low nibble and quad j + 4 in its high one: 4 lines a group
//!  5 bits:   as 4 bits; a fifth line holds the fifth bits, that of quad j at bit j
//!  6 bits:   as 4 bits; two more lines hold the upper two bits, those of quads j and j + 4 at bits 2 (j mod 4)
//!  2 bits:   two lines, quads j and j + 4 at bits 2 (j mod 4);   3 bits: a third line as the fifth of 5 bits
//!  8 bits:   8 lines
//! ```
//!
//! A product loads the lines of a group, spreads them to eight vectors of bytes, and multiplies those with the same four
//! activations in every lane, token by token: one load of weights serves all tokens of a tile.

use std::marker::PhantomData;

use super::format::Format;
use crate::arena::{Arena, Piece};
use crate::lanes::{GROUP, LANES, Lanes};
use crate::team::Team;

/// Bytes of a line: 16 quads.
const LINE: usize = 4 * LANES;
/// Quads of a group.
pub(super) const QUADS: usize = GROUP / 4;

/// Tiles of 16 rows that lie as the weights of a format do.
pub(super) trait RowTiles<F> {
    /// The quants of a tile: for each group `QUANT_BYTES`.
    fn quants(&self, tile: usize) -> &[u8];
    /// The scales of a tile: for each unit `SCALE_BYTES`.
    fn scales(&self, tile: usize) -> &[u8];
}

/// Packed weights of one format. Rows beyond the last are 0.
pub(super) struct Packed<F> {
    /// `[tile][group]`, each of `QUANT_BYTES`.
    quants: Piece,
    /// `[tile][unit]`, each of `SCALE_BYTES`.
    scales: Piece,
    groups: usize,
    format: PhantomData<F>,
}

impl<F: Format> Packed<F> {
    /// Bytes in memory of `rows` rows of `cols` weights.
    pub(super) fn bytes_for(rows: usize, cols: usize) -> usize {
        let (tiles, groups) = (rows.div_ceil(LANES), cols / GROUP);
        tiles * (groups * F::QUANT_BYTES + groups / F::UNIT_GROUPS * F::SCALE_BYTES)
    }

    /// Packs the blocks of `rows` rows of `cols` weights; the lengths fit.
    pub(super) fn new(
        rows: usize,
        cols: usize,
        blocks: &[u8],
        team: &Team,
        arena: &mut Arena,
    ) -> Self {
        let (tiles, groups) = (rows.div_ceil(LANES), cols / GROUP);
        let units = groups / F::UNIT_GROUPS;
        let mut packed = Self {
            quants: arena.take(tiles * groups * F::QUANT_BYTES),
            scales: arena.take(tiles * units * F::SCALE_BYTES),
            groups,
            format: PhantomData,
        };
        let tile_blocks = LANES * units * F::BLOCK_BYTES;
        let quants = packed.quants.bytes_mut();
        let parts = quants
            .chunks_exact_mut(groups * F::QUANT_BYTES)
            .zip(
                packed
                    .scales
                    .bytes_mut()
                    .chunks_exact_mut(units * F::SCALE_BYTES),
            )
            .zip(blocks.chunks(tile_blocks));
        team.deal(parts.collect(), |((quants, scales), blocks)| {
            pack_tile::<F>(blocks, units, quants, scales);
        });
        packed
    }

    /// Quants and scales.
    pub(super) fn bytes(&self) -> (&[u8], &[u8]) {
        (self.quants.bytes(), self.scales.bytes())
    }

    /// Row `row` as floats, with the roundings of the file format's definition.
    pub(super) fn dequantize(&self, row: usize, out: &mut [f32]) {
        let (tile, lane) = (row / LANES, row % LANES);
        let (quants, scales) = (self.quants(tile), self.scales(tile));
        for (g, out) in out.chunks_exact_mut(GROUP).enumerate() {
            let (unit, in_unit) = (g / F::UNIT_GROUPS, g % F::UNIT_GROUPS);
            // SAFETY: baseline instructions; the lengths are those of a group and of a unit.
            let (bytes, scales) = unsafe {
                let scales = &scales[unit * F::SCALE_BYTES..][..F::SCALE_BYTES];
                let scales: [_; 2] = std::array::from_fn(|half| {
                    F::scales::<Plain>(scales.as_ptr(), in_unit, half.min(F::HALVES - 1))
                });
                let quants = &quants[g * F::QUANT_BYTES..][..F::QUANT_BYTES];
                (spread::<Plain, F>(quants.as_ptr()), scales)
            };
            for (i, out) in out.iter_mut().enumerate() {
                let (scale, minimum) = &scales[i / (GROUP / 2)];
                let quant = i32::from(bytes[i / 4][4 * lane + i % 4]) - F::OFFSET;
                let value = scale[lane] * quant as f32;
                *out = minimum.map_or(value, |minimum| value + minimum[lane]);
            }
        }
    }
}

impl<F: Format> RowTiles<F> for Packed<F> {
    fn quants(&self, tile: usize) -> &[u8] {
        let len = self.groups * F::QUANT_BYTES;
        &self.quants.bytes()[tile * len..][..len]
    }

    fn scales(&self, tile: usize) -> &[u8] {
        let len = self.groups / F::UNIT_GROUPS * F::SCALE_BYTES;
        &self.scales.bytes()[tile * len..][..len]
    }
}

type Plain = crate::lanes::Scalar;

fn pack_tile<F: Format>(blocks: &[u8], units: usize, quants: &mut [u8], scales: &mut [u8]) {
    let mut values = [[0; GROUP]; 8];
    for (row, blocks) in blocks.chunks_exact(units * F::BLOCK_BYTES).enumerate() {
        let blocks = blocks.chunks_exact(F::BLOCK_BYTES);
        let parts = quants
            .chunks_exact_mut(F::UNIT_GROUPS * F::QUANT_BYTES)
            .zip(scales.chunks_exact_mut(F::SCALE_BYTES));
        for (block, (quants, scales)) in blocks.zip(parts) {
            let values = &mut values[..F::UNIT_GROUPS];
            F::read(block, values, row, scales);
            for (values, lines) in values.iter().zip(quants.chunks_exact_mut(F::QUANT_BYTES)) {
                pack_group::<F>(values, row, lines);
            }
        }
    }
}

/// Puts the quants of one row's group into its lines, which are 0 there.
fn pack_group<F: Format>(values: &[u8; GROUP], row: usize, lines: &mut [u8]) {
    let mut put = |line: usize, quad: u32| {
        let at = LINE * line + 4 * row;
        let bytes: &mut [u8; 4] = lines[at..].first_chunk_mut().expect("a whole line");
        *bytes = (u32::from_le_bytes(*bytes) | quad).to_le_bytes();
    };
    for (j, quad) in values.as_chunks::<4>().0.iter().enumerate() {
        let quad = u32::from_le_bytes(*quad);
        // Of each byte at once: no quant has more bits than its field.
        let low_two = quad & 0x0303_0303;
        let nibble = quad & 0x0f0f_0f0f;
        match F::BITS {
            8 => put(j, quad),
            2 => put(j / 4, low_two << (2 * (j % 4))),
            3 => {
                put(j / 4, low_two << (2 * (j % 4)));
                put(2, (quad >> 2 & 0x0101_0101) << j);
            }
            _ => put(j % 4, nibble << (4 * (j / 4))),
        }
        match F::BITS {
            5 => put(4, (quad >> 4 & 0x0101_0101) << j),
            6 => put(4 + j / 4, (quad >> 4 & 0x0303_0303) << (2 * (j % 4))),
            _ => {}
        }
    }
}

/// The quants of a group of 16 rows, one byte each: vector j holds quad j.
///
/// # Safety
/// As `Lanes`; `lines` holds `QUANT_BYTES`.
#[inline(always)]
pub(super) unsafe fn spread<L: Lanes, F: Format>(lines: *const u8) -> [L::Bytes; QUADS] {
    // SAFETY: the caller's promise.
    unsafe {
        let line = |i: usize| L::bytes(lines.add(LINE * i));
        let mut out = [line(0); QUADS];
        if F::BITS == 8 {
            for (j, out) in out.iter_mut().enumerate() {
                *out = line(j);
            }
        } else if F::BITS >= 4 {
            for j in 0..4 {
                let both = line(j);
                out[j] = L::field(both, 0, 15);
                out[j + 4] = L::field(both, 4, 15);
            }
        } else {
            for (j, out) in out.iter_mut().enumerate() {
                *out = L::field(line(j / 4), 2 * (j as i32 % 4), 3);
            }
        }
        match F::BITS {
            // One upper bit, of quad j at bit j.
            3 | 5 => {
                let (at, upper) = if F::BITS == 3 {
                    (2, line(2))
                } else {
                    (4, line(4))
                };
                for (j, out) in out.iter_mut().enumerate() {
                    *out = L::or(*out, L::field(upper, j as i32 - at, 1 << at));
                }
            }
            6 => {
                for (j, out) in out.iter_mut().enumerate() {
                    let upper = L::field(line(4 + j / 4), 2 * (j as i32 % 4) - 4, 0x30);
                    *out = L::or(*out, upper);
                }
            }
            _ => {}
        }
        out
    }
}
