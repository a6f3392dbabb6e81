//! Rotary position embedding (Su et al., 2021).

use crate::cpu::widened;

/// Which two elements of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeKind {
    /// Elements 2i and 2i + 1.
    Interleaved,
    /// Elements i and i + head_dim / 2.
    Halves,
}

widened! {
    /// Rotates the heads of one token `[heads, head_dim]`, in place, by its position's angles, given as `cos` and `sin`
    /// `[head_dim / 2]`.
    pub(crate) fn rope(x: &mut [f32], cos: &[f32], sin: &[f32], kind: RopeKind) = rotate
}

impl RopeKind {
    /// The elements of a head that are rotated together by angle `i`.
    pub(crate) fn pair(self, i: usize, head_dim: usize) -> [usize; 2] {
        match self {
            RopeKind::Interleaved => [2 * i, 2 * i + 1],
            RopeKind::Halves => [i, i + head_dim / 2],
        }
    }
}

/// As `rope`, in a caller that was compiled for the path.
#[inline(always)]
pub(crate) fn rotate(x: &mut [f32], cos: &[f32], sin: &[f32], kind: RopeKind) {
    let half = cos.len();
    for x in x.chunks_exact_mut(2 * half) {
        match kind {
            RopeKind::Interleaved => {
                let pairs = x.as_chunks_mut::<2>().0;
                for (x, (cos, sin)) in pairs.iter_mut().zip(cos.iter().zip(sin)) {
                    *x = [x[0] * cos - x[1] * sin, x[0] * sin + x[1] * cos];
                }
            }
            RopeKind::Halves => {
                let (a, b) = x.split_at_mut(half);
                for ((a, b), (cos, sin)) in a.iter_mut().zip(b).zip(cos.iter().zip(sin)) {
                    (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Path;
    use crate::random::{bits, floats};

    fn reference(x: &[f32], cos: &[f32], sin: &[f32], kind: RopeKind) -> Vec<f32> {
        let half = cos.len();
        let mut out = x.to_vec();
        for (head, x) in out.chunks_mut(2 * half).zip(x.chunks(2 * half)) {
            for i in 0..half {
                let (a, b) = match kind {
                    RopeKind::Interleaved => (2 * i, 2 * i + 1),
                    RopeKind::Halves => (i, i + half),
                };
                head[a] = x[a] * cos[i] - x[b] * sin[i];
                head[b] = x[a] * sin[i] + x[b] * cos[i];
            }
        }
        out
    }

    #[test]
    fn has_the_bits_of_the_reference_in_both_kinds_on_every_path() {
        for kind in [RopeKind::Interleaved, RopeKind::Halves] {
            for (heads, head_dim) in [(1, 2), (9, 64), (3, 80), (2, 20)] {
                let x = floats(1, heads * head_dim);
                let (cos, sin) = (floats(2, head_dim / 2), floats(3, head_dim / 2));
                let want = reference(&x, &cos, &sin, kind);
                for path in Path::available() {
                    let mut got = x.clone();
                    rope(path, &mut got, &cos, &sin, kind);
                    assert_eq!(bits(&got), bits(&want), "{path:?}");
                }
            }
        }
    }
}
