//! Turns: what makes the model work. Each streams its events over a channel; the last one says how it ended.

use std::thread;

use engine::{ContextUse, EditCost, Shorten, Turn, TurnEvent, TurnOptions};
use store::{ConversationId, MessageId};
use tauri::ipc::Channel;

use crate::api_error::ApiError;
use crate::app::OpenApp;
use crate::commands::view;

#[tauri::command(async)]
pub(crate) fn send_message(
    app: OpenApp,
    conversation: ConversationId,
    parent: Option<MessageId>,
    text: String,
    channel: Channel<TurnEvent>,
) {
    stream(
        &app,
        Turn::Send {
            conversation,
            parent,
            text,
            options: TurnOptions::default(),
        },
        channel,
    );
}

#[tauri::command(async)]
pub(crate) fn edit_message(
    app: OpenApp,
    conversation: ConversationId,
    message: MessageId,
    text: String,
    channel: Channel<TurnEvent>,
) {
    stream(
        &app,
        Turn::Edit {
            conversation,
            message,
            text,
            options: TurnOptions::default(),
        },
        channel,
    );
}

#[tauri::command(async)]
pub(crate) fn regenerate(
    app: OpenApp,
    conversation: ConversationId,
    message: MessageId,
    channel: Channel<TurnEvent>,
) {
    stream(
        &app,
        Turn::Regenerate {
            conversation,
            message,
            options: TurnOptions::default(),
        },
        channel,
    );
}

#[tauri::command(async)]
pub(crate) fn continue_reply(
    app: OpenApp,
    conversation: ConversationId,
    message: MessageId,
    channel: Channel<TurnEvent>,
) {
    stream(
        &app,
        Turn::Continue {
            conversation,
            message,
            options: TurnOptions::default(),
        },
        channel,
    );
}

#[tauri::command(async)]
pub(crate) fn shorten(
    app: OpenApp,
    conversation: ConversationId,
    how: Shorten,
    channel: Channel<TurnEvent>,
) {
    stream(
        &app,
        Turn::Shorten {
            conversation,
            how,
            options: TurnOptions::default(),
        },
        channel,
    );
}

#[tauri::command(async)]
pub(crate) fn stop(app: OpenApp, conversation: ConversationId) -> Result<(), ApiError> {
    Ok(app.engine.cancel(conversation)?)
}

#[tauri::command(async)]
pub(crate) fn open_conversation(
    app: OpenApp,
    conversation: Option<ConversationId>,
) -> Result<(), ApiError> {
    view::keep_looked_at(&app, conversation.as_ref());
    Ok(app.engine.open(conversation)?)
}

#[tauri::command(async)]
pub(crate) fn warm(app: OpenApp, conversation: ConversationId) -> Result<(), ApiError> {
    Ok(app.engine.warm(conversation)?)
}

#[tauri::command(async)]
pub(crate) fn draft(
    app: OpenApp,
    conversation: ConversationId,
    message: Option<MessageId>,
    text: String,
) -> Result<(), ApiError> {
    Ok(app.engine.draft(conversation, message, text)?)
}

#[tauri::command(async)]
pub(crate) fn preview_edit(
    app: OpenApp,
    conversation: ConversationId,
    message: Option<MessageId>,
    text: String,
) -> Result<EditCost, ApiError> {
    Ok(app.engine.preview(conversation, message, text)?)
}

#[tauri::command(async)]
pub(crate) fn preview_system_prompt(
    app: OpenApp,
    conversation: ConversationId,
    text: String,
) -> Result<EditCost, ApiError> {
    Ok(app.engine.preview_system(conversation, text)?)
}

#[tauri::command(async)]
pub(crate) fn preview_beginning(
    app: OpenApp,
    system_prompt: String,
    text: String,
) -> Result<EditCost, ApiError> {
    Ok(app.engine.preview_new(system_prompt, text)?)
}

#[tauri::command(async)]
pub(crate) fn context_use(
    app: OpenApp,
    conversation: ConversationId,
) -> Result<ContextUse, ApiError> {
    Ok(app.engine.context(conversation)?)
}

#[tauri::command(async)]
pub(crate) fn raise_context(app: OpenApp) -> Result<(), ApiError> {
    Ok(app.engine.raise_context()?)
}

/// Starts `turn` and returns; its events follow on their own thread.
fn stream(app: &OpenApp, turn: Turn, channel: Channel<TurnEvent>) {
    let events = app.engine.submit(turn);
    thread::spawn(move || {
        for event in events {
            // A window that is gone hears nothing; the turn goes on, and the history keeps what it says.
            if channel.send(event).is_err() {
                return;
            }
        }
    });
}
