//! What is to be saved, held back while tokens are made.
//!
//! Copying a block and writing it takes a core for some milliseconds, and a core is what a reply is decoded with. So
//! finished blocks stay where they are, in the pool, and go to the writer when the turn has ended and nobody waits. They
//! cost no memory meanwhile; what a killed process loses is bounded by time. A ref goes after the blocks that came before.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use store::BlockId;

use crate::cache::{Cache, Wait};
use crate::pool::BlockPool;
use crate::tree::Saved;
use crate::writer::{Job, Written};
use crate::{Error, Result};

/// How long blocks are held back at most while a reply goes on: then its process may be killed and lose no more.
const HOLD_BACK: Duration = Duration::from_secs(10);

/// Bytes of payload that the writer may have at once, and of buffers that are kept for it.
pub(crate) const QUEUE_BYTES: usize = 8 << 20;

/// Waits to be handed to the writer, in this order.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    pending: VecDeque<Pending>,
    /// When the first of them came; none while there is none.
    since: Option<Instant>,
    /// Blocks that the writer has and has not answered for.
    num_in_flight: usize,
}

#[derive(Debug)]
enum Pending {
    Block(BlockId),
    Ref {
        leaf: String,
        block: BlockId,
        replaces: Vec<String>,
    },
    Touch(Vec<BlockId>, i64),
}

impl Backlog {
    fn push(&mut self, pending: Pending, now: Instant) {
        self.since.get_or_insert(now);
        self.pending.push_back(pending);
    }

    /// The first of them; it is up to the caller to put it back.
    fn pop(&mut self) -> Option<Pending> {
        let pending = self.pending.pop_front();
        if self.pending.is_empty() {
            self.since = None;
        }
        pending
    }

    fn is_overdue(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now - since >= HOLD_BACK)
    }
}

impl Cache {
    /// Notes that a block is to be saved.
    pub(crate) fn save_later(&mut self, id: BlockId) {
        if self.is_saving {
            self.backlog.push(Pending::Block(id), Instant::now());
        }
    }

    /// After everything noted so far is saved, lets `leaf` hold the chain that ends in `block` instead of `replaces`,
    /// and marks the chain as used at `now_ms`.
    pub(crate) fn refer_later(
        &mut self,
        leaf: String,
        block: BlockId,
        replaces: Vec<String>,
        chain: Vec<BlockId>,
        now_ms: i64,
    ) {
        let pending = Pending::Ref {
            leaf,
            block,
            replaces,
        };
        let now = Instant::now();
        self.backlog.push(pending, now);
        self.backlog.push(Pending::Touch(chain, now_ms), now);
    }

    /// Hands some of what was held back to the writer, as far as it has room. True while something is left to do: more
    /// to hand over, or answers to take.
    pub fn save_some(&mut self) -> bool {
        self.collect_results();
        let slot_bytes = self.pool.kv().layout().slot_bytes();
        for _ in 0..(QUEUE_BYTES / slot_bytes).max(1) {
            if !self.hand_over_next(Wait::Never) {
                break;
            }
        }
        !self.backlog.pending.is_empty() || self.backlog.num_in_flight > 0
    }

    /// Saves in the middle of a turn what was held back for `HOLD_BACK`.
    pub(crate) fn save_overdue(&mut self) {
        if self.backlog.is_overdue(Instant::now()) {
            self.collect_results();
            while self.hand_over_next(Wait::Never) {}
        }
    }

    /// Saves everything that was held back, and waits until it is on disk.
    pub fn flush(&mut self) {
        while self.hand_over_next(Wait::ForRoom) {}
        self.wait_for_writer();
    }

    /// Waits until what the writer has is on disk.
    pub(crate) fn wait_for_writer(&mut self) {
        self.writer.flush();
        self.collect_results();
    }

