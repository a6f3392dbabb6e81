//! The index file: which block is in which slot. It is a log of what the store decides in memory.
//!
//! Write-ahead log without waiting for the disk: the newest rows may be lost with the power, never mixed up, and a lost row
//! costs a miss.

use std::io;
use std::path::Path;

use rusqlite::{Connection, ErrorCode, params};

use super::pool::{FileId, Place};
use super::{Block, BlockId, Fingerprint, SlotFormat};
use crate::key::{Database, Form, Seal, form_of};
use crate::{database, file};

const FILES: [&str; 4] = [
    "index.db",
    "index.db-wal",
    "index.db-shm",
    "index.db-journal",
];

/// How long the log gets before it is folded in; a large transaction may exceed it for a moment.
pub(super) const LOG_BYTES: u64 = 128 << 10;

/// Raised with any change of the tables; an index of another version is emptied.
const VERSION: u32 = 2;

// `auto_vacuum` lets the file shrink with what it holds: it counts against the budget.
const SCHEMA: &str = "
CREATE TABLE pool (
    key              INTEGER PRIMARY KEY,
    fingerprint      BLOB NOT NULL UNIQUE,   -- 32 bytes
    label            TEXT NOT NULL,
    block_tokens     INTEGER NOT NULL,
    tile_tokens      INTEGER NOT NULL,
    num_layers       INTEGER NOT NULL,
    key_slab_bytes   INTEGER NOT NULL,
    value_slab_bytes INTEGER NOT NULL
) STRICT;
CREATE TABLE block (
    seq      INTEGER PRIMARY KEY,        -- order of creation
    id       BLOB NOT NULL UNIQUE,       -- 32 bytes
    pool     INTEGER NOT NULL,
    parent   BLOB,                       -- 32 bytes
    position INTEGER NOT NULL,
    tokens   BLOB NOT NULL,              -- u32, little endian
    file     INTEGER NOT NULL,           -- number n of a plain pool file, -1 - n of a sealed one
    slot     INTEGER NOT NULL,
    used     INTEGER NOT NULL,           -- tick of the last use
    UNIQUE (pool, file, slot)
) STRICT;
CREATE TABLE ref (
    leaf  TEXT NOT NULL,                 -- a message
    pool  INTEGER NOT NULL,
    block BLOB NOT NULL,                 -- 32 bytes
    PRIMARY KEY (leaf, pool)
) STRICT, WITHOUT ROWID;
";

#[derive(Debug)]
pub(super) struct Index {
    connection: Connection,
}

/// A row of `pool` as it stands in the file; nothing in it is believed yet.
pub(super) struct PoolRow {
    pub key: i64,
    pub fingerprint: Fingerprint,
    pub label: String,
    pub format: SlotFormat,
}

/// A row of `block`, likewise.
pub(super) struct BlockRow {
    pub seq: i64,
    pub pool: i64,
    pub block: Block,
    pub place: Place,
    pub used: i64,
}

/// A block to be written.
pub(super) struct NewRow<'a> {
    pub block: &'a Block,
    pub place: Place,
    pub seq: u64,
}

/// A ref that changes: to another block, or away.
pub(super) struct MovedRef {
    pub leaf: String,
    pub pool: i64,
    pub to: Option<BlockId>,
}

impl Index {
    /// Opens a sound index of this version, or makes one where there is none. It is sealed if slots are; one that is not yet
    /// what it should be, as the seal allows, is converted.
    pub(super) fn open(dir: &Path, seal: Option<&Seal>) -> Result<Index, String> {
        let path = dir.join(FILES[0]);
        let text = |error: io::Error| error.to_string();
        database::remove_half_converted(&path).map_err(text)?;
        file::open_private(&path).map_err(text)?;
        let wanted = form_of(seal);
        match (database::form(&path).map_err(text)?, seal) {
            (Some(found), Some(seal)) if found != wanted && seal.accepts(found) => {
                database::convert(&path, &seal.key, Database::Index, wanted)
                    .map_err(|error| error.to_string())?;
            }
            (Some(Form::Plain), Some(_)) if wanted == Form::Sealed => {
                return Err("it is not encrypted".to_owned());
            }
            (Some(Form::Sealed), None) => return Err("it is encrypted".to_owned()),
            _ => {}
        }
        let key = seal.filter(|_| wanted == Form::Sealed);
        let key = key.map(|seal| (&*seal.key, Database::Index));
        let connection = database::open(&path, key).map_err(|error| error.to_string())?;
        Self::of(connection).map_err(|error| error.to_string())?
    }

