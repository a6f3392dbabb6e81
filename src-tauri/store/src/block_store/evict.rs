//! Keeping the budget: the least recently used tail goes first, blocks of fingerprints not opened in this run before all.

use std::collections::HashSet;

use super::pool::Place;
use super::{BlockId, BlockStore, Fingerprint, budget};

/// Room kept for what a write adds to the index and its log, per write and per block.
const INDEX_BYTES: u64 = 64 << 10;
const INDEX_BYTES_PER_BLOCK: u64 = 8 << 10;

impl BlockStore {
    /// Takes a free slot, evicting until it fits into the budget. None if nothing more may be evicted.
    pub(super) fn reserve(
        &mut self,
        fingerprint: &Fingerprint,
        protected: &HashSet<BlockId>,
        batch_len: usize,
    ) -> Option<Place> {
        let margin = INDEX_BYTES + INDEX_BYTES_PER_BLOCK * batch_len as u64;
        let mut folded = false;
        loop {
            let pool = self.pools.get_mut(fingerprint)?;
            let (place, growth) = pool.free_place();
            if budget::used(&self.dir).saturating_add(growth + margin) <= self.budget_bytes {
                pool.take(place);
                return Some(place);
            }
            if !std::mem::replace(&mut folded, true) {
                self.index.as_ref()?.fold();
            } else {
                let victim = self.victim(protected)?;
                self.remove(&[victim], None);
            }
        }
    }

    /// Brings the store under its budget, if anything may go.
    pub(super) fn settle(&mut self, protected: &HashSet<BlockId>) {
        let mut folded = false;
        while budget::used(&self.dir) > self.budget_bytes {
            if let (false, Some(index)) = (std::mem::replace(&mut folded, true), &self.index) {
                index.fold();
            } else if let Some(victim) = self.victim(protected) {
                self.remove(&[victim], None);
                // What was removed has grown the log before it shrinks the file.
                folded = false;
            } else {
                tracing::warn!(
                    budget_bytes = self.budget_bytes,
                    "the folder for blocks is over its budget"
                );
                return;
            }
        }
    }

    /// The block to go next: a tail, since a block without the one before it is of no use.
    fn victim(&self, protected: &HashSet<BlockId>) -> Option<BlockId> {
        self.entries
            .values()
            .filter(|entry| entry.children.is_empty())
            .filter(|entry| {
                !self.pinned.contains(&entry.block.id) && !protected.contains(&entry.block.id)
            })
            .min_by_key(|entry| (self.pools[&entry.fingerprint].known, entry.used, entry.seq))
            .map(|entry| entry.block.id)
    }
}
