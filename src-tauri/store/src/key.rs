//! What the words and blocks of a data folder are sealed under: one random key, and what unlocks it.

use std::fmt;
use std::sync::Arc;

use aes_gcm::{Aes256Gcm, KeyInit};
use serde::{Deserialize, Serialize};
use ts_rs::TS;
use unicode_normalization::UnicodeNormalization;
use zeroize::{Zeroize, Zeroizing};

/// Bytes of every key here.
pub(crate) const KEY_BYTES: usize = 32;
/// The least number of characters of a passphrase.
pub const LEAST_PASSPHRASE: usize = 8;

/// How bytes stand on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Form {
    /// As they are.
    Plain,
    /// Encrypted and authenticated.
    Sealed,
}

/// The key of a data folder: 256 random bits, from which every other is derived. It is overwritten when it goes, and
/// nothing prints it.
#[derive(PartialEq, Eq)]
// In a box, so that moving it leaves no copy.
pub(crate) struct DataKey(Box<Zeroizing<[u8; KEY_BYTES]>>);

impl DataKey {
    pub(crate) fn random() -> std::io::Result<Self> {
        let mut bytes = Box::new(Zeroizing::new([0; KEY_BYTES]));
        fill_random(bytes.as_mut_slice())?;
        Ok(Self(bytes))
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: [u8; KEY_BYTES] = bytes.try_into().ok()?;
        Some(Self(Box::new(Zeroizing::new(bytes))))
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// What shows that a key is this one and tells nothing else of it.
    pub(crate) fn check(&self) -> [u8; KEY_BYTES] {
        blake3::derive_key("reprise 2026 check of the data key", self.bytes())
    }

    /// The raw key of a database for SQLCipher, `x'…'` of the key and the first 16 bytes of the file. These are a salt
    /// elsewhere; here the key is used for one file only, so that they can say what the file is.
    pub(crate) fn database(&self, of: Database) -> Zeroizing<String> {
        let context = match of {
            Database::History => "reprise 2026 history",
            Database::Index => "reprise 2026 block index",
        };
        let key = Zeroizing::new(blake3::derive_key(context, self.bytes()));
        let digits = Zeroizing::new(hex(key.as_slice()));
        Zeroizing::new(format!("x'{}{}'", digits.as_str(), hex(SEALED_DATABASE)))
    }

    /// The cipher of one slot as it is written once: `salt` is random and stands in the slot.
    pub(crate) fn slot(&self, salt: &[u8; KEY_BYTES]) -> Aes256Gcm {
        let mut material = Zeroizing::new([0; 2 * KEY_BYTES]);
        material[..KEY_BYTES].copy_from_slice(self.bytes());
        material[KEY_BYTES..].copy_from_slice(salt);
        let key = Zeroizing::new(blake3::derive_key(
            "reprise 2026 block slot",
            material.as_slice(),
        ));
        Aes256Gcm::new(key.as_slice().into())
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey")
    }
}

/// What a sealed database begins with.
pub(crate) const SEALED_DATABASE: &[u8; 16] = b"Reprise sealed 1";

/// The databases of a data folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Database {
    History,
    Index,
}

/// How far encryption of a data folder has been turned on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Phase {
    /// What is written is sealed; what is still plain is being rewritten.
    TurningOn,
    /// Everything is sealed.
    On,
    /// What is written is plain; what is still sealed is being rewritten.
    TurningOff,
}

/// What a block store needs to write and read sealed slots; from [`History::seal`](crate::History::seal).
#[derive(Clone, Debug)]
pub struct Seal {
    pub(crate) key: Arc<DataKey>,
    pub(crate) phase: Phase,
}

impl Seal {
    /// How bytes are to be written.
    pub(crate) fn form(&self) -> Form {
        match self.phase {
            Phase::TurningOn | Phase::On => Form::Sealed,
            Phase::TurningOff => Form::Plain,
        }
    }

    /// Whether bytes of this form may be there.
    pub(crate) fn accepts(&self, form: Form) -> bool {
        form == Form::Sealed || self.phase != Phase::On
    }
}

/// How bytes are to be written under a seal, or without one.
pub(crate) fn form_of(seal: Option<&Seal>) -> Form {
    seal.map_or(Form::Plain, Seal::form)
}

/// Words that unlock a data folder. Overwritten when they go, and nothing prints them. A passphrase in another Unicode
/// normalization form is the same passphrase, since the form depends on the keyboard.
#[derive(Clone, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Passphrase(String);

impl Passphrase {
    /// The composed form (NFC), which wraps a new key, as in RFC 8265.
    pub(crate) fn composed(&self) -> Zeroizing<String> {
        composed(&self.0)
    }

