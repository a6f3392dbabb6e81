//! The kernels for NVIDIA GPUs, and a decoder that runs on them through the driver.
//!
//! The sources stand in `kernels/cuda/*.cu`, compiled to the PTX beside them by `cargo xtask kernels`; the driver compiles that
//! for its device. Activations are f32, weights and blocks have the bytes of the CPU, also where keys are balanced before they are
//! rounded: what scores then lack stands in a table, which `Attention::fill_key_offsets` fills. Every kernel computes a token's
//! result from its position and what it sees alone, in a fixed order: tiles and splits stand at absolute positions, there are no
//! atomics, and multiplications join sums only where the source says so. So chunks change no bit, and neither does who restored a
//! block.
//!
//! A launch is plain data ([`Launch`]); a [`Decoder`] makes the launches of a call (`pass`), and a [`Device`] has the driver run
//! them. Where there is no driver, or none that will do, [`Unavailable`] says why; nothing of CUDA is needed to build or to start.

mod attention;
mod balance;
mod bandwidth;
mod blocks;
mod buffer;
mod decoder;
mod device;
mod elementwise;
mod graph;
mod landing;
mod launch;
mod mark;
mod matrix;
mod pass;
mod product;
mod ptx;
mod sample;
mod scratch;
mod self_test;
mod slots;
mod staging;
#[cfg(test)]
mod tests;
mod trial;
mod unavailable;

pub use attention::Attention;
pub use balance::{Balance, KeyOffsets};
pub use bandwidth::copy_bytes_per_s;
pub use blocks::{Kv, Rows};
pub(crate) use buffer::Buffer;
pub use decoder::{Choice, Decoder, Next};
pub use device::{Device, DeviceInfo, DeviceMemory, devices};
pub use elementwise::{add_rms_norm, rope, swiglu};
pub(crate) use landing::Landing;
pub use launch::{Argument, Launch};
pub(crate) use mark::Mark;
pub(crate) use matrix::Matrix;
pub use product::{Input, Output, Quantized, Weights};
pub use ptx::Source;
pub use sample::{Cuts, UNDECIDED, sample_greedy, sample_top_k};
pub use self_test::self_test;
pub(crate) use slots::DeviceSlots;
pub use slots::clear_tokens;
pub use trial::{Formats, Trial};
pub use unavailable::Unavailable;
