//! Holding the blocks of a match: each in a slot of the working pool that cannot go, brought there where it is not.

use store::BlockId;

use crate::Result;
use crate::cache::Cache;
use crate::pins::Evict;
use crate::restore::Restore;
use crate::tree::{Match, Saved};

/// Bytes that warming brings in one go: enough to keep the disk busy, little enough for a waiting turn to wait for.
const RESTORE_BYTES: usize = 16 << 20;

/// One reference to the slot of each block of a chain, in order.
pub(crate) struct Held {
    pub(crate) table: Vec<u32>,
    /// What is yet to be read of them.
    pub(crate) restore: Option<Restore>,
}

impl Held {
    fn read(table: Vec<u32>) -> Self {
        Self {
            table,
            restore: None,
        }
    }
}

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
        let Held { table, restore } = self.hold_unread(ids, evict)?;
        match restore.map_or(Ok(true), |restore| self.bring(restore)) {
            Ok(true) => Ok(Some(table)),
            failed => {
                self.release(&table);
                failed.map(|_| None)
            }
        }
    }

    /// As `hold`, for who computes on what follows the match at once: where that can go on beside reading, whole blocks of
    /// it are still to be read. The partly matching one is there, since it is copied first.
    ///
    /// # Errors
    /// As `hold`.
    pub(crate) fn hold_match(&mut self, found: &Match, evict: Evict) -> Result<Option<Held>> {
        let is_missing = |id: &BlockId| self.slot_of(id).is_none();
        if !self.reading.is_beside || !found.full.iter().any(is_missing) {
            let ids: Vec<BlockId> = found.blocks().collect();
            let table = self.hold(&ids, evict)?;
            return Ok(table.map(Held::read));
        }
        let partial: Vec<BlockId> = found.partial.iter().map(|(id, _)| *id).collect();
        let Some(copied) = self.hold(&partial, evict)? else {
            return Ok(None);
        };
        let held = self.hold_unread(&found.full, evict);
        let mut held = held.inspect_err(|_| self.release(&copied))?;
        held.table.extend(copied);
        // What the store has not is known before anything is read.
        if let Some(short) = held.restore.take_if(|restore| restore.is_short()) {
            let brought = self.bring(short);
            self.release(&held.table);
            return brought.map(|_| None);
        }
        Ok(Some(held))
    }

    /// Holds the slots of blocks of one chain: those of blocks that are not resident are yet to be filled, and missing from the first
    /// on that is nowhere.
    fn hold_unread(&mut self, ids: &[BlockId], evict: Evict) -> Result<Held> {
        let is_on_its_way = |cache: &Self, id| {
            let node = cache.tree.get(id);
            node.is_some_and(|node| !node.is_in_memory() && node.saved == Saved::Queued)
        };
        if ids.iter().any(|id| is_on_its_way(self, id)) {
            self.wait_for_writer();
        }
        // What is resident is held first, so that room for the rest is not made of it.
        let resident: Vec<u32> = ids.iter().filter_map(|id| self.slot_of(id)).collect();
        resident.iter().for_each(|slot| self.pool.retain(*slot));
        let is_missing = |id: &&BlockId| self.slot_of(id).is_none();
        let missing: Vec<BlockId> = ids.iter().filter(is_missing).copied().collect();
        if missing.is_empty() {
            return Ok(Held::read(resident));
        }
        // All at once: who holds blocks waits for all of them.
        let restore = self.prepare(missing, evict);
        let restore = restore.inspect_err(|_| self.release(&resident))?;
        let mut unread = restore.slots.iter().copied();
        let slots = ids
            .iter()
            .map(|id| self.slot_of(id).or_else(|| unread.next()));
        Ok(Held {
            table: slots.flatten().collect(),
            restore: Some(restore),
        })
    }

    /// Drops one reference to each slot.
    pub(crate) fn release(&mut self, slots: &[u32]) {
        slots.iter().for_each(|slot| self.pool.release(*slot));
    }

    /// The slot of a resident block.
    pub(crate) fn slot_of(&self, id: &BlockId) -> Option<u32> {
        self.tree.get(id).and_then(|node| node.slot)
    }
}
