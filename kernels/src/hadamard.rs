//! The rotation before rounding.

use crate::cpu::widened;

widened! {
    /// Rotates each row of `dim` elements, a multiple of 32, by a Hadamard transform normalised to length 1, over as many
    /// elements at a time as the largest power of two in `dim`. It is its own inverse. Fast Walsh–Hadamard transform (Fino and
    /// Algazi, 1976).
    pub(crate) fn hadamard(x: &mut [f32], dim: usize) = rotate
}

/// As `hadamard`, in a caller that was compiled for the path.
#[inline(always)]
pub(crate) fn rotate(x: &mut [f32], dim: usize) {
    let size = 1 << dim.trailing_zeros();
    let scale = 1.0 / (size as f32).sqrt();
    for x in x.chunks_exact_mut(size) {
        let mut half = 1;
        while half < size {
            for pair in x.chunks_exact_mut(2 * half) {
                let (low, high) = pair.split_at_mut(half);
                for (low, high) in low.iter_mut().zip(high) {
                    (*low, *high) = (*low + *high, *low - *high);
                }
            }
            half *= 2;
        }
        for x in x {
            *x *= scale;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Path;
    use crate::random::{bits, floats};

    #[test]
    fn it_keeps_dot_products_undoes_itself_and_has_the_same_bits_on_every_path() {
        for dim in [32, 64, 96, 128, 160, 256] {
            let (a, b) = (floats(1, dim), floats(2, dim));
            let dot = |a: &[f32], b: &[f32]| -> f32 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
            let (mut ra, mut rb) = (a.clone(), b.clone());
            hadamard(Path::Scalar, &mut ra, dim);
            hadamard(Path::Scalar, &mut rb, dim);
            assert!((dot(&a, &b) - dot(&ra, &rb)).abs() < 1e-4, "{dim}");
            for path in Path::available() {
                let mut other = a.clone();
                hadamard(path, &mut other, dim);
                assert_eq!(bits(&other), bits(&ra), "{path:?} {dim}");
            }
            hadamard(Path::Scalar, &mut ra, dim);
            assert!(a.iter().zip(&ra).all(|(a, b)| (a - b).abs() < 1e-5));
        }
    }

    #[test]
    fn one_large_element_is_spread_over_all() {
        let mut x = vec![0.0; 64];
        x[17] = 8.0;
        hadamard(Path::best(), &mut x, 64);
        assert!(x.iter().all(|x| x.abs() == 1.0));
    }
}
