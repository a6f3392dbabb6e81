//! The keychain of the system: it keeps the data key as hex digits, under the data folder's own random name.

use keyring::Entry;
use zeroize::Zeroizing;

use crate::error::{Error, Result};
use crate::key::{DataKey, hex, unhex};

const SERVICE: &str = "reprise";

/// Keeps a data folder's key.
pub(crate) fn keep(folder: &str, key: &DataKey) -> Result<()> {
    let digits = Zeroizing::new(hex(key.bytes()));
    let entry = entry(folder)?;
    entry.set_password(&digits).map_err(failed)?;
    // What cannot be read back would be lost.
    match read(folder)? {
        found if found == *key => Ok(()),
        _ => Err(Error::Keychain("it does not keep what it is given".into())),
    }
}

/// A data folder's key.
pub(crate) fn read(folder: &str) -> Result<DataKey> {
    let digits = Zeroizing::new(entry(folder)?.get_password().map_err(failed)?);
    let bytes = Zeroizing::new(unhex(&digits).unwrap_or_default());
    DataKey::from_bytes(&bytes)
        .ok_or_else(|| Error::Keychain("its entry for this data folder is damaged".into()))
}

/// Forgets a data folder's key. What stays behind opens nothing any more.
pub(crate) fn forget(folder: &str) {
    let forgotten = entry(folder).and_then(|entry| entry.delete_credential().map_err(failed));
    if let Err(error) = forgotten {
        tracing::warn!(%error, "an old key stays in the keychain");
    }
}

fn entry(folder: &str) -> Result<Entry> {
    if !cfg!(any(target_os = "linux", windows)) {
        // Elsewhere the library has a keychain that forgets when the process ends.
        return Err(Error::Keychain("this system's is not supported".into()));
    }
    Entry::new(SERVICE, folder).map_err(failed)
}

fn failed(error: keyring::Error) -> Error {
    Error::Keychain(match error {
        keyring::Error::NoEntry => "it has no entry for this data folder".into(),
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::cell::Cell;
    use std::collections::HashMap;
    use std::sync::{LazyLock, Mutex};

    use keyring::credential::{
        Credential, CredentialApi, CredentialBuilderApi, CredentialPersistence,
    };

    use crate::{Error, History, Privacy, Secret, Unlocks};

    /// A keychain in memory, of this process only.
    static KEPT: LazyLock<Mutex<HashMap<String, Vec<u8>>>> = LazyLock::new(Mutex::default);

    thread_local! {
        /// It does not answer this thread.
        static IS_GONE: Cell<bool> = const { Cell::new(false) };
    }

    struct Builder;

    impl CredentialBuilderApi for Builder {
        fn build(
            &self,
            _: Option<&str>,
            service: &str,
            user: &str,
        ) -> keyring::Result<Box<Credential>> {
            assert_eq!(service, "reprise");
            match IS_GONE.get() {
                true => Err(keyring::Error::PlatformFailure("nobody is there".into())),
                false => Ok(Box::new(Kept(user.to_owned()))),
            }
        }

        fn as_any(&self) -> &dyn Any {
            self
        }

        fn persistence(&self) -> CredentialPersistence {
            CredentialPersistence::ProcessOnly
        }
    }

    struct Kept(String);

    impl CredentialApi for Kept {
        fn set_secret(&self, secret: &[u8]) -> keyring::Result<()> {
            KEPT.lock().unwrap().insert(self.0.clone(), secret.to_vec());
            Ok(())
        }

        fn get_secret(&self) -> keyring::Result<Vec<u8>> {
            let kept = KEPT.lock().unwrap();
            kept.get(&self.0).cloned().ok_or(keyring::Error::NoEntry)
        }

        fn delete_credential(&self) -> keyring::Result<()> {
            let gone = KEPT.lock().unwrap().remove(&self.0);
            gone.map(drop).ok_or(keyring::Error::NoEntry)
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    fn entry_of(folder: &std::path::Path) -> String {
        let text = std::fs::read_to_string(folder.join("key.json")).unwrap();
        let file: serde_json::Value = serde_json::from_str(&text).unwrap();
        file["contents"]["folder"].as_str().unwrap().to_owned()
    }

    #[test]
    fn a_key_in_the_keychain_opens_the_history_and_goes_when_it_is_not_needed() {
        keyring::set_default_credential_builder(Box::new(Builder));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.db");
        let mut history = History::open(&path).unwrap();
        history.protect(&Secret::Keychain).unwrap();
        history.finish_privacy().unwrap();
        drop(history);
        let entry = entry_of(folder.path());
        assert_eq!(
            History::unlocked_by(&path).unwrap(),
            Some(Unlocks::Keychain)
        );
        let mut history = History::open(&path).unwrap();
        assert_eq!(history.privacy(), Privacy::On);

        let passphrase = Secret::Passphrase {
            passphrase: "open sesame".to_owned().into(),
        };
        history.change_secret(None, &passphrase).unwrap();
        assert!(!KEPT.lock().unwrap().contains_key(&entry));
        let words = "open sesame".to_owned().into();
        history
            .change_secret(Some(&words), &Secret::Keychain)
            .unwrap();
        drop(history);
        let mut history = History::open(&path).unwrap();
        history.unprotect().unwrap();
        assert!(KEPT.lock().unwrap().contains_key(&entry));
        history.finish_privacy().unwrap();
        assert!(!KEPT.lock().unwrap().contains_key(&entry));
        assert!(!folder.path().join("key.json").exists());
    }

    #[test]
    fn a_keychain_that_fails_is_told_with_what_to_do_and_changes_nothing() {
        keyring::set_default_credential_builder(Box::new(Builder));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.db");
        let mut history = History::open(&path).unwrap();
        IS_GONE.set(true);
        let refused = history.protect(&Secret::Keychain).unwrap_err();
        assert!(matches!(refused, Error::Keychain(_)));
        assert!(
            refused.to_string().contains("use a passphrase"),
            "{refused}"
        );
        assert_eq!(history.privacy(), Privacy::Off);
        assert!(!folder.path().join("key.json").exists());

        IS_GONE.set(false);
        history.protect(&Secret::Keychain).unwrap();
        drop(history);
        let entry = entry_of(folder.path());
        let key = KEPT.lock().unwrap().remove(&entry).unwrap();
        for (kept, told) in [
            (None, "no entry"),
            (Some("0".repeat(64)), "another key"),
            (Some("zz".into()), "damaged"),
        ] {
            kept.map(|kept| {
                KEPT.lock()
                    .unwrap()
                    .insert(entry.clone(), kept.into_bytes())
            });
            let refused = History::open(&path).unwrap_err();
            assert!(refused.to_string().contains(told), "{refused}");
        }
        KEPT.lock().unwrap().insert(entry, key);
        History::open(&path).unwrap();
    }
}
