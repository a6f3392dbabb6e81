//! Activations quantized to int8 in groups of 32, and how tokens are cut into tiles.
//!
//! Tokens of a tile lie interleaved, group by group, so that a product walks one stretch of memory.

use super::format::Format;
use crate::cpu::{self, Kernel, Path};
use crate::lanes::{GROUP, Lanes};

/// The scale of a group with that largest magnitude, and its inverse. Groups too small to invert are 0.
#[inline(always)]
pub(crate) fn scale_of(max: f32) -> (f32, f32) {
    if max < 1e-30 {
        (0.0, 0.0)
    } else {
        (max / 127.0, 127.0 / max)
    }
}

/// Which tokens are rounded twice: products add what the first rounding took off, which makes 15 bits of 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// None.
    Once,
    /// The first one. The token at position 0 of a sequence needs that: its values are many times larger than those of all
    /// others (Sun et al., Massive Activations in Large Language Models, 2024), every later token attends to it, and rounding
    /// it alone is most of what int8 activations cost in perplexity.
    FirstTwice,
    /// All.
    Twice,
}

/// Some tokens that a product multiplies together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    pub(super) first: usize,
    /// A power of two.
    pub(super) tokens: usize,
}

/// Cuts `n` tokens into tiles of at most `widest`, a power of two.
pub(super) fn tiles(n: usize, widest: usize) -> impl Iterator<Item = Tile> {
    let mut first = 0;
    let mut tokens = widest;
    std::iter::from_fn(move || {
        while tokens > n - first {
            tokens /= 2;
        }
        (tokens > 0).then(|| {
            let tile = Tile { first, tokens };
            first += tokens;
            tile
        })
    })
}

/// Quantized tokens: value ≈ quant * scale, |quant| ≤ 127. Memory for reuse.
///
/// In each array a tile with `first` starts at `first` times the length of a token, and holds for each group its tokens:
/// `[tile][group][token]`.
#[derive(Default)]
pub(crate) struct Activations {
    n: usize,
    cols: usize,
    /// `[..][32]`
    pub(super) quants: Vec<i8>,
    pub(super) scales: Vec<f32>,
    /// Sums of the first and the last 16 quants.
    sums: Vec<[i32; 2]>,
    tiles: Vec<Tile>,
    /// What a format needs of the sums; see `prepare`.
    pub(super) starts: Vec<i32>,
    pub(super) terms: Vec<f32>,
    /// What rounding took off the first tokens, or all, quantized in its turn, where it is asked for.
    pub(super) rest: Option<Box<Activations>>,
}

impl Activations {
    /// Takes in `x` `[n, cols]`, `cols` a multiple of 32. A group depends on its own values alone.
    pub(crate) fn quantize(&mut self, path: Path, x: &[f32], cols: usize, rounding: Rounding) {
        assert!(cols.is_multiple_of(GROUP) && x.len().is_multiple_of(cols));
        (self.n, self.cols) = (x.len() / cols, cols);
        self.quants.resize(x.len(), 0);
        self.scales.resize(x.len() / GROUP, 0.0);
        self.sums.resize(x.len() / GROUP, [0; 2]);
        cpu::run(path, Quantize { x, out: self });
        let twice = match rounding {
            Rounding::Once => 0,
            Rounding::FirstTwice => self.n.min(1),
            Rounding::Twice => self.n,
        };
        if twice == 0 {
            self.rest = None;
            return;
        }
        let mut rest = self.rest.take().unwrap_or_default();
        let left = self.rest_of(&x[..twice * cols]);
        rest.quantize(path, &left, cols, Rounding::Once);
        self.rest = Some(rest);
    }

    /// What rounding took off the first tokens, whose values are `x`.
    fn rest_of(&self, x: &[f32]) -> Vec<f32> {
        let groups = self.groups();
        let mut rest = Vec::with_capacity(x.len());
        for (token, x) in x.chunks_exact(self.cols).enumerate() {
            let of_token = |tile: &&Tile| (tile.first..tile.first + tile.tokens).contains(&token);
            let Tile { first, tokens } = self.tiles.iter().find(of_token).expect("a tile");
            for (g, x) in x.as_chunks::<GROUP>().0.iter().enumerate() {
                let at = first * groups + g * tokens + token - first;
                let (scale, quants) = (self.scales[at], &self.quants[at * GROUP..][..GROUP]);
                let parts = x.iter().zip(quants);
                rest.extend(parts.map(|(x, quant)| x - scale * f32::from(*quant)));
            }
        }
        rest
    }

    pub(super) fn groups(&self) -> usize {
        self.cols / GROUP
    }

    pub(super) fn tiles(&self) -> &[Tile] {
        &self.tiles
    }

