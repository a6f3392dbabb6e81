//! Bringing a conversation's blocks into the pool before a turn asks for them.
//!
//! Somebody *looks at* one conversation: it is opened, and its blocks are pinned. Any other is only *warmed*, while the
//! pointer rests on it: that pushes out nothing that is pinned.

use models::Extent;
use store::{BlockId, ConversationId};

use crate::cache::Cache;
use crate::pins::Evict;
use crate::prompt::{self, Prompt};
use crate::worker::Worker;
use crate::{Error, Result};

impl Worker {
    /// From now on somebody looks at this conversation, or at none: its blocks are pinned and brought into the pool. Makes
    /// way for a turn, and for another one that is opened.
    pub(crate) fn open(&mut self, id: Option<ConversationId>) -> Result<()> {
        self.open = id;
        let Some(id) = self.open.clone() else {
            self.pin_open();
            return Ok(());
        };
        let outcome = self.bring(&id, Evict::Any);
        if outcome.is_err() {
            // The one before is not looked at any more, whatever became of this one.
            self.pin_open();
        }
        outcome
    }

    /// Brings a conversation's blocks into the pool in case that it is opened. Makes way for a turn, and for the
    /// conversation that the reader went to instead.
    pub(crate) fn warm(&mut self, id: &ConversationId) -> Result<()> {
        self.bring(id, Evict::Unpinned)
    }

    /// Pins what the pool knows of the open conversation.
    pub(crate) fn pin_open(&mut self) {
        let prompt = self.open.as_ref().map(|id| self.shown(id));
        let tokens = match prompt {
            Some(Ok(prompt)) => prompt.tokens,
            // It may have been deleted.
            Some(Err(error)) => {
                tracing::debug!(%error, "the open conversation is not pinned");
                Vec::new()
            }
            None => Vec::new(),
        };
        if let Some(cache) = &mut self.cache {
            cache.pin_open(&tokens);
        }
    }

    fn bring(&mut self, id: &ConversationId, evict: Evict) -> Result<()> {
        let conversation = self.conversation(id)?;
        let loaded = self.cache.as_ref().map(|cache| cache.model().name());
        let wanted = conversation.model.as_deref();
        if evict == Evict::Unpinned && loaded.is_some() && wanted.is_some_and(|_| wanted != loaded)
        {
            // A conversation that is only pointed at does not replace the open conversation's model.
            return Ok(());
        }
        self.load_for(&conversation)?;
        let prompt = self.shown(id)?;
        let Some(cache) = self.cache.as_mut() else {
            return Ok(());
        };
        cache.begins_with(id.as_str(), &prompt.tokens[..prompt.num_system_tokens]);
        if evict == Evict::Any {
            cache.pin_open(&prompt.tokens);
        }
        let desk = &self.desk;
        cache.warm(&prompt.tokens, evict, &mut || {
            let is_left = match evict {
                Evict::Any => desk.has_open(),
                Evict::Unpinned => desk.has_warm(),
            };
            desk.has_turn() || is_left
        })
    }

    /// The prompt of the branch that a conversation shows; empty while no model is loaded, or nothing is said.
    fn shown(&self, id: &ConversationId) -> Result<Prompt> {
        let conversation = self.conversation(id)?;
        let (Some(cache), Some(leaf)) = (&self.cache, &conversation.active_leaf) else {
            return Ok(Prompt::empty());
        };
        let parts = prompt::branch(&self.desk.history(), Some(leaf))?;
        // A prompt that does not fit was only prefilled in part, so its beginning may be cached.
        let mut go_on = || true;
        let mut extent = Extent::new(cache.context_tokens(), &mut go_on);
        let history = self.desk.shared_history();
        prompt::build(history, cache.model(), &conversation, &parts, &mut extent)
    }
}

impl Cache {
    /// Pins the blocks of a timeline that somebody looks at, instead of those before; none for an empty one.
    pub fn pin_open(&mut self, tokens: &[u32]) {
        let found = self.tree.find(tokens);
        self.pins.open(found.blocks());
    }

    /// Notes that a conversation begins with this system prompt. Its whole blocks are pinned once a second one does.
    pub fn begins_with(&mut self, conversation: &str, system: &[u32]) {
        let chain = self.tree.chain(system);
        self.pins.begins_with(conversation, chain.into_iter());
    }

    /// Brings the cached beginning of `tokens` into the pool in case that it is wanted, without pushing out anything that is
    /// pinned. Ends early where there is no room.
    ///
    /// # Errors
    /// When the device fails.
    pub fn warm_unpinned(&mut self, tokens: &[u32]) -> Result<()> {
        self.warm(tokens, Evict::Unpinned, &mut || false)
    }

    /// Tokens of the beginning of `tokens` that are in the pool.
    pub fn resident_tokens(&self, tokens: &[u32]) -> usize {
        let found = self.tree.find(tokens);
        let ids: Vec<BlockId> = found.blocks().collect();
        let is_resident = |id: &&BlockId| self.tree.get(id).is_some_and(|node| node.slot.is_some());
        match ids.iter().take_while(is_resident).count() {
            all if all == ids.len() => found.num_tokens(),
            some => some * kernels::BLOCK_TOKENS,
        }
    }

    /// Blocks in the pool that no session holds and nothing pins: the first to go.
    pub fn num_unpinned(&self) -> usize {
        let is_free = |slot| !self.pool.is_shared(slot);
        self.tree
            .nodes()
            .filter(|(_, node)| node.slot.is_some_and(is_free))
            .filter(|(id, _)| self.pins.of(id) == crate::pins::Pin::No)
            .count()
    }

    /// Brings the cached beginning of `tokens` into the pool, some blocks at a time, until `leave` says so or there is no
    /// room. What has come is held until the end, so that what comes later cannot push it out.
    fn warm(
        &mut self,
        tokens: &[u32],
        evict: Evict,
        leave: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let found: Vec<BlockId> = self.tree.find(tokens).blocks().collect();
        self.tree.touch(&found);
        let mut held = Vec::with_capacity(found.len());
        let mut outcome = Ok(());
        for blocks in found.chunks(self.blocks_per_restore()) {
            if leave() {
                break;
            }
            match self.hold(blocks, evict) {
                Ok(Some(slots)) => held.extend(slots),
                Ok(None) | Err(Error::PoolFull { .. }) => break,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        held.into_iter().for_each(|slot| self.pool.release(slot));
        outcome
    }
}
