//! An encrypted history: unreadable without its passphrase, the same with it.

use std::path::{Path, PathBuf};

use store::{
    Conversation, Error, Format, History, NewConversation, Passphrase, Privacy, Role, Seal, Secret,
    Unlocks, Unsent,
};

use crate::support::{Scene, TOKENIZER, message};

/// What is searched for in files: as it is, in UTF-16, and as token ids.
pub const CANARY: &str = "zanzibar-canary-7f3a";
pub const NOWHERE: [PathBuf; 0] = [];
pub const CANARY_TOKENS: [u32; 5] = [70_003, 81_117, 92_231, 103_349, 114_467];

pub fn words(text: &str) -> Passphrase {
    text.to_owned().into()
}

pub fn secret(text: &str) -> Secret {
    Secret::Passphrase {
        passphrase: words(text),
    }
}

/// The seal of an encrypted history in `folder`.
pub fn seal_of(folder: &Path) -> Seal {
    let mut history = History::open(&folder.join("history.db")).unwrap();
    history.protect(&secret("open sesame")).unwrap();
    history.finish_privacy().unwrap();
    history.seal().unwrap()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        match entry.path() {
            path if path.is_dir() => files.extend(self::files(&path)),
            path => files.push(path),
        }
    }
    files
}

/// The files under `folder` that hold the canary in any form.
pub fn found(folder: &Path) -> Vec<PathBuf> {
    let utf16 = CANARY.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let tokens = CANARY_TOKENS
        .iter()
        .flat_map(|id| id.to_le_bytes())
        .collect();
    let needles: [Vec<u8>; 3] = [CANARY.into(), utf16, tokens];
    let holds = |path: &PathBuf| {
        let bytes = std::fs::read(path).unwrap();
        needles
            .iter()
            .any(|needle| bytes.windows(needle.len()).any(|window| window == needle))
    };
    files(folder).into_iter().filter(holds).collect()
}

/// A conversation with the canary in its title, its system prompt, its words and their tokens.
pub fn talk(history: &mut History) -> Conversation {
    let new = NewConversation {
        title: format!("About {CANARY}"),
        system_prompt: format!("Speak of {CANARY}."),
        ..Default::default()
    };
    let talk = history.create_conversation(new, 1000).unwrap();
    let said = message(&talk, None, Role::User, &format!("What is {CANARY}?"));
    let user = history.append_message(said, 2000).unwrap();
    history
        .set_tokens(&user.id, &TOKENIZER, &CANARY_TOKENS)
        .unwrap();
    let said = message(&talk, Some(&user.id), Role::Assistant, "A bird that sings.");
    history.append_message(said, 3000).unwrap();
    let unsent = Unsent {
        conversation: Some(talk.id.clone()),
        message: Some(user.id),
        text: format!("Where is {CANARY}?"),
    };
    history.keep_unsent(&unsent).unwrap();
    talk
}

/// Everything a history says.
pub fn told(history: &History) -> Vec<String> {
    let talks = history.conversations().unwrap();
    let mut told: Vec<String> = talks
        .iter()
        .map(|talk| history.export(&talk.id, Format::Json).unwrap())
        .collect();
    for talk in &talks {
        for message in history.messages(&talk.id).unwrap() {
            let tokens = history.tokens(&message.id, &TOKENIZER).unwrap();
            told.push(format!("{:?} {tokens:?}", message.id));
        }
    }
    let hits = history.search("bird sings", 9).unwrap();
    told.push(format!("{hits:?}"));
    told.push(format!("{:?}", history.unsent().unwrap()));
    told
}

