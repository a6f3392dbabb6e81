//! Copies of slots within a pool, and from one pool to another.

use super::KvPool;
use crate::layout::{BLOCK_TILES, BLOCK_TOKENS, KvLayout, Side, TILE_TOKENS};
use crate::{Error, Result};

impl KvPool {
    /// Copies a whole slot of another pool, of the same layout, to a slot of this one, which is in memory of the host. The bytes are
    /// there when the call returns.
    ///
    /// # Errors
    /// When there are no such slots, they have no memory, the layouts differ, or this pool is on a device.
    pub fn take_slot(&self, slot: u32, from: &KvPool, from_slot: u32) -> Result<()> {
        const OP: &str = "take slot";
        if std::ptr::eq(self, from) || self.on_device.is_some() || self.layout != from.layout {
            let reason = format!("{:?} of {from:?}", self.layout);
            return Err(Error::argument(OP, reason));
        }
        let chunks = self.write();
        let to = self.slot(OP, &chunks, slot)?;
        // SAFETY: a slot, which is ours while we have the lock.
        let to = unsafe { std::slice::from_raw_parts_mut(to, self.layout.slot_bytes()) };
        match &from.on_device {
            Some(on_device) if self.is_pinned(&chunks, slot) => {
                from.check_free(OP, from_slot)?;
                on_device.read(from_slot, to, true)
            }
            _ => from.read_slot(from_slot, to),
        }
    }

    /// Writes some bytes of a slot in memory of the host.
    pub(crate) fn write_part(&self, slot: u32, at: usize, bytes: &[u8]) -> Result<()> {
        const OP: &str = "write a part of a slot";
        let chunks = self.write();
        let to = self.slot(OP, &chunks, slot)?;
        let end = at.checked_add(bytes.len());
        if end.is_none_or(|end| end > self.layout.slot_bytes()) {
            let reason = format!("{} bytes at {at} of {:?}", bytes.len(), self.layout);
            return Err(Error::argument(OP, reason));
        }
        // SAFETY: inside the slot, which is ours while we have the lock.
        unsafe {
            to.add(at)
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        };
        Ok(())
    }

    /// Calls `f` with some bytes of a slot in memory of the host, and whether a device copies from there directly.
    pub(super) fn with_part<T>(
        &self,
        slot: u32,
        at: usize,
        len: usize,
        f: impl FnOnce(&[u8], bool) -> Result<T>,
    ) -> Result<T> {
        const OP: &str = "read a part of a slot";
        let chunks = self.read();
        let from = self.slot(OP, &chunks, slot)?;
        let end = at.checked_add(len);
        if end.is_none_or(|end| end > self.layout.slot_bytes()) {
            let reason = format!("{len} bytes at {at} of {:?}", self.layout);
            return Err(Error::argument(OP, reason));
        }
        // SAFETY: inside the slot, which nobody writes while the lock is shared.
        let bytes = unsafe { std::slice::from_raw_parts(from.add(at), len) };
        f(bytes, self.is_pinned(&chunks, slot))
    }

    /// Copies the first `num_tokens` tokens from one slot to another; the rest of the other becomes 0.
    ///
    /// # Errors
    /// When there are no such slots, they have no memory, or `num_tokens` exceeds a block.
    pub fn copy_slot(&self, from: u32, to: u32, num_tokens: usize) -> Result<()> {
        const OP: &str = "copy slot";
        if num_tokens > BLOCK_TOKENS {
            let reason = format!("{num_tokens} tokens do not fit a block of {BLOCK_TOKENS}");
            return Err(Error::argument(OP, reason));
        }
        if from == to {
            return Err(Error::argument(OP, "a slot onto itself"));
        }
        if let Some(slots) = &self.on_device {
            self.check_free(OP, from)?;
            self.check_free(OP, to)?;
            return slots.copy(from, to, num_tokens);
        }
        let chunks = self.write();
        let (from, to) = (self.slot(OP, &chunks, from)?, self.slot(OP, &chunks, to)?);
        let layout = &self.layout;
        // SAFETY: both slots are ours while we have the lock, and they do not overlap.
        let (from, to) = unsafe {
            let len = layout.slot_bytes();
            (
                std::slice::from_raw_parts(from, len),
                std::slice::from_raw_parts_mut(to, len),
            )
        };
        for layer in 0..layout.num_layers {
            for side in [Side::Key, Side::Value] {
                for tile in 0..BLOCK_TILES {
                    let tokens = num_tokens.saturating_sub(tile * TILE_TOKENS);
                    for head in 0..layout.num_kv_heads {
                        let range = layout.tile(side, layer, tile, head);
                        let (from, to) = (&from[range.clone()], &mut to[range]);
                        match tokens {
                            0 => to.fill(0),
                            TILE_TOKENS.. => to.copy_from_slice(from),
                            _ => copy_tokens(layout, side, tokens, from, to),
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// Copies the first tokens of a tile; the others become 0.
fn copy_tokens(layout: &KvLayout, side: Side, tokens: usize, from: &[u8], to: &mut [u8]) {
    let dtype = layout.dtype(side);
    let (quants, scales) = match dtype.is_rotated() {
        true => from.split_at(layout.quant_bytes(side)),
        false => (from, &from[..0]),
    };
    let (to_quants, to_scales) = to.split_at_mut(quants.len());
    // A token's bytes stand in as many runs as the tile has rows: lanes of keys, rows of values.
    let runs = |bytes: &[u8], run: usize, to: &mut [u8]| match side {
        Side::Key => {
            let rows = bytes.chunks_exact(TILE_TOKENS * run);
            for (from, to) in rows.zip(to.chunks_exact_mut(TILE_TOKENS * run)) {
                to[..tokens * run].copy_from_slice(&from[..tokens * run]);
                to[tokens * run..].fill(0);
            }
        }
        Side::Value => {
            let cut = bytes.len() / TILE_TOKENS * tokens;
            to[..cut].copy_from_slice(&bytes[..cut]);
            to[cut..].fill(0);
        }
    };
    runs(quants, if dtype.is_rotated() { 4 } else { 2 }, to_quants);
    runs(scales, 2, to_scales);
}
