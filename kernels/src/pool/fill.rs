//! Slots that are being filled while a forward pass computes on them, layer by layer.
//!
//! Whoever fills has the bytes in parts, each a run of whole layers of one slot, and gives a part back when it is right. A
//! layer is there when every slot has it, and all layers before it. A part that is dropped instead will never be right: who
//! waits for its layer is told so, and never waits for ever.

use std::sync::Arc;

use super::{Filling, KvPool};
use crate::cuda::{DeviceSlots, Landing};
use crate::{Error, KvLayout, Result};

impl KvPool {
    /// Fills several slots, all different, while `f` runs: it is given their bytes, for each slot in parts of so many layers
    /// (the last may have fewer), in order, to be written by any threads. Until `f` returns nobody else may use these slots,
    /// but for `Layers::forward` with tokens after theirs: it waits for each layer until all its parts are ready. Parts of slots
    /// on a device are in memory of the host, and go to the device as they become ready.
    ///
    /// # Errors
    /// When a slot does not exist, has no memory, or is named twice, or others are being filled: `f` has not run then. When the
    /// device fails: what `f` gave is lost then.
    pub fn fill<T>(
        &self,
        slots: &[u32],
        layers_per_part: usize,
        f: impl for<'f> FnOnce(Vec<Vec<Part<'f>>>) -> T,
    ) -> Result<T> {
        const OP: &str = "fill slots";
        let layout = &self.layout;
        let mut sorted = slots.to_vec();
        sorted.sort_unstable();
        if layers_per_part == 0 || sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            let reason = format!("{slots:?} in parts of {layers_per_part} layers");
            return Err(Error::argument(OP, reason));
        }
        let filling = Arc::new(Filling::new(slots, layout.num_layers, layers_per_part));
        if let Some(on_device) = self.on_device() {
            return self.fill_on(on_device, slots, &filling, f);
        }
        let pointers = {
            let chunks = self.write();
            let pointers = slots.iter().map(|&slot| self.slot(OP, &chunks, slot));
            let pointers = pointers.collect::<Result<Vec<_>>>()?;
            let mut current = self.lock_filling();
            if current.is_some() {
                return Err(Error::argument(OP, "others are being filled"));
            }
            *current = Some(Arc::clone(&filling));
            pointers
        };
        let _end = EndOfFill(self);
        // SAFETY: different slots do not overlap. Until `_end` goes, their memory stays and every other access is refused;
        // but for a forward pass, which reads a layer only when its parts are ready, and those are then gone. Parts cannot
        // outlive `f`, which must take them for any lifetime.
        let slots = pointers
            .into_iter()
            .map(|pointer| unsafe { std::slice::from_raw_parts_mut(pointer, layout.slot_bytes()) });
        let parts = slots.map(|slot| filling.parts(slot, layout.layer_bytes()));
        Ok(f(parts.collect()))
    }
}

impl KvPool {
    /// As `fill`, of slots on a device.
    fn fill_on<T>(
        &self,
        on_device: &DeviceSlots,
        slots: &[u32],
        filling: &Arc<Filling>,
        f: impl for<'f> FnOnce(Vec<Vec<Part<'f>>>) -> T,
    ) -> Result<T> {
        const OP: &str = "fill slots";
        {
            let _alone = self.write();
            for slot in slots {
                self.check_slot(OP, *slot)?;
                on_device.address(*slot)?;
            }
            let mut current = self.lock_filling();
            if current.is_some() {
                return Err(Error::argument(OP, "others are being filled"));
            }
            *current = Some(Arc::clone(filling));
        }
        let _end = EndOfFill(self);
        // What was launched before may still read what the slots held.
        on_device.finish()?;
        let parts = slots
            .iter()
            .map(|&slot| filling.parts_on(on_device, slot, &self.layout));
        let given = f(parts.collect());
        on_device.finish_copies()?;
        match filling.take_error() {
            None => Ok(given),
            Some(error) => Err(error),
        }
    }
}

/// Ends the filling of a pool's slots, also when who fills them panics.
struct EndOfFill<'a>(&'a KvPool);

impl Drop for EndOfFill<'_> {
    fn drop(&mut self) {
        // Bytes that were taken from another pool stay no longer, and kernels see what has come. A device that failed copies
        // nothing any more.
        let _ = self.0.on_device().map(DeviceSlots::finish_copies);
        let _alone = self.0.write();
        *self.0.lock_filling() = None;
    }
}

