//! Everything that ends a command, with a stable code each.

use std::process::ExitCode;

/// Result of a command.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Status of a command that was interrupted: 128 + SIGINT.
const INTERRUPTED: u8 = 130;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Engine(engine::Error),
    #[error(transparent)]
    Store(#[from] store::Error),
    /// A turn's last event was not `Finished`.
    #[error("{message}")]
    Turn { code: String, message: String },
    #[error("{0}")]
    InvalidArgument(String),
    #[error("{0}")]
    Internal(String),
    /// Somebody pressed Ctrl-C; what was shown is kept.
    #[error("stopped")]
    Interrupted,
    #[error("the output cannot be written: {0}")]
    Output(#[source] std::io::Error),
}

impl From<engine::Error> for Error {
    fn from(error: engine::Error) -> Self {
        match error {
            // A missing conversation is missing whoever noticed it.
            engine::Error::Store(error) => Self::Store(error),
            error => Self::Engine(error),
        }
    }
}

impl From<models::Error> for Error {
    fn from(error: models::Error) -> Self {
        Self::Engine(error.into())
    }
}

impl From<kernels::Error> for Error {
    fn from(error: kernels::Error) -> Self {
        Self::Engine(error.into())
    }
}

impl Error {
    /// The same codes as in the window, and `busy` for a data folder that another process holds.
    pub(crate) fn code(&self) -> &str {
        match self {
            Self::Engine(error) => error.code(),
            Self::Store(error) => error.code(),
            Self::Turn { code, .. } => code,
            Self::InvalidArgument(_) => "invalid_argument",
            Self::Interrupted => "stopped",
            Self::Internal(_) | Self::Output(_) => "internal",
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Interrupted => INTERRUPTED,
            _ => 1,
        })
    }
}
