//! Memory for weights: large pieces that begin on a cache line, cut from larger ones.
//!
//! Decoding reads every weight for every token. Matrices side by side in large pages spare the machine most of the
//! translating of addresses; a matrix alone is often smaller than such a page.

use std::sync::Arc;

/// Bytes asked of the system at a time; a larger piece is asked for by itself.
const CHUNK_BYTES: usize = 32 << 20;
/// Where a large page begins.
const LARGE_PAGE: usize = 2 << 20;
/// A cache line, and a vector of sixteen lanes.
const LINE: usize = 64;

/// Cuts pieces from chunks. The memory of a chunk is given back when the last of its pieces is dropped.
#[derive(Debug, Default)]
pub struct Arena {
    chunk: Option<Arc<Chunk>>,
    used: usize,
}

#[derive(Debug)]
struct Chunk {
    /// Zeroed and untouched: it takes memory as it is first written.
    bytes: *mut u8,
    /// Owns the memory.
    _memory: Vec<u8>,
}

// SAFETY: the pointer is into memory the chunk owns; pieces of it do not overlap (see `Piece`).
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

impl Chunk {
    fn new(len: usize) -> Chunk {
        let mut memory = vec![0u8; len + LARGE_PAGE];
        crate::large_pages::advise(&memory);
        let skipped = memory.as_ptr().align_offset(LARGE_PAGE);
        Chunk {
            bytes: memory[skipped..skipped + len].as_mut_ptr(),
            _memory: memory,
        }
    }
}

/// Bytes that begin on a cache line, 0 at first.
#[derive(Debug)]
pub(crate) struct Piece {
    chunk: Arc<Chunk>,
    start: usize,
    len: usize,
}

impl Arena {
    /// A piece of `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Piece {
        let size = len.next_multiple_of(LINE);
        if size > CHUNK_BYTES {
            let chunk = Arc::new(Chunk::new(size));
            return Piece {
                chunk,
                start: 0,
                len,
            };
        }
        let fits = self.chunk.is_some() && self.used + size <= CHUNK_BYTES;
        if !fits {
            self.chunk = None;
            self.used = 0;
        }
        let chunk = self
            .chunk
            .get_or_insert_with(|| Arc::new(Chunk::new(CHUNK_BYTES)));
        let start = self.used;
        self.used += size;
        Piece {
            chunk: chunk.clone(),
            start,
            len,
        }
    }
}

impl Piece {
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: inside the chunk, which lives as long as the piece; written only through the piece itself.
        unsafe { std::slice::from_raw_parts(self.chunk.bytes.add(self.start), self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; pieces do not overlap, and this one is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.chunk.bytes.add(self.start), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_begin_on_cache_lines_are_zero_and_do_not_overlap() {
        let mut arena = Arena::default();
        let sizes = [
            1,
            64,
            100,
            5 << 20,
            CHUNK_BYTES - 64,
            3,
            CHUNK_BYTES + 1,
            0,
            7,
        ];
        let mut pieces: Vec<Piece> = sizes.iter().map(|&len| arena.take(len)).collect();
        for (i, piece) in pieces.iter_mut().enumerate() {
            assert_eq!(piece.bytes().len(), sizes[i]);
            assert!(
                piece
                    .bytes()
                    .as_ptr()
                    .cast::<[u8; 64]>()
                    .addr()
                    .is_multiple_of(64)
            );
            assert!(piece.bytes().iter().all(|&byte| byte == 0));
            piece.bytes_mut().fill(i as u8 + 1);
        }
        drop(arena);
        for (i, piece) in pieces.iter().enumerate() {
            assert!(piece.bytes().iter().all(|&byte| byte == i as u8 + 1));
        }
    }
}
