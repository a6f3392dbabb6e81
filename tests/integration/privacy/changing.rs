//! Turning encryption on and off in the middle of a conversation changes no token and reads nothing again.

use std::path::Path;

use models::Architecture;
use store::{Privacy, Secret};
use tests::{Chat, Outcome, Subject, prose};

/// The last reply of a conversation after `change` and a restart.
fn last_reply(subject: Subject, change: impl FnOnce(&mut Chat)) -> Outcome {
    let mut chat = Chat::new(subject);
    chat.say(&prose(0, 150));
    chat.say(&prose(1, 75));
    change(&mut chat);
    chat.restart();
    chat.say("And then?")
}

fn assert_same(subject: Subject) {
    let plain = last_reply(subject, |_| {});
    let on = last_reply(subject, |chat| chat.protect("open sesame"));
    let off = last_reply(subject, |chat| {
        chat.protect("open sesame");
        chat.restart();
        chat.unprotect();
    });
    assert!(plain.prefill.restored > 100, "{plain:?}");
    for changed in [on, off] {
        assert_eq!((&changed.ids, &changed.text), (&plain.ids, &plain.text));
        assert_eq!(changed.prefill, plain.prefill);
    }
}

#[test]
fn law_1_resume_equals_never_left_under_encryption_on_the_default_model() {
    assert_same(Subject::Real);
}

#[test]
fn law_1_resume_equals_never_left_under_encryption_in_every_architecture() {
    for architecture in [
        Architecture::Llama,
        Architecture::Qwen2,
        Architecture::Qwen3,
    ] {
        assert_same(Subject::Tiny(architecture, 3));
    }
}

#[test]
fn a_turn_that_comes_while_blocks_are_rewritten_reuses_them_all() {
    let mut chat = Chat::new(Subject::TINY);
    chat.say(&prose(0, 600));
    let known = chat.say("Go on.").prompt_tokens;
    let passphrase = "open sesame".to_owned().into();
    let state = chat
        .engine()
        .protect(Secret::Passphrase { passphrase })
        .expect("encrypted");
    assert_eq!(state.privacy, Privacy::TurningOn);
    assert!(state.blocks_left > 5, "{state:?}");
    let reply = chat.say("And then?");
    assert!(
        reply.prefill.computed < 64,
        "{:?} of {known}",
        reply.prefill
    );
}

#[test]
fn law_4_deleting_kv_loses_no_word_under_encryption() {
    let mut chat = Chat::new(Subject::TINY);
    chat.say(&prose(0, 100));
    chat.protect("open sesame");
    chat.stop();
    std::fs::remove_dir_all(chat.kv()).expect("deleted");
    chat.start();
    let reply = chat.say("And then?");
    assert_eq!(reply.prefill.restored, 0);
    assert_eq!(chat.messages().len(), 4);
    assert!(has_no_plain_pool(&chat.kv()));
}

#[test]
fn a_conversation_that_is_forgotten_leaves_nothing_of_its_own() {
    let said = "the canary of Zanzibar sings at midnight";
    for encrypted in [false, true] {
        let mut chat = Chat::new(Subject::TINY);
        if encrypted {
            chat.protect("open sesame");
        }
        let other = chat.new_conversation("");
        chat.say(&prose(0, 150));
        chat.say_in(&other, &format!("{} {said} {}", prose(5, 75), prose(6, 75)));
        let before = chat.engine().cache_stats().expect("stats").num_blocks;
        let gone = {
            let mut history = chat.history();
            history
                .delete_conversation(&other, 1_700_000_000_001)
                .expect("deleted");
            history.purge_deleted(1_700_000_000_002).expect("purged")
        };
        chat.engine().forget(gone).expect("forgotten");
        let after = chat.engine().cache_stats().expect("stats").num_blocks;
        assert!(0 < after && after < before, "{before} blocks, then {after}");
        chat.restart();
        let later = chat.engine().cache_stats().expect("stats").num_blocks;
        assert_eq!(
            later, after,
            "what was in memory does not come back to disk"
        );
        chat.stop();
        for file in std::fs::read_dir(chat.home()).expect("folder").flatten() {
            if file.path().is_file() {
                let bytes = std::fs::read(file.path()).expect("file");
                let holds = bytes
                    .windows(said.len())
                    .any(|window| window == said.as_bytes());
                assert!(!holds, "{:?}", file.path());
            }
        }
    }
}

fn has_no_plain_pool(kv: &Path) -> bool {
    std::fs::read_dir(kv)
        .expect("folder")
        .flatten()
        .all(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            !name.ends_with(".pool") || name.ends_with(".sealed.pool")
        })
}
