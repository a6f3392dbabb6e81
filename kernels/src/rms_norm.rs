//! Root-mean-square normalisation (Zhang and Sennrich, 2019).

use crate::cpu::widened;

widened! {
    /// `x / sqrt(mean(x²) + eps) * weight` for each row of `x` `[rows, weight.len()]`, in place; also serves the per-head
    /// norms of queries and keys.
    pub fn rms_norm(x: &mut [f32], weight: &[f32], eps: f32) = normalise
}

/// Squares are summed in sixteen fixed lanes.
#[inline(always)]
fn normalise(x: &mut [f32], weight: &[f32], eps: f32) {
    for x in x.chunks_exact_mut(weight.len()) {
        let (chunks, rest) = x.as_chunks::<16>();
        let mut lanes = [0f32; 16];
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
        for (x, weight) in x.iter_mut().zip(weight) {
            *x = *x * scale * weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Path;
    use crate::random::{bits, floats};

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
    fn equals_the_reference_at_ragged_widths_with_the_same_bits_on_every_path() {
        for width in [1, 7, 8, 64, 80, 577] {
            let (x, weight) = (floats(1, 15 * width), floats(2, width));
            let want = reference(&x, &weight, 1e-5);
            let mut scalar = x.clone();
            rms_norm(Path::Scalar, &mut scalar, &weight, 1e-5);
            for path in Path::available() {
                let mut got = x.clone();
                rms_norm(path, &mut got, &weight, 1e-5);
                assert_eq!(bits(&got), bits(&scalar), "{path:?}");
            }
            for (got, want) in scalar.iter().zip(want) {
                assert!((got - want).abs() <= 1e-5 * want.abs().max(1.0));
            }
        }
    }

    #[test]
    fn a_row_has_the_same_bits_alone_and_among_others() {
        let (x, weight) = (floats(3, 20 * 576), floats(4, 576));
        let mut all = x.clone();
        rms_norm(Path::best(), &mut all, &weight, 1e-5);
        for i in [0, 7, 19] {
            let row = i * 576..(i + 1) * 576;
            let mut one = x[row.clone()].to_vec();
            rms_norm(Path::best(), &mut one, &weight, 1e-5);
            assert_eq!(bits(&one), bits(&all[row]));
        }
    }
}
