//! Where bytes land that several threads bring for a device: a few pieces of pinned memory, which go round.
//!
//! Who reads a part of a block reads it into such a piece, and the device copies it from there. A chain of blocks of any length
//! takes no more memory of the host than these pieces.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::{DriverError, result, sys};

use super::staging::PLAIN;

/// Bytes of a piece: what is read at once is not much more than 1 MiB.
const PIECE_BYTES: usize = 2 << 20;
/// Pieces: one for each of four readers, and two on their way.
const PIECES: usize = 6;

/// The pieces that nobody holds, the one that was given back first in front; they are there from the first use on.
#[derive(Default)]
pub(super) struct Ring(Mutex<Option<VecDeque<Piece>>>);

struct Piece {
    bytes: *mut u8,
    /// Done when its last copy is.
    free: sys::CUevent,
}

// SAFETY: a piece belongs to who holds it.
unsafe impl Send for Piece {}
// SAFETY: only who has it alone changes it.
unsafe impl Sync for Piece {}

/// Some bytes of the host on their way to a device.
pub(crate) struct Landing {
    place: Place,
    len: usize,
}

enum Place {
    Pinned(Piece),
    Unpinned(Vec<u8>),
}

impl std::fmt::Debug for Landing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Landing({} bytes)", self.len)
    }
}

impl Landing {
    /// In memory as any other.
    pub(super) fn unpinned(len: usize) -> Landing {
        Landing {
            place: Place::Unpinned(vec![0; len]),
            len,
        }
    }

    pub(super) fn is_pinned(&self) -> bool {
        matches!(self.place, Place::Pinned(_))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.place {
            // SAFETY: the piece is ours, was zeroed when it came, and has that many bytes.
            Place::Pinned(piece) => unsafe { std::slice::from_raw_parts(piece.bytes, self.len) },
            Place::Unpinned(bytes) => bytes,
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.place {
            // SAFETY: as above.
            Place::Pinned(piece) => unsafe {
                std::slice::from_raw_parts_mut(piece.bytes, self.len)
            },
            Place::Unpinned(bytes) => bytes,
        }
    }
}

impl Ring {
    /// A piece that no copy uses any more, in the current context; `None` while all are held, or where a piece is too small.
    pub(super) fn take(&self, len: usize) -> Option<Landing> {
        if len > PIECE_BYTES {
            return None;
        }
        let piece = self.lock().get_or_insert_with(new_pieces).pop_front()?;
        // SAFETY: our event; one that was never recorded is done.
        if unsafe { result::event::synchronize(piece.free) }.is_err() {
            // The device has failed; the next call says so.
            self.lock().get_or_insert_default().push_back(piece);
            return None;
        }
        Some(Landing {
            place: Place::Pinned(piece),
            len,
        })
    }

    /// Takes a piece back, to be used when what `copies` was asked for is done.
    pub(super) fn put_back(&self, landing: Landing, copies: sys::CUstream) {
        if let Place::Pinned(piece) = landing.place {
            // SAFETY: our event, and a stream that lives. If it cannot be recorded, the device has failed.
            let _ = unsafe { result::event::record(piece.free, copies) };
            self.lock().get_or_insert_default().push_back(piece);
        }
    }

    /// Gives the pieces back that nobody holds.
    ///
    /// # Safety
    /// The context is current, no copy is under way, and nothing is called afterwards.
    pub(super) unsafe fn free(&self) {
        for piece in self.lock().take().into_iter().flatten() {
            // SAFETY: the caller's promise; errors are those of a driver that has given up.
            unsafe {
                let _ = result::free_host(piece.bytes.cast());
                let _ = result::event::destroy(piece.free);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<VecDeque<Piece>>> {
        // A list of pieces is sound whatever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As many pieces as the system gives.
fn new_pieces() -> VecDeque<Piece> {
    let piece = |_| -> Result<Piece, DriverError> {
        let free = sleeping_event()?;
        // SAFETY: memory that is written here before anything else.
        let bytes = unsafe { result::malloc_host(PIECE_BYTES, PLAIN)? }.cast::<u8>();
        // SAFETY: just allocated.
        unsafe { bytes.write_bytes(0, PIECE_BYTES) };
        Ok(Piece { bytes, free })
    };
    (0..PIECES).map_while(|n| piece(n).ok()).collect()
}

/// An event that whoever waits for it sleeps until: the readers would spin on cores that check what others have read.
fn sleeping_event() -> Result<sys::CUevent, DriverError> {
    use sys::CUevent_flags::{CU_EVENT_BLOCKING_SYNC, CU_EVENT_DISABLE_TIMING};
    let mut event = std::ptr::null_mut();
    let flags = CU_EVENT_BLOCKING_SYNC as u32 | CU_EVENT_DISABLE_TIMING as u32;
    // SAFETY: a place for the answer.
    unsafe { sys::cuEventCreate(&mut event, flags) }.result()?;
    Ok(event)
}
