//! Random inputs for tests.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// `n` values in -1..1.
pub(crate) fn floats(seed: u64, n: usize) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..n).map(|_| rng.random_range(-1f32..1.0)).collect()
}

/// The bits of values: equal only if every value is.
pub(crate) fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|value| value.to_bits()).collect()
}
