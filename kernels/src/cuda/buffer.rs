//! Some memory of a device.

use std::sync::Arc;

use super::Device;
use crate::{Error, Result};

/// Where buffers of one allocation begin.
const ALIGN: usize = 256;

/// Some memory of a device, given back when the last buffer in its allocation is dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    allocation: Arc<Allocation>,
    address: u64,
    bytes: usize,
}

/// What the driver gave.
#[derive(Debug)]
struct Allocation {
    device: Arc<Device>,
    address: u64,
}

impl Allocation {
    fn new(device: &Arc<Device>, bytes: usize) -> Result<Arc<Allocation>> {
        Ok(Arc::new(Allocation {
            device: Arc::clone(device),
            address: device.allocate(bytes)?,
        }))
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.device.free(self.address);
    }
}

/// One allocation that is handed out in buffers. Drivers give memory in pages of 2 MiB: a model's many matrices alone would
/// leave half of one each.
#[derive(Debug)]
pub(crate) struct Shared {
    allocation: Arc<Allocation>,
    used: usize,
    bytes: usize,
}

impl Shared {
    /// For buffers of so many bytes each, in this order.
    ///
    /// # Errors
    /// [`Error::Memory`] when there is none.
    pub(crate) fn new(
        device: &Arc<Device>,
        sizes: impl IntoIterator<Item = usize>,
    ) -> Result<Shared> {
        let bytes = sizes.into_iter().map(|size| size.next_multiple_of(ALIGN));
        let bytes = bytes.sum();
        Ok(Shared {
            allocation: Allocation::new(device, bytes)?,
            used: 0,
            bytes,
        })
    }

    /// The next buffer, with these bytes.
    pub(crate) fn of(&mut self, bytes: &[u8]) -> Result<Buffer> {
        let end = self.used + bytes.len().next_multiple_of(ALIGN);
        if end > self.bytes {
            let reason = format!("{end} bytes of {}", self.bytes);
            return Err(Error::argument("memory of the GPU", reason));
        }
        let buffer = Buffer {
            allocation: Arc::clone(&self.allocation),
            address: self.allocation.address + self.used as u64,
            bytes: bytes.len(),
        };
        buffer.write(0, bytes)?;
        self.used = end;
        Ok(buffer)
    }

    /// The next buffer, with these floats.
    pub(crate) fn floats(&mut self, values: &[f32]) -> Result<Buffer> {
        self.of(&le_bytes(values))
    }
}

fn le_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

impl Buffer {
    /// Memory of no meaning.
    ///
    /// # Errors
    /// [`Error::Memory`] when there is none.
    pub(crate) fn new(device: &Arc<Device>, bytes: usize) -> Result<Buffer> {
        let allocation = Allocation::new(device, bytes)?;
        Ok(Buffer {
            address: allocation.address,
            allocation,
            bytes,
        })
    }

    /// Memory with these bytes.
    #[cfg(test)]
    pub(crate) fn of(device: &Arc<Device>, bytes: &[u8]) -> Result<Buffer> {
        let buffer = Buffer::new(device, bytes.len())?;
        buffer.write(0, bytes)?;
        Ok(buffer)
    }

    /// Memory with these floats.
    pub(crate) fn floats(device: &Arc<Device>, values: &[f32]) -> Result<Buffer> {
        let buffer = Buffer::new(device, size_of_val(values))?;
        buffer.write_floats(values)?;
        Ok(buffer)
    }

    fn device(&self) -> &Device {
        &self.allocation.device
    }

    /// Where it begins, a multiple of 256.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Puts bytes at an offset.
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) -> Result<()> {
        self.check(at, bytes.len())?;
        self.device().write(self.address + at as u64, bytes)
    }

    /// Puts floats at the beginning.
    pub(crate) fn write_floats(&self, values: &[f32]) -> Result<()> {
        self.write(0, &le_bytes(values))
    }

    /// Takes bytes from an offset.
    pub(crate) fn read(&self, at: usize, out: &mut [u8]) -> Result<()> {
        self.check(at, out.len())?;
        self.device().read(self.address + at as u64, out)
    }

    /// Zeroes some bytes.
    pub(crate) fn clear(&self, at: usize, bytes: usize) -> Result<()> {
        self.check(at, bytes)?;
        self.device().clear(self.address + at as u64, bytes)
    }

    fn check(&self, at: usize, bytes: usize) -> Result<()> {
        match at.checked_add(bytes).is_some_and(|end| end <= self.bytes) {
            true => Ok(()),
            false => {
                let reason = format!("{bytes} bytes at {at} of {}", self.bytes);
                Err(Error::argument("memory of the GPU", reason))
            }
        }
    }
}
