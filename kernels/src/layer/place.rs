//! Which call it is, and where its tokens stand.

use crate::{BLOCK_TOKENS, Error, KvPool, Result};

/// What a call is about. On a GPU other kernels prefill than decode, so that a token's last bits depend on it; on the CPU nothing
/// does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A prompt, or a part of it, however long.
    Prefill,
    /// A token that was sampled.
    Decode,
}

/// Where the tokens of a call stand.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Position of the first.
    pub offset: usize,
    /// The keys and values of their sequence.
    pub pool: &'a KvPool,
    /// Its slots.
    pub table: &'a [u32],
    /// Cosines of the rotary angles `[positions, head_dim / 2]`, from position 0 on, to the end of the last token's block.
    pub cos: &'a [f32],
    /// Sines, as `cos`.
    pub sin: &'a [f32],
}

impl Place<'_> {
    /// An error where a slot of these tokens, or of those before them, is being filled: for who does not wait for layers.
    pub(crate) fn check_filled(&self, op: &'static str, tokens: usize) -> Result<()> {
        let num_blocks = (self.offset + tokens).div_ceil(BLOCK_TOKENS);
        let filling = self.pool.filling();
        match filling.is_some_and(|filling| filling.has_any(&self.table[..num_blocks])) {
            true => Err(Error::argument(op, "a slot that is being filled")),
            false => Ok(()),
        }
    }
}
