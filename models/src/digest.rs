//! The content digest of a weight file, remembered so that gigabytes are not hashed at every start.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::stamp::Stamp;

/// BLAKE3 digests of files by path, valid while the file's stamp stays the same: size, times, file index and sampled
/// pages. Kept in a small JSON file, or in memory only. The file is a cache: if it is unreadable, of another version or
/// edited by hand, it counts as empty; a failed write is only logged.
#[derive(Debug)]
pub struct DigestCache {
    path: Option<PathBuf>,
    entries: Mutex<BTreeMap<PathBuf, Entry>>,
}

/// Raised when the fields of a stamp change; entries of another version are ignored.
const VERSION: u32 = 2;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    version: u32,
    entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    stamp: Stamp,
    /// Lower-case hexadecimal.
    digest: String,
    /// BLAKE3 of path, stamp and digest. An entry that was edited or moved to another path fails the check and is
    /// ignored.
    check: String,
}

impl Entry {
    fn new(path: &Path, stamp: Stamp, digest: &[u8; 32]) -> Entry {
        let digest = blake3::Hash::from(*digest).to_hex().to_string();
        let check = check(path, &stamp, &digest);
        Entry {
            stamp,
            digest,
            check,
        }
    }

    fn digest(&self, path: &Path, stamp: &Stamp) -> Option<[u8; 32]> {
        let is_whole = self.check == check(path, &self.stamp, &self.digest);
        let digest = blake3::Hash::from_hex(&self.digest).ok()?;
        (is_whole && self.stamp == *stamp).then(|| digest.into())
    }
}

fn check(path: &Path, stamp: &Stamp, digest: &str) -> String {
    let of = format!("{VERSION}\n{path:?}\n{stamp:?}\n{digest}");
    blake3::hash(of.as_bytes()).to_hex().to_string()
}

impl DigestCache {
    /// With a path: digests survive the process. Without: they do not.
    pub fn new(path: Option<PathBuf>) -> DigestCache {
        let kept: Kept = path
            .as_ref()
            .and_then(|path| std::fs::read(path).ok())
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .filter(|kept: &Kept| kept.version == VERSION)
            .unwrap_or_default();
        DigestCache {
            path,
            entries: Mutex::new(kept.entries),
        }
    }

    /// The folder of its file.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.path.as_deref()?.parent()
    }

    /// The digest of the content of `file`, which was opened at `path`; `pages` are positions to sample.
    pub(crate) fn of(&self, path: &Path, file: &File, pages: &[u64]) -> Result<[u8; 32]> {
        let read = |source| Error::of_path(path, source);
        let key = path.canonicalize().map_err(read)?;
        let before = Stamp::of(file, pages).map_err(read)?;
        let mut entries = self
            .entries
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(digest) = entries.get(&key).and_then(|e| e.digest(&key, &before)) {
            return Ok(digest);
        }
        let digest = hash(file).map_err(read)?;
        let after = Stamp::of(file, pages).map_err(read)?;
        if before == after && before.attributes.are_settled(SystemTime::now()) {
            let entry = Entry::new(&key, before, &digest);
            entries.insert(key, entry);
            self.save(&entries);
        }
        Ok(digest)
    }

    fn save(&self, entries: &BTreeMap<PathBuf, Entry>) {
        let Some(path) = &self.path else { return };
        let write = || -> std::io::Result<()> {
            let kept = Kept {
                version: VERSION,
                entries: entries.clone(),
            };
            let partial = path.with_extension("partial");
            let mut file = File::create(&partial)?;
            file.write_all(&serde_json::to_vec_pretty(&kept)?)?;
            file.sync_all()?;
            std::fs::rename(&partial, path)
        };
        if let Err(error) = write() {
            tracing::warn!(path = %path.display(), %error, "digest cache not saved");
        }
    }
}

