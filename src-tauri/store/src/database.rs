//! SQLite files, plain or sealed by SQLCipher: telling them apart, opening them, and turning one into the other.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::error::{Error, Result};
use crate::file;
use crate::key::{DataKey, Database, Form, SEALED_DATABASE};

const PLAIN: &[u8; 16] = b"SQLite format 3\0";

/// What a database file begins as; `None` for one that is missing, too short or neither.
pub(crate) fn form(path: &Path) -> std::io::Result<Option<Form>> {
    let mut start = [0; 16];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
    match read {
        Ok(()) if start == *PLAIN => Ok(Some(Form::Plain)),
        Ok(()) if start == *SEALED_DATABASE => Ok(Some(Form::Sealed)),
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof) => {
            Err(error)
        }
        _ => Ok(None),
    }
}

/// Opens a database that is there, or an empty file to become one. With a key it is a sealed one.
pub(crate) fn open(path: &Path, key: Option<(&DataKey, Database)>) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    unlock(&connection, key)?;
    // Deleted content is overwritten with zeros.
    connection.pragma_update(None, "secure_delete", "ON")?;
    Ok(connection)
}

/// Opens a database without a write-ahead log that no process writes to. Creates no file and takes no lock.
pub(crate) fn open_to_read(
    path: &Path,
    key: Option<(&DataKey, Database)>,
) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(immutable(path), flags)?;
    unlock(&connection, key)?;
    Ok(connection)
}

/// The SQLite URI that opens a file as immutable.
fn immutable(path: &Path) -> String {
    let mut address = if cfg!(windows) { "file:/" } else { "file:" }.to_owned();
    for &byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'\\' if cfg!(windows) => address.push('/'),
            b'/' | b':' | b'.' | b'-' | b'_' => address.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => address.push(char::from(byte)),
            byte => address.push_str(&format!("%{byte:02X}")),
        }
    }
    address.push_str("?immutable=1");
    address
}

fn unlock(connection: &Connection, key: Option<(&DataKey, Database)>) -> rusqlite::Result<()> {
    if let Some((key, of)) = key {
        // What fails comes back as an error; SQLCipher would tell standard error, too.
        connection.pragma_update(None, "cipher_log_level", "NONE")?;
        // Nothing may be done before.
        connection.pragma_update(None, "key", key.database(of).as_str())?;
    }
    Ok(())
}

/// Turns the database at `path`, which nobody has open, into one of the form `to`. At every moment a whole one stands at
/// `path`: the other is made beside it, checked, made durable, and only then takes its place.
pub(crate) fn convert(path: &Path, key: &DataKey, of: Database, to: Form) -> Result<()> {
    let io = |source| Error::Io {
        path: path.to_owned(),
        source,
    };
    let from = match to {
        Form::Plain => Form::Sealed,
        Form::Sealed => Form::Plain,
    };
    let temp = with_suffix(path, ".converting");
    remove_all(&temp).map_err(io)?;
    let copied = copy(path, &temp, key, of, from);
    let checked = copied.and_then(|()| check(&temp, key, of, to));
    let placed = checked.and_then(|()| {
        let synced = file::open_existing(&temp).and_then(|file| file.sync_all());
        synced.map_err(io)?;
        // Of the old one: a log would be taken for the new one's. It is empty, else `copy` had failed.
        for suffix in ["-wal", "-shm"] {
            remove(&with_suffix(path, suffix)).map_err(io)?;
        }
        sync_parent(path).map_err(io)?;
        std::fs::rename(&temp, path).map_err(io)?;
        sync_parent(path).map_err(io)
    });
    if placed.is_err() {
        // The next try removes what stays.
        let _ = remove_all(&temp);
    }
    placed
}

/// Removes what a conversion that was cut off left behind.
pub(crate) fn remove_half_converted(path: &Path) -> std::io::Result<()> {
    remove_all(&with_suffix(path, ".converting"))
}

fn copy(path: &Path, temp: &Path, key: &DataKey, of: Database, from: Form) -> Result<()> {
    let io = |source| Error::Io {
        path: temp.to_owned(),
        source,
    };
    let spec = key.database(of);
    let (old_key, new_spec) = match from {
        Form::Plain => (None, spec.as_str()),
        Form::Sealed => (Some((key, of)), ""),
    };
    let connection = open(path, old_key)?;
    let busy: i64 =
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    if busy != 0 {
        return Err(Error::Privacy(
            "the database is in use by another program; close it and try again",
        ));
    }
    file::open_private(temp).map_err(io)?;
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let vacuum: i64 = connection.query_row("PRAGMA auto_vacuum", [], |row| row.get(0))?;
    connection.execute(
        "ATTACH DATABASE ?1 AS converted KEY ?2",
        [temp.to_string_lossy().as_ref(), new_spec],
    )?;
    // Before the first table, or never.
    connection.pragma_update(Some("converted"), "auto_vacuum", vacuum)?;
    connection.query_row("SELECT sqlcipher_export('converted')", [], |_| Ok(()))?;
    connection.pragma_update(Some("converted"), "user_version", version)?;
    let (here, there) = (
        counts(&connection, "main")?,
        counts(&connection, "converted")?,
    );
    connection.execute_batch("DETACH DATABASE converted")?;
    if here != there {
        return Err(Error::Privacy(
            "the copy has other rows than the database; nothing was changed",
        ));
    }
    connection.close().map_err(|(_, error)| error)?;
    Ok(())
}

/// How many rows each table has.
fn counts(connection: &Connection, schema: &str) -> rusqlite::Result<Vec<(String, i64)>> {
    let sql = format!(
        "SELECT name FROM {schema}.sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY name"
    );
    let mut statement = connection.prepare(&sql)?;
    let names: Vec<String> = statement
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let count = |name: String| {
        let sql = format!("SELECT count(*) FROM {schema}.\"{name}\"");
        let rows = connection.query_row(&sql, [], |row| row.get(0))?;
        Ok((name, rows))
    };
    names.into_iter().map(count).collect()
}

/// The copy is of the form it should be, and whole.
fn check(temp: &Path, key: &DataKey, of: Database, to: Form) -> Result<()> {
    let bad = || Error::Privacy("the copy of the database is not whole; nothing was changed");
    let found = form(temp).map_err(|source| Error::Io {
        path: temp.to_owned(),
        source,
    })?;
    if found != Some(to) {
        return Err(bad());
    }
    let connection = open(temp, (to == Form::Sealed).then_some((key, of)))?;
    let verdict: String =
        connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    match verdict.as_str() {
        "ok" => Ok(()),
        _ => Err(bad()),
    }
}

/// A database and everything SQLite puts beside one.
fn remove_all(path: &Path) -> std::io::Result<()> {
    ["", "-journal", "-wal", "-shm"]
        .iter()
        .try_for_each(|suffix| remove(&with_suffix(path, suffix)))
}

/// Removes a file; one that is not there is removed already.
pub(crate) fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub(crate) fn sync_parent(path: &Path) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), file::sync_dir)
}

pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
