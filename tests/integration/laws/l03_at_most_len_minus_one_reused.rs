//! Law 3: at most `len − 1` tokens are reused, since something must produce logits.

use tests::{Chat, Subject, message_for_prompt, prose};

#[test]
fn regenerate_computes_one_token() {
    for subject in [Subject::TINY, Subject::Real] {
        let mut chat = Chat::new(subject);
        let first = chat.say(&prose(0, 60));
        let again = chat.regenerate(&first.message);
        assert_eq!(again.prefill.computed, 1, "{subject:?}");
        assert_eq!(again.prefill.resident, again.prompt_tokens - 1);
        assert_eq!(
            again.ids, first.ids,
            "greedy replies to one prompt are one reply"
        );
        chat.restart();
        let restored = chat.regenerate(&again.message);
        assert_eq!(restored.prefill.computed, 1, "{subject:?} after a restart");
        assert_eq!(restored.ids, first.ids);
    }
}

#[test]
fn regenerate_computes_one_token_at_block_boundaries() {
    for num_tokens in [63, 64, 65, 127, 128, 129] {
        let mut chat = Chat::new(Subject::TINY);
        chat.engine().load(None).expect("model");
        let first = chat.say(&message_for_prompt(&chat, num_tokens));
        assert_eq!(
            chat.regenerate(&first.message).prefill.computed,
            1,
            "prompt of {num_tokens}"
        );
    }
}
