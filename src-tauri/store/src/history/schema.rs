//! The schema's versions. A version is never changed once it has been released; a new one is added at the end.

use super::{conversation, message, model, reply, search, setting, tokens, unsent};

/// `MIGRATIONS[n]` leads from version n to version n + 1; `PRAGMA user_version` holds the version of a file.
pub(super) const MIGRATIONS: &[&[&str]] = &[
    &[
        conversation::V1,
        message::V1,
        tokens::V1,
        reply::V1,
        setting::V1,
        model::V1,
        search::V1,
    ],
    &[conversation::V2, message::V2],
    &[unsent::V1],
    &[conversation::V3, search::V2],
];
