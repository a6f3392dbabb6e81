//! A conversation as text to take away.

use std::fmt::Write;

use serde_json::json;

use super::{ConversationId, Format, History, Message, MessageKind, Role};
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
                Ok(markdown(
                    &conversation.title,
                    &conversation.system_prompt,
                    &branch,
                ))
            }
        }
    }
}

fn markdown(title: &str, system_prompt: &str, branch: &[Message]) -> String {
    let mut text = format!(
        "# {}\n",
        if title.is_empty() {
            "Conversation"
        } else {
            title
        }
    );
    if !system_prompt.is_empty() {
        section(&mut text, "System", system_prompt);
    }
    for message in branch {
        let heading = match (message.role, &message.model) {
            (Role::System, _) => "System".to_owned(),
            (Role::User, _) if message.kind == MessageKind::Summary => "Summary".to_owned(),
            (Role::User, _) => "You".to_owned(),
            (Role::Assistant, None) => "Assistant".to_owned(),
            (Role::Assistant, Some(model)) => format!("Assistant ({model})"),
        };
        section(&mut text, &heading, &message.text);
    }
    text
}

fn section(text: &mut String, heading: &str, body: &str) {
    // Writing to a String cannot fail.
    let _ = write!(text, "\n## {heading}\n\n{}\n", body.trim_end());
}
