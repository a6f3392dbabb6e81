//! The exact token ids the model saw, per message and tokenizer. They can always be made again from the words, so they are
//! written without waiting for the disk.

use rusqlite::{OptionalExtension, Transaction, params};

use super::{ConversationId, History, MessageId, message};
use crate::error::Result;

pub(super) const V1: &str = "
CREATE TABLE message_tokens (
    message   TEXT NOT NULL REFERENCES message (id) ON DELETE CASCADE,
    tokenizer BLOB NOT NULL,       -- 32 bytes, the tokenizer's digest
    ids       BLOB NOT NULL,       -- u32, little endian
    PRIMARY KEY (message, tokenizer)
) STRICT, WITHOUT ROWID;
";

pub(super) fn to_bytes(ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}

fn from_bytes(bytes: &[u8]) -> Vec<u32> {
    bytes
        .chunks_exact(4)
        .map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]]))
        .collect()
}

pub(super) fn write(
    transaction: &Transaction,
    message: &MessageId,
    tokenizer: &[u8],
    ids: &[u32],
) -> Result<()> {
    transaction
        .prepare_cached(
            "INSERT OR REPLACE INTO message_tokens (message, tokenizer, ids) VALUES (?1, ?2, ?3)",
        )?
        .execute(params![message, tokenizer, to_bytes(ids)])?;
    transaction
        .prepare_cached("UPDATE message SET num_tokens = ?2 WHERE id = ?1")?
        .execute(params![message, ids.len() as u32])?;
    Ok(())
}

/// Appends ids, as stored, to what the message has under any tokenizer. A reply being written has one.
pub(super) fn extend(transaction: &Transaction, message: &MessageId, bytes: &[u8]) -> Result<()> {
    transaction.execute(
        "UPDATE message_tokens SET ids = CAST(ids || ?2 AS BLOB) WHERE message = ?1",
        params![message, bytes],
    )?;
    transaction.execute(
        "UPDATE message SET num_tokens =
             coalesce((SELECT max(length(ids)) / 4 FROM message_tokens WHERE message = ?1), 0)
         WHERE id = ?1",
        [message],
    )?;
    Ok(())
}

/// Forgets the message's ids under every tokenizer but one.
pub(super) fn forget_others(
    transaction: &Transaction,
    message: &MessageId,
    tokenizer: &[u8],
) -> Result<()> {
    transaction.execute(
        "DELETE FROM message_tokens WHERE message = ?1 AND tokenizer <> ?2",
        params![message, tokenizer],
    )?;
    Ok(())
}

/// Forgets the ids of the conversation's root messages.
pub(super) fn forget_roots(transaction: &Transaction, conversation: &ConversationId) -> Result<()> {
    let roots = "SELECT id FROM message WHERE conversation = ?1 AND parent IS NULL";
    transaction.execute(
        &format!("DELETE FROM message_tokens WHERE message IN ({roots})"),
        [conversation],
    )?;
    transaction.execute(
        &format!("UPDATE message SET num_tokens = 0 WHERE id IN ({roots})"),
        [conversation],
    )?;
    Ok(())
}

impl History {
    /// Stores a message's token ids under a tokenizer's digest.
    pub fn set_tokens(
        &mut self,
        message: &MessageId,
        tokenizer: &[u8; 32],
        ids: &[u32],
    ) -> Result<()> {
        self.quick(|transaction| {
            message::read(transaction, message)?;
            write(transaction, message, tokenizer, ids)
        })
    }

    /// A message's token ids, if they were stored under this tokenizer.
    pub fn tokens(&self, message: &MessageId, tokenizer: &[u8; 32]) -> Result<Option<Vec<u32>>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT ids FROM message_tokens WHERE message = ?1 AND tokenizer = ?2",
        )?;
        let bytes = statement
            .query_row(params![message, tokenizer.as_slice()], |row| {
                row.get::<_, Vec<u8>>(0)
            })
            .optional()?;
        Ok(bytes.map(|bytes| from_bytes(&bytes)))
    }
}
