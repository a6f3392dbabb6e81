//! Files of every version that was ever released, made once and read for ever. A new version adds fixtures; it never
//! changes these. `make_fixtures` shows how they were made.

use std::path::{Path, PathBuf};

use store::{
    BlockStore, BranchPart, Budget, Conversation, History, HitKind, MessageKind, MessageState,
    NewConversation, Prefill, Privacy, Role, TokenRow, TurnStats, Unsent, WhenFull,
};

use crate::cache::*;
use crate::privacy::{secret, words};
use crate::support::{TOKENIZER, message};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

/// A store over a copy of a fixture's folder; its pool is open.
fn opened(name: &str) -> Cache {
    let mut cache = Cache::new(PLENTY);
    cache.store = None;
    std::fs::remove_dir_all(cache.dir()).unwrap();
    std::fs::create_dir(cache.dir()).unwrap();
    for entry in std::fs::read_dir(fixture(name)).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), cache.dir().join(entry.file_name())).unwrap();
    }
    cache.reopen(PLENTY);
    assert!(cache.store().open_pool(&ONE, FORMAT, "one"));
    cache
}

#[test]
fn block_store_format_1_is_a_miss_and_gives_its_place_to_the_next() {
    let mut cache = opened("kv-1");
    let blocks = sequence(&ONE, 1, 64 + 9);
    assert!(cache.store().blocks(&ONE).is_empty());
    assert!(!blocks.iter().any(|block| cache.has(&ONE, block)));
    assert!(cache.pool_files().is_empty());
    cache.put_all(&ONE, &blocks);
    assert!(blocks.iter().all(|block| cache.has(&ONE, block)));
}

#[test]
fn slots_of_format_1_under_an_index_of_this_version_are_misses() {
    let mut cache = opened("kv-2");
    let name = format!("{ONE}.0.pool");
    let mut slots = std::fs::read(fixture("kv-1").join(&name)).unwrap();
    slots.resize(2 * SLOT_BYTES as usize, 0);
    std::fs::write(cache.dir().join(&name), slots).unwrap();
    let blocks = sequence(&ONE, 1, 64 + 9);
    assert!(!blocks.iter().any(|block| cache.has(&ONE, block)));
    assert!(cache.store().blocks(&ONE).is_empty());
}

#[test]
fn block_store_format_2_is_read() {
    let mut cache = opened("kv-2");
    let blocks = sequence(&ONE, 1, 64 + 9);
    assert_eq!(cache.store().blocks(&ONE), blocks);
    assert!(blocks.iter().all(|block| cache.has(&ONE, block)));
    assert_eq!(cache.store().refs()[0].block, blocks[1].id);
    assert_eq!(cache.store().stats().pools[0].label, "one");
}

#[test]
fn block_store_format_2_is_still_what_is_written() {
    let mut cache = Cache::new(PLENTY);
    cache.put_all(&ONE, &sequence(&ONE, 1, 64 + 9));
    let name = format!("{ONE}.0.pool");
    let (ours, frozen) = (cache.dir().join(&name), fixture("kv-2").join(&name));
    assert!(
        std::fs::read(ours).unwrap() == std::fs::read(frozen).unwrap(),
        "a new layout needs a new version"
    );
}

#[test]
fn history_schema_1_is_read() {
    let (_folder, history) = open("history-1.db");
    assert_birds(&history);
}

#[test]
fn history_schema_2_is_read() {
    let (_folder, history) = open("history-2.db");
    let talk = assert_birds(&history);
    assert_eq!(talk.when_full, WhenFull::Compact);
    let messages = history.messages(&talk.id).unwrap();
    assert_eq!(
        (messages[2].kind, messages[2].text.as_str()),
        (MessageKind::Summary, "Swifts sleep in flight.")
    );
}

#[test]
fn history_schema_3_is_read() {
    let (_folder, history) = open("history-3.db");
    let talk = assert_birds(&history);
    let unsent = history.unsent().unwrap().remove(0);
    assert_eq!(
        (unsent.conversation, unsent.message, unsent.text.as_str()),
        (Some(talk.id), None, "And bats?")
    );
}

#[test]
fn history_schema_4_is_read() {
    let (_folder, history) = open("history-4.db");
    let talk = assert_birds(&history);
    let found = history.search("birds", 9).unwrap();
    assert_eq!(
        (found[0].kind, &found[0].conversation),
        (HitKind::Title, &talk.id)
    );
    assert_eq!(history.unsent().unwrap().len(), 1);
}

fn open(name: &str) -> (tempfile::TempDir, History) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.db");
    std::fs::copy(fixture(name), &path).unwrap();
    let history = History::open(&path).unwrap();
    (folder, history)
}

/// What every version of the history holds.
fn assert_birds(history: &History) -> Conversation {
    let talk = history.conversations().unwrap().remove(0);
    assert_eq!(
        (talk.title.as_str(), talk.system_prompt.as_str()),
        ("Birds", "Be brief.")
    );
    assert_eq!(
        (talk.created_at, talk.model.as_deref()),
        (1000, Some("smol"))
    );
    let messages = history.messages(&talk.id).unwrap();
    let branch = history.branch(&messages[1].id).unwrap();
    assert_eq!(branch[0].kind, MessageKind::Said);
    assert_eq!(
        [branch[0].text.as_str(), &branch[1].text],
        ["Do swifts sleep?", "Yes, in flight."]
    );
    assert_eq!(
        (branch[0].role, branch[1].role),
        (Role::User, Role::Assistant)
    );
    assert_eq!(
        (branch[1].state, branch[1].stats),
        (MessageState::Complete, Some(stats()))
    );
    assert_eq!(
        history.tokens(&branch[1].id, &TOKENIZER).unwrap(),
        Some(vec![5, 6, 7])
    );
    let found = history.search("flight", 9).unwrap();
    assert!(
        found
            .iter()
            .any(|hit| hit.message.as_ref() == Some(&branch[1].id))
    );
    assert_eq!(history.setting("theme").unwrap(), Some("dark".into()));
    assert_eq!(history.models().unwrap()[0].path, "/models/smol.gguf");
    talk
}

