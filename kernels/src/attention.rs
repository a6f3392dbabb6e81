//! Attention over KV blocks, read where they lie.
use candle_core::Tensor;
use crate::{KvPool, Result};
/// What attention depends on besides its inputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionParams {
    /// Factor of the scores, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// A query sees the last `window` keys, itself included.
    pub window: Option<usize>,
    /// Scores become `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
}
/// Causal attention.
pub fn paged_attention(
    q: &Tensor,
    pool: &KvPool,
    layer: usize,
    table: &[u32],
    offset: usize,
    p: &AttentionParams,
) -> Result<Tensor> {
    let _ = (q, pool, layer, table, offset, p);
    todo!()
}
