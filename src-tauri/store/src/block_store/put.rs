//! Saving blocks: slot bytes, one fdatasync for the batch, index rows, and only then the tails they replace go.

use std::collections::{BTreeSet, HashSet};

use super::index::NewRow;
use super::pool::{FileId, Place};
use super::{Block, BlockId, BlockStore, Fingerprint};
use crate::file;

/// A block whose slot is written and whose row is not.
struct Written {
    /// Where it stands in the batch.
    at: usize,
    place: Place,
    bytes: u64,
}

impl BlockStore {
    /// Saves a block; returns the bytes written to its pool file, 0 if it is there already. None, with a logged reason, if it
    /// was not saved.
    pub fn put(&mut self, fingerprint: &Fingerprint, block: &Block, payload: &[u8]) -> Option<u64> {
        self.put_many(fingerprint, &[(block.clone(), payload)])
            .pop()
            .flatten()
    }

    /// Saves blocks, parents before children, with one wait for the disk. The results are those of [`put`](Self::put), in order.
    pub fn put_many<P: AsRef<[u8]>>(
        &mut self,
        fingerprint: &Fingerprint,
        blocks: &[(Block, P)],
    ) -> Vec<Option<u64>> {
        let mut results = vec![None; blocks.len()];
        let epoch = self.epoch;
        let protected: HashSet<BlockId> = blocks
            .iter()
            .filter_map(|(block, _)| block.parent)
            .collect();
        let mut written: Vec<Written> = Vec::new();
        let mut new_file = false;
        for (at, (block, payload)) in blocks.iter().enumerate() {
            let in_batch = |id: &BlockId| {
                written
                    .iter()
                    .map(|w| &blocks[w.at].0)
                    .find(|block| block.id == *id)
            };
            if self.entries.contains_key(&block.id) || in_batch(&block.id).is_some() {
                results[at] = Some(0);
                continue;
            }
            let parent = block.parent.as_ref().and_then(in_batch);
            let place = match self.check(fingerprint, block, payload.as_ref(), parent) {
                Ok(()) => self
                    .reserve(fingerprint, &protected, blocks.len())
                    .ok_or("the budget has no room".to_owned()),
                Err(reason) => Err(reason),
            };
            if self.epoch != epoch {
                return vec![None; blocks.len()]; // emptied meanwhile, and with it what was written
            }
            match place.and_then(|place| self.write(fingerprint, place, block, payload.as_ref())) {
                Ok((place, bytes, is_new)) => {
                    new_file |= is_new;
                    written.push(Written { at, place, bytes });
                }
                Err(reason) => tracing::warn!(id = ?block.id, reason, "a block was not saved"),
            }
        }
        if written.is_empty() {
            self.settle(&HashSet::new());
            return results;
        }
        if let Err(reason) = self.commit(fingerprint, blocks, &written, new_file) {
            tracing::warn!(num_blocks = written.len(), reason, "blocks were not saved");
            if self.epoch == epoch {
                written
                    .iter()
                    .for_each(|written| self.give_back(fingerprint, written.place));
            }
            return results;
        }
        for Written { at, bytes, .. } in written {
            results[at] = Some(bytes);
            self.drop_superseded(&blocks[at].0);
        }
        self.settle(&HashSet::new());
        results
    }

    /// The block is what it says, fits the pool, and follows a full block that is there or, as `parent`, about to be.
    fn check(
        &self,
        fingerprint: &Fingerprint,
        block: &Block,
        payload: &[u8],
        parent: Option<&Block>,
    ) -> Result<(), String> {
        let pool = self
            .pools
            .get(fingerprint)
            .filter(|pool| pool.known)
            .ok_or("its pool is not open")?;
        let block_tokens = pool.format.block_tokens as usize;
        let position = match &block.parent {
            None => Some(0),
            Some(id) => {
                let parent = parent
                    .or_else(|| self.entries.get(id).map(|entry| &entry.block))
                    .ok_or("its parent is missing")?;
                if parent.tokens.len() != block_tokens {
                    return Err("its parent is not full".to_owned());
                }
                parent.position.checked_add(pool.format.block_tokens)
            }
        };
        if position != Some(block.position) {
            return Err("its position is wrong".to_owned());
        }
        if !(1..=block_tokens).contains(&block.tokens.len())
            || payload.len() != pool.format.payload_bytes()
        {
            return Err("its size is wrong".to_owned());
        }
        if BlockId::of(fingerprint, block.parent.as_ref(), &block.tokens) != block.id {
            return Err("its id is not its own".to_owned());
        }
        Ok(())
    }

    fn write(
        &mut self,
        fingerprint: &Fingerprint,
        place: Place,
        block: &Block,
        payload: &[u8],
    ) -> Result<(Place, u64, bool), String> {
        let pool = self.pools.get(fingerprint).ok_or("its pool is not open")?;
        match pool.write(&self.dir, place, block, payload) {
            Ok((bytes, is_new)) => Ok((place, bytes, is_new)),
            Err(error) => {
                self.give_back(fingerprint, place);
                Err(error.to_string())
            }
        }
    }

    fn give_back(&mut self, fingerprint: &Fingerprint, place: Place) {
        if let Some(pool) = self.pools.get_mut(fingerprint) {
            pool.release(place);
            pool.trim(&self.dir, place.file);
        }
    }

    /// Makes the slots durable, then their rows visible.
    fn commit<P>(
        &mut self,
        fingerprint: &Fingerprint,
        blocks: &[(Block, P)],
        written: &[Written],
        new_file: bool,
    ) -> Result<(), String> {
        let pool = self.pools.get(fingerprint).ok_or("the pool is not open")?;
        let files: BTreeSet<FileId> = written.iter().map(|written| written.place.file).collect();
        let synced = files
            .into_iter()
            .try_for_each(|file| pool.sync(&self.dir, file));
        let synced = synced.and_then(|()| {
            if new_file {
                file::sync_dir(&self.dir)
            } else {
                Ok(())
            }
        });
        synced.map_err(|error| error.to_string())?;

        let rows: Vec<NewRow> = (self.next_seq..)
            .zip(written)
            .map(|(seq, written)| NewRow {
                block: &blocks[written.at].0,
                place: written.place,
                seq,
            })
            .collect();
        let index = self.index.as_mut().ok_or("there is no index")?;
        if let Err(error) = index.insert(pool.key, self.tick, &rows) {
            self.index_failed("note blocks", &error);
            return Err(error.to_string());
        }
        for NewRow { block, place, seq } in rows {
            self.adopt(*fingerprint, block.clone(), place, self.tick, seq);
        }
        Ok(())
    }

    /// Drops the partial tails that the new block holds and continues; their refs are now its own.
    fn drop_superseded(&mut self, block: &Block) {
        let Some(entry) = self.entries.get(&block.id) else {
            return;
        };
        let siblings = match block.parent {
            Some(parent) => self.entries.get(&parent).map(|parent| &parent.children),
            None => self.pools.get(&entry.fingerprint).map(|pool| &pool.roots),
        };
        let superseded: Vec<BlockId> = siblings
            .into_iter()
            .flatten()
            .filter(|id| **id != block.id && !self.pinned.contains(id))
            .filter(|id| {
                self.entries
                    .get(id)
                    .is_some_and(|sibling| block.tokens.starts_with(&sibling.block.tokens))
            })
            .copied()
            .collect();
        if !superseded.is_empty() {
            self.remove(&superseded, Some(block.id));
        }
    }
}
