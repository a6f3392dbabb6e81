//! `chat`: conversations and their turns.

use clap::{Args, Subcommand, ValueEnum};
use engine::DeviceChoice;
use kernels::KvFormat;

use super::sampling::{self, SamplingFlags};

/// Flags of the interactive chat.
#[derive(Clone, Debug, Args)]
pub(crate) struct TalkFlags {
    /// Conversation to go on with (default: a new one)
    #[arg(long, value_name = "CONV")]
    pub(crate) conversation: Option<String>,
    /// Model to talk to (default: the conversation's, or the default model)
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// System prompt of a new conversation
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        conflicts_with = "conversation"
    )]
    pub(crate) system: Option<String>,
    #[command(flatten)]
    pub(crate) turn: TurnFlags,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ChatCommand {
    /// Start a conversation
    New {
        /// System prompt
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        system: Option<String>,
        /// Model for this conversation (default: the one that answers first in it)
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
    /// Have a reply that was stopped or cut off go on
    Continue {
        #[arg(value_name = "CONV")]
        conversation: String,
        /// The reply (default: the end of the branch that was used last)
        #[arg(value_name = "MSG")]
        message: Option<String>,
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
    /// Choose the model that answers in a conversation from now on
    Model {
        #[arg(value_name = "CONV")]
        conversation: String,
        name: String,
    },
    /// What a conversation does by itself with a turn that does not fit into its context
    WhenFull {
        #[arg(value_name = "CONV")]
        conversation: String,
        what: FullContext,
    },
    /// Give a conversation another title
    Rename {
        #[arg(value_name = "CONV")]
        conversation: String,
        #[arg(allow_hyphen_values = true)]
        title: String,
    },
    /// Give a conversation another system prompt; its next turn reads everything again
    System {
        #[arg(value_name = "CONV")]
        conversation: String,
        /// The system prompt, empty for none; `-` reads it from standard input
        #[arg(allow_hyphen_values = true)]
        text: String,
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

/// Automatic action of a conversation when a turn does not fit into the context.
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

/// Sampling of a reply; overrides the conversation's settings.
#[derive(Clone, Debug, Args)]
pub(crate) struct TurnFlags {
    /// Always take the most likely token
    #[arg(long)]
    pub(crate) greedy: bool,
    /// Seed of the sampler; -1 is a random one
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = sampling::seed)]
    pub(crate) seed: Option<u64>,
    /// Most tokens of the reply; -1 is no limit
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = sampling::limit)]
    pub(crate) max_tokens: Option<u32>,
    #[command(flatten)]
    pub(crate) sampling: SamplingFlags,
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
