//! A history that cannot be written can still be read.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use store::{Conversation, DataFolder, Error, Format, History, MessageState, TokenRow};

use crate::privacy::{secret, words};
use crate::support::{Scene, TOKENIZER};

/// The size and modification time of every file in a folder, to detect writes.
fn state(folder: &Path) -> BTreeMap<String, (u64, SystemTime)> {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let described = entries.map(|entry| {
        let metadata = entry.metadata().unwrap();
        (
            entry.file_name().into_string().unwrap(),
            (metadata.len(), metadata.modified().unwrap()),
        )
    });
    described.collect()
}

fn assert_swifts(history: &History, talk: &Conversation) {
    assert_eq!(history.conversations().unwrap().len(), 1);
    assert_eq!(history.messages(&talk.id).unwrap()[0].text, "swifts");
    assert_eq!(history.search("SWIFTS", 9).unwrap().len(), 1);
    assert!(
        history
            .export(&talk.id, Format::Markdown)
            .unwrap()
            .contains("swifts")
    );
}

#[test]
fn a_closed_history_is_read_without_writing_beside_it() {
    let mut scene = Scene::new();
    let talk = scene.conversation("");
    scene.user(&talk, None, "swifts");
    scene.history = None;
    let before = state(scene.folder.path());
    let mut history = History::read(&scene.path(), None).unwrap();
    assert_swifts(&history, &talk);
    let error = history.rename(&talk.id, "other").unwrap_err();
    assert!(
        matches!(error, Error::ReadOnly) && error.code() == "read_only",
        "{error}"
    );
    assert_eq!(state(scene.folder.path()), before);
}

#[test]
fn words_that_stand_in_the_log_alone_are_read_and_the_files_stay_as_they_are() {
    let mut scene = Scene::new();
    let talk = scene.conversation("");
    let root = scene.user(&talk, None, "swifts");
    let now = scene.now();
    let history = scene.history();
    let reply = history
        .begin_reply(&talk.id, &root.id, None, &TOKENIZER, now)
        .unwrap();
    history.append_reply(&reply.id, "in flight", &[1]).unwrap();
    // The files as a killed process leaves them.
    let killed = tempfile::tempdir().unwrap();
    for name in ["history.db", "history.db-wal"] {
        std::fs::copy(scene.folder.path().join(name), killed.path().join(name)).unwrap();
    }
    let before = state(killed.path());
    let history = History::read(&killed.path().join("history.db"), None).unwrap();
    assert_swifts(&history, &talk);
    let reply = history.message(&reply.id).unwrap();
    assert_eq!(
        (reply.text.as_str(), reply.state),
        ("in flight", MessageState::Interrupted)
    );
    drop(history);
    assert_eq!(state(killed.path()), before);
}

#[test]
fn a_history_of_an_older_version_is_read_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.db");
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/history-3.db");
    std::fs::copy(&fixture, &path).unwrap();
    let history = History::read(&path, None).unwrap();
    assert_eq!(history.search("flight", 9).unwrap().len(), 2);
    drop(history);
    assert_eq!(
        std::fs::read(&path).unwrap(),
        std::fs::read(fixture).unwrap()
    );
    assert_eq!(state(folder.path()).len(), 1, "no backup, no marker");
}

#[test]
fn an_encrypted_history_is_read_with_its_passphrase_and_not_without() {
    let mut scene = Scene::new();
    let talk = scene.conversation("");
    let root = scene.user(&talk, None, "swifts");
    scene.history().protect(&secret("open sesame")).unwrap();
    scene.history().finish_privacy().unwrap();
    scene.history = None;
    let passphrase = words("open sesame");
    assert_swifts(
        &History::read(&scene.path(), Some(&passphrase)).unwrap(),
        &talk,
    );
    let wrong = History::read(&scene.path(), Some(&words("open barley"))).unwrap_err();
    assert!(matches!(wrong, Error::WrongPassphrase));
    assert!(matches!(
        History::read(&scene.path(), None),
        Err(Error::Locked { .. })
    ));
    // With a write-ahead log.
    scene.reopen_with("open sesame");
    let now = scene.now();
    let row = TokenRow {
        tokenizer: TOKENIZER,
        ids: vec![],
    };
    let history = scene.history();
    let reply = history
        .begin_reply(&talk.id, &root.id, None, &TOKENIZER, now)
        .unwrap();
    history
        .finish_reply(&reply.id, "in flight", &row, MessageState::Complete, None)
        .unwrap();
    let killed = tempfile::tempdir().unwrap();
    for name in ["history.db", "history.db-wal", "key.json"] {
        std::fs::copy(scene.folder.path().join(name), killed.path().join(name)).unwrap();
    }
    let history = History::read(&killed.path().join("history.db"), Some(&passphrase)).unwrap();
    assert_eq!(history.search("flight", 9).unwrap().len(), 1);
}

#[test]
fn a_folder_that_is_only_read_is_not_made_and_not_locked() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let data = DataFolder::to_read(Some(missing.clone())).unwrap();
    assert!(History::read(&data.history_path(), None).is_err());
    assert!(!missing.exists());
    let open = DataFolder::open(Some(folder.path().to_owned())).unwrap();
    DataFolder::to_read(Some(folder.path().to_owned())).unwrap();
    drop(open);
}

#[test]
fn a_disk_without_room_and_one_that_is_read_only_are_named() {
    let io = |kind: std::io::ErrorKind| Error::Io {
        path: "/data/reprise.lock".into(),
        source: kind.into(),
    };
    let full = io(std::io::ErrorKind::StorageFull);
    assert_eq!(full.code(), "disk_full");
    assert!(full.to_string().starts_with("the disk is full"), "{full}");
    let read_only = io(std::io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(read_only.code(), "read_only");
    assert!(read_only.to_string().contains("--data-dir"), "{read_only}");
    assert_eq!(io(std::io::ErrorKind::InvalidData).code(), "storage");
    for (code, ours) in [
        (rusqlite::ffi::SQLITE_FULL, "disk_full"),
        (rusqlite::ffi::SQLITE_IOERR_SHMSIZE, "disk_full"),
        (rusqlite::ffi::SQLITE_IOERR_SHMOPEN, "disk_full"),
        (rusqlite::ffi::SQLITE_READONLY, "read_only"),
        (rusqlite::ffi::SQLITE_IOERR_READ, "storage"),
    ] {
        let error = Error::from(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(code),
            None,
        ));
        assert_eq!(error.code(), ours, "{error}");
    }
}
