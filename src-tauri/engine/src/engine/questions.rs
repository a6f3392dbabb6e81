//! Questions to the engine, each with the type of its answer. They change nothing and are answered while a reply is decoded.

use models::ModelInfo;
use store::{CacheStats, ConversationId, MessageId};

use super::Engine;
use crate::device::DeviceList;
use crate::memory::MemoryStats;
use crate::privacy::PrivacyState;
use crate::request::{Answer, Question};
use crate::turn::{ContextUse, EditCost};
use crate::{Error, Result};

impl Engine {
    /// What sending `text` instead of `message`, or after the active leaf, would cost. Changes nothing.
    ///
    /// # Errors
    /// When the conversation or the message does not exist, or no model is loaded.
    pub fn preview(
        &self,
        conversation: ConversationId,
        message: Option<MessageId>,
        text: String,
    ) -> Result<EditCost> {
        match self.question(Question::Preview {
            conversation,
            message,
            text,
        })? {
            Answer::Cost(cost) => Ok(cost),
            other => Err(Error::wrong_answer("preview", &other)),
        }
    }

    /// What going on would cost with `text` as the system prompt. Changes nothing.
    ///
    /// # Errors
    /// When the conversation does not exist, or no model is loaded.
    pub fn preview_system(&self, conversation: ConversationId, text: String) -> Result<EditCost> {
        match self.question(Question::PreviewSystem { conversation, text })? {
            Answer::Cost(cost) => Ok(cost),
            other => Err(Error::wrong_answer("preview_system", &other)),
        }
    }

    /// What beginning a conversation with these words would cost. Changes nothing.
    ///
    /// # Errors
    /// When no model is loaded.
    pub fn preview_new(&self, system_prompt: String, text: String) -> Result<EditCost> {
        let question = Question::PreviewNew {
            system_prompt,
            text,
        };
        match self.question(question)? {
            Answer::Cost(cost) => Ok(cost),
            other => Err(Error::wrong_answer("preview_new", &other)),
        }
    }

    /// How full a conversation's context is.
    ///
    /// # Errors
    /// When the conversation does not exist, or no model is loaded.
    pub fn context(&self, conversation: ConversationId) -> Result<ContextUse> {
        match self.question(Question::Context { conversation })? {
            Answer::Context(context) => Ok(context),
            other => Err(Error::wrong_answer("context", &other)),
        }
    }

    /// The model in use.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn loaded(&self) -> Result<Option<ModelInfo>> {
        self.model(Question::Loaded.into())
    }

    /// What memory is used for.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn memory(&self) -> Result<MemoryStats> {
        match self.question(Question::Memory)? {
            Answer::Memory(stats) => Ok(*stats),
            other => Err(Error::wrong_answer("memory", &other)),
        }
    }

    /// The GPUs of the machine, and why there is none to use.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn devices(&self) -> Result<DeviceList> {
        match self.question(Question::Devices)? {
            Answer::Devices(list) => Ok(list),
            other => Err(Error::wrong_answer("devices", &other)),
        }
    }

    /// What the block store holds.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn cache_stats(&self) -> Result<CacheStats> {
        match self.question(Question::CacheStats)? {
            Answer::CacheStats(stats) => Ok(stats),
            other => Err(Error::wrong_answer("cache_stats", &other)),
        }
    }

    /// Whether conversations are encrypted on disk.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn privacy(&self) -> Result<PrivacyState> {
        self.ask_privacy(Question::Privacy.into())
    }

    fn question(&self, question: Question) -> Result<Answer> {
        self.ask(question.into())
    }
}
