//! What the engine thread does about a context that is full: a shorter branch, or a larger pool.

use std::sync::Arc;

use store::WhenFull;

use crate::cache::Cache;
use crate::intake::Accepted;
use crate::machine::Machine;
use crate::plan::{Circumstances, KvSize, MemoryPlan, Verdict};
use crate::turn::{ContextChoice, Shorten, TooLong, TurnEvent};
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

    /// The last event of a turn that does not fit: the reason and the offered choices.
    pub(crate) fn context_full(
        &self,
        turn: &Accepted,
        needed: usize,
        at_least: bool,
        limit: usize,
    ) -> TurnEvent {
        // If the choices cannot be determined, none are offered.
        let (too_long, choices) = self.choices(turn, needed).unwrap_or_default();
        TurnEvent::ContextFull {
            message: Some(turn.leaf.clone()),
            needed_tokens: needed as u32,
            at_least,
            too_long,
            limit_tokens: limit as u32,
            choices,
        }
    }

    fn choices(
        &self,
        turn: &Accepted,
        needed: usize,
    ) -> Result<(Option<TooLong>, Vec<ContextChoice>)> {
        let conversation = self.conversation(&turn.conversation)?;
        let Some(cache) = &self.cache else {
            return Ok((None, Vec::new()));
        };
        let parts = prompt::branch(&self.desk.history(), Some(&turn.leaf))?;
        let too_long = shorten::too_long(&self.desk, cache, &conversation, &parts)?;
        let mut choices = match conversation.when_full {
            WhenFull::Stop => Vec::new(),
            _ => shorten::choices(&parts, cache, too_long),
        };
        if too_long.is_none() && !choices.is_empty() {
            shorten::keep_possible(&mut choices, &self.desk, cache, &conversation, &parts);
        }
        // A larger pool does not extend the model's context.
        let is_too_much = needed > cache.model().config().context_length;
        choices.retain(|choice| !(is_too_much && *choice == ContextChoice::LargerContext));
        Ok((too_long, choices))
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
