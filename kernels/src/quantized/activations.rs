//! Activations quantized to int8 in groups of 32, with the scale and the sum of each group.

/// Values that share a scale.
pub(super) const GROUP: usize = 32;

/// Quantized rows: value ≈ quant * scale, |quant| ≤ 127.
pub(super) struct Activations {
    /// `[n, cols]`
    pub(super) quants: Vec<i8>,
    /// `[n, groups]`, the groups padded with 0 to a multiple of 8.
    pub(super) scales: Vec<f32>,
    /// Sum of each group's quants times its scale, shaped as `scales`.
    pub(super) sums: Vec<f32>,
    /// Groups of a row, padded.
    pub(super) stride: usize,
}

/// Groups of a row of `cols`, padded to a multiple of 8.
pub(super) fn padded_groups(cols: usize) -> usize {
    (cols / GROUP).next_multiple_of(8)
}

impl Activations {
    /// Quantizes rows of `cols`, a multiple of 32. Each group depends on its own values alone.
    pub(super) fn new(x: &[f32], cols: usize) -> Self {
        let (n, stride) = (x.len() / cols, padded_groups(cols));
        let mut quantized = Self {
            quants: vec![0; x.len()],
            scales: vec![0.0; n * stride],
            sums: vec![0.0; n * stride],
            stride,
        };
        let rows = x
            .chunks_exact(cols)
            .zip(quantized.quants.chunks_exact_mut(cols));
        let scales = quantized.scales.chunks_exact_mut(stride);
        for ((x, quants), (scales, sums)) in
            rows.zip(scales.zip(quantized.sums.chunks_exact_mut(stride)))
        {
            quantize(x, quants, scales, sums);
        }
        quantized
    }
}

fn quantize(x: &[f32], quants: &mut [i8], scales: &mut [f32], sums: &mut [f32]) {
    let groups = x.as_chunks::<GROUP>().0.iter();
    let groups = groups.zip(quants.as_chunks_mut::<GROUP>().0);
    for ((x, quants), (scale, sum)) in groups.zip(scales.iter_mut().zip(sums)) {
        #[cfg(target_arch = "x86_64")]
        if crate::cpu::path() == crate::cpu::Path::Avx2 {
            // SAFETY: the machine has the features.
            (*scale, *sum) = unsafe { super::avx2::quantize(x, quants) };
            continue;
        }
        (*scale, *sum) = quantize_reference(x, quants);
    }
}

/// The scale, and the sum of the quants times the scale.
pub(super) fn quantize_reference(x: &[f32; GROUP], quants: &mut [i8; GROUP]) -> (f32, f32) {
    let max = x.iter().fold(0f32, |max, v| max.max(v.abs()));
    let (scale, inverse) = scale_of(max);
    let mut sum = 0;
    for (quant, x) in quants.iter_mut().zip(x) {
        *quant = (x * inverse).round_ties_even() as i8;
        sum += i32::from(*quant);
    }
    (scale, scale * sum as f32)
}

/// The scale of a group with that largest magnitude, and its inverse. Groups too small to invert are 0.
#[inline]
pub(super) fn scale_of(max: f32) -> (f32, f32) {
    if max < 1e-30 {
        (0.0, 0.0)
    } else {
        (max / 127.0, 127.0 / max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::floats;

    #[test]
    fn quantizing_equals_the_reference_and_is_close() {
        for magnitude in [0.0, 1e-38, 1e-20, 1.0, 1e4, 1e30] {
            let x: Vec<f32> = floats(1, 5 * 96).iter().map(|v| v * magnitude).collect();
            let got = Activations::new(&x, 96);
            for (i, x) in x.as_chunks::<GROUP>().0.iter().enumerate() {
                let mut quants = [0; GROUP];
                let (scale, sum) = quantize_reference(x, &mut quants);
                let at = i / 3 * got.stride + i % 3;
                assert_eq!(got.quants[GROUP * i..GROUP * (i + 1)], quants);
                assert_eq!((got.scales[at], got.sums[at]), (scale, sum));
                for (x, quant) in x.iter().zip(quants) {
                    let error = (x - scale * f32::from(quant)).abs();
                    assert!(error <= 0.5001 * scale + 1e-30);
                }
            }
        }
    }
}
