//! Turning encryption on or off: every block moves from a file of one form to a file of the other, a few at a time.
//!
//! A block is moved like any other: new slot, fdatasync, row, and only then is the old slot free. The last slots go first,
//! so that the old files shrink while the new ones grow. Killed in between, the next process goes on from the index.

use super::index::Index;
use super::{BlockStore, Fingerprint, Place};
use crate::key::{Form, Seal, form_of};

/// Bytes of slots that one step moves, if they are more than one block.
const STEP_BYTES: u64 = 8 << 20;

impl BlockStore {
    /// From now on blocks are kept as `seal` says. The index follows at once, the blocks with
    /// [`rewrite_some`](Self::rewrite_some).
    pub fn set_seal(&mut self, seal: Option<Seal>) {
        self.seal = seal;
        for pool in self.pools.values_mut() {
            pool.seal = self.seal.clone();
        }
        // Closed first: opening converts it.
        if self.index.take().is_none() {
            return;
        }
        match Index::open(&self.dir, self.seal.as_ref()) {
            Ok(index) => self.index = Some(index),
            Err(reason) => {
                tracing::warn!(dir = %self.dir.display(), reason, "the block index cannot be converted; starting empty");
                self.empty();
            }
        }
    }

    /// How many blocks are not yet kept as they should be.
    pub fn num_to_rewrite(&self) -> u64 {
        let form = form_of(self.seal.as_ref());
        let others = self
            .entries
            .values()
            .filter(|entry| entry.place.file.form != form);
        others.count() as u64
    }

    /// Rewrites some blocks and returns how many are left. With none left the folder holds no file of the other form. A
    /// block that cannot be rewritten is dropped.
    pub fn rewrite_some(&mut self) -> u64 {
        let mut moved_bytes = 0;
        while moved_bytes < STEP_BYTES
            && let Some((fingerprint, place)) = self.last_of_other_form()
        {
            moved_bytes += self.rewrite(&fingerprint, place);
        }
        let left = self.num_to_rewrite();
        if left == 0 {
            self.end_rewriting();
        }
        left
    }

    fn last_of_other_form(&self) -> Option<(Fingerprint, Place)> {
        self.pools.values().find_map(|pool| {
            let other = match pool.form() {
                Form::Plain => Form::Sealed,
                Form::Sealed => Form::Plain,
            };
            Some((pool.fingerprint, pool.last_place(other)?))
        })
    }

    /// Moves the block in a slot; returns the bytes of a slot.
    fn rewrite(&mut self, fingerprint: &Fingerprint, place: Place) -> u64 {
        let Some(pool) = self.pools.get_mut(fingerprint) else {
            return STEP_BYTES;
        };
        let slot_bytes = pool.format.slot_bytes(place.file.form);
        let (to, _) = pool.free_place();
        let here =
            |entry: &&super::Entry| entry.fingerprint == *fingerprint && entry.place == place;
        let Some(block) = self
            .entries
            .values()
            .find(here)
            .map(|entry| entry.block.clone())
        else {
            // Nobody's.
            pool.release(place);
            pool.trim(&self.dir, place.file);
            return slot_bytes;
        };
        if let Err(reason) = self.move_block(fingerprint, &block, place, to) {
            tracing::warn!(id = ?block.id, reason, "a block is dropped, since it cannot be rewritten");
            self.drop_block(fingerprint, &block.id);
        }
        slot_bytes
    }

    /// Nothing of the other form is left: its files go, and the log of the index, durably.
    fn end_rewriting(&mut self) {
        self.trim_files();
        if let Some(index) = &self.index {
            index.fold();
        }
        if let Err(error) = crate::file::sync_dir(&self.dir) {
            tracing::warn!(dir = %self.dir.display(), %error, "the folder for blocks is not synced");
        }
        self.settle(&std::collections::HashSet::new());
    }
}
