//! A device's memory for one call at a time: activations and what stands between kernels.

use std::sync::Arc;

use super::{Buffer, Device};
use crate::Result;

/// What there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Where the tokens stand, which they are, and where their blocks are.
    Inputs,
    /// `[n, hidden]`
    X,
    /// `[n, hidden]`, to be added to it.
    Residual,
    /// `[n, hidden]`
    Normed,
    /// Quants of activations.
    Quants,
    /// Scales and sums of activations.
    QuantParts,
    /// `[n, heads * head_dim]`
    Queries,
    /// `[n, kv_heads * head_dim]`
    Keys,
    /// `[n, kv_heads * head_dim]`
    Values,
    /// `[n, heads * head_dim]`
    Attended,
    /// What the splits of attention leave.
    Splits,
    /// What scores over balanced keys lack.
    KeyOffsets,
    /// `[n, inner]`
    Gate,
    /// `[n, inner]`
    Up,
    /// Cosines of the rotary angles `[positions, head_dim / 2]`.
    Cos,
    /// Sines, as those.
    Sin,
    /// The token that was sampled.
    Token,
    /// `[rows, vocab]`
    Logits,
}

const PARTS: usize = Part::Logits as usize + 1;

/// Buffers that grow as they are needed and stay.
#[derive(Debug)]
pub(super) struct Scratch {
    device: Arc<Device>,
    parts: [Option<Buffer>; PARTS],
    /// How often one of them has moved.
    moves: u64,
}

impl Scratch {
    pub(super) fn new(device: Arc<Device>) -> Self {
        Self {
            device,
            parts: [const { None }; PARTS],
            moves: 0,
        }
    }

    /// The address of a part, at least so many bytes long.
    pub(super) fn at_least(&mut self, part: Part, bytes: usize) -> Result<u64> {
        let held = &mut self.parts[part as usize];
        match held {
            Some(buffer) if buffer.len() >= bytes => Ok(buffer.address()),
            _ => {
                // The old one goes first: both may not fit.
                *held = None;
                self.moves += 1;
                let buffer = Buffer::new(&self.device, bytes)?;
                let address = buffer.address();
                *held = Some(buffer);
                Ok(address)
            }
        }
    }

    /// The buffer of a part that was asked for.
    pub(super) fn part(&self, part: Part) -> Option<&Buffer> {
        self.parts[part as usize].as_ref()
    }

    /// Changes whenever an address has changed.
    pub(super) fn moves(&self) -> u64 {
        self.moves
    }

    pub(super) fn num_bytes(&self) -> usize {
        self.parts.iter().flatten().map(Buffer::len).sum()
    }
}
