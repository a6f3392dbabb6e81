//! Search over the messages and titles of conversations that are not deleted.
//!
//! The full-text table finds candidates and ranks them; comparing the folded words decides whether a candidate is a hit
//! ([`query`]). The table indexes terms that this crate makes ([`terms`]), so that it covers every script. New messages
//! wait in `message_unindexed` until a reply ends, a search begins or the history is opened, so that sending a message
//! does not wait for the index. Messages that still wait are searched directly.

mod query;
mod snippet;
mod terms;

use rusqlite::{
    Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, params,
};

use self::query::Query;
use self::snippet::snippet;
use super::{ConversationId, History, HitKind, MessageId, SearchHit};
use crate::error::Result;
use crate::fold::fold;
use crate::title;

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

// The terms of a message are stored, since the index needs them again to delete its entry. The triggers call no
// function of this crate, so that another program can write to the file without an error; the message then waits to be
// indexed.
pub(super) const V2: &str = "
DROP TRIGGER message_search_insert;
DROP TRIGGER message_search_delete;
DROP TRIGGER message_search_update;
DROP TABLE message_search;

CREATE TABLE message_terms (
    seq   INTEGER PRIMARY KEY,
    terms TEXT NOT NULL             -- of the folded text, with a space between two
) STRICT;
CREATE TABLE message_unindexed (
    seq INTEGER PRIMARY KEY         -- messages whose terms are not there yet
) STRICT;
CREATE VIRTUAL TABLE message_search USING fts5 (
    terms, content = 'message_terms', content_rowid = 'seq', tokenize = 'ascii'
);
CREATE TRIGGER message_terms_insert AFTER INSERT ON message_terms BEGIN
    INSERT INTO message_search (rowid, terms) VALUES (new.seq, new.terms);
END;
CREATE TRIGGER message_terms_delete AFTER DELETE ON message_terms BEGIN
    INSERT INTO message_search (message_search, rowid, terms) VALUES ('delete', old.seq, old.terms);
END;
CREATE TRIGGER message_search_insert AFTER INSERT ON message BEGIN
    INSERT INTO message_unindexed (seq) VALUES (new.seq);
END;
CREATE TRIGGER message_search_delete AFTER DELETE ON message BEGIN
    DELETE FROM message_terms WHERE seq = old.seq;
    DELETE FROM message_unindexed WHERE seq = old.seq;
END;
CREATE TRIGGER message_search_update AFTER UPDATE OF text ON message WHEN old.text <> new.text BEGIN
    DELETE FROM message_terms WHERE seq = old.seq;
    INSERT OR IGNORE INTO message_unindexed (seq) VALUES (new.seq);
END;
INSERT INTO message_unindexed (seq) SELECT seq FROM message;
";

/// A word-for-word copy in a shorter branch says nothing that its original does not.
const IS_NO_COPY: &str = "NOT EXISTS (
    SELECT 1 FROM message AS original WHERE original.id = message.edited_from AND original.text = message.text)";

impl History {
    /// Titles and messages that contain every word of `text`, in any order; the last word may be a prefix. Titles come
    /// first, at most half of the `limit`, then the best messages. There is no query syntax: every character is
    /// literal, and case, diacritics and width are ignored.
    pub fn search(&self, text: &str, limit: u32) -> Result<Vec<SearchHit>> {
        let query = Query::new(text);
        if query.is_empty() {
            return Ok(Vec::new());
        }
        if let Err(error) = self.index_new() {
            tracing::debug!(%error, "what is new is searched without an index");
        }
        let limit = limit as usize;
        let mut hits = self.titles(&query, limit.div_ceil(2))?;
        for seq in self.candidates(&query)? {
            if hits.len() >= limit {
                break;
            }
            hits.extend(self.hit(seq, &query)?);
        }
        Ok(hits)
    }

