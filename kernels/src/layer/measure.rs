//! What balances keys, from the keys and queries of some text.

use super::{Layers, OP, Place};
use crate::key_balance::{HeadSums, KeyBalance};
use crate::output::Shared;
use crate::team::Team;
use crate::{BLOCK_TOKENS, Error, Result};

impl Layers {
    /// Runs the tokens of a whole sequence as `forward` does, and finds from their keys and queries what balances keys.
    pub fn measure(&self, team: &Team, x: &mut [f32], place: Place) -> Result<KeyBalance> {
        let (n, dim) = (x.len() / self.hidden, self.layout.head_dim);
        let half = dim / 2;
        if place.offset != 0 || n == 0 || place.cos.len().min(place.sin.len()) < BLOCK_TOKENS * half
        {
            return Err(Error::argument(
                OP,
                "keys are measured over a whole sequence",
            ));
        }
        let (layers, kv_heads) = (self.layers.len(), self.layout.num_kv_heads);
        let of_token = (1 + self.params.num_heads / kv_heads) * dim;
        let mut samples = vec![0f32; layers * kv_heads * n * of_token];
        self.walk(team, x, place, false, Some(Shared::new(&mut samples)))?;
        let heads = samples.chunks_exact(n * of_token).map(|head| {
            let tokens = head
                .chunks_exact(of_token)
                .map(|sample| sample.split_at(dim));
            HeadSums::over(tokens)
        });
        let sums: Vec<HeadSums> = heads.collect();
        let angles = (place.cos, place.sin);
        Ok(KeyBalance::of(&sums, angles, self.params.rope_kind))
    }
}
