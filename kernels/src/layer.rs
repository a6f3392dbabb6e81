//! Decoder layers, all in one go: norm, projections, rope, attention, feed-forward.
//!
//! A team of threads walks the layers together. Two walks give the same bits (an output element is computed the same way
//! wherever it is computed):
//!
//! - **by panels** (`panels`), for many tokens: each thread takes panels of tokens through a whole layer by itself. Only
//!   attention looks at other tokens, so the threads meet once a layer, when all keys and values are written.
//! - **by rows** (`rows`), for few: all threads work on the same tokens, each on its rows of every matrix, and meet after
//!   each product.

mod measure;
mod panels;
mod place;
mod rows;
pub(crate) mod shapes;
#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::attention::{Attention, Centers, Queries, Scratch};
use crate::hadamard::hadamard;
use crate::key_balance::KeyBalance;
use crate::kv_write::Rounded;
use crate::layout::{Side, TILE_TOKENS};
use crate::output::Shared;
use crate::pool::{Filling, Memory};
use crate::quantized::{Activations, Input, Rounding};
use crate::rms_norm::rms_norm;
use crate::rope::{RopeKind, rope};
use crate::team::{Member, Team};
use crate::{AttentionParams, BLOCK_TOKENS, Error, KvLayout, Path, QuantizedMatrix, Result};
use panels::Panels;
pub use place::{Phase, Place};

const OP: &str = "layers";

/// A matrix and what is added to its product.
#[derive(Debug)]
pub struct Projection {
    /// `[rows, hidden]`
    pub weight: QuantizedMatrix,
    /// `[rows]`
    pub bias: Option<Vec<f32>>,
}

/// The weights of one decoder layer.
#[derive(Debug)]
pub struct Layer {
    /// `[hidden]`
    pub attention_norm: Vec<f32>,
    /// `[heads * head_dim, hidden]`
    pub query: Projection,
    /// `[kv_heads * head_dim, hidden]`
    pub key: Projection,
    /// `[kv_heads * head_dim, hidden]`
    pub value: Projection,
    /// `[hidden, heads * head_dim]`
    pub output: QuantizedMatrix,
    /// Norms of each query and key head, both `[head_dim]`.
    pub head_norms: Option<(Vec<f32>, Vec<f32>)>,
    /// `[hidden]`
    pub feed_forward_norm: Vec<f32>,
    /// `[inner, hidden]`
    pub gate: QuantizedMatrix,
    /// `[inner, hidden]`
    pub up: QuantizedMatrix,
    /// `[hidden, inner]`
    pub down: QuantizedMatrix,
}

/// What all layers have in common besides their shapes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerParams {
    /// Query heads.
    pub num_heads: usize,
    /// Of all norms.
    pub norm_eps: f32,
    /// Which elements of a head are rotated together.
    pub rope_kind: RopeKind,
    /// Of all layers.
    pub attention: AttentionParams,
}

/// The layers of a decoder, whose shapes fit each other.
#[derive(Debug)]
pub struct Layers {
    layers: Vec<Layer>,
    params: LayerParams,
    layout: KvLayout,
    hidden: usize,
    inner: usize,
    balance: Option<KeyBalance>,
}

impl Layers {
    /// Layers over keys and values laid out as `layout`; an error if a shape does not fit. The format is that of the pool at
    /// each call.
    pub fn new(layers: Vec<Layer>, params: LayerParams, layout: KvLayout) -> Result<Layers> {
        let (hidden, inner) = shapes::check(&layers, &params, &layout)?;
        Ok(Layers {
            layers,
            params,
            layout,
            hidden,
            inner,
            balance: None,
        })
    }

    /// With keys balanced wherever their format rotates them; an error if the balance is that of other layers.
    pub fn balanced(self, balance: KeyBalance) -> Result<Layers> {
        if !balance.fits(&self.layout) {
            return Err(Error::argument(OP, "key balance of another model"));
        }
        Ok(Layers {
            balance: Some(balance),
            ..self
        })
    }

