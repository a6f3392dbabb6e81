//! The model files the person added.

use std::path::Path;

use rusqlite::params;

use super::{History, ModelPath};
use crate::error::{Error, Result};

pub(super) const V1: &str = "
CREATE TABLE model (
    name TEXT PRIMARY KEY NOT NULL,
    path TEXT NOT NULL
) STRICT;
";

impl History {
    /// Adds a model file, or moves a name to another file.
    pub fn add_model(&mut self, name: &str, path: &Path) -> Result<()> {
        let Some(text) = path.to_str() else {
            let source = std::io::Error::new(
                std::io::ErrorKind::InvalidInput,
                "the path is not valid Unicode",
            );
            return Err(Error::Io {
                path: path.to_owned(),
                source,
            });
        };
        self.durable(|transaction| {
            let sql = "INSERT OR REPLACE INTO model (name, path) VALUES (?1, ?2)";
            transaction.execute(sql, params![name, text])?;
            Ok(())
        })
    }

    /// The model files, by name.
    pub fn models(&self) -> Result<Vec<ModelPath>> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT name, path FROM model ORDER BY name")?;
        let rows = statement.query_map([], |row| {
            Ok(ModelPath {
                name: row.get(0)?,
                path: row.get(1)?,
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Forgets a model file; the file itself stays.
    pub fn remove_model(&mut self, name: &str) -> Result<()> {
        self.durable(|transaction| {
            transaction.execute("DELETE FROM model WHERE name = ?1", [name])?;
            Ok(())
        })
    }
}
