use super::*;
use crate::hadamard::hadamard;
use crate::kv_write::Rounded;
use crate::kv_write::read;
use crate::layout::{TILE_TOKENS, tests::formats};
use crate::random::{bits, floats};
use crate::{BLOCK_TOKENS, KvDtype, KvFormat, KvPool};

const SLOTS: usize = 8;

/// A conversation's keys and values: in the pool, in slots out of order, and flat `[len, kv_heads, head_dim]` as the pool
/// rounded them.
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

/// The last layer of a pool in which everything not written is NaN, or as bad as the format allows.
fn cache(format: KvFormat, len: usize, kv_heads: usize, head_dim: usize) -> Cache {
    let layout = KvLayout {
        num_layers: 2,
        num_kv_heads: kv_heads,
        head_dim,
        format,
    };
    let pool = KvPool::reserved(layout, SLOTS).unwrap();
    let mut cache = Cache {
        pool,
        table: vec![5, 0, 7, 2, 1, 6, 3, 4],
        keys: Vec::new(),
        values: Vec::new(),
    };
    cache.poison();
    cache.write(len);
    cache
}

impl Cache {
    fn poison(&self) {
        let poison = vec![0xff; self.pool.layout().slot_bytes()];
        for slot in 0..SLOTS as u32 {
            self.pool.write_slot(slot, &poison).unwrap();
        }
    }

