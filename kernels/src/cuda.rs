//! The kernels for NVIDIA GPUs: their PTX and how each is launched. Nothing here needs a driver.
//!
//! The sources stand in `kernels/cuda/*.cu`, compiled to the PTX beside them by `cargo xtask kernels`; the driver compiles that
//! for its device. Activations are f32, blocks have the same bytes as on the CPU, also where keys are balanced before they are
//! rounded: what scores then lack stands in a table, which `Attention::fill_key_offsets` fills. Every kernel computes a token's
//! result from its position and what it sees alone, in a fixed order: tiles and splits stand at absolute positions, there are
//! no atomics, and multiplications join sums only where the source says so. So chunks change no bit, and neither does who
//! restored a block.

mod attention;
mod balance;
mod blocks;
mod device;
mod elementwise;
mod launch;
mod product;
mod ptx;
mod sample;
mod slots;
mod staging;
#[cfg(test)]
mod tests;
mod unavailable;

pub use attention::Attention;
pub use balance::{Balance, KeyOffsets};
pub use blocks::{Kv, Rows, copy_blocks};
pub(crate) use device::Buffer;
pub use device::{Device, DeviceInfo, DeviceMemory, devices};
pub use elementwise::{add_rms_norm, rope, swiglu};
pub use launch::{Argument, Launch};
pub use product::{Input, Output, Quantized, Weights};
pub use ptx::Source;
pub use sample::{Cuts, UNDECIDED, sample_greedy, sample_top_k};
pub(crate) use slots::DeviceSlots;
pub use slots::clear_tokens;
pub use unavailable::Unavailable;
