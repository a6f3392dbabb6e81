use std::path::PathBuf;

use rusqlite::Connection;
use store::{Error, History};

use crate::support::Scene;

/// A closed history with one long message in it.
fn closed() -> Scene {
    let mut scene = Scene::new();
    let talk = scene.conversation("kept");
    for turn in 0..60 {
        scene.user(
            &talk,
            None,
            &format!("message {turn} {}", "word ".repeat(100)),
        );
    }
    scene.history = None;
    scene
}

fn marker(scene: &Scene) -> PathBuf {
    scene.folder.path().join("history.db.clean")
}

#[test]
fn the_clean_marker_stands_only_while_the_history_is_closed() {
    let mut scene = closed();
    assert!(marker(&scene).exists());
    scene.reopen();
    assert!(!marker(&scene).exists());
    scene.history = None;
    assert!(marker(&scene).exists());
    let names: Vec<_> = std::fs::read_dir(scene.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 2, "the log is folded in: {names:?}");
}

#[test]
fn a_newer_schema_is_refused_with_what_to_do_and_left_alone() {
    let scene = closed();
    Connection::open(scene.path())
        .unwrap()
        .pragma_update(None, "user_version", 99)
        .unwrap();
    let before = std::fs::read(scene.path()).unwrap();
    let error = History::open(&scene.path()).unwrap_err();
    assert!(matches!(error, Error::HistoryTooNew { found: 99, .. }));
    let text = error.to_string();
    assert!(
        text.contains("history.db") && text.contains("install the newer version"),
        "{text}"
    );
    assert_eq!(std::fs::read(scene.path()).unwrap(), before);
}

#[test]
fn a_damaged_history_is_named_with_its_newest_backup_and_nothing_is_deleted() {
    let scene = closed();
    for version in [1, 3, 2] {
        std::fs::write(
            scene
                .folder
                .path()
                .join(format!("history.db.v{version}.backup")),
            "a backup",
        )
        .unwrap();
    }
    let mut bytes = std::fs::read(scene.path()).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 20_000].fill(0xAA);
    std::fs::write(scene.path(), &bytes).unwrap();
    std::fs::remove_file(marker(&scene)).unwrap(); // as after an unclean exit

    let error = History::open(&scene.path()).unwrap_err();
    assert!(matches!(error, Error::HistoryCorrupt { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("history.db is damaged") && text.contains("history.db.v3.backup"),
        "{text}"
    );
    assert_eq!(std::fs::read(scene.path()).unwrap(), bytes);
}

#[test]
fn a_file_that_is_no_history_is_an_error_and_stays() {
    for content in [
        b"this is not a database, it is a letter to my aunt".to_vec(),
        vec![0xFF; 8192],
    ] {
        let scene = closed();
        std::fs::write(scene.path(), &content).unwrap();
        let error = History::open(&scene.path()).unwrap_err();
        assert!(
            matches!(error, Error::HistoryCorrupt { backup: None, .. }),
            "{error}"
        );
        assert!(error.to_string().contains("There is no backup"));
        assert_eq!(std::fs::read(scene.path()).unwrap(), content);
    }
}

#[test]
fn a_history_emptied_by_the_file_system_is_not_taken_for_a_new_one() {
    let scene = closed();
    std::fs::write(scene.path(), b"").unwrap();
    assert!(matches!(
        History::open(&scene.path()),
        Err(Error::HistoryCorrupt { .. })
    ));
}

#[test]
fn a_history_that_was_removed_starts_anew() {
    let mut scene = closed();
    std::fs::remove_file(scene.path()).unwrap();
    scene.reopen();
    assert!(scene.history().conversations().unwrap().is_empty());
}

#[test]
fn a_damaged_search_index_is_made_anew_after_an_unclean_exit() {
    let mut scene = closed();
    let connection = Connection::open(scene.path()).unwrap();
    // Take a word out of the index behind its back.
    connection
        .execute_batch(
            "INSERT INTO message_search (message_search, rowid, terms) SELECT 'delete', seq, terms FROM message_terms LIMIT 1",
        )
        .unwrap();
    drop(connection);
    std::fs::remove_file(marker(&scene)).unwrap();
    scene.reopen();
    assert_eq!(scene.history().search("message 0", 100).unwrap().len(), 1);
    assert_eq!(scene.history().search("message", 100).unwrap().len(), 60);
}

#[test]
fn a_folder_that_does_not_exist_is_an_error_that_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let error = History::open(&folder.path().join("missing/history.db")).unwrap_err();
    assert!(matches!(error, Error::Io { .. }));
    assert!(error.to_string().contains("history.db"));
}

#[cfg(unix)]
#[test]
fn every_file_of_the_history_is_private() {
    let mut scene = Scene::new();
    let talk = scene.conversation("private");
    scene.user(&talk, None, "secret");
    for name in ["history.db", "history.db-wal", "history.db-shm"] {
        assert_eq!(
            crate::support::mode(&scene.folder.path().join(name)),
            0o600,
            "{name}"
        );
    }
    scene.history = None;
    assert_eq!(crate::support::mode(&marker(&scene)), 0o600);
}
