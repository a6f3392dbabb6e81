//! Settings: JSON values by key.

use rusqlite::{OptionalExtension, params};
use serde_json::Value;

use super::{History, to_json};
use crate::error::Result;

pub(super) const V1: &str = "
CREATE TABLE setting (
    key   TEXT PRIMARY KEY NOT NULL,
    value TEXT NOT NULL              -- JSON
) STRICT;
";

impl History {
    /// A setting, if it was ever set.
    pub fn setting(&self, key: &str) -> Result<Option<Value>> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT value FROM setting WHERE key = ?1")?;
        let text: Option<String> = statement.query_row([key], |row| row.get(0)).optional()?;
        Ok(text.map(|text| serde_json::from_str(&text)).transpose()?)
    }

    /// Sets a setting.
    pub fn set_setting(&mut self, key: &str, value: &Value) -> Result<()> {
        let value = to_json(value)?;
        self.durable(|transaction| {
            let sql = "INSERT OR REPLACE INTO setting (key, value) VALUES (?1, ?2)";
            transaction.execute(sql, params![key, value])?;
            Ok(())
        })
    }
}
