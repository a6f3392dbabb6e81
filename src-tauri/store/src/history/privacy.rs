//! Encryption of the history: turning it on and off, and what unlocks it. The block store follows under the
//! [`Seal`](crate::Seal) of the history; when nothing in it is left to rewrite, [`History::finish_privacy`] ends the change.
//!
//! Killed at any moment, the history is whole: the key file says first what is to become of it, a whole copy in the other form
//! then takes its place in one rename, and the next start goes on from there.

use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;

use super::History;
use super::open::{backups, configure, corrupt, is_corrupt};
use crate::database::{self, sync_parent};
use crate::error::{Error, Result};
use crate::key::{DataKey, Database, Form, Passphrase, Phase, Privacy, Seal, Secret, Unlocks};
use crate::key_file::KeyFile;

/// The key of an encrypted history and the file that it is locked in.
#[derive(Debug)]
pub(super) struct Protection {
    file: KeyFile,
    key: Arc<DataKey>,
}

impl Protection {
    /// Unlocks what stands beside a history; none if nothing is encrypted.
    pub(super) fn unlock(
        history: &Path,
        passphrase: Option<&Passphrase>,
    ) -> Result<Option<Protection>> {
        let folder = history.parent().unwrap_or(Path::new(""));
        let Some(file) = KeyFile::read(folder)? else {
            if form(history)? == Some(Form::Sealed) {
                return Err(Error::KeyFileMissing {
                    path: KeyFile::path(folder),
                    history: history.to_owned(),
                });
            }
            return Ok(None);
        };
        let key = Arc::new(file.unlock(passphrase)?);
        Ok(Some(Protection { file, key }))
    }

    pub(super) fn seal(&self) -> Seal {
        Seal {
            key: Arc::clone(&self.key),
            phase: self.file.phase(),
        }
    }
}

impl History {
    /// Whether the history beside which this one would be opened asks for a passphrase.
    ///
    /// # Errors
    /// When the key file cannot be read.
    pub fn unlocked_by(path: &Path) -> Result<Option<Unlocks>> {
        let folder = path.parent().unwrap_or(Path::new(""));
        Ok(KeyFile::read(folder)?.map(|file| file.unlocks()))
    }

    /// Whether it is encrypted.
    pub fn privacy(&self) -> Privacy {
        let phase = self.protection.as_ref().map(|it| it.file.phase());
        phase.map_or(Privacy::Off, Privacy::from)
    }

    /// What unlocks it, if it is encrypted.
    pub fn unlocks(&self) -> Option<Unlocks> {
        self.protection.as_ref().map(|it| it.file.unlocks())
    }

    /// What the blocks are to be kept under; none when they are to be plain.
    pub fn seal(&self) -> Option<Seal> {
        self.protection.as_ref().map(Protection::seal)
    }

    /// Encrypts the history; it is encrypted when this returns. The block store has to follow.
    ///
    /// # Errors
    /// When it is encrypted already, the secret cannot be used, or the disk fails; then nothing has changed.
    pub fn protect(&mut self, secret: &Secret) -> Result<()> {
        let before = self.protection.as_ref().map(|it| it.file.phase());
        match &mut self.protection {
            Some(protection) if before == Some(Phase::TurningOff) => {
                protection.file.lock_again(&protection.key, secret)?;
                protection.file.set_phase(Phase::TurningOn)?;
            }
            Some(_) => return Err(Error::Privacy("the conversations are encrypted already")),
            None => {
                let folder = self.path.parent().unwrap_or(Path::new("")).to_owned();
                let key = DataKey::random().map_err(|source| Error::Io {
                    path: KeyFile::path(&folder),
                    source,
                })?;
                let file = KeyFile::create(&folder, &key, secret)?;
                let key = Arc::new(key);
                self.protection = Some(Protection { file, key });
            }
        }
        self.turn(before)
    }

    /// Decrypts the history; it is plain when this returns. The block store has to follow.
    ///
    /// # Errors
    /// When it is not encrypted, or the disk fails; then nothing has changed.
    pub fn unprotect(&mut self) -> Result<()> {
        let Some(protection) = &mut self.protection else {
            return Err(Error::Privacy("the conversations are not encrypted"));
        };
        let before = protection.file.phase();
        if before == Phase::TurningOff {
            return Err(Error::Privacy("encryption is being turned off already"));
        }
        protection.file.set_phase(Phase::TurningOff)?;
        self.turn(Some(before))
    }

    /// Locks the key by another secret. The old one has to be said once more, where it is a passphrase.
    ///
    /// # Errors
    /// When nothing is encrypted, the passphrase is wrong, or the new secret cannot be used.
    pub fn change_secret(&mut self, current: Option<&Passphrase>, secret: &Secret) -> Result<()> {
        let Some(protection) = &mut self.protection else {
            return Err(Error::Privacy("the conversations are not encrypted"));
        };
        protection.file.unlock(current)?;
        protection.file.lock_again(&protection.key, secret)
    }

