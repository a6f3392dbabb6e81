//! Random inputs for tests.

use candle_core::{Device, Tensor};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// `n` values in -1..1.
pub(crate) fn floats(seed: u64, n: usize) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..n).map(|_| rng.random_range(-1f32..1.0)).collect()
}

/// A tensor of values in -1..1.
pub(crate) fn tensor(seed: u64, dims: &[usize]) -> Tensor {
    Tensor::from_vec(floats(seed, dims.iter().product()), dims, &Device::Cpu).unwrap()
}

/// The values of a tensor, flat.
pub(crate) fn values(x: &Tensor) -> Vec<f32> {
    x.flatten_all().unwrap().to_vec1().unwrap()
}

/// The bits of a tensor's values, flat: equal only if every value is.
pub(crate) fn bits(x: &Tensor) -> Vec<u32> {
    values(x).into_iter().map(f32::to_bits).collect()
}

/// Runs `f` in pools of 1 to 8 threads.
pub(crate) fn in_pools(f: impl Fn(usize) + Sync) {
    for threads in 1..=8 {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap()
            .install(|| f(threads));
    }
}
