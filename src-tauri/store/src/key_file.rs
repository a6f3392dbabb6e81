//! `key.json` in the data folder: the data key, locked, and how far encryption has been turned on or off. Without the file
//! nothing is encrypted.
//!
//! The file, written by temporary file, fsync, rename, fsync of the folder, readable by its owner only:
//!
//! ```json
//! {"contents":{
//!    "version":1,
//!    "folder":"32 hex digits, drawn when encryption was turned on",
//!    "phase":"turning_on | on | turning_off",
//!    "lock":{"kind":"passphrase",
//!            "salt":"32 hex digits","memory_kib":65536,"passes":3,"lanes":1,
//!            "nonce":"24 hex digits","wrapped":"96 hex digits"}
//!    or    {"kind":"keychain","check":"64 hex digits"}
//!  },
//!  "digest":"64 hex digits: blake3 of the contents as serde_json writes them"}
//! ```
//!
//! `wrapped` is the data key under AES-256-GCM, by a key that argon2id (RFC 9106, version 0x13) makes of the passphrase
//! in its composed form (NFC; a key wrapped under another form still unlocks); version, folder, salt and costs are
//! associated data. The digest tells damage from a wrong passphrase.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use aes_gcm::aead::{Aead, Payload};
use aes_gcm::{Aes256Gcm, KeyInit};
use argon2::{Algorithm, Argon2, Params};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::error::{Error, Result};
use crate::key::{DataKey, KEY_BYTES, Passphrase, Phase, Secret, Unlocks, fill_random, hex, unhex};
use crate::{file, keychain};

const NAME: &str = "key.json";
const VERSION: u32 = 1;
/// RFC 9106's second recommendation for machines that have other things to do: 64 MiB, three passes; one lane, since the
/// library computes lanes one after another.
const COSTS: Costs = Costs {
    memory_kib: 64 << 10,
    passes: 3,
    lanes: 1,
};
/// What a file may ask of the machine: far above what any version writes.
const MOST: Costs = Costs {
    memory_kib: 1 << 20,
    passes: 32,
    lanes: 16,
};

