//! Replies while they are written: each piece shown is a row, so that a killed process loses no word the person has read.
//! The message's own row and the search index change once, at the end.

use rusqlite::{Transaction, params};

use super::{
    ConversationId, History, Message, MessageId, MessageState, NewMessage, Role, TokenRow,
    TurnStats,
};
use super::{message, search, to_json, to_name, tokens};
use crate::error::{Error, Result};

pub(super) const V1: &str = "
CREATE TABLE reply_piece (
    seq       INTEGER PRIMARY KEY,
    message   TEXT NOT NULL REFERENCES message (id) ON DELETE CASCADE,
    text      TEXT NOT NULL,
    token_ids BLOB NOT NULL        -- u32, little endian
) STRICT;
CREATE INDEX reply_piece_by_message ON reply_piece (message);
";

impl History {
    /// Starts a reply under `parent`. `tokenizer` is the digest under which the ids of [`append_reply`](Self::append_reply) are kept, should the
    /// process not live to finish it. Not waited for: an empty reply is no loss.
    pub fn begin_reply(
        &mut self,
        conversation: &ConversationId,
        parent: &MessageId,
        model: Option<&str>,
        tokenizer: &[u8; 32],
        now_ms: i64,
    ) -> Result<Message> {
        let new = NewMessage {
            conversation: conversation.clone(),
            parent: Some(parent.clone()),
            role: Role::Assistant,
            text: String::new(),
            state: MessageState::Generating,
            model: model.map(str::to_owned),
            edited_from: None,
        };
        self.quick(|transaction| {
            let reply = message::insert(transaction, &new, now_ms)?;
            tokens::write(transaction, &reply.id, tokenizer, &[])?;
            Ok(reply)
        })
    }

    /// Reopens a reply to continue it where it ended: its ids in `token_row` stay and are appended to. `text` is the
    /// text of the ids, which may differ at the cut from the text that was shown. The reply belongs to `model` from now
    /// on; its ids of other tokenizers are deleted.
    pub fn reopen_reply(
        &mut self,
        id: &MessageId,
        text: &str,
        model: Option<&str>,
        token_row: &TokenRow,
    ) -> Result<Message> {
        self.quick(|transaction| {
            let stored = message::read(transaction, id)?;
            transaction.execute(
                "UPDATE message SET state = 'generating', model = ?2 WHERE id = ?1",
                params![id, model],
            )?;
            tokens::forget_others(transaction, id, &token_row.tokenizer)?;
            tokens::write(transaction, id, &token_row.tokenizer, &token_row.ids)?;
            if stored.text != text {
                transaction.execute(
                    "UPDATE message SET text = ?2 WHERE id = ?1",
                    params![id, text],
                )?;
            }
            message::read(transaction, id)
        })
    }

    /// Keeps a piece of a reply that is about to be shown. Survives the process, not a power cut: waiting for the disk on
    /// each token would slow the tokens.
    pub fn append_reply(&mut self, id: &MessageId, text: &str, token_ids: &[u32]) -> Result<()> {
        self.quick(|transaction| {
            let num_rows = transaction
                .prepare_cached(
                    "INSERT INTO reply_piece (message, text, token_ids)
                     SELECT id, ?2, ?3 FROM message WHERE id = ?1 AND state = 'generating'",
                )?
                .execute(params![id, text, tokens::to_bytes(token_ids)])?;
            if num_rows == 0 {
                Err(Error::NotGenerating(id.clone()))
            } else {
                Ok(())
            }
        })
    }

    /// Ends a reply with its whole text and ids, in place of its pieces; on disk when this returns.
    pub fn finish_reply(
        &mut self,
        id: &MessageId,
        text: &str,
        token_row: &TokenRow,
        state: MessageState,
        stats: Option<TurnStats>,
    ) -> Result<Message> {
        let stats = stats.map(|stats| to_json(&stats)).transpose()?;
        self.durable(|transaction| {
            let num_rows = transaction.execute(
                "UPDATE message SET text = ?2, state = ?3, stats = ?4 WHERE id = ?1 AND state = 'generating'",
                params![id, text, to_name(state)?, stats],
            )?;
            if num_rows == 0 {
                return Err(Error::NotGenerating(id.clone()));
            }
            tokens::forget_others(transaction, id, &token_row.tokenizer)?;
            tokens::write(transaction, id, &token_row.tokenizer, &token_row.ids)?;
            transaction.execute("DELETE FROM reply_piece WHERE message = ?1", [id])?;
            search::index_new(transaction)?;
            message::read(transaction, id)
        })
    }
}

/// Ends every reply that no process is writing any more, with the words that were shown.
pub(super) fn interrupt_all(transaction: &Transaction) -> Result<()> {
    let mut statement = transaction.prepare("SELECT id FROM message WHERE state = 'generating'")?;
    let replies: Vec<MessageId> = statement
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for reply in &replies {
        let mut text = String::new();
        let mut ids = Vec::new();
        let mut pieces = transaction.prepare_cached(
            "SELECT text, token_ids FROM reply_piece WHERE message = ?1 ORDER BY seq",
        )?;
        let mut rows = pieces.query([reply])?;
        while let Some(row) = rows.next()? {
            text.push_str(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?);
            ids.extend_from_slice(row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?);
        }
        transaction.execute(
            "UPDATE message SET text = text || ?2, state = 'interrupted' WHERE id = ?1",
            params![reply, text],
        )?;
        tokens::extend(transaction, reply, &ids)?;
        transaction.execute("DELETE FROM reply_piece WHERE message = ?1", [reply])?;
    }
    Ok(())
}
