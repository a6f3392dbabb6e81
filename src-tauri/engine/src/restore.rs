//! Bringing blocks from disk into the pool, some at a time.
//!
//! A block becomes visible only when all of it is there and was found to be itself. The first one that is not ends the
//! chain: it is forgotten, and the slots that were meant for it and what follows are free again.
//!
//! Where a block is read in several parts, each some layers, what follows the chain is computed beside reading: a layer
//! waits only for the same layer of the blocks. If one of these turns out bad, what was computed is thrown away.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kernels::{BLOCK_TOKENS, KvPool, Part};
use models::Model;
use store::{Block, BlockId, ReadOutcome, ReadPlan, SlotFormat};

use crate::Result;
use crate::cache::Cache;
use crate::pins::Evict;
use crate::tree::{Match, Saved};
use crate::writer::lock;

/// Bytes that warming reads in one go: enough to keep the disk busy, little enough for a waiting turn to wait for.
const RESTORE_BYTES: usize = 16 << 20;

/// How blocks are read.
pub(crate) struct Reading {
    layers_per_read: usize,
    /// Whether what follows them is computed meanwhile.
    is_beside: bool,
    told: Option<Box<dyn Fn() + Send + Sync>>,
}

impl Reading {
    /// As is best for blocks of a format on that many cores, of which `num_threads` compute. Computing beside reading pays
    /// where a block comes in several parts, unless readers that copy and check take turns with who computes. Measured on two
    /// busy cores, both computing, with a model of 1 B parameters and 2 000 tokens on disk, lower quartiles to the logits: from the
    /// page cache 158 ms beside reading and 155 ms after it; from a disk of 1 GB/s 242 and 206 ms; only from one of
    /// 0.5 GB/s (readers that slept) 245 and 292 ms.
    pub(crate) fn of(format: &SlotFormat, num_threads: usize, num_cores: usize) -> Self {
        let layers_per_read = format.layers_per_read();
        Self {
            layers_per_read,
            is_beside: layers_per_read < format.num_layers as usize && num_threads < num_cores,
            told: None,
        }
    }

    /// One slot after the other, as a whole, before anything is computed: for slots that lie in two memories.
    pub(crate) fn whole(self) -> Self {
        Self {
            is_beside: false,
            ..self
        }
    }

    /// Reads a plan into the parts of its slots, and says how long that took.
    fn run(&self, plan: &ReadPlan, parts: Vec<Vec<Part<'_>>>) -> (ReadOutcome, Duration) {
        let start = Instant::now();
        let outcome = plan.run(parts, self.layers_per_read, |part| {
            if let Some(told) = &self.told {
                told();
            }
            part.ready();
        });
        (outcome, start.elapsed())
    }
}

