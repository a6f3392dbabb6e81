//! A decoder of which the device has the first layers, and the head; the host computes what is between.

use super::{Decoder, OP, State, read, upload};
use crate::Result;
use crate::cuda::scratch::Part;
use crate::layer::{Phase, Place};

impl Decoder {
    /// Runs tokens through the layers that the device has: what the next layer takes `[n, hidden]`.
    ///
    /// # Errors
    /// As `forward`.
    pub fn begin(&self, tokens: &[u32], place: Place, phase: Phase) -> Result<Vec<f32>> {
        let mut state = self.state();
        let call = self.call(tokens, &place, phase, true)?;
        place.check_filled(OP, tokens.len())?;
        let pass = self.pass(&mut state, call, &place)?;
        upload(&state.scratch, tokens, &place, 0.0)?;
        self.run(&pass.layers()?)?;
        self.stream(&state, tokens.len())
    }

    /// The logits `[n, vocab]` of what the last layer gave `[n, hidden]`.
    ///
    /// # Errors
    /// As `forward`.
    pub fn finish(&self, x: &[f32], place: Place, phase: Phase) -> Result<Vec<f32>> {
        let mut state = self.state();
        let rows = x.len() / self.hidden;
        let first = Place { offset: 0, ..place };
        let call = self.call(&vec![0; rows], &first, phase, false)?;
        let pass = self.pass(&mut state, call, &first)?;
        if let Some(buffer) = state.scratch.part(Part::X) {
            buffer.write_floats(x)?;
        }
        let mut launches = Vec::new();
        pass.head(0, &mut launches)?;
        self.run(&launches)?;
        read(&state.scratch, Part::Logits, rows * self.vocab())
    }

    /// What a call's layers gave, `[n, hidden]`.
    pub(super) fn stream(&self, state: &State, tokens: usize) -> Result<Vec<f32>> {
        let len = tokens * self.hidden;
        let mut x = read(&state.scratch, Part::X, len)?;
        let residual = read(&state.scratch, Part::Residual, len)?;
        for (x, residual) in x.iter_mut().zip(residual) {
            *x += residual;
        }
        Ok(x)
    }
}
