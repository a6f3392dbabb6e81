//! A conversation as text to take away.

mod markdown;

use serde_json::json;

use super::{ConversationId, Format, History};
use crate::error::Result;

impl History {
    /// The branch that is shown as Markdown, or the whole tree as JSON: `{"conversation": …, "messages": […]}`.
    pub fn export(&self, id: &ConversationId, format: Format) -> Result<String> {
        let conversation = self.conversation(id)?;
        match format {
            Format::Json => {
                let messages = self.messages(id)?;
                Ok(serde_json::to_string_pretty(
                    &json!({ "conversation": conversation, "messages": messages }),
                )?)
            }
            Format::Markdown => {
                let branch = match &conversation.active_leaf {
                    Some(leaf) => self.branch(leaf)?,
                    None => Vec::new(),
                };
                Ok(markdown::page(
                    &conversation.title,
                    &conversation.system_prompt,
                    &branch,
                ))
            }
        }
    }
}