    /// Closes the file, for as long as another process changes its encryption. Until [`take_up`](Self::take_up) nothing can be
    /// read or written.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn set_aside(&mut self) -> Result<()> {
        self.connection = Connection::open_in_memory()?;
        Ok(())
    }

    /// Opens the file again, as what it is now. `passphrase` unlocks it, if it is new.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn take_up(&mut self, passphrase: Option<&Passphrase>) -> Result<()> {
        let before = self.protection.take();
        self.protection = match Protection::unlock(&self.path, passphrase) {
            Ok(protection) => protection,
            // The key is the one before, and so is what unlocks it.
            Err(error) => {
                let folder = self.path.parent().unwrap_or(Path::new(""));
                match (KeyFile::read(folder)?, before) {
                    (Some(file), Some(Protection { key, .. })) => Some(Protection { file, key }),
                    _ => return Err(error),
                }
            }
        };
        self.connection = connect(&self.path, self.seal().as_ref())?;
        configure(&self.connection)?;
        Ok(())
    }

    /// Ends a change, when the block store has nothing left to rewrite. Nothing if none is going on.
    ///
    /// # Errors
    /// When the disk fails; the change then ends another time.
    pub fn finish_privacy(&mut self) -> Result<()> {
        let Some(protection) = &self.protection else {
            return Ok(());
        };
        let wanted = protection.seal().form();
        if form(&self.path)? != Some(wanted) {
            if self.clean_marker.is_none() {
                return Err(Error::Privacy(
                    "the history is converted at the next start, when no other process has it open",
                ));
            }
            self.convert()?;
        }
        if wanted == Form::Sealed {
            remove_plain_backups(&self.path)?;
        }
        let Some(protection) = &mut self.protection else {
            return Ok(());
        };
        match protection.file.phase() {
            Phase::On => Ok(()),
            Phase::TurningOn => protection.file.set_phase(Phase::On),
            Phase::TurningOff => match self.protection.take() {
                Some(protection) => protection.file.remove(),
                None => Ok(()),
            },
        }
    }

    /// Brings the file into the form that the key file asks for. On a failure the key file says what it said `before`, or
    /// goes; unless the converted file has taken its place already, which then needs the key.
    fn turn(&mut self, before: Option<Phase>) -> Result<()> {
        let Err(error) = self.convert() else {
            return Ok(());
        };
        let wanted = self.seal().map(|seal| seal.form());
        let is_as_before = matches!(form(&self.path), Ok(Some(found)) if Some(found) != wanted);
        let undone = match (self.protection.take(), before) {
            (Some(mut protection), Some(before)) if is_as_before => {
                let undone = protection.file.set_phase(before);
                self.protection = Some(protection);
                undone
            }
            (Some(protection), None) if is_as_before => protection.file.remove(),
            (protection, _) => {
                self.protection = protection;
                Ok(())
            }
        };
        if let Err(undoing) = undone {
            tracing::warn!(%undoing, "the change of encryption goes on with the next start");
        }
        Err(error)
    }

    /// Closes the file, converts it, and opens it again, whatever came of that.
    fn convert(&mut self) -> Result<()> {
        self.connection = Connection::open_in_memory()?;
        let seal = self.protection.as_ref().map(Protection::seal);
        let converted = match &seal {
            Some(seal) => convert_to(&self.path, seal, seal.form()),
            None => Ok(()),
        };
        self.connection = connect(&self.path, seal.as_ref())?;
        configure(&self.connection)?;
        converted
    }
}

/// Brings a history that nobody has open into the form its key file asks for. A failure leaves it as it is, to be read all
/// the same.
pub(super) fn settle(path: &Path, seal: &Seal) -> Result<()> {
    database::remove_half_converted(path).map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })?;
    match form(path)? {
        Some(found) if found != seal.form() => {
            if let Err(error) = convert_to(path, seal, seal.form()) {
                tracing::warn!(%error, "the history is not converted yet");
            }
            Ok(())
        }
        Some(Form::Sealed) => remove_plain_backups(path),
        _ => Ok(()),
    }
}

fn convert_to(path: &Path, seal: &Seal, to: Form) -> Result<()> {
    if form(path)? != Some(to) {
        database::convert(path, &seal.key, Database::History, to).map_err(|error| match error {
            Error::Sqlite(error) if is_corrupt(&error) => corrupt(path, error.to_string()),
            other => other,
        })?;
    }
    match to {
        Form::Sealed => remove_plain_backups(path),
        Form::Plain => Ok(()),
    }
}

/// Copies that older versions made hold the words as they are.
fn remove_plain_backups(path: &Path) -> Result<()> {
    for backup in backups(path) {
        if form(&backup)? != Some(Form::Sealed) {
            let removed = database::remove(&backup).and_then(|()| sync_parent(path));
            removed.map_err(|source| Error::Io {
                path: backup,
                source,
            })?;
        }
    }
    Ok(())
}

/// Opens the file as what it is; an empty one becomes what it should be.
pub(super) fn connect(path: &Path, seal: Option<&Seal>) -> Result<Connection> {
    let key = match (form(path)?, seal) {
        (Some(Form::Plain), _) | (_, None) => None,
        (Some(Form::Sealed), Some(seal)) => Some((&*seal.key, Database::History)),
        (None, Some(seal)) => {
            (seal.form() == Form::Sealed).then_some((&*seal.key, Database::History))
        }
    };
    Ok(database::open(path, key)?)
}

/// Opens the file, encrypted or not, for reading, without creating a file beside it.
pub(super) fn connect_to_read(path: &Path, seal: Option<&Seal>) -> Result<Connection> {
    let key = match (form(path)?, seal) {
        (Some(Form::Sealed), Some(seal)) => Some((&*seal.key, Database::History)),
        _ => None,
    };
    Ok(database::open_to_read(path, key)?)
}

fn form(path: &Path) -> Result<Option<Form>> {
    database::form(path).map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })
}
