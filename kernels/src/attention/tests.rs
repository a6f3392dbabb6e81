use super::*;
use crate::kv_write;
use crate::random::{bits, floats, in_pools, tensor, values};
use candle_core::Device;

const SLOTS: usize = 8;

/// A conversation's keys and values: in the pool, in slots out of order, and flat.
struct Cache {
    pool: KvPool,
    table: Vec<u32>,
    keys: Tensor,
    values: Tensor,
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
        pool.write_slot(slot, &vec![0xff; layout.slot_bytes()])
            .unwrap();
    }
    let half = |seed| {
        let values = floats(seed, len * kv_heads * head_dim);
        let values: Vec<f32> = values.iter().map(|&v| f16::from_f32(v).to_f32()).collect();
        Tensor::from_vec(values, (len, kv_heads, head_dim), &Device::Cpu).unwrap()
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
        let part = |x: &Tensor| x.narrow(0, start, n).unwrap();
        let (k, v) = (part(&self.keys), part(&self.values));
        kv_write(&self.pool, 1, &k, &v, &self.table, start).unwrap();
    }

    fn attend(&self, q: &Tensor, offset: usize, p: &AttentionParams) -> Tensor {
        paged_attention(q, &self.pool, 1, &self.table, offset, p).unwrap()
    }
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
    let q = tensor(3, &[n, heads, head_dim]);
    let got = cache.attend(&q, len - n, p);
    assert_eq!(got.dims(), q.dims());
    let (keys, v) = (values(&cache.keys), values(&cache.values));
    let want = reference(&q, &keys, &v, kv_heads, len - n, p);
    for (i, (got, want)) in values(&got).iter().zip(want).enumerate() {
        assert!(
            (got - want).abs() < 2e-5,
            "element {i}: {got}, not {want}; {n} of {len}, {heads}/{kv_heads} heads of {head_dim}, {p:?}"
        );
    }
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
        let p = params(64, window, softcap);
        let cache = cache(400, 3, 64);
        let q = tensor(4, &[400, 9, 64]);
        let whole = bits(&cache.attend(&q, 0, &p));
        for n in [1, 3, 64, 65, 200] {
            let chunks: Vec<Tensor> = (0..400)
                .step_by(n)
                .map(|start| {
                    let len = n.min(400 - start);
                    cache.attend(&q.narrow(0, start, len).unwrap(), start, &p)
                })
                .collect();
            let joined = bits(&Tensor::cat(&chunks, 0).unwrap());
            assert!(joined == whole, "chunks of {n}, window {window:?}");
        }
    }
}

#[test]
fn a_row_has_the_same_bits_whether_later_tokens_are_written_or_not() {
    let p = params(64, None, None);
    let cache = cache(130, 1, 64);
    let q = tensor(5, &[130, 3, 64]);
    let after = cache.attend(&q.narrow(0, 0, 70).unwrap(), 0, &p);
    let poison = vec![0xff; cache.pool.layout().slot_bytes()];
    for slot in 0..SLOTS as u32 {
        cache.pool.write_slot(slot, &poison).unwrap();
    }
    cache.write(0, 70);
    let before = cache.attend(&q.narrow(0, 0, 70).unwrap(), 0, &p);
    assert_eq!(bits(&before), bits(&after));
}

#[test]
fn a_row_has_the_same_bits_with_any_number_of_threads() {
    let cache = cache(500, 3, 64);
    let (q, p) = (tensor(6, &[500, 9, 64]), params(64, None, None));
    let last = q.narrow(0, 499, 1).unwrap();
    let (whole, one) = (
        bits(&cache.attend(&q, 0, &p)),
        bits(&cache.attend(&last, 499, &p)),
    );
    assert!(whole.ends_with(&one));
    in_pools(|threads| {
        assert!(bits(&cache.attend(&q, 0, &p)) == whole, "{threads} threads");
        assert!(
            bits(&cache.attend(&last, 499, &p)) == one,
            "{threads} threads"
        );
    });
}

#[test]
fn large_scores_do_not_overflow() {
    let p = AttentionParams {
        scale: 1e4,
        window: None,
        softcap: None,
    };
    let cache = cache(130, 1, 64);
    let got = cache.attend(&tensor(7, &[130, 2, 64]), 0, &p);
    assert!(values(&got).iter().all(|v| v.is_finite()));
}

#[test]
fn no_query_is_no_output() {
    let p = params(64, None, None);
    let q = Tensor::zeros((0, 3, 64), candle_core::DType::F32, &Device::Cpu).unwrap();
    assert_eq!(cache(5, 1, 64).attend(&q, 5, &p).dims(), [0, 3, 64]);
}

#[test]
fn what_does_not_fit_is_an_error_not_a_panic() {
    let (cache, p) = (cache(10, 2, 16), params(16, None, None));
    let attend = |dims: &[usize], layer, table: &[u32], offset| {
        paged_attention(&tensor(8, dims), &cache.pool, layer, table, offset, &p)
    };
    assert!(attend(&[1, 4, 16], 1, &[5], 9).is_ok());
    assert!(attend(&[1, 3, 16], 1, &[5], 9).is_err());
    assert!(attend(&[1, 4, 8], 1, &[5], 9).is_err());
    assert!(attend(&[1, 4, 16], 2, &[5], 9).is_err());
    assert!(attend(&[1, 4, 16], 1, &[5], 64).is_err());
    assert!(attend(&[1, 4, 16], 1, &[8], 9).is_err());
    assert!(attend(&[1, 4, 16], 1, &[5], usize::MAX).is_err());
    assert!(attend(&[1, 4], 1, &[5], 9).is_err());
}
