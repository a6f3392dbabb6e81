mod reference;
mod waiting;

use candle_core::Device;
use candle_core::quantized::{GgmlDType, QTensor};

use super::*;
use crate::KvPool;
use crate::random::{bits, floats};
use crate::{Arena, KvDtype, KvFormat};

const HIDDEN: usize = 96;
const INNER: usize = 160;
const HEADS: usize = 6;
const LAYOUT: KvLayout = KvLayout {
    num_layers: 3,
    num_kv_heads: 2,
    head_dim: 32,
    format: KvFormat::F16,
};
const POSITIONS: usize = 400;

/// Layers with everything a decoder may have, and what they run on.
struct Model {
    layers: Layers,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

/// Values around 1 for norms.
fn near_one(seed: u64, n: usize) -> Vec<f32> {
    floats(seed, n).iter().map(|v| 1.0 + 0.2 * v).collect()
}

fn matrix(dtype: GgmlDType, seed: u64, rows: usize, cols: usize) -> QuantizedMatrix {
    let scale = 1.5 / (cols as f32).sqrt();
    let values: Vec<f32> = floats(seed, rows * cols)
        .iter()
        .map(|v| v * scale)
        .collect();
    let values = candle_core::Tensor::from_vec(values, (rows, cols), &Device::Cpu).unwrap();
    let bytes = QTensor::quantize(&values, dtype).unwrap();
    let bytes = bytes.data().unwrap();
    QuantizedMatrix::new(
        dtype,
        rows,
        cols,
        &bytes,
        &Team::new(1),
        &mut Arena::default(),
    )
    .unwrap()
}

fn model(dtype: GgmlDType, rope_kind: RopeKind, full: bool) -> Model {
    model_with(dtype, rope_kind, full, KvFormat::F16)
}

fn model_with(dtype: GgmlDType, rope_kind: RopeKind, full: bool, format: KvFormat) -> Model {
    let (q, kv) = (HEADS * LAYOUT.head_dim, LAYOUT.row_elems());
    let layers = (0..LAYOUT.num_layers as u64).map(|i| {
        let projection = |seed: u64, rows: usize| Projection {
            weight: matrix(dtype, 100 * i + seed, rows, HIDDEN),
            bias: full.then(|| floats(100 * i + seed + 50, rows)),
        };
        Layer {
            attention_norm: near_one(100 * i, HIDDEN),
            query: projection(1, q),
            key: projection(2, kv),
            value: projection(3, kv),
            output: matrix(dtype, 100 * i + 4, HIDDEN, q),
            head_norms: full.then(|| (near_one(100 * i + 5, 32), near_one(100 * i + 6, 32))),
            feed_forward_norm: near_one(100 * i + 7, HIDDEN),
            gate: matrix(dtype, 100 * i + 8, INNER, HIDDEN),
            up: matrix(dtype, 100 * i + 9, INNER, HIDDEN),
            down: matrix(dtype, 100 * i + 10, HIDDEN, INNER),
        }
    });
    let params = LayerParams {
        num_heads: HEADS,
        norm_eps: 1e-5,
        rope_kind,
        attention: AttentionParams {
            scale: 1.0 / 32f32.sqrt(),
            window: full.then_some(150),
            softcap: full.then_some(20.0),
        },
    };
    let angles = (0..POSITIONS).flat_map(|p| (0..16).map(move |i| p as f64 * 0.7f64.powi(i)));
    let (cos, sin) = angles.map(|a| (a.cos() as f32, a.sin() as f32)).unzip();
    let mut model = Model {
        layers: Layers::new(layers.collect(), params, KvLayout { format, ..LAYOUT }).unwrap(),
        cos,
        sin,
    };
    if format.key.is_rotated() {
        let balance = model.measure(&Team::new(2));
        model.layers = model.layers.balanced(balance).unwrap();
    }
    model
}

impl Model {
    fn layout(&self) -> &KvLayout {
        &self.layers.layout
    }

    /// The balance of its keys over some tokens.
    fn measure(&self, team: &Team) -> KeyBalance {
        let layout = KvLayout {
            format: KvFormat::F16,
            ..LAYOUT
        };
        let pool = KvPool::reserved(layout, 7).unwrap();
        let mut x = floats(77, 100 * HIDDEN);
        self.layers
            .measure(team, &mut x, self.place(&pool, 0))
            .unwrap()
    }

    fn pool(&self) -> KvPool {
        let pool = KvPool::reserved(*self.layout(), 7).unwrap();
        for slot in 0..7 {
            pool.write_slot(slot, &vec![0xff; self.layout().slot_bytes()])
                .unwrap();
        }
        pool
    }

