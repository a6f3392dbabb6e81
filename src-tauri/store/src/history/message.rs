//! Messages: the nodes of a conversation's tree, in the order they were made.

use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::{ConversationId, History, Message, MessageId, NewMessage, Role, conversation, unsent};
use super::{from_json, from_name, to_name};
use crate::error::{Error, Result};

// `parent` is checked at commit and does not cascade: a conversation goes as a whole, and a chain of cascades would be as
// deep as the conversation is long. `edited_from` is a note, not a reference.
pub(super) const V1: &str = "
CREATE TABLE message (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,   -- order of creation, and the row of the search table
    id           TEXT NOT NULL UNIQUE,
    conversation TEXT NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
    parent       TEXT REFERENCES message (id) DEFERRABLE INITIALLY DEFERRED,
    role         TEXT NOT NULL,
    text         TEXT NOT NULL,
    num_tokens   INTEGER NOT NULL DEFAULT 0,
    state        TEXT NOT NULL,
    model        TEXT,
    stats        TEXT,                                -- JSON of TurnStats
    created_at   INTEGER NOT NULL,
    edited_from  TEXT
) STRICT;
CREATE INDEX message_by_conversation ON message (conversation);
CREATE INDEX message_by_parent ON message (parent);
CREATE INDEX message_generating ON message (seq) WHERE state = 'generating';
";

pub(super) const V2: &str = "ALTER TABLE message ADD COLUMN kind TEXT NOT NULL DEFAULT 'said';";

pub(super) const COLUMNS: &str = "id, conversation, parent, role, text, num_tokens, state, model, stats, created_at, edited_from, kind";

pub(super) fn from_row(row: &Row) -> rusqlite::Result<Message> {
    let stats: Option<String> = row.get(8)?;
    Ok(Message {
        id: row.get(0)?,
        conversation: row.get(1)?,
        parent: row.get(2)?,
        role: from_name(3, row.get(3)?)?,
        text: row.get(4)?,
        num_tokens: row.get(5)?,
        state: from_name(6, row.get(6)?)?,
        model: row.get(7)?,
        stats: stats.map(|stats| from_json(8, &stats)).transpose()?,
        created_at: row.get(9)?,
        edited_from: row.get(10)?,
        kind: from_name(11, row.get(11)?)?,
    })
}

pub(super) fn read(connection: &Connection, id: &MessageId) -> Result<Message> {
    let mut statement =
        connection.prepare_cached(&format!("SELECT {COLUMNS} FROM message WHERE id = ?1"))?;
    statement
        .query_row([id], from_row)
        .optional()?
        .ok_or_else(|| Error::MessageMissing(id.clone()))
}

/// The message exists and stands in that conversation.
pub(super) fn require(
    connection: &Connection,
    conversation: &ConversationId,
    id: &MessageId,
) -> Result<()> {
    let mut statement =
        connection.prepare_cached("SELECT 1 FROM message WHERE id = ?1 AND conversation = ?2")?;
    if statement.exists(params![id, conversation])? {
        Ok(())
    } else {
        Err(Error::MessageMissing(id.clone()))
    }
}

pub(super) fn insert(transaction: &Transaction, new: &NewMessage, now_ms: i64) -> Result<Message> {
    let sql = "SELECT 1 FROM conversation WHERE id = ?1 AND deleted_at IS NULL";
    if !transaction
        .prepare_cached(sql)?
        .exists([&new.conversation])?
    {
        return Err(Error::ConversationMissing(new.conversation.clone()));
    }
    for other in new.parent.iter().chain(&new.edited_from) {
        require(transaction, &new.conversation, other)?;
    }
    let id = MessageId::new(now_ms);
    transaction
        .prepare_cached(
            // An edited summary is still one.
            "INSERT INTO message (id, conversation, parent, role, text, state, model, created_at, edited_from, kind)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9,
                     coalesce((SELECT kind FROM message WHERE id = ?9), 'said'))",
        )?
        .execute(params![
            id,
            new.conversation,
            new.parent,
            to_name(new.role)?,
            new.text,
            to_name(new.state)?,
            new.model,
            now_ms,
            new.edited_from
        ])?;
    conversation::extend(transaction, &new.conversation, &id, now_ms)?;
    unsent::sent(transaction, &new.conversation, &new.text)?;
    if new.role == Role::User {
        conversation::name_after(transaction, &new.conversation, &new.text)?;
    }
    read(transaction, &id)
}

impl History {
    /// Appends a message, makes it the end of the branch that is shown, and returns when it is on disk.
    pub fn append_message(&mut self, new: NewMessage, now_ms: i64) -> Result<Message> {
        self.durable(|transaction| insert(transaction, &new, now_ms))
    }

    /// One message.
    pub fn message(&self, id: &MessageId) -> Result<Message> {
        read(&self.connection, id)
    }

    /// A conversation's whole tree, in the order of creation.
    pub fn messages(&self, conversation: &ConversationId) -> Result<Vec<Message>> {
        self.conversation(conversation)?;
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM message WHERE conversation = ?1 ORDER BY seq"
        ))?;
        let rows = statement.query_map([conversation], from_row)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// The messages from the root to `leaf`.
    pub fn branch(&self, leaf: &MessageId) -> Result<Vec<Message>> {
        // A parent is always older than its child, so the order of creation is the order of the branch.
        let mut statement = self.connection.prepare_cached(&format!(
            "WITH RECURSIVE branch (node, above) AS (
                 SELECT id, parent FROM message WHERE id = ?1
                 UNION SELECT id, parent FROM message JOIN branch ON message.id = above
             )
             SELECT {COLUMNS} FROM message JOIN branch ON id = node ORDER BY seq"
        ))?;
        let messages: Vec<Message> = statement
            .query_map([leaf], from_row)?
            .collect::<rusqlite::Result<_>>()?;
        if messages.is_empty() {
            Err(Error::MessageMissing(leaf.clone()))
        } else {
            Ok(messages)
        }
    }
}
