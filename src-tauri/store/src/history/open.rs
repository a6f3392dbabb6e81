//! Opening: is it ours, is it whole, bring it to this version, and tell what the last process left unfinished.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode};

use super::privacy::{self, Protection};
use super::schema::MIGRATIONS;
use super::{History, LOG_BYTES, reply, search};
use crate::database::with_suffix;
use crate::error::{Error, Result};
use crate::file;
use crate::key::Passphrase;

impl History {
    /// Opens the history, creating it if there is none.
    ///
    /// After an unclean exit its integrity is checked; before a change of the schema a backup is written beside it; replies
    /// that were being generated become interrupted and keep the words that were shown.
    pub fn open(path: &Path) -> Result<History> {
        Self::unlock(path, None)
    }

    /// As `open`; where it is encrypted under a passphrase, this is the passphrase. A change of its encryption that was cut
    /// off goes on.
    pub fn unlock(path: &Path, passphrase: Option<&Passphrase>) -> Result<History> {
        let protection = Protection::unlock(path, passphrase)?;
        Self::open_with(path, MIGRATIONS, protection)
    }

    /// Opens the history that another process has open and looks after: it is whole and of this version. Replies that nobody
    /// generates any more become interrupted and keep the words that were shown.
    pub fn join(path: &Path, passphrase: Option<&Passphrase>) -> Result<History> {
        let protection = Protection::unlock(path, passphrase)?;
        let seal = protection.as_ref().map(Protection::seal);
        let connection = privacy::connect(path, seal.as_ref())?;
        let version: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        let supported = MIGRATIONS.len() as u32;
        if version != supported {
            return Err(Error::HistoryTooNew {
                path: path.to_owned(),
                found: version,
                supported,
            });
        }
        configure(&connection)?;
        let mut history = History {
            connection,
            path: path.to_owned(),
            protection,
            clean_marker: None,
            log: with_suffix(path, "-wal"),
            is_read_only: false,
            copy: None,
        };
        history.durable(reply::interrupt_all)?;
        Ok(history)
    }

    pub(super) fn open_with(
        path: &Path,
        migrations: &[&[&str]],
        protection: Option<Protection>,
    ) -> Result<History> {
        open(path, migrations, protection).map_err(|error| match error {
            Error::Sqlite(error) if is_corrupt(&error) => corrupt(path, error.to_string()),
            other => other,
        })
    }
}

fn open(path: &Path, migrations: &[&[&str]], protection: Option<Protection>) -> Result<History> {
    let io = |source| Error::Io {
        path: path.to_owned(),
        source,
    };
    let clean_marker = with_suffix(path, ".clean");
    let was_clean = clean_marker.exists();
    let length = std::fs::metadata(path).map(|metadata| metadata.len()).ok();
    if length == Some(0) && was_clean {
        return Err(corrupt(path, "the file is empty".to_owned()));
    }
    let seal = protection.as_ref().map(Protection::seal);
    if let Some(seal) = &seal {
        privacy::settle(path, seal)?;
    }
    file::open_private(path).map_err(io)?;
    let connection = privacy::connect(path, seal.as_ref())?;
    let version: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let supported = migrations.len() as u32;
    if version > supported {
        return Err(Error::HistoryTooNew {
            path: path.to_owned(),
            found: version,
            supported,
        });
    }
    configure(&connection)?;
    if version > 0 && !was_clean {
        check_integrity(path, &connection)?;
    }
    if was_clean {
        std::fs::remove_file(&clean_marker).map_err(io)?;
        clean_marker
            .parent()
            .map_or(Ok(()), file::sync_dir)
            .map_err(io)?;
    }
    if version > 0 && version < supported {
        back_up(path, &connection, version)?;
    }

    // From here on a failure leaves the marker away, so that the next open checks the file.
    let mut connection = connection;
    for (index, steps) in migrations.iter().enumerate().skip(version as usize) {
        let transaction = connection.transaction()?;
        steps
            .iter()
            .try_for_each(|step| transaction.execute_batch(step))?;
        transaction.pragma_update(None, "user_version", index as u32 + 1)?;
        transaction.commit()?;
    }
    search::erase_what_is_deleted(&connection)?;
    let transaction = connection.transaction()?;
    search::index_new(&transaction)?;
    transaction.commit()?;
    let mut history = History {
        connection,
        path: path.to_owned(),
        protection,
        clean_marker: Some(clean_marker),
        log: with_suffix(path, "-wal"),
        is_read_only: false,
        copy: None,
    };
    history.durable(reply::interrupt_all)?;
    Ok(history)
}

pub(super) fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA journal_mode = WAL", [], |row| {
        row.get::<_, String>(0)
    })?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", "ON")?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES as i64)?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)
}

/// Damage in the search table is repaired, since it holds nothing of its own; any other is an error.
fn check_integrity(path: &Path, connection: &Connection) -> Result<()> {
    let problems = integrity_problems(connection)?;
    if let Some(problem) = problems
        .iter()
        .find(|problem| !problem.contains(search::TABLE))
    {
        return Err(corrupt(path, problem.clone()));
    }
    if problems.is_empty() && search::is_in_step(connection)? {
        return Ok(());
    }
    tracing::warn!(path = %path.display(), "the search index is damaged; making it anew");
    search::rebuild(connection)?;
    match integrity_problems(connection)?.into_iter().next() {
        None => Ok(()),
        Some(problem) => Err(corrupt(path, problem)),
    }
}

