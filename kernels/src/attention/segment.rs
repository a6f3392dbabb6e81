//! The blocks of one segment, and how segments are joined.

use std::ops::Range;

use super::sides::{Keys, Values};
use super::tile::{self, Ahead};
use super::{Attention, Queries};
use crate::BLOCK_TOKENS;
use crate::KvDtype;
use crate::cpu::{Kernel, Path};
use crate::exp::{exp, tanh};
use crate::lanes::{LANES, Lanes};
use crate::layout::BLOCK_TILES;
use crate::quantized::{Activations, Q4Tiles, Q8Tiles, Rounding};

/// Blocks whose tiles share one softmax state.
const SEGMENT_BLOCKS: usize = 4;
/// Tokens of a segment; segment i holds the positions `i * TOKENS..`.
pub(super) const TOKENS: usize = SEGMENT_BLOCKS * BLOCK_TOKENS;
/// Rows (a row is one head of one token) whose scores are held at once: with a tile of keys and values they fit the cache
/// next to the processor.
const CHUNK_ROWS: usize = 48;
/// Rows for which a tile is not worth widening to f32 first: they are multiplied in one pass.
const FEW_ROWS: usize = 6;

/// The layout of softmax states: for each row the sum of exp(score - max) * value `[stride]`, then the largest score (-inf
/// before the first) and the sum of exp(score - max) (0 when the row saw nothing).
#[derive(Clone, Copy)]
pub(crate) struct Parts {
    rows: usize,
    head_dim: usize,
    stride: usize,
}

impl Parts {
    pub(super) fn new(rows: usize, head_dim: usize) -> Self {
        Self {
            rows,
            head_dim,
            stride: head_dim.next_multiple_of(LANES),
        }
    }

    /// Floats of the states of all rows.
    pub(crate) fn len(&self) -> usize {
        self.rows * self.row()
    }

    fn row(&self) -> usize {
        self.stride + LANES
    }

    fn clear(&self, part: &mut [f32]) {
        for row in part.chunks_exact_mut(self.row()) {
            row.fill(0.0);
            row[self.stride] = f32::NEG_INFINITY;
        }
    }

    /// Adds the state over the positions that follow. A row that saw nothing there keeps its bits.
    pub(crate) fn join(&self, total: &mut [f32], next: &[f32]) {
        let rows = total.chunks_exact_mut(self.row());
        for (total, next) in rows.zip(next.chunks_exact(self.row())) {
            let (values, state) = total.split_at_mut(self.stride);
            let (next_values, next_state) = next.split_at(self.stride);
            let ([max, sum, ..], [next_max, next_sum, ..]) = (state, next_state) else {
                unreachable!("a row ends with its state");
            };
            if *next_sum == 0.0 {
                continue;
            }
            let largest = max.max(*next_max);
            let (a, b) = (exp(*max - largest), exp(*next_max - largest));
            *max = largest;
            *sum = *sum * a + *next_sum * b;
            for (value, next) in values.iter_mut().zip(next_values) {
                *value = *value * a + next * b;
            }
        }
    }

    /// Divides by the sums: `put(row, values)` gets `[head_dim]`. Adding 0 makes a negative zero positive: which of the two
    /// a sum is depends on masked terms.
    pub(crate) fn finish(&self, total: &mut [f32], mut put: impl FnMut(usize, &[f32])) {
        for (i, row) in total.chunks_exact_mut(self.row()).enumerate() {
            let (values, state) = row.split_at_mut(self.stride);
            for value in values.iter_mut() {
                *value = *value / state[1] + 0.0;
            }
            put(i, &values[..self.head_dim]);
        }
    }
}

/// Memory of one thread's tiles.
#[derive(Default)]
pub(crate) struct Scratch {
    /// A block's keys of 16 bits as f32, `[head_dim, 64]`.
    pub(super) wide_keys: Vec<f32>,
    /// A block's values as f32, `[64, stride]`; the padding beyond head_dim stays 0.
    pub(super) wide_values: Vec<f32>,
    /// Scores, then weights: `[CHUNK_ROWS, 64]`
    pub(super) scores: Vec<f32>,
    /// What was taken off a block's keys, and off the first key of all, `[head_dim]`.
    pub(super) center: Vec<f32>,
    pub(super) first_center: Vec<f32>,
    /// The queries as quantized keys meet them: `[kv_heads][chunks of CHUNK_ROWS rows]`.
    pub(super) queries: Vec<Activations>,
    pub(super) total: Vec<f32>,
    pub(super) next: Vec<f32>,
}

