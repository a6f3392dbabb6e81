//! The block pool: equal slots of device memory with reference counts.
//!
//! A slot is free, or owned by the prefix tree, by block tables, or by both. The pool knows nothing of tokens.

use candle_core::Device;
use kernels::{KvLayout, KvPool};

use crate::{Error, Result};

/// Slots of one [`KvPool`] with a reference count each; a slot whose count is zero is free.
#[derive(Debug)]
pub struct BlockPool {
    kv: KvPool,
    refs: Vec<u32>,
    free: Vec<u32>,
    /// Slots below this were held at some time.
    touched: usize,
}

impl BlockPool {
    /// A pool of `num_slots` free slots on `device`. On the CPU memory is taken only when a slot is first written.
    ///
    /// # Errors
    /// When the device cannot give the memory.
    pub fn new(layout: KvLayout, num_slots: usize, device: &Device) -> Result<Self> {
        Ok(Self {
            kv: KvPool::new(layout, num_slots, device)?,
            refs: vec![0; num_slots],
            free: (0..num_slots as u32).rev().collect(),
            touched: 0,
        })
    }

    /// The tensor behind the slots, for the kernels.
    pub fn kv(&self) -> &KvPool {
        &self.kv
    }

    /// Slots in all.
    pub fn num_slots(&self) -> usize {
        self.refs.len()
    }

    /// Takes a free slot with one reference, or `None` when all are held.
    pub fn allocate(&mut self) -> Option<u32> {
        let slot = self.free.pop()?;
        self.refs[slot as usize] = 1;
        self.touched = self.touched.max(slot as usize + 1);
        Some(slot)
    }

    /// Slots that are held.
    pub fn num_held(&self) -> usize {
        self.refs.len() - self.free.len()
    }

    /// Slots that were held at some time: on the CPU, those that have taken memory.
    pub fn num_touched(&self) -> usize {
        self.touched
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
            self.free.push(slot);
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
