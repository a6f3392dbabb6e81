//! Conversations. A deleted one stays, hidden, until it is purged, so that a deletion can be undone.

use rusqlite::{OptionalExtension, Row, Transaction, params};

use super::{
    Conversation, ConversationId, History, MessageId, NewConversation, Sampling, WhenFull,
};
use super::{from_json, from_name, message, to_json, to_name, tokens};
use crate::error::{Error, Result};
use crate::title::{title_from, title_of};

pub(super) const V1: &str = "
CREATE TABLE conversation (
    id            TEXT PRIMARY KEY NOT NULL,
    title         TEXT NOT NULL,
    system_prompt TEXT NOT NULL,
    model         TEXT,
    sampling      TEXT NOT NULL,             -- JSON of Sampling
    created_at    INTEGER NOT NULL,          -- unix ms, as are all times
    updated_at    INTEGER NOT NULL,
    active_leaf   TEXT REFERENCES message (id) ON DELETE SET NULL,
    deleted_at    INTEGER                    -- in the trash since then
) STRICT;
CREATE INDEX conversation_by_recency ON conversation (updated_at);
";

pub(super) const V2: &str =
    "ALTER TABLE conversation ADD COLUMN when_full TEXT NOT NULL DEFAULT 'ask';";

// A clock may be wrong and later be corrected, so a counter and not a time gives the order of last use.
pub(super) const V3: &str = "
ALTER TABLE conversation ADD COLUMN recency INTEGER NOT NULL DEFAULT 0;   -- grows with each use
UPDATE conversation SET recency = coalesce(
    (SELECT max(seq) FROM message WHERE message.conversation = conversation.id),
    (SELECT max(seq) FROM message WHERE message.created_at <= conversation.created_at),
    0
);
DROP INDEX conversation_by_recency;
CREATE INDEX conversation_by_use ON conversation (recency);
";

/// A recency greater than that of every other conversation.
const MOST_RECENT: &str = "(SELECT coalesce(max(recency), 0) + 1 FROM conversation)";

const COLUMNS: &str =
    "id, title, system_prompt, model, sampling, created_at, updated_at, active_leaf, when_full";

fn from_row(row: &Row) -> rusqlite::Result<Conversation> {
    Ok(Conversation {
        id: row.get(0)?,
        title: row.get(1)?,
        system_prompt: row.get(2)?,
        model: row.get(3)?,
        sampling: from_json(4, row.get_ref(4)?.as_str()?)?,
        created_at: row.get(5)?,
        updated_at: row.get(6)?,
        active_leaf: row.get(7)?,
        when_full: from_name(8, row.get(8)?)?,
    })
}

impl History {
    /// Creates a conversation without messages.
    pub fn create_conversation(
        &mut self,
        new: NewConversation,
        now_ms: i64,
    ) -> Result<Conversation> {
        let id = ConversationId::new(now_ms);
        let sampling = to_json(&new.sampling)?;
        self.durable(|transaction| {
            transaction.execute(
                &format!(
                    "INSERT INTO conversation (id, title, system_prompt, model, sampling, created_at, updated_at, recency)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, {MOST_RECENT})"
                ),
                params![id, title_of(&new.title), new.system_prompt, new.model, sampling, now_ms],
            )?;
            Ok(())
        })?;
        self.conversation(&id)
    }