    /// Runs the tokens whose embeddings are `x` `[n, hidden]` through all layers, in place, and writes their keys and values.
    /// With `last_only` every key and value is written, but only the last token's row of `x` is the result. Where slots before
    /// the tokens are being filled (`KvPool::fill`), each layer waits until it is there; [`Error::Unfilled`] if one never is.
    pub fn forward(&self, team: &Team, x: &mut [f32], place: Place, last_only: bool) -> Result<()> {
        self.walk(team, x, place, last_only, None)
    }

    fn walk(
        &self,
        team: &Team,
        x: &mut [f32],
        place: Place,
        last_only: bool,
        samples: Option<Shared<f32>>,
    ) -> Result<()> {
        let n = x.len() / self.hidden;
        let end = place
            .offset
            .checked_add(n)
            .filter(|_| x.len() == n * self.hidden);
        let half = self.layout.head_dim / 2;
        let layout = *place.pool.layout();
        let is_balanced = self.balance.is_some() && layout.format.key.is_rotated();
        let end = end.filter(|end| {
            let angles = match is_balanced {
                true => end.next_multiple_of(BLOCK_TOKENS),
                false => *end,
            };
            angles * half <= place.cos.len().min(place.sin.len())
        });
        let same_shape = KvLayout {
            format: layout.format,
            ..self.layout
        };
        let Some(end) = end.filter(|_| layout == same_shape) else {
            let reason = format!(
                "{} values at {}, {} angles, {:?}",
                x.len(),
                place.offset,
                place.cos.len(),
                place.pool.layout()
            );
            return Err(Error::argument(OP, reason));
        };
        place.pool.check_table(OP, place.table, end)?;
        if n == 0 {
            return Ok(());
        }
        let blocks = &place.table[..end.div_ceil(BLOCK_TOKENS)];
        let mut queries = vec![0f32; n * self.params.num_heads * self.layout.head_dim];
        let (x, queries) = (Shared::new(x), Shared::new(&mut queries));
        place.pool.with_memory(|memory| {
            let filling = memory.filling.filter(|filling| filling.has_any(blocks));
            let written = &blocks[place.offset / BLOCK_TOKENS..];
            if filling.is_some_and(|filling| filling.has_any(written)) {
                return Err(Error::argument(OP, "tokens in a slot that is being filled"));
            }
            let pass = Pass {
                layers: self,
                layout,
                place,
                memory,
                filling,
                x,
                queries,
                n,
                samples,
                centers: self
                    .balance
                    .as_ref()
                    .filter(|_| is_balanced)
                    .map(|balance| Centers {
                        balance,
                        cos: place.cos,
                        sin: place.sin,
                        kind: self.params.rope_kind,
                    }),
            };
            match Panels::cut(n, team.threads()) {
                Some(panels) => pass.by_panels(team, &panels, last_only),
                None => pass.by_rows(team, last_only),
            }
            match pass.wait(self.layers.len() - 1) {
                true => Ok(()),
                false => Err(Error::Unfilled),
            }
        })
    }
}

/// One call of `forward`, as all threads see it.
#[derive(Clone, Copy)]
struct Pass<'a> {
    layers: &'a Layers,
    layout: KvLayout,
    place: Place<'a>,
    memory: Memory<'a>,
    /// Who fills slots before the tokens meanwhile, if anybody does.
    filling: Option<&'a Filling>,
    /// `[n, hidden]`
    x: Shared<'a, f32>,
    /// Of one layer at a time, with rope, scaled, and rotated where the keys are: `[n, heads * head_dim]`
    queries: Shared<'a, f32>,
    n: usize,
    /// Where keys and queries go before rope, if somebody asks: `[layers, kv_heads, n, 1 + group, head_dim]`, the key first.
    samples: Option<Shared<'a, f32>>,
    centers: Option<Centers<'a>>,
}

