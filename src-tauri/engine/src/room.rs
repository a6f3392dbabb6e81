//! What the engine thread does about a context that is full: a shorter branch, or a larger pool.

use std::sync::Arc;

use store::WhenFull;

use crate::cache::Cache;
use crate::desk::Accepted;
use crate::machine::Machine;
use crate::plan::{Circumstances, KvSize, MemoryPlan, Verdict};
use crate::turn::{ContextChoice, Shorten, TurnEvent};
use crate::worker::Worker;
use crate::{Error, Result, prompt, shorten};

impl Worker {
    /// Does what the conversation does by itself when a turn does not fit; `full` where that is nothing.
    pub(crate) fn make_room(&mut self, turn: &Accepted, full: Error) -> Result<TurnEvent> {
        match shorten::by_itself(&self.conversation(&turn.conversation)?) {
            // A branch of one turn cannot be made shorter: it is as full as it was.
            Some(how) => match self.shorten(turn, how) {
                Err(Error::NothingToShorten) => Err(full),
                outcome => outcome,
            },
            None => Err(full),
        }
    }

    /// Makes a shorter branch, then goes on in it where something waits for the model.
    pub(crate) fn shorten(&mut self, turn: &Accepted, how: Shorten) -> Result<TurnEvent> {
        let conversation = self.load_for_turn(turn)?;
        let cache = self.cache.as_mut().ok_or(Error::Stopped)?;
        let leaf = shorten::shorten(&mut self.desk, cache, &conversation, turn, how)?;
        if !turn.extend && !shorten::wants_more(&leaf) {
            return Ok(TurnEvent::stored(leaf));
        }
        self.reply(&Accepted {
            conversation: turn.conversation.clone(),
            extend: leaf.role == store::Role::Assistant,
            leaf: leaf.id,
            shorten: None,
            options: turn.options.clone(),
            events: turn.events.clone(),
        })
    }

    /// What is offered where the turn did not fit.
    pub(crate) fn choices(&self, turn: &Accepted) -> Result<Vec<ContextChoice>> {
        let stops = self.conversation(&turn.conversation)?.when_full == WhenFull::Stop;
        match &self.cache {
            Some(cache) if !stops => {
                let parts = prompt::branch(&self.desk.history(), Some(&turn.leaf))?;
                Ok(shorten::choices(&parts, cache))
            }
            _ => Ok(Vec::new()),
        }
    }

    /// The same model over a larger pool; the blocks come back from disk as they are wanted.
    pub(crate) fn raise_context(&mut self) -> Result<()> {
        let Some(cache) = self.cache.as_ref().filter(|cache| cache.could_hold_more()) else {
            return Err(Error::InvalidArgument(
                "the model that is loaded can hold no more; choose one with a larger context"
                    .into(),
            ));
        };
        let pool_bytes = cache.pool_bytes_for_context();
        cache.larger_context(cache.machine())?;
        self.limits.pool_bytes = Some(pool_bytes);
        let model = Arc::clone(cache.model());
        self.unload();
        self.open_cache(model, pool_bytes)
    }
}

impl Cache {
    /// Whether the whole plan of the model allows its own context: weights, scratch, and the pool for it.
    ///
    /// # Errors
    /// [`Error::MemoryFull`] with what it takes altogether, and what this process may have of `machine`.
    pub fn larger_context(&self, machine: Option<Machine>) -> Result<()> {
        let (model, info) = (self.model(), self.model().info());
        let kv = KvSize {
            format: info.kv_format.clone(),
            bytes_per_token: info.kv_bytes_per_token,
        };
        let around = Circumstances {
            machine,
            is_on_device: model.device().is_some(),
            threads: model.num_threads() as u64,
            pool_bytes: Some(self.pool_bytes_for_context()),
            ..Circumstances::default()
        };
        let plan = MemoryPlan::new(info, model.footprint(), None, &[kv], &around);
        match (plan.verdict, machine) {
            (Verdict::Needs { needed_bytes }, Some(machine)) => Err(Error::MemoryFull {
                needed_bytes,
                free_bytes: machine.room_bytes(),
            }),
            _ => Ok(()),
        }
    }
}