    /// All conversations that are not deleted, ordered by last use, the latest first, independent of the clock.
    pub fn conversations(&self) -> Result<Vec<Conversation>> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM conversation WHERE deleted_at IS NULL ORDER BY recency DESC, rowid DESC"
        ))?;
        let rows = statement.query_map([], from_row)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// One conversation that is not deleted.
    pub fn conversation(&self, id: &ConversationId) -> Result<Conversation> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM conversation WHERE id = ?1 AND deleted_at IS NULL"
        ))?;
        statement
            .query_row([id], from_row)
            .optional()?
            .ok_or_else(|| Error::ConversationMissing(id.clone()))
    }

    /// Sets the title, without its invisible characters.
    pub fn rename(&mut self, id: &ConversationId, title: &str) -> Result<()> {
        self.durable(|transaction| set(transaction, id, "title", title_of(title)))
    }

    /// Changes its system prompt. The token ids of its root messages hold the old one, so they are forgotten.
    pub fn set_system_prompt(&mut self, id: &ConversationId, text: &str) -> Result<()> {
        self.durable(|transaction| {
            set(transaction, id, "system_prompt", text)?;
            tokens::forget_roots(transaction, id)
        })
    }

    /// Changes how its replies are sampled.
    pub fn set_sampling(&mut self, id: &ConversationId, sampling: &Sampling) -> Result<()> {
        let sampling = to_json(sampling)?;
        self.durable(|transaction| set(transaction, id, "sampling", sampling))
    }

    /// Chooses what it does with a turn that does not fit into the context.
    pub fn set_when_full(&mut self, id: &ConversationId, when_full: WhenFull) -> Result<()> {
        let when_full = to_name(when_full)?;
        self.durable(|transaction| set(transaction, id, "when_full", when_full))
    }

    /// Chooses its model, or none.
    pub fn set_model(&mut self, id: &ConversationId, model: Option<&str>) -> Result<()> {
        self.durable(|transaction| set(transaction, id, "model", model))
    }

    /// Chooses the branch that is shown.
    pub fn set_active_leaf(&mut self, id: &ConversationId, leaf: Option<&MessageId>) -> Result<()> {
        self.durable(|transaction| {
            if let Some(leaf) = leaf {
                message::require(transaction, id, leaf)?;
            }
            set(transaction, id, "active_leaf", leaf)
        })
    }

    /// Puts it in the trash.
    pub fn delete_conversation(&mut self, id: &ConversationId, now_ms: i64) -> Result<()> {
        self.durable(|transaction| set(transaction, id, "deleted_at", now_ms))
    }

    /// Takes it out of the trash.
    pub fn restore_conversation(&mut self, id: &ConversationId) -> Result<()> {
        self.durable(|transaction| {
            let sql = "UPDATE conversation SET deleted_at = NULL WHERE id = ?1";
            found(transaction.execute(sql, [id])?, id)
        })
    }

    /// Empties the trash of what was deleted before `before_ms`. Returns every message that went, so that the block refs
    /// held by any of them can go too. Their words are overwritten.
    pub fn purge_deleted(&mut self, before_ms: i64) -> Result<Vec<MessageId>> {
        let purged = self.durable(|transaction| {
            let mut statement = transaction.prepare(
                "SELECT message.id FROM message JOIN conversation ON conversation.id = message.conversation
                 WHERE deleted_at < ?1 ORDER BY seq",
            )?;
            let messages = statement.query_map([before_ms], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
            transaction.execute("DELETE FROM conversation WHERE deleted_at < ?1", [before_ms])?;
            Ok(messages)
        })?;
        self.empty_log();
        Ok(purged)
    }
}

/// Sets one column. `column` is a literal of this crate.
fn set(
    transaction: &Transaction,
    id: &ConversationId,
    column: &'static str,
    value: impl rusqlite::ToSql,
) -> Result<()> {
    let sql = format!("UPDATE conversation SET {column} = ?2 WHERE id = ?1 AND deleted_at IS NULL");
    found(transaction.execute(&sql, params![id, value])?, id)
}

fn found(num_rows: usize, id: &ConversationId) -> Result<()> {
    if num_rows == 0 {
        Err(Error::ConversationMissing(id.clone()))
    } else {
        Ok(())
    }
}

/// Notes a new message: it is the end of the branch that is shown.
pub(super) fn extend(
    transaction: &Transaction,
    id: &ConversationId,
    leaf: &MessageId,
    now_ms: i64,
) -> Result<()> {
    transaction.execute(
        &format!("UPDATE conversation SET active_leaf = ?2, updated_at = ?3, recency = {MOST_RECENT} WHERE id = ?1"),
        params![id, leaf, now_ms],
    )?;
    Ok(())
}

/// Names a conversation that has no title after the first line of what the person wrote.
pub(super) fn name_after(transaction: &Transaction, id: &ConversationId, text: &str) -> Result<()> {
    transaction.execute(
        "UPDATE conversation SET title = ?2 WHERE id = ?1 AND title = ''",
        params![id, title_from(text)],
    )?;
    Ok(())
}
