//! What is done to keys before a format that rounds them, so that rounding costs less.
//!
//! Keys of a head are far from centred, and their error counts by the size of the queries that meet it. So before they are
//! rotated and rounded, what all keys of the head have in common is taken off (their mean before rope, turned by the rope of
//! the middle of the block, and shortened where rope turns on within a block), and each pair of elements is multiplied by a factor that evens out keys and queries; queries
//! are divided by it. A score is then `q · (key - centre) + q · centre`: attention adds the second term for the whole block, so
//! nothing is lost but what rounding takes. The key of the first token of all is unlike the others and gets a large share of
//! attention whatever the token is (Xiao et al., attention sinks, 2024), so that it has a centre of its own. The best diagonal scaling by Cauchy–Schwarz: the noise of a score goes as
//! `Σ k² f² · Σ q² / f²`, smallest where `f⁴ = q² / k²`. (Means of keys: Hooper et al., KVQuant, 2024; scaling: Xiao et al.,
//! SmoothQuant, 2023.)

use crate::rope::{self, RopeKind};
use crate::{BLOCK_TOKENS, Error, KvLayout, Result, hadamard};

/// Factors stay within this of 1, so that elements nobody looks at do not drown the others.
const MOST: f32 = 16.0;
/// Rows of `head_dim` floats that a key head has in `device_numbers`.
pub(crate) const DEVICE_PARTS: usize = 4;

/// Means and factors of all key heads of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyBalance {
    head_dim: usize,
    /// Key heads of all layers, layer by layer.
    heads: Vec<HeadBalance>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HeadBalance {
    /// Before rope, `[head_dim]`, as long as its average over a block is.
    mean: Vec<f32>,
    /// The key at position 0, `[head_dim]`.
    first: Vec<f32>,
    /// Keys are multiplied by these, `[head_dim]`; both elements of a pair have the same.
    factors: Vec<f32>,
    /// One over each.
    inverse: Vec<f32>,
}

/// Keys and queries of one head as they come, before rope: sums over tokens.
#[derive(Clone, Debug)]
pub(crate) struct HeadSums {
    tokens: usize,
    /// The key at position 0, `[head_dim]`.
    first: Vec<f32>,
    /// `[head_dim]`
    keys: Vec<f64>,
    /// `[head_dim]`
    squared_keys: Vec<f64>,
    /// `[head_dim]`, over all query heads of the key head.
    squared_queries: Vec<f64>,
}

impl HeadSums {
    /// Nothing yet but the key at position 0.
    pub(crate) fn new(first: &[f32]) -> HeadSums {
        let head_dim = first.len();
        HeadSums {
            tokens: 0,
            first: first.to_vec(),
            keys: vec![0.0; head_dim],
            squared_keys: vec![0.0; head_dim],
            squared_queries: vec![0.0; head_dim],
        }
    }

    /// Of the tokens of a sequence from position 0 on: the key of each `[head_dim]`, and the queries that meet it
    /// `[group, head_dim]`. That at position 0 is not summed.
    pub(crate) fn over<'a>(tokens: impl Iterator<Item = (&'a [f32], &'a [f32])>) -> HeadSums {
        let mut tokens = tokens;
        let (first, _) = tokens.next().unwrap_or_default();
        let mut sums = HeadSums::new(first);
        tokens.for_each(|(key, queries)| sums.add(key, queries));
        sums
    }

    /// Adds a token's key `[head_dim]` and the queries that meet it `[group, head_dim]`.
    pub(crate) fn add(&mut self, key: &[f32], queries: &[f32]) {
        self.tokens += 1;
        for (i, &k) in key.iter().enumerate() {
            self.keys[i] += f64::from(k);
            self.squared_keys[i] += f64::from(k) * f64::from(k);
        }
        for query in queries.chunks_exact(key.len()) {
            for (sum, &q) in self.squared_queries.iter_mut().zip(query) {
                *sum += f64::from(q) * f64::from(q);
            }
        }
    }

    /// `shortening` `[head_dim / 2]` is what is left of a pair when its turns over a block are averaged.
    fn balance(&self, kind: RopeKind, shortening: &[f32]) -> HeadBalance {
        let (dim, n) = (self.keys.len(), self.tokens.max(1) as f64);
        let finite = |x: f64| if x.is_finite() { x } else { 0.0 };
        let mut means: Vec<f64> = self.keys.iter().map(|sum| finite(sum / n)).collect();
        let mut factors = vec![1f32; dim];
        for (i, &shortening) in shortening.iter().enumerate() {
            let pair = kind.pair(i, dim);
            for i in pair {
                means[i] *= f64::from(shortening);
            }
            let keys: f64 = pair
                .iter()
                .map(|&i| self.squared_keys[i] / n - means[i] * means[i])
                .sum();
            let queries: f64 = pair.iter().map(|&i| self.squared_queries[i] / n).sum();
            let factor = (queries / keys).powf(0.25);
            // Neither too much nor NaN, which is where nothing was seen.
            if keys > 0.0 && queries > 0.0 && factor.is_finite() {
                for i in pair {
                    factors[i] = factor as f32;
                }
            }
        }
        let logs: f64 = factors.iter().map(|f| f64::from(*f).ln()).sum();
        let middle = (logs / dim as f64).exp() as f32;
        for factor in &mut factors {
            *factor = (*factor / middle).clamp(1.0 / MOST, MOST);
        }
        let first = self
            .first
            .iter()
            .map(|x| if x.is_finite() { *x } else { 0.0 });
        let mean = means.iter().map(|mean| *mean as f32);
        HeadBalance::new(mean.collect(), first.collect(), factors)
    }
}

