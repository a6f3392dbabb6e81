//! The pool of KV slots: equal stretches of memory, no bookkeeping (who holds which slot is the caller's business).
//!
//! Memory comes in chunks of several slots, asked of the system when one of them is first needed and given back as a whole.

mod copy;
mod fill;
mod filling;
mod memory;

use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::cuda::{Device, DeviceSlots};
use crate::pages::Pages;
use crate::{BLOCK_TOKENS, Error, KvLayout, Result};
pub use fill::Part;
pub(crate) use filling::Filling;
pub(crate) use memory::Memory;

/// Bytes of a chunk, as far as whole slots allow.
const CHUNK_BYTES: usize = 16 << 20;
/// Most bytes of a chunk in a device's memory, as far as whole slots allow.
const DEVICE_CHUNK_BYTES: usize = 64 << 20;

/// A pool of equal slots.
#[derive(Debug)]
pub struct KvPool {
    layout: KvLayout,
    num_slots: usize,
    slots_per_chunk: usize,
    /// Readers share it; whoever writes slots has it alone. Empty where the slots are on a device.
    chunks: RwLock<Vec<Option<Pages>>>,
    on_device: Option<DeviceSlots>,
    /// Copies to and from these slots directly, where the memory could be had so.
    pinned_by: Option<Arc<Device>>,
    /// Slots that are being filled: set with `chunks` alone in hand, so that whoever has these knows.
    filling: Mutex<Option<Arc<Filling>>>,
}

impl KvPool {
    /// A pool that can hold that many slots. It takes no memory yet: see [`reserve`](Self::reserve).
    ///
    /// # Errors
    /// When the layout cannot be, or so many slots cannot be addressed.
    pub fn new(layout: KvLayout, num_slots: usize) -> Result<Self> {
        let of_chunk = CHUNK_BYTES / layout.slot_bytes().max(1);
        Self::with_chunks(layout, num_slots, of_chunk)
    }

    /// As `new`, in chunks of about so many slots.
    fn with_chunks(layout: KvLayout, num_slots: usize, of_chunk: usize) -> Result<Self> {
        const OP: &str = "kv pool";
        let fits = layout.is_sound()
            && (1..=u32::MAX as usize).contains(&num_slots)
            && num_slots
                .checked_mul(layout.slot_bytes())
                .is_some_and(|bytes| bytes <= isize::MAX as usize);
        if !fits {
            let reason = format!("cannot hold {num_slots} slots of {layout:?}");
            return Err(Error::argument(OP, reason));
        }
        let slots_per_chunk = of_chunk.clamp(1, num_slots);
        let chunks = (0..num_slots.div_ceil(slots_per_chunk)).map(|_| None);
        Ok(Self {
            layout,
            num_slots,
            slots_per_chunk,
            chunks: RwLock::new(chunks.collect()),
            on_device: None,
            pinned_by: None,
            filling: Mutex::default(),
        })
    }

    /// As `new`, with the first `num_layers` layers of every slot in the memory of a device, and the others in that of the
    /// host.
    ///
    /// # Errors
    /// As `new`.
    pub fn on(
        device: Arc<Device>,
        num_layers: usize,
        layout: KvLayout,
        num_slots: usize,
    ) -> Result<Self> {
        let of = |num_layers| KvLayout {
            num_layers,
            ..layout
        };
        let slot_bytes = of(num_layers.min(layout.num_layers)).slot_bytes();
        let pool = Self::with_chunks(layout, num_slots, slots_per_device_chunk(slot_bytes))?;
        let rest = match layout.num_layers.saturating_sub(num_layers) {
            0 => None,
            rest => Some(Self::with_chunks(
                of(rest),
                num_slots,
                pool.slots_per_chunk,
            )?),
        };
        let on_device = of(num_layers.min(layout.num_layers));
        let chunks = std::mem::take(&mut *pool.write()).len();
        Ok(Self {
            on_device: Some(DeviceSlots::new(
                device,
                on_device,
                rest.map(Box::new),
                pool.slots_per_chunk,
                chunks,
            )),
            ..pool
        })
    }

    /// As `new`, in memory of the host that a device copies to and from at the speed of its link, where the system has such
    /// memory to give.
    ///
    /// # Errors
    /// As `new`.
    pub fn beside(device: Arc<Device>, layout: KvLayout, num_slots: usize) -> Result<Self> {
        Ok(Self {
            pinned_by: Some(device),
            ..Self::new(layout, num_slots)?
        })
    }

    /// Bytes that the pool has of a device's memory.
    pub fn device_bytes(&self) -> usize {
        self.on_device().map_or(0, DeviceSlots::device_bytes)
    }

    /// The layers that a device has not, where it has the first ones.
    pub fn rest(&self) -> Option<&KvPool> {
        self.on_device().and_then(DeviceSlots::rest)
    }

    /// The slots, where they are on a device.
    pub(crate) fn on_device(&self) -> Option<&DeviceSlots> {
        self.on_device.as_ref()
    }

