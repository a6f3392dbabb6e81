//! Opens a history for reading when it cannot be written: on a full disk or in a read-only folder.
//!
//! A cleanly closed history of the current version is read in place. One with a write-ahead log or an older schema must
//! be written to first (recovery, migration): this is done on a temporary copy, in memory if the system has a folder
//! there, which is deleted when it is closed.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension};

use super::History;
use super::privacy::{self, Protection};
use super::schema::MIGRATIONS;
use crate::database::with_suffix;
use crate::error::{Error, Result};
use crate::file;
use crate::key::{Passphrase, fill_random, hex};

impl History {
    /// Opens the history for reading. Writes nothing beside it and takes no lock; every change returns an error.
    ///
    /// # Errors
    /// When there is no history, it is locked or damaged, or there is no room for a copy that it needs.
    pub fn read(path: &Path, passphrase: Option<&Passphrase>) -> Result<History> {
        let io = |source| Error::Io {
            path: path.to_owned(),
            source,
        };
        std::fs::metadata(path).map_err(io)?;
        let protection = Protection::unlock(path, passphrase)?;
        if let Some(connection) = as_it_is(path, protection.as_ref())? {
            return Ok(History {
                connection,
                path: path.to_owned(),
                protection,
                clean_marker: None,
                log: with_suffix(path, "-wal"),
                is_read_only: true,
                copy: None,
            });
        }
        let copy = Copy::of(path)?;
        let mut history = Self::open_with(&copy.history, MIGRATIONS, protection)?;
        history.clean_marker = None;
        history.connection.pragma_update(None, "query_only", "ON")?;
        history.is_read_only = true;
        history.copy = Some(copy);
        Ok(history)
    }
}

/// Opens the file itself, unless it needs recovery or a migration.
fn as_it_is(path: &Path, protection: Option<&Protection>) -> Result<Option<Connection>> {
    let log = with_suffix(path, "-wal");
    if std::fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
        return Ok(None);
    }
    let seal = protection.map(Protection::seal);
    let connection = privacy::connect_to_read(path, seal.as_ref())?;
    let version: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let supported = MIGRATIONS.len() as u32;
    if version > supported {
        return Err(Error::HistoryTooNew {
            path: path.to_owned(),
            found: version,
            supported,
        });
    }
    if version < supported {
        return Ok(None);
    }
    let sql = "SELECT 1 FROM message WHERE state = 'generating' LIMIT 1";
    let unfinished: Option<i64> = connection.query_row(sql, [], |row| row.get(0)).optional()?;
    Ok(unfinished.is_none().then_some(connection))
}

/// A copy of a history in a temporary folder, which is deleted when this value is dropped.
#[derive(Debug)]
pub(super) struct Copy {
    folder: PathBuf,
    history: PathBuf,
}

impl Copy {
    /// Copies the history to the first place with enough room. Memory comes first, so that the copy does not outlive a
    /// power loss.
    fn of(path: &Path) -> Result<Copy> {
        let mut name = [0; 8];
        let io = |source| Error::Io {
            path: path.to_owned(),
            source,
        };
        fill_random(&mut name).map_err(io)?;
        let name = format!("reprise-{}", hex(&name));
        let memory = cfg!(target_os = "linux").then(|| PathBuf::from("/dev/shm"));
        let mut failed = None;
        for place in memory.into_iter().chain([std::env::temp_dir()]) {
            let folder = place.join(&name);
            let copy = Copy {
                history: folder.join("history.db"),
                folder,
            };
            match copy.fill(path) {
                Ok(()) => return Ok(copy),
                Err(source) => {
                    failed = Some(Error::Io {
                        path: copy.folder.clone(),
                        source,
                    })
                }
            }
        }
        Err(failed.unwrap_or(Error::ReadOnly))
    }

    fn fill(&self, path: &Path) -> std::io::Result<()> {
        file::create_private_dir(&self.folder)?;
        for suffix in ["", "-wal"] {
            let from = with_suffix(path, suffix);
            if from.exists() {
                let mut to = file::open_private(&with_suffix(&self.history, suffix))?;
                std::io::copy(&mut std::fs::File::open(from)?, &mut to)?;
            }
        }
        Ok(())
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            tracing::debug!(%error, "a copy of the history stays");
        }
    }
}
