//! The file that a model's weights came from, and whether it is what it was.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::digest::{DigestCache, hash};
use crate::error::{Error, Result};
use crate::gguf::GgufFile;
use crate::stamp::Attributes;

/// A weight file as it was when it was last looked at.
#[derive(Debug)]
pub(crate) struct Source {
    seen: Mutex<Seen>,
    /// Digest of its content.
    pub(crate) digest: [u8; 32],
}

#[derive(Clone, Debug)]
struct Seen {
    attributes: Attributes,
    /// Whether a later change would show in the attributes.
    is_settled: bool,
}

impl Seen {
    fn new(attributes: Attributes) -> Seen {
        Seen {
            is_settled: attributes.are_settled(SystemTime::now()),
            attributes,
        }
    }

    /// Whether nothing has changed since.
    fn is_still(&self, now: &Attributes) -> bool {
        self.is_settled && self.attributes == *now
    }
}

impl Source {
    /// Before its weights are read.
    pub(crate) fn of(file: &GgufFile, digests: &DigestCache) -> Result<Source> {
        let seen = Seen::new(attributes(file)?);
        Ok(Source {
            seen: Mutex::new(seen),
            digest: digests.of(file.path(), file.opened(), &file.pages())?,
        })
    }

    /// After its weights were read: they are those of the digest.
    ///
    /// # Errors
    /// [`Error::Changing`] when the file was written in between.
    pub(crate) fn check(&self, file: &GgufFile) -> Result<()> {
        if self.seen().is_still(&attributes(file)?) {
            return Ok(());
        }
        // A new name or link changes the attributes, too: what counts is the content.
        let now = hash(file.opened()).map_err(|source| Error::of_path(file.path(), source))?;
        match now == self.digest {
            true => Ok(()),
            false => Err(Error::Changing {
                path: file.path().to_path_buf(),
            }),
        }
    }

    /// Whether these weights are in the file that a path names now.
    ///
    /// # Errors
    /// When that is no model file.
    pub(crate) fn is_at(&self, path: &Path, digests: &DigestCache) -> Result<bool> {
        let now = Attributes::at(path).map_err(|source| Error::of_path(path, source))?;
        if self.seen().is_still(&now) {
            return Ok(true);
        }
        let there = Source::of(&GgufFile::open(path)?, digests)?;
        let is_same = there.digest == self.digest;
        if is_same {
            // Not to be read again for a new link, or for having been young.
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
        // A second name, as a backup gives it, is no change.
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
