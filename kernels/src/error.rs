//! What can go wrong in a tensor operation.

/// The crate's error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An argument's shape, length or value does not fit the others.
    #[error("{op}: {reason}")]
    Argument {
        /// The operation.
        op: &'static str,
        /// What does not fit, with the numbers.
        reason: String,
    },
    /// The system gives no more memory.
    #[error("there is no memory for {bytes} more bytes; close other programs")]
    Memory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// The GPU's driver found no memory for what it needs itself.
    #[error("the GPU has no memory left to {attempt}; close other programs that use it")]
    DeviceMemory {
        /// What was attempted.
        attempt: &'static str,
    },
    /// The GPU's driver refused a call, or a kernel went wrong on the GPU: after the latter every call fails.
    #[error("the GPU failed to {attempt} ({reason}); try again, or choose the CPU in the settings")]
    Device {
        /// What was attempted.
        attempt: &'static str,
        /// The driver's name for what is wrong.
        reason: String,
    },
    /// Slots with the keys and values before the tokens were being filled, and could not be.
    #[error("the keys and values before these tokens did not come")]
    Unfilled,
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn argument(op: &'static str, reason: impl Into<String>) -> Self {
        Self::Argument {
            op,
            reason: reason.into(),
        }
    }
}
