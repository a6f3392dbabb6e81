//! Attention over KV blocks, read where they lie, in whatever format they are.
//!
//! All query heads of a KV head share its keys and values, so they are attended together. The blocks that the queries see
//! are walked one 64-token tile at a time, with an online softmax (Milakov and Gimelshein, 2018; tiled as in
//! FlashAttention, Dao et al., 2022); tiles stand at absolute positions. Tiles are joined in segments of a few blocks, also
//! at absolute positions, each with its own softmax state, and the segments in order: so the segments of one query can run
//! on several threads, and the order of accumulation is still the same in any chunk.

mod segment;
mod sides;
mod tile;

use std::ops::Range;

use crate::KvLayout;
use crate::cpu::{self, Path};
use crate::key_balance::{self, KeyBalance};
use crate::layout::Side;
use crate::pool::Memory;
use crate::rope::RopeKind;
use segment::Segment;
pub(crate) use segment::{Parts, Scratch};

/// What attention depends on besides its inputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionParams {
    /// Factor of the scores, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// A query sees the last `window` keys, itself included.
    pub window: Option<usize>,
    /// Scores become `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
}

impl AttentionParams {
    /// The positions that the query at `position` sees.
    pub(crate) fn visible(&self, position: usize) -> Range<usize> {
        let end = position + 1;
        end.saturating_sub(self.window.unwrap_or(end))..end
    }
}

/// Causal attention in one layer over the keys and values that `table` names: a query sees the positions up to its own, all
/// of which must have been written.
#[derive(Clone, Copy)]
pub(crate) struct Attention<'a> {
    pub(crate) memory: Memory<'a>,
    pub(crate) layout: KvLayout,
    pub(crate) layer: usize,
    pub(crate) table: &'a [u32],
    pub(crate) params: AttentionParams,
    /// Query heads per KV head: head h belongs to KV head `h / group`.
    pub(crate) group: usize,
    /// What was done to the keys before they were rounded, if anything was.
    pub(crate) centers: Option<Centers<'a>>,
}

/// What was taken off the keys of each block, and the angles that it depends on.
#[derive(Clone, Copy)]
pub(crate) struct Centers<'a> {
    pub(crate) balance: &'a KeyBalance,
    /// `[positions, head_dim / 2]`
    pub(crate) cos: &'a [f32],
    /// `[positions, head_dim / 2]`
    pub(crate) sin: &'a [f32],
    pub(crate) kind: RopeKind,
}

impl<'a> Centers<'a> {
    /// Cosines and sines of the middle of a block.
    pub(crate) fn angles(&self, block: usize, head_dim: usize) -> (&'a [f32], &'a [f32]) {
        let middle = key_balance::middle(block);
        let row = middle * head_dim / 2..(middle + 1) * head_dim / 2;
        (&self.cos[row.clone()], &self.sin[row])
    }
}

/// The queries of some tokens for some KV heads.
#[derive(Clone)]
pub(crate) struct Queries<'a> {
    pub(crate) kv_heads: Range<usize>,
    /// Absolute positions of the tokens.
    pub(crate) positions: Range<usize>,
    /// Scaled, and rotated where the keys are: `[kv_heads, tokens, group, head_dim]`
    pub(crate) values: &'a [f32],
}

/// The keys or values of one head in one block: tiles of 16 tokens, `stride` bytes apart.
#[derive(Clone, Copy)]
struct Tiles {
    first: *const u8,
    stride: usize,
}

impl Tiles {
    fn tile(&self, index: usize) -> *const u8 {
        self.first.wrapping_add(index * self.stride)
    }
}

impl Attention<'_> {
    /// The segments that queries at `positions` see something of.
    pub(crate) fn segments(&self, positions: &Range<usize>) -> Range<usize> {
        let first = self.params.visible(positions.start).start;
        first / segment::TOKENS..(positions.end - 1) / segment::TOKENS + 1
    }

    /// The softmax states of `tokens` tokens for one KV head.
    pub(crate) fn parts(&self, tokens: usize) -> Parts {
        Parts::new(tokens * self.group, self.layout.head_dim)
    }

    /// The softmax states over segment `index`, into `part`: for each KV head `parts.len()` floats.
    ///
    /// # Safety
    /// Nobody writes this layer's keys and values at the positions seen meanwhile.
    pub(crate) unsafe fn attend_segment(
        &self,
        path: Path,
        queries: &Queries,
        index: usize,
        scratch: &mut Scratch,
        part: &mut [f32],
    ) {
        scratch.take_in(path, self, queries);
        // SAFETY: the caller's promise.
        unsafe { self.attend_next(path, queries, index, scratch, part) };
    }

    /// As `attend_segment`, when the scratch has taken the queries in.
    ///
    /// # Safety
    /// As `attend_segment`.
    unsafe fn attend_next(
        &self,
        path: Path,
        queries: &Queries,
        index: usize,
        scratch: &mut Scratch,
        part: &mut [f32],
    ) {
        let (heads, parts) = (queries.kv_heads.len(), self.parts(queries.positions.len()));
        let rows = heads * queries.positions.len() * self.group;
        assert_eq!(queries.values.len(), rows * self.layout.head_dim);
        assert_eq!(part.len(), heads * parts.len());
        let segment = Segment {
            attention: self,
            queries,
            index,
            scratch,
            part,
        };
        cpu::run(path, segment);
    }

    /// All segments one after the other: `put(row, values)` gets `[kv_heads, tokens, group]` rows of
    /// `[head_dim]`.
    ///
    /// # Safety
    /// As `attend_segment`.
    pub(crate) unsafe fn attend(
        &self,
        path: Path,
        queries: &Queries,
        scratch: &mut Scratch,
        put: impl FnMut(usize, &[f32]),
    ) {
        let parts = self.parts(queries.positions.len());
        let mut segments = self.segments(&queries.positions);
        let (mut total, mut next) = (
            std::mem::take(&mut scratch.total),
            std::mem::take(&mut scratch.next),
        );
        let len = queries.kv_heads.len() * parts.len();
        total.resize(len, 0.0);
        next.resize(len, 0.0);
        let first = segments.next().expect("a query sees itself");
        scratch.take_in(path, self, queries);
        // SAFETY: the caller's promise.
        unsafe { self.attend_next(path, queries, first, scratch, &mut total) };
        for index in segments {
            // SAFETY: the caller's promise.
            unsafe { self.attend_next(path, queries, index, scratch, &mut next) };
            parts.join(&mut total, &next);
        }
        parts.finish(&mut total, put);
        (scratch.total, scratch.next) = (total, next);
    }

    /// The keys and the values of a head in a block.
    fn tiles(&self, kv_head: usize, block: usize) -> (Tiles, Tiles) {
        let slot = self.memory.slot(self.table[block]);
        let tiles = |side| Tiles {
            first: slot.wrapping_add(self.layout.tile(side, self.layer, 0, kv_head).start),
            stride: self.layout.tile_stride(side),
        };
        (tiles(Side::Key), tiles(Side::Value))
    }
}

#[cfg(test)]
mod tests;
