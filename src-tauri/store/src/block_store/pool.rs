//! A pool: the files that hold one fingerprint's slots. A file holds a bounded number of slots, so that a free file, and the
//! free end of any file, can be given back to the disk; free slots in between are used again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::{Block, BlockId, Fingerprint, SlotFormat, slot};
use crate::file;

const FILE_BYTES: u64 = 64 << 20;
const MAX_SLOTS_PER_FILE: u64 = 64;
/// What the names of pool files end with.
pub(super) const SUFFIX: &str = ".pool";

/// Where a block's slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub file: u32,
    pub slot: u32,
}

#[derive(Debug)]
pub(super) struct Pool {
    /// Its row in the index.
    pub key: i64,
    pub fingerprint: Fingerprint,
    pub label: String,
    pub format: SlotFormat,
    /// Opened in this run.
    pub known: bool,
    /// Blocks without a parent.
    pub roots: Vec<BlockId>,
    /// The slots in use, by file; a file is as long as its last one needs.
    files: BTreeMap<u32, BTreeSet<u32>>,
}

impl Pool {
    /// A pool without blocks, not opened yet.
    pub(super) fn new(
        key: i64,
        fingerprint: Fingerprint,
        format: SlotFormat,
        label: String,
    ) -> Pool {
        Pool {
            key,
            fingerprint,
            label,
            format,
            known: false,
            roots: Vec::new(),
            files: BTreeMap::new(),
        }
    }

    pub(super) fn slots_per_file(&self) -> u32 {
        (FILE_BYTES / self.format.slot_bytes()).clamp(1, MAX_SLOTS_PER_FILE) as u32
    }

    /// `<fingerprint in hex>.<number>.pool`
    pub(super) fn path(&self, dir: &Path, file: u32) -> PathBuf {
        dir.join(format!("{}.{file}{SUFFIX}", self.fingerprint))
    }

    /// The best free slot, and by how many bytes its file grows: first a hole, then the end of a file, then a new file.
    pub(super) fn free_place(&self) -> (Place, u64) {
        let slot_bytes = self.format.slot_bytes();
        for (&file, used) in &self.files {
            if used.len() < num_slots(used) as usize {
                let slot = used
                    .iter()
                    .zip(0..)
                    .find(|&(&slot, index)| slot != index)
                    .map_or(0, |(_, index)| index);
                return (Place { file, slot }, 0);
            }
        }
        for (&file, used) in &self.files {
            if num_slots(used) < self.slots_per_file() {
                return (
                    Place {
                        file,
                        slot: num_slots(used),
                    },
                    slot_bytes,
                );
            }
        }
        let file = self
            .files
            .keys()
            .zip(0..)
            .find(|&(&file, index)| file != index)
            .map(|(_, index)| index);
        (
            Place {
                file: file.unwrap_or(self.files.len() as u32),
                slot: 0,
            },
            slot_bytes,
        )
    }

    /// The last slot in use.
    pub(super) fn last_place(&self) -> Option<Place> {
        let (&file, used) = self.files.last_key_value()?;
        used.last().map(|&slot| Place { file, slot })
    }

    /// Takes a slot; false if it is taken.
    pub(super) fn take(&mut self, place: Place) -> bool {
        self.files.entry(place.file).or_default().insert(place.slot)
    }

    pub(super) fn release(&mut self, place: Place) {
        if let Some(used) = self.files.get_mut(&place.file) {
            used.remove(&place.slot);
            if used.is_empty() {
                self.files.remove(&place.file);
            }
        }
    }

    /// How long the pool's files are.
    pub(super) fn bytes(&self) -> u64 {
        self.files
            .values()
            .map(|used| u64::from(num_slots(used)) * self.format.slot_bytes())
            .sum()
    }

    pub(super) fn has_file(&self, file: u32) -> bool {
        self.files.contains_key(&file)
    }

    /// The file's numbers.
    pub(super) fn file_numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.files.keys().copied()
    }

    /// Gives the free end of a file, or a free file, back to the disk.
    pub(super) fn trim(&self, dir: &Path, file: u32) {
        let path = self.path(dir, file);
        let trimmed = match self.files.get(&file) {
            None => std::fs::remove_file(&path),
            Some(used) => {
                let length = u64::from(num_slots(used)) * self.format.slot_bytes();
                file::open_existing(&path).and_then(|file| match file.metadata()?.len() > length {
                    true => file.set_len(length),
                    false => Ok(()),
                })
            }
        };
        match trimmed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "a pool file could not be cut");
            }
            _ => {}
        }
    }

    /// Writes a block into a slot. True if that made the file.
    pub(super) fn write(
        &self,
        dir: &Path,
        place: Place,
        block: &Block,
        payload: &[u8],
    ) -> io::Result<(u64, bool)> {
        let path = self.path(dir, place.file);
        let is_new = !path.exists();
        let file = file::open_private(&path)?;
        let (start, end) = self.span(place);
        if file.metadata()?.len() < end {
            file.set_len(end)?;
        }
        Ok((
            slot::write(&file, start, &self.format, block, payload)?,
            is_new,
        ))
    }

    /// Makes what was written to a file durable.
    pub(super) fn sync(&self, dir: &Path, file: u32) -> io::Result<()> {
        file::open_existing(&self.path(dir, file))?.sync_data()
    }

    /// Reads a block; `Err` says why it cannot be used.
    pub(super) fn read(
        &self,
        dir: &Path,
        place: Place,
        block: &Block,
        out: &mut [u8],
    ) -> Result<(), String> {
        let file = File::open(self.path(dir, place.file))
            .map_err(|error| format!("its file cannot be opened: {error}"))?;
        slot::read(&file, self.span(place).0, &self.format, block, out)
    }

    /// Where a slot begins and ends in its file.
    pub(super) fn span(&self, place: Place) -> (u64, u64) {
        let start = u64::from(place.slot) * self.format.slot_bytes();
        (start, start + self.format.slot_bytes())
    }
}

fn num_slots(used: &BTreeSet<u32>) -> u32 {
    used.last().map_or(0, |last| last + 1)
}
