//! What stays in the pool: the open conversation, and the system prompts that conversations share.

use engine::{Answer, Request};
use store::ConversationId;
use tests::{Chat, Subject, prose};

/// Bytes of a block of the default model, in q8.
const BLOCK: u64 = 64 * 12_240;

fn ask(chat: &Chat, request: Request) {
    let answer = chat.engine().ask(request).expect("answer");
    assert!(matches!(answer, Answer::Done), "{answer:?}");
}

fn open(chat: &Chat, conversation: Option<&ConversationId>) {
    let conversation = conversation.cloned();
    ask(chat, Request::Open { conversation });
}

fn point_at(chat: &Chat, conversation: &ConversationId) {
    let conversation = conversation.clone();
    ask(chat, Request::Warm { conversation });
}

#[test]
fn pointing_at_a_conversation_does_not_push_out_the_open_one() {
    let mut chat = Chat::new(Subject::Real);
    // Room for one and a half of two conversations.
    chat.restart_with_pool(9 * BLOCK);
    let (mine, other) = (chat.conversation.clone(), chat.new_conversation(""));
    chat.say_in(&mine, &prose(0, 200));
    chat.say_in(&other, &prose(1, 200));
    open(&chat, Some(&mine));
    chat.say_in(&mine, "Go on.");
    point_at(&chat, &other);
    let kept = chat.say_in(&mine, "And then?").prefill;
    assert_eq!(kept.restored, 0, "{kept:?}");
    assert!(kept.resident > 4 * 64, "{kept:?}");
    // Nobody looks at it: now the other one comes instead.
    open(&chat, None);
    point_at(&chat, &other);
    let left = chat.say_in(&mine, "And then?").prefill;
    assert!(left.restored > 0, "{left:?}");
}

#[test]
fn a_turn_pushes_out_the_open_conversation_rather_than_fail() {
    let mut chat = Chat::new(Subject::Real);
    chat.restart_with_pool(9 * BLOCK);
    let (mine, other) = (chat.conversation.clone(), chat.new_conversation(""));
    chat.say_in(&mine, &prose(0, 200));
    open(&chat, Some(&mine));
    let outcome = chat.say_in(&other, &prose(1, 300));
    assert!(!outcome.ids.is_empty());
    // What remains of it is its beginning.
    let back = chat.say_in(&mine, "Go on.").prefill;
    assert!(back.resident > 0 && back.restored > 0, "{back:?}");
}

#[test]
fn a_system_prompt_that_conversations_share_stays_when_they_go() {
    let system = prose(7, 150);
    let mut chat = Chat::with_system(Subject::Real, &system);
    chat.restart_with_pool(10 * BLOCK);
    let begin = |chat: &mut Chat| {
        let conversation = chat.new_conversation(&system);
        chat.say_in(&conversation, "Hello.").prefill
    };
    begin(&mut chat);
    begin(&mut chat);
    // Twice as much as the pool holds, by others.
    for number in 0..4 {
        let conversation = chat.new_conversation("");
        chat.say_in(&conversation, &prose(number, 150));
    }
    let again = begin(&mut chat);
    assert!(again.resident >= 2 * 64, "{again:?}");
}
