//! The file that a model's weights were read from, and whether it has changed since.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::digest::{DigestCache, hash};
use crate::error::{Error, Result};
use crate::gguf::GgufFile;
use crate::stamp::Attributes;

/// A weight file and its state at the last check.
#[derive(Debug)]
pub(crate) struct Source {
    seen: Mutex<Seen>,
    /// Digest of its content.
    pub(crate) digest: [u8; 32],
}

#[derive(Clone, Debug)]
struct Seen {
    attributes: Attributes,
    /// Whether the times were old enough that a later change alters the attributes.
    is_settled: bool,
}

impl Seen {
    fn new(attributes: Attributes) -> Seen {
        Seen {
            is_settled: attributes.are_settled(SystemTime::now()),
            attributes,
        }
    }

    /// Whether the file is unchanged since it was seen.
    fn is_still(&self, now: &Attributes) -> bool {
        self.is_settled && self.attributes == *now
    }
}

impl Source {
    /// Records the file before its weights are read.
    pub(crate) fn of(file: &GgufFile, digests: &DigestCache) -> Result<Source> {
        let seen = Seen::new(attributes(file)?);
        Ok(Source {
            seen: Mutex::new(seen),
            digest: digests.of(file.path(), file.opened(), &file.pages())?,
        })
    }

    /// Checks, after the weights were read, that they are those of the digest.
    ///
    /// # Errors
    /// [`Error::Changing`] when the file was written in between.
    pub(crate) fn check(&self, file: &GgufFile) -> Result<()> {
        if self.seen().is_still(&attributes(file)?) {
            return Ok(());
        }
        // A rename or a new hard link also changes the attributes, so the content decides.
        let now = hash(file.opened()).map_err(|source| Error::of_path(file.path(), source))?;
        match now == self.digest {
            true => Ok(()),
            false => Err(Error::Changing {
                path: file.path().to_path_buf(),
            }),
        }
    }

    /// Whether the file at `path` holds these weights.
    ///
    /// # Errors
    /// When it is not a usable model file.
    pub(crate) fn is_at(&self, path: &Path, digests: &DigestCache) -> Result<bool> {
        let now = Attributes::at(path).map_err(|source| Error::of_path(path, source))?;
        if self.seen().is_still(&now) {
            return Ok(true);
        }
        let there = Source::of(&GgufFile::open(path)?, digests)?;
        let is_same = there.digest == self.digest;
        if is_same {
            // So that a new hard link, or a file that had not settled, does not cause another read.
            *self.seen() = there.seen().clone();
        }
        Ok(is_same)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn attributes(file: &GgufFile) -> Result<Attributes> {
    Attributes::of(file.opened()).map_err(|source| Error::of_path(file.path(), source))
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::{Seek, SeekFrom, Write};

    use super::*;
    use crate::config::Architecture;
    use crate::tiny::{self, TinyModel};

    #[test]
    fn a_file_written_while_its_weights_are_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.gguf");
        tiny::write(&path, &TinyModel::new(Architecture::Llama, 1)).unwrap();
        let digests = DigestCache::new(None);
        let file = GgufFile::open(&path).unwrap();
        let source = Source::of(&file, &digests).unwrap();
        source.check(&file).unwrap();
        // A second hard link, as backup programs make, is not a change.
        std::fs::hard_link(&path, dir.path().join("second.gguf")).unwrap();
        source.check(&file).unwrap();
        assert!(source.is_at(&path, &digests).unwrap());

        let mut written = OpenOptions::new().write(true).open(&path).unwrap();
        written.seek(SeekFrom::End(-100)).unwrap();
        written.write_all(&[1; 4]).unwrap();
        assert!(matches!(source.check(&file), Err(Error::Changing { .. })));
        assert!(!source.is_at(&path, &digests).unwrap());
    }
}
