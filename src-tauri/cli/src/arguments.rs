//! What may be said on the command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use engine::DeviceChoice;
use kernels::KvFormat;

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
    /// Conversations
    Chat {
        #[command(subcommand)]
        command: ChatCommand,
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

#[derive(Debug, Subcommand)]
pub(crate) enum ModelsCommand {
    /// Use a GGUF file where it is
    Add { path: PathBuf },
    /// Which models there are
    List,
    /// When the working pool takes the memory of a model's context: as it is used, or all of it when the model is loaded, so
    /// that no turn fails for memory later
    Reserve { name: String, when: When },
    /// What a model file says of itself, and what it would take in memory
    Inspect {
        name: String,
        /// Length of the context to plan for, in tokens (default: the model's own)
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        context: Option<u64>,
        /// Memory for conversations, in bytes (default: what is set, or a share of the memory that is free)
        #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
        pool_bytes: Option<u64>,
        /// What is to compute: auto, cpu, or cuda:0 (default: what is set, or auto)
        #[arg(long, value_name = "DEVICE")]
        device: Option<DeviceChoice>,
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

#[derive(Debug, Subcommand)]
pub(crate) enum ChatCommand {
    /// Start a conversation
    New {
        /// System prompt
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        system: Option<String>,
        /// Model for this conversation (default: whichever is the default)
        #[arg(long, value_name = "NAME")]
        model: Option<String>,
    },
    /// Say something and get a reply
    Send {
        #[arg(value_name = "CONV")]
        conversation: String,
        /// The message; `-` reads it from standard input
        #[arg(allow_hyphen_values = true)]
        text: String,
        /// Message to continue from (default: the end of the branch that was used last)
        #[arg(long, value_name = "MSG")]
        parent: Option<String>,
        #[command(flatten)]
        flags: TurnFlags,
    },
    /// Put an edited copy beside a message, as a new branch; a user message is answered
    Edit {
        #[arg(value_name = "CONV")]
        conversation: String,
        #[arg(value_name = "MSG")]
        message: String,
        /// The new words; `-` reads them from standard input
        #[arg(allow_hyphen_values = true)]
        text: String,
        #[command(flatten)]
        flags: TurnFlags,
    },
    /// Write a reply again, as a new branch
    Regenerate {
        #[arg(value_name = "CONV")]
        conversation: String,
        /// The reply, or the user message above it
        #[arg(value_name = "MSG")]
        message: String,
        #[command(flatten)]
        flags: TurnFlags,
    },
    /// Go on in a new branch that begins with a summary of the earlier turns; the full one stays
    Compact {
        #[arg(value_name = "CONV")]
        conversation: String,
        #[command(flatten)]
        flags: TurnFlags,
    },
    /// Go on in a new branch without the oldest turns; the full one stays
    DropOldest {
        #[arg(value_name = "CONV")]
        conversation: String,
        #[command(flatten)]
        flags: TurnFlags,
    },
    /// What a conversation does by itself with a turn that does not fit into its context
    WhenFull {
        #[arg(value_name = "CONV")]
        conversation: String,
        what: FullContext,
    },
    /// Print a conversation: the branch used last, or with --json every message
    Show {
        #[arg(value_name = "CONV")]
        conversation: String,
    },
    /// Conversations, the latest first
    List,
    /// Find messages by their words
    Search {
        #[arg(allow_hyphen_values = true)]
        text: String,
    },
    /// Delete a conversation for good
    Delete {
        #[arg(value_name = "CONV")]
        conversation: String,
    },
    /// Print a conversation as Markdown (the branch used last) or JSON (every message)
    Export {
        #[arg(value_name = "CONV")]
        conversation: String,
        /// Markdown unless --json is given
        #[arg(long)]
        format: Option<ExportFormat>,
    },
}

/// When the pool takes memory.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum When {
    AsUsed,
    AtOnce,
}

/// What a conversation does by itself with a turn that does not fit.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum FullContext {
    /// Say so and offer what can be done
    Ask,
    /// Go on in a new branch that begins with a summary
    Compact,
    /// Go on in a new branch without the oldest turns
    DropOldest,
    /// Say so and do nothing
    Stop,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ExportFormat {
    Md,
    Json,
}

/// How a reply is sampled, over what the conversation has set.
#[derive(Clone, Debug, Args)]
pub(crate) struct TurnFlags {
    /// Always take the most likely token
    #[arg(long)]
    pub(crate) greedy: bool,
    /// Seed of the sampler
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Most tokens of the reply
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_tokens: Option<u32>,
    /// Threads to compute with (default: physical cores)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// Memory for conversations, in bytes, never exceeded (default: what is set, or a share of the memory that is free)
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) pool_bytes: Option<u64>,
    /// Format of keys and values: f16, bf16, q8, q4, or two of them as keys/values (default: what is set, or q8)
    #[arg(long, value_name = "FORMAT")]
    pub(crate) kv: Option<KvFormat>,
    /// What is to compute: auto, cpu, or cuda:0 (default: what is set, or auto)
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<DeviceChoice>,
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

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Time to the first token without the cache, after a restart with it, and resident
    Resume(BenchFlags),
    /// An edit at 50 % and 90 % of a long message after a restart, against no cache
    Edit(BenchFlags),
    /// Prompt speed of the model alone
    Prefill(SpeedFlags),
    /// Decoding speed of the model alone
    Decode(SpeedFlags),
    /// Bytes that turns write, and decoding speed with and without saving
    Snapshot(BenchFlags),
    /// Memory that a loaded model and a conversation take, beside the plan, and after they are given back
    Memory(BenchFlags),
    /// What a format of keys and values costs: perplexity, divergence and agreement with f16 over a text
    KvQuality(QualityFlags),
}

/// Flags of every measurement.
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchFlags {
    /// Model by name, or by the path of a .gguf file (default: the default model)
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// Length in tokens; for `resume` a list
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tokens: Vec<u32>,
    /// Threads to compute with (default: physical cores)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// How often to measure; medians are reported
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: Option<u32>,
    /// Format of keys and values: f16, bf16, q8, q4, or two of them as keys/values
    #[arg(long, value_name = "FORMAT", default_value = "q8")]
    pub(crate) kv: KvFormat,
    /// What is to compute: auto, cpu, or cuda:0 (always the CPU for `memory` and with --against)
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub(crate) device: DeviceChoice,
}

/// Flags of `bench kv-quality`.
#[derive(Clone, Debug, Args)]
pub(crate) struct QualityFlags {
    /// Text to read: at least 8 000 tokens of it tell something
    #[arg(long, value_name = "FILE")]
    pub(crate) text: PathBuf,
    /// Model by name, or by the path of a .gguf file (default: the default model)
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// Formats to measure against f16 (each as f16, bf16, q8, q4, or keys/values)
    #[arg(
        long,
        value_name = "FORMAT",
        value_delimiter = ',',
        default_value = "f16,bf16,q8,q4"
    )]
    pub(crate) kv: Vec<KvFormat>,
    /// Most tokens to read (default: the whole text)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) tokens: Option<u32>,
    /// Measure a format also where this model is known to fail with it, instead of what it gets in its place
    #[arg(long)]
    pub(crate) forced: bool,
    /// Round activations as replies do. Any change, however small, moves what that rounds, which hides what a format costs
    #[arg(long)]
    pub(crate) rounded_activations: bool,
    /// Threads to compute with (default: physical cores)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
}

