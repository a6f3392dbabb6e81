//! A word that was said is looked for in every file of the data folder, in every form it could have.

use std::path::{Path, PathBuf};

use engine::EngineConfig;
use models::{DigestCache, Model};
use tests::{Chat, Subject, default_model, prose};

const CANARY: &str = "Quetzalcoatlus northropi over Zanzibar 7f3a";

/// The canary in UTF-8, UTF-16, and as the token ids of its middle, which no neighbour changes.
fn needles() -> Vec<Vec<u8>> {
    let digests = DigestCache::new(None);
    let model = Model::load(&default_model(), EngineConfig::default_threads(), &digests);
    let tokens = model.expect("model").tokenizer().encode(CANARY);
    let middle = &tokens[2..tokens.len() - 2];
    assert!(middle.len() > 6, "{tokens:?}");
    vec![
        CANARY.into(),
        CANARY.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        middle.iter().flat_map(|id| id.to_le_bytes()).collect(),
    ]
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("folder").flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| !path.ends_with("models"))
        .flat_map(|path| match path.is_dir() {
            true => files(&path),
            false => vec![path],
        })
        .collect()
}

/// Which needles are found in which files.
fn found(folder: &Path, needles: &[Vec<u8>]) -> Vec<(PathBuf, usize)> {
    let mut found = Vec::new();
    for path in files(folder) {
        let bytes = std::fs::read(&path).expect("file");
        for (at, needle) in needles.iter().enumerate() {
            // By their first byte first: pool files are large and tests are not optimised.
            let mut rest = bytes.as_slice();
            while let Some(start) = rest.iter().position(|byte| *byte == needle[0]) {
                rest = &rest[start..];
                if rest.starts_with(needle) {
                    found.push((path.clone(), at));
                    break;
                }
                rest = &rest[1..];
            }
        }
    }
    found
}

#[test]
fn what_was_said_is_found_nowhere_on_disk_when_encryption_is_on() {
    let needles = needles();
    let mut chat = Chat::with_system(Subject::Real, &format!("Speak of {CANARY}."));
    let conversation = chat.conversation.clone();
    chat.history().rename(&conversation, CANARY).expect("title");
    chat.say(&format!(
        "{} What is {CANARY}? {}",
        prose(0, 60),
        prose(1, 60)
    ));
    chat.engine()
        .draft(conversation, None, format!("Once more, {CANARY} and"))
        .expect("draft");
    chat.restart();
    let plain = found(chat.home(), &needles);
    let in_a = |name: &str, needle: usize| {
        plain
            .iter()
            .any(|(path, at)| *at == needle && path.to_string_lossy().contains(name))
    };
    assert!(
        in_a("history.db", 0),
        "words are there to be found: {plain:?}"
    );
    assert!(
        in_a("history.db", 2) && in_a(".pool", 2) && in_a("index.db", 2),
        "{plain:?}"
    );

    chat.protect("open sesame");
    assert_eq!(found(chat.home(), &needles), [], "while it runs");
    let reply = chat.say(&format!("Is {CANARY} a bird?"));
    assert!(
        reply.prefill.restored + reply.prefill.resident > 150,
        "{reply:?}"
    );
    assert_eq!(found(chat.home(), &needles), [], "after a turn");
    chat.restart();
    chat.say("And then?");
    assert_eq!(found(chat.home(), &needles), [], "after a restart");
    chat.stop();
    assert_eq!(found(chat.home(), &needles), [], "when it has ended");

    chat.start();
    chat.unprotect();
    chat.stop();
    let plain = found(chat.home(), &needles);
    assert!(
        plain
            .iter()
            .any(|(path, at)| *at == 2 && path.ends_with("index.db")),
        "{plain:?}"
    );
}
