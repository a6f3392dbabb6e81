//! stub of the template
use crate::error::Result;
use crate::gguf::GgufFile;
use crate::tokenizer::Tokenizer;
use serde::{Deserialize, Serialize};

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// A message to be tokenised, or with the ids the model saw.
#[derive(Clone, Copy, Debug)]
pub struct ChatMessage<'a> {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: &'a str,
    /// Stored ids, returned unchanged.
    pub tokens: Option<&'a [u32]>,
}

/// The model's chat template.
pub struct ChatTemplate {}

impl ChatTemplate {
    pub(crate) fn read(_file: &GgufFile, _tokenizer: &Tokenizer) -> Result<ChatTemplate> {
        Ok(ChatTemplate {})
    }

    /// One token list per message.
    pub fn tokenize(
        &self,
        _tokenizer: &Tokenizer,
        _messages: &[ChatMessage<'_>],
        _date: &str,
    ) -> Result<Vec<Vec<u32>>> {
        Ok(Vec::new())
    }
}
