//! Law 5: any difference in what a block's bytes depend on is a miss.

use std::path::Path;
use std::time::{Duration, SystemTime};

use engine::{KvChoice, MemoryLimits};
use models::Architecture;
use models::tiny::{self, TinyModel};
use tests::{Chat, Subject, prose};

#[test]
fn another_model_with_the_same_tokenizer_restores_nothing() {
    let mut chat = Chat::new(Subject::Tiny(Architecture::Llama, 1));
    Subject::Tiny(Architecture::Llama, 2).install(&chat.home().join("models"));
    let conversation = chat.conversation.clone();
    chat.history()
        .set_model(&conversation, Some("tiny-1"))
        .expect("model");
    let first = chat.say(&prose(0, 150));
    chat.history()
        .set_model(&conversation, Some("tiny-2"))
        .expect("model");
    let other = chat.say_after(&first.message, "And then?");
    assert_eq!(
        other.prefill.computed, other.prompt_tokens,
        "no block of tiny-1 serves tiny-2"
    );

    chat.history()
        .set_model(&conversation, Some("tiny-1"))
        .expect("model");
    let back = chat.say_after(&first.message, "And then?");
    assert!(
        back.prefill.restored > 100,
        "tiny-1 finds its own blocks again: {:?}",
        back.prefill
    );
    assert_ne!(
        back.ids, other.ids,
        "the two models differ, so the test can fail"
    );
}

#[test]
fn another_format_of_keys_and_values_restores_nothing() {
    let mut chat = Chat::new(Subject::TINY);
    // Formats of the same size, so that only their names keep them apart.
    let keep_in = |chat: &Chat, format: &str| {
        let limits = MemoryLimits {
            kv: KvChoice(format.parse().expect("a format")),
            ..MemoryLimits::pool(64 << 20)
        };
        chat.engine().limit(limits).expect("limits");
    };
    keep_in(&chat, "f16");
    let first = chat.say(&prose(0, 150));
    keep_in(&chat, "bf16");
    let other = chat.say_after(&first.message, "And then?");
    assert_eq!(
        other.prefill.computed, other.prompt_tokens,
        "no block in f16 serves bf16"
    );
    keep_in(&chat, "f16");
    let back = chat.say_after(&first.message, "And then?");
    assert!(
        back.prefill.restored > 100,
        "f16 finds its own blocks again: {:?}",
        back.prefill
    );
}

/// Writes other weights into a model file without changing its size, modification time and inode, as unpacking an
/// archive of another fine-tune may do.
fn replace_in_place(path: &Path, bytes: &[u8]) {
    let before = std::fs::metadata(path).expect("the file");
    assert_eq!(bytes.len() as u64, before.len(), "the sizes tell nothing");
    std::fs::write(path, bytes).expect("replaced");
    set_old(path);
    let after = std::fs::metadata(path).expect("the file");
    assert_eq!(after.modified().ok(), before.modified().ok());
}

/// The bytes of another model file of the same size.
fn other_model() -> Vec<u8> {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("other.gguf");
    tiny::write(&path, &TinyModel::new(Architecture::Llama, 2)).expect("another model");
    std::fs::read(&path).expect("another model")
}

/// Sets a file's modification time to a fixed value in the past.
fn set_old(path: &Path) {
    let file = std::fs::File::options().write(true).open(path);
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_580_601_600);
    file.expect("the file").set_modified(old).expect("a time");
}

#[test]
fn a_model_replaced_in_place_with_the_same_size_and_time_is_another_model() {
    for restarts in [false, true] {
        let mut chat = Chat::new(Subject::TINY);
        let path = chat.home().join("models/tiny-1.gguf");
        set_old(&path);
        let (old, new) = (std::fs::read(&path).expect("the model"), other_model());
        chat.restart();
        let first = chat.say(&prose(0, 150));
        let again = chat.say_after(&first.message, "And then?");
        assert!(again.prefill.resident > 100, "{:?}", again.prefill);

        replace_in_place(&path, &new);
        if restarts {
            chat.restart();
        }
        let other = chat.say_after(&first.message, "And then?");
        assert_eq!(
            other.prefill.computed, other.prompt_tokens,
            "no block of the old weights serves the new ones (restarted: {restarts})"
        );
        let cold = {
            let mut cold = chat.without_cache();
            std::fs::write(cold.home().join("models/tiny-1.gguf"), &new).expect("replaced");
            cold.say_after(&first.message, "And then?")
        };
        assert_eq!(
            other.ids, cold.ids,
            "what the new weights say by themselves"
        );

        // The old weights are back, and so are their blocks.
        replace_in_place(&path, &old);
        let back = chat.say_after(&first.message, "And then?");
        assert!(
            back.prefill.restored > 100,
            "found by content, not by the file's times: {:?}",
            back.prefill
        );
        assert_eq!(back.ids, again.ids);
    }
}

#[test]
fn a_model_that_is_replaced_by_something_unusable_goes_on_as_it_is() {
    let mut chat = Chat::new(Subject::TINY);
    let path = chat.home().join("models/tiny-1.gguf");
    let first = chat.say(&prose(0, 150));
    // Like a download in progress.
    let whole = std::fs::read(&path).expect("the model");
    std::fs::write(&path, &whole[..whole.len() / 2]).expect("cut");
    let next = chat.say_after(&first.message, "And then?");
    assert!(next.prefill.resident > 100, "{:?}", next.prefill);
}
