//! The cache: KV blocks as slots of pool files, beside an index. Everything in its folder may be deleted while no process
//! uses it, and nothing in it is trusted: a block is handed out only after its header and checksums are compared. Under a
//! [`Seal`] what is written is encrypted; what is not yet as the seal says is rewritten in small steps (`rewrite`).
//!
//! The index in memory decides; `index.db` lets the next process start from it. Order of writes, on which a crash at any
//! point relies: slot bytes, fdatasync, index row; and to drop a block: index row, then the slot. A row that outlives its slot
//! (a power cut may undo the last rows) meets the header of another block and is a miss.
//!
//! Not here: what a block's bytes mean, when to save or restore, and whose threads: one caller at a time, but for reading,
//! which goes on beside it ([`ReadPlan`]).

mod budget;
mod evict;
mod gc;
mod index;
mod load;
mod pool;
mod put;
mod read;
mod rewrite;
mod slot;
mod stats;
mod types;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use index::Index;
use pool::{Place, Pool};

use crate::key::{Seal, form_of};

pub use read::{ReadOutcome, ReadPlan};
pub use types::*;

/// An open block store. Opening never fails: what cannot be read is emptied, what cannot be used stays a miss.
#[derive(Debug)]
pub struct BlockStore {
    dir: PathBuf,
    budget_bytes: u64,
    /// None if blocks are kept as they are.
    seal: Option<Seal>,
    /// None if the folder cannot be used at all: everything is a miss.
    index: Option<Index>,
    pools: HashMap<Fingerprint, Pool>,
    entries: HashMap<BlockId, Entry>,
    refs: HashMap<(String, Fingerprint), BlockId>,
    pinned: HashSet<BlockId>,
    /// The highest tick seen: what is put counts as used now.
    tick: u64,
    /// Numbers blocks by the order in which they were put.
    next_seq: u64,
    /// Counts how often the store was emptied, so that work in progress notices.
    epoch: u64,
}

/// A block in the store.
#[derive(Debug)]
struct Entry {
    fingerprint: Fingerprint,
    block: Block,
    place: Place,
    used: u64,
    seq: u64,
    children: Vec<BlockId>,
}

impl BlockStore {
    /// Opens the store in `dir`, and brings it under the budget. Its blocks are plain.
    pub fn open(dir: &Path, budget: Budget) -> BlockStore {
        Self::open_under(dir, budget, None)
    }

    /// As `open`, with blocks kept as `seal` says.
    pub fn open_under(dir: &Path, budget: Budget, seal: Option<Seal>) -> BlockStore {
        let mut store = BlockStore {
            dir: dir.to_owned(),
            budget_bytes: 0,
            seal,
            index: None,
            pools: HashMap::new(),
            entries: HashMap::new(),
            refs: HashMap::new(),
            pinned: HashSet::new(),
            tick: 0,
            next_seq: 0,
            epoch: 0,
        };
        store.load();
        store.budget_bytes = budget::bytes(budget, dir);
        store.settle(&HashSet::new());
        store
    }

    /// Takes another budget, and brings the store under it.
    pub fn set_budget(&mut self, budget: Budget) {
        self.budget_bytes = budget::bytes(budget, &self.dir);
        self.settle(&HashSet::new());
    }

    /// Free space of the disk it is on, in bytes; `None` where the system does not say.
    pub fn free_bytes(&self) -> Option<u64> {
        fs4::available_space(&self.dir).ok()
    }

    /// Makes a fingerprint's blocks usable in this run. False if the store cannot hold such blocks.
    pub fn open_pool(
        &mut self,
        fingerprint: &Fingerprint,
        format: SlotFormat,
        label: &str,
    ) -> bool {
        if !format.is_sound() {
            tracing::warn!(?format, "blocks of this shape are not saved");
            return false;
        }
        if format.slot_bytes(form_of(self.seal.as_ref())) > self.budget_bytes {
            tracing::info!(self.budget_bytes, "no block fits into the budget");
            return false;
        }
        if self
            .pools
            .get(fingerprint)
            .is_some_and(|pool| pool.format != format)
        {
            tracing::warn!(
                ?fingerprint,
                "the shape of the blocks has changed; dropping them"
            );
            let ids = self
                .blocks(fingerprint)
                .into_iter()
                .map(|block| block.id)
                .collect::<Vec<_>>();
            self.remove(&ids, None);
        }
        let Some(index) = &self.index else {
            return false;
        };
        match index.write_pool(fingerprint, format, label) {
            Ok(key) => {
                let seal = self.seal.clone();
                let pool = self
                    .pools
                    .entry(*fingerprint)
                    .or_insert_with(|| Pool::new(key, *fingerprint, format, String::new(), seal));
                (pool.key, pool.format, pool.label, pool.known) =
                    (key, format, label.to_owned(), true);
                true
            }
            Err(error) => {
                self.index_failed("open a pool", &error);
                self.pools.get(fingerprint).is_some_and(|pool| pool.known)
            }
        }
    }

