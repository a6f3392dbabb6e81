//! A polite request to end (log-out, shutdown, `kill`) is an exit like any other: what is new is saved first.

/// Exits the application on the signals that ask for it.
#[cfg(unix)]
pub(crate) fn exit_on_signal(handle: tauri::AppHandle) {
    use tokio::signal::unix::{SignalKind, signal};

    for kind in [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ] {
        let handle = handle.clone();
        tauri::async_runtime::spawn(async move {
            match signal(kind) {
                Ok(mut signals) => {
                    if signals.recv().await.is_some() {
                        handle.exit(0);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a signal will end the application without saving")
                }
            }
        });
    }
}

/// Elsewhere the window's own close request is the only one.
#[cfg(not(unix))]
pub(crate) fn exit_on_signal(_handle: tauri::AppHandle) {}
