//! The walk by panels: a thread takes some tokens through a whole layer.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Pass, Workspace, input};
use crate::output::{Output, Shared};
use crate::swiglu::swiglu;
use crate::team::{Member, Team};

/// Most tokens of a panel: their activations stay in the cache next to a processor while all weights pass by.
const MOST_TOKENS: usize = 64;
/// Tokens of a panel come in steps that fill a product's tiles.
const STEP_TOKENS: usize = 8;

/// The tokens of a call, cut into panels.
pub(super) struct Panels {
    n: usize,
    tokens: usize,
}

impl Panels {
    /// Panels for that many threads; `None` if there are too few tokens to keep all of them busy so.
    pub(super) fn cut(n: usize, threads: usize) -> Option<Panels> {
        if n < STEP_TOKENS * threads {
            return None;
        }
        let tokens = n
            .div_ceil(threads)
            .next_multiple_of(STEP_TOKENS)
            .min(MOST_TOKENS);
        Some(Panels { n, tokens })
    }

    fn len(&self) -> usize {
        self.n.div_ceil(self.tokens)
    }

    fn tokens(&self, panel: usize) -> Range<usize> {
        panel * self.tokens..self.n.min((panel + 1) * self.tokens)
    }
}

/// One thread's memory beyond the workspace.
#[derive(Default)]
struct Buffers {
    workspace: Workspace,
    keys: Vec<f32>,
    values: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
}

