//! Where a token's keys and values lie inside a slot.

/// Tokens in one block of the KV cache.
pub const BLOCK_TOKENS: usize = 64;

/// Geometry of one slot, which holds one block of all layers:
/// `[layer][K, V][token 0..64][kv_head][head_dim]`, f16, little endian.
///
/// One `[token][kv_head][head_dim]` array is a slab. Slabs are token-major, so that the rows of new tokens are contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayout {
    /// Layers of the model.
    pub num_layers: usize,
    /// Key/value heads per layer.
    pub num_kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
}

impl KvLayout {
    /// Elements of one token in one slab.
    pub fn row_elems(&self) -> usize {
        self.num_kv_heads * self.head_dim
    }

    /// Elements of one slab: the keys or the values of one block in one layer.
    pub fn slab_elems(&self) -> usize {
        BLOCK_TOKENS * self.row_elems()
    }

    /// Bytes of one slab.
    pub fn slab_bytes(&self) -> usize {
        2 * self.slab_elems()
    }

    /// Slabs of one slot: keys and values of every layer.
    pub fn num_slabs(&self) -> usize {
        2 * self.num_layers
    }

    /// Elements of one slot.
    pub fn slot_elems(&self) -> usize {
        self.num_slabs() * self.slab_elems()
    }

    /// Bytes of one slot.
    pub fn slot_bytes(&self) -> usize {
        2 * self.slot_elems()
    }

    /// Bytes one token takes in the cache.
    pub fn bytes_per_token(&self) -> usize {
        2 * self.num_slabs() * self.row_elems()
    }

    /// First element of the keys of `layer` in `slot`, counted from the start of the pool.
    pub(crate) fn key_slab(&self, slot: u32, layer: usize) -> usize {
        slot as usize * self.slot_elems() + 2 * layer * self.slab_elems()
    }

    /// First element of the values of `layer` in `slot`, counted from the start of the pool.
    pub(crate) fn value_slab(&self, slot: u32, layer: usize) -> usize {
        self.key_slab(slot, layer) + self.slab_elems()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_the_sum_of_its_slabs_and_of_its_tokens() {
        let l = KvLayout {
            num_layers: 30,
            num_kv_heads: 3,
            head_dim: 64,
        };
        assert_eq!(l.slot_bytes(), l.num_slabs() * l.slab_bytes());
        assert_eq!(l.slot_bytes(), BLOCK_TOKENS * l.bytes_per_token());
        assert_eq!(l.bytes_per_token(), 23_040);
        assert_eq!(l.value_slab(2, 29) + l.slab_elems(), 3 * l.slot_elems());
    }
}