    /// The inner `Err` says why a file that SQLite can open is not believed.
    fn of(mut connection: Connection) -> rusqlite::Result<Result<Index, String>> {
        let version: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        if version == 0 {
            connection.pragma_update(None, "auto_vacuum", "FULL")?;
        }
        connection.query_row("PRAGMA journal_mode = WAL", [], |row| {
            row.get::<_, String>(0)
        })?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        // The log counts against the budget, so it is folded in early.
        connection.pragma_update(None, "wal_autocheckpoint", (LOG_BYTES / 4096 - 1) as i64)?;
        connection.pragma_update(None, "journal_size_limit", LOG_BYTES as i64)?;
        if version == 0 {
            let transaction = connection.transaction()?;
            transaction.execute_batch(SCHEMA)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
            transaction.commit()?;
        }
        let verdict: String =
            connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
        Ok(match (verdict.as_str(), version) {
            ("ok", 0 | VERSION) => Ok(Index { connection }),
            ("ok", other) => Err(format!(
                "it is of version {other}, and this one is {VERSION}"
            )),
            (damage, _) => Err(format!("it is damaged: {damage}")),
        })
    }

    /// How long the log is.
    pub(super) fn log_bytes(&self, dir: &Path) -> u64 {
        std::fs::metadata(dir.join(FILES[1])).map_or(0, |metadata| metadata.len())
    }

    /// Folds the log into the file and cuts it off.
    pub(super) fn fold(&self) {
        let folded = self
            .connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
                row.get::<_, i64>(0)
            });
        if let Err(error) = folded {
            tracing::debug!(%error, "the block index's log could not be folded in");
        }
    }

    /// The pools' rows that can be read as such.
    pub(super) fn pools(&self) -> rusqlite::Result<Vec<PoolRow>> {
        let sql = "SELECT key, fingerprint, label, block_tokens, tile_tokens, num_layers, key_slab_bytes, value_slab_bytes FROM pool";
        let mut statement = self.connection.prepare(sql)?;
        let rows = statement.query_map([], |row| {
            let format = SlotFormat {
                block_tokens: row.get(3)?,
                tile_tokens: row.get(4)?,
                num_layers: row.get(5)?,
                key_slab_bytes: row.get(6)?,
                value_slab_bytes: row.get(7)?,
            };
            Ok(PoolRow {
                key: row.get(0)?,
                fingerprint: Fingerprint(row.get(1)?),
                label: row.get(2)?,
                format,
            })
        })?;
        readable(rows)
    }

    /// The blocks' rows that can be read as such, parents before children, and how many rows there are.
    pub(super) fn blocks(&self) -> rusqlite::Result<(Vec<BlockRow>, u64)> {
        let sql = "SELECT seq, id, pool, parent, position, tokens, file, slot, used FROM block ORDER BY position, seq";
        let mut statement = self.connection.prepare(sql)?;
        let rows = statement.query_map([], |row| {
            let tokens = row.get_ref(5)?.as_blob()?;
            let block = Block {
                id: BlockId(row.get(1)?),
                parent: row.get::<_, Option<[u8; 32]>>(3)?.map(BlockId),
                position: row.get(4)?,
                tokens: tokens
                    .chunks_exact(4)
                    .map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]]))
                    .collect(),
            };
            let place = Place {
                file: file_of(row.get(6)?)?,
                slot: row.get(7)?,
            };
            Ok(BlockRow {
                seq: row.get(0)?,
                pool: row.get(2)?,
                block,
                place,
                used: row.get(8)?,
            })
        })?;
        let rows = readable(rows)?;
        let num_rows: i64 = self
            .connection
            .query_row("SELECT count(*) FROM block", [], |row| row.get(0))?;
        Ok((rows, num_rows as u64))
    }

    /// The refs that can be read as such: leaf, pool, block.
    pub(super) fn refs(&self) -> rusqlite::Result<Vec<(String, i64, BlockId)>> {
        let mut statement = self
            .connection
            .prepare("SELECT leaf, pool, block FROM ref")?;
        let rows = statement.query_map([], |row| {
            Ok((row.get(0)?, row.get(1)?, BlockId(row.get(2)?)))
        })?;
        readable(rows)
    }

    /// Removes every row but those of `blocks` (by seq), of `pools` (by key) and the refs to such blocks.
    pub(super) fn keep_only(&mut self, blocks: &[u64], pools: &[i64]) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        transaction.execute_batch("CREATE TEMP TABLE keep_block (seq INTEGER PRIMARY KEY); CREATE TEMP TABLE keep_pool (key INTEGER PRIMARY KEY)")?;
        for seq in blocks {
            transaction
                .prepare_cached("INSERT INTO keep_block VALUES (?1)")?
                .execute([*seq as i64])?;
        }
        for key in pools {
            transaction
                .prepare_cached("INSERT INTO keep_pool VALUES (?1)")?
                .execute([key])?;
        }
        transaction.execute_batch(
            "DELETE FROM block WHERE seq NOT IN (SELECT seq FROM keep_block);
             DELETE FROM pool WHERE key NOT IN (SELECT key FROM keep_pool);
             DELETE FROM ref WHERE NOT EXISTS (SELECT 1 FROM block WHERE id = ref.block AND pool = ref.pool);
             DROP TABLE keep_block; DROP TABLE keep_pool;",
        )?;
        transaction.commit()
    }

    /// Writes a pool's row and returns its key.
    pub(super) fn write_pool(
        &self,
        fingerprint: &Fingerprint,
        format: SlotFormat,
        label: &str,
    ) -> rusqlite::Result<i64> {
        self.connection.query_row(
            "INSERT INTO pool (fingerprint, label, block_tokens, tile_tokens, num_layers, key_slab_bytes, value_slab_bytes)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (fingerprint) DO UPDATE SET label = ?2, block_tokens = ?3, tile_tokens = ?4, num_layers = ?5,
             key_slab_bytes = ?6, value_slab_bytes = ?7
             RETURNING key",
            params![
                fingerprint.0,
                label,
                format.block_tokens,
                format.tile_tokens,
                format.num_layers,
                format.key_slab_bytes,
                format.value_slab_bytes
            ],
            |row| row.get(0),
        )
    }

    /// Writes blocks' rows; their slots are on disk. Replaces rows that a failed removal left behind.
    pub(super) fn insert(&mut self, pool: i64, used: u64, rows: &[NewRow]) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        {
            let mut statement = transaction.prepare_cached(
                "INSERT OR REPLACE INTO block (seq, id, pool, parent, position, tokens, file, slot, used)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?;
            for NewRow { block, place, seq } in rows {
                let tokens: Vec<u8> = block
                    .tokens
                    .iter()
                    .flat_map(|token| token.to_le_bytes())
                    .collect();
                statement.execute(params![
                    *seq as i64,
                    block.id.0,
                    pool,
                    block.parent.map(|parent| parent.0),
                    block.position,
                    tokens,
                    file_number(place.file),
                    place.slot,
                    used as i64
                ])?;
            }
        }
        transaction.commit()
    }

    /// Removes blocks' rows and changes the refs that pointed to them.
    pub(super) fn remove(&mut self, ids: &[BlockId], moved: &[MovedRef]) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        for id in ids {
            transaction
                .prepare_cached("DELETE FROM block WHERE id = ?1")?
                .execute([id.0])?;
        }
        for MovedRef { leaf, pool, to } in moved {
            write_ref(&transaction, leaf, *pool, to.as_ref())?;
        }
        transaction.commit()
    }

    /// Notes a block's new slot. Replaces a row that a failed removal left behind.
    pub(super) fn move_block(&self, id: &BlockId, to: Place) -> rusqlite::Result<()> {
        let sql = "UPDATE OR REPLACE block SET file = ?2, slot = ?3 WHERE id = ?1";
        self.connection
            .prepare_cached(sql)?
            .execute(params![id.0, file_number(to.file), to.slot])
            .map(|_| ())
    }

    pub(super) fn touch(&mut self, ids: &[BlockId], tick: u64) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        for id in ids {
            transaction
                .prepare_cached("UPDATE block SET used = ?2 WHERE id = ?1")?
                .execute(params![id.0, tick as i64])?;
        }
        transaction.commit()
    }

    pub(super) fn set_ref(&self, leaf: &str, pool: i64, to: &BlockId) -> rusqlite::Result<()> {
        write_ref(&self.connection, leaf, pool, Some(to))
    }

    pub(super) fn drop_ref(&self, leaf: &str) -> rusqlite::Result<()> {
        self.connection
            .execute("DELETE FROM ref WHERE leaf = ?1", [leaf])
            .map(|_| ())
    }
}