    /// Fills in what a format multiplies besides quants and scales: `starts` `[..][half]`, the sums of the quants times
    /// minus the offset, and `terms` `[..][half]`, the sums of the values, which meet the minima.
    pub(super) fn prepare<F: Format>(&mut self) {
        if F::OFFSET == 0 {
            self.starts.clear();
            self.starts.resize(self.sums.len() * F::HALVES, 0);
        } else if F::HALVES == 1 {
            let starts = self.sums.iter().map(|[a, b]| -F::OFFSET * (a + b));
            self.starts.clear();
            self.starts.extend(starts);
        } else {
            let starts = self.sums.as_flattened().iter();
            self.starts.clear();
            self.starts.extend(starts.map(|sum| -F::OFFSET * sum));
        }
        self.terms.clear();
        if F::HAS_MINIMA {
            let groups = self.sums.iter().zip(&self.scales);
            if F::HALVES == 1 {
                let terms = groups.map(|([a, b], scale)| scale * (a + b) as f32);
                self.terms.extend(terms);
            } else {
                let terms = groups.flat_map(|(sums, scale)| sums.map(|sum| scale * sum as f32));
                self.terms.extend(terms);
            }
        }
    }
}

struct Quantize<'a> {
    x: &'a [f32],
    out: &'a mut Activations,
}

impl Kernel for Quantize<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let Self { x, out } = self;
        let (cols, groups) = (out.cols, out.cols / GROUP);
        out.tiles.clear();
        out.tiles.extend(tiles(out.n, L::TILE_TOKENS));
        for &Tile { first, tokens } in &out.tiles {
            for token in 0..tokens {
                let x = &x[(first + token) * cols..][..cols];
                for (g, x) in x.as_chunks::<GROUP>().0.iter().enumerate() {
                    let at = first * groups + g * tokens + token;
                    let quants = &mut out.quants[at * GROUP..][..GROUP];
                    // SAFETY: the machine has the instructions, by the caller's promise; 32 floats and quants are there.
                    (out.scales[at], out.sums[at]) =
                        unsafe { L::quantize(x.as_ptr(), quants.as_mut_ptr()) };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::floats;

    #[test]
    fn quantizing_is_close_and_has_the_same_bits_on_every_path() {
        for magnitude in [0.0, 1e-38, 1e-20, 1.0, 1e4, 1e30] {
            for n in [1, 3, 16, 21] {
                let x: Vec<f32> = floats(1, n * 96).iter().map(|v| v * magnitude).collect();
                for path in Path::available() {
                    let mut got = Activations::default();
                    got.quantize(path, &x, 96, Rounding::Once);
                    for tile in got.tiles() {
                        for (token, g) in (0..tile.tokens).flat_map(|t| (0..3).map(move |g| (t, g)))
                        {
                            let x = &x[(tile.first + token) * 96 + g * 32..][..32];
                            let mut quants = [0; 32];
                            // SAFETY: baseline instructions; the lengths are right.
                            let (scale, sums) = unsafe {
                                crate::lanes::Scalar::quantize(x.as_ptr(), quants.as_mut_ptr())
                            };
                            let at = tile.first * 3 + g * tile.tokens + token;
                            assert_eq!(got.quants[at * 32..][..32], quants, "{path:?}");
                            assert_eq!((got.scales[at], got.sums[at]), (scale, sums));
                            for (x, quant) in x.iter().zip(quants) {
                                let error = (x - scale * f32::from(quant)).abs();
                                assert!(error <= 0.5001 * scale + 1e-30);
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn rounding_twice_leaves_fifteen_bits_of_as_many_tokens_as_asked_for() {
        let x = floats(4, 21 * 64);
        for (rounding, twice) in [(Rounding::FirstTwice, 1), (Rounding::Twice, 21)] {
            let mut got = Activations::default();
            got.quantize(Path::best(), &x, 64, rounding);
            let rest = got.rest.as_ref().unwrap();
            assert_eq!(rest.n, twice);
            let value = |of: &Activations, token: usize, i: usize| {
                let in_tile = |tile: &&Tile| tile.first <= token;
                let tile = of.tiles.iter().rfind(in_tile).unwrap();
                let at = tile.first * 2 + i / 32 * tile.tokens + token - tile.first;
                of.scales[at] * f32::from(of.quants[at * 32 + i % 32])
            };
            for (token, i) in (0..twice).flat_map(|token| (0..64).map(move |i| (token, i))) {
                let twice = value(&got, token, i) + value(rest, token, i);
                assert!((twice - x[token * 64 + i]).abs() < 1.0 / 127.0 / 127.0);
            }
        }
    }

    #[test]
    fn a_group_with_a_nan_has_a_nan_scale_on_every_path() {
        for at in 0..32 {
            let mut x = floats(2, 96);
            x[32 + at] = f32::NAN;
            for path in Path::available() {
                let mut got = Activations::default();
                got.quantize(path, &x, 96, Rounding::Once);
                assert!(got.scales[1].is_nan(), "{path:?} {at}");
                assert!(!got.scales[0].is_nan() && !got.scales[2].is_nan());
            }
        }
    }

    #[test]
    fn tiles_cover_every_token_once() {
        for widest in [1, 4, 64] {
            for n in 0..70 {
                let mut next = 0;
                for tile in tiles(n, widest) {
                    assert_eq!(tile.first, next);
                    assert!(tile.tokens.is_power_of_two() && tile.tokens <= widest);
                    next += tile.tokens;
                }
                assert_eq!(next, n);
            }
        }
    }
}
