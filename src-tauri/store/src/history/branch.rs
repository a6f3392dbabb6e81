//! A branch made from what the conversation holds already: copies of messages, and a summary of those it leaves out.

use rusqlite::{Transaction, params};

use super::{BranchPart, ConversationId, History, Message, MessageId, to_name};
use super::{MessageKind, MessageState, Role, conversation, message};
use crate::error::{Error, Result};

impl History {
    /// Adds a branch from the root: all of it, or nothing. It becomes the one that is shown. Copies keep their words,
    /// state, model and time, and name the message they are copies of. Returns the new messages, on disk.
    ///
    /// # Errors
    /// When the conversation or a message to copy does not exist.
    pub fn add_branch(
        &mut self,
        conversation: &ConversationId,
        parts: &[BranchPart],
        now_ms: i64,
    ) -> Result<Vec<Message>> {
        self.conversation(conversation)?;
        self.durable(|transaction| {
            let mut added: Vec<Message> = Vec::with_capacity(parts.len());
            for part in parts {
                let id = MessageId::new(now_ms);
                let parent = added.last().map(|message| &message.id);
                match part {
                    BranchPart::Summary { text, model } => transaction.execute(
                        "INSERT INTO message (id, conversation, parent, role, text, state, model, created_at, kind)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                        params![
                            id,
                            conversation,
                            parent,
                            to_name(Role::User)?,
                            text,
                            to_name(MessageState::Complete)?,
                            model,
                            now_ms,
                            to_name(MessageKind::Summary)?
                        ],
                    )?,
                    BranchPart::Copy { of, with_tokens } => {
                        copy(transaction, conversation, of, &id, parent, *with_tokens)?
                    }
                };
                added.push(message::read(transaction, &id)?);
            }
            if let Some(leaf) = added.last() {
                conversation::extend(transaction, conversation, &leaf.id, now_ms)?;
            }
            Ok(added)
        })
    }
}

fn copy(
    transaction: &Transaction,
    conversation: &ConversationId,
    of: &MessageId,
    id: &MessageId,
    parent: Option<&MessageId>,
    with_tokens: bool,
) -> Result<usize> {
    let num_rows = transaction.execute(
        "INSERT INTO message (id, conversation, parent, role, text, num_tokens, state, model, stats, created_at, edited_from, kind)
         SELECT ?3, conversation, ?4, role, text, iif(?5, num_tokens, 0), state, model, stats, created_at, id, kind
         FROM message WHERE id = ?1 AND conversation = ?2",
        params![of, conversation, id, parent, with_tokens],
    )?;
    if num_rows == 0 {
        return Err(Error::MessageMissing(of.clone()));
    }
    if with_tokens {
        transaction.execute(
            "INSERT INTO message_tokens (message, tokenizer, ids)
             SELECT ?2, tokenizer, ids FROM message_tokens WHERE message = ?1",
            params![of, id],
        )?;
    }
    Ok(num_rows)
}
