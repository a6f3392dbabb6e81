//! What can go wrong in a tensor operation.

use candle_core::Device;

/// The crate's error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tensor library failed.
    #[error(transparent)]
    Candle(#[from] candle_core::Error),
    /// An argument's shape, length or value does not fit the others.
    #[error("{op}: {reason}")]
    Argument {
        /// The operation.
        op: &'static str,
        /// What does not fit, with the numbers.
        reason: String,
    },
    /// The operation has no implementation for this device.
    #[error("{op}: no implementation for {device}, only the CPU")]
    Device {
        /// The operation.
        op: &'static str,
        /// The device, as its debug form.
        device: String,
    },
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

    pub(crate) fn device(op: &'static str, device: &Device) -> Self {
        Self::Device {
            op,
            device: format!("{device:?}"),
        }
    }
}