    /// What the store holds for a fingerprint, parents before their children.
    pub fn blocks(&self, fingerprint: &Fingerprint) -> Vec<Block> {
        let mut entries: Vec<&Entry> = self
            .entries
            .values()
            .filter(|entry| entry.fingerprint == *fingerprint)
            .collect();
        entries.sort_by_key(|entry| (entry.block.position, entry.seq));
        entries
            .into_iter()
            .map(|entry| entry.block.clone())
            .collect()
    }

    /// Drops a block and everything that hangs below it.
    pub fn drop_block(&mut self, fingerprint: &Fingerprint, id: &BlockId) {
        if self
            .entries
            .get(id)
            .is_some_and(|entry| entry.fingerprint == *fingerprint)
        {
            let ids = self.subtree(*id);
            self.remove(&ids, None);
        }
    }

    /// Notes that blocks were used at `tick`, a number that never falls.
    pub fn touch(&mut self, fingerprint: &Fingerprint, ids: &[BlockId], tick: u64) {
        // The index keeps ticks as signed numbers.
        let tick = tick.min(i64::MAX as u64);
        self.tick = self.tick.max(tick);
        let mut touched = Vec::new();
        for id in ids {
            if let Some(entry) = self
                .entries
                .get_mut(id)
                .filter(|entry| entry.fingerprint == *fingerprint)
            {
                entry.used = tick;
                touched.push(*id);
            }
        }
        let written = self
            .index
            .as_mut()
            .map_or(Ok(()), |index| index.touch(&touched, tick));
        if let Err(error) = written {
            self.index_failed("note a use", &error);
        }
        self.settle(&HashSet::new());
    }

    /// Protects blocks, and with them the chains they end, from eviction. Replaces what was pinned before.
    pub fn pin(&mut self, ids: &[BlockId]) {
        // A block with children is never evicted, so the chain above a pinned block needs no pin of its own.
        self.pinned = ids.iter().copied().collect();
    }

    /// Empties the store. Opened pools stay open.
    pub fn clear(&mut self) {
        self.empty();
    }

    /// The block and all blocks below it.
    fn subtree(&self, id: BlockId) -> Vec<BlockId> {
        let mut ids = vec![id];
        let mut next = 0;
        while let Some(entry) = ids.get(next).and_then(|id| self.entries.get(id)) {
            ids.extend_from_slice(&entry.children);
            next += 1;
        }
        ids
    }

    /// Removes blocks, with which goes everything below them: rows, then slots. Refs move to `heir` or else to the nearest
    /// block above that stays.
    fn remove(&mut self, ids: &[BlockId], heir: Option<BlockId>) {
        let gone: HashSet<BlockId> = ids.iter().copied().collect();
        let moved = self.move_refs(&gone, heir);
        let written = self
            .index
            .as_mut()
            .map_or(Ok(()), |index| index.remove(ids, &moved));
        let mut files = HashSet::new();
        for id in ids {
            let Some(entry) = self.entries.remove(id) else {
                continue;
            };
            let Some(pool) = self.pools.get_mut(&entry.fingerprint) else {
                continue;
            };
            let siblings = match entry.block.parent {
                Some(parent) => self
                    .entries
                    .get_mut(&parent)
                    .map(|parent| &mut parent.children),
                None => Some(&mut pool.roots),
            };
            if let Some(siblings) = siblings {
                siblings.retain(|sibling| sibling != id);
            }
            pool.release(entry.place);
            files.insert((entry.fingerprint, entry.place.file));
        }
        for (fingerprint, file) in files {
            self.pools[&fingerprint].trim(&self.dir, file);
        }
        if let Err(error) = written {
            // Rows that stay behind meet a slot of another block, or none, and are misses in the next run.
            self.index_failed("remove blocks", &error);
        }
    }

    /// Takes a block into memory; its parent is there.
    fn adopt(&mut self, fingerprint: Fingerprint, block: Block, place: Place, used: u64, seq: u64) {
        let siblings = match block.parent {
            Some(parent) => self
                .entries
                .get_mut(&parent)
                .map(|parent| &mut parent.children),
            None => self.pools.get_mut(&fingerprint).map(|pool| &mut pool.roots),
        };
        if let Some(siblings) = siblings {
            siblings.push(block.id);
        }
        self.next_seq = self.next_seq.max(seq + 1);
        self.entries.insert(
            block.id,
            Entry {
                fingerprint,
                block,
                place,
                used,
                seq,
                children: Vec::new(),
            },
        );
    }

    /// Logs a failure of the index; a damaged one is emptied together with the pools, the others cost what was asked.
    fn index_failed(&mut self, what: &str, error: &rusqlite::Error) {
        tracing::warn!(dir = %self.dir.display(), %error, "the block index failed to {what}");
        if index::is_corrupt(error) {
            self.empty();
        }
    }
}