    /// As `new`, with the memory of all slots.
    ///
    /// # Errors
    /// As `new` and `reserve`.
    pub fn reserved(layout: KvLayout, num_slots: usize) -> Result<Self> {
        let pool = Self::new(layout, num_slots)?;
        (0..num_slots as u32)
            .step_by(pool.slots_per_chunk)
            .try_for_each(|slot| pool.reserve(slot))?;
        Ok(pool)
    }

    /// Geometry of the slots.
    pub fn layout(&self) -> &KvLayout {
        &self.layout
    }

    /// Number of slots.
    pub fn num_slots(&self) -> usize {
        self.num_slots
    }

    /// Slots that share a chunk: slot i is in chunk `i / slots_per_chunk`.
    pub fn slots_per_chunk(&self) -> usize {
        self.slots_per_chunk
    }

    /// Makes sure that a slot has memory, zeroed when it is new.
    ///
    /// # Errors
    /// [`Error::Memory`] when the system gives none; nothing has changed then.
    pub fn reserve(&self, slot: u32) -> Result<()> {
        self.check_slot("reserve slot", slot)?;
        let chunk = slot as usize / self.slots_per_chunk;
        let first = chunk * self.slots_per_chunk;
        let num_slots = self.slots_per_chunk.min(self.num_slots - first);
        if let Some(slots) = &self.on_device {
            return slots.reserve(chunk, num_slots);
        }
        let mut chunks = self.write();
        if chunks[chunk].is_none() {
            let bytes = num_slots * self.layout.slot_bytes();
            let pinned = self.pinned_by.as_ref();
            let pages = pinned.and_then(|device| Pages::pinned(device, bytes));
            let pages = pages.or_else(|| Pages::new(bytes));
            chunks[chunk] = Some(pages.ok_or(Error::Memory { bytes })?);
        }
        Ok(())
    }

    /// Whether a slot has memory.
    pub fn is_reserved(&self, slot: u32) -> bool {
        if let Some(slots) = &self.on_device {
            return slots.is_reserved(slot);
        }
        let chunk = slot as usize / self.slots_per_chunk;
        self.read().get(chunk).is_some_and(Option::is_some)
    }

    /// Gives the memory of a chunk back to the system; what its slots held is gone. It stays while one of them is being
    /// filled.
    pub fn give_back(&self, chunk: usize) {
        let mut chunks = self.write();
        let is_in_it = |slot: &u32| *slot as usize / self.slots_per_chunk == chunk;
        let filling = self.filling();
        if filling.is_some_and(|filling| filling.slots.iter().any(is_in_it)) {
            return;
        }
        if let Some(slots) = &self.on_device {
            return slots.give_back(chunk);
        }
        if let Some(chunk) = chunks.get_mut(chunk) {
            *chunk = None;
        }
    }

    /// Bytes of memory that the pool has from the system.
    pub fn reserved_bytes(&self) -> usize {
        if let Some(slots) = &self.on_device {
            return slots.reserved_bytes();
        }
        self.read().iter().flatten().map(Pages::len).sum()
    }

