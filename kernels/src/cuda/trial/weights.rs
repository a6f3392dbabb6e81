//! The layer that is tried: noise, in sizes that let every part of it count.

use candle_core::quantized::{GgmlDType, QTensor};

use super::{OP, Trial};
use crate::cuda::self_test::noise;
use crate::layer::{Layer, Projection};
use crate::{Arena, Error, QuantizedMatrix, Result, Team};

/// Of queries and keys: scores differ enough for the softmax to choose, and not so much that it takes one.
const SCORES: f32 = 1.4;
/// Of rope's frequencies, as of most models.
const ROPE_BASE: f64 = 10_000.0;

/// Makes parts of a layer, each of other noise.
pub(super) struct Parts<'a> {
    trial: &'a Trial,
    team: &'a Team,
    arena: Arena,
    seed: u64,
}

impl<'a> Parts<'a> {
    pub(super) fn new(trial: &'a Trial, team: &'a Team) -> Self {
        Self {
            trial,
            team,
            arena: Arena::default(),
            seed: 0,
        }
    }

    /// Numbers around 0, of root mean square 1.
    fn floats(&mut self, len: usize) -> Vec<f32> {
        self.seed += 1;
        let bytes = noise(self.seed, 2 * len);
        let words = bytes.as_chunks::<2>().0.iter().copied();
        // Of numbers spread evenly over -1..1 it is 1 / √3.
        let even = words.map(|word| (f32::from(u16::from_le_bytes(word)) + 0.5) / 32_768.0 - 1.0);
        even.map(|x| x * 3f32.sqrt()).collect()
    }

    /// Numbers around another, as norms have them.
    pub(super) fn near(&mut self, middle: f32, len: usize) -> Vec<f32> {
        let mut floats = self.floats(len);
        floats.iter_mut().for_each(|x| *x = middle + 0.1 * *x);
        floats
    }

    /// A matrix whose products with activations of root mean square 1 have `size`.
    pub(super) fn matrix(
        &mut self,
        format: GgmlDType,
        (rows, cols): (usize, usize),
        size: f32,
    ) -> Result<QuantizedMatrix> {
        let size = size / (cols as f32).sqrt();
        let mut floats = self.floats(rows * cols);
        floats.iter_mut().for_each(|x| *x *= size);
        let failed = |error: candle_core::Error| Error::argument(OP, error.to_string());
        let floats = candle_core::Tensor::from_vec(floats, (rows, cols), &candle_core::Device::Cpu);
        let tensor = floats.and_then(|floats| QTensor::quantize(&floats, format));
        let tensor = tensor.map_err(failed)?;
        let bytes = tensor.data().map_err(failed)?;
        QuantizedMatrix::new(format, rows, cols, &bytes, self.team, &mut self.arena)
    }

    pub(super) fn layer(&mut self) -> Result<Layer> {
        let Trial {
            params,
            layout,
            hidden,
            inner,
            formats,
            ..
        } = *self.trial;
        let (q, kv) = (params.num_heads * layout.head_dim, layout.row_elems());
        let [query, key, value] = formats.projections;
        let [gate, up] = formats.gate_up;
        let head_norms = self.trial.has_head_norms.then(|| {
            let dim = layout.head_dim;
            (self.near(SCORES, dim), self.near(SCORES, dim))
        });
        Ok(Layer {
            attention_norm: self.near(1.0, hidden),
            query: self.projection(query, q, SCORES)?,
            key: self.projection(key, kv, SCORES)?,
            value: self.projection(value, kv, 1.0)?,
            output: self.matrix(formats.output, (hidden, q), 1.0)?,
            head_norms,
            feed_forward_norm: self.near(1.0, hidden),
            gate: self.matrix(gate, (inner, hidden), 1.0)?,
            up: self.matrix(up, (inner, hidden), 1.0)?,
            down: self.matrix(formats.down, (hidden, inner), 1.0)?,
        })
    }

    fn projection(&mut self, format: GgmlDType, rows: usize, size: f32) -> Result<Projection> {
        let weight = self.matrix(format, (rows, self.trial.hidden), size)?;
        let bias = self.trial.has_biases.then(|| {
            let mut bias = self.floats(rows);
            bias.iter_mut().for_each(|x| *x *= 0.5);
            bias
        });
        Ok(Projection { weight, bias })
    }
}

/// Cosines and sines of rotary positions, `[positions, head_dim / 2]` each.
pub(super) fn angles(head_dim: usize, positions: usize) -> [Vec<f32>; 2] {
    let half = head_dim / 2;
    let of = |i: usize| {
        let (position, pair) = (i / half, i % half);
        position as f64 * ROPE_BASE.powf(-2.0 * pair as f64 / head_dim as f64)
    };
    let angles: Vec<f64> = (0..positions * half).map(of).collect();
    let to = |of: fn(f64) -> f64| angles.iter().map(|angle| of(*angle) as f32).collect();
    [to(f64::cos), to(f64::sin)]
}