#[test]
fn words_stand_on_disk_only_while_they_are_not_encrypted() {
    let mut scene = Scene::new();
    let folder = scene.folder.path().to_owned();
    talk(scene.history());
    let before = told(scene.history());
    assert!(!found(&folder).is_empty(), "the search finds what is there");

    scene.history().protect(&secret("open sesame")).unwrap();
    assert_eq!(scene.history().privacy(), Privacy::TurningOn);
    assert_eq!(told(scene.history()), before);
    scene.history().finish_privacy().unwrap();
    talk(scene.history());
    let after = told(scene.history());
    assert_eq!(found(&folder), NOWHERE, "open, with its log");
    scene.history = None;
    assert_eq!(found(&folder), NOWHERE, "closed");

    let path = scene.path();
    let mut history = History::unlock(&path, Some(&words("open sesame"))).unwrap();
    assert_eq!(history.privacy(), Privacy::On);
    assert_eq!(told(&history), after);
    history.unprotect().unwrap();
    history.finish_privacy().unwrap();
    assert_eq!(history.privacy(), Privacy::Off);
    drop(history);
    let history = History::open(&path).unwrap();
    assert_eq!(told(&history), after);
    assert!(!found(&folder).is_empty() && !folder.join("key.json").exists());
}

#[test]
fn without_the_passphrase_it_stays_locked_and_as_it_is() {
    let mut scene = Scene::new();
    talk(scene.history());
    scene.history().protect(&secret("open sesame")).unwrap();
    scene.history().finish_privacy().unwrap();
    scene.history = None;
    let path = scene.path();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(
        History::unlocked_by(&path).unwrap(),
        Some(Unlocks::Passphrase)
    );
    let refused = History::open(&path).unwrap_err();
    assert!(matches!(refused, Error::Locked { .. }), "{refused}");
    assert_eq!(refused.code(), "locked");
    let refused = History::unlock(&path, Some(&words("open sesam"))).unwrap_err();
    assert!(matches!(refused, Error::WrongPassphrase), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    History::unlock(&path, Some(&words("open sesame"))).unwrap();
}

#[test]
fn another_passphrase_locks_the_same_key() {
    let mut scene = Scene::new();
    talk(scene.history());
    let before = told(scene.history());
    scene.history().protect(&secret("open sesame")).unwrap();
    scene.history().finish_privacy().unwrap();
    scene.reopen_with("open sesame");
    let path = scene.path();
    let bytes = std::fs::read(&path).unwrap();
    let history = scene.history();
    let wrong = history.change_secret(Some(&words("close sesame")), &secret("another one"));
    assert!(matches!(wrong, Err(Error::WrongPassphrase)));
    let unsaid = history.change_secret(None, &secret("another one"));
    assert!(matches!(unsaid, Err(Error::Locked { .. })));
    let current = words("open sesame");
    let short = history.change_secret(Some(&current), &secret("short"));
    assert!(matches!(short, Err(Error::PassphraseTooShort)));
    history
        .change_secret(Some(&current), &secret("another one"))
        .unwrap();
    assert_eq!(
        std::fs::read(&path).unwrap(),
        bytes,
        "nothing else is written"
    );
    scene.history = None;
    let old = History::unlock(&path, Some(&current)).unwrap_err();
    assert!(matches!(old, Error::WrongPassphrase));
    scene.reopen_with("another one");
    assert_eq!(told(scene.history()), before);
}

#[test]
fn a_damaged_key_file_is_told_from_a_wrong_passphrase() {
    let mut scene = Scene::new();
    talk(scene.history());
    scene.history().protect(&secret("open sesame")).unwrap();
    scene.history = None;
    let (path, key) = (scene.path(), scene.folder.path().join("key.json"));
    let whole = std::fs::read(&key).unwrap();
    let said = words("open sesame");
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 7);
        std::fs::write(&key, &bytes).unwrap();
        let refused = History::unlock(&path, Some(&said)).unwrap_err();
        let is_told = matches!(
            refused,
            Error::KeyFileDamaged { .. } | Error::KeyFileTooNew { .. }
        );
        assert!(is_told, "byte {at}: {refused}");
        assert_eq!(std::fs::read(&key).unwrap(), bytes, "nothing was changed");
    }
    for len in [0, 1, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&key, &whole[..len]).unwrap();
        let refused = History::unlock(&path, Some(&said)).unwrap_err();
        assert!(matches!(refused, Error::KeyFileDamaged { .. }), "{refused}");
    }
    std::fs::write(&key, &whole).unwrap();
    History::unlock(&path, Some(&said)).unwrap();
}

