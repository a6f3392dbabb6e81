//! The walk by rows: all threads work on the same few tokens, each on its rows of every matrix.

use std::ops::Range;

use super::{Pass, Workspace, input};
use crate::lanes::LANES;
use crate::output::{Output, Shared};
use crate::quantized::{Input, QuantizedMatrix};
use crate::swiglu::swiglu;
use crate::team::{Member, Team};

/// What the threads write for one another.
struct Exchange<'a> {
    /// `[n, kv_heads * head_dim]`
    keys: Shared<'a, f32>,
    /// `[n, kv_heads * head_dim]`
    values: Shared<'a, f32>,
    /// Softmax states, of each KV head and segment.
    parts: Shared<'a, f32>,
    /// `[n, inner]`
    gate: Shared<'a, f32>,
    /// `[n, inner]`
    up: Shared<'a, f32>,
}

impl Pass<'_> {
    /// All layers. With `last_only` the last one goes on with the last token alone.
    pub(super) fn by_rows(&self, team: &Team, last_only: bool) {
        let num_layers = self.layers.layers.len();
        self.exchanging(self.n, |exchange| {
            team.run(|member| {
                let mut workspace = Workspace::default();
                for layer in 0..num_layers {
                    let first = match last_only && layer + 1 == num_layers {
                        true => self.n - 1,
                        false => 0,
                    };
                    // SAFETY: all threads of the team walk this together; the keys and values of the layer that others fill
                    // are there before they are read.
                    unsafe {
                        self.project_rows(member, layer, exchange, &mut workspace);
                        if !self.wait(layer) {
                            return;
                        }
                        let tokens = first..self.n;
                        self.finish_rows(member, layer, tokens, exchange, &mut workspace);
                    }
                }
            });
        });
    }

    /// The rest of one layer, whose queries, keys and values are all there, for some tokens.
    pub(super) fn finish_by_rows(&self, team: &Team, layer: usize, tokens: Range<usize>) {
        self.exchanging(tokens.len(), |exchange| {
            team.run(|member| {
                let mut workspace = Workspace::default();
                // SAFETY: all threads of the team walk this together.
                unsafe {
                    self.finish_rows(member, layer, tokens.clone(), exchange, &mut workspace)
                };
            });
        });
    }

    /// Calls `f` with the memory that `n` tokens need.
    fn exchanging(&self, n: usize, f: impl FnOnce(&Exchange)) {
        let layout = &self.layout;
        let attention = self.attention(0);
        let segments = attention.segments(&self.positions(&(0..self.n))).len();
        let parts = layout.num_kv_heads * segments * attention.parts(n).len();
        let (mut keys, mut values) = (
            vec![0.0; n * layout.row_elems()],
            vec![0.0; n * layout.row_elems()],
        );
        let mut parts = vec![0.0; parts];
        let (mut gate, mut up) = (
            vec![0.0; n * self.layers.inner],
            vec![0.0; n * self.layers.inner],
        );
        f(&Exchange {
            keys: Shared::new(&mut keys),
            values: Shared::new(&mut values),
            parts: Shared::new(&mut parts),
            gate: Shared::new(&mut gate),
            up: Shared::new(&mut up),
        });
    }

    /// Norm, queries, keys and values of all tokens, up to the barrier after them.
    ///
    /// # Safety
    /// All threads of the team walk this together, and nothing else touches the memory of the pass meanwhile.
    unsafe fn project_rows(
        &self,
        member: &Member,
        layer: usize,
        exchange: &Exchange,
        workspace: &mut Workspace,
    ) {
        let weights = &self.layers.layers[layer];
        let (layout, n) = (&self.layout, self.n);
        let (all, of_head) = self.query_elems();
        let (kv, dim) = (layout.row_elems(), layout.head_dim);
        let matrices = [
            &weights.query.weight,
            &weights.key.weight,
            &weights.value.weight,
        ];
        // SAFETY: every thread writes its own rows of the products and then, after a barrier, its own heads; `x` is only read.
        unsafe {
            let norm = &weights.attention_norm;
            let x = self.norm(member, &(0..n), norm, &matrices, workspace);
            let outputs = [
                Output::store(self.queries, all),
                Output::store(exchange.keys, kv),
                Output::store(exchange.values, kv),
            ];
            multiply_together(member, &matrices, x, &outputs);
            member.barrier();
            let rounded = &mut workspace.rounded;
            for unit in member.share(layout.num_kv_heads * n) {
                let (token, head) = (unit / layout.num_kv_heads, unit % layout.num_kv_heads);
                let (q, k) = (token * all + head * of_head, token * kv + head * dim);
                let q = self.queries.write(q..q + of_head);
                let v = exchange.values.write(k..k + dim);
                let k = exchange.keys.write(k..k + dim);
                self.place_head(member, (layer, token, head), (q, k, v), rounded);
            }
        }
        member.barrier();
    }

    /// Attention and feed-forward of some tokens, up to the barrier after them.
    ///
    /// # Safety
    /// As `project_rows`.
    unsafe fn finish_rows(
        &self,
        member: &Member,
        layer: usize,
        tokens: Range<usize>,
        exchange: &Exchange,
        workspace: &mut Workspace,
    ) {
        let (weights, hidden, inner) = (
            &self.layers.layers[layer],
            self.layers.hidden,
            self.layers.inner,
        );
        let (path, n) = (member.path(), tokens.len());
        let position = self.place.offset + tokens.start;
        // SAFETY: between two barriers every thread writes its own parts, rows or columns, and nobody reads those.
        unsafe {
            self.attend_rows(member, layer, tokens.clone(), exchange, workspace);
            let (all, _) = self.query_elems();
            let takers = [&weights.output];
            let attended = input(
                member,
                position,
                (&workspace.attended, all),
                &takers,
                &mut workspace.activations,
            );
            let x = self.x.part(tokens.start * hidden..tokens.end * hidden);
            let tiles = member.share(weights.output.tiles());
            weights
                .output
                .multiply(path, attended, tiles, Output::add(x, hidden));
            member.barrier();

            let takers = [&weights.gate, &weights.up];
            let norm = &weights.feed_forward_norm;
            let mut normed = self.norm(member, &tokens, norm, &takers, workspace);
            let tiles = member.share(weights.gate.tiles());
            for (matrix, out) in takers.into_iter().zip([exchange.gate, exchange.up]) {
                let out = Output::store(out.part(0..n * inner), inner);
                matrix.multiply(path, normed.again(), tiles.clone(), out);
            }
            let rows = (tiles.start * LANES).min(inner)..(tiles.end * LANES).min(inner);
            for token in 0..n {
                let range = token * inner + rows.start..token * inner + rows.end;
                swiglu(
                    path,
                    exchange.gate.write(range.clone()),
                    exchange.up.read(range),
                );
            }
            member.barrier();

            let gated = exchange.gate.read(0..n * inner);
            let gated = input(
                member,
                position,
                (gated, inner),
                &[&weights.down],
                &mut workspace.activations,
            );
            let tiles = member.share(weights.down.tiles());
            weights
                .down
                .multiply(path, gated, tiles, Output::add(x, hidden));
        }
        member.barrier();
    }

    /// Attention of some tokens into every thread's own memory; the segments of each head are shared out.
    ///
    /// # Safety
    /// As `project_rows`.
    unsafe fn attend_rows(
        &self,
        member: &Member,
        layer: usize,
        tokens: Range<usize>,
        exchange: &Exchange,
        workspace: &mut Workspace,
    ) {
        let ((all, _), attention) = (self.query_elems(), self.attention(layer));
        let (kv_heads, n) = (self.layout.num_kv_heads, tokens.len());
        let (segments, parts) = (
            attention.segments(&self.positions(&tokens)),
            attention.parts(n),
        );
        // Units of one segment and one head, those of a segment side by side: its rows follow each other in memory.
        let units = member.share(segments.len() * kv_heads);
        // SAFETY: a unit's part is written by one thread, and read after the barrier.
        unsafe {
            let mut next = units.start;
            while next < units.end {
                let (segment, head) = (next / kv_heads, next % kv_heads);
                let heads = head..kv_heads.min(head + units.end - next);
                let end = next + heads.len();
                let part = exchange.parts.write(next * parts.len()..end * parts.len());
                let queries = self.gather_queries(tokens.clone(), heads, &mut workspace.queries);
                let (path, index) = (member.path(), segments.start + segment);
                attention.attend_segment(path, &queries, index, &mut workspace.attention, part);
                next = end;
            }
            member.barrier();
            // Joining is little work: every thread does all of it, for itself.
            let of_segment = kv_heads * parts.len();
            let mut states = exchange
                .parts
                .read(0..segments.len() * of_segment)
                .chunks_exact(of_segment);
            let mut total = states.next().expect("a query sees itself").to_vec();
            for state in states {
                parts.join(&mut total, state);
            }
            workspace.attended.resize(n * all, 0.0);
            let attended = &mut workspace.attended;
            parts.finish(&mut total, |row, values| {
                self.put_attended(member.path(), n, row, values, attended);
            });
        }
    }
}

/// Products of several matrices with the same input: the tiles of all of them are shared out as one.
fn multiply_together(
    member: &Member,
    matrices: &[&QuantizedMatrix],
    mut x: Input<'_>,
    outputs: &[Output<'_>],
) {
    let mine = member.share(matrices.iter().map(|matrix| matrix.tiles()).sum());
    let mut first = 0;
    for (matrix, out) in matrices.iter().zip(outputs) {
        let end = first + matrix.tiles();
        let clip = |tile: usize| tile.clamp(first, end) - first;
        let tiles = clip(mine.start)..clip(mine.end);
        matrix.multiply(member.path(), x.again(), tiles, *out);
        first = end;
    }
}
