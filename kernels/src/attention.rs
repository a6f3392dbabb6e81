//! Attention over KV blocks, read where they lie.
//!
//! Work is cut by KV head and by tile of queries: all query heads of a KV head share its keys and values, so nothing is
//! repeated. An item walks the blocks its queries see, one 64-token tile at a time, with an online softmax; tiles stand
//! at absolute positions. Tiles are joined in segments of `SEGMENT_BLOCKS` blocks, also at absolute positions, each with
//! its own softmax state, and the segments in order: so the segments of one query can run on several threads, and the
//! order of accumulation is still the same in any chunk.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod segment;
mod tile;

use std::ops::Range;

use candle_core::{CpuStorage, CustomOp2, Layout, Shape, Tensor};
use half::f16;
use rayon::prelude::*;

use crate::input::{f16_slice, f32_input, f32_slice};
use crate::{BLOCK_TOKENS, Error, KvLayout, KvPool, Result};
use segment::{Part, Scratch};
use tile::Rows;

const OP: &str = "paged attention";
/// Rows (a row is one head of one token) of an item: enough to pay for widening the tiles, few enough for the cache.
const ITEM_ROWS: usize = 128;
/// Multiply-adds below which an operation stays on its thread.
const SERIAL_MULS: usize = 200_000;

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
    fn visible(&self, position: usize) -> Range<usize> {
        let end = position + 1;
        end.saturating_sub(self.window.unwrap_or(end))..end
    }
}

/// Causal attention of the queries `q` `[n, heads, head_dim]` at positions `offset..offset + n` over the keys and values
/// `table` names: query i sees the positions `0..=offset + i`, all of which must have been written. Query heads
/// `h * heads / kv_heads ..` belong to KV head `h`. Returns `[n, heads, head_dim]`.
pub fn paged_attention(
    q: &Tensor,
    pool: &KvPool,
    layer: usize,
    table: &[u32],
    offset: usize,
    p: &AttentionParams,
) -> Result<Tensor> {
    let q = f32_input(OP, q)?;
    let layout = *pool.layout();
    let (n, heads, head_dim) = q.dims3()?;
    let end = offset
        .checked_add(n)
        .ok_or_else(|| Error::argument(OP, format!("{n} queries at {offset}")))?;
    if head_dim != layout.head_dim || heads == 0 || !heads.is_multiple_of(layout.num_kv_heads) {
        let reason = format!("queries {:?} for {layout:?}", q.dims());
        return Err(Error::argument(OP, reason));
    }
    if p.window == Some(0) {
        return Err(Error::argument(OP, "a window of 0 tokens"));
    }
    pool.check_table(OP, layer, table, end)?;
    let op = Attention {
        layout,
        layer,
        table,
        offset,
        params: *p,
        group: heads / layout.num_kv_heads,
    };
    Ok(q.apply_op2_no_bwd(pool.tensor(), &op)?)
}

struct Attention<'a> {
    layout: KvLayout,
    layer: usize,
    table: &'a [u32],
    offset: usize,
    params: AttentionParams,
    /// Query heads per KV head.
    group: usize,
}

/// The queries of some tokens for one KV head.
struct Item<'a> {
    kv_head: usize,
    /// Absolute positions of the queries.
    positions: Range<usize>,
    /// `[tokens, group, head_dim]`, scaled.
    queries: Vec<f32>,
    pool: &'a [f16],
}

impl CustomOp2 for Attention<'_> {
    fn name(&self) -> &'static str {
        OP
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        q_layout: &Layout,
        pool: &CpuStorage,
        pool_layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let (q, pool) = (f32_slice(q, q_layout)?, f16_slice(pool, pool_layout)?);
        let n = q_layout.shape().dims()[0];
        let tokens = (ITEM_ROWS / self.group).max(1);
        let items: Vec<(usize, Range<usize>)> = (0..n)
            .step_by(tokens)
            .flat_map(|start| {
                let range = start..n.min(start + tokens);
                (0..self.layout.num_kv_heads).map(move |head| (head, range.clone()))
            })
            .collect();
        let serial = 2 * q.len() * (self.offset + n) < SERIAL_MULS;
        let threads = rayon::current_num_threads();
        // With few items their segments are shared out as well.
        let split = !serial && items.len() < 4 * threads;
        let run = |(head, range): &(usize, Range<usize>)| {
            self.attend(&self.item(q, pool, *head, range.clone()), split)
        };
        let results: Vec<Vec<f32>> = if serial || threads == 1 {
            items.iter().map(run).collect()
        } else {
            items.par_iter().map(run).collect()
        };
        let mut out = vec![0f32; q.len()];
        for ((head, range), result) in items.iter().zip(results) {
            for (token, values) in range.clone().zip(result.chunks_exact(self.token_elems())) {
                out[self.query_at(token, *head)..][..values.len()].copy_from_slice(values);
            }
        }
        Ok((CpuStorage::F32(out), q_layout.shape().clone()))
    }
}