    /// Runs `x` in chunks that end at `ends`; all rows, and the slots.
    fn run(&self, x: &[f32], ends: &[usize], team: &Team) -> (Vec<f32>, Vec<Vec<u8>>) {
        let (pool, mut out, mut start) = (self.pool(), x.to_vec(), 0);
        for &end in ends {
            let chunk = &mut out[start * HIDDEN..end * HIDDEN];
            self.layers
                .forward(team, chunk, self.place(&pool, start), false)
                .unwrap();
            start = end;
        }
        let slots = (0..7).map(|slot| {
            let mut bytes = vec![0; self.layout().slot_bytes()];
            pool.read_slot(slot, &mut bytes).unwrap();
            bytes
        });
        (out, slots.collect())
    }

    fn place<'a>(&'a self, pool: &'a KvPool, offset: usize) -> Place<'a> {
        Place {
            offset,
            pool,
            table: &[3, 0, 6, 2, 5, 1, 4],
            cos: &self.cos,
            sin: &self.sin,
        }
    }
}

/// Root mean square of the difference, relative to that of `want`.
fn relative_error(got: &[f32], want: &[f64]) -> f64 {
    let square = |sum: f64, v: f64| sum + v * v;
    let difference = got
        .iter()
        .zip(want)
        .map(|(g, w)| f64::from(*g) - w)
        .fold(0.0, square);
    (difference / want.iter().copied().fold(0.0, square)).sqrt()
}

#[test]
fn equal_their_formulas_by_panels_and_by_rows() {
    for rope_kind in [RopeKind::Interleaved, RopeKind::Halves] {
        for full in [false, true] {
            let model = model(GgmlDType::F32, rope_kind, full);
            let x = floats(1, 200 * HIDDEN);
            let want = model.reference(&x);
            let by_panels = model.run(&x, &[200], &Team::new(2)).0;
            assert!(
                relative_error(&by_panels, &want) < 1e-4,
                "{rope_kind:?} {full}"
            );
            let ends: Vec<usize> = (1..=200).collect();
            let by_rows = model.run(&x, &ends, &Team::new(2)).0;
            assert!(
                relative_error(&by_rows, &want) < 1e-4,
                "{rope_kind:?} {full}"
            );
        }
    }
}

#[test]
fn other_formats_of_keys_and_values_cost_what_they_round() {
    let x = floats(1, 200 * HIDDEN);
    for (format, most) in [
        (KvFormat::same(KvDtype::Bf16), 5e-3),
        (KvFormat::Q8, 1e-2),
        (KvFormat::Q4, 0.2),
    ] {
        let model = model_with(GgmlDType::F32, RopeKind::Interleaved, true, format);
        let got = model.run(&x, &[200], &Team::new(2)).0;
        let error = relative_error(&got, &model.reference(&x));
        assert!((most / 100.0..most).contains(&error), "{format}: {error}");
    }
}

#[test]
fn the_balance_of_keys_is_the_same_from_panels_and_rows_with_any_threads() {
    let model = model(GgmlDType::Q4_1, RopeKind::Halves, true);
    let want = model.measure(&Team::new(1));
    assert_eq!(model.measure(&Team::new(3)), want);
    assert_eq!(model.measure(&Team::on(Path::Scalar, 2)), want);
    assert!(want.numbers().iter().all(|number| number.is_finite()));
}

#[test]
fn balanced_keys_are_rounded_with_less_error() {
    let x = floats(1, 200 * HIDDEN);
    let of = |is_balanced: bool| {
        let mut model = model_with(
            GgmlDType::F32,
            RopeKind::Halves,
            true,
            KvFormat {
                key: KvDtype::Q4,
                value: KvDtype::F16,
            },
        );
        // Biases as those of Qwen 2: what keys have in common is most of them.
        for layer in &mut model.layers.layers {
            for bias in layer.key.bias.iter_mut().flatten() {
                *bias *= 10.0;
            }
            layer.head_norms = None;
        }
        model.layers.balance = None;
        if is_balanced {
            model.layers.balance = Some(model.measure(&Team::new(2)));
        }
        relative_error(
            &model.run(&x, &[200], &Team::new(2)).0,
            &model.reference(&x),
        )
    };
    let (plain, balanced) = (of(false), of(true));
    // Half of these angles turn within a block, where there is little to take off.
    assert!(balanced < 0.8 * plain, "{balanced} of {plain}");
}

#[test]
fn a_token_has_the_same_bits_in_any_chunk_with_any_threads_on_any_path() {
    let n = 300;
    let x = floats(2, n * HIDDEN);
    let every =
        |step: usize| -> Vec<usize> { (1..n).filter(|i| i % step == 0).chain([n]).collect() };
    for (dtype, format) in [
        (GgmlDType::F32, KvFormat::F16),
        (GgmlDType::Q4_1, KvFormat::Q8),
        (GgmlDType::Q8_0, KvFormat::Q4),
    ] {
        let model = model_with(dtype, RopeKind::Halves, true, format);
        let (want, slots) = model.run(&x, &[n], &Team::on(Path::Scalar, 1));
        let check = |ends: &[usize], team: &Team| {
            let (got, got_slots) = model.run(&x, ends, team);
            assert!(
                bits(&got) == bits(&want),
                "{dtype:?} {team:?}, {} chunks",
                ends.len()
            );
            assert!(
                got_slots == slots,
                "{dtype:?} {team:?}, {} chunks",
                ends.len()
            );
        };
        for path in Path::available() {
            check(&[n], &Team::on(path, 2));
            check(&every(50), &Team::on(path, 3));
        }
        for threads in 1..=8 {
            let team = Team::new(threads);
            for ends in [
                vec![n],
                every(64),
                every(7),
                vec![1, 2, 65, 129, 130, 257, n],
            ] {
                check(&ends, &team);
            }
        }
        check(&every(1), &Team::new(2));
    }
}

#[test]
fn the_last_token_alone_has_the_same_bits_and_all_keys_and_values_are_written() {
    let model = model(GgmlDType::Q4_0, RopeKind::Interleaved, false);
    for n in [1, 5, 16, 100, 200] {
        let x = floats(3, n * HIDDEN);
        let (want, slots) = model.run(&x, &[n], &Team::new(2));
        for threads in 1..=3 {
            let (pool, mut got) = (model.pool(), x.clone());
            let place = model.place(&pool, 0);
            model
                .layers
                .forward(&Team::new(threads), &mut got, place, true)
                .unwrap();
            let last = (n - 1) * HIDDEN;
            assert_eq!(bits(&got[last..]), bits(&want[last..]), "{n} tokens");
            for (slot, want) in slots.iter().enumerate() {
                let mut bytes = vec![0; model.layout().slot_bytes()];
                pool.read_slot(slot as u32, &mut bytes).unwrap();
                assert!(&bytes == want, "slot {slot}, {n} tokens");
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_an_error_not_a_panic() {
    let model = model(GgmlDType::F32, RopeKind::Halves, true);
    let (pool, team) = (model.pool(), Team::new(2));
    let run = |n: usize, place: Place| model.layers.forward(&team, &mut vec![0.5; n], place, true);
    let place = model.place(&pool, 0);
    assert!(run(HIDDEN, place).is_ok());
    assert!(run(0, place).is_ok());
    assert!(run(HIDDEN + 1, place).is_err());
    assert!(
        run(
            HIDDEN,
            Place {
                offset: usize::MAX,
                ..place
            }
        )
        .is_err()
    );
    assert!(
        run(
            HIDDEN,
            Place {
                offset: POSITIONS,
                ..place
            }
        )
        .is_err()
    );
    assert!(
        run(
            HIDDEN,
            Place {
                table: &[],
                ..place
            }
        )
        .is_err()
    );
    assert!(
        run(
            HIDDEN,
            Place {
                table: &[7],
                ..place
            }
        )
        .is_err()
    );
    assert!(
        run(
            65 * HIDDEN,
            Place {
                table: &[1],
                ..place
            }
        )
        .is_err()
    );
    let other = KvPool::reserved(
        KvLayout {
            num_layers: 2,
            ..LAYOUT
        },
        2,
    )
    .unwrap();
    assert!(
        run(
            HIDDEN,
            Place {
                pool: &other,
                ..place
            }
        )
        .is_err()
    );

    let Layers { layers, params, .. } = model.layers;
    assert!(Layers::new(Vec::new(), params, LAYOUT).is_err());
    let wrong = LayerParams {
        num_heads: 5,
        ..params
    };
    assert!(Layers::new(layers, wrong, LAYOUT).is_err());
    let mut layers = self::model(GgmlDType::F32, RopeKind::Halves, true)
        .layers
        .layers;
    layers[1].query.bias = Some(vec![0.0; 3]);
    assert!(Layers::new(layers, params, LAYOUT).is_err());
    let mut layers = self::model(GgmlDType::F32, RopeKind::Halves, true)
        .layers
        .layers;
    layers[2].down = matrix(GgmlDType::F32, 1, INNER, HIDDEN);
    assert!(Layers::new(layers, params, LAYOUT).is_err());
}
