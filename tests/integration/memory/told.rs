//! What memory is used for is told, also while a reply is written.

use engine::{Turn, TurnEvent, TurnOptions};
use store::MessageState;
use tests::{Chat, Subject, prose};

#[test]
fn memory_is_told_in_the_middle_of_a_reply_and_adds_up() {
    let mut chat = Chat::new(Subject::Real);
    let before = chat.engine().memory().expect("memory");
    assert_eq!(
        (before.model, before.weights_bytes, before.pool),
        (None, 0, Default::default())
    );

    let turn = Turn::Send {
        conversation: chat.conversation.clone(),
        parent: None,
        text: prose(0, 150),
        options: TurnOptions {
            greedy: true,
            seed: None,
            max_tokens: Some(10_000),
            ..TurnOptions::default()
        },
    };
    let mut during = None;
    let mut events = Vec::new();
    for event in chat.engine().submit(turn) {
        if matches!(event, TurnEvent::Token { .. }) && during.is_none() {
            during = Some(chat.engine().memory().expect("memory"));
            chat.engine()
                .cancel(chat.conversation.clone())
                .expect("cancel");
        }
        events.push(event);
    }
    assert_eq!(
        chat.outcome(&events).state,
        MessageState::Stopped,
        "it was answered before the end"
    );
    let during = during.expect("a token");
    assert!(during.weights_bytes > 80 << 20, "{during:?}");
    // More than 150 words, so at least three blocks of 64 tokens.
    let block = 64 * 12_240;
    assert!(during.pool.active_bytes >= 3 * block, "{during:?}");
    assert_eq!(during.pool.budget_bytes, (256 << 20) / block * block);
    assert_eq!(
        during.resident_conversations,
        during.pool.budget_bytes / (64 * block)
    );

    // Saving waits until the turn has ended; this waits for it.
    chat.engine().cache_stats().expect("saved");
    let after = chat.engine().memory().expect("memory");
    assert_eq!(after.pool.active_bytes, 0, "{after:?}");
    assert!(after.pool.cached_bytes >= 3 * block, "{after:?}");
    assert!(
        after.pool.reserved_bytes >= after.pool.cached_bytes,
        "{after:?}"
    );
    assert!(
        after.disk.cached_bytes > 0 && after.disk.reserved_bytes > 0,
        "{after:?}"
    );
    chat.say("And then?");
}
