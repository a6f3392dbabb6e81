//! Saved state of the window: its zoom and the open conversation.

use serde::Serialize;
use serde_json::{Value, json};
use store::{ConversationId, History};
use tauri::WebviewWindow;
use ts_rs::TS;

use crate::api_error::ApiError;
use crate::app::OpenApp;

const ZOOM: &str = "zoom";
const LOOKED_AT: &str = "looked_at";

/// Allowed zoom factors.
const ZOOMS: std::ops::RangeInclusive<f64> = 0.5..=3.0;

/// The state in which the window opens.
#[derive(Debug, Serialize, TS)]
pub struct View {
    /// Zoom factor; 1 is the normal size.
    pub zoom: f64,
    /// The conversation that was open last; none for the blank page.
    pub conversation: Option<ConversationId>,
}

#[tauri::command(async)]
pub(crate) fn view(app: OpenApp) -> Result<View, ApiError> {
    let history = app.history();
    let zoom = history.setting(ZOOM)?.and_then(|zoom| zoom.as_f64());
    let conversation = looked_at(&history)?;
    Ok(View {
        zoom: zoom.filter(|zoom| ZOOMS.contains(zoom)).unwrap_or(1.0),
        conversation,
    })
}

#[tauri::command(async)]
pub(crate) fn set_zoom(app: OpenApp, window: WebviewWindow, zoom: f64) -> Result<(), ApiError> {
    if !ZOOMS.contains(&zoom) {
        return Err(ApiError::invalid(
            "text can be half to three times its size",
        ));
    }
    window
        .set_zoom(zoom)
        .map_err(|error| ApiError::new("internal", error.to_string()))?;
    keep(&app, ZOOM, json!(zoom));
    Ok(())
}

/// The conversation that was open last.
pub(crate) fn looked_at(history: &History) -> store::Result<Option<ConversationId>> {
    let kept = history.setting(LOOKED_AT)?;
    Ok(kept
        .as_ref()
        .and_then(Value::as_str)
        .map(ConversationId::from))
}

/// Stores the open conversation.
pub(crate) fn keep_looked_at(app: &OpenApp, conversation: Option<&ConversationId>) {
    keep(app, LOOKED_AT, json!(conversation));
}

/// A failed write is only logged: it loses no message, only the saved state of the window.
fn keep(app: &OpenApp, key: &str, value: Value) {
    let mut history = app.history();
    if history
        .setting(key)
        .is_ok_and(|old| old.as_ref() == Some(&value))
    {
        return;
    }
    if let Err(error) = history.set_setting(key, &value) {
        tracing::warn!(%error, key, "how the window was left is not kept");
    }
}
