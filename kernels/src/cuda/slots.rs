//! The slots of a pool in a device's memory.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::launch::{checked, number, numbers};
use super::{Argument, Buffer, Device, Landing, Launch, Mark, Source, blocks};
use crate::layout::{BLOCK_TILES, BLOCK_TOKENS, KvLayout, Side};
use crate::{Error, KvPool, Result};

/// Chunks of slots, each there when one of them is needed. Whoever numbers slots checks that they exist.
///
/// Where a device has only the first layers of a model, it has these of every slot, and a pool of the host has the rest.
#[derive(Debug)]
pub(crate) struct DeviceSlots {
    device: Arc<Device>,
    /// Of what the device has of a slot.
    layout: KvLayout,
    /// Numbered as the slots here, in chunks as those.
    rest: Option<Box<KvPool>>,
    slots_per_chunk: usize,
    chunks: Mutex<Vec<Option<Buffer>>>,
}

impl DeviceSlots {
    pub(crate) fn new(
        device: Arc<Device>,
        layout: KvLayout,
        rest: Option<Box<KvPool>>,
        slots_per_chunk: usize,
        num_chunks: usize,
    ) -> Self {
        Self {
            device,
            layout,
            rest,
            slots_per_chunk,
            chunks: Mutex::new((0..num_chunks).map(|_| None).collect()),
        }
    }

    /// Of what the device has of a slot.
    pub(crate) fn layout(&self) -> &KvLayout {
        &self.layout
    }

    /// What the device has not.
    pub(crate) fn rest(&self) -> Option<&KvPool> {
        self.rest.as_deref()
    }

    /// Makes sure that a chunk of `num_slots` slots has memory, zeroed when it is new.
    pub(crate) fn reserve(&self, chunk: usize, num_slots: usize) -> Result<()> {
        if let Some(rest) = &self.rest {
            rest.reserve((chunk * self.slots_per_chunk) as u32)?;
        }
        let mut chunks = self.chunks();
        if chunks[chunk].is_none() {
            let buffer = Buffer::new(&self.device, num_slots * self.layout.slot_bytes())?;
            buffer.clear(0, buffer.len())?;
            chunks[chunk] = Some(buffer);
        }
        Ok(())
    }

    pub(crate) fn is_reserved(&self, slot: u32) -> bool {
        let chunk = slot as usize / self.slots_per_chunk;
        self.chunks().get(chunk).is_some_and(Option::is_some)
    }

    pub(crate) fn give_back(&self, chunk: usize) {
        if let Some(rest) = &self.rest {
            rest.give_back(chunk);
        }
        if let Some(chunk) = self.chunks().get_mut(chunk) {
            *chunk = None;
        }
    }

    /// On the device.
    pub(crate) fn device_bytes(&self) -> usize {
        self.chunks().iter().flatten().map(Buffer::len).sum()
    }

    /// On the device and in memory.
    pub(crate) fn reserved_bytes(&self) -> usize {
        self.device_bytes() + self.rest().map_or(0, KvPool::reserved_bytes)
    }

    /// Where a slot begins, a multiple of 16.
    pub(crate) fn address(&self, slot: u32) -> Result<u64> {
        let at = slot as usize % self.slots_per_chunk * self.layout.slot_bytes();
        let chunks = self.chunks();
        match &chunks[slot as usize / self.slots_per_chunk] {
            Some(buffer) => Ok(buffer.address() + at as u64),
            None => {
                let reason = format!("slot {slot} has no memory");
                Err(Error::argument("slots of the GPU", reason))
            }
        }
    }

    /// Copies a whole slot out; the bytes are there when the call returns. Pinned ones the device copies to directly.
    pub(crate) fn read(&self, slot: u32, out: &mut [u8], is_pinned: bool) -> Result<()> {
        let (out, of_rest) = out.split_at_mut(self.layout.slot_bytes());
        if let Some(rest) = &self.rest {
            rest.read_slot(slot, of_rest)?;
        }
        let address = self.address(slot)?;
        match is_pinned {
            true => self.device.read_pinned(address, out),
            false => self.device.read(address, out),
        }
    }

    /// Waits for the kernels that were launched.
    pub(crate) fn finish(&self) -> Result<()> {
        self.device.synchronize()
    }

    /// Where the bytes of a part of a slot are to be put for `write_part`.
    pub(crate) fn land(&self, bytes: usize) -> Landing {
        self.device.land(bytes)
    }

