//! Rotary position embedding.

use candle_core::{CpuStorage, CustomOp3, Layout, Shape, Tensor};
use rayon::prelude::*;

use crate::cpu::widened;
use crate::input::{f32_input, f32_slice};
use crate::{Error, Result};

const OP: &str = "rope";

/// Which two elements of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeKind {
    /// Elements 2i and 2i + 1.
    Interleaved,
    /// Elements i and i + head_dim / 2.
    Halves,
}

/// Rotates the heads of `x` `[n, heads, head_dim]`, whose token i stands at position `offset + i`, by the angles given as
/// `cos` and `sin` `[max_pos, head_dim / 2]`.
pub fn rope(
    x: &Tensor,
    cos: &Tensor,
    sin: &Tensor,
    offset: usize,
    kind: RopeKind,
) -> Result<Tensor> {
    let (x, cos, sin) = (f32_input(OP, x)?, f32_input(OP, cos)?, f32_input(OP, sin)?);
    let (n, _, head_dim) = x.dims3()?;
    let (max_pos, half) = cos.dims2()?;
    let end = offset.checked_add(n).filter(|&end| end <= max_pos);
    if 2 * half != head_dim || cos.dims() != sin.dims() || end.is_none() {
        let reason = format!(
            "input {:?} at {offset}, cos {:?}, sin {:?}",
            x.dims(),
            cos.dims(),
            sin.dims()
        );
        return Err(Error::argument(OP, reason));
    }
    Ok(x.apply_op3_no_bwd(&cos, &sin, &Rope { offset, kind })?)
}

struct Rope {
    offset: usize,
    kind: RopeKind,
}

impl CustomOp3 for Rope {
    fn name(&self) -> &'static str {
        OP
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        cos: &CpuStorage,
        cos_layout: &Layout,
        sin: &CpuStorage,
        sin_layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let (n, heads, head_dim) = x_layout.shape().dims3()?;
        let x = f32_slice(x, x_layout)?;
        let (cos, sin) = (f32_slice(cos, cos_layout)?, f32_slice(sin, sin_layout)?);
        let (row, half) = (heads * head_dim, head_dim / 2);
        let mut out = vec![0f32; x.len()];
        if row == 0 || n == 0 {
            return Ok((CpuStorage::F32(out), x_layout.shape().clone()));
        }
        out.par_chunks_mut(row)
            .zip(x.par_chunks(row))
            .with_min_len((16_384 / row).max(1))
            .enumerate()
            .for_each(|(i, (out, x))| {
                let at = (self.offset + i) * half;
                rotate_wide(x, &cos[at..at + half], &sin[at..at + half], self.kind, out);
            });
        Ok((CpuStorage::F32(out), x_layout.shape().clone()))
    }
}

widened! {
    fn rotate_wide(x: &[f32], cos: &[f32], sin: &[f32], kind: RopeKind, out: &mut [f32]) = rotate
}

/// All heads of one token.
#[inline(always)]
fn rotate(x: &[f32], cos: &[f32], sin: &[f32], kind: RopeKind, out: &mut [f32]) {
    let half = cos.len();
    for (out, x) in out.chunks_exact_mut(2 * half).zip(x.chunks_exact(2 * half)) {
        match kind {
            RopeKind::Interleaved => {
                let pairs = x.as_chunks::<2>().0.iter().zip(out.as_chunks_mut::<2>().0);
                for ((x, out), (cos, sin)) in pairs.zip(cos.iter().zip(sin)) {
                    *out = [x[0] * cos - x[1] * sin, x[0] * sin + x[1] * cos];
                }
            }
            RopeKind::Halves => {
                let (x0, x1) = x.split_at(half);
                let (out0, out1) = out.split_at_mut(half);
                for i in 0..half {
                    out0[i] = x0[i] * cos[i] - x1[i] * sin[i];
                    out1[i] = x0[i] * sin[i] + x1[i] * cos[i];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{bits, tensor, values};

    fn reference(
        x: &Tensor,
        cos: &Tensor,
        sin: &Tensor,
        offset: usize,
        kind: RopeKind,
    ) -> Vec<f32> {
        let (_, heads, head_dim) = x.dims3().unwrap();
        let (x, cos, sin) = (values(x), values(cos), values(sin));
        let half = head_dim / 2;
        let mut out = x.clone();
        for (row, head) in out.chunks_mut(head_dim).enumerate() {
            let x = &x[row * head_dim..][..head_dim];
            for i in 0..half {
                let angle = (offset + row / heads) * half + i;
                let (a, b) = match kind {
                    RopeKind::Interleaved => (2 * i, 2 * i + 1),
                    RopeKind::Halves => (i, i + half),
                };
                head[a] = x[a] * cos[angle] - x[b] * sin[angle];
                head[b] = x[a] * sin[angle] + x[b] * cos[angle];
            }
        }
        out
    }

    #[test]
    fn equals_the_reference_in_both_kinds_at_any_offset() {
        for kind in [RopeKind::Interleaved, RopeKind::Halves] {
            for (n, heads, head_dim, offset) in [(1, 1, 2, 0), (3, 9, 64, 0), (65, 3, 80, 61)] {
                let x = tensor(1, &[n, heads, head_dim]);
                let cos = tensor(2, &[130, head_dim / 2]);
                let sin = tensor(3, &[130, head_dim / 2]);
                let got = rope(&x, &cos, &sin, offset, kind).unwrap();
                assert_eq!(got.dims(), x.dims());
                assert_eq!(values(&got), reference(&x, &cos, &sin, offset, kind));
            }
        }
    }

    #[test]
    fn a_token_has_the_same_bits_in_any_chunk() {
        let x = tensor(4, &[200, 9, 64]);
        let (cos, sin) = (tensor(5, &[256, 32]), tensor(6, &[256, 32]));
        let all = rope(&x, &cos, &sin, 10, RopeKind::Halves).unwrap();
        let part = x.narrow(0, 63, 3).unwrap();
        let some = rope(&part, &cos, &sin, 73, RopeKind::Halves).unwrap();
        assert_eq!(bits(&some), bits(&all.narrow(0, 63, 3).unwrap()));
    }

    #[test]
    fn a_position_beyond_the_table_is_an_error() {
        let x = tensor(7, &[2, 1, 4]);
        let (cos, sin) = (tensor(8, &[8, 2]), tensor(9, &[8, 2]));
        assert!(rope(&x, &cos, &sin, 6, RopeKind::Halves).is_ok());
        assert!(rope(&x, &cos, &sin, 7, RopeKind::Halves).is_err());
        assert!(rope(&x, &cos, &sin, usize::MAX, RopeKind::Halves).is_err());
    }
}
