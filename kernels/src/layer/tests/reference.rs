//! The layers by their formulas, in f64.

use half::f16;

use super::super::*;
use super::{HIDDEN, Model};

impl Model {
    /// The layers by their formulas, in f64; keys and values rounded to f16 as in the pool.
    pub(super) fn reference(&self, x: &[f32]) -> Vec<f64> {
        let mut x: Vec<Vec<f64>> = x
            .chunks(HIDDEN)
            .map(|x| x.iter().map(|v| f64::from(*v)).collect())
            .collect();
        let params = &self.layers.params;
        for layer in &self.layers.layers {
            let (mut keys, mut values) = (Vec::new(), Vec::new());
            for (position, x) in x.iter_mut().enumerate() {
                let h = norm(x, &layer.attention_norm);
                let [mut q, mut k, v] = [&layer.query, &layer.key, &layer.value].map(|p| {
                    let mut y = product(&p.weight, &h);
                    for (y, b) in y.iter_mut().zip(p.bias.iter().flatten()) {
                        *y += f64::from(*b);
                    }
                    y
                });
                for (x, of_queries) in [(&mut q, true), (&mut k, false)] {
                    for head in x.chunks_mut(32) {
                        if let Some((query, key)) = &layer.head_norms {
                            let normed = norm(head, if of_queries { query } else { key });
                            head.copy_from_slice(&normed);
                        }
                        self.rotate(head, position);
                    }
                }
                let half = |x: Vec<f64>| -> Vec<f64> {
                    x.iter()
                        .map(|v| f16::from_f32(*v as f32).to_f64())
                        .collect()
                };
                keys.push(half(k));
                values.push(half(v));
                let attended: Vec<f64> = q
                    .chunks(32)
                    .enumerate()
                    .flat_map(|(head, q)| {
                        attend(q, head / 3 * 32, &keys, &values, &params.attention)
                    })
                    .collect();
                add(x, &product(&layer.output, &attended));
                let h = norm(x, &layer.feed_forward_norm);
                let (gate, up) = (product(&layer.gate, &h), product(&layer.up, &h));
                let gated: Vec<f64> = gate
                    .iter()
                    .zip(up)
                    .map(|(g, u)| g / (1.0 + (-g).exp()) * u)
                    .collect();
                add(x, &product(&layer.down, &gated));
            }
        }
        x.concat()
    }

    fn rotate(&self, head: &mut [f64], position: usize) {
        for i in 0..16 {
            let angle = position * 16 + i;
            let (cos, sin) = (f64::from(self.cos[angle]), f64::from(self.sin[angle]));
            let (a, b) = match self.layers.params.rope_kind {
                RopeKind::Interleaved => (2 * i, 2 * i + 1),
                RopeKind::Halves => (i, i + 16),
            };
            (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos);
        }
    }
}

fn norm(x: &[f64], weight: &[f32]) -> Vec<f64> {
    let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (mean + 1e-5).sqrt();
    x.iter()
        .zip(weight)
        .map(|(x, w)| x * scale * f64::from(*w))
        .collect()
}

fn product(matrix: &QuantizedMatrix, x: &[f64]) -> Vec<f64> {
    let ids: Vec<u32> = (0..matrix.rows() as u32).collect();
    let mut rows = Vec::new();
    matrix.embedding(&ids, &mut rows).unwrap();
    rows.chunks(x.len())
        .map(|row| row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum())
        .collect()
}

fn attend(
    q: &[f64],
    at: usize,
    keys: &[Vec<f64>],
    values: &[Vec<f64>],
    p: &AttentionParams,
) -> Vec<f64> {
    let seen = keys.len().saturating_sub(p.window.unwrap_or(usize::MAX))..keys.len();
    let score = |k: &Vec<f64>| {
        let score = q.iter().zip(&k[at..]).map(|(a, b)| a * b).sum::<f64>() * f64::from(p.scale);
        p.softcap.map_or(score, |cap| {
            f64::from(cap) * (score / f64::from(cap)).tanh()
        })
    };
    let weights: Vec<f64> = keys[seen.clone()].iter().map(|k| score(k).exp()).collect();
    let sum: f64 = weights.iter().sum();
    (at..at + 32)
        .map(|d| {
            weights
                .iter()
                .zip(&values[seen.clone()])
                .map(|(w, v)| w * v[d])
                .sum::<f64>()
                / sum
        })
        .collect()
}

fn add(x: &mut [f64], y: &[f64]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}