    /// Copies a part of a slot that no kernel uses, beside whatever runs.
    pub(crate) fn write_part(&self, slot: u32, at: usize, landing: Landing) -> Result<()> {
        let written = self.write_from(slot, at, landing.bytes(), landing.is_pinned());
        self.reuse(landing);
        written
    }

    /// Takes back what is not to be written, or is.
    pub(crate) fn reuse(&self, landing: Landing) {
        self.device.reuse(landing);
    }

    /// As `write_part`. Pinned bytes must stay until they are copied: see `reuse` and `finish_copies`.
    pub(crate) fn write_from(
        &self,
        slot: u32,
        at: usize,
        bytes: &[u8],
        is_pinned: bool,
    ) -> Result<()> {
        let address = self.address(slot)? + at as u64;
        let (here, of_rest) = self.split(at, bytes);
        match (here.is_empty(), is_pinned) {
            (true, _) => {}
            (_, true) => self.device.write_pinned(address, here)?,
            (_, false) => self.device.write_beside(address, here)?,
        }
        self.write_rest(slot, at + here.len(), of_rest)
    }

    /// Of bytes that stand at an offset of a slot, those that the device has and those that it has not.
    fn split<'a>(&self, at: usize, bytes: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let here = self.layout.slot_bytes().saturating_sub(at);
        bytes.split_at(here.min(bytes.len()))
    }

    fn write_rest(&self, slot: u32, at: usize, bytes: &[u8]) -> Result<()> {
        match &self.rest {
            Some(rest) if !bytes.is_empty() => {
                rest.write_part(slot, at - self.layout.slot_bytes(), bytes)
            }
            _ => Ok(()),
        }
    }

    /// A place after everything that was to be copied until now.
    pub(crate) fn mark(&self) -> Result<Mark> {
        Mark::new(&self.device)
    }

    /// Waits until everything that was to be copied is.
    pub(crate) fn finish_copies(&self) -> Result<()> {
        self.device.finish_copies()
    }

    pub(crate) fn write(&self, slot: u32, bytes: &[u8]) -> Result<()> {
        let (bytes, of_rest) = bytes.split_at(self.layout.slot_bytes());
        if let Some(rest) = &self.rest {
            rest.write_slot(slot, of_rest)?;
        }
        self.device.write(self.address(slot)?, bytes)
    }

    pub(crate) fn clear(&self, slot: u32) -> Result<()> {
        if let Some(rest) = &self.rest {
            rest.clear_slot(slot)?;
        }
        let address = self.address(slot)?;
        self.device.clear(address, self.layout.slot_bytes())
    }

    /// Copies the first tokens of a slot to another; the rest of that becomes 0.
    pub(crate) fn copy(&self, from: u32, to: u32, num_tokens: usize) -> Result<()> {
        if let Some(rest) = &self.rest {
            rest.copy_slot(from, to, num_tokens)?;
        }
        let (from, to) = (self.address(from)?, self.address(to)?);
        self.device.copy(from, to, self.layout.slot_bytes())?;
        match num_tokens {
            BLOCK_TOKENS => Ok(()),
            _ => self
                .device
                .launch(&clear_tokens(to, num_tokens, &self.layout)?),
        }
    }

    fn chunks(&self) -> MutexGuard<'_, Vec<Option<Buffer>>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Zeroes the tokens from `kept` on of the block at an address.
///
/// # Errors
/// When a size does not fit the kernel.
pub fn clear_tokens(slot: u64, kept: usize, layout: &KvLayout) -> Result<Launch> {
    const OP: &str = "clear_tokens on the GPU";
    let [tiles, kv_heads, slabs] = numbers(
        OP,
        [BLOCK_TILES, layout.num_kv_heads, 2 * layout.num_layers],
    )?;
    let format = |side| Argument::U32(blocks::code(layout.dtype(side)));
    checked(
        OP,
        Launch {
            source: Source::ClearTokens,
            kernel: "clear_tokens".into(),
            grid: [tiles, kv_heads, slabs],
            threads: 128,
            shared_bytes: 0,
            arguments: vec![
                Argument::Address(slot),
                Argument::U32(number(OP, kept)?),
                Argument::U32(kv_heads),
                Argument::U32(number(OP, layout.head_dim)?),
                format(Side::Key),
                format(Side::Value),
            ],
        },
    )
}
