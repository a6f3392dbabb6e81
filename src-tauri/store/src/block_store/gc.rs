//! Refs from leaf messages, and the sweep of what none of them reaches.

use std::collections::HashSet;

use super::index::MovedRef;
use super::{BlockId, BlockRef, BlockStore, Fingerprint, GcReport};

impl BlockStore {
    /// Lets a leaf message hold a block and the chain above it; one per fingerprint. Nothing if the block is not there.
    pub fn set_ref(&mut self, leaf: &str, fingerprint: &Fingerprint, id: &BlockId) {
        let Some(pool) = self.pools.get(fingerprint) else {
            return;
        };
        if self
            .entries
            .get(id)
            .is_none_or(|entry| entry.fingerprint != *fingerprint)
        {
            tracing::debug!(?id, leaf, "a ref to a block that was not saved is left out");
            return;
        }
        let written = self
            .index
            .as_ref()
            .map_or(Ok(()), |index| index.set_ref(leaf, pool.key, id));
        self.refs.insert((leaf.to_owned(), *fingerprint), *id);
        if let Err(error) = written {
            self.index_failed("set a ref", &error);
        }
        self.settle(&HashSet::new());
    }

    /// Lets go of what a leaf message holds. The blocks go with the next sweep.
    pub fn drop_ref(&mut self, leaf: &str) {
        self.refs.retain(|(other, _), _| other != leaf);
        let written = self
            .index
            .as_ref()
            .map_or(Ok(()), |index| index.drop_ref(leaf));
        if let Err(error) = written {
            self.index_failed("drop a ref", &error);
        }
    }

    /// All refs, by leaf.
    pub fn refs(&self) -> Vec<BlockRef> {
        let mut refs: Vec<BlockRef> = self
            .refs
            .iter()
            .map(|((leaf, fingerprint), block)| BlockRef {
                leaf: leaf.clone(),
                fingerprint: *fingerprint,
                block: *block,
            })
            .collect();
        refs.sort_by(|a, b| (&a.leaf, a.fingerprint).cmp(&(&b.leaf, b.fingerprint)));
        refs
    }

    /// Sweeps every block that no ref, pin or member of `keep` reaches, and overwrites what is free: what was said in a
    /// conversation that is gone is not on disk any more. A block reaches those above it.
    pub fn gc(&mut self, keep: &HashSet<BlockId>) -> GcReport {
        let mut reached: HashSet<BlockId> = HashSet::new();
        for start in self.refs.values().chain(keep).chain(&self.pinned) {
            let mut next = Some(*start);
            while let Some(entry) = next.and_then(|id| self.entries.get(&id)) {
                next = if reached.insert(entry.block.id) {
                    entry.block.parent
                } else {
                    None
                };
            }
        }
        let swept: Vec<BlockId> = self
            .entries
            .keys()
            .filter(|id| !reached.contains(*id))
            .copied()
            .collect();
        if !swept.is_empty() {
            self.remove(&swept, None);
        }
        self.erase();
        GcReport {
            swept: swept.len() as u64,
            kept: self.entries.len() as u64,
        }
    }

    fn erase(&mut self) {
        if let Some(index) = &self.index {
            index.fold();
        }
        for pool in self.pools.values_mut() {
            if let Err(error) = pool.erase_free(&self.dir) {
                tracing::warn!(%error, fingerprint = ?pool.fingerprint, "free slots are not overwritten");
            }
        }
    }

    /// Moves the refs to blocks that go: to `heir`, else to the nearest block above that stays, else away.
    pub(super) fn move_refs(
        &mut self,
        gone: &HashSet<BlockId>,
        heir: Option<BlockId>,
    ) -> Vec<MovedRef> {
        let mut moved = Vec::new();
        for ((leaf, fingerprint), block) in &self.refs {
            if !gone.contains(block) {
                continue;
            }
            let above = |id: BlockId| self.entries.get(&id).and_then(|entry| entry.block.parent);
            let stays = || {
                std::iter::successors(Some(*block), |id| above(*id)).find(|id| !gone.contains(id))
            };
            let Some(pool) = self.pools.get(fingerprint) else {
                continue;
            };
            moved.push((
                *fingerprint,
                MovedRef {
                    leaf: leaf.clone(),
                    pool: pool.key,
                    to: heir.or_else(stays),
                },
            ));
        }
        for (fingerprint, MovedRef { leaf, to, .. }) in &moved {
            let key = (leaf.clone(), *fingerprint);
            match to {
                Some(to) => self.refs.insert(key, *to),
                None => self.refs.remove(&key),
            };
        }
        moved.into_iter().map(|(_, moved)| moved).collect()
    }
}
