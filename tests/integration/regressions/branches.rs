//! Conversations beside each other, and branches within one.

use tests::{Chat, Subject, prose};

#[test]
fn two_conversations_alternate_without_reading_again() {
    for subject in [Subject::TINY, Subject::Real] {
        let mut chat = Chat::new(subject);
        let other = chat.new_conversation("");
        chat.say(&prose(0, 90));
        chat.say_in(&other, &prose(1, 90));
        for _ in 0..3 {
            let (a, b) = (chat.say("More."), chat.say_in(&other, "More."));
            for outcome in [a, b] {
                assert!(
                    outcome.prefill.computed < 40,
                    "{subject:?}: {:?}",
                    outcome.prefill
                );
            }
        }
    }
}

#[test]
fn one_system_prompt_is_one_set_of_blocks() {
    let system = prose(0, 200);
    let mut chat = Chat::with_system(Subject::TINY, &system);
    let other = chat.new_conversation(&system);
    chat.say("Hello.");
    let first = chat.say_in(&other, "Good morning.");
    assert!(first.prefill.resident > 190, "{:?}", first.prefill);
}

#[test]
fn a_small_pool_evicts_and_still_answers_exactly() {
    let mut chat = Chat::new(Subject::TINY);
    // Room for 20 blocks: one conversation fits, two do not.
    chat.restart_with_pool(20 * 16 * 1024);
    let other = chat.new_conversation("");
    chat.say(&prose(0, 240));
    chat.say_in(&other, &prose(1, 240));
    let mut cold = chat.without_cache();
    for _ in 0..3 {
        let (a, b) = (chat.say("More."), chat.say_in(&other, "More."));
        assert_eq!(a.ids, cold.say("More.").ids);
        assert_eq!(b.ids, cold.say_in(&other, "More.").ids);
        assert!(
            a.prefill.computed < 40 && a.prefill.restored > 0,
            "{:?}",
            a.prefill
        );
    }
}

#[test]
fn deleting_a_conversation_leaves_the_other_warm() {
    let system = prose(0, 200);
    let mut chat = Chat::with_system(Subject::TINY, &system);
    let other = chat.new_conversation(&system);
    chat.say(&prose(1, 200));
    chat.say_in(&other, &prose(2, 200));
    let gone = chat.conversation.clone();
    let messages = {
        let mut history = chat.history();
        history.delete_conversation(&gone, 5).expect("delete");
        history.purge_deleted(10).expect("purge")
    };
    assert!(!messages.is_empty());
    let before = chat.engine().cache_stats().expect("stats").num_blocks;
    chat.engine().forget(messages).expect("forget");
    let after = chat.engine().cache_stats().expect("stats").num_blocks;
    assert!(after < before, "{after} of {before} blocks are left");
    chat.restart();
    let next = chat.say_in(&other, "More.");
    assert!(next.prefill.computed < 40, "{:?}", next.prefill);
}
