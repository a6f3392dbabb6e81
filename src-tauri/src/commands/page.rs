//! What the page tells of itself.

use tauri::WebviewWindow;

use crate::window;

/// The page is drawn: the window may be looked at. Also while the conversations are locked.
#[tauri::command(async)]
pub(crate) fn page_drawn(window: WebviewWindow) {
    window::show(&window);
}