#[derive(Debug, Serialize, Deserialize)]
struct Written {
    contents: Contents,
    digest: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Contents {
    version: u32,
    folder: String,
    phase: Phase,
    lock: Lock,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Lock {
    Passphrase {
        salt: String,
        #[serde(flatten)]
        costs: Costs,
        nonce: String,
        wrapped: String,
    },
    Keychain {
        check: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Costs {
    memory_kib: u32,
    passes: u32,
    lanes: u32,
}

/// The key file of a data folder.
#[derive(Debug)]
pub(crate) struct KeyFile {
    path: PathBuf,
    contents: Contents,
}

impl KeyFile {
    /// Where it is in a data folder.
    pub(crate) fn path(folder: &Path) -> PathBuf {
        folder.join(NAME)
    }

    /// Reads it, if there is one.
    pub(crate) fn read(folder: &Path) -> Result<Option<KeyFile>> {
        let path = Self::path(folder);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::Io { path, source }),
        };
        match understood(&text) {
            Ok(contents) => Ok(Some(KeyFile { path, contents })),
            Err(Refusal::TooNew(found)) => Err(Error::KeyFileTooNew { path, found }),
            Err(Refusal::Damaged(reason)) => Err(Error::KeyFileDamaged { path, reason }),
        }
    }

    /// Makes one for a new key, locked by `secret`.
    pub(crate) fn create(folder: &Path, key: &DataKey, secret: &Secret) -> Result<KeyFile> {
        let path = Self::path(folder);
        let mut name = [0; 16];
        fill_random(&mut name).map_err(io(&path))?;
        let name = hex(&name);
        let lock = lock(&path, &name, key, secret)?;
        let file = KeyFile {
            path,
            contents: Contents {
                version: VERSION,
                folder: name,
                phase: Phase::TurningOn,
                lock,
            },
        };
        file.write()?;
        Ok(file)
    }

    pub(crate) fn phase(&self) -> Phase {
        self.contents.phase
    }

    pub(crate) fn unlocks(&self) -> Unlocks {
        match self.contents.lock {
            Lock::Passphrase { .. } => Unlocks::Passphrase,
            Lock::Keychain { .. } => Unlocks::Keychain,
        }
    }

    /// The data key. A passphrase is needed where the key is locked by one, and not looked at otherwise.
    pub(crate) fn unlock(&self, passphrase: Option<&Passphrase>) -> Result<DataKey> {
        match &self.contents.lock {
            Lock::Keychain { check } => {
                let key = keychain::read(&self.contents.folder)?;
                match hex(&key.check()) == *check {
                    true => Ok(key),
                    false => Err(Error::Keychain("it holds another key".into())),
                }
            }
            Lock::Passphrase {
                salt,
                costs,
                nonce,
                wrapped,
            } => {
                let passphrase = passphrase.ok_or_else(|| Error::Locked {
                    folder: self.path.parent().unwrap_or(&self.path).to_owned(),
                })?;
                self.unwrap(passphrase, salt, *costs, nonce, wrapped)
            }
        }
    }

    /// Locks the same key by another secret.
    pub(crate) fn lock_again(&mut self, key: &DataKey, secret: &Secret) -> Result<()> {
        let old = self.contents.clone();
        self.contents.lock = lock(&self.path, &old.folder, key, secret)?;
        self.write_or(old.clone())?;
        if matches!(old.lock, Lock::Keychain { .. }) && self.unlocks() != Unlocks::Keychain {
            keychain::forget(&old.folder);
        }
        Ok(())
    }

    /// Notes how far it is.
    pub(crate) fn set_phase(&mut self, phase: Phase) -> Result<()> {
        let old = self.contents.clone();
        self.contents.phase = phase;
        self.write_or(old)
    }

    /// Deletes it: nothing is encrypted any more.
    pub(crate) fn remove(self) -> Result<()> {
        std::fs::remove_file(&self.path).map_err(io(&self.path))?;
        self.path
            .parent()
            .map_or(Ok(()), file::sync_dir)
            .map_err(io(&self.path))?;
        if self.unlocks() == Unlocks::Keychain {
            keychain::forget(&self.contents.folder);
        }
        Ok(())
    }

    fn unwrap(
        &self,
        passphrase: &Passphrase,
        salt: &str,
        costs: Costs,
        nonce: &str,
        wrapped: &str,
    ) -> Result<DataKey> {
        let damaged = |reason: &str| Error::KeyFileDamaged {
            path: self.path.clone(),
            reason: reason.to_owned(),
        };
        let (salt, nonce, wrapped) = (unhex(salt), unhex(nonce), unhex(wrapped));
        let (Some(salt), Some(nonce), Some(wrapped)) = (salt, nonce, wrapped) else {
            return Err(damaged("a value is not hex"));
        };
        if nonce.len() != 12 || wrapped.len() != KEY_BYTES + 16 || salt.len() < 8 {
            return Err(damaged("a value has another length"));
        }
        if costs.memory_kib > MOST.memory_kib
            || costs.passes > MOST.passes
            || costs.lanes > MOST.lanes
        {
            return Err(damaged("its costs are out of bounds"));
        }
        let associated = associated(&self.contents.folder, &salt, costs);
        for form in passphrase.forms() {
            let cipher = cipher(&form, &salt, costs).map_err(|reason| damaged(&reason))?;
            let sealed = Payload {
                msg: &wrapped,
                aad: &associated,
            };
            if let Ok(bytes) = cipher.decrypt(nonce.as_slice().into(), sealed) {
                let bytes = Zeroizing::new(bytes);
                return DataKey::from_bytes(&bytes)
                    .ok_or_else(|| damaged("its key has another length"));
            }
        }
        Err(Error::WrongPassphrase)
    }

    fn write_or(&mut self, old: Contents) -> Result<()> {
        self.write().inspect_err(|_| self.contents = old)
    }

    fn write(&self) -> Result<()> {
        let io = io(&self.path);
        let written = Written {
            digest: digest(&self.contents)?,
            contents: self.contents.clone(),
        };
        let text = serde_json::to_vec(&written)?;
        let temp = self.path.with_extension("json.new");
        match std::fs::remove_file(&temp) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(io(error)),
            _ => {}
        }
        let mut file = file::open_private(&temp).map_err(&io)?;
        file.write_all(&text)
            .and_then(|()| file.sync_all())
            .map_err(&io)?;
        drop(file);
        std::fs::rename(&temp, &self.path).map_err(&io)?;
        self.path
            .parent()
            .map_or(Ok(()), file::sync_dir)
            .map_err(&io)
    }
}

enum Refusal {
    TooNew(u32),
    Damaged(String),
}

fn understood(text: &[u8]) -> Result<Contents, Refusal> {
    let damaged = |error: serde_json::Error| Refusal::Damaged(error.to_string());
    let value: serde_json::Value = serde_json::from_slice(text).map_err(damaged)?;
    let version = value["contents"]["version"].as_u64().unwrap_or(0);
    if version > u64::from(VERSION) {
        return Err(Refusal::TooNew(u32::try_from(version).unwrap_or(u32::MAX)));
    }
    let written: Written = serde_json::from_value(value).map_err(damaged)?;
    match digest(&written.contents) {
        Ok(digest) if digest == written.digest => Ok(written.contents),
        _ => Err(Refusal::Damaged("its digest differs".to_owned())),
    }
}

fn digest(contents: &Contents) -> Result<String> {
    let text = serde_json::to_string(contents)?;
    Ok(blake3::hash(text.as_bytes()).to_hex().to_string())
}

/// Locks a key; a keychain has it when this returns.
fn lock(path: &Path, folder: &str, key: &DataKey, secret: &Secret) -> Result<Lock> {
    match secret {
        Secret::Keychain => {
            keychain::keep(folder, key)?;
            Ok(Lock::Keychain {
                check: hex(&key.check()),
            })
        }
        Secret::Passphrase { passphrase } => {
            if !passphrase.is_long_enough() {
                return Err(Error::PassphraseTooShort);
            }
            lock_by_words(path, folder, key, &passphrase.composed())
        }
    }
}

fn lock_by_words(path: &Path, folder: &str, key: &DataKey, words: &str) -> Result<Lock> {
    let (mut salt, mut nonce) = ([0; 16], [0; 12]);
    fill_random(&mut salt)
        .and_then(|()| fill_random(&mut nonce))
        .map_err(io(path))?;
    let failed = |reason: String| io(path)(std::io::Error::other(reason));
    let cipher = cipher(words, &salt, COSTS).map_err(failed)?;
    let plain = Payload {
        msg: key.bytes(),
        aad: &associated(folder, &salt, COSTS),
    };
    let wrapped = cipher
        .encrypt(&nonce.into(), plain)
        .map_err(|error| failed(error.to_string()))?;
    Ok(Lock::Passphrase {
        salt: hex(&salt),
        costs: COSTS,
        nonce: hex(&nonce),
        wrapped: hex(&wrapped),
    })
}

fn cipher(passphrase: &str, salt: &[u8], costs: Costs) -> Result<Aes256Gcm, String> {
    let Costs {
        memory_kib,
        passes,
        lanes,
    } = costs;
    let params = Params::new(memory_kib, passes, lanes, Some(KEY_BYTES));
    let params = params.map_err(|error| error.to_string())?;
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    Argon2::new(Algorithm::Argon2id, argon2::Version::V0x13, params)
        .hash_password_into(passphrase.as_bytes(), salt, key.as_mut_slice())
        .map_err(|error| error.to_string())?;
    Ok(Aes256Gcm::new(key.as_slice().into()))
}

fn associated(folder: &str, salt: &[u8], costs: Costs) -> Vec<u8> {
    let Costs {
        memory_kib,
        passes,
        lanes,
    } = costs;
    let salt = hex(salt);
    format!("reprise key {VERSION} {folder} {salt} {memory_kib} {passes} {lanes}").into_bytes()
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::Io {
        path: path.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_an_older_version_locked_by_another_form_still_unlocks() {
        let folder = tempfile::tempdir().unwrap();
        let words = |words: &str| Passphrase::from(words.to_owned());
        let (composed, decomposed) = ("café 結果 pass", "cafe\u{301} 結果 pass");
        let key = DataKey::random().unwrap();
        let secret = Secret::Passphrase {
            passphrase: words(composed),
        };
        let mut file = KeyFile::create(folder.path(), &key, &secret).unwrap();
        // Half-width kana differ in each normalization form.
        for older in [composed, decomposed, "cafe\u{301} ｶﾞ pass"] {
            file.contents.lock =
                lock_by_words(&file.path, &file.contents.folder, &key, older).unwrap();
            file.write().unwrap();
            let read = KeyFile::read(folder.path()).unwrap().unwrap();
            assert!(read.unlock(Some(&words(older))).unwrap() == key, "{older}");
            if older != "cafe\u{301} ｶﾞ pass" {
                for form in [composed, decomposed] {
                    assert!(
                        read.unlock(Some(&words(form))).unwrap() == key,
                        "{older} by {form}"
                    );
                }
            }
            let wrong = read.unlock(Some(&words("cafe 結果 pass")));
            assert!(matches!(wrong, Err(Error::WrongPassphrase)));
        }
    }
}