/// Flags of the measurements of the model alone.
#[derive(Clone, Debug, Args)]
pub(crate) struct SpeedFlags {
    #[command(flatten)]
    pub(crate) bench: BenchFlags,
    /// Tokens before the measured ones
    #[arg(long, value_name = "D", default_value_t = 0)]
    pub(crate) depth: u32,
    /// Instructions to compute with (default: the fastest this machine has): avx512, avx-vnni, avx2 or scalar
    #[arg(long, value_name = "SET")]
    pub(crate) instructions: Option<String>,
    /// Measure another program in turn, on the same file, threads, tokens and depth
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) against: Option<Baseline>,
    /// llama.cpp's `llama-bench`
    #[arg(
        long,
        value_name = "PATH",
        default_value = "llama-bench",
        requires = "against"
    )]
    pub(crate) llama_bench: PathBuf,
}

/// What a speed can be compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Baseline {
    /// Its `llama-bench` on the CPU, with flash attention on or off, whichever is faster
    #[value(name = "llama.cpp")]
    LlamaCpp,
}

impl BenchCommand {
    /// The model and the threads to measure with.
    pub(crate) fn model_and_threads(&self) -> (Option<&str>, Option<u16>) {
        fn of(flags: &BenchFlags) -> (Option<&str>, Option<u16>) {
            (flags.model.as_deref(), flags.threads)
        }
        match self {
            Self::Resume(flags)
            | Self::Edit(flags)
            | Self::Snapshot(flags)
            | Self::Memory(flags) => of(flags),
            Self::Prefill(flags) | Self::Decode(flags) => of(&flags.bench),
            Self::KvQuality(flags) => (flags.model.as_deref(), flags.threads),
        }
    }

    /// What is to compute. The CPU, whatever is said, where another program computes there in turn, where it is what a process
    /// takes that is measured, and for the quality of formats.
    pub(crate) fn device(&self) -> DeviceChoice {
        match self {
            Self::Resume(flags) | Self::Edit(flags) | Self::Snapshot(flags) => flags.device,
            Self::Prefill(flags) | Self::Decode(flags) if flags.against.is_none() => {
                flags.bench.device
            }
            Self::Prefill(_) | Self::Decode(_) | Self::Memory(_) | Self::KvQuality(_) => {
                DeviceChoice::Cpu
            }
        }
    }

    /// The format of keys and values that is measured; several have their own flag.
    pub(crate) fn kv(&self) -> KvFormat {
        match self {
            Self::Resume(flags)
            | Self::Edit(flags)
            | Self::Snapshot(flags)
            | Self::Memory(flags) => flags.kv,
            Self::Prefill(flags) | Self::Decode(flags) => flags.bench.kv,
            Self::KvQuality(_) => KvFormat::F16,
        }
    }
}

impl Arguments {
    /// Reads the command line. A mistake is one line on standard error and status 2; help and version are printed.
    pub(crate) fn read() -> Result<Self, ExitCode> {
        Self::try_parse().map_err(|error| {
            let shown = error.kind();
            if !error.use_stderr() || shown == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
                // Nothing is left to do where help cannot be printed.
                let _ = error.print();
                return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
            }
            let json = std::env::args_os().any(|argument| argument == "--json");
            output::usage(json, &one_line(&error.render().to_string()));
            ExitCode::from(2)
        })
    }
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
