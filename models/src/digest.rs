//! The content digest of a weight file, remembered so that gigabytes are not hashed at every start.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// BLAKE3 digests of files by path, valid while size, modification time and inode stay the same. Kept in a small JSON
/// file, or in memory only. The file is a cache: unreadable means empty, a failed write is only logged.
#[derive(Debug)]
pub struct DigestCache {
    path: Option<PathBuf>,
    entries: Mutex<BTreeMap<PathBuf, Entry>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    stamp: Stamp,
    /// Lower-case hexadecimal.
    digest: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Stamp {
    size: u64,
    /// Nanoseconds since 1970.
    modified: u128,
    /// 0 where the system has none.
    inode: u64,
}

/// A file changed this recently may change again without its time stamp showing it, so its digest is not remembered.
const SETTLED: Duration = Duration::from_secs(2);

impl DigestCache {
    /// With a path: digests survive the process. Without: they do not.
    pub fn new(path: Option<PathBuf>) -> DigestCache {
        let entries = path
            .as_ref()
            .and_then(|path| std::fs::read(path).ok())
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        DigestCache {
            path,
            entries: Mutex::new(entries),
        }
    }

    /// The folder of its file.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.path.as_deref()?.parent()
    }

    /// The digest of the file's content.
    pub fn digest(&self, file: &Path) -> Result<[u8; 32]> {
        let read = |source| Error::Read {
            path: file.to_path_buf(),
            source,
        };
        let key = file.canonicalize().map_err(read)?;
        let opened = File::open(&key).map_err(read)?;
        let before = Stamp::of(&opened).map_err(read)?;
        let mut entries = self
            .entries
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(digest) = entries
            .get(&key)
            .filter(|e| e.stamp == before)
            .and_then(|e| parse(&e.digest))
        {
            return Ok(digest);
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(&opened).map_err(read)?;
        let digest = *hasher.finalize().as_bytes();
        let after = Stamp::of(&opened).map_err(read)?;
        if before == after && before.settled(SystemTime::now()) {
            entries.insert(
                key,
                Entry {
                    stamp: before,
                    digest: blake3::Hash::from(digest).to_hex().to_string(),
                },
            );
            self.save(&entries);
        }
        Ok(digest)
    }

    fn save(&self, entries: &BTreeMap<PathBuf, Entry>) {
        let Some(path) = &self.path else { return };
        let write = || -> std::io::Result<()> {
            let partial = path.with_extension("partial");
            let mut file = File::create(&partial)?;
            file.write_all(&serde_json::to_vec_pretty(entries)?)?;
            file.sync_all()?;
            std::fs::rename(&partial, path)
        };
        if let Err(error) = write() {
            tracing::warn!(path = %path.display(), %error, "digest cache not saved");
        }
    }
}

impl Stamp {
    fn of(file: &File) -> std::io::Result<Stamp> {
        let meta = file.metadata()?;
        let modified = meta
            .modified()?
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_nanos());
        #[cfg(unix)]
        let inode = std::os::unix::fs::MetadataExt::ino(&meta);
        #[cfg(not(unix))]
        let inode = 0;
        Ok(Stamp {
            size: meta.len(),
            modified,
            inode,
        })
    }

    fn settled(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        self.modified + SETTLED.as_nanos() < now
    }
}

fn parse(hex: &str) -> Option<[u8; 32]> {
    blake3::Hash::from_hex(hex).ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn age(path: &Path, seconds: u64) {
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds))
            .unwrap();
    }

    #[test]
    fn a_changed_file_is_hashed_again_and_a_settled_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (file, json) = (dir.path().join("w"), dir.path().join("digests.json"));
        std::fs::write(&file, b"one").unwrap();
        age(&file, 100);
        let cache = DigestCache::new(Some(json.clone()));
        assert_eq!(
            cache.digest(&file).unwrap(),
            *blake3::hash(b"one").as_bytes()
        );
        assert!(std::fs::read_to_string(&json).unwrap().contains("inode"));

        // A forged entry is believed: proof that the second read comes from the cache.
        let forged = std::fs::read_to_string(&json)
            .unwrap()
            .replace(&blake3::hash(b"one").to_hex()[..], &"ab".repeat(32));
        std::fs::write(&json, forged).unwrap();
        let cache = DigestCache::new(Some(json.clone()));
        assert_eq!(cache.digest(&file).unwrap(), [0xab; 32]);

        std::fs::write(&file, b"two").unwrap();
        age(&file, 50);
        assert_eq!(
            cache.digest(&file).unwrap(),
            *blake3::hash(b"two").as_bytes()
        );
    }

    #[test]
    fn a_file_changed_just_now_is_not_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let (file, json) = (dir.path().join("w"), dir.path().join("digests.json"));
        std::fs::write(&file, b"one").unwrap();
        let cache = DigestCache::new(Some(json.clone()));
        cache.digest(&file).unwrap();
        assert!(!json.exists());
    }

    #[test]
    fn a_broken_cache_file_is_an_empty_cache() {
        let dir = tempfile::tempdir().unwrap();
        let (file, json) = (dir.path().join("w"), dir.path().join("digests.json"));
        std::fs::write(&file, b"one").unwrap();
        std::fs::write(&json, b"{ not json").unwrap();
        let cache = DigestCache::new(Some(json));
        assert_eq!(
            cache.digest(&file).unwrap(),
            *blake3::hash(b"one").as_bytes()
        );
        assert!(matches!(
            cache.digest(&dir.path().join("none")),
            Err(Error::Read { .. })
        ));
    }
}
