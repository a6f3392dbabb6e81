//! Decoder layers over KV blocks and quantized weights.
//!
//! The keys and values of a conversation lie in blocks of 64 tokens. A block of all layers is one slot of a [`KvPool`]; a
//! block table says which slot holds which 64 tokens. [`Layers`] takes tokens through all layers of a decoder: it reads and
//! writes keys and values in place, multiplies by weights as [`QuantizedMatrix`] repacked them from the file, and runs on
//! the threads of a [`Team`]. Every operation is **chunk-blind**: an output element has the same bits whatever chunk,
//! neighbour, thread count or instruction set computed it, since it is accumulated in one fixed order.
//!
//! Operations are written once, over sixteen lanes (`lanes`), and compiled for each instruction set; `cpu` chooses at run
//! time. What the CPU does so, [`cuda`] does on NVIDIA GPUs, over the same packed weights and the same blocks, with kernels and an
//! order of sums of its own. The crate knows no file, token or tokenizer: who holds which slot and where weights come from is
//! the caller's business.

mod arena;
mod attention;
mod cpu;
pub mod cuda;
mod error;
mod exp;
mod hadamard;
mod key_balance;
mod kv_format;
mod kv_write;
mod lanes;
mod large_pages;
mod layer;
mod layout;
mod output;
mod pages;
mod pool;
mod quantized;
#[cfg(test)]
mod random;
mod rms_norm;
mod rope;
mod swiglu;
mod team;

pub use arena::Arena;
pub use attention::AttentionParams;
pub use cpu::{Path, numerics};
pub use error::{Error, Result};
pub use key_balance::KeyBalance;
pub use kv_format::{KvDtype, KvFormat};
pub use layer::{Layer, LayerParams, Layers, Phase, Place, Projection};
pub use layout::{BLOCK_TOKENS, KvLayout, TILE_TOKENS};
pub use pool::{KvPool, Part};
pub use quantized::QuantizedMatrix;
pub use rms_norm::rms_norm;
pub use rope::RopeKind;
pub use team::{Team, physical_cores};
