//! The host tier: what makes way in a GPU's memory stays in the machine's, as long as there is room for it there.
//!
//! A block comes here by one copy, and back by one. One that came back keeps its copy, so that it may make way again for nothing: such
//! copies go first, then the least recently used, leaf first, and what is pinned last. A block that is not on disk is handed to the
//! writer before it goes.

use store::BlockId;

use crate::Result;
use crate::cache::{Cache, Wait};
use crate::pins::Pin;
use crate::pool::BlockPool;
use crate::tree::Tier;

impl Cache {
    /// Keeps what is evicted in up to `budget_bytes` of the machine's memory, taken as it is used; nothing where that is less than a
    /// block. For a working pool in a GPU's memory. What was kept before is dropped.
    ///
    /// # Errors
    /// When so many slots cannot be.
    pub fn keep_evicted(&mut self, budget_bytes: u64) -> Result<()> {
        let kept: Vec<BlockId> = self.blocks_in_host().collect();
        kept.iter().for_each(|id| self.push_out(id));
        self.host = None;
        let slot_bytes = self.pool.kv().layout().slot_bytes() as u64;
        let num_slots = usize::try_from(budget_bytes / slot_bytes).unwrap_or(usize::MAX);
        if num_slots > 0 {
            self.host = Some(BlockPool::new(self.model().host_pool(num_slots)?));
        }
        Ok(())
    }

    /// Blocks that the host tier has.
    pub fn num_in_host(&self) -> usize {
        self.blocks_in_host().count()
    }

    /// Blocks of the cached beginning of `tokens` that the host tier has, and the working pool has not.
    pub fn num_in_host_of(&self, tokens: &[u32]) -> usize {
        let found = self.tree.find(tokens);
        let is_there = |id: &BlockId| {
            let node = self.tree.get(id);
            node.is_some_and(|node| node.host.is_some() && node.slot.is_none())
        };
        found.blocks().filter(is_there).count()
    }

    /// Blocks of the host tier, in no order.
    fn blocks_in_host(&self) -> impl Iterator<Item = BlockId> + '_ {
        let is_there = self.tree.nodes().filter(|(_, node)| node.host.is_some());
        is_there.map(|(id, _)| *id)
    }

    /// Copies a resident block to the host tier. Whether it is there; else there is none, or no room for it.
    pub(crate) fn move_to_host(&mut self, id: &BlockId) -> bool {
        let Some((Some(slot), kept)) = self.tree.get(id).map(|node| (node.slot, node.host)) else {
            return false;
        };
        if kept.is_some() {
            return true;
        }
        let Some(to) = self.allocate_in_host(self.pins.of(id)) else {
            return false;
        };
        let (Some(host), Some(node)) = (&mut self.host, self.tree.get_mut(id)) else {
            return false;
        };
        match host.kv().take_slot(to, self.pool.kv(), slot) {
            Ok(()) => {
                node.host = Some(to);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "a block is not kept in memory");
                host.release(to);
                false
            }
        }
    }

    /// A free slot of the host tier, for a block that is pinned so: what is pinned more firmly does not make way. `None` where nothing
    /// may, or there is no such tier.
    fn allocate_in_host(&mut self, pin: Pin) -> Option<u32> {
        loop {
            // Without memory for a new slot, one that has memory will do.

            if let Ok(Some(slot)) = self.host.as_mut()?.allocate() {
                return Some(slot);
            }
            self.collect_results();
            let (host, pins) = (self.host.as_ref()?, &self.pins);
            let oldest = self.tree.oldest_leaf(Tier::Host, |node, slot| {
                let of_node = pins.of(&node.block.id);
                let may_go = !host.is_shared(slot) && of_node <= pin;
                may_go.then_some((node.slot.is_none(), of_node))
            });
            self.push_out(&oldest?);
        }
    }

    /// Drops a block from the host tier, after it was handed to the writer if it is nowhere else.
    fn push_out(&mut self, id: &BlockId) {
        let is_resident = self.slot_of(id).is_some();
        if !is_resident && let Err(error) = self.save(id, Wait::ForRoom) {
            tracing::warn!(%error, "block not saved");
        }
        self.drop_from_host(id);
    }

    /// Drops a block from the host tier.
    pub(crate) fn drop_from_host(&mut self, id: &BlockId) {
        if let (Some(host), Some(node)) = (&mut self.host, self.tree.get_mut(id))
            && let Some(slot) = node.host.take()
        {
            host.release(slot);
        }
        self.tree.prune(id);
    }
}
