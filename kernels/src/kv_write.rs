//! Writing the keys and values of new tokens into their blocks.

use half::f16;

use crate::cpu::Path;

const MAX: f32 = 65_504.0;

/// f32 to f16, to nearest. Values beyond the range of f16 become its largest ones, so that what is read back is finite; NaN
/// stays NaN.
pub(crate) fn narrow(path: Path, x: &[f32], out: &mut [f16]) {
    #[cfg(target_arch = "x86_64")]
    if path != Path::Scalar {
        // SAFETY: every other path of this architecture has the features.
        return unsafe { narrow_avx2(x, out) };
    }
    let _ = path;
    narrow_reference(x, out);
}

fn narrow_reference(x: &[f32], out: &mut [f16]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = f16::from_f32(x.clamp(-MAX, MAX));
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn narrow_avx2(x: &[f32], out: &mut [f16]) {
    use std::arch::x86_64::*;
    let ((x8, x_rest), (out8, out_rest)) = (x.as_chunks::<8>(), out.as_chunks_mut::<8>());
    let max = _mm256_set1_ps(MAX);
    let min = _mm256_set1_ps(-MAX);
    for (x, out) in x8.iter().zip(out8) {
        // SAFETY: eight floats are read, eight halves are written.
        unsafe {
            let value = _mm256_loadu_ps(x.as_ptr());
            // The value second: that operand is the result when it is NaN.
            let value = _mm256_max_ps(min, _mm256_min_ps(max, value));
            let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value);
            _mm_storeu_si128(out.as_mut_ptr().cast(), halves);
        }
    }
    narrow_reference(x_rest, out_rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::floats;

    #[test]
    fn narrowing_equals_the_reference_and_saturates_on_every_path() {
        let mut x: Vec<f32> = floats(3, 1000).iter().map(|v| v * 70_000.0).collect();
        x.extend(floats(4, 1000).iter().map(|v| v * 1e-5));
        x.extend([f32::INFINITY, f32::NEG_INFINITY, 65_519.0, 65_520.0, -0.0]);
        let mut want = vec![f16::NAN; x.len()];
        narrow_reference(&x, &mut want);
        for path in Path::available() {
            let mut got = vec![f16::NAN; x.len()];
            narrow(path, &x, &mut got);
            let pairs = || got.iter().zip(&want);
            assert!(pairs().all(|(a, b)| a.to_bits() == b.to_bits()), "{path:?}");
            assert!(got.iter().all(|v| v.is_finite()));
            let mut nan = [f16::ZERO; 8];
            narrow(path, &[f32::NAN; 8], &mut nan);
            assert!(nan.iter().all(|v| v.is_nan()));
        }
    }
}