impl HeadBalance {
    fn new(mean: Vec<f32>, first: Vec<f32>, factors: Vec<f32>) -> HeadBalance {
        let inverse = factors.iter().map(|factor| 1.0 / factor).collect();
        HeadBalance {
            mean,
            first,
            factors,
            inverse,
        }
    }

    /// What keys of a block have in common, `cos` and `sin` `[head_dim / 2]` being the angles of its middle: into `out`
    /// `[head_dim]`, with rope, not multiplied.
    #[inline(always)]
    fn center(&self, (cos, sin): (&[f32], &[f32]), kind: RopeKind, out: &mut Vec<f32>) {
        out.clear();
        out.extend_from_slice(&self.mean);
        rope::rotate(out, cos, sin, kind);
    }

    /// Balances the key at `position` after rope, in place.
    #[inline(always)]
    pub(crate) fn key(
        &self,
        x: &mut [f32],
        position: usize,
        angles: (&[f32], &[f32]),
        kind: RopeKind,
        center: &mut Vec<f32>,
    ) {
        match position {
            0 => center.clone_from(&self.first),
            _ => self.center(angles, kind, center),
        }
        for ((x, center), factor) in x.iter_mut().zip(center).zip(&self.factors) {
            *x = (*x - *center) * factor;
        }
    }

    /// Balances the queries `[group, head_dim]` that meet the key, in place.
    #[inline(always)]
    pub(crate) fn queries(&self, x: &mut [f32]) {
        for x in x.chunks_exact_mut(self.inverse.len()) {
            for (x, inverse) in x.iter_mut().zip(&self.inverse) {
                *x *= inverse;
            }
        }
    }

    /// What was taken off the keys of a block, as balanced and rotated queries meet it: their product with it is what the
    /// block's scores lack.
    #[inline(always)]
    pub(crate) fn rotated_center(
        &self,
        angles: (&[f32], &[f32]),
        kind: RopeKind,
        out: &mut Vec<f32>,
    ) {
        self.center(angles, kind, out);
        self.rotate(out);
    }

    /// As `rotated_center`, for the token at position 0.
    #[inline(always)]
    pub(crate) fn rotated_first(&self, out: &mut Vec<f32>) {
        out.clone_from(&self.first);
        self.rotate(out);
    }

    #[inline(always)]
    fn rotate(&self, x: &mut [f32]) {
        for (x, factor) in x.iter_mut().zip(&self.factors) {
            *x *= factor;
        }
        let dim = x.len();
        hadamard::rotate(x, dim);
    }
}

/// The position whose angles stand for a block: its middle.
pub(crate) fn middle(block: usize) -> usize {
    block * BLOCK_TOKENS + BLOCK_TOKENS / 2
}

