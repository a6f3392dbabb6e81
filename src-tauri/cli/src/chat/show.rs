//! A conversation, or all of them, to read.

use std::collections::HashMap;

use serde_json::json;
use store::{Conversation, ConversationId, Message, MessageId, MessageKind, MessageState, Role};

use crate::app::App;
use crate::error::Result;
use crate::output::Output;

/// The branch that was used last; with `--json` every message, in the order they were written.
pub(super) fn conversation(app: &App, id: &ConversationId, output: &Output) -> Result<()> {
    let (conversation, messages, branch) = {
        let history = app.history();
        let conversation = history.conversation(id)?;
        let branch = match &conversation.active_leaf {
            Some(leaf) => history.branch(leaf)?,
            None => Vec::new(),
        };
        (conversation, history.messages(id)?, branch)
    };
    let value = json!({
        "conversation": conversation.id,
        "title": conversation.title,
        "system_prompt": conversation.system_prompt,
        "model": conversation.model,
        "active_leaf": conversation.active_leaf,
        "messages": messages,
    });
    output.line(&value, || page(&conversation, &messages, &branch))
}

/// The latest first.
pub(super) fn list(app: &App, output: &Output) -> Result<()> {
    let conversations = app.history().conversations()?;
    conversations.iter().try_for_each(|conversation| {
        let value = json!({
            "conversation": conversation.id,
            "title": conversation.title,
            "model": conversation.model,
            "created_at": conversation.created_at,
            "updated_at": conversation.updated_at,
            "active_leaf": conversation.active_leaf,
        });
        output.line(&value, || {
            format!("{}  {}", conversation.id, title(conversation))
        })
    })
}

pub(super) fn title(conversation: &Conversation) -> &str {
    match conversation.title.as_str() {
        "" => "(no message yet)",
        title => title,
    }
}

fn page(conversation: &Conversation, messages: &[Message], branch: &[Message]) -> String {
    let mut siblings: HashMap<Option<&MessageId>, Vec<&MessageId>> = HashMap::new();
    for message in messages {
        siblings
            .entry(message.parent.as_ref())
            .or_default()
            .push(&message.id);
    }
    let mut text = title(conversation).to_owned();
    if !conversation.system_prompt.is_empty() {
        text.push_str(&format!("\n\nsystem\n{}", conversation.system_prompt));
    }
    for message in branch {
        let beside = siblings
            .get(&message.parent.as_ref())
            .map_or(&[][..], Vec::as_slice);
        text.push_str(&format!(
            "\n\n{}\n{}",
            heading(message, beside),
            message.text.trim_end()
        ));
    }
    text
}

/// `assistant  0190…  34 tokens  Qwen3-0.6B  2/3  stopped`
fn heading(message: &Message, siblings: &[&MessageId]) -> String {
    let role = match message.role {
        Role::System => "system",
        Role::User if message.kind == MessageKind::Summary => "summary",
        Role::User => "you",
        Role::Assistant => "assistant",
    };
    let mut heading = format!("{role}  {}", message.id);
    if message.num_tokens > 0 {
        heading.push_str(&format!("  {} tokens", message.num_tokens));
    }
    if let Some(model) = &message.model {
        heading.push_str(&format!("  {model}"));
    }
    if siblings.len() > 1 {
        let place = siblings
            .iter()
            .position(|id| **id == message.id)
            .map_or(0, |index| index + 1);
        heading.push_str(&format!("  {place}/{}", siblings.len()));
    }
    let state = match message.state {
        MessageState::Complete => return heading,
        MessageState::Generating => "being written",
        MessageState::Stopped => "stopped",
        MessageState::Length => "cut off at its limit",
        MessageState::ContextFull => "context full",
        MessageState::Interrupted => "interrupted",
        MessageState::Failed => "failed",
    };
    format!("{heading}  {state}")
}