impl Attention<'_> {
    /// Elements of one token's queries for one KV head.
    fn token_elems(&self) -> usize {
        self.group * self.layout.head_dim
    }

    /// Where the queries of a token for a KV head start in `q`.
    fn query_at(&self, token: usize, kv_head: usize) -> usize {
        (token * self.layout.num_kv_heads + kv_head) * self.token_elems()
    }

    fn item<'p>(
        &self,
        q: &[f32],
        pool: &'p [f16],
        kv_head: usize,
        tokens: Range<usize>,
    ) -> Item<'p> {
        let queries = tokens
            .clone()
            .flat_map(|token| &q[self.query_at(token, kv_head)..][..self.token_elems()])
            .map(|value| value * self.params.scale)
            .collect();
        Item {
            kv_head,
            positions: self.offset + tokens.start..self.offset + tokens.end,
            queries,
            pool,
        }
    }

    /// The keys of the item's KV head in a block.
    fn keys<'p>(&self, item: &Item<'p>, block: usize) -> Rows<'p> {
        self.rows(item, self.layout.key_slab(self.table[block], self.layer))
    }

    /// The values of the item's KV head in a block.
    fn values<'p>(&self, item: &Item<'p>, block: usize) -> Rows<'p> {
        self.rows(item, self.layout.value_slab(self.table[block], self.layer))
    }

    fn rows<'p>(&self, item: &Item<'p>, slab: usize) -> Rows<'p> {
        let (row, dim) = (self.layout.row_elems(), self.layout.head_dim);
        let start = slab + item.kv_head * dim;
        Rows {
            values: &item.pool[start..start + (BLOCK_TOKENS - 1) * row + dim],
            row,
            dim,
        }
    }

    /// `[tokens, group, head_dim]`
    fn attend(&self, item: &Item, split: bool) -> Vec<f32> {
        let first = self.params.visible(item.positions.start).start;
        let segments = first / segment::TOKENS..(item.positions.end - 1) / segment::TOKENS + 1;
        let scratch = || Scratch::new(item.rows(self), self.layout.head_dim);
        let join = |mut total: Part, part: Part| {
            total.join(&part);
            total
        };
        let total = if split && segments.len() > 1 {
            let parts: Vec<Part> = segments
                .into_par_iter()
                .map_init(scratch, |scratch, i| self.attend_segment(item, i, scratch))
                .collect();
            parts.into_iter().reduce(join)
        } else {
            let mut scratch = scratch();
            segments
                .map(|i| self.attend_segment(item, i, &mut scratch))
                .reduce(join)
        };
        total.map_or_else(Vec::new, |total| total.finish(self.layout.head_dim))
    }
}

impl Item<'_> {
    fn rows(&self, attention: &Attention) -> usize {
        self.positions.len() * attention.group
    }
}

/// Attention as its formula says, in f64, over keys and values `[len, kv_heads, head_dim]`.
#[cfg(test)]
fn reference(
    q: &Tensor,
    keys: &[f32],
    values: &[f32],
    kv_heads: usize,
    offset: usize,
    p: &AttentionParams,
) -> Vec<f32> {
    let (n, heads, dim) = q.dims3().unwrap();
    let q = crate::random::values(q);
    let mut out = Vec::with_capacity(q.len());
    for (i, head) in (0..n).flat_map(|i| (0..heads).map(move |h| (i, h))) {
        let row = |t: usize| (t * kv_heads + head * kv_heads / heads) * dim;
        let query = &q[(i * heads + head) * dim..][..dim];
        let score = |t: usize| {
            let products = query.iter().zip(&keys[row(t)..]);
            let dot: f64 = products.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            let score = dot * f64::from(p.scale);
            match p.softcap.map(f64::from) {
                Some(cap) => cap * (score / cap).tanh(),
                None => score,
            }
        };
        let last = offset + i;
        let in_window = |t: &usize| p.window.is_none_or(|window| last - t < window);
        let seen: Vec<usize> = (0..=last).filter(in_window).collect();
        let scores: Vec<f64> = seen.iter().map(|&t| score(t)).collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
        let sum: f64 = weights.iter().sum();
        out.extend((0..dim).map(|d| {
            let terms = weights.iter().zip(&seen);
            let total: f64 = terms.map(|(w, t)| w * f64::from(values[row(*t) + d])).sum();
            (total / sum) as f32
        }));
    }
    out
}

#[cfg(test)]
mod tests;