    fn titles(&self, query: &Query, limit: usize) -> Result<Vec<SearchHit>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT id, title FROM conversation WHERE deleted_at IS NULL ORDER BY recency DESC, rowid DESC",
        )?;
        let mut rows = statement.query([])?;
        let mut hits = Vec::new();
        while let Some(row) = rows.next()? {
            let (conversation, title): (ConversationId, String) = (row.get(0)?, row.get(1)?);
            let Some(found) = query.find(&title) else {
                continue;
            };
            if self.is_made_of_first_message(&conversation, &title)? {
                continue;
            }
            let (snippet, marks) = snippet(&title, &found);
            hits.push(SearchHit {
                kind: HitKind::Title,
                conversation,
                message: None,
                title,
                snippet,
                marks,
            });
            if hits.len() == limit {
                break;
            }
        }
        Ok(hits)
    }

    /// Whether the title was made from the first message, so that a title hit would repeat the message.
    fn is_made_of_first_message(&self, conversation: &ConversationId, title: &str) -> Result<bool> {
        let mut statement = self.connection.prepare_cached(
            "SELECT text FROM message WHERE conversation = ?1 AND role = 'user' ORDER BY seq LIMIT 1",
        )?;
        let first: Option<String> = statement
            .query_row([conversation], |row| row.get(0))
            .optional()?;
        // Earlier versions cut titles at another place.
        let beginning = title.strip_suffix('…').unwrap_or(title);
        Ok(first.is_some_and(|first| {
            title::title_from(&first) == title || first.trim_start().starts_with(beginning)
        }))
    }

    /// Row numbers of messages that may be hits, the best candidates first.
    fn candidates(&self, query: &Query) -> Result<Vec<i64>> {
        let newest = |table: &str| format!("SELECT seq FROM {table} ORDER BY seq DESC");
        let Some(terms) = query.terms() else {
            // The index holds no punctuation.
            return self.seqs(&newest("message"));
        };
        let mut found = self.seqs(&newest("message_unindexed"))?;
        let mut statement = self.connection.prepare_cached(
            "SELECT rowid, rank FROM message_search WHERE message_search MATCH ?1",
        )?;
        let mut ranked: Vec<(i64, f64)> = statement
            .query_map([terms], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        ranked.sort_by(|(a, of_a), (b, of_b)| of_a.total_cmp(of_b).then(b.cmp(a)));
        found.extend(ranked.into_iter().map(|(seq, _)| seq));
        Ok(found)
    }

    fn seqs(&self, sql: &str) -> Result<Vec<i64>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let rows = statement.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// The hit for a message, or `None` if the message does not contain all words.
    fn hit(&self, seq: i64, query: &Query) -> Result<Option<SearchHit>> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT conversation.id, message.id, title, message.text
             FROM message JOIN conversation ON conversation.id = message.conversation
             WHERE message.seq = ?1 AND deleted_at IS NULL AND {IS_NO_COPY}"
        ))?;
        let row = statement
            .query_row([seq], |row| {
                Ok((
                    row.get(0)?,
                    row.get::<_, MessageId>(1)?,
                    row.get(2)?,
                    row.get::<_, String>(3)?,
                ))
            })
            .optional()?;
        let Some((conversation, message, title, text)) = row else {
            return Ok(None);
        };
        Ok(query.find(&text).map(|found| {
            let (snippet, marks) = snippet(&text, &found);
            SearchHit {
                kind: HitKind::Message,
                conversation,
                message: Some(message),
                title,
                snippet,
                marks,
            }
        }))
    }

    /// Indexes the waiting messages, without an fsync: after a power loss they wait again.
    fn index_new(&self) -> Result<()> {
        if self.is_read_only
            || self
                .seqs("SELECT seq FROM message_unindexed LIMIT 1")?
                .is_empty()
        {
            return Ok(());
        }
        self.connection
            .pragma_update(None, "synchronous", "NORMAL")?;
        let transaction =
            Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)?;
        let indexed = index_new(&transaction).and_then(|()| transaction.commit());
        self.connection.pragma_update(None, "synchronous", "FULL")?;
        Ok(indexed?)
    }
}

/// Indexes the messages in `message_unindexed`.
pub(super) fn index_new(connection: &Connection) -> rusqlite::Result<()> {
    let mut next = connection.prepare_cached(
        "SELECT seq, text FROM message_unindexed JOIN message USING (seq) ORDER BY seq LIMIT 1",
    )?;
    loop {
        let waiting: Option<(i64, String)> = next
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((seq, text)) = waiting else {
            return Ok(());
        };
        connection
            .prepare_cached("INSERT INTO message_terms (seq, terms) VALUES (?1, ?2)")?
            .execute(params![seq, terms::of(&fold(&text))])?;
        connection
            .prepare_cached("DELETE FROM message_unindexed WHERE seq = ?1")?
            .execute([seq])?;
    }
}

/// Whether the search table matches the stored terms: FTS5's `integrity-check` compares the two at rank 1. Before its
/// second version the table indexed the messages themselves.
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

/// Rebuilds the search table from the messages' terms.
pub(super) fn rebuild(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch("INSERT INTO message_search (message_search) VALUES ('rebuild')")
}
