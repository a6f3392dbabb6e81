//! The only error the UI sees: a code to branch on and a sentence to show.

use serde::Serialize;
use ts_rs::TS;

/// Why a command was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct ApiError {
    /// `model_missing`, another `model_…` (the kind of its file), `context_full`, `memory_full`, `conversation_missing`, `message_missing`, `busy`,
    /// `invalid_argument`, `no_summary`, `locked`, `wrong_passphrase`, `keychain`, `disk_full`, `read_only`, `storage` or `internal`.
    pub code: String,
    /// One sentence for the person.
    pub message: String,
}

impl ApiError {
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
        }
    }

    /// The caller asked for something that makes no sense.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new("invalid_argument", message)
    }
}

impl From<engine::Error> for ApiError {
    fn from(error: engine::Error) -> Self {
        match error {
            // A missing conversation is missing whoever noticed it.
            engine::Error::Store(error) => error.into(),
            error => Self::new(error.code(), error.to_string()),
        }
    }
}

impl From<store::Error> for ApiError {
    fn from(error: store::Error) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use store::{ConversationId, MessageId};

    use super::ApiError;

    #[test]
    fn what_is_missing_has_its_own_code_whoever_noticed() {
        let missing = || store::Error::ConversationMissing(ConversationId::from("c"));
        assert_eq!(ApiError::from(missing()).code, "conversation_missing");
        assert_eq!(
            ApiError::from(engine::Error::Store(missing())).code,
            "conversation_missing"
        );
        assert_eq!(
            ApiError::from(store::Error::MessageMissing(MessageId::from("m"))).code,
            "message_missing"
        );
        assert_eq!(ApiError::from(store::Error::NoDataFolder).code, "storage");
    }
}
