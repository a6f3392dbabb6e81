//! Root-mean-square normalisation over the last dimension.

use candle_core::{CpuStorage, CustomOp2, Layout, Shape, Tensor};
use rayon::prelude::*;

use crate::cpu::widened;
use crate::input::{f32_input, f32_slice};
use crate::{Error, Result};

const OP: &str = "rms norm";

/// `x / sqrt(mean(x²) + eps) * weight` over the last dimension of `x`; also serves the per-head norms of queries and keys.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    let (x, weight) = (f32_input(OP, x)?, f32_input(OP, weight)?);
    if weight.rank() != 1 || x.dims().last() != weight.dims().last() || weight.elem_count() == 0 {
        let reason = format!("weight {:?} for input {:?}", weight.dims(), x.dims());
        return Err(Error::argument(OP, reason));
    }
    Ok(x.apply_op2_no_bwd(&weight, &RmsNorm { eps })?)
}

struct RmsNorm {
    eps: f32,
}

impl CustomOp2 for RmsNorm {
    fn name(&self) -> &'static str {
        OP
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let (x, weight) = (f32_slice(x, x_layout)?, f32_slice(weight, weight_layout)?);
        let mut out = vec![0f32; x.len()];
        let width = weight.len();
        // Enough rows that a task is worth its start.
        let rows = (32_768 / width).max(1);
        out.par_chunks_mut(rows * width)
            .zip(x.par_chunks(rows * width))
            .for_each(|(out, x)| {
                for (out, x) in out.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
                    normalise_wide(x, weight, self.eps, out);
                }
            });
        Ok((CpuStorage::F32(out), x_layout.shape().clone()))
    }
}

widened! {
    fn normalise_wide(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) = normalise
}

/// One row. Squares are summed in eight fixed lanes.
#[inline(always)]
fn normalise(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let (chunks, rest) = x.as_chunks::<8>();
    let mut lanes = [0f32; 8];
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += value * value;
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane += value * value;
    }
    let mean = lanes.iter().sum::<f32>() / x.len() as f32;
    let scale = 1.0 / (mean + eps).sqrt();
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        *out = x * scale * weight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{bits, tensor, values};

    fn reference(x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
        x.chunks(weight.len())
            .flat_map(|row| {
                let squares: f64 = row.iter().map(|&v| f64::from(v).powi(2)).sum();
                let scale = 1.0 / (squares / row.len() as f64 + f64::from(eps)).sqrt();
                row.iter()
                    .zip(weight)
                    .map(move |(&v, &w)| (f64::from(v) * scale * f64::from(w)) as f32)
            })
            .collect()
    }

    #[test]
    fn equals_the_reference_at_ragged_widths() {
        for width in [1, 7, 8, 64, 80, 577] {
            let (x, weight) = (tensor(1, &[5, 3, width]), tensor(2, &[width]));
            let got = rms_norm(&x, &weight, 1e-5).unwrap();
            assert_eq!(got.dims(), x.dims());
            let want = reference(&values(&x), &values(&weight), 1e-5);
            for (got, want) in values(&got).iter().zip(want) {
                assert!((got - want).abs() <= 1e-5 * want.abs().max(1.0));
            }
        }
    }

    #[test]
    fn a_row_has_the_same_bits_alone_and_among_others() {
        let (x, weight) = (tensor(3, &[200, 576]), tensor(4, &[576]));
        let all = rms_norm(&x, &weight, 1e-5).unwrap();
        for i in [0, 63, 64, 199] {
            let one = rms_norm(&x.narrow(0, i, 1).unwrap(), &weight, 1e-5).unwrap();
            assert_eq!(bits(&one), bits(&all.narrow(0, i, 1).unwrap()));
        }
    }

    #[test]
    fn a_weight_of_another_width_is_an_error() {
        assert!(rms_norm(&tensor(5, &[2, 8]), &tensor(6, &[7]), 1e-5).is_err());
    }
}