/// How much of each pair is left in the direction of the middle of a block when its turns over the block are averaged:
/// nearly all of what turns slowly, nearly nothing of what turns fast. `[half]`
fn shortening(cos: &[f32], sin: &[f32], half: usize) -> Vec<f32> {
    let at = |angles: &[f32], position: usize, i: usize| f64::from(angles[position * half + i]);
    let along = |position: usize, i: usize| {
        at(cos, position, i) * at(cos, middle(0), i) + at(sin, position, i) * at(sin, middle(0), i)
    };
    (0..half)
        .map(|i| {
            let sum: f64 = (0..BLOCK_TOKENS).map(|position| along(position, i)).sum();
            (sum / BLOCK_TOKENS as f64) as f32
        })
        .collect()
}

impl KeyBalance {
    /// From the sums of all key heads, layer by layer, and the angles of the first block.
    pub(crate) fn of(
        sums: &[HeadSums],
        (cos, sin): (&[f32], &[f32]),
        kind: RopeKind,
    ) -> KeyBalance {
        let half = sums.first().map_or(0, |sums| sums.keys.len() / 2);
        let shortening = shortening(cos, sin, half);
        KeyBalance {
            head_dim: sums.first().map_or(0, |sums| sums.keys.len()),
            heads: sums
                .iter()
                .map(|sums| sums.balance(kind, &shortening))
                .collect(),
        }
    }

    /// Of one key head.
    pub(crate) fn head(&self, layer: usize, kv_head: usize, layout: &KvLayout) -> &HeadBalance {
        &self.heads[layer * layout.num_kv_heads + kv_head]
    }

    /// Its numbers: of each key head, layer by layer, `head_dim` means, the first key and `head_dim` factors.
    pub fn numbers(&self) -> Vec<f32> {
        let heads = self.heads.iter();
        heads
            .flat_map(|head| head.mean.iter().chain(&head.first).chain(&head.factors))
            .copied()
            .collect()
    }

    /// What the kernels of a GPU take: of each key head, layer by layer, `head_dim` means, the first key, `head_dim` factors and
    /// one over each of these. `[layers][kv_heads][4][head_dim]`
    pub fn device_numbers(&self) -> Vec<f32> {
        let parts: [fn(&HeadBalance) -> &Vec<f32>; DEVICE_PARTS] = [
            |head| &head.mean,
            |head| &head.first,
            |head| &head.factors,
            |head| &head.inverse,
        ];
        let heads = self.heads.iter();
        heads
            .flat_map(|head| parts.into_iter().flat_map(|part| part(head)))
            .copied()
            .collect()
    }

    /// That of some layers, and of those that follow.
    pub fn joined(mut self, rest: KeyBalance) -> KeyBalance {
        self.heads.extend(rest.heads);
        self
    }

    /// That of the first layers of a model, and of the others.
    pub fn split(mut self, num_layers: usize, num_kv_heads: usize) -> (KeyBalance, KeyBalance) {
        let at = (num_layers * num_kv_heads).min(self.heads.len());
        let rest = KeyBalance {
            head_dim: self.head_dim,
            heads: self.heads.split_off(at),
        };
        (self, rest)
    }

    /// From its numbers.
    ///
    /// # Errors
    /// When there are not as many as `layout` has heads for, or one cannot be.
    pub fn from_numbers(numbers: &[f32], layout: &KvLayout) -> Result<KeyBalance> {
        let dim = layout.head_dim;
        let wrong = |reason: &str| Err(Error::argument("key balance", reason.to_string()));
        if numbers.len() != layout.num_layers * layout.num_kv_heads * 3 * dim {
            return wrong("of another model");
        }
        let mut heads = Vec::new();
        for numbers in numbers.chunks_exact(3 * dim) {
            let (centers, factors) = numbers.split_at(2 * dim);
            let range = 1.0 / MOST..=MOST;
            if !centers.iter().all(|x| x.is_finite()) || !factors.iter().all(|x| range.contains(x))
            {
                return wrong("numbers out of range");
            }
            let (mean, first) = centers.split_at(dim);
            heads.push(HeadBalance::new(
                mean.to_vec(),
                first.to_vec(),
                factors.to_vec(),
            ));
        }
        Ok(KeyBalance {
            head_dim: dim,
            heads,
        })
    }

    pub(crate) fn fits(&self, layout: &KvLayout) -> bool {
        self.head_dim == layout.head_dim
            && self.heads.len() == layout.num_layers * layout.num_kv_heads
    }
}

#[cfg(test)]
mod tests;
