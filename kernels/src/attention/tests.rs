use super::*;
use crate::KvPool;
use crate::kv_write::narrow;
use crate::random::{bits, floats};
use candle_core::Device;

const SLOTS: usize = 8;

/// A conversation's keys and values: in the pool, in slots out of order, and flat `[len, kv_heads, head_dim]`.
struct Cache {
    pool: KvPool,
    table: Vec<u32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// Queries `[n, heads, head_dim]` at positions from `offset` on.
struct Case<'a> {
    q: &'a [f32],
    heads: usize,
    offset: usize,
    params: AttentionParams,
}

/// The last layer of a pool in which everything not written is NaN.
fn cache(len: usize, kv_heads: usize, head_dim: usize) -> Cache {
    let layout = KvLayout {
        num_layers: 2,
        num_kv_heads: kv_heads,
        head_dim,
    };
    let pool = KvPool::new(layout, SLOTS, &Device::Cpu).unwrap();
    for slot in 0..SLOTS as u32 {
        let poison = vec![0xff; layout.slot_bytes()];
        pool.write_slot(slot, &poison).unwrap();
    }
    let half = |seed| {
        let values = floats(seed, len * kv_heads * head_dim).into_iter();
        values.map(|v| f16::from_f32(v).to_f32()).collect()
    };
    let cache = Cache {
        pool,
        table: vec![5, 0, 7, 2, 1, 6, 3, 4],
        keys: half(1),
        values: half(2),
    };
    cache.write(0, len);
    cache
}

impl Cache {
    fn write(&self, start: usize, n: usize) {
        let (layout, row) = (*self.pool.layout(), self.pool.layout().row_elems());
        let write = |memory: Shared<f16>| {
            for t in start..start + n {
                let slot = self.table[t / BLOCK_TOKENS];
                let slabs = [layout.key_slab(slot, 1), layout.value_slab(slot, 1)];
                for (slab, x) in slabs.into_iter().zip([&self.keys, &self.values]) {
                    let at = slab + t % BLOCK_TOKENS * row;
                    // SAFETY: one thread.
                    let out = unsafe { memory.write(at..at + row) };
                    narrow(Path::best(), &x[t * row..(t + 1) * row], out);
                }
            }
        };
        self.pool.with_memory(write).unwrap();
    }

    /// Through `attend`, some tokens at a time.
    fn attend(&self, case: &Case, tokens: usize, path: Path) -> Vec<f32> {
        self.run(case, tokens, |attention, queries, put| {
            // SAFETY: nobody writes meanwhile.
            unsafe { attention.attend(path, queries, &mut Scratch::default(), put) };
        })
    }

    /// Segment by segment, joined at the end, as several threads would.
    fn attend_split(&self, case: &Case) -> Vec<f32> {
        self.run(case, usize::MAX, |attention, queries, put| {
            let parts = attention.parts(queries.positions.len());
            let states = attention.segments(&queries.positions).rev().map(|index| {
                let mut part = vec![f32::NAN; queries.kv_heads.len() * parts.len()];
                let mut scratch = Scratch::default();
                // SAFETY: nobody writes meanwhile.
                unsafe {
                    attention.attend_segment(Path::best(), queries, index, &mut scratch, &mut part);
                }
                part
            });
            let mut states: Vec<_> = states.collect();
            let mut total = states.pop().unwrap();
            while let Some(next) = states.pop() {
                parts.join(&mut total, &next);
            }
            parts.finish(&mut total, put);
        })
    }

    fn run(
        &self,
        case: &Case,
        tokens: usize,
        attend: impl Fn(&Attention, &Queries, &mut dyn FnMut(usize, &[f32])),
    ) -> Vec<f32> {
        let layout = *self.pool.layout();
        let (dim, group) = (layout.head_dim, case.heads / layout.num_kv_heads);
        let n = case.q.len() / (case.heads * dim);
        let run = |pool: Shared<f16>| {
            let attention = Attention {
                pool,
                layout,
                layer: 1,
                table: &self.table,
                params: case.params,
                group,
            };
            let mut out = vec![f32::NAN; case.q.len()];
            let mut first = 0;
            while first < n {
                let end = n.min(first.saturating_add(tokens));
                let kv_heads = 0..layout.num_kv_heads;
                let tokens = end - first;
                let at = |kv_head: usize, t: usize| (t * case.heads + kv_head * group) * dim;
                let values: Vec<f32> = kv_heads
                    .clone()
                    .flat_map(|kv_head| (first..end).map(move |t| (kv_head, t)))
                    .flat_map(|(kv_head, t)| &case.q[at(kv_head, t)..][..group * dim])
                    .map(|q| q * case.params.scale)
                    .collect();
                let queries = Queries {
                    kv_heads,
                    positions: case.offset + first..case.offset + end,
                    values: &values,
                };
                attend(&attention, &queries, &mut |row, values| {
                    let (kv_head, token) = (row / group / tokens, row / group % tokens);
                    let at = at(kv_head, first + token) + row % group * dim;
                    out[at..at + dim].copy_from_slice(values);
                });
                first = end;
            }
            out
        };
        self.pool.with_memory(run).unwrap()
    }
}