fn integrity_problems(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare("PRAGMA integrity_check(20)")?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
    lines
        .filter(|line| !matches!(line, Ok(line) if line == "ok"))
        .collect()
}

/// Writes `<file>.v<version>.backup`: a whole history of the old version. Temp, fsync, rename, fsync folder.
fn back_up(path: &Path, connection: &Connection, version: u32) -> Result<()> {
    let backup = with_suffix(path, &format!(".v{version}.backup"));
    let temp = with_suffix(path, ".backup.tmp");
    let io = |source| Error::Io {
        path: backup.clone(),
        source,
    };
    if temp.exists() {
        std::fs::remove_file(&temp).map_err(io)?;
    }
    let temp_file = file::open_private(&temp).map_err(io)?;
    connection.execute("VACUUM INTO ?1", [temp.to_string_lossy()])?;
    temp_file.sync_all().map_err(io)?;
    drop(temp_file);
    std::fs::rename(&temp, &backup).map_err(io)?;
    backup.parent().map_or(Ok(()), file::sync_dir).map_err(io)
}

/// The backup of the highest schema version beside the history.
fn newest_backup(path: &Path) -> Option<PathBuf> {
    backups(path).pop()
}

/// The backups beside the history, of lower schema versions first.
pub(super) fn backups(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().and_then(|name| name.to_str());
    let version_of = |backup: &Path| -> Option<u32> {
        let rest = backup.file_name()?.to_str()?.strip_prefix(name?)?;
        rest.strip_prefix(".v")?
            .strip_suffix(".backup")?
            .parse()
            .ok()
    };
    let folder = path.parent().map(std::fs::read_dir);
    let entries = folder.into_iter().flatten().flatten().flatten();
    let mut backups: Vec<(u32, PathBuf)> = entries
        .map(|entry| entry.path())
        .filter_map(|backup| Some((version_of(&backup)?, backup)))
        .collect();
    backups.sort();
    backups.into_iter().map(|(_, backup)| backup).collect()
}

pub(super) fn corrupt(path: &Path, reason: String) -> Error {
    Error::HistoryCorrupt {
        path: path.to_owned(),
        backup: newest_backup(path),
        reason,
    }
}

pub(super) fn is_corrupt(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}

#[cfg(test)]
mod tests {
    use super::super::{NewConversation, schema::MIGRATIONS};
    use super::*;
    use crate::database;
    use crate::key::{Form, Secret};

    const NEXT: &[&str] =
        &["ALTER TABLE conversation ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0"];

    fn titles(history: &History) -> Vec<String> {
        history
            .conversations()
            .unwrap()
            .into_iter()
            .map(|conversation| conversation.title)
            .collect()
    }

    /// The versions there are, and one more.
    fn with_next() -> Vec<&'static [&'static str]> {
        MIGRATIONS.iter().copied().chain([NEXT]).collect()
    }

    fn this_version(path: &Path) {
        let mut history = History::open(path).unwrap();
        let new = NewConversation {
            title: "kept".to_owned(),
            ..Default::default()
        };
        history.create_conversation(new, 1).unwrap();
    }

    #[test]
    fn a_backup_of_the_old_version_is_written_before_a_migration() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.db");
        this_version(&path);
        let backup = folder
            .path()
            .join(format!("history.db.v{}.backup", MIGRATIONS.len()));
        assert!(!backup.exists(), "a new history needs none");

        let history = History::open_with(&path, &with_next(), None).unwrap();
        assert_eq!(titles(&history), ["kept"]);
        let old = History::open(&backup).unwrap();
        assert_eq!(titles(&old), ["kept"]);
        assert!(!folder.path().join("history.db.backup.tmp").exists());
    }

    #[test]
    fn the_backup_of_an_encrypted_history_is_encrypted_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.db");
        this_version(&path);
        let words: Passphrase = "open sesame".to_owned().into();
        let secret = Secret::Passphrase {
            passphrase: words.clone(),
        };
        let mut history = History::open(&path).unwrap();
        history.protect(&secret).unwrap();
        history.finish_privacy().unwrap();
        drop(history);
        for _ in 0..2 {
            let protection = Protection::unlock(&path, Some(&words)).unwrap();
            let history = History::open_with(&path, &with_next(), protection).unwrap();
            assert_eq!(titles(&history), ["kept"]);
        }
        let backup = backups(&path).pop().unwrap();
        assert_eq!(database::form(&backup).unwrap(), Some(Form::Sealed));
        let old = History::unlock(&backup, Some(&words)).unwrap();
        assert_eq!(titles(&old), ["kept"]);
    }

    #[test]
    fn a_migration_that_fails_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.db");
        this_version(&path);
        let broken: &[&str] = &[NEXT[0], "this is not SQL"];
        let versions: Vec<_> = MIGRATIONS.iter().copied().chain([broken]).collect();
        History::open_with(&path, &versions, None).unwrap_err();
        let history = History::open_with(&path, &with_next(), None).unwrap();
        assert_eq!(titles(&history), ["kept"]);
    }

    #[test]
    fn a_history_opened_again_is_not_migrated_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.db");
        this_version(&path);
        for _ in 0..2 {
            assert_eq!(
                titles(&History::open_with(&path, &with_next(), None).unwrap()),
                ["kept"]
            );
        }
    }
}
