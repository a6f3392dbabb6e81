//! Bringing blocks into the pool, some at a time: from the host tier, and those that are not there from disk.
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

use crate::cache::Cache;
use crate::pins::Evict;
use crate::pool::BlockPool;
use crate::tree::{Match, Node};
use crate::writer::lock;
use crate::{Error, Result};

/// How blocks are read.
pub(crate) struct Reading {
    layers_per_read: usize,
    /// Whether what follows them is computed meanwhile.
    pub(crate) is_beside: bool,
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

    /// Tells that a part is about to be handed over.
    fn tell(&self) {
        if let Some(told) = &self.told {
            told();
        }
    }
}

/// Blocks of one chain that are to be brought into slots that somebody holds. Give it to `Cache::bring`, `bring_beside` or `leave`.
pub(crate) struct Restore {
    /// None of them is resident.
    pub(crate) ids: Vec<BlockId>,
    /// Fewer than the blocks if the store has not all of them.
    pub(crate) slots: Vec<u32>,
    /// For each slot, where in the host tier its block is, one reference to it; it is on disk otherwise.
    in_host: Vec<Option<u32>>,
    /// For those on disk.
    plan: Option<ReadPlan>,
    /// How long it took to plan and make room.
    prepared: Duration,
}

/// What came of a [`Restore`].
struct Brought {
    /// Blocks that are whole, from the first on.
    num_good: usize,
    outcome: Option<ReadOutcome>,
    time: Duration,
}

impl Restore {
    /// Whether the store has not all blocks.
    pub(crate) fn is_short(&self) -> bool {
        self.slots.len() < self.ids.len()
    }

    /// Fills the parts of the slots: those of blocks in `host` first, layer by layer, since they come as fast as memory is copied.
    fn run(
        &self,
        reading: &Reading,
        host: Option<&KvPool>,
        parts: Vec<Vec<Part<'_>>>,
    ) -> kernels::Result<Brought> {
        let start = Instant::now();
        let mut from_host = Vec::new();
        let mut from_disk = Vec::new();
        for (parts, in_host) in parts.into_iter().zip(&self.in_host) {
            match in_host.zip(host) {
                Some((slot, host)) => from_host.push((slot, host, parts.into_iter())),
                None => from_disk.push(parts),
            }
        }
        let mut is_left = true;
        while std::mem::take(&mut is_left) {
            for (slot, host, parts) in &mut from_host {
                if let Some(part) = parts.next() {
                    is_left = true;
                    reading.tell();
                    part.take(host, *slot)?;
                }
            }
        }
        let outcome = self.plan.as_ref().map(|plan| {
            plan.run(from_disk, reading.layers_per_read, |part| {
                reading.tell();
                part.ready();
            })
        });
        let mut left = outcome.as_ref().map_or(0, |outcome| outcome.num_good);
        let mut is_good = |in_host: &Option<u32>| {
            let is_read = in_host.is_none() && left > 0;
            left -= usize::from(is_read);
            in_host.is_some() || is_read
        };
        Ok(Brought {
            num_good: self.in_host.iter().take_while(|it| is_good(it)).count(),
            outcome,
            time: start.elapsed(),
        })
    }
}

