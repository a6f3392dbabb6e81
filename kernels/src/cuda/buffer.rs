//! Some memory of a device.

use std::sync::Arc;

use super::Device;
use crate::{Error, Result};

/// Some memory of a device, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    device: Arc<Device>,
    address: u64,
    bytes: usize,
}

impl Buffer {
    /// Memory of no meaning.
    ///
    /// # Errors
    /// [`Error::Memory`] when there is none.
    pub(crate) fn new(device: &Arc<Device>, bytes: usize) -> Result<Buffer> {
        Ok(Buffer {
            device: Arc::clone(device),
            address: device.allocate(bytes)?,
            bytes,
        })
    }

    /// Memory with these bytes.
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
        self.device.write(self.address + at as u64, bytes)
    }

    /// Puts floats at the beginning.
    pub(crate) fn write_floats(&self, values: &[f32]) -> Result<()> {
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.write(0, &bytes)
    }

    /// Takes bytes from an offset.
    pub(crate) fn read(&self, at: usize, out: &mut [u8]) -> Result<()> {
        self.check(at, out.len())?;
        self.device.read(self.address + at as u64, out)
    }

    /// Zeroes some bytes.
    pub(crate) fn clear(&self, at: usize, bytes: usize) -> Result<()> {
        self.check(at, bytes)?;
        self.device.clear(self.address + at as u64, bytes)
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

impl Drop for Buffer {
    fn drop(&mut self) {
        self.device.free(self.address);
    }
}
