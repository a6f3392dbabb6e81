//! Everything that can go wrong in the engine, with a stable code each.

use crate::request::Answer;

/// Result of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such model, or none at all.
    #[error("{0}")]
    ModelMissing(String),
    /// A model file cannot be used.
    #[error(transparent)]
    Model(#[from] models::Error),
    /// A tensor operation failed.
    #[error(transparent)]
    Kernels(#[from] kernels::Error),
    /// History cannot be read or written.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The conversation does not exist.
    #[error("there is no conversation {0}; list them to see which exist")]
    ConversationMissing(String),
    /// The message does not exist in that conversation.
    #[error("there is no message {0} in this conversation; show it to see which exist")]
    MessageMissing(String),
    /// The conversation is being answered.
    #[error("a reply is being written in this conversation; stop it first")]
    Busy,
    /// The request makes no sense.
    #[error("{0}")]
    InvalidArgument(String),
    /// The prompt is longer than the context.
    #[error(
        "the conversation needs {}{needed} tokens and there is room for {limit}; go on in a shorter branch, or shorten the message",
        if *at_least { "at least " } else { "" }
    )]
    ContextFull {
        /// Tokens needed.
        needed: usize,
        /// `needed` is a lower bound.
        at_least: bool,
        /// Tokens that there is room for.
        limit: usize,
    },
    /// There is no earlier turn to leave out.
    #[error("this branch has a single turn; edit its message, or start a new conversation")]
    NothingToShorten,
    /// The model answered the request for a summary with nothing.
    #[error("the model wrote no summary; drop the oldest turns instead")]
    NoSummary,
    /// The person stopped it; nothing has changed.
    #[error("stopped before anything was changed")]
    Cancelled,
    /// Every slot of the pool is in use by running turns.
    #[error(
        "all {num_slots} blocks of the KV pool are in use; give it more memory or wait for the other reply"
    )]
    PoolFull {
        /// Slots of the pool.
        num_slots: usize,
    },
    /// The memory for it is not there.
    #[error(
        "it needs {} of memory and {} are free; close other programs, give conversations more memory in the settings, or choose a smaller model or q8",
        mebibytes(*needed_bytes),
        mebibytes(*free_bytes)
    )]
    MemoryFull {
        /// Bytes that it takes.
        needed_bytes: u64,
        /// Bytes that it may take.
        free_bytes: u64,
    },
    /// A consistency check failed.
    #[error("the block pool is inconsistent: {0}; please report this")]
    Corrupt(String),
    /// The control channel is not what it should be.
    #[error("{0}")]
    Control(String),
    /// The engine's answer to a request.
    #[error("{message}")]
    Remote {
        /// Stable code to branch on.
        code: String,
        /// One sentence that says what to do.
        message: String,
    },
    /// The engine's process cannot be had.
    #[error("{0}")]
    Process(String),
    /// The engine's process ended unasked while this was under way.
    #[error(
        "the engine stopped unexpectedly and has been started again; what was written so far is kept"
    )]
    Restarted,
    /// The engine sent the answer of another request.
    #[error("the engine answered {asked} with {got}; please report this")]
    WrongAnswer {
        /// Name of the request.
        asked: &'static str,
        /// Name of the answer.
        got: &'static str,
    },
    /// The engine thread has ended.
    #[error("the engine has stopped; restart Reprise")]
    Stopped,
}

impl Error {
    /// The error for an answer that does not belong to the request `asked`.
    pub(crate) fn wrong_answer(asked: &'static str, answer: &Answer) -> Self {
        let got = answer.name();
        Self::WrongAnswer { asked, got }
    }

    /// Whether a GPU failed.
    pub(crate) fn is_of_device(&self) -> bool {
        use kernels::Error::Device;
        matches!(
            self,
            Self::Kernels(Device { .. }) | Self::Model(models::Error::Kernel(Device { .. }))
        )
    }

    /// Whether memory was wanted that nobody gave: the machine's, or a GPU's.
    pub(crate) fn is_of_memory(&self) -> bool {
        use kernels::Error::{DeviceMemory, Memory};
        matches!(
            self,
            Self::Kernels(Memory { .. } | DeviceMemory { .. })
                | Self::Model(models::Error::Kernel(Memory { .. } | DeviceMemory { .. }))
        )
    }

    /// Whether the model's file is missing or unusable, so that another model can answer.
    pub(crate) fn is_of_model_file(&self) -> bool {
        matches!(self, Self::ModelMissing(_) | Self::Model(_)) && self.code().starts_with("model_")
    }

    /// Stable code to branch on.
    pub fn code(&self) -> &str {
        match self {
            error if error.is_of_device() => "gpu_failed",
            error if error.is_of_memory() => "memory_full",
            Self::Remote { code, .. } => code,
            Self::ModelMissing(_) => "model_missing",
            Self::Model(error) => error.code(),
            Self::Store(error) => error.code(),
            Self::ConversationMissing(_) => "conversation_missing",
            Self::MessageMissing(_) => "message_missing",
            Self::InvalidArgument(_) | Self::NothingToShorten => "invalid_argument",
            Self::NoSummary => "no_summary",
            Self::Cancelled => "stopped",
            Self::ContextFull { .. } => "context_full",
            Self::MemoryFull { .. } => "memory_full",
            Self::Process(_) => "engine_unavailable",
            Self::Restarted => "engine_restarted",
            Self::Busy | Self::PoolFull { .. } => "busy",
            Self::Control(_)
            | Self::Kernels(_)
            | Self::Corrupt(_)
            | Self::WrongAnswer { .. }
            | Self::Stopped => "internal",
        }
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}
