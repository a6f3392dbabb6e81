//! A place in the order of copies, for kernels that need no copy after it.

use std::sync::Arc;

use cudarc::driver::sys;

use super::Device;
use crate::Result;

/// After everything that was to be copied when it was made.
#[derive(Debug)]
pub(crate) struct Mark {
    device: Arc<Device>,
    event: sys::CUevent,
}

// SAFETY: the driver's handle may be used from any thread.
unsafe impl Send for Mark {}
// SAFETY: as above.
unsafe impl Sync for Mark {}

impl Mark {
    /// After what was to be copied until now.
    pub(crate) fn new(device: &Arc<Device>) -> Result<Mark> {
        Ok(Mark {
            event: device.mark_copies()?,
            device: Arc::clone(device),
        })
    }

    /// Lets kernels that are launched from now on wait for it.
    pub(crate) fn follow(&self) -> Result<()> {
        self.device.follow_mark(self.event)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.device.forget_event(self.event);
    }
}