    /// Copies a whole slot out, as the bytes every tier holds.
    ///
    /// # Errors
    /// When there is no such slot, it has no memory, or `out` has another length.
    pub fn read_slot(&self, slot: u32, out: &mut [u8]) -> Result<()> {
        const OP: &str = "read slot";
        self.check_bytes(OP, out.len())?;
        if let Some(slots) = &self.on_device {
            self.check_free(OP, slot)?;
            return slots.read(slot, out, false);
        }
        let chunks = self.read();
        let from = self.slot(OP, &chunks, slot)?;
        // SAFETY: a slot, which nobody writes while the lock is shared.
        unsafe { from.copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Fills a whole slot from the bytes `read_slot` gave.
    ///
    /// # Errors
    /// As `read_slot`.
    pub fn write_slot(&self, slot: u32, bytes: &[u8]) -> Result<()> {
        const OP: &str = "write slot";
        self.check_bytes(OP, bytes.len())?;
        if let Some(slots) = &self.on_device {
            self.check_free(OP, slot)?;
            return slots.write(slot, bytes);
        }
        let chunks = self.write();
        let to = self.slot(OP, &chunks, slot)?;
        // SAFETY: a slot, which is ours while we have the lock.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Zeroes a slot, so that nothing of what it held before can go with a block that fills only a part of it.
    ///
    /// # Errors
    /// When there is no such slot or it has no memory.
    pub fn clear_slot(&self, slot: u32) -> Result<()> {
        if let Some(slots) = &self.on_device {
            self.check_free("clear slot", slot)?;
            return slots.clear(slot);
        }
        let chunks = self.write();
        let to = self.slot("clear slot", &chunks, slot)?;
        // SAFETY: a slot, which is ours while we have the lock.
        unsafe { to.write_bytes(0, self.layout.slot_bytes()) };
        Ok(())
    }

    /// Calls `f` with the memory of all slots, for threads that write different tokens at once.
    pub(crate) fn with_memory<T>(&self, f: impl FnOnce(Memory<'_>) -> T) -> T {
        let chunks = self.write();
        let pointers: Vec<*mut u8> = chunks
            .iter()
            .map(|chunk| chunk.as_ref().map_or(std::ptr::null_mut(), Pages::as_ptr))
            .collect();
        let filling = self.filling();
        f(Memory {
            filling: filling.as_deref(),
            chunks: &pointers,
            slots_per_chunk: self.slots_per_chunk,
            slot_bytes: self.layout.slot_bytes(),
        })
    }

    /// An error unless `table` names a slot with memory for each of the tokens `0..num_tokens`.
    pub(crate) fn check_table(
        &self,
        op: &'static str,
        table: &[u32],
        num_tokens: usize,
    ) -> Result<()> {
        let num_blocks = num_tokens.div_ceil(BLOCK_TOKENS);
        if table.len() < num_blocks {
            let reason = format!("{num_tokens} tokens in a table of {} blocks", table.len());
            return Err(Error::argument(op, reason));
        }
        let chunks = self.read();
        table[..num_blocks]
            .iter()
            .try_for_each(|&slot| self.address(op, &chunks, slot).map(drop))
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Option<Pages>>> {
        // The chunks are as they were whatever panicked elsewhere; of their bytes the caller knows which are good.
        self.chunks.read().unwrap_or_else(|e| e.into_inner())
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<Option<Pages>>> {
        self.chunks.write().unwrap_or_else(|e| e.into_inner())
    }

    /// The slots that are being filled; it stays so while the chunks are held.
    pub(crate) fn filling(&self) -> Option<Arc<Filling>> {
        self.lock_filling().clone()
    }

    fn lock_filling(&self) -> MutexGuard<'_, Option<Arc<Filling>>> {
        self.filling.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Where a slot's bytes begin, unless it is being filled.
    fn slot(&self, op: &'static str, chunks: &[Option<Pages>], slot: u32) -> Result<*mut u8> {
        self.check_free(op, slot)?;
        self.address(op, chunks, slot)
    }

    /// Whether a device copies to and from a slot directly.
    fn is_pinned(&self, chunks: &[Option<Pages>], slot: u32) -> bool {
        let pages = chunks.get(slot as usize / self.slots_per_chunk);
        pages.is_some_and(|pages| pages.as_ref().is_some_and(Pages::is_pinned))
    }

    /// An error unless there is such a slot and nobody is filling it.
    fn check_free(&self, op: &'static str, slot: u32) -> Result<()> {
        match self.filling() {
            Some(filling) if filling.has_any(&[slot]) => {
                Err(Error::argument(op, format!("slot {slot} is being filled")))
            }
            _ => self.check_slot(op, slot),
        }
    }

    /// Where a slot's bytes begin.
    fn address(&self, op: &'static str, chunks: &[Option<Pages>], slot: u32) -> Result<*mut u8> {
        self.check_slot(op, slot)?;
        let (chunk, at) = (
            slot as usize / self.slots_per_chunk,
            slot as usize % self.slots_per_chunk,
        );
        match chunks.get(chunk).and_then(Option::as_ref) {
            // SAFETY: inside the chunk.
            Some(pages) => Ok(unsafe { pages.as_ptr().add(at * self.layout.slot_bytes()) }),
            None => Err(Error::argument(
                op,
                format!("slot {slot} has no memory here"),
            )),
        }
    }

    fn check_slot(&self, op: &'static str, slot: u32) -> Result<()> {
        if (slot as usize) < self.num_slots {
            return Ok(());
        }
        let reason = format!("no slot {slot} in a pool of {}", self.num_slots);
        Err(Error::argument(op, reason))
    }

    fn check_bytes(&self, op: &'static str, len: usize) -> Result<()> {
        if len == self.layout.slot_bytes() {
            return Ok(());
        }
        let reason = format!("{len} bytes for a slot of {}", self.layout.slot_bytes());
        Err(Error::argument(op, reason))
    }
}

/// Slots of a chunk in a device's memory, of which drivers give whole pages of 2 MiB: as few as leave less than a fiftieth of
/// these unused, or what leaves the least.
fn slots_per_device_chunk(slot_bytes: usize) -> usize {
    const PAGE_BYTES: usize = 2 << 20;
    let slot_bytes = slot_bytes.max(1);
    let most = (DEVICE_CHUNK_BYTES / slot_bytes).max(1);
    let unused = |slots: usize| {
        let bytes = slots * slot_bytes;
        (bytes.next_multiple_of(PAGE_BYTES) - bytes) as f64 / bytes as f64
    };
    let first = (CHUNK_BYTES / slot_bytes).clamp(1, most);
    let all = first..=most;
    let few = all.clone().find(|slots| unused(*slots) < 0.02);
    let least = || all.min_by(|a, b| unused(*a).total_cmp(&unused(*b)));
    few.or_else(least).unwrap_or(first)
}

#[cfg(test)]
mod tests;
