//! A message of a conversation as the chat template sees it.

use serde::{Deserialize, Serialize};

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions before the conversation.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// A message to be tokenised, or one with the ids the model saw.
#[derive(Clone, Copy, Debug)]
pub struct ChatMessage<'a> {
    /// The author.
    pub role: Role,
    /// The text.
    pub content: &'a str,
    /// Stored ids: returned unchanged.
    pub tokens: Option<&'a [u32]>,
}

impl Role {
    /// The name that chat templates compare with.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}
