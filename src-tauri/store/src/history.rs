//! The truth: conversations, messages, their token ids and the settings, in one SQLite file.
//!
//! Each file below is one table, or one thing done with several. Writes are durable when they return; the exceptions say so
//! where they are made: [`History::append_reply`], [`History::begin_reply`], [`History::set_tokens`] and [`History::keep_unsent`] commit to the
//! write-ahead log without waiting for the disk, which survives the death of the process but not that of the machine.

mod branch;
mod conversation;
mod export;
mod message;
mod model;
mod open;
mod privacy;
mod read;
mod reply;
mod schema;
mod search;
mod setting;
mod tokens;
mod types;
mod unsent;

use std::path::PathBuf;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::error::{Error, Result};

pub use types::*;

/// An open history. One connection, so callers share it behind a `Mutex`.
#[derive(Debug)]
pub struct History {
    connection: Connection,
    path: PathBuf,
    /// None while it is not encrypted.
    protection: Option<privacy::Protection>,
    /// The file that says that the last process closed the history; it exists only while nobody has it open. None where
    /// another process looks after it.
    clean_marker: Option<PathBuf>,
    /// The write-ahead log.
    log: PathBuf,
    /// Nothing is written, not even internal data such as the search index.
    is_read_only: bool,
    /// The copy that is read instead of the file. It is deleted after the connection is closed.
    copy: Option<read::Copy>,
}

/// How long the log gets before it is folded in. A reply adds about 8 KiB a token.
const LOG_BYTES: u64 = 4 << 20;

impl History {
    /// One transaction, on disk when this returns.
    fn durable<T>(&mut self, work: impl FnOnce(&Transaction) -> Result<T>) -> Result<T> {
        let value = self.commit(work)?;
        self.fold_long_log();
        Ok(value)
    }

    /// One transaction, as safe as `synchronous` is set.
    fn commit<T>(&mut self, work: impl FnOnce(&Transaction) -> Result<T>) -> Result<T> {
        if self.is_read_only {
            return Err(Error::ReadOnly);
        }
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let value = work(&transaction)?;
        transaction.commit()?;
        Ok(value)
    }

    /// One transaction, in the write-ahead log when this returns but perhaps not yet on disk.
    fn quick<T>(&mut self, work: impl FnOnce(&Transaction) -> Result<T>) -> Result<T> {
        self.connection
            .pragma_update(None, "synchronous", "NORMAL")?;
        let value = self.commit(work);
        self.connection.pragma_update(None, "synchronous", "FULL")?;
        value
    }

    /// Folds the write-ahead log into the file once it is long. SQLite would do it in the middle of a reply, which then
    /// waits for the disk; here the reply's end does, which waits for it anyway.
    fn fold_long_log(&self) {
        let length = std::fs::metadata(&self.log).map_or(0, |log| log.len());
        if length < LOG_BYTES {
            return;
        }
        let sql = "PRAGMA wal_checkpoint(RESTART)";
        let folded = self
            .connection
            .query_row(sql, [], |row| row.get::<_, i64>(0));
        if let Err(error) = folded {
            tracing::debug!(%error, "the history's log stays long");
        }
    }
}

impl History {
    /// Folds the write-ahead log into the file and empties it: what was deleted stands in it still.
    fn empty_log(&self) {
        let folded = self
            .connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
                row.get::<_, i64>(0)
            });
        if let Err(error) = folded {
            tracing::debug!(%error, "the history's log is not emptied");
        }
    }
}

impl Drop for History {
    fn drop(&mut self) {
        let Some(clean_marker) = self
            .clean_marker
            .as_ref()
            .filter(|_| !std::thread::panicking())
        else {
            return;
        };
        let folded = self
            .connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
                row.get::<_, i64>(0)
            });
        if matches!(folded, Ok(0)) {
            // A marker that cannot be written costs one integrity check.
            let _ = crate::file::open_private(clean_marker);
        }
    }
}

/// Values kept as JSON text in a column.
fn to_json<T: serde::Serialize>(value: &T) -> Result<String> {
    Ok(serde_json::to_string(value)?)
}

fn from_json<T: serde::de::DeserializeOwned>(column: usize, text: &str) -> rusqlite::Result<T> {
    serde_json::from_str(text).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(
            column,
            rusqlite::types::Type::Text,
            Box::new(error),
        )
    })
}

/// Roles and states are kept by their serde names.
fn to_name<T: serde::Serialize>(value: T) -> Result<String> {
    match serde_json::to_value(value)? {
        serde_json::Value::String(name) => Ok(name),
        other => Ok(other.to_string()),
    }
}

fn from_name<T: serde::de::DeserializeOwned>(column: usize, name: String) -> rusqlite::Result<T> {
    serde_json::from_value(serde_json::Value::String(name)).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(
            column,
            rusqlite::types::Type::Text,
            Box::new(error),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn synchronous(connection: &Connection) -> i64 {
        connection
            .query_row("PRAGMA synchronous", [], |row| row.get(0))
            .unwrap()
    }

    #[test]
    fn law_6_a_write_waits_for_the_disk_unless_it_is_a_quick_one() {
        const NORMAL: i64 = 1;
        const FULL: i64 = 2;
        let folder = tempfile::tempdir().unwrap();
        let mut history = History::open(&folder.path().join("history.db")).unwrap();
        assert_eq!(
            history
                .durable(|transaction| Ok(synchronous(transaction)))
                .unwrap(),
            FULL
        );
        assert_eq!(
            history
                .quick(|transaction| Ok(synchronous(transaction)))
                .unwrap(),
            NORMAL
        );
        history
            .quick(|_| -> Result<()> { Err(Error::NoDataFolder) })
            .unwrap_err();
        assert_eq!(
            history
                .durable(|transaction| Ok(synchronous(transaction)))
                .unwrap(),
            FULL
        );
    }
}
