//! Budgets are hard, and a turn that does not fit is refused with the numbers.

use engine::{MemoryLimits, Turn, TurnEvent, TurnOptions};
use tests::{Chat, Subject, prose};

/// Bytes of a block of the default model, in q8.
const BLOCK: u64 = 64 * 12_240;

#[test]
fn the_pool_never_grows_above_its_budget() {
    let mut chat = Chat::new(Subject::Real);
    // Room for about 500 tokens; three conversations want more.
    chat.restart_with_pool(8 * BLOCK);
    for number in 0..3 {
        let conversation = chat.new_conversation("");
        chat.say_in(&conversation, &prose(number, 200));
        let memory = chat.engine().memory().expect("memory");
        assert_eq!(memory.pool.budget_bytes, 8 * BLOCK);
        assert!(memory.pool.reserved_bytes <= 8 * BLOCK, "{memory:?}");
    }
}

#[test]
fn a_turn_that_does_not_fit_is_refused_with_the_numbers_and_fits_with_more() {
    let mut chat = Chat::new(Subject::Real);
    chat.restart_with_pool(4 * BLOCK);
    let turn = |chat: &Chat, parent| Turn::Send {
        conversation: chat.conversation.clone(),
        parent,
        text: prose(0, 400),
        options: TurnOptions {
            greedy: true,
            seed: None,
            max_tokens: Some(4),
            ..TurnOptions::default()
        },
    };
    let events: Vec<_> = chat.engine().submit(turn(&chat, None)).collect();
    let Some(TurnEvent::Error { code, message }) = events.last() else {
        panic!("{events:?}");
    };
    assert_eq!(code, "memory_full");
    // 4 blocks of 0.75 MiB are there; more than 400 tokens and a block beside them want at least 8.
    assert!(message.contains("3 MiB are free"), "{message}");
    let needed: u64 = message
        .split_whitespace()
        .find_map(|word| word.parse().ok())
        .expect("a number");
    assert!(needed >= (8 * BLOCK) >> 20, "{message}");

    // More memory without a restart.
    chat.engine()
        .limit(MemoryLimits::pool(64 << 20))
        .expect("limits");
    let message = chat.user_messages().pop().expect("the words are kept");
    let reply = chat.regenerate(&message);
    assert!(!reply.ids.is_empty());
}

#[test]
fn a_smaller_disk_budget_holds_at_once() {
    let mut chat = Chat::new(Subject::Real);
    chat.say(&prose(0, 400));
    let before = chat.engine().cache_stats().expect("stats");
    assert!(before.num_blocks > 6, "{before:?}");
    let limits = MemoryLimits {
        disk_bytes: Some(5 * BLOCK),
        ..MemoryLimits::pool(256 << 20)
    };
    chat.engine().limit(limits).expect("limits");
    let after = chat.engine().cache_stats().expect("stats");
    assert_eq!(after.budget_bytes, 5 * BLOCK);
    assert!(after.file_bytes <= 5 * BLOCK, "{after:?}");
    // What went from disk is still in the pool, and no word is lost.
    chat.say("And then?");
}

#[test]
fn a_pool_too_small_for_the_model_is_refused_and_not_exceeded() {
    let mut chat = Chat::new(Subject::Real);
    chat.restart_with_pool(2 * BLOCK - 1);
    let error = chat.engine().load(None).expect_err("no room");
    assert_eq!(error.code(), "memory_full");
    assert!(error.to_string().contains("needs 2 MiB"), "{error}");
    chat.restart_with_pool(2 * BLOCK);
    chat.engine().load(None).expect("just enough");
    assert_eq!(
        chat.engine().memory().expect("memory").pool.budget_bytes,
        2 * BLOCK
    );
}