impl Cache {
    /// Gives up the end of a match that is on disk only where computing it is sooner than reading it. Returns how many
    /// tokens that are.
    pub(crate) fn give_up_slow_end(&self, found: &mut Match) -> usize {
        let ids: Vec<BlockId> = found.blocks().collect();
        let is_in_memory = |id: &BlockId| self.tree.get(id).is_some_and(Node::is_in_memory);
        let first = ids.iter().take_while(|id| is_in_memory(id)).count();
        // What is in memory behind it would be lost for nothing.
        if first == ids.len() || ids[first..].iter().any(is_in_memory) {
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

    /// Finds out where blocks are that are not resident, and allocates a slot for each that is somewhere, up to the first
    /// that is not: one reference to each, which is the caller's.
    pub(crate) fn prepare(&mut self, ids: Vec<BlockId>, evict: Evict) -> Result<Restore> {
        let start = Instant::now();
        let node = |id: &BlockId| self.tree.get(id);
        let mut in_host: Vec<Option<u32>> = ids
            .iter()
            .map(|id| node(id).and_then(|node| node.host))
            .collect();
        let on_disk = ids
            .iter()
            .zip(&in_host)
            .filter(|(_, in_host)| in_host.is_none());
        let blocks: Vec<Block> = on_disk
            .map_while(|(id, _)| node(id).map(|node| node.block.clone()))
            .collect();
        let plan = match blocks.is_empty() {
            true => None,
            false => lock(self.store()).plan(&self.fingerprint, &blocks),
        };
        let num_planned = plan.as_ref().map_or(0, ReadPlan::num_blocks);
        let mut on_disk = in_host.iter().enumerate().filter(|(_, it)| it.is_none());
        let num_blocks = on_disk.nth(num_planned).map_or(ids.len(), |(at, _)| at);
        in_host.truncate(num_blocks);
        // Held first, so that room for them is not made of them.
        if let Some(host) = &mut self.host {
            in_host.iter().flatten().for_each(|slot| host.retain(*slot));
        }
        let mut restore = Restore {
            ids,
            slots: Vec::with_capacity(num_blocks),
            in_host,
            plan,
            prepared: Duration::ZERO,
        };
        while restore.slots.len() < num_blocks {
            match self.allocate(evict) {
                Ok(slot) => restore.slots.push(slot),
                Err(error) => {
                    self.release(&restore.slots);
                    self.leave(restore);
                    return Err(error);
                }
            }
        }
        restore.prepared = start.elapsed();
        Ok(restore)
    }

    /// Fills the slots, and makes those blocks visible that are whole. Whether all are; the first that is not is forgotten.
    ///
    /// # Errors
    /// When the device fails.
    pub(crate) fn bring(&mut self, restore: Restore) -> Result<bool> {
        let (kv, reading) = (self.pool.kv(), &self.reading);
        let host = self.host.as_ref().map(BlockPool::kv);
        let filled = kv.fill(&restore.slots, reading.layers_per_read, |parts| {
            restore.run(reading, host, parts)
        });
        let brought = filled.and_then(|brought| brought);
        if let (Ok(brought), Some(plan)) = (&brought, &restore.plan)
            && plan.num_blocks() == restore.ids.len()
            && brought.num_good == restore.ids.len()
        {
            self.rates.read(plan.num_bytes(), brought.time);
        }
        self.take_over(restore, brought)
    }

    /// As `bring`, on other threads while `beside` runs: a forward pass over these slots waits in each layer until the layer
    /// is there. What it gives is right only if all blocks are. How long reading took says nothing of the disk then.
    ///
    /// # Errors
    /// As `bring`; nothing has run then.
    pub(crate) fn bring_beside<T>(
        &mut self,
        restore: Restore,
        beside: impl FnOnce(&Model, &KvPool) -> T,
    ) -> Result<(bool, T)> {
        let (kv, reading, model) = (self.pool.kv(), &self.reading, self.model());
        let host = self.host.as_ref().map(BlockPool::kv);
        let filled = kv.fill(&restore.slots, reading.layers_per_read, |parts| {
            let parts = Mutex::new(parts);
            let take =
                || std::mem::take(&mut *parts.lock().unwrap_or_else(PoisonError::into_inner));
            let run = || restore.run(reading, host, take());
            std::thread::scope(|scope| {
                let reader = std::thread::Builder::new().name("restore".into());
                match reader.spawn_scoped(scope, run) {
                    Ok(reader) => {
                        let given = beside(model, kv);
                        (reader.join(), given)
                    }
                    // No thread to be had: one after the other.
                    Err(_) => (Ok(run()), beside(model, kv)),
                }
            })
        });
        let (brought, given) = match filled {
            Ok((Ok(brought), given)) => (brought, Some(given)),
            Ok((Err(panic), _)) => std::panic::resume_unwind(panic),
            Err(error) => (Err(error), None),
        };
        let is_whole = self.take_over(restore, brought)?;
        let given = given.ok_or_else(|| Error::Corrupt("slots were filled beside nothing".into()));
        Ok((is_whole, given?))
    }

    /// Makes the blocks visible that are whole, and forgets the one after them. Whether that were all.
    fn take_over(&mut self, restore: Restore, brought: kernels::Result<Brought>) -> Result<bool> {
        let outcome = brought.map(|brought| {
            if let (Some(plan), Some(outcome)) = (&restore.plan, &brought.outcome) {
                lock(self.store()).drop_unreadable(plan, outcome);
            }
            let num_good = brought.num_good;
            let ms = (restore.prepared + brought.time).as_secs_f64() * 1e3;
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
        });
        self.leave(restore);
        Ok(outcome?)
    }

    /// Gives up what was to be brought; its slots are still held by who holds them.
    pub(crate) fn leave(&mut self, restore: Restore) {
        if let Some(host) = &mut self.host {
            let held = restore.in_host.into_iter().flatten();
            held.for_each(|slot| host.release(slot));
        }
    }

    /// Brings blocks in parts of so many layers, beside computing whatever cores there are, and calls `told` before each part is handed
    /// over, on the thread that brings it; for tests of what goes on beside reading.
    pub fn read_in_parts(&mut self, num_layers: usize, told: impl Fn() + Send + Sync + 'static) {
        self.reading = Reading {
            layers_per_read: num_layers.max(1),
            is_beside: true,
            told: Some(Box::new(told)),
        };
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
