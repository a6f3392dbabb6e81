//! What balances keys, from the keys and queries of some text.

use super::{Decoder, OP, read, upload};
use crate::cuda::scratch::Part;
use crate::key_balance::{HeadSums, KeyBalance};
use crate::layer::{Phase, Place};
use crate::{BLOCK_TOKENS, Error, Result};

impl Decoder {
    /// Runs the tokens of a whole sequence, and finds from their keys and queries what balances keys; also what the layers
    /// give, `[n, hidden]`.
    ///
    /// # Errors
    /// As `forward`.
    pub fn measure(&self, tokens: &[u32], place: Place) -> Result<(KeyBalance, Vec<f32>)> {
        let block_angles = BLOCK_TOKENS * self.layout.head_dim / 2;
        if place.offset != 0 || place.cos.len().min(place.sin.len()) < block_angles {
            return Err(Error::argument(
                OP,
                "keys are measured over a whole sequence",
            ));
        }
        let mut state = self.state();
        let call = self.call(tokens, &place, Phase::Prefill, true)?;
        place.check_filled(OP, tokens.len())?;
        let pass = self.pass(&mut state, call, &place)?;
        upload(&state.scratch, tokens, &place, 0.0)?;
        self.run(&[pass.embed()?])?;
        let (layout, mut sums) = (&self.layout, Vec::new());
        let dim = layout.head_dim;
        let of_head = self.params.num_heads / layout.num_kv_heads * dim;
        for (index, layer) in self.layers.iter().enumerate() {
            let mut launches = Vec::new();
            pass.project(index, layer, &mut launches)?;
            self.run(&launches)?;
            let keys = read(
                &state.scratch,
                Part::Keys,
                tokens.len() * layout.row_elems(),
            )?;
            let len = tokens.len() * self.params.num_heads * dim;
            let queries = read(&state.scratch, Part::Queries, len)?;
            for head in 0..layout.num_kv_heads {
                let keys = keys.chunks_exact(layout.row_elems());
                let keys = keys.map(|row| &row[head * dim..][..dim]);
                let queries = queries.chunks_exact(of_head * layout.num_kv_heads);
                let queries = queries.map(|row| &row[head * of_head..][..of_head]);
                sums.push(HeadSums::over(keys.zip(queries)));
            }
            launches.clear();
            pass.attend(index, layer, &mut launches)?;
            pass.feed_forward(layer, &mut launches)?;
            self.run(&launches)?;
        }
        let angles = (place.cos, place.sin);
        let balance = KeyBalance::of(&sums, angles, self.params.rope_kind);
        Ok((balance, self.stream(&state, tokens.len())?))
    }
}
