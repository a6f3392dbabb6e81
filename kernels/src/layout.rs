//! Where a token's keys and values lie inside a slot.

use std::ops::Range;

use crate::kv_format::{KvDtype, KvFormat};
use crate::lanes::{GROUP, LANES};

/// Tokens in one block of the KV cache.
pub const BLOCK_TOKENS: usize = 64;
/// Tokens of a tile, whose bytes follow each other: what a vector of sixteen lanes takes at once.
pub const TILE_TOKENS: usize = LANES;
/// Tiles of a block.
pub(crate) const BLOCK_TILES: usize = BLOCK_TOKENS / TILE_TOKENS;

/// Geometry of one slot, which holds one block of all layers: `[layer][keys, values][tile 0..4][kv_head]`, each a tile of
/// one head for 16 tokens. A slab is the keys or the values of one layer. Numbers are little endian.
///
/// In a tile of **keys** a token is a lane, so that scores of 16 tokens are one sum over the head:
///
/// ```text
/// f16, bf16   [head_dim][16 tokens]
/// q8          [head_dim / 32]: quants as the packed weights of `Q8_0`, [8 quads][16 tokens][4] u8, 128 added; then scales
///             [head_dim / 32][16 tokens] f16
/// q4          the same as `Q4_0`: [4][16 tokens][4] u8, quad j in the low nibble and quad j + 4 in the high one, 8 added
/// ```
///
/// In a tile of **values** a token is a row, so that it is weighed as a whole:
///
/// ```text
/// f16, bf16   [16 tokens][head_dim]
/// q8          [16 tokens][head_dim] i8; then scales [16 tokens][head_dim / 32] f16
/// q4          [16 tokens][head_dim / 32][16] u8, elements i and i + 16 of a group in a byte, 8 added; then scales as q8
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayout {
    /// Layers of the model.
    pub num_layers: usize,
    /// Key/value heads per layer.
    pub num_kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
    /// Formats of keys and values; quantized ones need a `head_dim` that is a multiple of 32.
    pub format: KvFormat,
}

/// Keys or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Key,
    Value,
}

impl KvLayout {
    /// Elements of the keys, or of the values, of one token in one layer.
    pub(crate) fn row_elems(&self) -> usize {
        self.num_kv_heads * self.head_dim
    }

    /// Whether the format can hold heads of this size.
    pub(crate) fn is_sound(&self) -> bool {
        self.format.fitting(self.head_dim).1.is_none()
            && self.num_layers * self.num_kv_heads * self.head_dim > 0
    }

    pub(crate) fn dtype(&self, side: Side) -> KvDtype {
        match side {
            Side::Key => self.format.key,
            Side::Value => self.format.value,
        }
    }

    /// Bytes of one head's tile.
    pub(crate) fn tile_bytes(&self, side: Side) -> usize {
        TILE_TOKENS * self.dtype(side).bytes(self.head_dim)
    }

    /// Bytes from a head's tile to its next one.
    pub(crate) fn tile_stride(&self, side: Side) -> usize {
        self.num_kv_heads * self.tile_bytes(side)
    }

    fn slab_bytes(&self, side: Side) -> usize {
        BLOCK_TILES * self.tile_stride(side)
    }

    /// Bytes of the keys of one block in one layer.
    pub fn key_slab_bytes(&self) -> usize {
        self.slab_bytes(Side::Key)
    }

    /// Bytes of the values of one block in one layer.
    pub fn value_slab_bytes(&self) -> usize {
        self.slab_bytes(Side::Value)
    }

    /// Bytes of one layer of a slot: its keys, then its values.
    pub(crate) fn layer_bytes(&self) -> usize {
        self.key_slab_bytes() + self.value_slab_bytes()
    }

    /// Bytes of one slot.
    pub fn slot_bytes(&self) -> usize {
        self.num_layers * self.layer_bytes()
    }

    /// Bytes one token takes in the cache: layers × KV heads × (bytes of a head's keys + bytes of its values).
    pub fn bytes_per_token(&self) -> usize {
        let head = self.format.key.bytes(self.head_dim) + self.format.value.bytes(self.head_dim);
        self.num_layers * self.num_kv_heads * head
    }

    /// The bytes of one head's tile in a slot.
    pub(crate) fn tile(
        &self,
        side: Side,
        layer: usize,
        tile: usize,
        kv_head: usize,
    ) -> Range<usize> {
        let slab = match side {
            Side::Key => 0,
            Side::Value => self.key_slab_bytes(),
        };
        let start = layer * self.layer_bytes()
            + slab
            + tile * self.tile_stride(side)
            + kv_head * self.tile_bytes(side);
        start..start + self.tile_bytes(side)
    }

    /// Bytes of the quants of one head's tile in a quantized format, after which the scales begin.
    pub(crate) fn quant_bytes(&self, side: Side) -> usize {
        self.tile_bytes(side) - 2 * TILE_TOKENS * (self.head_dim / GROUP)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// All pairs of formats.
    pub(crate) fn formats() -> impl Iterator<Item = KvFormat> {
        let pairs = |key| KvDtype::ALL.map(|value| KvFormat { key, value });
        KvDtype::ALL.into_iter().flat_map(pairs)
    }

    #[test]
    fn bytes_per_token_are_those_of_the_formula_in_every_format() {
        // Bits an element, in sixteenths of a byte: 2, 2, 1 + 2/32 and 1/2 + 2/32 bytes.
        let sixteenths = |dtype| match dtype {
            KvDtype::F16 | KvDtype::Bf16 => 32,
            KvDtype::Q8 => 17,
            KvDtype::Q4 => 9,
        };
        for format in formats() {
            for (num_layers, num_kv_heads, head_dim) in [(30, 3, 64), (32, 8, 128), (1, 1, 96)] {
                let layout = KvLayout {
                    num_layers,
                    num_kv_heads,
                    head_dim,
                    format,
                };
                let elems = num_layers * num_kv_heads * head_dim;
                let bytes = elems * (sixteenths(format.key) + sixteenths(format.value)) / 16;
                assert_eq!(layout.bytes_per_token(), bytes, "{format}");
                assert_eq!(layout.slot_bytes(), BLOCK_TOKENS * bytes, "{format}");
            }
        }
    }

    #[test]
    fn tiles_cover_a_slot_exactly_once() {
        for format in formats() {
            let layout = KvLayout {
                num_layers: 2,
                num_kv_heads: 3,
                head_dim: 32,
                format,
            };
            let mut next = 0;
            for layer in 0..2 {
                for side in [Side::Key, Side::Value] {
                    for tile in 0..BLOCK_TILES {
                        for head in 0..3 {
                            let range = layout.tile(side, layer, tile, head);
                            assert_eq!(range.start, next, "{format}");
                            next = range.end;
                        }
                    }
                }
            }
            assert_eq!(next, layout.slot_bytes());
        }
    }
}
