//! A pool: the files that hold one fingerprint's slots. A file holds a bounded number of slots, so that a free file, and the
//! free end of any file, can be given back to the disk; free slots in between are used again. A file holds slots of one
//! form, plain or sealed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use super::{Block, BlockId, Fingerprint, SlotFormat, slot};
use crate::file;
use crate::key::{DataKey, Form, Seal, form_of};
use crate::unbuffered::Unbuffered;

const FILE_BYTES: u64 = 64 << 20;
const MAX_SLOTS_PER_FILE: u64 = 64;
/// What the names of pool files end with.
pub(super) const SUFFIX: &str = ".pool";
/// What stands before that in the names of sealed ones.
const SEALED: &str = ".sealed";

/// One of a pool's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct FileId {
    pub form: Form,
    pub number: u32,
}

/// Where a block's slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub file: FileId,
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
    /// How slots are written, and what opens sealed ones.
    pub seal: Option<Seal>,
    /// The slots in use, by file; a file is as long as its last one needs.
    files: BTreeMap<FileId, BTreeSet<u32>>,
    /// Free slots that hold nothing of the blocks that were in them.
    erased: HashSet<Place>,
}

impl Pool {
    /// A pool without blocks, not opened yet.
    pub(super) fn new(
        key: i64,
        fingerprint: Fingerprint,
        format: SlotFormat,
        label: String,
        seal: Option<Seal>,
    ) -> Pool {
        Pool {
            key,
            fingerprint,
            label,
            format,
            known: false,
            roots: Vec::new(),
            seal,
            files: BTreeMap::new(),
            erased: HashSet::new(),
        }
    }

    pub(super) fn slots_per_file(&self, form: Form) -> u32 {
        (FILE_BYTES / self.format.slot_bytes(form)).clamp(1, MAX_SLOTS_PER_FILE) as u32
    }

    /// `<fingerprint in hex>.<number>.pool`, or `….sealed.pool`.
    pub(super) fn path(&self, dir: &Path, FileId { form, number }: FileId) -> PathBuf {
        let sealed = match form {
            Form::Plain => "",
            Form::Sealed => SEALED,
        };
        dir.join(format!("{}.{number}{sealed}{SUFFIX}", self.fingerprint))
    }

    /// Which of this pool's files a path names, if any.
    pub(super) fn file_of(&self, path: &Path) -> Option<FileId> {
        let name = path.file_name()?.to_str()?;
        let rest = name.strip_prefix(&self.fingerprint.to_string())?;
        let rest = rest.strip_prefix('.')?.strip_suffix(SUFFIX)?;
        let (number, form) = match rest.strip_suffix(SEALED) {
            Some(number) => (number, Form::Sealed),
            None => (rest, Form::Plain),
        };
        let number = number.parse().ok()?;
        Some(FileId { form, number })
    }

    /// The form in which slots are written.
    pub(super) fn form(&self) -> Form {
        form_of(self.seal.as_ref())
    }

    /// Whether the files may hold slots of this form.
    pub(super) fn accepts(&self, form: Form) -> bool {
        match &self.seal {
            Some(seal) => seal.accepts(form),
            None => form == Form::Plain,
        }
    }

    /// What opens the slots of a file; none if they are plain.
    pub(super) fn key(&self, form: Form) -> Option<&DataKey> {
        let seal = self.seal.as_ref()?;
        (form == Form::Sealed).then_some(&*seal.key)
    }

    /// The files of the form in which slots are written, and their slots in use.
    fn files_to_write(&self) -> impl Iterator<Item = (FileId, &BTreeSet<u32>)> {
        let form = self.form();
        self.files
            .iter()
            .map(|(&file, used)| (file, used))
            .filter(move |(file, _)| file.form == form)
    }

