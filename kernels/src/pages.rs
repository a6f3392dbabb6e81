//! Memory asked of the system: zeroed, taken as it is first written, and given back for certain.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::cuda::Device;

/// A stretch of memory that begins on a page.
#[derive(Debug)]
pub(crate) struct Pages {
    bytes: NonNull<u8>,
    len: usize,
    /// Who gave it, where a device copies to and from it directly.
    pinned_by: Option<Arc<Device>>,
}

// SAFETY: it owns its memory; who writes which bytes is the callers' agreement.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// `len` bytes, more than 0; `None` if the system does not give them.
    pub(crate) fn new(len: usize) -> Option<Pages> {
        let bytes = imp::take(len)?;
        // SAFETY: just taken, zeroed.
        crate::large_pages::advise(unsafe { std::slice::from_raw_parts(bytes.as_ptr(), len) });
        Some(Pages {
            bytes,
            len,
            pinned_by: None,
        })
    }

    /// As `new`, of memory that a device copies to and from directly; the system lets it stay where it is, and has only so much.
    pub(crate) fn pinned(device: &Arc<Device>, len: usize) -> Option<Pages> {
        let bytes = NonNull::new(device.allocate_pinned(len)?)?;
        // SAFETY: just taken.
        unsafe { bytes.write_bytes(0, len) };
        Some(Pages {
            bytes,
            len,
            pinned_by: Some(Arc::clone(device)),
        })
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned_by.is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.bytes.as_ptr()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        match &self.pinned_by {
            Some(device) => device.free_pinned(self.bytes.as_ptr()),
            // SAFETY: taken with this length, and nobody holds it after its owner.
            None => unsafe { imp::give_back(self.bytes, self.len) },
        }
    }
}

#[cfg(target_os = "linux")]
mod imp {
    use std::ptr::{NonNull, null_mut};

    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

    pub(super) fn take(len: usize) -> Option<NonNull<u8>> {
        // SAFETY: a new mapping, wherever there is room.
        let bytes = unsafe {
            mmap_anonymous(
                null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        NonNull::new(bytes.ok()?.cast())
    }

    /// # Safety
    /// `bytes` was taken with this length and is not used any more.
    pub(super) unsafe fn give_back(bytes: NonNull<u8>, len: usize) {
        // SAFETY: the caller's promise. It cannot fail for a mapping that is there.
        let unmapped = unsafe { munmap(bytes.as_ptr().cast(), len) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    /// A cache line: allocators give large blocks their own pages.
    const ALIGN: usize = 64;

    pub(super) fn take(len: usize) -> Option<NonNull<u8>> {
        let layout = Layout::from_size_align(len, ALIGN)
            .ok()
            .filter(|_| len > 0)?;
        // SAFETY: not of size 0.
        NonNull::new(unsafe { alloc_zeroed(layout) })
    }

    /// # Safety
    /// `bytes` was taken with this length and is not used any more.
    pub(super) unsafe fn give_back(bytes: NonNull<u8>, len: usize) {
        if let Ok(layout) = Layout::from_size_align(len, ALIGN) {
            // SAFETY: the caller's promise.
            unsafe { dealloc(bytes.as_ptr(), layout) };
        }
    }
}
