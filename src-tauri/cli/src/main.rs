//! `reprise-cli`: the engine without a window, for scripts, checks and measurements.
//!
//! A command opens the data folder ([`app`]), asks the history or the engine, and prints ([`output`]): text to read, or
//! with `--json` one object a line. Scripts rely on names and fields, so they change by addition only. Not here: what a
//! turn is (engine), what is on disk (store).

mod app;
mod arguments;
mod bench;
mod cache;
mod chat;
mod engine;
mod error;
mod models;
mod output;
mod passphrase;
mod privacy;
mod visible;

use std::process::ExitCode;

use tracing_subscriber::EnvFilter;

use crate::arguments::{Arguments, Command};
use crate::error::Result;
use crate::output::Output;
use crate::visible::VisibleWriter;

fn main() -> ExitCode {
    let arguments = match Arguments::read() {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    log_to_stderr();
    let output = Output::new(arguments.json, arguments.raw);
    match run(arguments, &output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output.error(&error);
            error.exit_code()
        }
    }
}

fn run(arguments: Arguments, output: &Output) -> Result<()> {
    let Arguments {
        data_dir, command, ..
    } = arguments;
    match command {
        Command::Models { command } => models::run(command, data_dir, output),
        Command::Chat {
            command: Some(command),
            ..
        } => chat::run(command, data_dir, output),
        Command::Chat {
            command: None,
            talk,
        } => chat::talk(*talk, data_dir, output),
        Command::Engine { command } => engine::run(command, data_dir, output),
        Command::Cache { command } => cache::run(command, data_dir, output),
        Command::Privacy { command } => privacy::run(command, data_dir, output),
        Command::Bench { command } => bench::run(command, data_dir, output),
    }
}

/// Misses of the cache and the like, one line each; `RUST_LOG` says what else.
fn log_to_stderr() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| VisibleWriter(std::io::stderr()))
        // Log lines contain names of models and files.
        .with_ansi(false)
        .without_time()
        .compact()
        .init();
}