#[test]
fn a_missing_key_file_is_told_and_nothing_is_deleted() {
    let mut scene = Scene::new();
    talk(scene.history());
    scene.history().protect(&secret("open sesame")).unwrap();
    scene.history = None;
    let (path, key) = (scene.path(), scene.folder.path().join("key.json"));
    let (bytes, kept) = (std::fs::read(&path).unwrap(), std::fs::read(&key).unwrap());
    std::fs::remove_file(&key).unwrap();
    let refused = History::open(&path).unwrap_err();
    assert!(matches!(refused, Error::KeyFileMissing { .. }), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    std::fs::write(&key, kept).unwrap();
    History::unlock(&path, Some(&words("open sesame"))).unwrap();
}

#[test]
fn a_damaged_encrypted_history_is_told_and_left_as_it_is() {
    let mut scene = Scene::new();
    talk(scene.history());
    scene.history().protect(&secret("open sesame")).unwrap();
    scene.history = None;
    let path = scene.path();
    // Not left cleanly, so that the whole file is looked at.
    std::fs::remove_file(scene.folder.path().join("history.db.clean")).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let refused = History::unlock(&path, Some(&words("open sesame"))).unwrap_err();
    assert!(matches!(refused, Error::HistoryCorrupt { .. }), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

#[test]
fn copies_of_older_versions_do_not_outlive_turning_it_on() {
    let mut scene = Scene::new();
    talk(scene.history());
    scene.history = None;
    let backup = scene.folder.path().join("history.db.v1.backup");
    std::fs::copy(scene.path(), &backup).unwrap();
    scene.reopen();
    scene.history().protect(&secret("open sesame")).unwrap();
    assert!(!backup.exists());
    assert_eq!(found(scene.folder.path()), NOWHERE);
}

#[test]
fn what_cannot_be_turned_on_changes_nothing() {
    let mut scene = Scene::new();
    talk(scene.history());
    let before = told(scene.history());
    let short = scene.history().protect(&secret("1234567"));
    assert!(matches!(short, Err(Error::PassphraseTooShort)));
    // The copy has no place to be made in.
    let obstacle = scene.folder.path().join("history.db.converting");
    std::fs::create_dir(&obstacle).unwrap();
    scene.history().protect(&secret("open sesame")).unwrap_err();
    assert_eq!(scene.history().privacy(), Privacy::Off);
    assert!(!scene.folder.path().join("key.json").exists());
    assert_eq!(told(scene.history()), before);
    std::fs::remove_dir(&obstacle).unwrap();
    scene.history().protect(&secret("open sesame")).unwrap();
    let again = scene.history().protect(&secret("open sesame"));
    assert!(matches!(again, Err(Error::Privacy(_))));
    std::fs::create_dir(&obstacle).unwrap();
    scene.history().unprotect().unwrap_err();
    assert_eq!(scene.history().privacy(), Privacy::TurningOn);
    assert_eq!(told(scene.history()), before);
}

#[test]
fn what_is_deleted_is_not_on_disk_any_more() {
    let mut scene = Scene::new();
    let gone = talk(scene.history());
    let stays = scene.conversation("Other birds");
    scene.user(&stays, None, "Do swifts sleep?");
    scene.history().delete_conversation(&gone.id, 5000).unwrap();
    let folder = scene.folder.path().to_owned();
    assert!(!found(&folder).is_empty(), "it can be taken back");
    // A word by itself, as the search index keeps it.
    let path = scene.path();
    let has_word = || {
        let bytes = std::fs::read(&path).unwrap();
        bytes.windows(8).any(|window| window == b"zanzibar")
    };
    scene.reopen();
    assert!(has_word());
    scene.history().purge_deleted(5001).unwrap();
    assert_eq!(found(&folder), NOWHERE);
    assert!(!has_word());
    assert_eq!(scene.history().search("swifts", 9).unwrap().len(), 1);
}
