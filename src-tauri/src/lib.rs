//! The Tauri shell: one window over the engine and the history.
//!
//! [`run`] reads the arguments, opens the data folder (one process at a time), starts the engine and shows the window.
//! Everything the window may ask for is a command in [`commands`], a few lines each: parse, call the engine or the
//! history, return. A turn streams its events over a channel. Failures reach the UI as one type, `ApiError`.
//!
//! Not here: prompts, tokens, blocks, SQL. Those are the engine's and the store's; the shell decides nothing.

mod api_error;
mod app;
mod arguments;
#[cfg(test)]
mod bindings;
mod commands;
mod instance;
mod refusal;
mod signals;
mod window;

use std::process::ExitCode;

use clap::Parser;
use tauri::{Manager, RunEvent};
use tauri_plugin_window_state::StateFlags;
use tracing_subscriber::EnvFilter;

use crate::app::Running;
use crate::arguments::Arguments;

/// The whole application, from the arguments to the exit status.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    log_to_stderr();
    let running = match instance::take(arguments.data_dir) {
        Ok(Some(data)) => Running::open(data),
        Ok(None) => {
            eprintln!("reprise: it is running already; its window was brought forward");
            return ExitCode::SUCCESS;
        }
        Err(error) => Err(error),
    };
    let running = match running {
        Ok(running) => running,
        Err(error) => return refusal::refuse(&error.message),
    };
    let folder = running.folder().to_owned();
    // Size and place of the window are kept in the data folder, with everything else. The window shows itself when
    // its page is there, so that being visible is not remembered.
    let window_state = tauri_plugin_window_state::Builder::new()
        .with_filename(folder.join("window.json").to_string_lossy())
        .with_state_flags(StateFlags::SIZE | StateFlags::POSITION | StateFlags::MAXIMIZED)
        .build();
    let built = tauri::Builder::default()
        .plugin(window_state)
        .plugin(tauri_plugin_dialog::init())
        .manage(running)
        .invoke_handler(commands::handler())
        .setup(move |tauri| {
            window::open(tauri, &folder)?;
            instance::listen(tauri.handle().clone(), &folder);
            signals::exit_on_signal(tauri.handle().clone());
            if let Ok(app) = tauri.state::<Running>().app() {
                std::thread::spawn(move || app.load_first_model());
            }
            Ok(())
        })
        .build(tauri::generate_context!());
    match built {
        Ok(built) => {
            let status = built.run_return(|handle, event| {
                if matches!(event, RunEvent::Exit) {
                    handle.state::<Running>().close();
                }
            });
            ExitCode::from(u8::try_from(status).unwrap_or(1))
        }
        Err(error) => refusal::refuse(&format!("the window could not be made: {error}")),
    }
}

/// Reasons of misses and failed saves go to standard error; `REPRISE_LOG` asks for more.
fn log_to_stderr() {
    let filter = EnvFilter::try_from_env("REPRISE_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
}
