//! stub
mod types;
use crate::error::Result;
use std::path::Path;
pub use types::*;

/// The truth.
pub struct History {
    _connection: rusqlite::Connection,
}

#[allow(missing_docs, unused_variables)]
impl History {
    pub fn open(path: &Path) -> Result<History> {
        todo!()
    }
    pub fn create_conversation(
        &mut self,
        new: NewConversation,
        now_ms: i64,
    ) -> Result<Conversation> {
        todo!()
    }
    pub fn conversations(&self) -> Result<Vec<Conversation>> {
        todo!()
    }
    pub fn conversation(&self, id: &ConversationId) -> Result<Conversation> {
        todo!()
    }
    pub fn rename(&mut self, id: &ConversationId, title: &str) -> Result<()> {
        todo!()
    }
    pub fn set_system_prompt(&mut self, id: &ConversationId, text: &str) -> Result<()> {
        todo!()
    }
    pub fn set_sampling(&mut self, id: &ConversationId, sampling: &Sampling) -> Result<()> {
        todo!()
    }
    pub fn set_model(&mut self, id: &ConversationId, model: Option<&str>) -> Result<()> {
        todo!()
    }
    pub fn set_active_leaf(&mut self, id: &ConversationId, leaf: Option<&MessageId>) -> Result<()> {
        todo!()
    }
    pub fn delete_conversation(&mut self, id: &ConversationId, now_ms: i64) -> Result<()> {
        todo!()
    }
    pub fn restore_conversation(&mut self, id: &ConversationId) -> Result<()> {
        todo!()
    }
    pub fn purge_deleted(&mut self, before_ms: i64) -> Result<Vec<MessageId>> {
        todo!()
    }
    pub fn append_message(&mut self, new: NewMessage, now_ms: i64) -> Result<Message> {
        todo!()
    }
    pub fn message(&self, id: &MessageId) -> Result<Message> {
        todo!()
    }
    pub fn begin_reply(
        &mut self,
        conversation: &ConversationId,
        parent: &MessageId,
        model: Option<&str>,
        tokenizer: &[u8; 32],
        now_ms: i64,
    ) -> Result<Message> {
        todo!()
    }
    /// Opens a finished reply again, to be continued where it ended.
    pub fn reopen_reply(&mut self, id: &MessageId) -> Result<Message> {
        todo!()
    }
    pub fn append_reply(&mut self, id: &MessageId, text: &str, token_ids: &[u32]) -> Result<()> {
        todo!()
    }
    pub fn finish_reply(
        &mut self,
        id: &MessageId,
        text: &str,
        tokens: &TokenRow,
        state: MessageState,
        stats: Option<TurnStats>,
    ) -> Result<Message> {
        todo!()
    }
    pub fn messages(&self, conversation: &ConversationId) -> Result<Vec<Message>> {
        todo!()
    }
    pub fn branch(&self, leaf: &MessageId) -> Result<Vec<Message>> {
        todo!()
    }
    pub fn set_tokens(
        &mut self,
        message: &MessageId,
        tokenizer: &[u8; 32],
        ids: &[u32],
    ) -> Result<()> {
        todo!()
    }
    pub fn tokens(&self, message: &MessageId, tokenizer: &[u8; 32]) -> Result<Option<Vec<u32>>> {
        todo!()
    }
    pub fn search(&self, text: &str, limit: u32) -> Result<Vec<SearchHit>> {
        todo!()
    }
    pub fn setting(&self, key: &str) -> Result<Option<serde_json::Value>> {
        todo!()
    }
    pub fn set_setting(&mut self, key: &str, value: &serde_json::Value) -> Result<()> {
        todo!()
    }
    pub fn add_model(&mut self, name: &str, path: &Path) -> Result<()> {
        todo!()
    }
    pub fn models(&self) -> Result<Vec<ModelPath>> {
        todo!()
    }
    pub fn remove_model(&mut self, name: &str) -> Result<()> {
        todo!()
    }
    pub fn export(&self, id: &ConversationId, format: Format) -> Result<String> {
        todo!()
    }
}
