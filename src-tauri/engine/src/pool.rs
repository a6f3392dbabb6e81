//! The block pool: equal slots of device memory with reference counts.
//!
//! A slot is free, or owned by the prefix tree, by block tables, or by both. The pool knows nothing of tokens. Memory is
//! asked of the system chunk by chunk as slots are needed, and a chunk whose slots are all free is given back.

use std::collections::BTreeSet;

use kernels::KvPool;

use crate::{Error, Result};

/// Slots of one [`KvPool`] with a reference count each; a slot whose count is zero is free.
#[derive(Debug)]
pub struct BlockPool {
    kv: KvPool,
    refs: Vec<u32>,
    /// In order: low slots are taken first, so that those in use share chunks.
    free: BTreeSet<u32>,
    /// Slots, from the first on, whose memory is never given back while the pool lives.
    num_reserved: usize,
    /// Allocations that still succeed; for tests of what happens when one does not.
    allocations_left: Option<u32>,
}

impl BlockPool {
    /// A pool of free slots, which has no memory yet.
    pub fn new(kv: KvPool) -> Self {
        let num_slots = kv.num_slots();
        Self {
            kv,
            refs: vec![0; num_slots],
            free: (0..num_slots as u32).collect(),
            num_reserved: 0,
            allocations_left: None,
        }
    }

    /// The memory behind the slots, for the kernels.
    pub fn kv(&self) -> &KvPool {
        &self.kv
    }

    /// Slots in all.
    pub fn num_slots(&self) -> usize {
        self.refs.len()
    }

    /// Takes a free slot with one reference, or `None` when all are held. What the slot holds is of no meaning.
    ///
    /// # Errors
    /// When the system gives no memory for it; the pool is then as before.
    pub fn allocate(&mut self) -> Result<Option<u32>> {
        let has_memory = |slot: &&u32| self.kv.is_reserved(**slot);
        let next = self.free.iter().find(has_memory).or(self.free.first());
        let Some(&slot) = next else {
            return Ok(None);
        };
        if let Some(left) = &mut self.allocations_left {
            let bytes = self.kv.layout().slot_bytes();
            *left = left
                .checked_sub(1)
                .ok_or(kernels::Error::Memory { bytes })?;
        }
        self.kv.reserve(slot)?;
        self.free.remove(&slot);
        self.refs[slot as usize] = 1;
        Ok(Some(slot))
    }

    /// Takes the memory of the first `num_slots` slots now, every page of it, and keeps it: what is allocated of them later
    /// cannot fail for memory.
    ///
    /// # Errors
    /// When the system does not give it all, or there are no such slots.
    pub fn reserve(&mut self, num_slots: usize) -> Result<()> {
        for slot in 0..num_slots as u32 {
            self.kv.reserve(slot)?;
            // The system gives a page when it is first written. Held slots have theirs.
            if self.free.contains(&slot) {
                self.kv.clear_slot(slot)?;
            }
        }
        self.num_reserved = self.num_reserved.max(num_slots);
        Ok(())
    }

    /// Slots whose memory was taken in advance.
    pub fn num_reserved(&self) -> usize {
        self.num_reserved
    }

    /// Lets allocations fail once so many have succeeded, as when the system has no more memory; `None` ends that.
    pub fn fail_after(&mut self, allocations: Option<u32>) {
        self.allocations_left = allocations;
    }

    /// Slots that are held.
    pub fn num_held(&self) -> usize {
        self.refs.len() - self.free.len()
    }

    /// Adds a holder to a slot that is already held.
    pub fn retain(&mut self, slot: u32) {
        debug_assert!(self.refs[slot as usize] > 0, "retained a free slot");
        self.refs[slot as usize] += 1;
    }

    /// Drops one holder; the last one frees the slot.
    pub fn release(&mut self, slot: u32) {
        let refs = &mut self.refs[slot as usize];
        debug_assert!(*refs > 0, "released a free slot");
        *refs = refs.saturating_sub(1);
        if *refs == 0 {
            self.free.insert(slot);
            self.give_back_chunk_of(slot);
        }
    }

    /// Gives a chunk back when none of its slots is held and free slots with memory remain elsewhere, so that a turn that
    /// comes and goes does not ask for the same memory again and again.
    fn give_back_chunk_of(&mut self, slot: u32) {
        let per_chunk = self.kv.slots_per_chunk();
        let chunk = slot as usize / per_chunk;
        if chunk * per_chunk < self.num_reserved {
            return;
        }
        let slots = chunk * per_chunk..self.refs.len().min((chunk + 1) * per_chunk);
        if self.refs[slots.clone()].iter().any(|&refs| refs > 0) {
            return;
        }
        let is_spare =
            |slot: &u32| !slots.contains(&(*slot as usize)) && self.kv.is_reserved(*slot);
        if self.free.iter().any(is_spare) {
            self.kv.give_back(chunk);
        }
    }

    /// Whether the slot has more than one holder.
    pub fn is_shared(&self, slot: u32) -> bool {
        self.refs[slot as usize] > 1
    }

    /// Checks that free and held slots make up the pool and that every count equals `expected` (slot → holders).
    ///
    /// # Errors
    /// [`Error::Corrupt`] naming the first slot that differs.
    pub fn check(&self, expected: &[u32]) -> Result<()> {
        let held = self.refs.iter().filter(|&&refs| refs > 0).count();
        if held + self.free.len() != self.refs.len() {
            return Err(Error::Corrupt(format!(
                "{held} slots held and {} free do not make {}",
                self.free.len(),
                self.refs.len()
            )));
        }
        match (0..self.refs.len()).find(|&slot| self.refs[slot] != expected[slot]) {
            None => Ok(()),
            Some(slot) => Err(Error::Corrupt(format!(
                "slot {slot} counts {} holders and has {}",
                self.refs[slot], expected[slot]
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use kernels::{KvFormat, KvLayout, KvPool};

    use super::BlockPool;

    /// Slots of 8 MiB, two to a chunk.
    fn pool(num_slots: usize) -> BlockPool {
        let layout = KvLayout {
            num_layers: 16,
            num_kv_heads: 16,
            head_dim: 128,
            format: KvFormat::F16,
        };
        assert_eq!(layout.slot_bytes(), 8 << 20);
        BlockPool::new(KvPool::new(layout, num_slots).unwrap())
    }

    #[test]
    fn what_is_reserved_is_there_at_once_and_stays() {
        let mut pool = pool(6);
        pool.reserve(3).unwrap();
        let reserved = pool.kv().reserved_bytes();
        assert_eq!(reserved, 4 * (8 << 20), "whole chunks");
        let slots: Vec<u32> = (0..6).map(|_| pool.allocate().unwrap().unwrap()).collect();
        assert_eq!(pool.kv().reserved_bytes(), 6 * (8 << 20));
        slots.into_iter().for_each(|slot| pool.release(slot));
        assert_eq!(pool.kv().reserved_bytes(), reserved, "and no more stays");
    }

    #[test]
    fn what_is_not_there_cannot_be_reserved() {
        assert!(pool(2).reserve(3).is_err());
    }
}
