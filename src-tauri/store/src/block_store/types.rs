//! The values of the block store.

use std::fmt;

use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// Everything that shapes a block's bytes apart from its tokens: model, layout, numerics. Any difference is a miss.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; 32]);

/// A block's name: a digest of everything up to its end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub [u8; 32]);

impl BlockId {
    /// blake3 over: the fingerprint (32 bytes), 1 and the parent's id (32 bytes) or 0 alone, the token ids (u32, little endian).
    pub fn of(fingerprint: &Fingerprint, parent: Option<&BlockId>, tokens: &[u32]) -> BlockId {
        let mut bytes = Vec::with_capacity(65 + 4 * tokens.len());
        bytes.extend_from_slice(&fingerprint.0);
        match parent {
            Some(parent) => {
                bytes.push(1);
                bytes.extend_from_slice(&parent.0);
            }
            None => bytes.push(0),
        }
        tokens
            .iter()
            .for_each(|token| bytes.extend_from_slice(&token.to_le_bytes()));
        BlockId(*blake3::hash(&bytes).as_bytes())
    }
}

fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0[..8], f)
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0[..8], f)
    }
}

/// The shape of a payload: for each layer the slab of its keys, then the slab of its values. A slab is a whole number of
/// equal tiles, and a tile holds `tile_tokens` tokens that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotFormat {
    /// Tokens of a full block.
    pub block_tokens: u32,
    /// Tokens of a tile; a divisor of `block_tokens`.
    pub tile_tokens: u32,
    /// Layers of a payload.
    pub num_layers: u32,
    /// Bytes of the keys of one layer.
    pub key_slab_bytes: u32,
    /// Bytes of the values of one layer.
    pub value_slab_bytes: u32,
}

impl SlotFormat {
    /// Bytes of one layer: a slab of keys and one of values.
    pub fn layer_bytes(&self) -> usize {
        self.key_slab_bytes as usize + self.value_slab_bytes as usize
    }

    /// Bytes of a payload.
    pub fn payload_bytes(&self) -> usize {
        self.num_layers as usize * self.layer_bytes()
    }

    /// Of a slab of `slab_bytes`, the bytes of the tiles that `num_tokens` tokens reach into.
    pub fn valid_bytes(&self, slab_bytes: u32, num_tokens: usize) -> usize {
        let num_tiles = num_tokens.div_ceil(self.tile_tokens as usize);
        num_tiles * (slab_bytes as usize * self.tile_tokens as usize / self.block_tokens as usize)
    }
}

/// What a block is, without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its name.
    pub id: BlockId,
    /// The full block before it; none for the first.
    pub parent: Option<BlockId>,
    /// The absolute index of its first token.
    pub position: u32,
    /// Its token ids; fewer than a full block's for a partial tail.
    pub tokens: Vec<u32>,
}

impl Block {
    /// The block that follows `parent` (or starts a sequence) with these tokens.
    pub fn new(fingerprint: &Fingerprint, parent: Option<&Block>, tokens: Vec<u32>) -> Block {
        let parent_id = parent.map(|parent| parent.id);
        Block {
            id: BlockId::of(fingerprint, parent_id.as_ref(), &tokens),
            parent: parent_id,
            position: parent.map_or(0, |parent| parent.position + parent.tokens.len() as u32),
            tokens,
        }
    }
}

/// How many bytes the block store may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// The smaller of 20 GiB and a quarter of the disk space that is free or already used by the store.
    Default,
    /// Exactly this much.
    Bytes(u64),
}

/// A leaf message's hold on its last block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRef {
    /// The message.
    pub leaf: String,
    /// The fingerprint the block belongs to.
    pub fingerprint: Fingerprint,
    /// The last block of the branch.
    pub block: BlockId,
}

/// What the block store holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct CacheStats {
    /// What it may use.
    #[ts(type = "number")]
    pub budget_bytes: u64,
    /// What everything in its folder uses.
    #[ts(type = "number")]
    pub file_bytes: u64,
    /// Headers and valid tiles of the blocks in it.
    #[ts(type = "number")]
    pub live_bytes: u64,
    /// Blocks in it.
    #[ts(type = "number")]
    pub num_blocks: u64,
    /// One entry per fingerprint.
    pub pools: Vec<PoolStats>,
}

/// What one fingerprint holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct PoolStats {
    /// The fingerprint, in hex.
    pub fingerprint: String,
    /// What the engine called it.
    pub label: String,
    /// Blocks in it.
    #[ts(type = "number")]
    pub num_blocks: u64,
    /// Bytes of its pool files.
    #[ts(type = "number")]
    pub bytes: u64,
    /// Opened in this run.
    pub known: bool,
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct GcReport {
    /// Blocks no ref reached.
    #[ts(type = "number")]
    pub swept: u64,
    /// Blocks that stay.
    #[ts(type = "number")]
    pub kept: u64,
}

/// What reading every block showed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct VerifyReport {
    /// Blocks read.
    #[ts(type = "number")]
    pub checked: u64,
    /// Blocks that were not what the index says; they are dropped.
    #[ts(type = "number")]
    pub bad: u64,
}
