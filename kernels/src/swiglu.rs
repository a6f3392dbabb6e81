//! The gated activation of the feed-forward layers (Shazeer, 2020).

use crate::cpu::widened;
use crate::exp::exp;

widened! {
    /// `gate * sigmoid(gate) * up`, element by element, into `gate`.
    pub(crate) fn swiglu(gate: &mut [f32], up: &[f32]) = activate
}

#[inline(always)]
fn activate(gate: &mut [f32], up: &[f32]) {
    for (gate, &up) in gate.iter_mut().zip(up) {
        *gate = *gate / (1.0 + exp(-*gate)) * up;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Path;
    use crate::random::{bits, floats};

    fn reference(gate: f32, up: f32) -> f64 {
        let gate = f64::from(gate);
        gate / (1.0 + (-gate).exp()) * f64::from(up)
    }

    #[test]
    fn equals_the_reference_with_the_same_bits_on_every_path() {
        for len in [1, 15, 1000] {
            let gate: Vec<f32> = floats(1, len).iter().map(|v| 8.0 * v).collect();
            let up = floats(2, len);
            let mut scalar = gate.clone();
            swiglu(Path::Scalar, &mut scalar, &up);
            for path in Path::available() {
                let mut got = gate.clone();
                swiglu(path, &mut got, &up);
                assert_eq!(bits(&got), bits(&scalar), "{path:?}");
            }
            for ((got, gate), up) in scalar.iter().zip(gate).zip(up) {
                let want = reference(gate, up);
                assert!((f64::from(*got) - want).abs() <= 1e-6 * want.abs().max(1.0));
            }
        }
    }

    #[test]
    fn extreme_gates_stay_finite() {
        for path in Path::available() {
            let mut gate = [-1e30f32, -200.0, 0.0, 200.0];
            swiglu(path, &mut gate, &[1.0; 4]);
            assert!(gate.iter().all(|v| v.is_finite()), "{gate:?}");
            assert_eq!(&gate[2..], &[0.0, 200.0]);
        }
    }
}