    /// Hands a block to the writer, after those above it that are not saved either. False when there is no room.
    pub(crate) fn save(&mut self, id: &BlockId, wait: Wait) -> Result<bool> {
        if !self.is_saving {
            return Ok(true);
        }
        let mut unsaved = Vec::new();
        let mut next = Some(*id);
        while let Some(node) = next.and_then(|id| self.tree.get(&id)) {
            match node.saved {
                Saved::No if node.is_in_memory() => unsaved.push(node.block.clone()),
                // It follows a block that is nowhere, so the store would not take it.
                Saved::No => return Ok(true),
                Saved::Queued | Saved::Yes => break,
            }
            next = node.block.parent;
        }
        for block in unsaved.into_iter().rev() {
            let id = block.id;
            if !self.find_room(wait) {
                return Ok(false);
            }
            let slot_bytes = self.pool.kv().layout().slot_bytes();
            let mut payload = self.spare.pop().unwrap_or_else(|| vec![0; slot_bytes]);
            self.read_block(&id, &mut payload)?;
            if !self.writer.send(Job::Save(block, payload)) {
                return Ok(true); // no writer: the block stays in memory
            }
            self.backlog.num_in_flight += 1;
            if let Some(node) = self.tree.get_mut(&id) {
                node.saved = Saved::Queued;
            }
        }
        Ok(true)
    }

    /// Copies a block out of memory.
    fn read_block(&self, id: &BlockId, out: &mut [u8]) -> Result<()> {
        let node = self.tree.get(id);
        let host = self.host.as_ref().map(BlockPool::kv);
        let in_host = node.and_then(|node| node.host).zip(host);
        let resident = node
            .and_then(|node| node.slot)
            .map(|slot| (slot, self.pool.kv()));
        // What the host has needs no copy from a GPU.
        match in_host.or(resident) {
            Some((slot, kv)) => Ok(kv.read_slot(slot, out)?),
            None => Err(Error::Corrupt(
                "a block to be saved is not in memory".into(),
            )),
        }
    }

    /// Takes the writer's answers.
    pub(crate) fn collect_results(&mut self) {
        while let Some(written) = self.writer.try_result() {
            self.take_result(written);
        }
    }

    /// Takes an answer, and the buffer to be filled again.
    fn take_result(&mut self, written: Written) {
        self.backlog.num_in_flight -= 1;
        if self.spare.len() < (QUEUE_BYTES / written.payload.len()).max(1) {
            self.spare.push(written.payload);
        }
        if let Some(node) = self.tree.get_mut(&written.id) {
            node.saved = match written.on_disk {
                true => Saved::Yes,
                false => Saved::No,
            };
        }
        self.tree.prune(&written.id);
    }

    /// Whether the writer can take one more block, after waiting for it if that is asked.
    fn find_room(&mut self, wait: Wait) -> bool {
        let slot_bytes = self.pool.kv().layout().slot_bytes();
        while self.backlog.num_in_flight >= (QUEUE_BYTES / slot_bytes).max(2) {
            match wait {
                Wait::Never => return false,
                Wait::ForRoom => match self.writer.result() {
                    Some(written) => self.take_result(written),
                    None => return false,
                },
            }
        }
        true
    }

    /// Hands over the first of what was held back. False when there is none, or no room for it.
    fn hand_over_next(&mut self, wait: Wait) -> bool {
        let Some(pending) = self.backlog.pop() else {
            return false;
        };
        match pending {
            Pending::Block(id) => match self.save(&id, wait) {
                Ok(true) => {}
                Ok(false) => {
                    // As overdue as it was, or nearly.
                    self.backlog.since.get_or_insert_with(Instant::now);
                    self.backlog.pending.push_front(Pending::Block(id));
                    return false;
                }
                Err(error) => tracing::warn!(%error, "block not saved"),
            },
            // A tail that a longer one replaced meanwhile; the turn that made the longer one has a ref of its own.
            Pending::Ref { block, .. } if self.tree.get(&block).is_none() => {}
            Pending::Ref {
                leaf,
                block,
                replaces,
            } => {
                self.writer.send(Job::Ref {
                    leaf,
                    block,
                    replaces,
                });
            }
            Pending::Touch(chain, now_ms) => {
                self.writer.send(Job::Touch(chain, now_ms));
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_block_says_when_saving_is_overdue() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let block = |n| Pending::Block(BlockId([n; 32]));
        let mut backlog = Backlog::default();
        assert!(!backlog.is_overdue(after(1000)), "nothing waits");
        backlog.push(block(1), start);
        backlog.push(block(2), after(8));
        assert!(!backlog.is_overdue(after(9)));
        assert!(backlog.is_overdue(after(10)));
        backlog.pop();
        assert!(backlog.is_overdue(after(10)), "the rest came in its time");
        backlog.pop();
        assert!(!backlog.is_overdue(after(1000)));
        backlog.push(block(3), after(20));
        assert!(!backlog.is_overdue(after(29)), "counted anew");
        assert!(backlog.is_overdue(after(30)));
    }
}
