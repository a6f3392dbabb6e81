//! What went wrong.

use std::fmt;

/// What went wrong.
#[derive(Debug)]
pub(crate) enum Fault {
    OutOfMemory,
    /// The thread has not made the context its own, or nobody holds it any more.
    Context,
    /// A call about memory that is not allocated.
    Access(String),
    /// No such stream or event.
    Handle(String),
    Text(String),
    Missing(String),
    /// What must not be done while launches are recorded.
    Recording(String),
    /// What the device was asked for before went wrong.
    Failed(String),
}

pub(crate) type Result<T> = std::result::Result<T, Fault>;

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory => f.write_str("out of memory"),
            Self::Context => f.write_str("a call without a context"),
            Self::Access(text)
            | Self::Handle(text)
            | Self::Text(text)
            | Self::Missing(text)
            | Self::Recording(text)
            | Self::Failed(text) => f.write_str(text),
        }
    }
}