fn stats() -> TurnStats {
    TurnStats {
        prefill: Prefill {
            resident: 1,
            restored: 64,
            computed: 3,
        },
        prompt_tokens: 68,
        completion_tokens: 3,
        ttft_ms: 10.5,
        tokens_per_s: 99.0,
        restore_ms: 0.25,
    }
}

#[test]
fn an_encrypted_data_folder_of_version_1_is_read() {
    let folder = tempfile::tempdir().unwrap();
    copy_folder(&fixture("sealed-1"), folder.path());
    let passphrase = words("open sesame");
    let path = folder.path().join("history.db");
    let history = History::unlock(&path, Some(&passphrase)).unwrap();
    assert_eq!(history.privacy(), Privacy::On);
    assert_birds(&history);
    let (kv, seal) = (folder.path().join("kv"), history.seal());
    let mut store = BlockStore::open_under(&kv, Budget::Bytes(PLENTY), seal);
    assert!(store.open_pool(&ONE, FORMAT, "one"));
    let blocks = sequence(&ONE, 1, 64 + 9);
    assert_eq!(store.blocks(&ONE), blocks);
    assert_eq!(store.verify().bad, 0);
    assert_eq!(store.refs()[0].block, blocks[1].id);
    let mut out = vec![0; FORMAT.payload_bytes()];
    get(&mut store, &ONE, &blocks[0], &mut out).unwrap();
    assert!(out == payload(&blocks[0]));
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy_folder(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// Writes the encrypted fixture of this version into an empty folder, named as for `make_fixtures`.
#[test]
#[ignore = "makes the fixture of a new version"]
fn make_sealed_fixture() {
    let folder = PathBuf::from(std::env::var_os("FIXTURES").expect("a folder to write to"));
    let path = folder.join("history.db");
    std::fs::copy(fixture("history-2.db"), &path).unwrap();
    let mut history = History::open(&path).unwrap();
    history.protect(&secret("open sesame")).unwrap();
    history.finish_privacy().unwrap();
    let (kv, seal) = (folder.join("kv"), history.seal());
    let mut store = BlockStore::open_under(&kv, Budget::Bytes(PLENTY), seal);
    assert!(store.open_pool(&ONE, FORMAT, "one"));
    let blocks = sequence(&ONE, 1, 64 + 9);
    for block in &blocks {
        store.put(&ONE, block, &payload(block)).unwrap();
    }
    store.set_ref("leaf", &ONE, &blocks[1].id);
    drop((store, history));
    std::fs::remove_file(folder.join("history.db.clean")).unwrap();
}

/// Writes the fixtures of this version into an empty folder: `FIXTURES=… cargo test -p store make_fixtures -- --ignored`.
#[test]
#[ignore = "makes the fixtures of a new version"]
fn make_fixtures() {
    let folder = PathBuf::from(std::env::var_os("FIXTURES").expect("a folder to write to"));
    let mut history = History::open(&folder.join("history-4.db")).unwrap();
    let new = NewConversation {
        system_prompt: "Be brief.".into(),
        model: Some("smol".into()),
        ..Default::default()
    };
    let talk = history.create_conversation(new, 1000).unwrap();
    history.rename(&talk.id, "Birds").unwrap();
    let user = history
        .append_message(message(&talk, None, Role::User, "Do swifts sleep?"), 2000)
        .unwrap();
    history
        .set_tokens(&user.id, &TOKENIZER, &[1, 2, 3, 4])
        .unwrap();
    let reply = history
        .begin_reply(&talk.id, &user.id, Some("smol"), &TOKENIZER, 3000)
        .unwrap();
    let row = TokenRow {
        tokenizer: TOKENIZER,
        ids: vec![5, 6, 7],
    };
    history
        .finish_reply(
            &reply.id,
            "Yes, in flight.",
            &row,
            MessageState::Complete,
            Some(stats()),
        )
        .unwrap();
    history.set_setting("theme", &"dark".into()).unwrap();
    history
        .add_model("smol", "/models/smol.gguf".as_ref())
        .unwrap();
    history.set_when_full(&talk.id, WhenFull::Compact).unwrap();
    let summary = BranchPart::Summary {
        text: "Swifts sleep in flight.".into(),
        model: Some("smol".into()),
    };
    history.add_branch(&talk.id, &[summary], 4000).unwrap();
    let unsent = Unsent {
        conversation: Some(talk.id),
        message: None,
        text: "And bats?".into(),
    };
    history.keep_unsent(&unsent).unwrap();
    drop(history);
    std::fs::remove_file(folder.join("history-4.db.clean")).unwrap();

    let mut store = BlockStore::open(&folder.join("kv-2"), Budget::Bytes(PLENTY));
    assert!(store.open_pool(&ONE, FORMAT, "one"));
    let blocks = sequence(&ONE, 1, 64 + 9);
    for block in &blocks {
        store.put(&ONE, block, &payload(block)).unwrap();
    }
    store.touch(&ONE, &[blocks[0].id, blocks[1].id], 42);
    store.set_ref("leaf", &ONE, &blocks[1].id);
}