fn file_number(FileId { form, number }: FileId) -> i64 {
    match form {
        Form::Plain => i64::from(number),
        Form::Sealed => -1 - i64::from(number),
    }
}

fn file_of(stored: i64) -> rusqlite::Result<FileId> {
    let (form, number) = match stored {
        0.. => (Form::Plain, stored),
        _ => (Form::Sealed, -1 - stored),
    };
    let number =
        u32::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(6, stored))?;
    Ok(FileId { form, number })
}

fn write_ref(
    connection: &Connection,
    leaf: &str,
    pool: i64,
    to: Option<&BlockId>,
) -> rusqlite::Result<()> {
    match to {
        Some(to) => connection
            .prepare_cached("INSERT OR REPLACE INTO ref (leaf, pool, block) VALUES (?1, ?2, ?3)")?
            .execute(params![leaf, pool, to.0]),
        None => connection
            .prepare_cached("DELETE FROM ref WHERE leaf = ?1 AND pool = ?2")?
            .execute(params![leaf, pool]),
    }
    .map(|_| ())
}

/// Rows whose values are of the right types; a row that is not is left out. Errors of the file itself are errors.
fn readable<T>(rows: impl Iterator<Item = rusqlite::Result<T>>) -> rusqlite::Result<Vec<T>> {
    rows.filter(|row| !matches!(row, Err(error) if error.sqlite_error().is_none()))
        .collect()
}

pub(super) fn is_corrupt(error: &rusqlite::Error) -> bool {
    // A missing or changed table is damage too: this process has seen it whole.
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::Unknown
                | ErrorCode::SchemaChanged
        )
    )
}

/// Deletes the index's files.
pub(super) fn delete(dir: &Path) -> io::Result<()> {
    FILES
        .into_iter()
        .try_for_each(|name| match std::fs::remove_file(dir.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        })
}
