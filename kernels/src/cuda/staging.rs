//! Copies between host and device: through pinned memory, so that they run at the link's speed beside other work.

use cudarc::driver::{DriverError, result, sys};

/// Bytes of a piece: large enough that starting its copy costs nothing.
const PIECE_BYTES: usize = 4 << 20;
/// Pieces: one is filled, or read out, while the other is under way.
const PIECES: usize = 2;
/// Plain pinned memory. Write-combined memory would be slow to read.
pub(super) const PLAIN: u32 = 0;

/// A ring of pinned pieces and the stream that copies them.
pub(super) struct Staging {
    copies: sys::CUstream,
    /// Done when the copies that were asked for are.
    copied: sys::CUevent,
    /// Done when the kernels that were launched are.
    computed: sys::CUevent,
    pieces: [Piece; PIECES],
    next: usize,
}

#[derive(Clone, Copy)]
struct Piece {
    bytes: *mut u8,
    /// Done when its copy is.
    free: sys::CUevent,
}

impl Staging {
    /// In the current context.
    pub(super) fn new() -> Result<Staging, DriverError> {
        let event = || result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING);
        let piece = || {
            // SAFETY: memory that is written before it is read.
            let bytes = unsafe { result::malloc_host(PIECE_BYTES, PLAIN)? };
            Ok(Piece {
                bytes: bytes.cast(),
                free: event()?,
            })
        };
        Ok(Staging {
            copies: result::stream::create(result::stream::StreamKind::NonBlocking)?,
            copied: event()?,
            computed: event()?,
            pieces: [piece()?, piece()?],
            next: 0,
        })
    }

    /// Copies to the device, after the kernels that were launched before and before those that are launched afterwards. The
    /// bytes have been taken over when it returns.
    pub(super) fn write(
        &mut self,
        kernels: sys::CUstream,
        to: u64,
        bytes: &[u8],
    ) -> Result<(), DriverError> {
        self.follow(kernels)?;
        self.copy_in(to, bytes)?;
        self.lead(kernels)
    }

    /// Copies to the device, after the copies before alone. The bytes have been taken over when it returns.
    pub(super) fn copy_in(&mut self, to: u64, bytes: &[u8]) -> Result<(), DriverError> {
        for (i, part) in bytes.chunks(PIECE_BYTES).enumerate() {
            let piece = self.next_piece()?;
            // SAFETY: the piece is free and as long as any part; its event and the stream are ours.
            unsafe {
                piece
                    .bytes
                    .copy_from_nonoverlapping(part.as_ptr(), part.len());
                let part = std::slice::from_raw_parts(piece.bytes, part.len());
                let to = to + (i * PIECE_BYTES) as u64;
                result::memcpy_htod_async(to, part, self.copies)?;
                result::event::record(piece.free, self.copies)?;
            }
        }
        Ok(())
    }

    /// Lets kernels that are launched from now on wait for the copies that were asked for.
    pub(super) fn lead(&self, kernels: sys::CUstream) -> Result<(), DriverError> {
        // SAFETY: our event, and streams that live.
        unsafe {
            result::event::record(self.copied, self.copies)?;
            wait(kernels, self.copied)
        }
    }

    /// Copies from the device, after the kernels that were launched before; the bytes are there when it returns.
    pub(super) fn read(
        &mut self,
        kernels: sys::CUstream,
        from: u64,
        out: &mut [u8],
    ) -> Result<(), DriverError> {
        self.follow(kernels)?;
        let mut pending: Option<(usize, &mut [u8])> = None;
        for (i, part) in out.chunks_mut(PIECE_BYTES).enumerate() {
            let index = self.next;
            let piece = self.next_piece()?;
            // SAFETY: the piece is free and as long as any part; its event and the stream are ours.
            unsafe {
                let to = std::slice::from_raw_parts_mut(piece.bytes, part.len());
                let from = from + (i * PIECE_BYTES) as u64;
                result::memcpy_dtoh_async(to, from, self.copies)?;
                result::event::record(piece.free, self.copies)?;
            }
            if let Some((index, out)) = pending.replace((index, part)) {
                self.take_out(index, out)?;
            }
        }
        pending.map_or(Ok(()), |(index, out)| self.take_out(index, out))
    }

    /// As `read`, to pinned memory, which the device copies to by itself.
    pub(super) fn read_direct(
        &mut self,
        kernels: sys::CUstream,
        from: u64,
        out: &mut [u8],
    ) -> Result<(), DriverError> {
        self.follow(kernels)?;
        // SAFETY: our stream; the bytes are there until it has finished.
        unsafe {
            result::memcpy_dtoh_async(out, from, self.copies)?;
            result::stream::synchronize(self.copies)
        }
    }

    /// The stream that copies.
    pub(super) fn copies(&self) -> sys::CUstream {
        self.copies
    }

    /// Lets copies wait for the kernels that were launched.
    fn follow(&self, kernels: sys::CUstream) -> Result<(), DriverError> {
        // SAFETY: our event, and streams that live.
        unsafe {
            result::event::record(self.computed, kernels)?;
            wait(self.copies, self.computed)
        }
    }

    /// A piece that no copy uses any more.
    fn next_piece(&mut self) -> Result<Piece, DriverError> {
        let piece = self.pieces[self.next];
        self.next = (self.next + 1) % PIECES;
        // SAFETY: our event; one that was never recorded is done.
        unsafe { result::event::synchronize(piece.free)? };
        Ok(piece)
    }

    fn take_out(&self, index: usize, out: &mut [u8]) -> Result<(), DriverError> {
        let piece = self.pieces[index];
        // SAFETY: the piece has these bytes once its event is done.
        unsafe {
            result::event::synchronize(piece.free)?;
            out.copy_from_slice(std::slice::from_raw_parts(piece.bytes, out.len()));
        }
        Ok(())
    }

    /// Gives everything back.
    ///
    /// # Safety
    /// The context is current, and nothing is called afterwards.
    pub(super) unsafe fn free(&mut self) {
        // SAFETY: the caller's promise; errors are those of a driver that has given up.
        unsafe {
            let _ = result::stream::synchronize(self.copies);
            for piece in &self.pieces {
                let _ = result::free_host(piece.bytes.cast());
                let _ = result::event::destroy(piece.free);
            }
            let _ = result::event::destroy(self.copied);
            let _ = result::event::destroy(self.computed);
            let _ = result::stream::destroy(self.copies);
        }
    }
}

/// # Safety
/// The stream and the event live.
unsafe fn wait(stream: sys::CUstream, event: sys::CUevent) -> Result<(), DriverError> {
    // SAFETY: the caller's promise.
    unsafe {
        result::stream::wait_event(
            stream,
            event,
            sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT,
        )
    }
}
