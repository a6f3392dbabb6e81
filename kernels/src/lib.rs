//! Tensor operations over KV blocks and quantized weights.
//!
//! The keys and values of a conversation lie in blocks of 64 tokens. A block of all layers is one slot of a [`KvPool`]; a
//! block table says which slot holds which 64 tokens. [`kv_write`] puts new rows there, [`paged_attention`] reads them in
//! place, [`rope`], [`rms_norm`] and [`swiglu`] do the rest of a layer, [`QuantizedMatrix`] multiplies by weights as they
//! come from the file. Every operation is **chunk-blind**: an output element has the same bits whatever chunk, neighbour
//! or thread count computed it, since it is accumulated in one fixed order. Each stands beside a plain scalar reference.
//!
//! The crate knows no model, no file and no token: who holds which slot, what a layer is made of and where weights come
//! from is the caller's business. It does not compute on devices other than the CPU.

mod attention;
mod cpu;
mod error;
mod exp;
mod input;
mod kv_write;
mod layout;
mod pool;
mod quantized;
#[cfg(test)]
mod random;
mod rms_norm;
mod rope;
mod swiglu;

pub use attention::{AttentionParams, paged_attention};
pub use cpu::numerics;
pub use error::{Error, Result};
pub use kv_write::kv_write;
pub use layout::{BLOCK_TOKENS, KvLayout};
pub use pool::KvPool;
pub use quantized::QuantizedMatrix;
pub use rms_norm::rms_norm;
pub use rope::{RopeKind, rope};
pub use swiglu::swiglu;
