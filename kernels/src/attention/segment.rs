//! The blocks of one segment, and how segments are joined.

use std::ops::Range;

use super::{Attention, Item, tile};
use crate::BLOCK_TOKENS;
use crate::cpu::widened;
use crate::exp::{exp, tanh};

/// Blocks whose tiles share one softmax state.
const SEGMENT_BLOCKS: usize = 4;
/// Tokens of a segment; segment i holds the positions `i * TOKENS..`.
pub(super) const TOKENS: usize = SEGMENT_BLOCKS * BLOCK_TOKENS;

/// The softmax state of an item's rows over some of the positions they see.
pub(super) struct Part {
    /// Largest score of each row; -inf before the first.
    max: Vec<f32>,
    /// Sum of exp(score - max) of each row; 0 when the row saw nothing.
    sum: Vec<f32>,
    /// Sum of exp(score - max) * value: `[rows, stride]`.
    values: Vec<f32>,
    stride: usize,
}

impl Part {
    fn new(rows: usize, stride: usize) -> Self {
        Self {
            max: vec![f32::NEG_INFINITY; rows],
            sum: vec![0.0; rows],
            values: vec![0.0; rows * stride],
            stride,
        }
    }

    /// Adds the part over the positions that follow. A row that saw nothing there keeps its bits.
    pub(super) fn join(&mut self, next: &Part) {
        let rows = self.values.chunks_exact_mut(self.stride);
        for (i, (total, values)) in rows.zip(next.values.chunks_exact(next.stride)).enumerate() {
            if next.sum[i] == 0.0 {
                continue;
            }
            let max = self.max[i].max(next.max[i]);
            let (a, b) = (exp(self.max[i] - max), exp(next.max[i] - max));
            self.max[i] = max;
            self.sum[i] = self.sum[i] * a + next.sum[i] * b;
            for (total, value) in total.iter_mut().zip(values) {
                *total = *total * a + value * b;
            }
        }
    }

    /// `[rows, head_dim]`. Adding 0 makes a negative zero positive: which of the two a sum is depends on masked terms.
    pub(super) fn finish(self, head_dim: usize) -> Vec<f32> {
        let rows = self.values.chunks_exact(self.stride).zip(&self.sum);
        rows.flat_map(|(row, &sum)| row[..head_dim].iter().map(move |v| v / sum + 0.0))
            .collect()
    }
}

/// Memory of one thread's tiles.
pub(super) struct Scratch {
    /// `[head_dim, 64]`
    keys: Vec<f32>,
    /// `[64, stride]`; the padding beyond head_dim stays 0.
    values: Vec<f32>,
    /// Scores, then weights: `[rows, 64]`
    scores: Vec<f32>,
    stride: usize,
}

impl Scratch {
    pub(super) fn new(rows: usize, head_dim: usize) -> Self {
        let stride = head_dim.next_multiple_of(tile::COLUMNS);
        Self {
            keys: vec![0.0; head_dim * BLOCK_TOKENS],
            values: vec![0.0; BLOCK_TOKENS * stride],
            scores: vec![0.0; rows * BLOCK_TOKENS],
            stride,
        }
    }
}

impl Attention<'_> {
    /// The softmax state of the item's rows over segment `index`.
    pub(super) fn attend_segment(&self, item: &Item, index: usize, scratch: &mut Scratch) -> Part {
        let mut part = Part::new(item.rows(self), scratch.stride);
        let seen = self.params.visible(item.positions.start).start..item.positions.end;
        let blocks = index * SEGMENT_BLOCKS..(index + 1) * SEGMENT_BLOCKS;
        let first = blocks.start.max(seen.start / BLOCK_TOKENS);
        let end = blocks.end.min(seen.end.div_ceil(BLOCK_TOKENS));
        for block in first..end {
            let start = block * BLOCK_TOKENS;
            // What some row sees; what lies beyond may be unwritten and is never read.
            let seen = within(&seen, start);
            let ahead = (block + 1 < end).then(|| block + 1);
            self.attend_block(item, (block, ahead), seen, scratch, &mut part);
        }
        part
    }

    fn attend_block(
        &self,
        item: &Item,
        (block, ahead): (usize, Option<usize>),
        seen: Range<usize>,
        scratch: &mut Scratch,
        part: &mut Part,
    ) {
        let (dim, stride) = (self.layout.head_dim, scratch.stride);
        let (keys, values) = (self.keys(item, block), self.values(item, block));
        let ahead = ahead.map_or(&[][..], |block| self.keys(item, block).values);
        tile::transpose_keys(keys, seen.end, values.values, &mut scratch.keys);
        tile::product(
            (&item.queries, dim),
            (&scratch.keys, BLOCK_TOKENS),
            (&mut scratch.scores, BLOCK_TOKENS),
            0..dim,
            false,
        );
        let rows = scratch.scores.as_chunks_mut::<BLOCK_TOKENS>().0;
        for (i, scores) in rows.iter_mut().enumerate() {
            let position = item.positions.start + i / self.group;
            let seen = within(&self.params.visible(position), block * BLOCK_TOKENS);
            let sums = &mut part.values[i * stride..(i + 1) * stride];
            let state = (&mut part.max[i], &mut part.sum[i], sums);
            weigh_wide(scores, seen, self.params.softcap, state);
        }
        tile::widen_values(values, seen.end, ahead, &mut scratch.values);
        tile::product(
            (&scratch.scores, BLOCK_TOKENS),
            (&scratch.values, stride),
            (&mut part.values, stride),
            seen,
            true,
        );
    }
}

/// The part of `positions` inside the block that starts at `start`, counted from there.
fn within(positions: &Range<usize>, start: usize) -> Range<usize> {
    let clip = |p: usize| p.saturating_sub(start).min(BLOCK_TOKENS);
    clip(positions.start)..clip(positions.end)
}

widened! {
    fn weigh_wide(
        scores: &mut [f32; BLOCK_TOKENS],
        seen: Range<usize>,
        softcap: Option<f32>,
        state: (&mut f32, &mut f32, &mut [f32])
    ) = weigh
}

/// Turns one row's scores into weights, 0 outside `seen`, and rescales the row's state (max, sum, values) to the new max.
#[inline(always)]
fn weigh(
    scores: &mut [f32; BLOCK_TOKENS],
    seen: Range<usize>,
    softcap: Option<f32>,
    (max, sum, values): (&mut f32, &mut f32, &mut [f32]),
) {
    if seen.is_empty() {
        scores.fill(0.0);
        return;
    }
    if let Some(cap) = softcap {
        for score in scores.iter_mut() {
            *score = cap * tanh(*score / cap);
        }
    }
    scores[..seen.start].fill(f32::NEG_INFINITY);
    scores[seen.end..].fill(f32::NEG_INFINITY);
    let mut lanes = [*max; 8];
    for chunk in scores.as_chunks::<8>().0 {
        for (lane, &score) in lanes.iter_mut().zip(chunk) {
            *lane = if score > *lane { score } else { *lane };
        }
    }
    let new_max = lanes.into_iter().fold(*max, f32::max);
    for score in scores.iter_mut() {
        *score = exp(*score - new_max);
    }
    let mut lanes = [0f32; 8];
    for chunk in scores.as_chunks::<8>().0 {
        for (lane, weight) in lanes.iter_mut().zip(chunk) {
            *lane += weight;
        }
    }
    let rescale = exp(*max - new_max);
    *sum = *sum * rescale + lanes.iter().sum::<f32>();
    *max = new_max;
    if rescale != 1.0 {
        for value in values {
            *value *= rescale;
        }
    }
}
