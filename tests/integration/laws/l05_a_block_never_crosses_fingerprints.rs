//! Law 5: any difference in what a block's bytes depend on is a miss.

use engine::{KvChoice, MemoryLimits};
use models::Architecture;
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
