//! Classifies I/O errors: the disk is full, or it is read-only.

use std::io::{self, ErrorKind};
use std::path::Path;

use rusqlite::{ErrorCode, ffi};

pub(super) fn of_file(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    if is_full(error) {
        return format!(
            "the disk is full: there was no room to write {path}. Make room on it and try again; what was saved is kept"
        );
    }
    if error.kind() == ErrorKind::ReadOnlyFilesystem {
        return format!(
            "{path} is on a disk that can only be read. Choose a folder that can be written with --data-dir; reprise-cli chat list, show, search and export read this one as it is"
        );
    }
    if error.kind() == ErrorKind::PermissionDenied {
        return format!(
            "{path}: {error}. Allow this user to write there, or choose another folder with --data-dir"
        );
    }
    format!("{path}: {error}")
}

pub(super) fn of_sqlite(error: &rusqlite::Error) -> String {
    if is_sqlite_full(error) {
        return "the disk is full: there was no room to write the history. Make room on it and try again; what was saved is kept".to_owned();
    }
    if is_sqlite_read_only(error) {
        return "the history can only be read: its folder or its disk does not allow writing"
            .to_owned();
    }
    format!("the history could not be read or written: {error}")
}

pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
    )
}

pub(super) fn is_read_only(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied
    )
}

pub(super) fn is_sqlite_full(error: &rusqlite::Error) -> bool {
    // If the shared-memory file beside a write-ahead log cannot grow, SQLite reports an I/O error, not a full disk.
    let extended = error.sqlite_error().map(|error| error.extended_code);
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
        || extended == Some(ffi::SQLITE_IOERR_SHMSIZE)
        || extended == Some(ffi::SQLITE_IOERR_SHMOPEN)
}

pub(super) fn is_sqlite_read_only(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen)
    )
}