    /// Every form that may have wrapped a key, each once: NFC, NFD, NFKC, and as entered. Earlier versions used the
    /// passphrase as entered.
    pub(crate) fn forms(&self) -> Vec<Zeroizing<String>> {
        let mut forms = vec![self.composed()];
        let others = [
            collected(self.0.nfd(), self.0.len()),
            collected(self.0.nfkc(), self.0.len()),
            Zeroizing::new(self.0.clone()),
        ];
        for form in others {
            if !forms.contains(&form) {
                forms.push(form);
            }
        }
        forms
    }

    pub(crate) fn is_long_enough(&self) -> bool {
        self.composed().chars().count() >= LEAST_PASSPHRASE
    }
}

impl PartialEq for Passphrase {
    fn eq(&self, other: &Self) -> bool {
        self.composed() == other.composed()
    }
}

fn composed(words: &str) -> Zeroizing<String> {
    collected(words.nfc(), words.len())
}

/// Collects into a buffer that is large enough from the start, since growing would leave copies in memory. No
/// normalization form is more than 18 times as long.
fn collected(chars: impl Iterator<Item = char>, length: usize) -> Zeroizing<String> {
    let mut form = Zeroizing::new(String::with_capacity(length * 18));
    form.extend(chars);
    form
}

impl From<String> for Passphrase {
    fn from(words: String) -> Self {
        Self(words)
    }
}

impl Drop for Passphrase {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passphrase")
    }
}

/// What a data folder is to be unlocked with.
#[derive(Clone, Debug, Serialize, Deserialize, TS)]
#[serde(tag = "with", rename_all = "snake_case")]
pub enum Secret {
    /// Words that only the person knows.
    Passphrase {
        /// The words.
        #[ts(type = "string")]
        passphrase: Passphrase,
    },
    /// The keychain of the system, which opens with the person's session.
    Keychain,
}

impl Secret {
    /// The words, if it is words.
    pub fn passphrase(&self) -> Option<&Passphrase> {
        match self {
            Secret::Passphrase { passphrase } => Some(passphrase),
            Secret::Keychain => None,
        }
    }
}

/// What unlocks a data folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Unlocks {
    /// A passphrase.
    Passphrase,
    /// The system's keychain.
    Keychain,
}

/// Whether the conversations of a data folder are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Privacy {
    /// They are not.
    Off,
    /// They are, and blocks that are not yet are being rewritten.
    TurningOn,
    /// They are.
    On,
    /// They are not any more, and blocks that still are are being rewritten.
    TurningOff,
}

impl From<Phase> for Privacy {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::TurningOn => Self::TurningOn,
            Phase::On => Self::On,
            Phase::TurningOff => Self::TurningOff,
        }
    }
}

/// Fills `bytes` from the system's source of randomness.
pub(crate) fn fill_random(bytes: &mut [u8]) -> std::io::Result<()> {
    getrandom::fill(bytes).map_err(std::io::Error::other)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of an even number of hex digits.
pub(crate) fn unhex(digits: &str) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_passphrases_are_never_printed() {
        let key = DataKey::from_bytes(&[0xAB; 32]).unwrap();
        let secret = Secret::Passphrase {
            passphrase: "open sesame".to_owned().into(),
        };
        let seal = Seal {
            key: Arc::new(key),
            phase: Phase::On,
        };
        let printed = format!("{seal:?} {secret:?}");
        assert!(!printed.contains("sesame") && !printed.contains("171"));
    }

    #[test]
    fn every_form_of_a_passphrase_is_the_same_passphrase() {
        let (composed, decomposed): (Passphrase, Passphrase) = (
            "café 結果 pass".to_owned().into(),
            "cafe\u{301} 結果 pass".to_owned().into(),
        );
        assert_eq!(composed, decomposed);
        assert_eq!(composed.composed(), decomposed.composed());
        let forms = |words: &str| Passphrase::from(words.to_owned()).forms().len();
        assert_eq!(
            (forms("plain words"), forms("café"), forms("ｶﾅ é")),
            (1, 2, 3)
        );
        assert!(!Passphrase::from("e\u{301}".repeat(7)).is_long_enough());
        assert!(Passphrase::from("結".repeat(8)).is_long_enough());
    }

    #[test]
    fn every_use_of_the_key_has_a_key_of_its_own() {
        let key = DataKey::from_bytes(&[1; 32]).unwrap();
        let (history, index) = (
            key.database(Database::History),
            key.database(Database::Index),
        );
        assert_ne!(history, index);
        assert!(history.ends_with("52657072697365207365616c65642031'"));
        assert!(!history.contains(&hex(&key.check())) && !history.contains(&hex(key.bytes())));
    }

    #[test]
    fn hex_digits_and_back() {
        assert_eq!(unhex(&hex(&[0, 9, 255])), Some(vec![0, 9, 255]));
        assert_eq!((unhex("abc"), unhex("zz"), unhex("é")), (None, None, None));
    }
}
