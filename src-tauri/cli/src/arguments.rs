//! What may be said on the command line.

mod bench;
mod chat;
mod models;
mod sampling;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

pub(crate) use self::bench::{Baseline, BenchCommand, BenchFlags, QualityFlags, SpeedFlags};
pub(crate) use self::chat::{ChatCommand, ExportFormat, FullContext, TalkFlags, TurnFlags};
pub(crate) use self::models::{ModelsCommand, When};
use crate::output;

/// Chat with language models on your own machine, without a window.
#[derive(Debug, Parser)]
#[command(name = "reprise-cli", version)]
pub(crate) struct Arguments {
    /// Folder of the history, the models and the cache (default: the platform's folder for application data)
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) data_dir: Option<PathBuf>,
    /// Print one JSON object a line
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Send control characters in text as they are where the output is not a terminal; without it they are shown (`\x1b`)
    #[arg(long, global = true)]
    pub(crate) raw: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Model files
    Models {
        #[command(subcommand)]
        command: ModelsCommand,
    },
    /// Conversations; without a command, on a terminal, one to type in
    #[command(args_conflicts_with_subcommands = true)]
    Chat {
        #[command(subcommand)]
        command: Option<ChatCommand>,
        #[command(flatten)]
        talk: Box<TalkFlags>,
    },
    /// A Reprise that is running on this data folder
    Engine {
        #[command(subcommand)]
        command: EngineCommand,
    },
    /// The KV cache on disk
    Cache {
        #[command(subcommand)]
        command: CacheCommand,
    },
    /// Encryption of conversations on disk
    Privacy {
        #[command(subcommand)]
        command: PrivacyCommand,
    },
    /// Measurements, in temporary folders
    Bench {
        #[command(subcommand)]
        command: BenchCommand,
    },
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum EngineCommand {
    /// Have it save everything and give back the model and the working pool; its next turn loads them again
    Release,
    /// What its memory is used for
    Memory,
    /// The GPUs of this machine, or why there is none to use; no Reprise needs to run
    Devices,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// What is in it
    Stats,
    /// Read and check every block; what is bad is dropped
    Verify,
    /// Empty it; no word is lost
    Clear,
}

/// Passphrases come from REPRISE_PASSPHRASE, and a new one instead of it from REPRISE_NEW_PASSPHRASE; without these they are
/// asked for.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum PrivacyCommand {
    /// Whether conversations are encrypted
    Status,
    /// Encrypt them: under a passphrase, without which they are lost, or under a key in the system's keychain
    On {
        /// Keep the key in the system's keychain instead of asking for a passphrase
        #[arg(long)]
        keychain: bool,
    },
    /// Keep them as they are again
    Off,
    /// Choose another passphrase, or the keychain
    Passphrase {
        /// Keep the key in the system's keychain from now on
        #[arg(long)]
        keychain: bool,
    },
}

impl Arguments {
    /// Reads the command line. A mistake is one line on standard error and status 2; help and version are printed.
    pub(crate) fn read() -> Result<Self, ExitCode> {
        let arguments = Self::try_parse().map_err(|error| {
            let shown = error.kind();
            if !error.use_stderr() || shown == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
                // Nothing is left to do where help cannot be printed.
                let _ = error.print();
                return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
            }
            let json = std::env::args_os().any(|argument| argument == "--json");
            output::usage(json, &one_line(&error.render().to_string()));
            ExitCode::from(2)
        })?;
        match arguments.command {
            Command::Chat { command: None, .. } if arguments.json || !is_typed_in() => {
                Err(missing_chat_command())
            }
            _ => Ok(arguments),
        }
    }
}

/// Whether standard input and output are a terminal.
fn is_typed_in() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// Prints the help of `chat` when it has no command and there is no terminal, as other commands do.
fn missing_chat_command() -> ExitCode {
    let mut command = Arguments::command();
    command.build();
    if let Some(chat) = command.find_subcommand_mut("chat") {
        eprint!("{}", chat.render_help());
    }
    ExitCode::from(2)
}

/// clap's message without its usage lines: "error: …".
fn one_line(text: &str) -> String {
    let lines = text.lines().take_while(|line| {
        !line.starts_with("Usage:") && !line.starts_with("For more information")
    });
    let words: Vec<_> = lines.flat_map(str::split_whitespace).collect();
    let line = words.join(" ");
    format!(
        "{}; see --help",
        line.strip_prefix("error: ").unwrap_or(&line)
    )
}

#[cfg(test)]
mod tests;
