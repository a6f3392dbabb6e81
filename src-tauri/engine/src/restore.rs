//! Bringing blocks from disk into the pool, some at a time.
//!
//! A block becomes visible only when all of it is there and was found to be itself. The first one that is not ends the
//! chain: it is forgotten, and the slots that were meant for it and what follows are free again.

use std::time::Instant;

use kernels::BLOCK_TOKENS;
use store::{Block, BlockId, ReadPlan};

use crate::Result;
use crate::cache::Cache;
use crate::pins::Evict;
use crate::tree::{Match, Saved};
use crate::writer::lock;

/// Bytes that warming reads in one go: enough to keep the disk busy, little enough for a waiting turn to wait for.
const RESTORE_BYTES: usize = 16 << 20;

impl Cache {
    /// Blocks that warming restores in one go.
    pub(crate) fn blocks_per_restore(&self) -> usize {
        (RESTORE_BYTES / self.pool.kv().layout().slot_bytes()).max(1)
    }

    /// Holds the slots of blocks that follow each other in one chain, restoring what is on disk only: one reference to
    /// each, in order, which the caller releases. `None` when a block could not be had: it is then forgotten, those
    /// before it are resident, and nothing is held.
    ///
    /// # Errors
    /// When there is no room in the pool, or the device fails; nothing is held then.
    pub(crate) fn hold(&mut self, ids: &[BlockId], evict: Evict) -> Result<Option<Vec<u32>>> {
        let is_on_its_way = |cache: &Self, id| {
            let node = cache.tree.get(id);
            node.is_some_and(|node| node.slot.is_none() && node.saved == Saved::Queued)
        };
        if ids.iter().any(|id| is_on_its_way(self, id)) {
            self.wait_for_writer();
        }
        // What is resident is held first, so that restoring the rest cannot evict it.
        let mut held: Vec<u32> = ids.iter().filter_map(|id| self.slot_of(id)).collect();
        held.iter().for_each(|slot| self.pool.retain(*slot));
        let missing: Vec<BlockId> = ids
            .iter()
            .copied()
            .filter(|id| self.slot_of(id).is_none())
            .collect();
        // All at once: who holds blocks waits for all of them.
        let restored = self.restore(&missing, evict);
        let is_whole = matches!(&restored, Ok(slots) if slots.len() == missing.len());
        held.extend(restored.as_ref().map_or(&[][..], Vec::as_slice));
        if !is_whole {
            held.iter().for_each(|slot| self.pool.release(*slot));
            return restored.map(|_| None);
        }
        Ok(Some(ids.iter().filter_map(|id| self.slot_of(id)).collect()))
    }

    /// Gives up the end of a match that is on disk only where computing it is sooner than reading it. Returns how many
    /// tokens that are.
    pub(crate) fn give_up_slow_end(&self, found: &mut Match) -> usize {
        let ids: Vec<BlockId> = found.blocks().collect();
        let is_resident = |id: &BlockId| self.slot_of(id).is_some();
        let first = ids.iter().take_while(|id| is_resident(id)).count();
        // What is resident behind it would be lost for nothing.
        if first == ids.len() || ids[first..].iter().any(is_resident) {
            return 0;
        }
        let num_tokens = found.num_tokens() - first * BLOCK_TOKENS;
        let slot_bytes = self.pool.kv().layout().slot_bytes();
        let num_bytes = (ids.len() - first) * slot_bytes;
        if !self.rates.prefer_computing(num_tokens, num_bytes as u64) {
            return 0;
        }
        found.full.truncate(first);
        found.partial = None;
        num_tokens
    }

    /// Restores blocks of one chain, none of which is resident: the slots of those that could be had, from the first
    /// on, with one reference each for the caller beside the tree's.
    fn restore(&mut self, ids: &[BlockId], evict: Evict) -> Result<Vec<u32>> {
        let start = Instant::now();
        let blocks: Vec<Block> = ids
            .iter()
            .map_while(|id| self.tree.get(id).map(|node| node.block.clone()))
            .collect();
        let plan = lock(self.store()).plan(&self.fingerprint, &blocks);
        let mut slots = Vec::with_capacity(ids.len());
        let read = match &plan {
            None => Ok(0),
            Some(plan) => self.read(plan, evict, &mut slots),
        };
        let num_good = *read.as_ref().unwrap_or(&0);
        slots
            .drain(num_good..)
            .for_each(|slot| self.pool.release(slot));
        read?;
        let ms_each = start.elapsed().as_secs_f64() * 1e3 / num_good.max(1) as f64;
        for (id, slot) in ids.iter().zip(&slots) {
            let node = self.tree.get_mut(id).expect("a saved block is in the tree");
            node.slot = Some(*slot);
            node.restored_ms = Some(ms_each);
            self.pool.retain(*slot);
        }
        if let Some(lost) = ids.get(num_good) {
            self.tree.forget_saved(lost);
        }
        Ok(slots)
    }

    /// Allocates a slot for each planned block, reads them, and returns how many are good.
    fn read(&mut self, plan: &ReadPlan, evict: Evict, slots: &mut Vec<u32>) -> Result<usize> {
        for _ in 0..plan.num_blocks() {
            slots.push(self.allocate(evict)?);
        }
        let start = Instant::now();
        let mut outcome = None;
        self.pool.kv_mut().fill(slots, |out| {
            let ended = plan.run(out);
            let num_good = ended.num_good;
            outcome = Some(ended);
            num_good
        })?;
        let Some(outcome) = outcome else {
            return Ok(0);
        };
        if outcome.num_good == plan.num_blocks() {
            self.rates.read(plan.num_bytes(), start.elapsed());
        }
        lock(self.store()).drop_unreadable(plan, &outcome);
        Ok(outcome.num_good)
    }

    fn slot_of(&self, id: &BlockId) -> Option<u32> {
        self.tree.get(id).and_then(|node| node.slot)
    }
}