/// Attention as its formula says, in f64.
fn reference(cache: &Cache, case: &Case) -> Vec<f32> {
    let (kv_heads, dim) = (
        cache.pool.layout().num_kv_heads,
        cache.pool.layout().head_dim,
    );
    let (heads, p) = (case.heads, &case.params);
    let mut out = Vec::with_capacity(case.q.len());
    for (row, query) in case.q.chunks_exact(dim).enumerate() {
        let (i, head) = (row / heads, row % heads);
        let at = |t: usize| (t * kv_heads + head * kv_heads / heads) * dim;
        let score = |t: usize| {
            let products = query.iter().zip(&cache.keys[at(t)..]);
            let dot: f64 = products.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            let score = dot * f64::from(p.scale);
            match p.softcap.map(f64::from) {
                Some(cap) => cap * (score / cap).tanh(),
                None => score,
            }
        };
        let last = case.offset + i;
        let in_window = |t: &usize| p.window.is_none_or(|window| last - t < window);
        let seen: Vec<usize> = (0..=last).filter(in_window).collect();
        let scores: Vec<f64> = seen.iter().map(|&t| score(t)).collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
        let sum: f64 = weights.iter().sum();
        out.extend((0..dim).map(|d| {
            let terms = weights.iter().zip(&seen);
            let total: f64 = terms
                .map(|(w, t)| w * f64::from(cache.values[at(*t) + d]))
                .sum();
            (total / sum) as f32
        }));
    }
    out
}

fn params(head_dim: usize, window: Option<usize>, softcap: Option<f32>) -> AttentionParams {
    AttentionParams {
        // Larger than usual: random rows of a unit cube have small scores.
        scale: 4.0 / (head_dim as f32).sqrt(),
        window,
        softcap,
    }
}

fn assert_equals_reference(
    (len, n): (usize, usize),
    (heads, kv_heads, head_dim): (usize, usize, usize),
    p: &AttentionParams,
) {
    let cache = cache(len, kv_heads, head_dim);
    let case = Case {
        q: &floats(3, n * heads * head_dim),
        heads,
        offset: len - n,
        params: *p,
    };
    let got = cache.attend(&case, n, Path::best());
    for (i, (got, want)) in got.iter().zip(reference(&cache, &case)).enumerate() {
        assert!(
            (got - want).abs() < 2e-5,
            "element {i}: {got}, not {want}; {n} of {len}, {heads}/{kv_heads} heads of {head_dim}, {p:?}"
        );
    }
    for path in Path::available() {
        let other = cache.attend(&case, n, path);
        assert!(bits(&other) == bits(&got), "{path:?}; {n} of {len}, {p:?}");
    }
    assert!(
        bits(&cache.attend_split(&case)) == bits(&got),
        "split; {n} of {len}, {p:?}"
    );
}

#[test]
fn equals_the_reference_around_block_boundaries() {
    let p = params(64, None, None);
    for len in [1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 320] {
        for n in [1, 3, 64, 65, len] {
            if n <= len {
                assert_equals_reference((len, n), (3, 1, 64), &p);
            }
        }
    }
}

#[test]
fn equals_the_reference_at_every_head_size_and_group() {
    for head_dim in [64, 80, 96, 128, 256, 20] {
        for (heads, kv_heads) in [(9, 3), (4, 4), (8, 1), (5, 1), (14, 2)] {
            let p = params(head_dim, None, None);
            assert_equals_reference((100, 37), (heads, kv_heads, head_dim), &p);
            assert_equals_reference((300, 1), (heads, kv_heads, head_dim), &p);
        }
    }
}

#[test]
fn equals_the_reference_with_a_window_and_a_softcap() {
    for window in [1, 2, 63, 64, 65, 100, 1000] {
        for softcap in [None, Some(2.0), Some(50.0)] {
            let p = params(64, Some(window), softcap);
            assert_equals_reference((330, 330), (6, 3, 64), &p);
            assert_equals_reference((330, 1), (6, 3, 64), &p);
        }
    }
}

#[test]
fn a_row_has_the_same_bits_in_any_chunk() {
    for (window, softcap) in [(None, None), (Some(70), None), (None, Some(3.0))] {
        let cache = cache(400, 3, 64);
        let case = Case {
            q: &floats(4, 400 * 9 * 64),
            heads: 9,
            offset: 0,
            params: params(64, window, softcap),
        };
        let whole = bits(&cache.attend(&case, 400, Path::best()));
        for n in [1, 3, 64, 65, 200] {
            let joined = bits(&cache.attend(&case, n, Path::best()));
            assert!(joined == whole, "chunks of {n}, window {window:?}");
        }
    }
}

#[test]
fn a_row_has_the_same_bits_whether_later_tokens_are_written_or_not() {
    let cache = cache(130, 1, 64);
    let case = Case {
        q: &floats(5, 70 * 3 * 64),
        heads: 3,
        offset: 0,
        params: params(64, None, None),
    };
    let after = cache.attend(&case, 70, Path::best());
    let poison = vec![0xff; cache.pool.layout().slot_bytes()];
    for slot in 0..SLOTS as u32 {
        cache.pool.write_slot(slot, &poison).unwrap();
    }
    cache.write(0, 70);
    let before = cache.attend(&case, 70, Path::best());
    assert_eq!(bits(&before), bits(&after));
}

#[test]
fn large_scores_do_not_overflow() {
    let case = Case {
        q: &floats(7, 130 * 2 * 64),
        heads: 2,
        offset: 0,
        params: AttentionParams {
            scale: 1e4,
            window: None,
            softcap: None,
        },
    };
    let got = cache(130, 1, 64).attend(&case, 130, Path::best());
    assert!(got.iter().all(|v| v.is_finite()));
}
