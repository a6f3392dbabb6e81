//! The one error type of the truth side. The cache side has none: its failures are misses.

mod trouble;

use std::path::PathBuf;

use crate::history::{ConversationId, MessageId};
use crate::key::LEAST_PASSPHRASE;

/// What can go wrong with the data folder and the history.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process holds the lock of this data folder.
    #[error("Reprise is already running with the data folder {}; close it, or choose another folder with --data-dir", folder.display())]
    AlreadyRunning {
        /// The folder that is locked.
        folder: PathBuf,
    },
    /// The platform names no place for application data.
    #[error("this system names no folder for application data; choose one with --data-dir")]
    NoDataFolder,
    /// A file operation failed.
    #[error("{}", trouble::of_file(path, source))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The history was written by a newer version of the application.
    #[error(
        "{} was written by a newer Reprise (schema version {found}, this one reads up to {supported}); install the newer version, or choose another folder with --data-dir",
        path.display()
    )]
    HistoryTooNew {
        /// The history file.
        path: PathBuf,
        /// Its schema version.
        found: u32,
        /// The newest schema version this build knows.
        supported: u32,
    },
    /// The history file is damaged. It is left as it is.
    #[error("{} is damaged ({reason}); nothing was changed or deleted. {}", path.display(), backup_advice(.backup.as_ref()))]
    HistoryCorrupt {
        /// The history file.
        path: PathBuf,
        /// The newest backup beside it, if there is one.
        backup: Option<PathBuf>,
        /// What the check found.
        reason: String,
    },
    /// The conversations are encrypted, and nobody has said the passphrase.
    #[error("the conversations in {} are encrypted; their passphrase is needed (reprise-cli takes it from REPRISE_PASSPHRASE, or asks for it)", folder.display())]
    Locked {
        /// The data folder.
        folder: PathBuf,
    },
    /// The passphrase is another one.
    #[error("this is not the passphrase; nothing was changed")]
    WrongPassphrase,
    /// The passphrase is too easily found.
    #[error("the passphrase is too short; choose at least {LEAST_PASSPHRASE} characters")]
    PassphraseTooShort,
    /// The key file is damaged. It is left as it is.
    #[error("{} is damaged ({reason}); nothing was changed or deleted. It holds the key of the conversations, which cannot be read without it: put a copy of it from a backup in its place", path.display())]
    KeyFileDamaged {
        /// The key file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The history is encrypted, and its key file is not there.
    #[error("{} is encrypted and its key file {} is missing; nothing was changed or deleted. Put the key file back from a backup, or move the history away to start anew", history.display(), path.display())]
    KeyFileMissing {
        /// Where the key file should be.
        path: PathBuf,
        /// The history.
        history: PathBuf,
    },
    /// The key file was written by a newer version of the application.
    #[error("{} was written by a newer Reprise (version {found}); install the newer version, or choose another folder with --data-dir", path.display())]
    KeyFileTooNew {
        /// The key file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// The system's keychain failed.
    #[error(
        "the system's keychain cannot be used ({0}); use a passphrase instead, or unlock the keychain and try again"
    )]
    Keychain(String),
    /// Encryption is already what it is asked to be.
    #[error("{0}")]
    Privacy(&'static str),
    /// No such conversation, or it is deleted.
    #[error("there is no conversation {0}")]
    ConversationMissing(ConversationId),
    /// No such message in that place.
    #[error("there is no message {0}")]
    MessageMissing(MessageId),
    /// The reply is not being generated, so nothing can be appended to it.
    #[error("the reply {0} is not being generated")]
    NotGenerating(MessageId),
    /// The history was opened for reading only.
    #[error("the history is open for reading only; nothing was changed")]
    ReadOnly,
    /// SQLite failed.
    #[error("{}", trouble::of_sqlite(.0))]
    Sqlite(#[from] rusqlite::Error),
    /// A stored value is not what this version writes.
    #[error("the history holds an unreadable value: {0}")]
    Value(#[from] serde_json::Error),
}

/// The result of the truth side.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Whether the disk is full.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Io { source, .. } => trouble::is_full(source),
            Self::Sqlite(error) => trouble::is_sqlite_full(error),
            _ => false,
        }
    }

    /// Whether the folder is read-only.
    pub fn is_read_only(&self) -> bool {
        match self {
            Self::Io { source, .. } => trouble::is_read_only(source),
            Self::Sqlite(error) => trouble::is_sqlite_read_only(error),
            Self::ReadOnly => true,
            _ => false,
        }
    }

    /// Stable code to branch on.
    pub fn code(&self) -> &'static str {
        match self {
            Self::ConversationMissing(_) => "conversation_missing",
            Self::MessageMissing(_) => "message_missing",
            Self::NotGenerating(_) | Self::PassphraseTooShort | Self::Privacy(_) => {
                "invalid_argument"
            }
            Self::AlreadyRunning { .. } => "busy",
            Self::Locked { .. } => "locked",
            Self::WrongPassphrase => "wrong_passphrase",
            Self::Keychain(_) => "keychain",
            error if error.is_full() => "disk_full",
            error if error.is_read_only() => "read_only",
            _ => "storage",
        }
    }
}

fn backup_advice(backup: Option<&PathBuf>) -> String {
    match backup {
        Some(backup) => format!(
            "The newest backup is {}: to use it, move the damaged file away and put the backup in its place",
            backup.display()
        ),
        None => {
            "There is no backup beside it: to start anew, move the damaged file away".to_owned()
        }
    }
}
