//! Keeping the budget: the least recently used tail goes first, blocks of fingerprints not opened in this run before all.
//!
//! A slot that becomes free is used again in its place. Only when its room is needed elsewhere, by another fingerprint or by
//! the index, is the last slot of its pool moved into it and the end of the file given back.

use std::collections::HashSet;

use super::index::LOG_BYTES;
use super::pool::Place;
use super::{Block, BlockId, BlockStore, Fingerprint, budget};

/// Room kept for what a write adds to the index, per write and per block.
const INDEX_BYTES: u64 = 16 << 10;
const INDEX_BYTES_PER_BLOCK: u64 = 2 << 10;

impl BlockStore {
    /// Takes a free slot, evicting until it fits into the budget. None if nothing more may be evicted.
    pub(super) fn reserve(
        &mut self,
        fingerprint: &Fingerprint,
        protected: &HashSet<BlockId>,
        batch_len: usize,
    ) -> Option<Place> {
        let margin = INDEX_BYTES + INDEX_BYTES_PER_BLOCK * batch_len as u64;
        loop {
            let index = self.index.as_ref()?;
            let mut log_bytes = index.log_bytes(&self.dir);
            if log_bytes > LOG_BYTES {
                index.fold();
                log_bytes = index.log_bytes(&self.dir);
            }
            // The log is counted at the length it may always reach again, so that it never costs a block.
            let used = budget::used(&self.dir) + LOG_BYTES.saturating_sub(log_bytes);
            let pool = self.pools.get_mut(fingerprint)?;
            let (place, growth) = pool.free_place();
            if used.saturating_add(growth + margin) <= self.budget_bytes {
                pool.take(place);
                return Some(place);
            }
            if !self.give_back_one(protected) {
                return None;
            }
        }
    }

    /// Brings the store under its budget, if anything may go.
    pub(super) fn settle(&mut self, protected: &HashSet<BlockId>) {
        let mut folded = false;
        while budget::used(&self.dir) > self.budget_bytes {
            if let (false, Some(index)) = (std::mem::replace(&mut folded, true), &self.index) {
                index.fold();
            } else if self.give_back_one(protected) {
                // The log has grown by what was removed, before the file shrinks.
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

    /// One step towards less: fills a hole from the end of its pool's files, or makes one. False if there is nothing to do.
    fn give_back_one(&mut self, protected: &HashSet<BlockId>) -> bool {
        if self.fill_hole() {
            return true;
        }
        match self.victim(protected) {
            Some(victim) => {
                self.remove(&[victim], None);
                true
            }
            None => false,
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

    /// Moves the last block of a pool that has a hole into it. False if no block can be moved.
    fn fill_hole(&mut self) -> bool {
        let moves: Vec<(Fingerprint, Place, Place)> = self
            .pools
            .iter()
            .filter_map(|(fingerprint, pool)| {
                let (hole, growth) = pool.free_place();
                let last = pool.last_place(pool.form()).filter(|_| growth == 0)?;
                Some((*fingerprint, last, hole))
            })
            .collect();
        moves.into_iter().any(|(fingerprint, from, to)| {
            let at_end = |entry: &&super::Entry| entry.fingerprint == fingerprint && entry.place == from;
            // None: the last slot is of a block being put, which stays where it is.
            let Some(block) = self.entries.values().find(at_end).map(|entry| entry.block.clone()) else { return false };
            match self.move_block(&fingerprint, &block, from, to) {
                Ok(()) => true,
                Err(reason) => {
                    tracing::warn!(id = ?block.id, reason, "a block is dropped, since it cannot be moved");
                    self.drop_block(&fingerprint, &block.id);
                    true
                }
            }
        })
    }

    /// New slot, fdatasync, row, and only then is the old slot free.
    pub(super) fn move_block(
        &mut self,
        fingerprint: &Fingerprint,
        block: &Block,
        from: Place,
        to: Place,
    ) -> Result<(), String> {
        let pool = self.pools.get(fingerprint).ok_or("its pool is gone")?;
        let mut payload = vec![0; pool.format.payload_bytes()];
        pool.read(&self.dir, from, block, &mut payload)?;
        let written = pool
            .write(&self.dir, to, block, &payload)
            .and_then(|_| pool.sync(&self.dir, to.file));
        written.map_err(|error| error.to_string())?;
        let index = self.index.as_ref().ok_or("there is no index")?;
        if let Err(error) = index.move_block(&block.id, to) {
            self.index_failed("move a block", &error);
            return Err(error.to_string());
        }
        if let (Some(entry), Some(pool)) = (
            self.entries.get_mut(&block.id),
            self.pools.get_mut(fingerprint),
        ) {
            entry.place = to;
            pool.take(to);
            pool.release(from);
            pool.trim(&self.dir, from.file);
        }
        Ok(())
    }
}
