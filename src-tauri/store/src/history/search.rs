//! Full-text search over the messages of conversations that are not deleted.

use rusqlite::{Connection, ErrorCode, params};

use super::{History, SearchHit};
use crate::error::Result;

pub(super) const TABLE: &str = "message_search";

// The table holds an index only; the words stay in `message`, and the triggers keep the two in step.
pub(super) const V1: &str = "
CREATE VIRTUAL TABLE message_search USING fts5 (
    text, content = 'message', content_rowid = 'seq', tokenize = 'unicode61 remove_diacritics 2'
);
CREATE TRIGGER message_search_insert AFTER INSERT ON message BEGIN
    INSERT INTO message_search (rowid, text) VALUES (new.seq, new.text);
END;
CREATE TRIGGER message_search_delete AFTER DELETE ON message BEGIN
    INSERT INTO message_search (message_search, rowid, text) VALUES ('delete', old.seq, old.text);
END;
CREATE TRIGGER message_search_update AFTER UPDATE OF text ON message BEGIN
    INSERT INTO message_search (message_search, rowid, text) VALUES ('delete', old.seq, old.text);
    INSERT INTO message_search (rowid, text) VALUES (new.seq, new.text);
END;
";

const SNIPPET_CHARS: usize = 80;

/// A word-for-word copy in a shorter branch says nothing that its original does not.
const IS_NO_COPY: &str = "NOT EXISTS (
    SELECT 1 FROM message AS original WHERE original.id = message.edited_from AND original.text = message.text)";

impl History {
    /// Messages that hold every word of `text`, the last one perhaps unfinished; the best first. No query syntax: every
    /// character stands for itself.
    pub fn search(&self, text: &str, limit: u32) -> Result<Vec<SearchHit>> {
        let words: Vec<&str> = text
            .split_whitespace()
            .filter(|word| word.contains(char::is_alphanumeric))
            .collect();
        match words.as_slice() {
            [] if text.trim().is_empty() => Ok(Vec::new()),
            // The index has no words in scripts that are written without spaces, and none of punctuation alone.
            [] => self.scan(text.trim(), limit),
            words if words.iter().any(|word| word.contains(is_unspaced)) => {
                self.scan(text.trim(), limit)
            }
            words => self.look_up(words, limit),
        }
    }

    fn look_up(&self, words: &[&str], limit: u32) -> Result<Vec<SearchHit>> {
        let quoted: Vec<String> = words
            .iter()
            .map(|word| format!("\"{}\"", word.replace('\0', " ").replace('"', "\"\"")))
            .collect();
        let query = format!("{} *", quoted.join(" "));
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT conversation.id, message.id, title, snippet(message_search, 0, '', '', '…', 16)
             FROM message_search
             JOIN message ON message.seq = message_search.rowid
             JOIN conversation ON conversation.id = message.conversation
             WHERE message_search MATCH ?1 AND deleted_at IS NULL AND {IS_NO_COPY}
             ORDER BY rank, message.seq DESC LIMIT ?2"
        ))?;
        let rows = statement.query_map(params![query, limit], |row| {
            Ok(SearchHit {
                conversation: row.get(0)?,
                message: row.get(1)?,
                title: row.get(2)?,
                snippet: row.get(3)?,
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Reads every message, the newest first.
    fn scan(&self, text: &str, limit: u32) -> Result<Vec<SearchHit>> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT conversation.id, message.id, title, message.text
             FROM message JOIN conversation ON conversation.id = message.conversation
             WHERE instr(message.text, ?1) > 0 AND deleted_at IS NULL AND {IS_NO_COPY}
             ORDER BY message.seq DESC LIMIT ?2"
        ))?;
        let rows = statement.query_map(params![text, limit], |row| {
            let whole: String = row.get(3)?;
            let snippet = snippet(&whole, text);
            Ok(SearchHit {
                conversation: row.get(0)?,
                message: row.get(1)?,
                title: row.get(2)?,
                snippet,
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

/// The search table says what the messages say; its own check compares the two when its rank is 1.
pub(super) fn is_in_step(connection: &Connection) -> rusqlite::Result<bool> {
    let checked = connection.execute_batch(
        "INSERT INTO message_search (message_search, rank) VALUES ('integrity-check', 1)",
    );
    match checked {
        Ok(()) => Ok(true),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Has the search table take the words of deleted messages out at once, and not only when its parts are merged.
pub(super) fn erase_what_is_deleted(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "SELECT count(*) FROM message_search_config WHERE k = 'secure-delete' AND v = 1";
    let is_set: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    if is_set == 0 {
        connection.execute_batch(
            "INSERT INTO message_search (message_search, rank) VALUES ('secure-delete', 1)",
        )?;
    }
    Ok(())
}

/// Makes the search table anew from the messages.
pub(super) fn rebuild(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch("INSERT INTO message_search (message_search) VALUES ('rebuild')")
}

/// East Asian and South East Asian scripts that put no spaces between words.
fn is_unspaced(c: char) -> bool {
    matches!(u32::from(c), 0x0E00..=0x0EFF | 0x1000..=0x109F | 0x1780..=0x17FF | 0x2E80..=0x9FFF | 0xAC00..=0xD7AF
        | 0xF900..=0xFAFF | 0x20000..=0x3FFFF)
}

fn snippet(whole: &str, found: &str) -> String {
    let at = whole.find(found).unwrap_or(0);
    let before = whole[..at]
        .char_indices()
        .rev()
        .nth(SNIPPET_CHARS / 4)
        .map_or(0, |(index, _)| index);
    let rest: Vec<char> = whole[before..].chars().take(SNIPPET_CHARS + 1).collect();
    let cut = rest.len() > SNIPPET_CHARS;
    let middle: String = rest.into_iter().take(SNIPPET_CHARS).collect();
    format!(
        "{}{middle}{}",
        if before > 0 { "…" } else { "" },
        if cut { "…" } else { "" }
    )
}