impl Scratch {
    /// Takes the queries in, once for all segments. Quantized keys are multiplied as integers: then queries are rounded to
    /// int8 twice, which leaves 15 bits of them, so that what they add to the error of the keys does not count.
    pub(super) fn take_in(&mut self, path: Path, attention: &Attention, queries: &Queries) {
        let dim = attention.layout.head_dim;
        let stride = dim.next_multiple_of(LANES);
        if self.wide_keys.len() != dim * BLOCK_TOKENS {
            self.wide_keys = vec![0.0; dim * BLOCK_TOKENS];
            self.wide_values = vec![0.0; BLOCK_TOKENS * stride];
            self.scores = vec![0.0; CHUNK_ROWS * BLOCK_TOKENS];
        }
        if !attention.layout.format.key.is_rotated() {
            return;
        }
        let of_head = queries.values.len() / queries.kv_heads.len();
        let chunks = queries
            .values
            .chunks_exact(of_head)
            .flat_map(|head| head.chunks(CHUNK_ROWS * dim));
        for (index, chunk) in chunks.enumerate() {
            if self.queries.len() == index {
                self.queries.push(Activations::default());
            }
            let quantized = &mut self.queries[index];
            quantized.quantize(path, chunk, dim, Rounding::Twice);
            match attention.layout.format.key {
                KvDtype::Q4 => Q4Tiles::prepare(quantized),
                _ => Q8Tiles::prepare(quantized),
            }
        }
    }
}

/// The softmax states of some queries over segment `index`.
pub(super) struct Segment<'a> {
    pub(super) attention: &'a Attention<'a>,
    pub(super) queries: &'a Queries<'a>,
    pub(super) index: usize,
    pub(super) scratch: &'a mut Scratch,
    /// `[kv_heads]` of `Parts`
    pub(super) part: &'a mut [f32],
}

impl Kernel for Segment<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(mut self) {
        let positions = &self.queries.positions;
        self.attention.parts(positions.len()).clear(self.part);
        let seen = self.attention.params.visible(positions.start).start..positions.end;
        let blocks = self.index * SEGMENT_BLOCKS..(self.index + 1) * SEGMENT_BLOCKS;
        let first = blocks.start.max(seen.start / BLOCK_TOKENS);
        let all = seen.end.div_ceil(BLOCK_TOKENS);
        for block in first..blocks.end.min(all) {
            let mut ahead = self.ahead((block + 1 < all).then_some(block + 1));
            for head in 0..self.queries.kv_heads.len() {
                // SAFETY: the machine has the instructions, by the caller's promise.
                unsafe { self.block::<L>(block, head, &mut ahead) };
            }
        }
    }
}

