//! Conversations and their messages, as the history keeps them.

use engine::catalog;
use serde::Serialize;
use store::{
    Conversation, ConversationId, Format, Message, MessageId, NewConversation, Sampling, SearchHit,
    Unsent, WhenFull, file_stem,
};
use tauri::AppHandle;
use tauri_plugin_dialog::DialogExt;
use ts_rs::TS;

use crate::api_error::ApiError;
use crate::app::{OpenApp, now_ms};

/// Most hits that a search shows.
const SEARCH_LIMIT: u32 = 50;

/// A conversation with every message of its tree.
#[derive(Debug, Serialize, TS)]
pub struct ConversationTree {
    /// The conversation.
    pub conversation: Conversation,
    /// Its messages in the order they were written, all branches.
    pub messages: Vec<Message>,
}

#[tauri::command(async)]
pub(crate) fn list_conversations(app: OpenApp) -> Result<Vec<Conversation>, ApiError> {
    Ok(app.history().conversations()?)
}

#[tauri::command(async)]
pub(crate) fn create_conversation(
    app: OpenApp,
    system_prompt: Option<String>,
    model: Option<String>,
) -> Result<Conversation, ApiError> {
    let new = NewConversation {
        system_prompt: system_prompt.unwrap_or_default(),
        model,
        ..NewConversation::default()
    };
    Ok(app.history().create_conversation(new, now_ms())?)
}

#[tauri::command(async)]
pub(crate) fn get_conversation(
    app: OpenApp,
    id: ConversationId,
) -> Result<ConversationTree, ApiError> {
    let history = app.history();
    Ok(ConversationTree {
        conversation: history.conversation(&id)?,
        messages: history.messages(&id)?,
    })
}

#[tauri::command(async)]
pub(crate) fn rename_conversation(
    app: OpenApp,
    id: ConversationId,
    title: String,
) -> Result<(), ApiError> {
    Ok(app.history().rename(&id, &title)?)
}

#[tauri::command(async)]
pub(crate) fn delete_conversation(app: OpenApp, id: ConversationId) -> Result<(), ApiError> {
    app.engine.cancel(id.clone())?;
    app.history().delete_conversation(&id, now_ms())?;
    app.empty_trash_later();
    Ok(())
}

#[tauri::command(async)]
pub(crate) fn undo_delete(app: OpenApp, id: ConversationId) -> Result<(), ApiError> {
    Ok(app.history().restore_conversation(&id)?)
}

#[tauri::command(async)]
pub(crate) fn set_system_prompt(
    app: OpenApp,
    id: ConversationId,
    text: String,
) -> Result<(), ApiError> {
    Ok(app.history().set_system_prompt(&id, &text)?)
}

#[tauri::command(async)]
pub(crate) fn set_sampling(
    app: OpenApp,
    id: ConversationId,
    sampling: Sampling,
) -> Result<(), ApiError> {
    Ok(app.history().set_sampling(&id, &sampling)?)
}

#[tauri::command(async)]
pub(crate) fn set_when_full(
    app: OpenApp,
    id: ConversationId,
    when_full: WhenFull,
) -> Result<(), ApiError> {
    Ok(app.history().set_when_full(&id, when_full)?)
}

/// Sets the model that answers from now on; existing replies keep their model.
#[tauri::command(async)]
pub(crate) fn set_conversation_model(
    app: OpenApp,
    id: ConversationId,
    model: String,
) -> Result<(), ApiError> {
    let folder = app.data.models_path();
    catalog::require(&app.history(), &folder, &model)?;
    Ok(app.history().set_model(&id, Some(&model))?)
}

#[tauri::command(async)]
pub(crate) fn set_active_leaf(
    app: OpenApp,
    conversation: ConversationId,
    message: MessageId,
) -> Result<(), ApiError> {
    Ok(app
        .history()
        .set_active_leaf(&conversation, Some(&message))?)
}

#[tauri::command(async)]
pub(crate) fn unsent(app: OpenApp) -> Result<Vec<Unsent>, ApiError> {
    Ok(app.history().unsent()?)
}

#[tauri::command(async)]
pub(crate) fn keep_unsent(app: OpenApp, unsent: Unsent) -> Result<(), ApiError> {
    Ok(app.history().keep_unsent(&unsent)?)
}

#[tauri::command(async)]
pub(crate) fn export_conversation(
    app: OpenApp,
    id: ConversationId,
    format: Format,
) -> Result<String, ApiError> {
    Ok(app.history().export(&id, format)?)
}

/// Asks where in the system's own dialog and writes the export there: the path, or nothing when the person turns away.
#[tauri::command(async)]
pub(crate) fn save_conversation(
    handle: AppHandle,
    app: OpenApp,
    id: ConversationId,
    format: Format,
) -> Result<Option<String>, ApiError> {
    let title = app.history().conversation(&id)?.title;
    let text = app.history().export(&id, format)?;
    let dialog = handle
        .dialog()
        .file()
        .set_title("Save the conversation")
        .set_file_name(file_name(&title, format));
    let Some(path) = dialog
        .blocking_save_file()
        .and_then(|chosen| chosen.into_path().ok())
    else {
        return Ok(None);
    };
    std::fs::write(&path, text)
        .map_err(|error| ApiError::new("storage", format!("{}: {error}", path.display())))?;
    Ok(Some(path.display().to_string()))
}

#[tauri::command(async)]
pub(crate) fn search(app: OpenApp, text: String) -> Result<Vec<SearchHit>, ApiError> {
    Ok(app.history().search(&text, SEARCH_LIMIT)?)
}

/// A name that every file system takes.
fn file_name(title: &str, format: Format) -> String {
    let ending = match format {
        Format::Markdown => "md",
        Format::Json => "json",
    };
    format!("{}.{ending}", file_stem(title))
}

#[cfg(test)]
mod tests {
    use store::Format;

    use super::file_name;

    #[test]
    fn a_title_becomes_a_name_that_every_file_system_takes() {
        assert_eq!(
            file_name("What is a/b: c?\n", Format::Markdown),
            "What is a b c.md"
        );
        assert_eq!(file_name("...", Format::Json), "conversation.json");
        assert_eq!(
            file_name(&"語".repeat(99), Format::Json).chars().count(),
            65
        );
    }
}
