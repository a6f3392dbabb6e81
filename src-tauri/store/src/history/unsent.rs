//! Words that were written and not sent: in the composer of a conversation, in place of a message, or on the page where a
//! conversation begins.

use rusqlite::{Transaction, params};

use super::{ConversationId, History, Unsent, message};
use crate::error::{Error, Result};

pub(super) const V1: &str = "
CREATE TABLE unsent (
    conversation TEXT REFERENCES conversation (id) ON DELETE CASCADE,
    message      TEXT REFERENCES message (id) ON DELETE CASCADE,
    text         TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX unsent_by_place ON unsent (ifnull(conversation, ''), ifnull(message, ''));
CREATE INDEX unsent_by_message ON unsent (message);
";

impl History {
    /// Everything that was written and not sent, but for conversations that are deleted.
    pub fn unsent(&self) -> Result<Vec<Unsent>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT unsent.conversation, unsent.message, unsent.text FROM unsent
             LEFT JOIN conversation ON conversation.id = unsent.conversation
             WHERE conversation.deleted_at IS NULL ORDER BY unsent.rowid",
        )?;
        let rows = statement.query_map([], |row| {
            Ok(Unsent {
                conversation: row.get(0)?,
                message: row.get(1)?,
                text: row.get(2)?,
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Keeps what stands in a place now; an empty text empties it. It is written with every few letters, and so does not
    /// wait for the disk.
    pub fn keep_unsent(&mut self, unsent: &Unsent) -> Result<()> {
        let Unsent {
            conversation,
            message,
            text,
        } = unsent;
        self.quick(|transaction| {
            if let Some(conversation) = conversation {
                let sql = "SELECT 1 FROM conversation WHERE id = ?1";
                if !transaction.prepare_cached(sql)?.exists([conversation])? {
                    return Err(Error::ConversationMissing(conversation.clone()));
                }
            }
            if let Some(message) = message {
                let conversation = conversation
                    .as_ref()
                    .ok_or_else(|| Error::MessageMissing(message.clone()))?;
                message::require(transaction, conversation, message)?;
            }
            let of_place = "ifnull(conversation, '') = ifnull(?1, '') AND ifnull(message, '') = ifnull(?2, '')";
            transaction
                .prepare_cached(&format!("DELETE FROM unsent WHERE {of_place}"))?
                .execute(params![conversation, message])?;
            if !text.is_empty() {
                let sql = "INSERT INTO unsent (conversation, message, text) VALUES (?1, ?2, ?3)";
                transaction
                    .prepare_cached(sql)?
                    .execute(params![conversation, message, text])?;
            }
            Ok(())
        })
    }
}

/// Words that have become a message are unsent no more.
pub(super) fn sent(
    transaction: &Transaction,
    conversation: &ConversationId,
    text: &str,
) -> Result<()> {
    let sql = "DELETE FROM unsent WHERE conversation = ?1 AND text = ?2";
    transaction
        .prepare_cached(sql)?
        .execute(params![conversation, text])?;
    Ok(())
}
