//! The gated activation of the feed-forward layers.

use candle_core::{CpuStorage, CustomOp2, Layout, Shape, Tensor};
use rayon::prelude::*;

use crate::cpu::widened;
use crate::exp::exp;
use crate::input::{f32_input, f32_slice};
use crate::{Error, Result};

const OP: &str = "swiglu";
/// Elements per task: enough that a task is worth its start.
const TASK: usize = 32_768;

/// `gate * sigmoid(gate) * up`, element by element.
pub fn swiglu(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    let (gate, up) = (f32_input(OP, gate)?, f32_input(OP, up)?);
    if gate.dims() != up.dims() {
        let reason = format!("gate {:?}, up {:?}", gate.dims(), up.dims());
        return Err(Error::argument(OP, reason));
    }
    Ok(gate.apply_op2_no_bwd(&up, &Swiglu)?)
}

struct Swiglu;

impl CustomOp2 for Swiglu {
    fn name(&self) -> &'static str {
        OP
    }

    fn cpu_fwd(
        &self,
        gate: &CpuStorage,
        gate_layout: &Layout,
        up: &CpuStorage,
        up_layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let (gate, up) = (f32_slice(gate, gate_layout)?, f32_slice(up, up_layout)?);
        let mut out = vec![0f32; gate.len()];
        out.par_chunks_mut(TASK)
            .zip(gate.par_chunks(TASK).zip(up.par_chunks(TASK)))
            .for_each(|(out, (gate, up))| activate_wide(gate, up, out));
        Ok((CpuStorage::F32(out), gate_layout.shape().clone()))
    }
}

widened! {
    fn activate_wide(gate: &[f32], up: &[f32], out: &mut [f32]) = activate
}

#[inline(always)]
fn activate(gate: &[f32], up: &[f32], out: &mut [f32]) {
    for ((out, &gate), &up) in out.iter_mut().zip(gate).zip(up) {
        *out = gate / (1.0 + exp(-gate)) * up;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{bits, tensor, values};

    fn reference(gate: f32, up: f32) -> f64 {
        let gate = f64::from(gate);
        gate / (1.0 + (-gate).exp()) * f64::from(up)
    }

    #[test]
    fn equals_the_reference() {
        for dims in [vec![1], vec![3, 5], vec![33, 1536]] {
            let gate = tensor(1, &dims).affine(8.0, 0.0).unwrap();
            let up = tensor(2, &dims);
            let got = values(&swiglu(&gate, &up).unwrap());
            for ((got, gate), up) in got.iter().zip(values(&gate)).zip(values(&up)) {
                let want = reference(gate, up);
                assert!((f64::from(*got) - want).abs() <= 1e-6 * want.abs().max(1.0));
            }
        }
    }

    #[test]
    fn extreme_gates_stay_finite() {
        let gate = Tensor::new(&[-1e30f32, -200.0, 0.0, 200.0], gate_device()).unwrap();
        let up = Tensor::ones(4, candle_core::DType::F32, gate_device()).unwrap();
        let got = values(&swiglu(&gate, &up).unwrap());
        assert!(got.iter().all(|v| v.is_finite()), "{got:?}");
        assert_eq!(&got[2..], &[0.0, 200.0]);
    }

    fn gate_device() -> &'static candle_core::Device {
        &candle_core::Device::Cpu
    }

    #[test]
    fn an_element_has_the_same_bits_wherever_it_stands() {
        let (gate, up) = (tensor(3, &[200, 1536]), tensor(4, &[200, 1536]));
        let all = swiglu(&gate, &up).unwrap();
        let part = |x: &Tensor| x.narrow(0, 63, 3).unwrap();
        let some = swiglu(&part(&gate), &part(&up)).unwrap();
        assert_eq!(bits(&some), bits(&part(&all)));
    }

    #[test]
    fn shapes_that_differ_are_an_error() {
        assert!(swiglu(&tensor(5, &[2, 3]), &tensor(6, &[3, 2])).is_err());
    }
}