/// BLAKE3 of all of a file, read now.
pub(crate) fn hash(mut file: &File) -> std::io::Result<[u8; 32]> {
    file.seek(SeekFrom::Start(0))?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file)?;
    Ok(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::stamp::PAGE;

    struct Bench {
        dir: tempfile::TempDir,
    }

    impl Bench {
        /// Creates a file with this content and an old modification time, so that its stamp counts as settled.
        fn new(content: &[u8]) -> Bench {
            let bench = Bench {
                dir: tempfile::tempdir().unwrap(),
            };
            bench.write(content);
            bench
        }

        fn file(&self) -> PathBuf {
            self.dir.path().join("w")
        }

        fn json(&self) -> PathBuf {
            self.dir.path().join("digests.json")
        }

        /// Writes the file in place and sets its modification time to a fixed value.
        fn write(&self, content: &[u8]) {
            std::fs::write(self.file(), content).unwrap();
            let file = File::options().write(true).open(self.file()).unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
            file.set_modified(time).unwrap();
        }

        fn stamp(&self) -> Stamp {
            Stamp::of(&File::open(self.file()).unwrap(), &[]).unwrap()
        }

        /// The file's digest from a cache that stored `digest` under `stamp` and whose JSON was changed by `edit`.
        fn kept(
            &self,
            stamp: Stamp,
            digest: [u8; 32],
            edit: impl Fn(String) -> String,
        ) -> [u8; 32] {
            let key = self.file().canonicalize().unwrap();
            let entry = Entry::new(&key, stamp, &digest);
            let cache = DigestCache::new(Some(self.json()));
            cache.save(&BTreeMap::from([(key, entry)]));
            let text = edit(std::fs::read_to_string(self.json()).unwrap());
            std::fs::write(self.json(), text).unwrap();
            self.digest()
        }

        fn digest(&self) -> [u8; 32] {
            let file = File::open(self.file()).unwrap();
            let cache = DigestCache::new(Some(self.json()));
            cache.of(&self.file(), &file, &[]).unwrap()
        }
    }

    fn of(content: &[u8]) -> [u8; 32] {
        *blake3::hash(content).as_bytes()
    }

    /// A digest of no real content: if it is returned, it came from the cache.
    const KEPT: [u8; 32] = [0xab; 32];

    #[test]
    fn a_digest_is_remembered_while_the_stamp_holds() {
        let bench = Bench::new(b"one");
        assert_eq!(bench.kept(bench.stamp(), KEPT, |text| text), KEPT);
        bench.write(b"two");
        assert_eq!(bench.digest(), of(b"two"), "same size, time and inode");
    }

    #[test]
    fn pages_tell_where_nothing_else_of_the_stamp_does() {
        let mut content = vec![7; 40 * PAGE as usize];
        let bench = Bench::new(&content);
        let old = bench.stamp();
        content[9 * PAGE as usize + 5] ^= 1;
        bench.write(&content);
        // Like a file system without change times and file indexes.
        let forged = Stamp {
            attributes: bench.stamp().attributes,
            ..old
        };
        assert_eq!(bench.kept(forged, KEPT, |text| text), of(&content));
    }

    #[test]
    fn what_was_edited_or_is_of_another_version_is_not_believed() {
        let bench = Bench::new(b"one");
        let kept = |edit: &dyn Fn(String) -> String| bench.kept(bench.stamp(), KEPT, edit);
        assert_eq!(kept(&|text| text), KEPT);
        let other = "cd".repeat(32);
        assert_eq!(
            kept(&|text| text.replace(&"ab".repeat(32), &other)),
            of(b"one")
        );
        let version = "\"version\": 2";
        assert_eq!(
            kept(&|text| text.replace(version, "\"version\": 1")),
            of(b"one")
        );
        assert_eq!(kept(&|text| text[1..].to_string()), of(b"one"));
        // The first version: a stamp of size, time and inode.
        let path = bench.file().canonicalize().unwrap();
        let first = format!(
            r#"{{{path:?}:{{"stamp":{{"size":3,"modified":1600000000000000000,"inode":1}},"digest":"{other}"}}}}"#
        );
        assert_eq!(kept(&|_| first.clone()), of(b"one"));
    }

    #[test]
    fn a_file_changed_just_now_is_not_remembered() {
        let bench = Bench::new(b"one");
        assert_eq!(bench.digest(), of(b"one"));
        // The modification time is old, but the change time is recent.
        assert!(!bench.json().exists());
    }
}
