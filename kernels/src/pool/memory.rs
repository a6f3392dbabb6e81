//! Where slots lie, for threads that compute on them.

use super::Filling;

/// The memory of a pool's slots, as threads see it that share the writing.
#[derive(Clone, Copy)]
pub(crate) struct Memory<'a> {
    /// Slots that others write meanwhile.
    pub(crate) filling: Option<&'a Filling>,
    /// Null where there is none.
    pub(super) chunks: &'a [*mut u8],
    pub(super) slots_per_chunk: usize,
    pub(super) slot_bytes: usize,
}

// SAFETY: threads touch disjoint bytes, by the contract of the accessor.
unsafe impl Send for Memory<'_> {}
// SAFETY: as above.
unsafe impl Sync for Memory<'_> {}

impl Memory<'_> {
    /// Where a slot's bytes begin; it has memory (see `KvPool::check_table`). Whoever uses the pointer keeps to bytes that no
    /// other thread writes meanwhile.
    #[inline(always)]
    pub(crate) fn slot(&self, slot: u32) -> *mut u8 {
        let (chunk, at) = (
            slot as usize / self.slots_per_chunk,
            slot as usize % self.slots_per_chunk,
        );
        let chunk = self.chunks[chunk];
        assert!(!chunk.is_null());
        // SAFETY: inside the chunk.
        unsafe { chunk.add(at * self.slot_bytes) }
    }
}
