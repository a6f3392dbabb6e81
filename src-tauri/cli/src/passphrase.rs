//! Passphrases: from the environment, or from whoever sits at the terminal, unseen. Never from the command line, which
//! other users can read.

use std::io::IsTerminal;
use std::path::Path;

use store::{History, Passphrase, Unlocks};

use crate::error::{Error, Result};

const CURRENT: &str = "REPRISE_PASSPHRASE";
const NEW: &str = "REPRISE_NEW_PASSPHRASE";

/// Opens a history with `open`, after reading the passphrase if it needs one.
pub(crate) fn unlock(
    path: &Path,
    open: impl Fn(&Path, Option<&Passphrase>) -> store::Result<History>,
) -> Result<History> {
    let passphrase = match History::unlocked_by(path)? {
        // Without one the store says what is missing.
        Some(Unlocks::Passphrase) => current()?,
        _ => None,
    };
    Ok(open(path, passphrase.as_ref())?)
}

/// The passphrase until now; none if nobody says one.
pub(crate) fn current() -> Result<Option<Passphrase>> {
    match from_environment(CURRENT) {
        Some(passphrase) => Ok(Some(passphrase)),
        None if is_asked() => ask("Passphrase: ").map(Some),
        None => Ok(None),
    }
}

/// A passphrase to encrypt with, where there was none before.
pub(crate) fn first() -> Result<Passphrase> {
    match from_environment(CURRENT) {
        Some(passphrase) => Ok(passphrase),
        None => ask_twice(CURRENT),
    }
}

/// A passphrase to take the place of another.
pub(crate) fn new() -> Result<Passphrase> {
    match from_environment(NEW) {
        Some(passphrase) => Ok(passphrase),
        None => ask_twice(NEW),
    }
}

fn from_environment(name: &str) -> Option<Passphrase> {
    let words = std::env::var(name).ok()?;
    (!words.is_empty()).then(|| words.into())
}

fn ask_twice(variable: &str) -> Result<Passphrase> {
    if !is_asked() {
        return Err(Error::InvalidArgument(format!(
            "a passphrase is needed; set {variable}, or run this in a terminal"
        )));
    }
    let passphrase = ask("New passphrase: ")?;
    match ask("Once more: ")? == passphrase {
        true => Ok(passphrase),
        false => Err(Error::InvalidArgument(
            "the two passphrases differ; nothing was changed".into(),
        )),
    }
}

fn is_asked() -> bool {
    std::io::stdin().is_terminal()
}

fn ask(question: &str) -> Result<Passphrase> {
    let words = rpassword::prompt_password(question)
        .map_err(|error| Error::Internal(format!("no passphrase could be read: {error}")))?;
    Ok(words.into())
}
