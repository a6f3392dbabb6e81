//! The one error type of the crate.

use std::path::PathBuf;

/// What can go wrong between a model file and its logits.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no model file at this path.
    #[error("there is no model file at {}", path.display())]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is broken, truncated or not a model file.
    #[error("{} is not a usable model file: {reason}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file is sound, but holds something Reprise does not run.
    #[error("{} cannot be used: {reason}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What is not supported, by name.
        reason: String,
    },
    /// The chat template cannot render the conversation.
    #[error("the model's chat template cannot render this conversation: {0}")]
    Template(String),
    /// The caller's tokens, offset, pool and block table do not fit together.
    #[error("invalid forward call: {0}")]
    Input(String),
    /// A tensor operation failed.
    #[error("tensor operation failed: {0}")]
    Tensor(#[from] candle_core::Error),
    /// A kernel failed.
    #[error(transparent)]
    Kernel(#[from] kernels::Error),
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;
