//! stub
mod types;
use std::collections::HashSet;
use std::path::Path;
pub use types::*;

/// The cache of KV blocks.
pub struct BlockStore;

#[allow(missing_docs, unused_variables)]
impl BlockStore {
    pub fn open(dir: &Path, budget: Budget) -> BlockStore {
        todo!()
    }
    pub fn open_pool(
        &mut self,
        fingerprint: &Fingerprint,
        format: SlotFormat,
        label: &str,
    ) -> bool {
        todo!()
    }
    pub fn blocks(&self, fingerprint: &Fingerprint) -> Vec<Block> {
        todo!()
    }
    pub fn put(&mut self, fingerprint: &Fingerprint, block: &Block, payload: &[u8]) -> Option<u64> {
        todo!()
    }
    pub fn put_many<P: AsRef<[u8]>>(
        &mut self,
        fingerprint: &Fingerprint,
        blocks: &[(Block, P)],
    ) -> Vec<Option<u64>> {
        todo!()
    }
    pub fn get(&mut self, fingerprint: &Fingerprint, block: &Block, out: &mut [u8]) -> Option<()> {
        todo!()
    }
    pub fn drop_block(&mut self, fingerprint: &Fingerprint, id: &BlockId) {
        todo!()
    }
    pub fn touch(&mut self, fingerprint: &Fingerprint, ids: &[BlockId], tick: u64) {
        todo!()
    }
    pub fn set_ref(&mut self, leaf: &str, fingerprint: &Fingerprint, id: &BlockId) {
        todo!()
    }
    pub fn drop_ref(&mut self, leaf: &str) {
        todo!()
    }
    pub fn refs(&self) -> Vec<BlockRef> {
        todo!()
    }
    pub fn gc(&mut self, keep: &HashSet<BlockId>) -> GcReport {
        todo!()
    }
    /// Replaces the set.
    pub fn pin(&mut self, ids: &[BlockId]) {
        todo!()
    }
    pub fn stats(&self) -> CacheStats {
        todo!()
    }
    pub fn verify(&mut self) -> VerifyReport {
        todo!()
    }
    pub fn clear(&mut self) {
        todo!()
    }
}
