//! Computing on a timeline while blocks of it are read.

use kernels::BLOCK_TOKENS;

use super::{Reused, Session};
use crate::Result;
use crate::cache::Cache;
use crate::restore::Restore;

impl Session {
    /// As `advance`, while the blocks of `restore`, which are the timeline's, are read; they are counted then. `None` when
    /// one of them could not be had: what was computed is thrown away.
    ///
    /// # Errors
    /// As `advance`. The timeline is empty then, as it is with `None`: not all of it is there.
    pub(super) fn advance_beside(
        &mut self,
        cache: &mut Cache,
        tokens: &[u32],
        restore: Restore,
        reused: &mut Reused,
    ) -> Result<Option<Vec<f32>>> {
        let offset = self.tokens.len();
        let ids = restore.ids.clone();
        let advanced = match self.make_room(cache, tokens.len()) {
            Ok(()) => cache.bring_beside(restore, |model, kv| {
                model.forward(tokens, offset, kv, &self.table)
            }),
            Err(error) => {
                cache.leave(restore);
                Err(error)
            }
        };
        let logits = match advanced {
            Ok((true, logits)) => logits.map(Some).map_err(Into::into),
            Ok((false, _)) => Ok(None),
            Err(error) => Err(error),
        };
        if !matches!(logits, Ok(Some(_))) {
            self.clear(cache);
            return logits;
        }
        self.tokens.extend_from_slice(tokens);
        self.register_full(cache);
        let brought = ids.iter().map(|id| (*id, BLOCK_TOKENS));
        let (counted, ms) = self.count(cache, brought);
        reused.prefill.restored += counted.restored;
        reused.restore_ms += ms;
        logits
    }
}
