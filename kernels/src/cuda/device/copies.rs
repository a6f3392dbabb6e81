//! Copies between a device and the host.

use std::sync::{MutexGuard, PoisonError};

use cudarc::driver::{result, sys};

use super::{Device, failed};
use crate::Result;
use crate::cuda::landing::Landing;
use crate::cuda::staging::{PLAIN, Staging};

impl Device {
    /// Copies `bytes` to the device. They have been taken over when the call returns.
    pub(in crate::cuda) fn write(&self, to: u64, bytes: &[u8]) -> Result<()> {
        self.enter()?;
        self.staging()
            .write(self.kernels, to, bytes)
            .map_err(failed("take data"))
    }

    /// Bytes of the host to be written and then copied to memory that no kernel uses.
    pub(in crate::cuda) fn land(&self, bytes: usize) -> Landing {
        // Without pinned memory the bytes take a way through staging.
        let entered = self.enter().is_ok();
        let piece = entered.then(|| self.ring.take(bytes)).flatten();
        piece.unwrap_or_else(|| Landing::unpinned(bytes))
    }

    /// Takes back what landed, once it is copied.
    pub(in crate::cuda) fn reuse(&self, landing: Landing) {
        if self.enter().is_ok() {
            self.ring.put_back(landing, self.staging().copies());
        }
    }

    /// Copies to memory that no kernel uses, beside those that run. Kernels see the bytes after a mark that they follow.
    pub(in crate::cuda) fn write_beside(&self, to: u64, bytes: &[u8]) -> Result<()> {
        self.enter()?;
        self.staging()
            .copy_in(to, bytes)
            .map_err(failed("take data"))
    }

    /// As `write_beside`, of pinned memory: the bytes must stay until they are copied.
    pub(in crate::cuda) fn write_pinned(&self, to: u64, bytes: &[u8]) -> Result<()> {
        self.enter()?;
        let copies = self.staging().copies();
        // SAFETY: the caller's buffer is that long, and the bytes stay.
        unsafe { result::memcpy_htod_async(to, bytes, copies) }.map_err(failed("take data"))
    }

    /// An event that is done when what was to be copied until now is.
    pub(in crate::cuda) fn mark_copies(&self) -> Result<sys::CUevent> {
        self.enter()?;
        let copies = self.staging().copies();
        let event = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING);
        let event = event.map_err(failed("wait for data"))?;
        // SAFETY: just created, and a stream that lives as long as the device.
        unsafe { result::event::record(event, copies) }.map_err(failed("wait for data"))?;
        Ok(event)
    }

    /// Lets kernels that are launched from now on wait for an event.
    pub(in crate::cuda) fn follow_mark(&self, event: sys::CUevent) -> Result<()> {
        self.enter()?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: a stream that lives as long as the device, and an event that has not been destroyed.
        unsafe { result::stream::wait_event(self.kernels, event, flags) }
            .map_err(failed("wait for data"))
    }

    /// Waits until everything that was to be copied is.
    pub(in crate::cuda) fn finish_copies(&self) -> Result<()> {
        self.enter()?;
        let copies = self.staging().copies();
        // SAFETY: a stream that lives as long as the device.
        unsafe { result::stream::synchronize(copies) }.map_err(failed("take data"))
    }

    /// Copies from the device, after the kernels that were launched before.
    pub(in crate::cuda) fn read(&self, from: u64, out: &mut [u8]) -> Result<()> {
        self.enter()?;
        self.staging()
            .read(self.kernels, from, out)
            .map_err(failed("give data"))
    }

    /// As `read`, to pinned memory, without a way through other memory.
    pub(in crate::cuda) fn read_pinned(&self, from: u64, out: &mut [u8]) -> Result<()> {
        self.enter()?;
        self.staging()
            .read_direct(self.kernels, from, out)
            .map_err(failed("give data"))
    }

    /// Memory of the host that this device copies to and from directly; `None` where the system has none to give.
    pub(crate) fn allocate_pinned(&self, bytes: usize) -> Option<*mut u8> {
        self.enter().ok()?;
        // SAFETY: memory that is written before it is read.
        let pinned = unsafe { result::malloc_host(bytes, PLAIN) };
        pinned.ok().map(<*mut _>::cast)
    }

    /// Gives it back, when no copy uses it any more.
    pub(crate) fn free_pinned(&self, bytes: *mut u8) {
        // Whoever asks for copies has waited for them; should one not have, the device would write to memory of others. One that
        // failed copies nothing any more.
        let _ = self.finish_copies();
        // SAFETY: allocated by this device, and given back once.
        let _ = unsafe { result::free_host(bytes.cast()) };
    }

    fn staging(&self) -> MutexGuard<'_, Staging> {
        self.staging.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
