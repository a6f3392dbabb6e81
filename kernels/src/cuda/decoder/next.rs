//! Sampling where the logits are.

use super::{Decoder, read};
use crate::Result;
use crate::cuda::scratch::Part;
use crate::cuda::{Cuts, UNDECIDED, sample_greedy, sample_top_k};
use crate::layer::{Phase, Place};

/// How a token is sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// The most likely one.
    Greedy,
    /// One of those that the cuts leave.
    Random {
        /// What is left, and its temperature.
        cuts: Cuts,
        /// In 0..1.
        random: f64,
    },
}

/// What sampling gave.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// The token.
    Token(u32),
    /// Logits `[vocab]`, for the host to choose.
    Undecided(Vec<f32>),
}

impl Decoder {
    /// Runs `tokens`, which were sampled, and samples the next one on the device, so that nothing but it crosses to the host.
    /// The logits are returned instead where the device ranks too few candidates to choose.
    ///
    /// # Errors
    /// As `forward`; when a cut does not fit the kernel.
    pub fn next(&self, tokens: &[u32], place: Place, choice: Choice) -> Result<Next> {
        let mut state = self.state();
        let call = self.call(tokens, &place, Phase::Decode, true)?;
        let random = match choice {
            Choice::Greedy => 0.0,
            Choice::Random { random, .. } => random,
        };
        // First, so that nothing moves once a step has been recorded.
        let to = state.scratch.at_least(Part::Token, size_of::<u32>())?;
        let logits = self.compute(&mut state, tokens, &place, call, random)?;
        let shape = (1, self.vocab());
        self.device.launch(&match choice {
            Choice::Greedy => sample_greedy(logits.logits, to, shape)?,
            Choice::Random { cuts, .. } => {
                sample_top_k(logits.logits, logits.random, to, shape, cuts)?
            }
        })?;
        let mut id = [0; size_of::<u32>()];
        if let Some(buffer) = state.scratch.part(Part::Token) {
            buffer.read(0, &mut id)?;
        }
        Ok(match u32::from_le_bytes(id) {
            UNDECIDED => Next::Undecided(read(&state.scratch, Part::Logits, self.vocab())?),
            id => Next::Token(id),
        })
    }
}