impl Pass<'_> {
    /// All layers. With `last_only` the last layer goes on by rows, for one token.
    pub(super) fn by_panels(&self, team: &Team, panels: &Panels, last_only: bool) {
        let num_layers = self.layers.layers.len();
        // A counter for the projections of the first layer, then one for the rest of each.
        let dealt: Vec<AtomicUsize> = (0..=num_layers).map(|_| AtomicUsize::new(0)).collect();
        let deal = |counter: usize| {
            // The last panel first: it sees most and takes longest.
            let next = dealt[counter].fetch_add(1, Ordering::Relaxed);
            (next < panels.len()).then(|| panels.tokens(panels.len() - 1 - next))
        };
        let finished_by_panels = num_layers - usize::from(last_only);
        team.run(|member| {
            let mut buffers = Buffers::default();
            // SAFETY: a panel is dealt to one thread at a time, which alone touches its rows, keys and values; the keys and
            // values of a layer are read after the barrier that all threads pass when they have written them, and when those
            // that others fill are there.
            unsafe {
                while let Some(tokens) = deal(0) {
                    self.project_panel(member, 0, tokens, &mut buffers);
                }
                member.barrier();
                for layer in 0..finished_by_panels {
                    if !self.wait(layer) {
                        return;
                    }
                    while let Some(tokens) = deal(layer + 1) {
                        self.finish_panel(member, layer, tokens.clone(), &mut buffers);
                        if layer + 1 < num_layers {
                            self.project_panel(member, layer + 1, tokens, &mut buffers);
                        }
                    }
                    member.barrier();
                }
            }
        });
        if last_only && self.wait(num_layers - 1) {
            self.finish_by_rows(team, num_layers - 1, self.n - 1..self.n);
        }
    }

    /// Norm, queries, keys and values.
    ///
    /// # Safety
    /// Nobody else touches the tokens' rows, queries, keys or values meanwhile.
    unsafe fn project_panel(
        &self,
        member: &Member,
        layer: usize,
        tokens: Range<usize>,
        buffers: &mut Buffers,
    ) {
        let weights = &self.layers.layers[layer];
        let (kv, n) = (self.layout.row_elems(), tokens.len());
        let (all, of_head) = self.query_elems();
        let matrices = [
            &weights.query.weight,
            &weights.key.weight,
            &weights.value.weight,
        ];
        buffers.keys.resize(n * kv, 0.0);
        buffers.values.resize(n * kv, 0.0);
        // SAFETY: the caller's promise.
        unsafe {
            let queries = self.queries.write(tokens.start * all..tokens.end * all);
            let (norm, workspace) = (&weights.attention_norm, &mut buffers.workspace);
            let mut x = self.norm(member, &tokens, norm, &matrices, workspace);
            let outputs = [&mut *queries, &mut buffers.keys, &mut buffers.values];
            for (matrix, out) in matrices.into_iter().zip(outputs) {
                let out = Output::store(Shared::new(out), matrix.rows());
                matrix.multiply(member.path(), x.again(), 0..matrix.tiles(), out);
            }
            let rounded = &mut buffers.workspace.rounded;
            let dim = self.layout.head_dim;
            let heads = queries
                .chunks_exact_mut(of_head)
                .zip(buffers.keys.chunks_exact_mut(dim))
                .zip(buffers.values.chunks_exact_mut(dim));
            for (i, ((q, k), v)) in heads.enumerate() {
                let kv_heads = self.layout.num_kv_heads;
                let (token, head) = (tokens.start + i / kv_heads, i % kv_heads);
                self.place_head(member, (layer, token, head), (q, k, v), rounded);
            }
        }
    }

    /// Attention and feed-forward.
    ///
    /// # Safety
    /// Nobody else touches the tokens' rows meanwhile, nor writes this layer's keys and values.
    unsafe fn finish_panel(
        &self,
        member: &Member,
        layer: usize,
        tokens: Range<usize>,
        buffers: &mut Buffers,
    ) {
        let Buffers {
            workspace,
            gate,
            up,
            ..
        } = buffers;
        let (weights, hidden, inner) = (
            &self.layers.layers[layer],
            self.layers.hidden,
            self.layers.inner,
        );
        let (all, _) = self.query_elems();
        let attention = self.attention(layer);
        let (path, n) = (member.path(), tokens.len());
        let position = self.place.offset + tokens.start;
        workspace.attended.resize(n * all, 0.0);
        // SAFETY: the caller's promise.
        unsafe {
            let kv_heads = 0..self.layout.num_kv_heads;
            let queries = self.gather_queries(tokens.clone(), kv_heads, &mut workspace.queries);
            let attended = &mut workspace.attended;
            attention.attend(path, &queries, &mut workspace.attention, |row, values| {
                self.put_attended(member.path(), n, row, values, attended);
            });
            let x = Shared::new(self.x.write(tokens.start * hidden..tokens.end * hidden));
            let takers = [&weights.output];
            let attended = input(
                member,
                position,
                (&workspace.attended, all),
                &takers,
                &mut workspace.activations,
            );
            let tiles = 0..weights.output.tiles();
            weights
                .output
                .multiply(path, attended, tiles, Output::add(x, hidden));

            let takers = [&weights.gate, &weights.up];
            let norm = &weights.feed_forward_norm;
            let mut normed = self.norm(member, &tokens, norm, &takers, workspace);
            for (matrix, out) in takers.into_iter().zip([&mut *gate, up]) {
                out.resize(n * inner, 0.0);
                let out = Output::store(Shared::new(out), inner);
                matrix.multiply(path, normed.again(), 0..matrix.tiles(), out);
            }
            swiglu(path, gate, up);
            let gated = input(
                member,
                position,
                (gate, inner),
                &[&weights.down],
                &mut workspace.activations,
            );
            let tiles = 0..weights.down.tiles();
            weights
                .down
                .multiply(path, gated, tiles, Output::add(x, hidden));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Panels;

    #[test]
    fn panels_cover_every_token_once_and_keep_all_threads_busy() {
        for threads in 1..=8 {
            for n in 0..400 {
                let Some(panels) = Panels::cut(n, threads) else {
                    assert!(n < 8 * threads);
                    continue;
                };
                let mut next = 0;
                for panel in 0..panels.len() {
                    let tokens = panels.tokens(panel);
                    assert_eq!(tokens.start, next);
                    assert!((1..=64).contains(&tokens.len()));
                    next = tokens.end;
                }
                assert_eq!(next, n);
            }
        }
    }
}
