//! The one window.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use tauri::utils::config::Color;
use tauri::webview::{NewWindowResponse, WebviewWindowBuilder};
use tauri::{AppHandle, Manager, Theme, Url, WebviewUrl, WebviewWindow};

/// The page's own ground in both themes (`--page` of the UI), so that nothing flashes before it is drawn.
const LIGHT: Color = Color(0xfd, 0xfd, 0xfc, 0xff);
const DARK: Color = Color(0x18, 0x18, 0x17, 0xff);

/// The window's label in Tauri.
const LABEL: &str = "main";
/// The window is shown after this time even if the page has not reported that it is drawn.
const LATEST_SHOW: Duration = Duration::from_secs(4);

/// Creates the window. It is shown when its page reports that it is drawn, so that it never appears empty.
pub(crate) fn open(tauri: &tauri::App, data_folder: &Path) -> tauri::Result<()> {
    // The web view's own files (no chat data among them) stay in the data folder too, closed to others like the rest.
    let webview_folder = data_folder.join("webview");
    make_private(&webview_folder)?;
    let window = WebviewWindowBuilder::new(tauri, LABEL, WebviewUrl::default())
        .title("Reprise")
        .inner_size(1180.0, 780.0)
        .min_inner_size(640.0, 480.0)
        .visible(false)
        .data_directory(webview_folder)
        // The page handles dropped files.
        .disable_drag_drop_handler()
        .on_navigation(is_own_page)
        .on_new_window(|_, _| NewWindowResponse::Deny)
        .on_download(|_, _| false)
        .build()?;
    let ground = if matches!(window.theme(), Ok(Theme::Dark)) {
        DARK
    } else {
        LIGHT
    };
    window.set_background_color(Some(ground))?;
    thread::spawn(move || {
        thread::sleep(LATEST_SHOW);
        show(&window);
    });
    Ok(())
}

/// Shows the window unless it is visible.
pub(crate) fn show(window: &WebviewWindow) {
    if matches!(window.is_visible(), Ok(true)) {
        return;
    }
    if let Err(error) = window.show() {
        tracing::error!(%error, "the window cannot be shown");
    }
}

/// Brings the window forward, then calls `raised`, which is never called if the application hangs.
pub(crate) fn raise(handle: &AppHandle, raised: impl FnOnce() + Send + 'static) {
    let Some(window) = handle.get_webview_window(LABEL) else {
        return;
    };
    let forward = move || {
        let brought = window
            .unminimize()
            .and_then(|()| window.show())
            .and_then(|()| window.set_focus());
        match brought {
            Ok(()) => raised(),
            Err(error) => tracing::warn!(%error, "the window cannot be brought forward"),
        }
    };
    if let Err(error) = handle.run_on_main_thread(forward) {
        tracing::warn!(%error, "the window cannot be brought forward");
    }
}

fn make_private(dir: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// A reply may hold links, and a reply is untrusted: the window never leaves its page.
fn is_own_page(url: &Url) -> bool {
    let own_host = matches!(url.host_str(), Some("localhost" | "tauri.localhost"));
    let own_scheme = matches!(url.scheme(), "tauri" | "http" | "https");
    let dev_server = cfg!(dev) && url.host_str() == Some("127.0.0.1");
    url.as_str() == "about:blank" || (own_scheme && own_host && url.port().is_none()) || dev_server
}

#[cfg(test)]
mod tests {
    use super::is_own_page;

    #[test]
    fn the_window_never_leaves_its_page() {
        let own = |url: &str| is_own_page(&url.parse().expect("a URL"));
        assert!(own("tauri://localhost/index.html"));
        assert!(own("http://tauri.localhost/"));
        for foreign in [
            "https://example.org/",
            "http://localhost:8080/",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "data:text/html,x",
        ] {
            assert!(!own(foreign), "{foreign}");
        }
    }
}