impl Segment<'_> {
    /// The next block's keys and values of all heads: they are asked for in small steps while this block is worked on.
    fn ahead(&self, block: Option<usize>) -> Ahead {
        let layout = &self.attention.layout;
        let heads = self.queries.kv_heads.len();
        let bytes = layout.layer_bytes() / layout.num_kv_heads * heads;
        Ahead {
            next: block.map(|block| {
                let (keys, _) = self.attention.tiles(self.queries.kv_heads.start, block);
                keys.first
            }),
            bytes_left: bytes,
            step: bytes.div_ceil(heads * BLOCK_TILES),
        }
    }

    #[inline(always)]
    unsafe fn block<L: Lanes>(&mut self, block: usize, head: usize, ahead: &mut Ahead) {
        let Self {
            attention,
            queries,
            scratch,
            part,
            ..
        } = self;
        let (layout, group) = (&attention.layout, attention.group);
        let dim = layout.head_dim;
        let parts = attention.parts(queries.positions.len());
        let (rows, row_floats) = (parts.rows, parts.row());
        let part = &mut part[head * parts.len()..][..parts.len()];
        let q = &queries.values[head * rows * dim..][..rows * dim];
        let start = block * BLOCK_TOKENS;
        let last = within(&(0..queries.positions.end), start).end;
        let (keys, values) = attention.tiles(queries.kv_heads.start + head, block);
        let few = rows <= FEW_ROWS && dim.is_multiple_of(LANES);
        if let Some(centers) = &attention.centers {
            let kv_head = queries.kv_heads.start + head;
            let head = centers.balance.head(attention.layer, kv_head, layout);
            let angles = centers.angles(block, dim);
            head.rotated_center(angles, centers.kind, &mut scratch.center);
            if block == 0 {
                head.rotated_first(&mut scratch.first_center);
            }
        }
        // SAFETY: the machine has the instructions, by the caller's promise. Tiles and scratch have the sizes of `take_in`;
        // the rows of a chunk are inside queries and part; tokens of the block below `last` have been written.
        unsafe {
            let keys = Keys::new::<L>(layout.format.key, keys, few, dim, last, scratch);
            let values = Values::new::<L>(attention, values, few, last, scratch);
            for first in (0..rows).step_by(CHUNK_ROWS) {
                let chunk = first..rows.min(first + CHUNK_ROWS);
                let of_row = |row: usize| {
                    let position = queries.positions.start + row / group;
                    within(&attention.params.visible(position), start)
                };
                // What some row of the chunk sees: the first sees the earliest, the last the latest.
                let seen = of_row(chunk.start).start..of_row(chunk.end - 1).end;
                if seen.is_empty() {
                    continue;
                }
                let index = head * rows.div_ceil(CHUNK_ROWS) + first / CHUNK_ROWS;
                let q = &q[chunk.start * dim..chunk.end * dim];
                keys.scores::<L>(scratch, q, index, seen.end, ahead);
                for (i, row) in chunk.clone().enumerate() {
                    let scores = scratch.scores[i * BLOCK_TOKENS..].first_chunk_mut();
                    let scores: &mut [f32; BLOCK_TOKENS] = scores.expect("a row of scores");
                    let state = &mut part[row * row_floats..][..row_floats];
                    if attention.centers.is_some() {
                        let q = &q[i * dim..][..dim];
                        let (first, lacking) = (scores[0], dot(q, &scratch.center));
                        scores.iter_mut().for_each(|score| *score += lacking);
                        if block == 0 {
                            scores[0] = first + dot(q, &scratch.first_center);
                        }
                    }
                    weigh(scores, of_row(row), attention.params.softcap, state);
                }
                let sums = tile::Target {
                    values: part.as_mut_ptr().add(chunk.start * row_floats),
                    row: row_floats,
                    rows: chunk.len(),
                    columns: parts.stride,
                    add: true,
                };
                values.weighed::<L>(scratch, sums, seen);
            }
        }
    }
}

/// The part of `positions` inside the block that starts at `start`, counted from there.
fn within(positions: &Range<usize>, start: usize) -> Range<usize> {
    let clip = |p: usize| p.saturating_sub(start).min(BLOCK_TOKENS);
    clip(positions.start)..clip(positions.end)
}

/// Turns one row's scores into weights, 0 outside `seen`, and rescales the row's state (values, max, sum) to the new max.
#[inline(always)]
fn weigh(
    scores: &mut [f32; BLOCK_TOKENS],
    seen: Range<usize>,
    softcap: Option<f32>,
    state: &mut [f32],
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
    let (values, state) = state.split_at_mut(state.len() - LANES);
    let (max, sum) = (state[0], state[1]);
    let mut lanes = [max; LANES];
    for chunk in scores.as_chunks::<LANES>().0 {
        for (lane, &score) in lanes.iter_mut().zip(chunk) {
            *lane = larger(score, *lane);
        }
    }
    let new_max = fold(lanes, larger);
    let mut lanes = [0f32; LANES];
    for chunk in scores.as_chunks_mut::<LANES>().0 {
        for (lane, score) in lanes.iter_mut().zip(chunk) {
            *score = exp(*score - new_max);
            *lane += *score;
        }
    }
    let rescale = exp(max - new_max);
    state[0] = new_max;
    state[1] = sum * rescale + fold(lanes, |a, b| a + b);
    if rescale != 1.0 {
        for value in values {
            *value *= rescale;
        }
    }
}

/// The product of two rows of a multiple of `LANES` elements, summed in lanes.
#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0f32; LANES];
    for (a, b) in a
        .as_chunks::<LANES>()
        .0
        .iter()
        .zip(b.as_chunks::<LANES>().0)
    {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    fold(lanes, |a, b| a + b)
}

/// The second where they do not compare.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// Joins lanes in halves: few steps that wait for one another.
#[inline(always)]
fn fold(mut lanes: [f32; LANES], join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] = join(lanes[i], lanes[i + half]);
        }
        half /= 2;
    }
    lanes[0]
}