    /// The best free slot, and by how many bytes its file grows: first a hole, then the end of a file, then a new file.
    pub(super) fn free_place(&self) -> (Place, u64) {
        let form = self.form();
        let slot_bytes = self.format.slot_bytes(form);
        for (file, used) in self.files_to_write() {
            if used.len() < num_slots(used) as usize {
                let slot = used
                    .iter()
                    .zip(0..)
                    .find(|&(&slot, index)| slot != index)
                    .map_or(0, |(_, index)| index);
                return (Place { file, slot }, 0);
            }
        }
        for (file, used) in self.files_to_write() {
            if num_slots(used) < self.slots_per_file(form) {
                return (
                    Place {
                        file,
                        slot: num_slots(used),
                    },
                    slot_bytes,
                );
            }
        }
        let number = self
            .files_to_write()
            .zip(0..)
            .find(|((file, _), index)| file.number != *index)
            .map(|(_, index)| index);
        let number = number.unwrap_or(self.files_to_write().count() as u32);
        (
            Place {
                file: FileId { form, number },
                slot: 0,
            },
            slot_bytes,
        )
    }

    /// The last slot in use of a form.
    pub(super) fn last_place(&self, form: Form) -> Option<Place> {
        let mut files = self.files.iter().filter(|(file, _)| file.form == form);
        let (&file, used) = files.next_back()?;
        used.last().map(|&slot| Place { file, slot })
    }

    /// Takes a slot; false if it is taken.
    pub(super) fn take(&mut self, place: Place) -> bool {
        self.erased.remove(&place);
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
            .iter()
            .map(|(file, used)| u64::from(num_slots(used)) * self.format.slot_bytes(file.form))
            .sum()
    }

    pub(super) fn has_file(&self, file: FileId) -> bool {
        self.files.contains_key(&file)
    }

    /// The files.
    pub(super) fn files(&self) -> impl Iterator<Item = FileId> + '_ {
        self.files.keys().copied()
    }

    /// Gives the free end of a file, or a free file, back to the disk.
    pub(super) fn trim(&self, dir: &Path, file: FileId) {
        let slot_bytes = self.format.slot_bytes(file.form);
        let path = self.path(dir, file);
        let trimmed = match self.files.get(&file) {
            None => std::fs::remove_file(&path),
            Some(used) => {
                let length = u64::from(num_slots(used)) * slot_bytes;
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
        let key = self.key(place.file.form);
        let written = slot::write(&file, start, &self.format, key, block, payload)?;
        Ok((written, is_new))
    }

    /// Overwrites the free slots between those in use, so that nothing of the blocks that were in them can be read.
    pub(super) fn erase_free(&mut self, dir: &Path) -> io::Result<()> {
        for (&file, used) in &self.files {
            let free: Vec<Place> = (0..num_slots(used))
                .filter(|slot| !used.contains(slot))
                .map(|slot| Place { file, slot })
                .filter(|place| !self.erased.contains(place))
                .collect();
            if free.is_empty() {
                continue;
            }
            let open = file::open_existing(&self.path(dir, file))?;
            for place in &free {
                slot::erase(&open, self.span(*place).0, &self.format, file.form)?;
            }
            open.sync_data()?;
            self.erased.extend(free);
        }
        Ok(())
    }

    /// Makes what was written to a file durable.
    pub(super) fn sync(&self, dir: &Path, file: FileId) -> io::Result<()> {
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
        let file = Unbuffered::open(&self.path(dir, place.file))
            .map_err(|error| format!("its file cannot be opened: {error}"))?;
        let key = self.key(place.file.form);
        slot::read(&file, self.span(place).0, &self.format, key, block, out)
    }

    /// Where a slot begins and ends in its file.
    pub(super) fn span(&self, place: Place) -> (u64, u64) {
        let slot_bytes = self.format.slot_bytes(place.file.form);
        let start = u64::from(place.slot) * slot_bytes;
        (start, start + slot_bytes)
    }
}

fn num_slots(used: &BTreeSet<u32>) -> u32 {
    used.last().map_or(0, |last| last + 1)
}