/// Blocks of one chain that are to be read into slots that somebody holds.
pub(crate) struct Restore {
    /// None of them is resident.
    pub(crate) ids: Vec<BlockId>,
    /// Fewer than the blocks if the store has not all of them.
    slots: Vec<u32>,
    plan: Option<ReadPlan>,
    /// How long it took to plan and make room.
    prepared: Duration,
}

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
        match restore.map_or(Ok(true), |restore| self.read(&restore)) {
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
        let is_short = |restore: &Restore| restore.slots.len() < restore.ids.len();
        if let Some(short) = held.restore.take_if(|restore| is_short(restore)) {
            let read = self.read(&short);
            self.release(&held.table);
            return read.map(|_| None);
        }
        Ok(Some(held))
    }

    /// Holds the slots of blocks of one chain: those of blocks that are on disk only are yet to be read, and missing where the
    /// store has none.
    fn hold_unread(&mut self, ids: &[BlockId], evict: Evict) -> Result<Held> {
        let is_on_its_way = |cache: &Self, id| {
            let node = cache.tree.get(id);
            node.is_some_and(|node| node.slot.is_none() && node.saved == Saved::Queued)
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

    /// Finds out where blocks are that are not resident, and allocates a slot for each that the store has, up to the first
    /// that it has not: one reference to each, which is the caller's.
    fn prepare(&mut self, ids: Vec<BlockId>, evict: Evict) -> Result<Restore> {
        let start = Instant::now();
        let blocks: Vec<Block> = ids
            .iter()
            .map_while(|id| self.tree.get(id).map(|node| node.block.clone()))
            .collect();
        let plan = lock(self.store()).plan(&self.fingerprint, &blocks);
        let num_blocks = plan.as_ref().map_or(0, ReadPlan::num_blocks);
        let mut slots = Vec::with_capacity(num_blocks);
        while slots.len() < num_blocks {
            let slot = self.allocate(evict);
            slots.push(slot.inspect_err(|_| self.release(&slots))?);
        }
        Ok(Restore {
            ids,
            plan,
            slots,
            prepared: start.elapsed(),
        })
    }

    /// Reads the blocks, and makes those visible that are whole. Whether all are; the first that is not is forgotten.
    ///
    /// # Errors
    /// When the device fails.
    pub(crate) fn read(&mut self, restore: &Restore) -> Result<bool> {
        let Some(plan) = &restore.plan else {
            return Ok(self.take_over(restore, 0, Duration::ZERO));
        };
        let (kv, reading) = (self.pool.kv(), &self.reading);
        let read = kv.fill(&restore.slots, reading.layers_per_read, |parts| {
            reading.run(plan, parts)
        });
        let (outcome, time) = read?;
        if outcome.num_good == restore.ids.len() {
            self.rates.read(plan.num_bytes(), time);
        }
        lock(self.store()).drop_unreadable(plan, &outcome);
        Ok(self.take_over(restore, outcome.num_good, time))
    }

    /// As `read`, on other threads while `beside` runs: a forward pass over these slots waits in each layer until the layer
    /// is there. What it gives is right only if all blocks are. How long reading took says nothing of the disk then.
    ///
    /// # Errors
    /// As `read`; nothing has run then.
    pub(crate) fn read_beside<T>(
        &mut self,
        restore: &Restore,
        beside: impl FnOnce(&Model, &KvPool) -> T,
    ) -> Result<(bool, T)> {
        let (kv, reading, model) = (self.pool.kv(), &self.reading, self.model());
        let Some(plan) = &restore.plan else {
            let given = beside(model, kv);
            return Ok((self.take_over(restore, 0, Duration::ZERO), given));
        };
        let read = kv.fill(&restore.slots, reading.layers_per_read, |parts| {
            let parts = Mutex::new(parts);
            let take =
                || std::mem::take(&mut *parts.lock().unwrap_or_else(PoisonError::into_inner));
            let read = || reading.run(plan, take());
            std::thread::scope(|scope| {
                let reader = std::thread::Builder::new().name("restore".into());
                match reader.spawn_scoped(scope, read) {
                    Ok(reader) => {
                        let given = beside(model, kv);
                        (reader.join(), given)
                    }
                    // No thread to be had: one after the other.
                    Err(_) => (Ok(read()), beside(model, kv)),
                }
            })
        });
        let (read, given) = read?;
        let (outcome, time) = read.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        lock(self.store()).drop_unreadable(plan, &outcome);
        let is_whole = self.take_over(restore, outcome.num_good, time);
        Ok((is_whole, given))
    }

    /// Makes the first `num_good` blocks visible and forgets the one after them. Whether that were all.
    fn take_over(&mut self, restore: &Restore, num_good: usize, time: Duration) -> bool {
        let ms = (restore.prepared + time).as_secs_f64() * 1e3;
        for (id, slot) in restore.ids.iter().zip(&restore.slots).take(num_good) {
            let node = self.tree.get_mut(id).expect("a saved block is in the tree");
            node.slot = Some(*slot);
            node.restored_ms = Some(ms / num_good as f64);
            self.pool.retain(*slot);
        }
        if let Some(lost) = restore.ids.get(num_good) {
            self.tree.forget_saved(lost);
        }
        num_good == restore.ids.len()
    }

    /// Drops one reference to each slot.
    fn release(&mut self, slots: &[u32]) {
        slots.iter().for_each(|slot| self.pool.release(*slot));
    }

    /// Reads blocks in parts of so many layers, beside computing whatever cores there are, and calls `told` before each part is handed over, on the thread that read it;
    /// for tests of what goes on beside reading.
    pub fn read_in_parts(&mut self, num_layers: usize, told: impl Fn() + Send + Sync + 'static) {
        self.reading = Reading {
            layers_per_read: num_layers.max(1),
            is_beside: true,
            told: Some(Box::new(told)),
        };
    }

    /// The slot of a resident block.
    pub(crate) fn slot_of(&self, id: &BlockId) -> Option<u32> {
        self.tree.get(id).and_then(|node| node.slot)
    }
}

#[cfg(test)]
mod tests {
    use super::{Reading, SlotFormat};

    #[test]
    fn blocks_are_read_beside_computing_only_where_that_can_pay() {
        let beside = |num_layers, num_threads, num_cores| {
            let format = SlotFormat {
                block_tokens: 64,
                tile_tokens: 16,
                num_layers,
                key_slab_bytes: 64 << 10,
                value_slab_bytes: 64 << 10,
            };
            Reading::of(&format, num_threads, num_cores).is_beside
        };
        // 4 MiB, in four parts; and 1 MiB, in one.
        assert!(beside(32, 1, 2) && beside(32, 4, 8));
        assert!(!beside(32, 2, 2) && !beside(32, 8, 4), "no core is left");
        assert!(!beside(8, 1, 8), "nothing to wait for but all of it");
    }
}
