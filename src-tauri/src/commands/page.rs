//! Notifications from the page.

use tauri::WebviewWindow;

use crate::window;

/// The page is drawn, so the window can be shown. Also called while the conversations are locked.
#[tauri::command(async)]
pub(crate) fn page_drawn(window: WebviewWindow) {
    window::show(&window);
}