/// Some layers of a slot that is being filled; see [`KvPool::fill`].
#[derive(Debug)]
pub struct Part<'f> {
    filling: &'f Filling,
    run: usize,
    /// Where in the slot they are.
    at: usize,
    /// Nobody else touches them until the part is ready.
    bytes: Bytes<'f>,
    is_ready: bool,
}

/// Where the bytes of a part are.
#[derive(Debug)]
enum Bytes<'f> {
    /// In the slot.
    InSlot(&'f mut [u8]),
    /// On the host, on their way to a slot on a device.
    ToDevice {
        on_device: &'f DeviceSlots,
        slot: u32,
        len: usize,
        /// There once they are asked for.
        landing: Option<Landing>,
    },
}

impl Part<'_> {
    /// Gives the part back: its bytes are what they should be.
    pub fn ready(mut self) {
        let copied = match &mut self.bytes {
            Bytes::InSlot(_) => Ok(()),
            Bytes::ToDevice {
                on_device,
                slot,
                len,
                landing,
            } => {
                let landing = landing.take().unwrap_or_else(|| on_device.land(*len));
                on_device.write_part(*slot, self.at, landing)
            }
        };
        self.end(copied);
    }

    /// Fills the part with the same layers of a slot of another pool, of the same layout and in memory of the host, and gives it
    /// back. That slot must stay as it is until the filling has ended.
    ///
    /// # Errors
    /// When there is no such slot, or it has no memory. The part will then never be ready.
    pub fn take(mut self, from: &KvPool, slot: u32) -> Result<()> {
        let at = self.at;
        let copied = match &mut self.bytes {
            Bytes::InSlot(to) => from.with_part(slot, at, to.len(), |bytes, _| {
                to.copy_from_slice(bytes);
                Ok(Ok(()))
            }),
            Bytes::ToDevice {
                on_device,
                slot: to,
                len,
                ..
            } => from.with_part(slot, at, *len, |bytes, is_pinned| {
                Ok(on_device.write_from(*to, at, bytes, is_pinned))
            }),
        };
        self.end(copied?);
        Ok(())
    }

    fn end(&mut self, copied: Result<()>) {
        match copied {
            Ok(()) => self.is_ready = true,
            Err(error) => self.filling.note_error(error),
        }
    }
}

impl AsMut<[u8]> for Part<'_> {
    fn as_mut(&mut self) -> &mut [u8] {
        match &mut self.bytes {
            Bytes::InSlot(bytes) => bytes,
            Bytes::ToDevice {
                on_device,
                len,
                landing,
                ..
            } => landing
                .get_or_insert_with(|| on_device.land(*len))
                .bytes_mut(),
        }
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        let mut to = None;
        if let Bytes::ToDevice {
            on_device, landing, ..
        } = &mut self.bytes
        {
            if let Some(landing) = landing.take() {
                on_device.reuse(landing);
            }
            to = Some(*on_device);
        }
        match self.is_ready {
            true => self.filling.note_ready(self.run, to),
            false => self.filling.fail(),
        }
    }
}

impl Filling {
    /// The bytes of a slot, cut into parts in the order of layers.
    pub(crate) fn parts<'f>(&'f self, slot: &'f mut [u8], layer_bytes: usize) -> Vec<Part<'f>> {
        let part_bytes = self.layers_per_part * layer_bytes;
        let parts = slot.chunks_mut(part_bytes).enumerate();
        let part = |(run, bytes)| self.part(run, run * part_bytes, Bytes::InSlot(bytes));
        parts.map(part).collect()
    }

    /// As `parts`, of a slot on a device.
    fn parts_on<'f>(
        &'f self,
        on_device: &'f DeviceSlots,
        slot: u32,
        layout: &KvLayout,
    ) -> Vec<Part<'f>> {
        let part_bytes = self.layers_per_part * layout.layer_bytes();
        let starts = (0..layout.slot_bytes()).step_by(part_bytes).enumerate();
        let part = |(run, at)| {
            let bytes = Bytes::ToDevice {
                on_device,
                slot,
                len: part_bytes.min(layout.slot_bytes() - at),
                landing: None,
            };
            self.part(run, at, bytes)
        };
        starts.map(part).collect()
    }

    fn part<'f>(&'f self, run: usize, at: usize, bytes: Bytes<'f>) -> Part<'f> {
        Part {
            filling: self,
            run,
            at,
            bytes,
            is_ready: false,
        }
    }
}
