//! The kernels for NVIDIA GPUs: their PTX and how each is launched. Nothing here needs a driver.
//!
//! The sources stand in `kernels/cuda/*.cu`, compiled to the PTX beside them by `cargo xtask kernels`; the driver compiles that
//! for its device. Activations are f32, blocks have the same bytes as on the CPU. Every kernel computes a token's result from
//! its position and what it sees alone, in a fixed order: tiles and splits stand at absolute positions, there are no atomics,
//! and multiplications join sums only where the source says so. So chunks change no bit, and neither does who restored a block.

mod attention;
mod blocks;
mod elementwise;
mod launch;
mod product;
mod ptx;
mod sample;
#[cfg(test)]
mod tests;

pub use attention::Attention;
pub use blocks::{Kv, Rows, copy_blocks};
pub use elementwise::{add_rms_norm, rope, swiglu};
pub use launch::{Argument, Launch};
pub use product::{Input, Output, Quantized, Weights};
pub use ptx::Source;
pub use sample::{Cuts, UNDECIDED, sample_greedy, sample_top_k};