    /// Writes the first `len` tokens, and takes note of what they became.
    fn write(&mut self, len: usize) {
        let layout = *self.pool.layout();
        let dim = layout.head_dim;
        let rows = |seed| floats(seed, len * layout.row_elems());
        let sides = [(Side::Key, rows(1)), (Side::Value, rows(2))];
        let [keys, values] = sides.map(|(side, rows)| {
            let mut noted = Vec::new();
            for (i, x) in rows.chunks_exact(dim).enumerate() {
                let (t, head) = (i / layout.num_kv_heads, i % layout.num_kv_heads);
                let range = layout.tile(side, 1, t % BLOCK_TOKENS / TILE_TOKENS, head);
                let lane = t % TILE_TOKENS;
                let slot = self.table[t / BLOCK_TOKENS];
                let tile = self.pool.with_memory(|memory| {
                    let mut x = x.to_vec();
                    // SAFETY: a tile of the slot, and one thread.
                    unsafe {
                        let tile = memory.slot(slot).add(range.start);
                        let place = (tile, lane);
                        Rounded::default().write(Path::best(), &layout, side, &mut x, place);
                        std::slice::from_raw_parts(tile, range.len()).to_vec()
                    }
                });
                let mut row = read(&layout, side, &tile, lane);
                if layout.dtype(side).is_rotated() {
                    hadamard(Path::Scalar, &mut row, dim);
                }
                noted.extend(row);
            }
            noted
        });
        (self.keys, self.values) = (keys, values);
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
        let run = |memory: Memory| {
            let attention = Attention {
                memory,
                layout,
                layer: 1,
                table: &self.table,
                params: case.params,
                group,
                centers: None,
            };
            let mut out = vec![f32::NAN; case.q.len()];
            let mut first = 0;
            while first < n {
                let end = n.min(first.saturating_add(tokens));
                let kv_heads = 0..layout.num_kv_heads;
                let tokens = end - first;
                let at = |kv_head: usize, t: usize| (t * case.heads + kv_head * group) * dim;
                let mut values: Vec<f32> = kv_heads
                    .clone()
                    .flat_map(|kv_head| (first..end).map(move |t| (kv_head, t)))
                    .flat_map(|(kv_head, t)| &case.q[at(kv_head, t)..][..group * dim])
                    .map(|q| q * case.params.scale)
                    .collect();
                if layout.format.key.is_rotated() {
                    hadamard(Path::best(), &mut values, dim);
                }
                let queries = Queries {
                    kv_heads,
                    positions: case.offset + first..case.offset + end,
                    values: &values,
                };
                attend(&attention, &queries, &mut |row, values| {
                    let (kv_head, token) = (row / group / tokens, row / group % tokens);
                    let at = at(kv_head, first + token) + row % group * dim;
                    out[at..at + dim].copy_from_slice(values);
                    if layout.format.value.is_rotated() {
                        hadamard(Path::best(), &mut out[at..at + dim], dim);
                    }
                });
                first = end;
            }
            out
        };
        self.pool.with_memory(run)
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
    format: KvFormat,
) {
    let cache = cache(format, len, kv_heads, head_dim);
    let case = Case {
        q: &floats(3, n * heads * head_dim),
        heads,
        offset: len - n,
        params: *p,
    };
    let got = cache.attend(&case, n, Path::best());
    // With quantized keys queries are rounded to 15 bits.
    let tolerance = match format.key.is_rotated() {
        true => 2e-4,
        false => 2e-5,
    };
    for (i, (got, want)) in got.iter().zip(reference(&cache, &case)).enumerate() {
        assert!(
            (got - want).abs() < tolerance,
            "element {i}: {got}, not {want}; {n} of {len}, {heads}/{kv_heads} heads of {head_dim}, {p:?}, {format}"
        );
    }
    for path in Path::available() {
        let other = cache.attend(&case, n, path);
        assert!(
            bits(&other) == bits(&got),
            "{path:?}; {n} of {len}, {p:?}, {format}"
        );
    }
    assert!(
        bits(&cache.attend_split(&case)) == bits(&got),
        "split; {n} of {len}, {p:?}, {format}"
    );
}

/// Each format of keys and each of values at least once.
const FORMATS: [KvFormat; 4] = [
    KvFormat::F16,
    KvFormat::Q8,
    KvFormat {
        key: KvDtype::Q4,
        value: KvDtype::Bf16,
    },
    KvFormat {
        key: KvDtype::Bf16,
        value: KvDtype::Q4,
    },
];

#[test]
fn equals_the_reference_in_every_pair_of_formats() {
    for format in formats() {
        assert_equals_reference((150, 30), (6, 2, 32), &params(32, None, None), format);
        assert_equals_reference((300, 1), (6, 2, 96), &params(96, None, None), format);
    }
}

#[test]
fn equals_the_reference_around_block_boundaries() {
    let p = params(64, None, None);
    for len in [1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 320] {
        for n in [1, 3, 64, 65, len] {
            if n <= len {
                for format in FORMATS {
                    assert_equals_reference((len, n), (3, 1, 64), &p, format);
                }
            }
        }
    }
}

#[test]
fn equals_the_reference_at_every_head_size_and_group() {
    for head_dim in [64, 80, 96, 128, 256, 20] {
        for (heads, kv_heads) in [(9, 3), (4, 4), (8, 1), (5, 1), (14, 2)] {
            let p = params(head_dim, None, None);
            let shape = (heads, kv_heads, head_dim);
            for format in FORMATS {
                let (format, _) = format.fitting(head_dim);
                assert_equals_reference((100, 37), shape, &p, format);
                assert_equals_reference((300, 1), shape, &p, format);
            }
        }
    }
}

#[test]
fn equals_the_reference_with_a_window_and_a_softcap() {
    for window in [1, 2, 63, 64, 65, 100, 1000] {
        for softcap in [None, Some(2.0), Some(50.0)] {
            let p = params(64, Some(window), softcap);
            for format in FORMATS {
                assert_equals_reference((330, 330), (6, 3, 64), &p, format);
                assert_equals_reference((330, 1), (6, 3, 64), &p, format);
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_in_any_chunk() {
    let masks = [(None, None), (Some(70), None), (None, Some(3.0))];
    for ((window, softcap), format) in masks
        .into_iter()
        .flat_map(|mask| FORMATS.map(|format| (mask, format)))
    {
        let cache = cache(format, 400, 3, 64);
        let case = Case {
            q: &floats(4, 400 * 9 * 64),
            heads: 9,
            offset: 0,
            params: params(64, window, softcap),
        };
        let whole = bits(&cache.attend(&case, 400, Path::best()));
        for n in [1, 3, 64, 65, 200] {
            let joined = bits(&cache.attend(&case, n, Path::best()));
            assert!(
                joined == whole,
                "chunks of {n}, window {window:?}, {format}"
            );
        }
    }
}

#[test]
fn a_row_has_the_same_bits_whether_later_tokens_are_written_or_not() {
    for format in FORMATS {
        let mut cache = cache(format, 130, 1, 64);
        let case = Case {
            q: &floats(5, 70 * 3 * 64),
            heads: 3,
            offset: 0,
            params: params(64, None, None),
        };
        let after = cache.attend(&case, 70, Path::best());
        cache.poison();
        cache.write(70);
        let before = cache.attend(&case, 70, Path::best());
        assert_eq!(bits(&before), bits(&after), "{format}");
    }
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
    let got = cache(KvFormat::Q8, 130, 1, 64).attend(&case, 130, Path::best());
    assert!(got.iter().all(|v| v.is_finite()));
}
