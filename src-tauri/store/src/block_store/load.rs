//! Starting from what the last process left: believe nothing, keep what fits together, delete the rest.

use std::collections::HashMap;
use std::path::Path;

use super::index::{self, BlockRow, Index};
use super::pool::{FileId, Pool, SUFFIX};
use super::{BlockId, BlockStore, Fingerprint, SlotFormat};
use crate::file;

impl BlockStore {
    /// Fills an empty value from the folder; what cannot be read is emptied.
    pub(super) fn load(&mut self) {
        let prepared =
            file::create_private_dir(&self.dir).and_then(|()| file::make_private_dir(&self.dir));
        if let Err(error) = prepared {
            tracing::warn!(dir = %self.dir.display(), %error, "the folder for blocks cannot be used; nothing is saved");
            return;
        }
        let read = Index::open(&self.dir, self.seal.as_ref()).and_then(|mut index| {
            self.read_index(&mut index)
                .map_err(|error| error.to_string())?;
            Ok(index)
        });
        match read {
            Ok(index) => {
                self.index = Some(index);
                self.trim_files();
            }
            Err(reason) => {
                tracing::warn!(dir = %self.dir.display(), reason, "the block index cannot be read; starting empty");
                self.empty();
            }
        }
    }

    /// Forgets and deletes everything, and starts a new index. Opened pools stay open.
    pub(super) fn empty(&mut self) {
        self.epoch += 1;
        self.index = None;
        self.entries.clear();
        self.refs.clear();
        let known: Vec<(Fingerprint, SlotFormat, String)> = self
            .pools
            .drain()
            .filter(|(_, pool)| pool.known)
            .map(|(fingerprint, pool)| (fingerprint, pool.format, pool.label))
            .collect();
        self.trim_files();
        match index::delete(&self.dir)
            .map_err(|error| error.to_string())
            .and_then(|()| Index::open(&self.dir, self.seal.as_ref()))
        {
            Ok(index) => self.index = Some(index),
            Err(reason) => {
                tracing::warn!(dir = %self.dir.display(), reason, "no block index can be made; nothing is saved");
            }
        }
        for (fingerprint, format, label) in known {
            let Some(Ok(key)) = self
                .index
                .as_ref()
                .map(|index| index.write_pool(&fingerprint, format, &label))
            else {
                continue;
            };
            let mut pool = Pool::new(key, fingerprint, format, label, self.seal.clone());
            pool.known = true;
            self.pools.insert(fingerprint, pool);
        }
    }

    fn read_index(&mut self, index: &mut Index) -> rusqlite::Result<()> {
        let mut fingerprints = HashMap::new();
        for row in index.pools()? {
            if row.format.is_sound() {
                fingerprints.insert(row.key, row.fingerprint);
                let seal = self.seal.clone();
                let pool = Pool::new(row.key, row.fingerprint, row.format, row.label, seal);
                self.pools.insert(row.fingerprint, pool);
            }
        }
        let (rows, num_rows) = index.blocks()?;
        let mut lengths = HashMap::new();
        let mut kept = Vec::new();
        for row in rows {
            let Some(fingerprint) = fingerprints.get(&row.pool) else {
                continue;
            };
            if self.is_believable(fingerprint, &row, &mut lengths) {
                kept.push(row.seq as u64);
                let used = row.used.max(0) as u64;
                self.tick = self.tick.max(used);
                self.adopt(*fingerprint, row.block, row.place, used, row.seq as u64);
            }
        }
        self.pools.retain(|_, pool| !pool.roots.is_empty());
        let keys: Vec<i64> = self.pools.values().map(|pool| pool.key).collect();
        let num_bad = num_rows - kept.len() as u64;
        if num_bad > 0 {
            tracing::warn!(
                num_bad,
                "blocks whose rows are damaged or whose slots are missing are dropped"
            );
        }
        index.keep_only(&kept, &keys)?;
        for (leaf, key, block) in index.refs()? {
            let Some(fingerprint) = fingerprints.get(&key) else {
                continue;
            };
            if self
                .entries
                .get(&block)
                .is_some_and(|entry| entry.fingerprint == *fingerprint)
            {
                self.refs.insert((leaf, *fingerprint), block);
            }
        }
        Ok(())
    }

    /// The row names itself rightly, follows a full block that is there, and its slot is inside its file and free.
    /// Takes the slot if so.
    fn is_believable(
        &mut self,
        fingerprint: &Fingerprint,
        row: &BlockRow,
        lengths: &mut HashMap<(Fingerprint, FileId), u64>,
    ) -> bool {
        let Some(pool) = self.pools.get_mut(fingerprint) else {
            return false;
        };
        let block = &row.block;
        let expected_position = match block.parent {
            None => Some(0),
            Some(parent) => self.entries.get(&parent).and_then(|parent| {
                let is_full = parent.block.tokens.len() == pool.format.block_tokens as usize;
                let next = parent.block.position.checked_add(pool.format.block_tokens);
                next.filter(|_| is_full && parent.fingerprint == *fingerprint)
            }),
        };
        let length = *lengths
            .entry((*fingerprint, row.place.file))
            .or_insert_with(|| {
                std::fs::metadata(pool.path(&self.dir, row.place.file))
                    .map_or(0, |metadata| metadata.len())
            });
        (0..i64::MAX).contains(&row.seq)
            && (1..=pool.format.block_tokens as usize).contains(&block.tokens.len())
            && expected_position == Some(block.position)
            && BlockId::of(fingerprint, block.parent.as_ref(), &block.tokens) == block.id
            && pool.accepts(row.place.file.form)
            && row.place.slot < pool.slots_per_file(row.place.file.form)
            && pool.span(row.place).1 <= length
            && !self.entries.contains_key(&block.id)
            && pool.take(row.place)
    }

    /// Deletes pool files that hold no block, and cuts the others behind their last one.
    pub(super) fn trim_files(&self) {
        for path in pool_files(&self.dir) {
            let is_ours = self.pools.values().any(|pool| {
                let file = pool.file_of(&path);
                file.is_some_and(|file| pool.has_file(file))
            });
            if !is_ours && let Err(error) = std::fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "a stray pool file stays");
            }
        }
        for pool in self.pools.values() {
            pool.files().for_each(|file| pool.trim(&self.dir, file));
        }
    }
}

fn pool_files(dir: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.to_str().is_some_and(|path| path.ends_with(SUFFIX)))
        .collect()
}