/// One thread's memory.
#[derive(Default)]
struct Workspace {
    activations: Activations,
    /// `[tokens, hidden]`
    normed: Vec<f32>,
    attention: Scratch,
    rounded: Rounded,
    /// Queries, head by head.
    queries: Vec<f32>,
    /// `[tokens, heads * head_dim]`
    attended: Vec<f32>,
}

impl<'a> Pass<'a> {
    /// Waits until the keys and values of a layer before the tokens are there. If they never will be, all threads are told so
    /// at the same layer, and the pass ends there.
    fn wait(&self, layer: usize) -> bool {
        self.filling.is_none_or(|filling| filling.wait(layer))
    }

    fn attention(&self, layer: usize) -> Attention<'a> {
        Attention {
            memory: self.memory,
            layout: self.layout,
            layer,
            table: self.place.table,
            params: self.layers.params.attention,
            group: self.layers.params.num_heads / self.layout.num_kv_heads,
            centers: self.centers,
        }
    }

    /// Elements of one token's queries, and those of one KV head.
    fn query_elems(&self) -> (usize, usize) {
        let (heads, layout) = (self.layers.params.num_heads, &self.layout);
        let all = heads * layout.head_dim;
        (all, all / layout.num_kv_heads)
    }

    /// The norm of the tokens' rows of `x`, quantized too if one of the matrices takes it so.
    ///
    /// # Safety
    /// Nobody writes these rows meanwhile.
    unsafe fn norm<'w>(
        &self,
        member: &Member,
        tokens: &Range<usize>,
        weight: &[f32],
        takers: &[&QuantizedMatrix],
        workspace: &'w mut Workspace,
    ) -> Input<'w> {
        let hidden = self.layers.hidden;
        let range = tokens.start * hidden..tokens.end * hidden;
        workspace.normed.clear();
        // SAFETY: the caller's promise.
        workspace
            .normed
            .extend_from_slice(unsafe { self.x.read(range) });
        let eps = self.layers.params.norm_eps;
        rms_norm(member.path(), &mut workspace.normed, weight, eps);
        let position = self.place.offset + tokens.start;
        let normed = (&workspace.normed[..], hidden);
        input(member, position, normed, takers, &mut workspace.activations)
    }

    /// Finishes the projections of one token for one KV head: biases, head norms, rope; queries are scaled, keys and values
    /// written to their block. Each is `[.., head_dim]`.
    ///
    /// # Safety
    /// Nobody reads or writes this head's keys and values of the token meanwhile.
    unsafe fn place_head(
        &self,
        member: &Member,
        (layer, token, kv_head): (usize, usize, usize),
        (q, k, v): (&mut [f32], &mut [f32], &mut [f32]),
        rounded: &mut Rounded,
    ) {
        let (params, layout) = (&self.layers.params, &self.layout);
        let (weights, dim) = (&self.layers.layers[layer], layout.head_dim);
        add_bias(&weights.query, kv_head, q);
        add_bias(&weights.key, kv_head, k);
        add_bias(&weights.value, kv_head, v);
        if let Some((query_norm, key_norm)) = &weights.head_norms {
            rms_norm(member.path(), q, query_norm, params.norm_eps);
            rms_norm(member.path(), k, key_norm, params.norm_eps);
        }
        if let Some(samples) = self.samples {
            let index = (layer * layout.num_kv_heads + kv_head) * self.n + token;
            let start = index * (k.len() + q.len());
            // SAFETY: every token and head has a place of its own, written once.
            let sample = unsafe { samples.write(start..start + k.len() + q.len()) };
            let (key, queries) = sample.split_at_mut(k.len());
            key.copy_from_slice(k);
            queries.copy_from_slice(q);
        }
        let position = self.place.offset + token;
        let angles = position * dim / 2..(position + 1) * dim / 2;
        let (cos, sin) = (&self.place.cos[angles.clone()], &self.place.sin[angles]);
        rope(member.path(), q, cos, sin, params.rope_kind);
        rope(member.path(), k, cos, sin, params.rope_kind);
        for q in q.iter_mut() {
            *q *= params.attention.scale;
        }
        if let Some(centers) = &self.centers {
            let head = centers.balance.head(layer, kv_head, layout);
            let angles = centers.angles(position / BLOCK_TOKENS, dim);
            head.queries(q);
            head.key(k, position, angles, params.rope_kind, &mut rounded.center);
        }
        if layout.format.key.is_rotated() {
            hadamard(member.path(), q, dim);
        }
        let slot = self.memory.slot(self.place.table[position / BLOCK_TOKENS]);
        let (tile, lane) = (
            position % BLOCK_TOKENS / TILE_TOKENS,
            position % TILE_TOKENS,
        );
        for (side, x) in [(Side::Key, k), (Side::Value, v)] {
            let start = layout.tile(side, layer, tile, kv_head).start;
            // SAFETY: the tile is inside the slot; the rest is the caller's promise.
            unsafe {
                let place = (slot.add(start), lane);
                rounded.write(member.path(), layout, side, x, place);
            }
        }
    }

    /// The queries of some tokens for some KV heads, head by head `[kv_heads, tokens, group, head_dim]`.
    ///
    /// # Safety
    /// Nobody writes them meanwhile.
    unsafe fn gather_queries<'q>(
        &self,
        tokens: Range<usize>,
        kv_heads: Range<usize>,
        out: &'q mut Vec<f32>,
    ) -> Queries<'q> {
        let (all, of_head) = self.query_elems();
        out.clear();
        for kv_head in kv_heads.clone() {
            for token in tokens.clone() {
                let start = token * all + kv_head * of_head;
                // SAFETY: the caller's promise.
                out.extend_from_slice(unsafe { self.queries.read(start..start + of_head) });
            }
        }
        Queries {
            kv_heads,
            positions: self.positions(&tokens),
            values: out,
        }
    }

    /// Where the attention of a row `[kv_heads, tokens, group]` of `n` tokens belongs in `[tokens, heads * head_dim]`.
    fn attended_at(&self, n: usize, row: usize) -> Range<usize> {
        let ((all, of_head), dim) = (self.query_elems(), self.layout.head_dim);
        let group = of_head / dim;
        let (kv_head, token, head) = (row / group / n, row / group % n, row % group);
        let start = token * all + kv_head * of_head + head * dim;
        start..start + dim
    }

    /// Puts the attended values of a row where they belong, rotated back where the pool has them rotated.
    fn put_attended(&self, path: Path, n: usize, row: usize, values: &[f32], out: &mut [f32]) {
        let out = &mut out[self.attended_at(n, row)];
        out.copy_from_slice(values);
        if self.layout.format.value.is_rotated() {
            hadamard(path, out, values.len());
        }
    }

    /// Absolute positions of tokens.
    fn positions(&self, tokens: &Range<usize>) -> Range<usize> {
        self.place.offset + tokens.start..self.place.offset + tokens.end
    }
}

/// Activations `[n, cols]` of tokens from absolute position `position` on, for matrices that take them as floats or
/// quantized.
fn input<'a>(
    member: &Member,
    position: usize,
    (floats, cols): (&'a [f32], usize),
    takers: &[&QuantizedMatrix],
    quantized: &'a mut Activations,
) -> Input<'a> {
    if takers.iter().any(|matrix| matrix.takes_quantized()) {
        let rounding = match position {
            0 => Rounding::FirstTwice,
            _ => Rounding::Once,
        };
        quantized.quantize(member.path(), floats, cols, rounding);
    }
    Input { floats, quantized }
}

fn add_bias(projection: &Projection, kv_head: usize, x: &mut [f32]) {
    if let Some(bias) = &projection.bias {
        let bias = &bias[kv_head * x.len()..];
        for (x, bias) in x.iter_mut().zip(bias) {
            *x += bias;
        }
    }
}
