//! Restoring a block: its bytes, exactly, or a miss.

use super::{Block, BlockStore, Fingerprint};

impl BlockStore {
    /// Reads a block's valid rows into `out`, a whole payload's room. None if the store has no such block, or not its very
    /// bytes: then the reason is logged, and the block goes with everything below it. On None `out` may be partly written.
    pub fn get(&mut self, fingerprint: &Fingerprint, block: &Block, out: &mut [u8]) -> Option<()> {
        let entry = self.entries.get(&block.id)?;
        let pool = self.pools.get(fingerprint)?;
        if entry.fingerprint != *fingerprint
            || entry.block != *block
            || out.len() != pool.format.payload_bytes()
        {
            tracing::warn!(id = ?block.id, "a block was asked for as something it is not");
            return None;
        }
        match pool.read(&self.dir, entry.place, block, out) {
            Ok(()) => Some(()),
            Err(reason) => {
                tracing::warn!(id = ?block.id, ?fingerprint, reason, "a block is dropped");
                self.drop_block(fingerprint, &block.id);
                None
            }
        }
    }
}
